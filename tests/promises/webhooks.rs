//! Every closure is told, at least once, always under the same id, whatever becomes of the receiver and of the daemon;
//! and nobody has to wait for a receiver but itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::json;

use super::{listening, on_each_database};
use crate::support::{
    Kind, Redis, Settings, Shop, order_closer, ports, process,
    receiver::{Behaviour, Receiver, SECRETS, webhook},
    wait,
};

on_each_database! {
    each_closure_is_told
    an_event_goes_on_with_its_trace
    a_receiver_that_fails_in_every_way
    an_endpoint_that_asks_for_a_rest
    killed_between_commit_and_delivery
    two_daemons_share_the_work
}

/// A shop whose daemon tells this webhook.
async fn shop_with(kind: Kind, redis: &Redis, webhook: &str) -> (Shop, Settings) {
    let shop = Shop::open(kind).await;
    let settings = shop.settings_with(redis).add(webhook);
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    (shop, settings)
}

/// The events in the outbox: order by id.
async fn events(shop: &Shop) -> BTreeMap<String, i64> {
    let rows = shop.database.rows("SELECT CAST(id AS CHAR(36)), order_id FROM order_closer_events").await;
    let text = |field: &Option<String>| field.clone().expect("never NULL");
    rows.iter().map(|row| (text(&row[0]), text(&row[1]).parse().expect("a number"))).collect()
}

/// Waits until nothing is left to be delivered.
pub(super) async fn until_delivered(shop: &Shop) {
    shop.database.until_unpacked().await;
    let sql = "SELECT count(*) FROM order_closer_deliveries";
    wait::until_eq("the number of undelivered events", 0, async || shop.database.number(sql).await).await;
}

/// Every event has arrived, none was invented, and each is the same each time.
pub(super) async fn assert_told(shop: &Shop, receiver: &Receiver) {
    let events = events(shop).await;
    let outcome = shop.assert_outcome().await;
    assert_eq!(events.values().copied().collect::<BTreeSet<_>>(), outcome.closed.keys().copied().collect(), "one event for each closure");
    assert_eq!(events.len(), outcome.closed.len());
    assert_eq!(receiver.taken().keys().copied().collect::<BTreeSet<_>>(), outcome.closed.keys().copied().collect());
    let mut bodies: BTreeMap<String, String> = BTreeMap::new();
    for one in receiver.received() {
        assert_eq!(events.get(&one.id()), Some(&one.order()), "an event that is not in the outbox: {one:?}");
        let body = bodies.entry(one.id()).or_insert_with(|| one.body.clone());
        assert_eq!(*body, one.body);
        assert_eq!(one.path, "/hook");
        one.assert_signed_with(SECRETS[0]);
    }
}

async fn each_closure_is_told(kind: Kind) {
    let (redis, receiver) = (Redis::start(), Receiver::start().await);
    let (shop, settings) = shop_with(kind, &redis, &receiver.webhook("a", "")).await;
    let daemon = listening(&settings.set("events.include", vec!["order_no"])).await;
    shop.orders_due_in(1..=300, 1_000).await;
    shop.write_keys(&redis, 0).await;
    shop.until_all_settled().await;
    until_delivered(&shop).await;
    daemon.stop().await;
    assert_told(&shop, &receiver).await;
    let received = receiver.received();
    assert_eq!(received.len(), 300, "nobody failed, so once each");
    for one in &received {
        SECRETS.iter().for_each(|secret| one.assert_signed_with(secret));
        assert_eq!(one.headers["content-type"], "application/cloudevents+json");
        let event = one.json();
        assert_eq!((&event["specversion"], &event["type"]), (&json!("1.0"), &json!("order-closer.order.closed")));
        assert_eq!((event["id"].as_str(), &event["source"]), (Some(one.id().as_str()), &json!("order-closer")));
        let data = &event["data"];
        assert_eq!((&data["order_id"], &data["order"]), (&event["subject"], &json!({ "order_no": one.order() })));
        assert_eq!(data["closed_at"], event["time"]);
        assert!(["expired", "pacer", "sweep"].contains(&data["trigger"].as_str().expect("a text")), "{event}");
        assert!(data["instance"].as_str().is_some_and(|name| name.ends_with(&format!("/{}", daemon.pid()))), "{event}");
        assert!(data["lateness_ms"].as_f64().is_some_and(|lateness| lateness >= 0.0), "{event}");
    }
    assert!(!daemon.lines().join("\n").contains("whsec_"));
}

/// The order service has stored a trace with the order. What is no trace never keeps an order open.
async fn an_event_goes_on_with_its_trace(kind: Kind) {
    let (redis, receiver) = (Redis::start(), Receiver::start().await);
    let (shop, settings) = shop_with(kind, &redis, &receiver.webhook("a", "")).await;
    let settings = settings.set("events.source", "https://shop.example/de").set("events.traceparent", "trace");
    let settings = settings.add("[events.stream]\nkey = 'closed'");
    let valid = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    shop.database.execute("ALTER TABLE orders ADD COLUMN trace varchar(300) NULL").await;
    shop.orders_due_in(1..=4, -1_000).await;
    let wrong = [valid.to_uppercase(), valid.replace('b', "0").replace('7', "g"), "x".repeat(300)];
    for (order, trace) in [valid.to_owned()].iter().chain(&wrong).enumerate() {
        shop.database.execute(&format!("UPDATE orders SET trace = '{trace}' WHERE order_no = {}", order + 1)).await;
    }
    shop.orders_due_in(5..=5, -1_000).await;
    let daemon = listening(&settings).await;
    shop.until_all_settled().await;
    until_delivered(&shop).await;
    daemon.stop().await;
    let received = receiver.received();
    assert_eq!(received.len(), 5);
    for one in &received {
        let traceparent = (one.order() == 1).then_some(valid);
        assert_eq!(one.headers.get("traceparent").and_then(|value| value.to_str().ok()), traceparent, "of order {}", one.order());
        let event = one.json();
        assert_eq!(event.get("traceparent"), traceparent.map(|trace| json!(trace)).as_ref(), "of order {}", one.order());
        assert_eq!(event["source"], "https://shop.example/de");
    }
    let entries = redis.command(&["XRANGE", "closed", "-", "+"]);
    let entries: Vec<Vec<String>> =
        entries.array().iter().map(|entry| entry.array()[1].array().iter().map(|field| field.text()).collect()).collect();
    for entry in &entries {
        let field = |name: &str| entry.chunks(2).find(|pair| pair[0] == name).map(|pair| pair[1].clone());
        let is_first = field("order_id").as_deref() == Some("1");
        assert_eq!(field("traceparent").as_deref(), is_first.then_some(valid), "{entry:?}");
        assert_eq!(field("source").as_deref(), Some("https://shop.example/de"));
    }
    assert_eq!(entries.len(), 5);
    let listed = order_closer(&settings, &["events", "--order", "1", "--json"]).await.expect_code(0);
    assert!(listed.stdout.contains(valid), "{listed:?}");
}

async fn a_receiver_that_fails_in_every_way(kind: Kind) {
    let (redis, receiver) = (Redis::start(), Receiver::start().await);
    let (shop, settings) = shop_with(kind, &redis, &receiver.webhook("a", "timeout = '1s'")).await;
    let bad = [
        Behaviour::Status(500),
        Behaviour::Later("1".into()),
        Behaviour::Redirect,
        Behaviour::Break,
        Behaviour::Hang,
        Behaviour::Status(404),
        Behaviour::Later("Sun, 06 Nov 1994 08:49:37 GMT".into()),
        Behaviour::Status(101),
        Behaviour::Drip,
        Behaviour::Drop,
    ];
    receiver.next(bad.iter().cycle().take(3 * bad.len()).cloned());
    receiver.next([Behaviour::Long]);
    shop.orders_due_in(1..=20, -1_000).await;
    let daemon = listening(&settings).await;
    shop.until_all_settled().await;
    until_delivered(&shop).await;
    daemon.stop().await;
    assert_told(&shop, &receiver).await;
    let received = receiver.received();
    let failed: Vec<_> = received.iter().filter(|one| !one.answer.takes()).collect();
    assert_eq!(failed.len(), 3 * bad.len(), "each failure was seen, and survived");
    assert_eq!(received.len(), failed.len() + 20, "what has arrived does not come again");
}

/// Whatever else it has taken meanwhile, an endpoint that asks for a rest has it, and so has the event that it refused.
async fn an_endpoint_that_asks_for_a_rest(kind: Kind) {
    let (redis, receiver) = (Redis::start(), Receiver::start().await);
    let (shop, settings) = shop_with(kind, &redis, &receiver.webhook("a", "")).await;
    let slow = Behaviour::Slow(Duration::from_millis(200));
    receiver.usually(slow.clone());
    receiver.next([Behaviour::Later("3".into())].into_iter().chain(vec![slow; 20]).chain([Behaviour::LaterThan(4)]));
    shop.orders_due_in(1..=100, -1_000).await;
    let daemon = listening(&settings).await;
    shop.until_all_settled().await;
    until_delivered(&shop).await;
    daemon.stop().await;
    assert_told(&shop, &receiver).await;
    let received = receiver.received();
    let refusals: Vec<_> = received.iter().filter(|one| !one.answer.takes()).collect();
    assert_eq!(refusals.len(), 2);
    for refusal in refusals {
        // What was on its way may still arrive; a date has whole seconds.
        let rest = refusal.at + Duration::from_secs(1)..refusal.at + Duration::from_millis(2_900);
        let intruders: Vec<_> = received.iter().filter(|one| rest.contains(&one.at)).map(|one| one.at - refusal.at).collect();
        assert_eq!(intruders, [] as [Duration; 0], "after {:?}", refusal.answer);
        let again = received.iter().find(|one| one.id() == refusal.id() && one.at > refusal.at).expect("it came again");
        assert!(again.timestamp() >= refusal.timestamp() + 2, "each attempt is signed anew");
    }
}

/// The receiver has the event in hand when the daemon dies; another daemon takes it over.
async fn killed_between_commit_and_delivery(kind: Kind) {
    let (redis, receiver) = (Redis::start(), Receiver::start().await);
    let (shop, settings) = shop_with(kind, &redis, &receiver.webhook("a", "timeout = '2s'")).await;
    receiver.usually(Behaviour::Hang);
    shop.orders_due_in(1..=30, -1_000).await;
    let daemon = listening(&settings).await;
    shop.until_all_settled().await;
    wait::until("some events are on their way", async || receiver.received().len() >= 8).await;
    daemon.kill();
    receiver.usually(Behaviour::Status(200));
    let heir = listening(&settings).await;
    until_delivered(&shop).await;
    heir.stop().await;
    assert_told(&shop, &receiver).await;
}

/// The other one has been there all along.
#[tokio::test]
async fn killed_beside_another() {
    let (redis, receiver) = (Redis::start(), Receiver::start().await);
    let (shop, settings) = shop_with(Kind::MariaDb, &redis, &receiver.webhook("a", "timeout = '4s'")).await;
    receiver.usually(Behaviour::Hang);
    shop.orders_due_in(1..=30, -1_000).await;
    let daemon = listening(&settings).await;
    wait::until("some events are on their way", async || receiver.received().len() >= 8).await;
    let other = listening(&settings).await;
    daemon.kill();
    let in_hand: BTreeSet<String> = receiver.received().iter().map(|one| one.id()).collect();
    receiver.usually(Behaviour::Status(200));
    until_delivered(&shop).await;
    other.stop().await;
    assert_told(&shop, &receiver).await;
    let taken: BTreeSet<String> = receiver.received().iter().filter(|one| one.answer.takes()).map(|one| one.id()).collect();
    assert!(in_hand.len() >= 8 && in_hand.is_subset(&taken), "the same events");
}

async fn two_daemons_share_the_work(kind: Kind) {
    let (redis, receiver) = (Redis::start(), Receiver::start().await);
    let (shop, settings) = shop_with(kind, &redis, &receiver.webhook("a", "")).await;
    // Long enough for the other one to come across it.
    receiver.usually(Behaviour::Slow(Duration::from_millis(300)));
    let daemons = [listening(&settings).await, listening(&settings).await];
    shop.orders_due_in(1..=200, 1_000).await;
    shop.write_keys(&redis, 0).await;
    shop.until_all_settled().await;
    until_delivered(&shop).await;
    for daemon in &daemons {
        daemon.stop().await;
    }
    assert_told(&shop, &receiver).await;
    assert_eq!(receiver.parallel(), BTreeSet::new(), "delivered by both at the same time");
    assert!(receiver.taken().values().all(|times| *times == 1), "{:?}", receiver.taken());
}

/// Nobody listens for as long as the daemon lives, and the one after it.
#[tokio::test]
async fn a_receiver_that_is_away_for_longer_than_the_daemon_lives() {
    let redis = Redis::start();
    let port = ports::free();
    let (shop, settings) = shop_with(Kind::Postgres, &redis, &webhook("a", &format!("http://127.0.0.1:{port}/hook"), "")).await;
    for first in [1, 51] {
        let daemon = listening(&settings).await;
        shop.orders_due_in(first..first + 50, -1_000).await;
        shop.until_all_settled().await;
        daemon.until_logged("the target fails; asking it less often").await;
        daemon.stop().await;
    }
    shop.database.until_unpacked().await;
    assert_eq!(shop.database.number("SELECT count(*) FROM order_closer_deliveries").await, 100);
    let daemon = listening(&settings).await;
    daemon.until_logged("the target fails; asking it less often").await;
    let receiver = Receiver::on_port(port).await;
    daemon.until_logged("the target takes events again").await;
    until_delivered(&shop).await;
    daemon.stop().await;
    assert_told(&shop, &receiver).await;
}

/// 410, once: no daemon asks again, nor after a restart, until somebody says so.
#[tokio::test]
async fn an_endpoint_that_is_gone_stops_alone_until_it_is_resumed() {
    let (redis, gone, other) = (Redis::start(), Receiver::start().await, Receiver::start().await);
    let both = gone.webhook("gone", "") + &other.one_more_webhook("other");
    let (shop, settings) = shop_with(Kind::Postgres, &redis, &both).await;
    gone.usually(Behaviour::Status(410));
    let daemon = listening(&settings).await;
    shop.order(1, -1_000).await;
    let error = daemon.until_logged("the target wants no more events").await;
    assert!(error.contains("\"ERROR\"") && error.contains("410") && error.contains("\"gone\""), "{error}");
    let asked = gone.received().len();
    shop.orders_due_in(2..=40, -1_000).await;
    wait::until_eq("the number of events that the other has", 40, async || other.taken().len()).await;
    let beside = listening(&settings).await;
    beside.until_logged("the target wants no more events").await;
    daemon.stop().await;
    beside.stop().await;
    assert_eq!(daemon.logged("\"ERROR\""), 1);
    gone.usually(Behaviour::Status(204));
    let daemon = listening(&settings).await;
    daemon.until_logged("the target wants no more events").await;
    let check = order_closer(&settings, &["check"]).await.expect_code(78).stdout;
    assert!(check.contains("gone wants no more events") && check.contains("order-closer targets resume gone"), "{check}");
    let listed = order_closer(&settings, &["targets", "--json"]).await.expect_code(0).stdout;
    let listed: Vec<serde_json::Value> = listed.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((&listed[0]["name"], &listed[0]["state"], &listed[0]["waiting"]), (&json!("gone"), &json!("gone"), &json!(40)));
    assert_eq!((&listed[1]["name"], &listed[1]["state"], &listed[1]["waiting"]), (&json!("other"), &json!("ok"), &json!(0)));
    assert!(listed[1]["last_success"].is_string(), "{listed:?}");
    assert_eq!(gone.received().len(), asked, "it is not asked again");
    order_closer(&settings, &["targets", "resume", "nobody"]).await.expect_code(64);
    order_closer(&settings, &["targets", "resume", "gone"]).await.expect_code(0);
    until_delivered(&shop).await;
    daemon.stop().await;
    assert_told(&shop, &gone).await;
    assert_told(&shop, &other).await;
}

#[tokio::test]
async fn an_endpoint_that_hangs_holds_up_nobody_else() {
    let (redis, slow, other) = (Redis::start(), Receiver::start().await, Receiver::start().await);
    let both = slow.webhook("slow", "timeout = '10m'") + &other.one_more_webhook("other");
    let (shop, settings) = shop_with(Kind::Postgres, &redis, &both).await;
    slow.usually(Behaviour::Hang);
    let daemon = listening(&settings.set("shutdown.timeout", "2s")).await;
    shop.orders_due_in(1..=500, 1_000).await;
    shop.write_keys(&redis, 0).await;
    shop.until_all_settled().await;
    wait::until_eq("the number of events that the other has", 500, async || other.taken().len()).await;
    wait::until_eq("the number of deliveries in hand", 8, async || slow.received().len()).await;
    daemon.stop().await;
    assert_eq!(slow.received().len(), 8, "no more than that at the same time");
    super::assert_on_time(&shop.assert_outcome().await);
    assert_told(&shop, &other).await;
}

#[tokio::test]
async fn only_a_certificate_that_is_trusted_will_do() {
    let folder = process::folder();
    let certificate = folder.path().join("ca.pem");
    let redis = Redis::start();
    let trusting = format!("ca_file = '{}'", certificate.display());
    for (receiver, more) in [
        (Receiver::with_tls(&folder.path().join("unknown.pem")).await, ""),
        (Receiver::with_certificate(&certificate, "localhost", 2020).await, trusting.as_str()),
    ] {
        assert_distrusted(&redis, &receiver, more).await;
    }
    assert_distrusted(&redis, &Receiver::with_certificate(&certificate, "shop.example", 4096).await, &trusting).await;
    let receiver = Receiver::with_tls(&certificate).await;
    let (shop, settings) = shop_with(Kind::Sqlite, &redis, &receiver.webhook("a", &trusting)).await;
    shop.order(1, -1_000).await;
    let daemon = listening(&settings).await;
    shop.until_all_settled().await;
    until_delivered(&shop).await;
    daemon.stop().await;
    assert_told(&shop, &receiver).await;
}

/// The daemon says that it is the certificate, and sends nothing.
async fn assert_distrusted(redis: &Redis, receiver: &Receiver, more: &str) {
    let (shop, settings) = shop_with(Kind::Sqlite, redis, &receiver.webhook("a", more)).await;
    shop.order(1, -1_000).await;
    let daemon = listening(&settings.set("log.level", "debug")).await;
    let failure = daemon.until_logged("delivery failed; will retry").await;
    assert!(failure.to_lowercase().contains("certificate"), "{failure}");
    daemon.stop().await;
    assert_eq!(receiver.received().len(), 0);
}

/// Events that were recorded before are still told when no more are recorded.
#[tokio::test]
async fn switched_off_with_events_waiting() {
    let (redis, receiver) = (Redis::start(), Receiver::start().await);
    let (shop, settings) = shop_with(Kind::Postgres, &redis, &receiver.webhook("a", "")).await;
    shop.orders_due_in(1..=5, -1_000).await;
    order_closer(&settings, &["reconcile"]).await.expect_code(0);
    let daemon = listening(&settings.set("events.enabled", false)).await;
    assert!(daemon.lines().join("\n").contains("nobody is told of further closures"), "{:?}", daemon.lines());
    until_delivered(&shop).await;
    assert_told(&shop, &receiver).await;
    shop.order(6, -1_000).await;
    shop.until_all_settled().await;
    daemon.stop().await;
    assert_eq!(events(&shop).await.len(), 5);
}

/// Delivered events go when they are old, those that wait never.
#[tokio::test]
async fn old_events_are_pruned_by_the_daemon() {
    let (redis, receiver) = (Redis::start(), Receiver::start().await);
    let both = receiver.webhook("a", "") + &Receiver::gone_entry("b");
    let (shop, settings) = shop_with(Kind::Sqlite, &redis, &both).await;
    shop.orders_due_in(1..=3, -1_000).await;
    order_closer(&settings, &["reconcile"]).await.expect_code(0);
    let daemon = listening(&settings.clone()).await;
    wait::until_eq("the number of events taken", 3, async || receiver.taken().len()).await;
    daemon.stop().await;
    // Given up for one order.
    let given_up = shop.database.rows("SELECT order_no FROM orders ORDER BY order_no LIMIT 1").await[0][0].clone().expect("a number");
    shop.database
        .execute(&format!(
            "DELETE FROM order_closer_deliveries WHERE event_id = (SELECT id FROM order_closer_events WHERE order_id = '{given_up}')"
        ))
        .await;
    let daemon = listening(&settings.set("events.keep", "1ms")).await;
    wait::until_eq("the number of events", 2, async || events(&shop).await.len()).await;
    daemon.stop().await;
    assert!(!events(&shop).await.values().any(|order| order.to_string() == given_up));
}
