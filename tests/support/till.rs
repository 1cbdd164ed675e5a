//! Whoever is asked before an order closes: an HTTP server that answers as it is told to, also badly.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, Response},
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};

use super::{receiver::SECRETS, tls::TlsListener};

/// What is done with a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Manner {
    /// Answers each order as it was told to.
    Honest,
    /// The same after a while.
    Slow(Duration),
    /// Answers with this status.
    Status(u16),
    /// Answers 200 with this body.
    Body(String),
    /// Never answers.
    Hang,
    /// Closes the connection.
    Drop,
}

/// One request.
#[derive(Debug, Clone)]
pub struct Question {
    /// When it came.
    pub at: Instant,
    /// When it was answered, or its connection closed.
    pub ended: Option<Instant>,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, as it was signed.
    pub body: String,
}

impl Question {
    /// The body.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The orders.
    pub fn orders(&self) -> Vec<i64> {
        let ids = self.json()["orders"].as_array().expect("orders").clone();
        ids.iter().map(|order| order["id"].as_str().expect("a text").parse().expect("a number")).collect()
    }

    /// Panics unless this secret's holder can tell that the request is genuine.
    pub fn assert_signed_with(&self, secret: &str) {
        let webhook = standardwebhooks::Webhook::new(secret).expect("a good secret");
        webhook.verify(self.body.as_bytes(), &self.headers).unwrap_or_else(|error| panic!("{error}: {self:#?}"));
    }
}

#[derive(Debug)]
struct Shared {
    questions: Vec<Question>,
    manner: Manner,
    /// The answer for all orders that have none of their own.
    usual: Value,
    answers: BTreeMap<i64, Value>,
    /// With one of these in it, no request is answered; `true` where it hangs.
    upset_by: BTreeMap<i64, bool>,
    /// The payment provider's sessions that were paid in, and those that have expired; where there is a provider.
    provider: Option<(BTreeSet<i64>, BTreeSet<i64>)>,
    under_way: usize,
    most_under_way: usize,
}

/// The till; it ends with the test.
#[derive(Debug, Clone)]
pub struct Till {
    port: u16,
    shared: Arc<Mutex<Shared>>,
    server: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl Till {
    /// One on a free port, which says of each order that it may be closed.
    pub async fn start() -> Self {
        let shared = Shared {
            questions: Vec::new(),
            manner: Manner::Honest,
            usual: json!("close"),
            answers: BTreeMap::new(),
            upset_by: BTreeMap::new(),
            provider: None,
            under_way: 0,
            most_under_way: 0,
        };
        let mut till = Self { port: 0, shared: Arc::new(Mutex::new(shared)), server: Arc::default() };
        till.port = till.serve(0).await;
        till
    }

    /// One over TLS, at `localhost`, whose certificate is written to this file.
    pub async fn with_tls(certificate: &Path) -> Self {
        let listener = TlsListener::bind(certificate, "localhost", 4096).await;
        let till = Self { port: listener.port(), ..Self::start().await };
        let router = axum::Router::new().fallback(answer).with_state(till.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        till
    }

    async fn serve(&self, port: u16) -> u16 {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.expect("the port is free");
        let port = listener.local_addr().expect("an address").port();
        let router = axum::Router::new().fallback(answer).with_state(self.clone());
        let server = tokio::spawn(async move { axum::serve(listener, router).await.expect("it serves") });
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = Some(server);
        port
    }

    /// Refuses connections from now on.
    pub async fn stop(&self) {
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(server) = server {
            server.abort();
            server.await.ok();
        }
        // Connections that are open have tasks of their own.
        self.lock().manner = Manner::Drop;
    }

    /// Accepts them again.
    pub async fn start_again(&self) {
        self.lock().manner = Manner::Honest;
        self.serve(self.port).await;
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its settings; `more` are further ones.
    pub fn settings(&self, more: &str) -> String {
        format!("[close.ask]\nurl = '{}'\nsecrets = ['{}']\n{more}\n", self.url(), SECRETS[0])
    }

    /// Where it is asked over TLS.
    pub fn tls_url(&self) -> String {
        format!("https://localhost:{}/ask", self.port)
    }

    /// Where it is asked.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/ask", self.port)
    }

    /// What it does with requests from now on.
    pub fn is(&self, manner: Manner) {
        self.lock().manner = manner;
    }

    /// What it says of all orders of which it was told nothing else.
    pub fn usually_says(&self, answer: impl Into<Value>) {
        self.lock().usual = answer.into();
    }

    /// What it says of an order; `null`: nothing.
    pub fn says(&self, order: i64, answer: impl Into<Value>) {
        self.lock().answers.insert(order, answer.into());
    }

    /// No request with this order in it is answered; it hangs, or is refused.
    pub fn upset_by(&self, order: i64, hangs: bool) {
        self.lock().upset_by.insert(order, hangs);
    }

    /// Requests with this order in them are answered again.
    pub fn calm_about(&self, order: i64) {
        self.lock().upset_by.remove(&order);
    }

    /// From now on it has a payment provider, whose sessions it expires before it says that an order may be closed; also where
    /// its answer is then lost.
    pub fn provide(&self) {
        self.lock().provider = Some(Default::default());
    }

    /// A customer pays at the provider; whether the session was still open.
    pub fn pay(&self, order: i64) -> bool {
        let mut shared = self.lock();
        let (paid, expired) = shared.provider.as_mut().expect("a provider");
        !expired.contains(&order) && paid.insert(order)
    }

    /// The customer has been given more time, and with it a session of his own at the provider; not where he has paid in the old one.
    pub fn renew(&self, order: i64) {
        self.lock().provider.as_mut().expect("a provider").1.remove(&order);
    }

    /// Whether an order was paid at the provider.
    pub fn has_paid(&self, order: i64) -> bool {
        self.lock().provider.as_ref().expect("a provider").0.contains(&order)
    }

    /// The orders that were paid at the provider.
    pub fn taken(&self) -> BTreeSet<i64> {
        self.lock().provider.as_ref().expect("a provider").0.clone()
    }

    /// All requests.
    pub fn questions(&self) -> Vec<Question> {
        self.lock().questions.clone()
    }

    /// How often it was asked about each order.
    pub fn asked(&self) -> BTreeMap<i64, usize> {
        let mut asked = BTreeMap::new();
        for order in self.questions().iter().flat_map(Question::orders) {
            *asked.entry(order).or_default() += 1;
        }
        asked
    }

    /// The orders that it was asked about.
    pub fn orders(&self) -> BTreeSet<i64> {
        self.asked().into_keys().collect()
    }

    /// How many requests were under way at the same time at the most, since this was asked last.
    pub fn most_under_way(&self) -> usize {
        let mut shared = self.lock();
        let most = shared.most_under_way;
        shared.most_under_way = shared.under_way;
        most
    }
}

/// A request in hand.
struct InHand(Till, usize);

impl Drop for InHand {
    fn drop(&mut self) {
        let mut shared = self.0.lock();
        shared.under_way -= 1;
        shared.questions[self.1].ended = Some(Instant::now());
    }
}

async fn answer(State(till): State<Till>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
    let question = Question { at: Instant::now(), ended: None, headers: parts.headers, body: String::from_utf8_lossy(&body).into_owned() };
    let (manner, said, _in_hand) = {
        let mut shared = till.lock();
        let orders = question.orders();
        let upset = orders.iter().find_map(|order| shared.upset_by.get(order).copied());
        let manner = match upset {
            Some(true) => Manner::Hang,
            Some(false) => Manner::Status(500),
            None => shared.manner.clone(),
        };
        if let Some((paid, mut expired)) = shared.provider.take() {
            expired.extend(orders.iter().copied().filter(|order| !paid.contains(order)));
            shared.answers.extend(orders.iter().map(|order| (*order, json!(if paid.contains(order) { "paid" } else { "close" }))));
            shared.provider = Some((paid, expired));
        }
        let said: serde_json::Map<String, Value> = orders
            .iter()
            .map(|order| (order.to_string(), shared.answers.get(order).unwrap_or(&shared.usual).clone()))
            .filter(|(_, answer)| !answer.is_null())
            .collect();
        shared.under_way += 1;
        shared.most_under_way = shared.most_under_way.max(shared.under_way);
        shared.questions.push(question);
        (manner, said, InHand(till.clone(), shared.questions.len() - 1))
    };
    let said = json!({ "orders": said }).to_string();
    let response = Response::builder();
    let response = match manner {
        Manner::Honest => response.status(200).body(Body::from(said)),
        Manner::Slow(pause) => {
            tokio::time::sleep(pause).await;
            response.status(200).body(Body::from(said))
        }
        Manner::Status(status) => response.status(status).body(Body::from(said)),
        Manner::Body(body) => response.status(200).body(Body::from(body)),
        Manner::Hang => {
            // Nobody is to wait for as long as that.
            tokio::time::sleep(Duration::from_hours(1)).await;
            response.status(500).body(Body::empty())
        }
        // The connection's task ends, and the connection with it; without the panic's message.
        Manner::Drop => std::panic::resume_unwind(Box::new("closed")),
    };
    response.expect("a response")
}
