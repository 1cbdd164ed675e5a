//! Whoever is told of closures: an HTTP server that answers as it is told to, also badly.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io::{Read, Write},
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use axum::{
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderMap, Response, header},
};
use futures::stream;
use serde_json::Value;
use tokio::net::TcpListener;

use super::tls::TlsListener;

/// The signing secret of [`Receiver::webhook`], and another one.
pub const SECRETS: [&str; 2] = ["whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3", "whsec_YW5vdGhlci1zZWNyZXQtb2YtMzItYnl0ZXMtaXMtaGVyZQ=="];

/// What is done with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Behaviour {
    /// Answers with this status.
    Status(u16),
    /// Answers 200 with this body.
    Says(&'static str),
    /// Answers 429 with this `Retry-After`.
    Later(String),
    /// Answers 503 with a `Retry-After` that is the date in so many seconds.
    LaterThan(u64),
    /// Answers 200 after a while.
    Slow(Duration),
    /// Answers 200 with a longer body than anybody wants to read.
    Long,
    /// Answers 307 with another path of its own.
    Redirect,
    /// Never answers.
    Hang,
    /// Answers 200 with a body that never ends.
    Drip,
    /// Answers 200, promises more of a body than comes, and closes the connection.
    Break,
    /// Closes the connection without an answer.
    Drop,
}

impl Behaviour {
    /// Whether the event has been taken.
    pub fn takes(&self) -> bool {
        matches!(self, Self::Status(200..300) | Self::Says(_) | Self::Slow(_) | Self::Long)
    }
}

/// One request.
#[derive(Debug, Clone)]
pub struct Received {
    /// When it came.
    pub at: Instant,
    /// The path.
    pub path: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: String,
    /// What was done with it.
    pub answer: Behaviour,
}

impl Received {
    /// The event's id, by the header.
    pub fn id(&self) -> String {
        self.headers["webhook-id"].to_str().expect("text").to_owned()
    }

    /// When it was signed, in seconds since 1970.
    pub fn timestamp(&self) -> u64 {
        self.headers["webhook-timestamp"].to_str().expect("text").parse().expect("a number")
    }

    /// The body.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The order, or the key of the timer.
    pub fn order(&self) -> i64 {
        self.json()["subject"]
            .as_str()
            .and_then(|text| text.rsplit('/').next()?.parse().ok())
            .unwrap_or_else(|| panic!("no order: {}", self.body))
    }

    /// Panics unless this secret's holder can tell that the request is genuine.
    pub fn assert_signed_with(&self, secret: &str) {
        let webhook = standardwebhooks::Webhook::new(secret).expect("a good secret");
        webhook.verify(self.body.as_bytes(), &self.headers).unwrap_or_else(|error| panic!("{error}: {self:#?}"));
    }
}

#[derive(Debug)]
struct Shared {
    received: Vec<Received>,
    /// For the next requests, one after the other.
    next: VecDeque<Behaviour>,
    /// For all others, by the number of the order.
    by_order: fn(i64) -> Option<Behaviour>,
    /// For all others.
    usual: Behaviour,
    in_hand: BTreeSet<String>,
    /// Events that came while they were in hand.
    parallel: BTreeSet<String>,
}

/// A receiver; it ends with the test.
#[derive(Debug, Clone)]
pub struct Receiver {
    url: String,
    shared: Arc<Mutex<Shared>>,
}

impl Receiver {
    /// One on a free port that answers 200.
    pub async fn start() -> Self {
        Self::on_port(0).await
    }

    /// One on this port.
    pub async fn on_port(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.expect("the port is free");
        let receiver = Self::new(format!("http://{}/hook", listener.local_addr().expect("an address")));
        let router = receiver.router();
        tokio::spawn(async move { axum::serve(listener, router).await });
        receiver
    }

    /// One that speaks TLS by a certificate of its own for `localhost`, which is written to a file.
    pub async fn with_tls(certificate: &Path) -> Self {
        Self::with_certificate(certificate, "localhost", 4096).await
    }

    /// One at `localhost` whose certificate is for this host, and good until this year.
    pub async fn with_certificate(certificate: &Path, host: &str, until: i32) -> Self {
        let listener = TlsListener::bind(certificate, host, until).await;
        let receiver = Self::new(format!("https://localhost:{}/hook", listener.port()));
        let router = receiver.router();
        tokio::spawn(async move { axum::serve(listener, router).await });
        receiver
    }

    fn new(url: String) -> Self {
        let shared = Shared {
            received: Vec::new(),
            next: VecDeque::new(),
            by_order: |_| None,
            usual: Behaviour::Status(200),
            in_hand: BTreeSet::new(),
            parallel: BTreeSet::new(),
        };
        Self { url, shared: Arc::new(Mutex::new(shared)) }
    }

    fn router(&self) -> axum::Router {
        axum::Router::new().fallback(answer).with_state(self.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its settings as a webhook of this name, with retries that a test can wait for; `more` are further ones.
    pub fn webhook(&self, name: &str, more: &str) -> String {
        webhook(name, &self.url, more)
    }

    /// The same as a target of timers.
    pub fn timer_webhook(&self, name: &str, more: &str) -> String {
        let retry = "{ attempts = 200, initial = '50ms', max = '100ms' }";
        let entry = entry(name, &self.url, more).replace("[[events.", "[[timers.");
        format!("[events]\nretry = {retry}\n[timers]\nenabled = true\n{entry}")
    }

    /// The same, to be appended to the settings of another.
    pub fn one_more_webhook(&self, name: &str) -> String {
        entry(name, &self.url, "")
    }

    /// The settings of an endpoint where nobody listens, to be appended to those of another.
    pub fn gone_entry(name: &str) -> String {
        entry(name, &format!("http://127.0.0.1:{}/hook", super::ports::free()), "")
    }

    /// What it does from now on.
    pub fn usually(&self, behaviour: Behaviour) {
        self.lock().usual = behaviour;
    }

    /// What it does from now on with the events of some orders.
    pub fn by_order(&self, behaviour: fn(i64) -> Option<Behaviour>) {
        self.lock().by_order = behaviour;
    }

    /// What it does with the next requests, before it does as usual.
    pub fn next(&self, behaviours: impl IntoIterator<Item = Behaviour>) {
        self.lock().next.extend(behaviours);
    }

    /// All requests.
    pub fn received(&self) -> Vec<Received> {
        self.lock().received.clone()
    }

    /// How often each order was taken.
    pub fn taken(&self) -> BTreeMap<i64, u32> {
        let mut taken = BTreeMap::new();
        for one in self.received().iter().filter(|one| one.answer.takes()) {
            *taken.entry(one.order()).or_default() += 1;
        }
        taken
    }

    /// Events that came while they were still in hand.
    pub fn parallel(&self) -> BTreeSet<String> {
        self.lock().parallel.clone()
    }

    /// Writes down a request, and says what to do with it.
    fn note(&self, path: String, headers: HeaderMap, body: String) -> (String, Behaviour) {
        let mut shared = self.lock();
        let mut received = Received { at: Instant::now(), path, headers, body, answer: shared.usual.clone() };
        let of_order = (shared.by_order)(received.order());
        received.answer = shared.next.pop_front().or(of_order).unwrap_or_else(|| shared.usual.clone());
        let (id, answer) = (received.id(), received.answer.clone());
        shared.received.push(received);
        if !shared.in_hand.insert(id.clone()) {
            shared.parallel.insert(id.clone());
        }
        (id, answer)
    }
}

/// The settings of a webhook, with retries that a test can wait for.
pub fn webhook(name: &str, url: &str, more: &str) -> String {
    let retry = "{ attempts = 200, initial = '50ms', max = '100ms' }";
    format!("[events]\nenabled = true\nretry = {retry}\n{}", entry(name, url, more))
}

fn entry(name: &str, url: &str, more: &str) -> String {
    format!("[[events.webhooks]]\nname = '{name}'\nurl = '{url}'\nsecrets = ['{}', '{}']\n{more}\n", SECRETS[0], SECRETS[1])
}

async fn answer(State(receiver): State<Receiver>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
    let (id, behaviour) = receiver.note(parts.uri.path().to_owned(), parts.headers, String::from_utf8_lossy(&body).into_owned());
    let _in_hand = InHand(&receiver, &id);
    let response = Response::builder();
    let response = match behaviour {
        Behaviour::Status(status) => response.status(status).body(Body::from("noted")),
        Behaviour::Says(text) => response.status(200).body(Body::from(text)),
        Behaviour::Later(when) => response.status(429).header(header::RETRY_AFTER, when).body(Body::empty()),
        Behaviour::LaterThan(seconds) => {
            let when = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(seconds));
            response.status(503).header(header::RETRY_AFTER, when).body(Body::empty())
        }
        Behaviour::Slow(pause) => {
            tokio::time::sleep(pause).await;
            response.status(200).body(Body::empty())
        }
        Behaviour::Long => response.status(200).body(Body::from(vec![b'x'; 1_000_000])),
        Behaviour::Redirect => response.status(307).header(header::LOCATION, "/elsewhere").body(Body::empty()),
        Behaviour::Hang => {
            // Nobody is to wait for as long as that; what was in hand is not any more when the connection closes.
            tokio::time::sleep(Duration::from_hours(1)).await;
            response.status(500).body(Body::empty())
        }
        Behaviour::Drip => {
            let drops = stream::unfold((), async |()| {
                tokio::time::sleep(Duration::from_millis(50)).await;
                Some((Ok::<_, std::io::Error>(Bytes::from_static(b".")), ()))
            });
            response.status(200).body(Body::from_stream(drops))
        }
        Behaviour::Break => {
            let pieces = stream::iter([Ok(Bytes::from_static(b"half")), Err(std::io::Error::other("broken off"))]);
            response.status(200).header(header::CONTENT_LENGTH, 1_000).body(Body::from_stream(pieces))
        }
        // The connection's task ends, and the connection with it; without the panic's message.
        Behaviour::Drop => std::panic::resume_unwind(Box::new("closed")),
    };
    response.expect("a response")
}

struct InHand<'r>(&'r Receiver, &'r str);

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        self.0.lock().in_hand.remove(self.1);
    }
}

/// An endpoint that takes events, until it answers each with `103 Early Hints` without end, as fast as it is read.
#[derive(Debug)]
pub struct Hinting {
    url: String,
    endless: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
}

impl Hinting {
    /// One on a free port, with threads of its own.
    pub fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}/hook", listener.local_addr().expect("an address"));
        let hinting = Self { url, endless: Arc::default(), asked: Arc::default() };
        let (endless, asked) = (Arc::clone(&hinting.endless), Arc::clone(&hinting.asked));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (endless, asked) = (Arc::clone(&endless), Arc::clone(&asked));
                std::thread::spawn(move || hint(stream, &endless, &asked));
            }
        });
        hinting
    }

    /// From now on there is no end.
    pub fn begin(&self) {
        self.endless.store(true, Ordering::Relaxed);
    }

    /// Its settings, to be appended to those of another webhook.
    pub fn one_more_webhook(&self, name: &str, more: &str) -> String {
        entry(name, &self.url, more)
    }

    /// The requests that were made to it.
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }
}

fn hint(mut stream: std::net::TcpStream, endless: &AtomicBool, asked: &AtomicU64) {
    // A whole request is in one packet, or near enough.
    let mut request = [0; 16_384];
    let hints = "HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n".repeat(500);
    while stream.read(&mut request).is_ok_and(|length| length > 0) {
        asked.fetch_add(1, Ordering::Relaxed);
        if endless.load(Ordering::Relaxed) {
            while stream.write_all(hints.as_bytes()).is_ok() {}
            return;
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").ok();
    }
}
