//! Receivers of webhooks and readers of the stream, told by the real daemon: each closure once, whatever comes again, and
//! nothing from strangers.

use std::{
    collections::BTreeMap,
    process::Command,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use standardwebhooks::Webhook;

use super::toolchain;
use crate::{
    promises::listening,
    support::{
        Kind, Redis, Settings, Shop, order_closer, ports,
        process::Process,
        receiver::{SECRETS, webhook},
        wait,
    },
};

/// A shop that writes a mail for each closed order.
async fn shop_with_mails(redis: &Redis, events: &str) -> (Shop, Settings) {
    let shop = Shop::open(Kind::Postgres).await;
    shop.database.execute("CREATE TABLE seen (id varchar(64) PRIMARY KEY); CREATE TABLE mails (order_no bigint NOT NULL)").await;
    let settings = shop.settings_with(redis).add(events);
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    (shop, settings)
}

/// How many mails there are for each order.
async fn mails(shop: &Shop) -> BTreeMap<String, String> {
    let rows = shop.database.rows("SELECT order_no, count(*) FROM mails GROUP BY order_no").await;
    rows.into_iter().map(|row| (row[0].clone().expect("a number"), row[1].clone().expect("a number"))).collect()
}

/// Each closed order has one.
async fn until_one_mail_each(shop: &Shop, orders: std::ops::RangeInclusive<i64>) {
    let expected: BTreeMap<String, String> = orders.map(|order| (order.to_string(), "1".to_owned())).collect();
    wait::until_eq("the mails", expected, async || mails(shop).await).await;
}

/// Closes orders, and kills the client in the middle of a transaction about them.
async fn die_in_the_middle(shop: &Shop, client: &Process) {
    let mut lock = shop.database.begin().await;
    lock.execute("LOCK TABLE mails IN EXCLUSIVE MODE").await;
    shop.orders_due_in(11..=15, -1_000).await;
    let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'mails'::regclass";
    wait::until("a client waits in its transaction", async || shop.database.number(waiting).await > 0).await;
    client.kill();
    lock.rollback().await;
}

async fn receiver(database: impl Fn(&str) -> String, command: impl Fn() -> Option<Command>) {
    if command().is_none() {
        return;
    }
    let (redis, port) = (Redis::start(), ports::free());
    let url = format!("http://127.0.0.1:{port}/hooks/orders");
    // It knows one of the two secrets, as while a secret is being changed.
    let (shop, settings) = shop_with_mails(&redis, &webhook("mails", &url, "timeout = '2s'")).await;
    let start = async || {
        let mut command = command().expect("it was there before");
        command.env("DATABASE_URL", database(&shop.database.url)).env("PORT", port.to_string()).env("WEBHOOK_SECRET", SECRETS[1]);
        let running = Process::spawn("the receiver", command);
        wait::until("it listens", async || tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok()).await;
        running
    };
    let running = start().await;

    let client = reqwest_client();
    let post = async |id: &str, at: i64, secret: &str, signed: &str, sent: &str| {
        let signature = Webhook::new(secret).expect("a secret").sign(id, at, signed.as_bytes()).expect("a signature");
        let request = client.post(&url).header("webhook-id", id).header("webhook-timestamp", at).header("webhook-signature", signature);
        request
            .header("content-type", "application/cloudevents+json")
            .body(sent.to_owned())
            .send()
            .await
            .expect("an answer")
            .status()
            .as_u16()
    };
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()).expect("a number");
    let (event, other) = (r#"{"id":"e1","data":{"order_id":"7"}}"#, r#"{"id":"e1","data":{"order_id":"8"}}"#);
    assert_eq!(post("e1", now, SECRETS[0], event, event).await, 401, "another's signature");
    assert_eq!(post("e1", now, SECRETS[1], event, other).await, 401, "another body");
    assert_eq!(post("e1", now - 600, SECRETS[1], event, event).await, 401, "signed ten minutes ago");
    assert_eq!(post("e1", now + 600, SECRETS[1], event, event).await, 401, "signed in ten minutes");
    let unsigned = client.post(&url).header("content-type", "application/cloudevents+json").body(event).send().await;
    assert_eq!(unsigned.expect("an answer").status(), 401, "without a signature");
    assert!(mails(&shop).await.is_empty(), "nobody has said anything yet");
    for _ in 0..2 {
        assert_eq!(post("e1", now, SECRETS[1], event, event).await, 204, "the first time, and again");
    }
    until_one_mail_each(&shop, 7..=7).await;

    let daemon = listening(&settings).await;
    shop.orders_due_in(8..=10, 500).await;
    until_one_mail_each(&shop, 7..=10).await;
    die_in_the_middle(&shop, &running).await;
    let _again = start().await;
    until_one_mail_each(&shop, 7..=15).await;
    shop.database.until_unpacked().await;
    let undelivered = "SELECT count(*) FROM order_closer_deliveries";
    wait::until_eq("the number of undelivered events", 0, async || shop.database.number(undelivered).await).await;
    daemon.stop().await;
}

pub(super) fn reqwest_client() -> reqwest::Client {
    rustls::crypto::ring::default_provider().install_default().ok();
    reqwest::Client::builder().no_proxy().tls_certs_only([]).timeout(Duration::from_secs(30)).build().expect("a client")
}

async fn consumer(command: impl Fn() -> Option<Command>) {
    if command().is_none() {
        return;
    }
    let redis = Redis::start();
    let (shop, settings) = shop_with_mails(&redis, "[events]\nenabled = true\n[events.stream]\nkey = 'orders:closed'").await;
    let start = |name: &str| {
        let mut command = command().expect("it was there before");
        command.env("DATABASE_URL", &shop.database.url).env("REDIS_URL", redis.url()).env("CONSUMER", name).env("ABANDONED_MS", "500");
        Process::spawn("the consumer", command)
    };
    let first = start("first");
    let daemon = listening(&settings).await;
    shop.orders_due_in(7..=10, 500).await;
    until_one_mail_each(&shop, 7..=10).await;

    die_in_the_middle(&shop, &first).await;
    wait::until_eq("the number of entries", 9, async || redis.command(&["XLEN", "orders:closed"]).integer()).await;
    assert_ne!(redis.command(&["XPENDING", "orders:closed", "mailer"]).array()[0].integer(), 0, "the dead one had something in hand");
    let _second = start("second");
    until_one_mail_each(&shop, 7..=15).await;
    // The daemon may tell twice, always with the event's id.
    let id = shop.database.text("SELECT id FROM seen ORDER BY id LIMIT 1").await.expect("an id");
    redis.command(&["XADD", "orders:closed", "*", "id", &id, "order_id", "7"]);
    redis.command(&["XADD", "orders:closed", "*", "id", "another", "order_id", "16"]);
    until_one_mail_each(&shop, 7..=16).await;
    let pending = async || redis.command(&["XPENDING", "orders:closed", "mailer"]).array()[0].integer();
    wait::until_eq("the number of entries in hand", 0, pending).await;
    daemon.stop().await;
}

#[tokio::test]
async fn receiver_in_node() {
    receiver(str::to_owned, || toolchain::node_script("receiver.js")).await;
}

#[tokio::test]
async fn receiver_in_python() {
    receiver(str::to_owned, || toolchain::python_script("receiver.py")).await;
}

#[tokio::test]
async fn receiver_in_java() {
    let jdbc = |url: &str| format!("{}?user=postgres", url.replace("postgres://postgres@", "jdbc:postgresql://"));
    receiver(jdbc, || toolchain::jdk("Receiver")).await;
}

#[tokio::test]
async fn consumer_in_node() {
    consumer(|| toolchain::node_script("consumer.js")).await;
}

#[tokio::test]
async fn consumer_in_python() {
    consumer(|| toolchain::python_script("consumer.py")).await;
}

#[tokio::test]
async fn consumer_in_go() {
    consumer(toolchain::go_consumer).await;
}
