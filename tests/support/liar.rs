//! Whoever is asked before an order closes, and answers with bytes that no HTTP library would send.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::{Map, Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::receiver::SECRETS;

/// What is sent instead of an answer.
#[derive(Debug, Clone)]
pub enum Lie {
    /// This, and the connection stays open.
    Whole(Vec<u8>),
    /// This, and the connection is closed.
    Cut(Vec<u8>),
    /// The first, and then the second again and again, with such pauses, for as long as it is read.
    Endless(Vec<u8>, Vec<u8>, Duration),
}

#[derive(Debug)]
struct Shared {
    /// What is made of the answer that each order may be closed.
    lies: Option<fn(String) -> Lie>,
    asked: usize,
}

/// The liar; it ends with the test.
#[derive(Debug, Clone)]
pub struct Liar {
    port: u16,
    shared: Arc<Mutex<Shared>>,
}

impl Liar {
    /// One on a free port.
    pub async fn start(lies: fn(String) -> Lie) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let liar = Self { port, shared: Arc::new(Mutex::new(Shared { lies: Some(lies), asked: 0 })) };
        let serving = liar.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let serving = serving.clone();
                tokio::spawn(async move { serving.answer(stream).await.ok() });
            }
        });
        liar
    }

    /// Its settings; `more` are further ones.
    pub fn settings(&self, more: &str) -> String {
        format!("[close.ask]\nurl = 'http://127.0.0.1:{}/ask'\nsecrets = ['{}']\n{more}\n", self.port, SECRETS[0])
    }

    /// How often it was asked.
    pub fn asked(&self) -> usize {
        self.lock().asked
    }

    /// From now on each order may be closed.
    pub fn repent(&self) {
        self.lock().lies = None;
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answer(&self, mut stream: TcpStream) -> std::io::Result<()> {
        while let Some(question) = request(&mut stream).await? {
            let orders = question["orders"].as_array().expect("orders");
            let close =
                orders.iter().map(|order| (order["id"].as_str().expect("a text").to_owned(), json!("close"))).collect::<Map<_, _>>();
            let body = json!({ "orders": close }).to_string();
            let lies = {
                let mut shared = self.lock();
                shared.asked += 1;
                shared.lies
            };
            let lie = match lies {
                Some(lies) => lies(body),
                None => Lie::Whole(response("200 OK", &body)),
            };
            match lie {
                Lie::Whole(bytes) => stream.write_all(&bytes).await?,
                Lie::Cut(bytes) => {
                    stream.write_all(&bytes).await?;
                    return stream.shutdown().await;
                }
                Lie::Endless(first, again, pause) => {
                    stream.write_all(&first).await?;
                    loop {
                        stream.write_all(&again).await?;
                        tokio::time::sleep(pause).await;
                    }
                }
            }
        }
        Ok(())
    }
}

/// A whole response.
pub fn response(status: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into()
}

/// The body of the next request; nothing when there is none.
async fn request(stream: &mut TcpStream) -> std::io::Result<Option<Value>> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:")).expect("a length");
            let length: usize = length.trim().parse().expect("a number");
            if let Some(body) = bytes.get(end + 4..end + 4 + length) {
                return Ok(Some(serde_json::from_slice(body).expect("JSON")));
            }
        }
        let read = stream.read(&mut piece).await?;
        if read == 0 {
            return Ok(None);
        }
        bytes.extend_from_slice(&piece[..read]);
    }
}
