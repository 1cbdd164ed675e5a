//! No event is another's hostage: some that no receiver takes, one that asks for a rest of a day, an order that is closed
//! twice, an endpoint that never ends; all the others arrive as if those were not there.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use super::{
    listening, on_each_database,
    webhooks::{assert_told, until_delivered},
};
use crate::support::{
    Kind, Redis, Settings, Shop, order_closer, ports,
    receiver::{Behaviour, Hinting, Receiver},
    wait,
};

on_each_database! {
    events_that_fail_come_first
    events_of_one_order_stay_in_their_order
    delivered_by_cron
}

/// The retries that are usual, and no such as a test could wait for.
const USUAL: &str = "{ attempts = 23, initial = '5s', max = '2h' }";

async fn shop_with(kind: Kind, redis: &Redis, webhook: &str) -> (Shop, Settings) {
    let shop = Shop::open(kind).await;
    let settings = shop.settings_with(redis).add(webhook);
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    (shop, settings)
}

/// The same, with the retries that are usual.
async fn patient_shop(kind: Kind, redis: &Redis, receiver: &Receiver) -> (Shop, Settings) {
    let webhook = receiver.webhook("till", "");
    let quick = webhook.lines().find(|line| line.starts_with("retry = ")).expect("there is one").to_owned();
    shop_with(kind, redis, &webhook.replace(&quick, &format!("retry = {USUAL}"))).await
}

/// Orders that make this receiver fail.
fn bad(order: i64) -> Option<Behaviour> {
    (order <= 60).then_some(Behaviour::Status(500))
}

async fn events_that_fail_come_first(kind: Kind) {
    let (redis, receiver) = (Redis::start(), Receiver::start().await);
    let (shop, settings) = patient_shop(kind, &redis, &receiver).await;
    receiver.by_order(bad);
    for orders in [1..=60, 61..=360] {
        shop.orders_due_in(orders, -1_000).await;
        order_closer(&settings, &["reconcile"]).await.expect_code(0);
    }
    let began = Instant::now();
    let daemon = listening(&settings).await;
    wait::within(Duration::from_secs(20), "all good events have arrived", async || receiver.taken().len() == 300).await;
    let received = receiver.received();
    let good: Vec<Duration> = received.iter().filter(|one| one.order() > 60).map(|one| one.at - began).collect();
    let (first, last) = (good.iter().min().expect("some"), good.iter().max().expect("some"));
    assert!(*last - *first < Duration::from_secs(5), "from {first:?} to {last:?}");
    assert!(receiver.taken().values().all(|times| *times == 1));
    let waiting = "SELECT count(*) FROM order_closer_deliveries WHERE due_at IS NOT NULL";
    wait::until_eq("the number of events that wait", 60, async || shop.database.number(waiting).await).await;
    // A new one is not in their way either.
    shop.order(1_000, -1_000).await;
    let closed = Instant::now();
    wait::until("it has arrived", async || receiver.taken().contains_key(&1_000)).await;
    assert!(closed.elapsed() < Duration::from_secs(5), "{:?}", closed.elapsed());
    receiver.by_order(|_| None);
    order_closer(&settings, &["targets", "resume", "till"]).await.expect_code(0);
    until_delivered(&shop).await;
    daemon.stop().await;
    assert_told(&shop, &receiver).await;
}

/// Each dead letter has been sent as often as it says.
#[tokio::test]
async fn events_that_fail_keep_coming() {
    let (redis, receiver) = (Redis::start(), Receiver::start().await);
    let (shop, settings) = patient_shop(Kind::Postgres, &redis, &receiver).await;
    receiver.by_order(|order| (order > 1_000).then_some(Behaviour::Status(500)));
    let daemon =
        listening(&settings.set("events.retry.attempts", 7).set("events.retry.initial", "20ms").set("events.retry.max", "1s")).await;
    let mut bad = 1_000;
    shop.orders_due_in(1..=200, 1_500).await;
    let mut every = tokio::time::interval(Duration::from_millis(100));
    wait::within(Duration::from_secs(60), "all good events have arrived, with bad ones coming all the time", async || {
        every.tick().await;
        shop.orders_due_in(bad + 1..=bad + 2, -1_000).await;
        bad += 2;
        receiver.taken().len() == 200
    })
    .await;
    let dead = "SELECT count(*) FROM order_closer_deliveries WHERE due_at IS NULL";
    wait::until("some are given up", async || shop.database.number(dead).await > 0).await;
    daemon.stop().await;
    let mut sent: BTreeMap<String, i64> = BTreeMap::new();
    for one in receiver.received() {
        *sent.entry(one.id()).or_default() += 1;
    }
    let dead = "SELECT CAST(event_id AS CHAR(36)), attempts FROM order_closer_deliveries WHERE due_at IS NULL";
    for row in shop.database.rows(dead).await {
        let (id, attempts) = (row[0].clone().expect("an id"), row[1].clone().expect("a number"));
        assert_eq!(sent[&id].to_string(), attempts, "each attempt was a request");
        assert!(sent[&id] >= 3, "{id} was given up after {attempts}");
    }
}

/// Nine events of ten fail, for minutes, and at times none is there that could pass: what can is not held up by that.
#[tokio::test]
async fn most_events_fail_and_the_others_go_out_at_once() {
    let (redis, receiver) = (Redis::start(), Receiver::start().await);
    let (shop, settings) = patient_shop(Kind::Postgres, &redis, &receiver).await;
    receiver.by_order(|order| (order > 1_000).then_some(Behaviour::Status(500)));
    let daemon = listening(&settings).await;
    let (mut good, mut added): (i64, Vec<Instant>) = (0, Vec::new());
    let mut every = tokio::time::interval(Duration::from_millis(100));
    for tick in 0..600 {
        every.tick().await;
        shop.order(1_001 + tick, -1_000).await;
        if tick % 30 < 3 {
            good += 1;
            shop.order(good, -1_000).await;
            added.push(Instant::now());
        }
    }
    wait::until("all good events have arrived", async || receiver.taken().len() == added.len()).await;
    daemon.stop().await;
    let received = receiver.received();
    let delay = |order: usize| {
        let one = received.iter().find(|one| one.order() == order as i64 + 1).expect("it has arrived");
        one.at.saturating_duration_since(added[order])
    };
    let delays: Vec<Duration> = (0..added.len()).map(delay).collect();
    // What an endpoint is like that has taken nothing so far it has to show first.
    let late = delays[9..].iter().filter(|delay| **delay > Duration::from_secs(3)).count();
    assert!(late == 0, "{late} of {} came late: {delays:?}", delays.len());
}

/// One 503 with `Retry-After: 86400`.
#[tokio::test]
async fn a_rest_of_a_day_is_for_the_event_that_was_asked() {
    let (redis, receiver) = (Redis::start(), Receiver::start().await);
    let (shop, settings) = patient_shop(Kind::MariaDb, &redis, &receiver).await;
    receiver.next([Behaviour::LaterThan(86_400)]);
    shop.order(1, -1_000).await;
    let daemon = listening(&settings).await;
    let warning = daemon.until_logged("the target wants to be left alone").await;
    assert!(warning.contains("\"WARN\"") && warning.contains("\"until\":\"20"), "{warning}");
    // Neither by this daemon nor by another.
    shop.orders_due_in(2..=30, -1_000).await;
    shop.until_all_settled().await;
    let beside = listening(&settings).await;
    let listed = order_closer(&settings, &["targets", "--json"]).await.expect_code(0).json();
    assert_eq!((&listed["state"], &listed["waiting"]), (&"resting".into(), &30.into()), "{listed}");
    assert!(listed["resting_until"].is_string() && listed["last_error"].as_str().is_some_and(|error| error.contains("503")), "{listed}");
    let check = order_closer(&settings, &["check"]).await.stdout;
    assert!(check.contains("till wants to be left alone until 20"), "{check}");
    wait::within(Duration::from_secs(20), "all others have arrived", async || receiver.taken().len() == 29).await;
    let received = receiver.received();
    assert!(received[1].at - received[0].at > Duration::from_secs(4), "{:?}", received[1].at - received[0].at);
    daemon.until_logged("the target takes events again").await;
    assert_eq!(received.iter().filter(|one| one.order() == 1).count(), 1);
    let waits =
        "SELECT count(*) FROM order_closer_deliveries WHERE due_at > (SELECT MAX(closed_at) FROM order_closer_events) + 80000000000";
    wait::until_eq("the number of events that wait for a day", 1, async || shop.database.number(waits).await).await;
    order_closer(&settings, &["targets", "resume", "till"]).await.expect_code(0);
    until_delivered(&shop).await;
    daemon.stop().await;
    beside.stop().await;
    assert_told(&shop, &receiver).await;
}

async fn events_of_one_order_stay_in_their_order(kind: Kind) {
    let (redis, receiver) = (Redis::start(), Receiver::start().await);
    let (shop, settings) = shop_with(kind, &redis, &receiver.webhook("till", "")).await;
    receiver.by_order(|order| (order == 1).then_some(Behaviour::Status(500)));
    let daemon = listening(&settings).await;
    shop.order(1, -1_000).await;
    shop.until_all_settled().await;
    shop.reopen(1, -1_000).await;
    shop.until_all_settled().await;
    shop.orders_due_in(2..=50, -1_000).await;
    wait::until("all others have arrived", async || receiver.taken().len() == 49).await;
    let ids = |receiver: &Receiver| receiver.received().iter().filter(|one| one.order() == 1).map(|one| one.id()).collect::<BTreeSet<_>>();
    wait::until("the first was tried several times", async || receiver.received().iter().filter(|one| one.order() == 1).count() > 5).await;
    assert_eq!(ids(&receiver).len(), 1, "the second waits for the first");
    receiver.by_order(|_| None);
    until_delivered(&shop).await;
    daemon.stop().await;
    let taken: Vec<String> = receiver.received().iter().filter(|one| one.order() == 1 && one.answer.takes()).map(|one| one.id()).collect();
    assert_eq!(taken.len(), 2);
    assert!(taken.is_sorted(), "{taken:?}");
}

/// An endpoint that answers `103 Early Hints` without end: closures and other targets don't notice.
#[tokio::test]
async fn an_endpoint_that_hints_without_end() {
    let (redis, hinting, other) = (Redis::start(), Hinting::start(), Receiver::start().await);
    let both = other.webhook("other", "") + &hinting.one_more_webhook("hinting", "timeout = '2s'");
    let (shop, settings) = shop_with(Kind::Postgres, &redis, &both).await;
    hinting.begin();
    let daemon = listening(&settings.set("log.level", "debug")).await;
    shop.orders_due_in(1..=20, -1_000).await;
    wait::until("it is asked by all that it may be asked by", async || hinting.asked() >= 8).await;
    shop.orders_due_in(21..=500, 1_000).await;
    shop.write_keys(&redis, 0).await;
    shop.until_all_settled().await;
    wait::until_eq("the number of events that the other has", 500, async || other.taken().len()).await;
    let failure = daemon.until_line("a delivery is cut", |line| line.contains("delivery failed") && line.contains("hinting")).await;
    assert!(failure.contains("no whole answer within"), "{failure}");
    daemon.stop().await;
    super::assert_on_time(&shop.assert_outcome().await);
    assert_told(&shop, &other).await;
}

/// Where no daemon runs.
async fn delivered_by_cron(kind: Kind) {
    let (redis, receiver) = (Redis::start(), Receiver::start().await);
    let (shop, settings) = shop_with(kind, &redis, &receiver.webhook("till", "")).await;
    let none = order_closer(&settings, &["deliver"]).await.expect_code(0);
    assert_eq!(none.stdout, "till: 0 delivered, 0 failed\n");
    shop.orders_due_in(1..=50, -1_000).await;
    order_closer(&settings, &["reconcile"]).await.expect_code(0);
    receiver.by_order(|order| (order == 7).then_some(Behaviour::Status(500)));
    let some = order_closer(&settings, &["deliver"]).await.expect_code(75);
    assert!(some.stdout.starts_with("till: 49 delivered, "), "{some:?}");
    receiver.by_order(|_| None);
    wait::until("the last one is due and delivered", async || {
        order_closer(&settings, &["deliver"]).await.expect_code(0).stdout == "till: 1 delivered, 0 failed\n"
    })
    .await;
    assert_told(&shop, &receiver).await;
    for _ in 0..2 {
        shop.reopen(7, -1_000).await;
        order_closer(&settings, &["reconcile"]).await.expect_code(0);
    }
    let both = order_closer(&settings, &["deliver"]).await.expect_code(0);
    assert_eq!(both.stdout, "till: 2 delivered, 0 failed\n", "the later event goes out behind the earlier one");
}

/// What waits for a target that is no more is said, left where it is, and given up on request.
#[tokio::test]
async fn a_target_that_is_not_configured_any_more() {
    let (redis, receiver) = (Redis::start(), Receiver::start().await);
    let (shop, settings) = shop_with(Kind::Sqlite, &redis, &(receiver.webhook("till", "") + &Receiver::gone_entry("old"))).await;
    shop.orders_due_in(1..=3, -1_000).await;
    order_closer(&settings, &["reconcile"]).await.expect_code(0);
    order_closer(&settings, &["targets", "drop", "old"]).await.expect_code(64);
    shop.database.execute("UPDATE order_closer_deliveries SET due_at = NULL, failed_at = 1, error = 'x'").await;

    let settings = shop.settings_with(&redis).add(&receiver.webhook("till", ""));
    let daemon = listening(&settings).await;
    let warning = daemon.until_logged("events wait for a target that the configuration does not name").await;
    assert!(warning.contains("\"WARN\"") && warning.contains("\"old\"") && warning.contains("\"dead\":3"), "{warning}");
    let event = shop.database.text("SELECT MIN(event_id) FROM order_closer_deliveries").await.expect("an id");
    order_closer(&settings, &["dead-letters", "retry", &event, "--target", "nobody"]).await.expect_code(64);
    order_closer(&settings, &["dead-letters", "retry", &event, "--target", "till"]).await.expect_code(0);
    wait::until_eq("the number of events taken", 1, async || receiver.taken().len()).await;
    let dead = "SELECT count(*) FROM order_closer_deliveries WHERE target = 'old' AND due_at IS NULL";
    assert_eq!(shop.database.number(dead).await, 3, "to the other target it is as dead as before");
    let all = order_closer(&settings, &["dead-letters", "retry", "--all"]).await.expect_code(0);
    assert_eq!(all.stdout, "2 put back\n3 left: old is not in the configuration (order-closer targets drop old)\n");
    wait::until_eq("the number of events taken", 3, async || receiver.taken().len()).await;
    let dropped = order_closer(&settings, &["targets", "drop", "old"]).await.expect_code(0);
    assert_eq!(dropped.stdout, "old: 3 given up\n");
    until_delivered(&shop).await;
    daemon.stop().await;
    assert_told(&shop, &receiver).await;
}

/// What a daemon has written of a trouble is corrected by the next one.
#[tokio::test]
async fn a_trouble_that_ended_between_two_daemons() {
    let (redis, receiver) = (Redis::start(), Receiver::start().await);
    let (shop, settings) = shop_with(Kind::Postgres, &redis, &receiver.webhook("till", "")).await;
    let state = async || order_closer(&settings, &["targets", "--json"]).await.expect_code(0).json()["state"].clone();
    receiver.usually(Behaviour::Status(500));
    shop.orders_due_in(1..=20, -1_000).await;
    let daemon = listening(&settings).await;
    daemon.until_logged("the target fails; asking it less often").await;
    wait::until("that is noted", async || state().await == "troubled").await;
    daemon.stop().await;
    receiver.usually(Behaviour::Status(200));
    let daemon = listening(&settings).await;
    until_delivered(&shop).await;
    wait::until("it is well", async || state().await == "ok").await;
    daemon.stop().await;
    assert_told(&shop, &receiver).await;
}

/// A port where nobody listens: a few events find that out, and not all of a crowd.
#[tokio::test]
async fn a_target_that_can_not_be_reached_is_asked_with_few_events() {
    let redis = Redis::start();
    let url = format!("http://127.0.0.1:{}/", ports::free());
    let webhook = format!("[[events.webhooks]]\nname = 'till'\nurl = '{url}'\nsecrets = ['whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3']");
    let (shop, settings) = shop_with(Kind::Postgres, &redis, &format!("[events]\nenabled = true\n{webhook}")).await;
    shop.orders_due_in(1..=500, -1_000).await;
    let daemon = listening(&settings.set("log.level", "order_closer=debug")).await;
    daemon.until_logged("the target fails; asking it less often").await;
    daemon.stop().await;
    let lines = daemon.lines();
    let warned = lines.iter().position(|line| line.contains("asking it less often")).expect("it was logged");
    let tried = lines[..warned].iter().filter(|line| line.contains("delivery failed; will retry")).count();
    assert!(tried < 64, "{tried} tries of 500 events");
}
