//! Whoever asks too much is told to come later, and is in nobody else's way.

use std::time::Duration;

use futures::future::join_all;
use reqwest::{Method, StatusCode, header};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::{Asked, TOKEN};
use crate::support::{Kind, Redis, Shop, wait};

#[tokio::test]
async fn too_many_questions() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Sqlite).await;
    shop.orders_due_in(1..=1, 3_600_000).await;
    let asked = Asked::start(&shop, &redis).await;
    // Fewer at a time than there are connections.
    let many = async |token: &str| {
        let answers = join_all((0..40).map(|_| asked.ask(Method::GET, "/openapi.json", Some(token)))).await;
        answers.into_iter().find(|answer| answer.status() == StatusCode::TOO_MANY_REQUESTS)
    };
    // Whoever tries tokens keeps nobody from asking who has it.
    let refused = wait::some("a stranger asks too much", async || many("a guess").await).await;
    assert!(refused.headers()[header::RETRY_AFTER].to_str().unwrap().parse::<u64>().unwrap() >= 1);
    for _ in 0..15 {
        // Fewer in all than may ask at once.
        let callers = join_all((0..10).map(|_| asked.ask(Method::GET, "/openapi.json", Some(TOKEN))));
        let strangers = join_all((0..30).map(|_| asked.ask(Method::GET, "/openapi.json", Some("a guess"))));
        let (callers, _) = tokio::join!(callers, strangers);
        assert!(callers.iter().all(|answer| answer.status() == StatusCode::OK), "{callers:#?}");
    }
    let refused = wait::some("a caller asks too much", async || many(TOKEN).await).await;
    assert!(refused.headers().contains_key(header::RETRY_AFTER));
    assert!(refused.text().await.unwrap().contains("ask again later"));
    for path in ["/livez", "/readyz", "/metrics"] {
        let answers = join_all((0..40).map(|_| asked.get(path))).await;
        assert!(answers.iter().all(|(status, _)| *status != StatusCode::TOO_MANY_REQUESTS), "{path} is never limited away");
    }
    wait::until("a caller is answered again", async || asked.json(Method::GET, "/orders/1").await.0 == StatusCode::OK).await;
    asked.daemon.stop().await;
}

/// Whoever keeps connections for later, or takes no answer, keeps nobody from being answered.
#[tokio::test]
async fn callers_who_keep_their_connections() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Sqlite).await;
    let asked = Asked::start(&shop, &redis).await;
    let one = "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n".to_owned();
    let many = "GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(400);
    for request in [&one, &many] {
        let mut kept = Vec::new();
        for _ in 0..80 {
            let mut connection = TcpStream::connect(&asked.address).await.expect("it listens");
            // More than the other side reads while nobody takes its answers.
            timeout(Duration::from_millis(50), connection.write_all(request.as_bytes())).await.ok();
            kept.push(connection);
        }
        let mut probe = TcpStream::connect(&asked.address).await.expect("it listens");
        probe.write_all(one.as_bytes()).await.expect("it is sent");
        let mut answer = [0; 15];
        timeout(Duration::from_secs(45), probe.read_exact(&mut answer)).await.expect("it is answered").expect("it is answered");
        assert_eq!(&answer, b"HTTP/1.1 200 OK");
        drop(kept);
    }
    asked.daemon.stop().await;
}
