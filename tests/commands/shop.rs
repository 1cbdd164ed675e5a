//! The example shop, as docs/try.md walks through it.

use std::{
    path::PathBuf,
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};
use sqlx::{ConnectOptions, sqlite::SqliteConnectOptions};

use crate::support::{Daemon, OneShot, Redis, Settings, order_closer, ports, process, process::Process, receiver::SECRETS, wait};

/// Where cargo puts examples, beside the folder of the tests.
fn program() -> PathBuf {
    let tests = std::env::current_exe().expect("this program has a path");
    tests.parent().and_then(|deps| deps.parent()).expect("two folders").join("examples/shop")
}

struct Shop {
    url: String,
    client: reqwest::Client,
}

impl Shop {
    async fn get(&self, path: &str) -> Value {
        let response = self.client.get(format!("{}{path}", self.url)).send().await.expect("the shop answers");
        serde_json::from_slice(&response.bytes().await.expect("a body")).expect("JSON")
    }

    async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        let request = self.client.post(format!("{}{path}", self.url)).header("content-type", "application/json");
        let response = request.body(body.to_string()).send().await.expect("the shop answers");
        let status = response.status().as_u16();
        (status, serde_json::from_slice(&response.bytes().await.expect("a body")).unwrap_or_default())
    }

    /// Tells it of a closure, as order-closer does; returns its answer.
    async fn tell(&self, order_no: i64) -> u16 {
        let body = json!({ "id": "an event", "data": { "order_id": order_no.to_string() } }).to_string();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        let webhook = standardwebhooks::Webhook::new(SECRETS[0]).expect("a good secret");
        let signature = webhook.sign("an event", i64::try_from(now).expect("a near time"), body.as_bytes()).expect("a signature");
        let request = self.client.post(format!("{}/hooks/order-closed", self.url)).header("webhook-id", "an event");
        let request = request.header("webhook-timestamp", now).header("webhook-signature", signature);
        request.body(body).send().await.expect("the shop answers").status().as_u16()
    }
}

fn start(folder: &std::path::Path, redis: &Redis, port: u16) -> Process {
    let mut command = process::mortal(program());
    command.current_dir(folder).env("SHOP_REDIS", redis.url()).env("SHOP_LISTEN", format!("127.0.0.1:{port}"));
    command.env("SHOP_PAY_WITHIN_MS", "1500").env("SHOP_SECRET", SECRETS[0]);
    process::log_to(&mut command, &folder.join("log"));
    Process::spawn("the shop", command)
}

/// The shipped settings, on the test's own ports.
fn settings(redis: &Redis, folder: &std::path::Path, port: u16) -> Settings {
    let shipped = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/shop/order-closer.toml")).expect("it is there");
    let shipped =
        shipped.replace("127.0.0.1:8080", &format!("127.0.0.1:{port}")).replace("whsec_c2hvcC1hbmQtb3JkZXItY2xvc2VyLWRlbW8=", SECRETS[0]);
    Settings::new()
        .add(&shipped)
        .set("redis.url", redis.url())
        .set("database.url", format!("sqlite://{}", folder.join("shop.db").display()))
        .set("events.retry.initial", "50ms")
        .set("events.retry.max", "100ms")
        .set("log.format", "json")
}

#[tokio::test]
async fn the_walk_through() {
    rustls::crypto::ring::default_provider().install_default().ok();
    let (redis, folder, port) = (Redis::start(), process::folder(), ports::free());
    let log = folder.path().join("log");
    let mut running = start(folder.path(), &redis, port);
    wait::until("the shop listens", async || process::read(&log).contains("listening")).await;
    let client = reqwest::Client::builder().tls_certs_only([]).build().expect("a client");
    let shop = Shop { url: format!("http://127.0.0.1:{port}"), client };

    let settings = settings(&redis, folder.path(), port);
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    let daemon = Daemon::start(&settings);
    daemon.until_logged("listening for expired keys").await;

    let (status, placed) = shop.post("/orders", json!({ "sku": "tea", "quantity": 2 })).await;
    assert_eq!((status, &placed["order_no"]), (201, &json!(1)));
    for _ in 0..2 {
        assert_eq!(shop.post("/orders/1/pay", json!(null)).await, (200, json!({ "paid": true })));
    }
    shop.post("/orders", json!({ "sku": "tea", "quantity": 5 })).await;
    shop.post("/orders", json!({ "sku": "tea", "quantity": 1 })).await;
    for _ in 0..2 {
        assert_eq!(shop.post("/orders/3/cancel", json!(null)).await, (200, json!({ "cancelled": true })));
    }
    assert_eq!(shop.post("/orders", json!({ "sku": "tea", "quantity": 1_000 })).await.0, 409);
    wait::until("the order is closed", async || shop.get("/orders/2").await["status"] == "closed").await;
    wait::until("the warehouse has its goods back", async || shop.get("/stock/tea").await["available"] == 98).await;
    let state = async |order: i64| shop.get(&format!("/orders/{order}")).await;
    assert_eq!(state(2).await, json!({ "order_no": 2, "status": "closed", "payment": "expired" }));
    for _ in 0..2 {
        let late = shop.post("/orders/2/pay", json!(null)).await;
        assert_eq!(late, (409, json!({ "paid": false, "refund": true, "status": "closed" })));
        assert_eq!(state(2).await["payment"], "refunded");
    }
    assert_eq!(state(1).await, json!({ "order_no": 1, "status": "paid", "payment": "captured" }));
    assert_eq!(state(3).await, json!({ "order_no": 3, "status": "cancelled", "payment": "expired" }));
    let mails = process::read(&log);
    assert!(mails.contains("reminding the customer of order 2\n"), "{mails}");
    assert!(!mails.contains("order 1\n") && !mails.contains("order 3\n"), "paid or cancelled in time: {mails}");
    assert_eq!(shop.post("/hooks/order-closed", json!({ "id": "x", "data": { "order_id": "1" } })).await.0, 401);

    // Away while an order expires, the shop is asked about it, and told of it, when it is back.
    shop.post("/orders", json!({ "sku": "tea", "quantity": 3 })).await;
    running.kill();
    wait::until("the order waits for an answer", async || {
        order_closer(&settings, &["reconcile", "--rule", "orders", "--json"]).await.json()["unanswered"] == 1
    })
    .await;
    running = start(folder.path(), &redis, port);
    wait::until("the shop listens again", async || process::read(&log).matches("listening").count() == 2).await;
    wait::until("the warehouse has its goods back", async || shop.get("/stock/tea").await["available"] == 98).await;
    // Killed in the middle of a cancellation, and of a payment whose order then closes.
    running.kill();
    change(folder.path(), "warehouse.db", "INSERT INTO reservations VALUES (6, 'tea', 7); UPDATE stock SET available = available - 7")
        .await;
    change(
        folder.path(),
        "shop.db",
        "INSERT INTO orders VALUES (6, 'tea', 7, 'cancelling', 0), (7, 'tea', 7, 'pending', 1000 * unixepoch() - 60000)",
    )
    .await;
    change(folder.path(), "payments.db", "INSERT INTO payments VALUES (7, 'captured')").await;
    running = start(folder.path(), &redis, port);
    wait::until("the shop listens once more", async || process::read(&log).matches("listening").count() == 3).await;
    assert_eq!(shop.get("/orders/6").await["status"], "cancelled");
    // The money was there, and whoever asks hears of it.
    wait::until("the order is paid", async || shop.get("/orders/7").await["status"] == "paid").await;
    assert_eq!(shop.get("/orders/7").await["payment"], "captured");
    // Told of a closure before it has reserved anything for the order, the warehouse never will.
    assert_eq!(shop.tell(8).await, 204);
    assert_eq!(shop.post("/orders", json!({ "sku": "tea", "quantity": 1 })).await.0, 409);
    assert_eq!(shop.get("/stock/tea").await["available"], 98);
    daemon.stop().await;
    running.kill();
}

/// Callbacks of the provider are lost, and customers pay around the deadline: nobody's money is taken for an order that
/// closes.
#[tokio::test]
async fn a_lost_callback_closes_no_paid_order() {
    rustls::crypto::ring::default_provider().install_default().ok();
    let (redis, folder, port) = (Redis::start(), process::folder(), ports::free());
    let log = folder.path().join("log");
    let running = start(folder.path(), &redis, port);
    wait::until("the shop listens", async || process::read(&log).contains("listening")).await;
    let client = reqwest::Client::builder().tls_certs_only([]).build().expect("a client");
    let shop = Shop { url: format!("http://127.0.0.1:{port}"), client };
    let settings = settings(&redis, folder.path(), port);
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    let daemon = Daemon::start(&settings);
    daemon.until_logged("listening for expired keys").await;
    let mut paying = Vec::new();
    for order in 1..=60_u64 {
        assert_eq!(shop.post("/orders", json!({ "sku": "tea", "quantity": 1 })).await.0, 201);
        let lost = if order.is_multiple_of(2) { "-without-callback" } else { "" };
        let path = format!("{}/provider/sessions/{order}/pay{lost}", shop.url);
        let (client, pause) = (shop.client.clone(), std::time::Duration::from_millis(1_400 + order * 7 % 200));
        paying.push(tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            client.post(path).send().await.expect("the shop answers").status().as_u16() == 200
        }));
    }
    let mut taken = 0;
    for (order, paid) in (1..).zip(paying) {
        let paid = paid.await.expect("no panic");
        taken += i64::from(paid);
        let expected = if paid { ("paid", "captured") } else { ("closed", "expired") };
        wait::until("it is settled", async || shop.get(&format!("/orders/{order}")).await["status"] != "pending").await;
        let state = shop.get(&format!("/orders/{order}")).await;
        assert_eq!((state["status"].as_str(), state["payment"].as_str()), (Some(expected.0), Some(expected.1)), "{state}");
    }
    wait::until("the warehouse has the goods of the others back", async || shop.get("/stock/tea").await["available"] == 100 - taken).await;
    daemon.stop().await;
    running.kill();
}

/// A payment that comes after its order was closed, and after the shop was told of that: no event comes again. The shop dies
/// when the money has come, and before it has looked at the order.
#[tokio::test]
async fn killed_with_money_that_came_too_late() {
    rustls::crypto::ring::default_provider().install_default().ok();
    let (redis, folder, port) = (Redis::start(), process::folder(), ports::free());
    let log = folder.path().join("log");
    let running = start(folder.path(), &redis, port);
    wait::until("the shop listens", async || process::read(&log).contains("listening")).await;
    let client = reqwest::Client::builder().tls_certs_only([]).build().expect("a client");
    let shop = Shop { url: format!("http://127.0.0.1:{port}"), client };
    order_closer(&settings(&redis, folder.path(), port), &["migrate"]).await.expect_code(0);
    assert_eq!(shop.post("/orders", json!({ "sku": "tea", "quantity": 2 })).await.0, 201);
    change(folder.path(), "shop.db", "UPDATE orders SET status = 'closed'").await;
    assert_eq!(shop.tell(1).await, 204);
    assert_eq!(shop.get("/orders/1").await["payment"], "expired");

    // Whoever holds the orders stops the shop just there.
    let mut orders = SqliteConnectOptions::new().filename(folder.path().join("shop.db")).connect().await.expect("the shop has made it");
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut orders).await.expect("nobody writes");
    let pay = shop.client.post(format!("{}/orders/1/pay", shop.url)).send();
    let paying = tokio::spawn(pay);
    wait::until("the money has come", async || shop.get("/orders/1").await["payment"] != "expired").await;
    running.kill();
    assert!(paying.await.expect("no panic").is_err(), "nobody has answered");
    drop(orders);
    let running = start(folder.path(), &redis, port);
    wait::until("the shop listens again", async || process::read(&log).matches("listening").count() == 2).await;
    assert_eq!(shop.get("/orders/1").await, json!({ "order_no": 1, "status": "closed", "payment": "refunded" }));
    running.kill();
}

/// Changes a database of the shop behind its back.
async fn change(folder: &std::path::Path, file: &str, sql: &'static str) {
    let options = SqliteConnectOptions::new().filename(folder.join(file));
    let mut connection = options.connect().await.expect("the shop has made it");
    sqlx::raw_sql(sql).execute(&mut connection).await.expect("good SQL");
}

/// Its settings are a configuration.
#[tokio::test]
async fn its_settings_load() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/shop/order-closer.toml");
    OneShot::new(&["--config", file, "config"]).run().await.expect_code(0);
}
