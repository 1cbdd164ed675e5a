//! What was given up is kept, survives restarts, is in nobody's way, and comes back when somebody says so.

use std::time::Duration;

use super::{
    listening, on_each_database,
    poison::{POISON, cure, poison, settings, three_hundred},
    webhooks::{assert_told, until_delivered},
};
use crate::support::{
    Daemon, Kind, Redis, Settings, Shop, order_closer, ports,
    receiver::{Behaviour, Receiver, webhook},
    shop::CLOSED,
    wait,
};

on_each_database! {
    an_order_is_left_alone_until_it_is_put_back
    an_endpoint_that_never_comes_back_in_time
}

/// A daemon that gives the poisoned order up.
async fn given_up(kind: Kind, redis: &Redis) -> (Shop, Settings) {
    let shop = Shop::open(kind).await;
    poison(&shop).await;
    let settings = settings(&shop, redis);
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    let daemon = listening(&settings).await;
    three_hundred(&shop, redis).await;
    let error = daemon.until_line("an error is logged", |line| line.contains("\"ERROR\"")).await;
    assert!(error.contains("is a dead letter") && error.contains("\"150\"") && error.contains("under dispute"), "{error}");
    daemon.stop().await;
    assert_eq!(daemon.logged("\"ERROR\""), 1);
    assert_eq!(daemon.summary().count("rejected"), 4, "four attempts in all");
    (shop, settings)
}

/// What is listed.
async fn listed(settings: &Settings) -> Vec<serde_json::Value> {
    let list = order_closer(settings, &["dead-letters", "list", "--json"]).await.expect_code(0);
    list.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON on each line")).collect()
}

/// Waits until the daemon has closed one more order, which it found after what it would have found before.
async fn still_sweeping(daemon: &Daemon, shop: &Shop, order: i64) {
    shop.order(order, -1_000).await;
    shop.until_status(order, CLOSED).await;
    assert!(daemon.ended().is_none());
}

async fn an_order_is_left_alone_until_it_is_put_back(kind: Kind) {
    let redis = Redis::start();
    let (shop, settings) = given_up(kind, &redis).await;
    let letters = listed(&settings).await;
    assert_eq!(letters.len(), 1, "{letters:?}");
    assert_eq!((&letters[0]["kind"], &letters[0]["id"], &letters[0]["attempts"]), (&"order".into(), &"150".into(), &4.into()));
    assert!(letters[0]["error"].as_str().is_some_and(|error| error.contains("under dispute")), "{letters:?}");
    let text = order_closer(&settings, &["dead-letters", "list"]).await.expect_code(0);
    assert!(text.stdout.starts_with("order 150  4 tries, the last at 20"), "{text:?}");
    let shown = order_closer(&settings, &["dead-letters", "show", "150"]).await.expect_code(0);
    assert_eq!(shown.stdout, text.stdout);

    // After a restart, and by cron, it is passed over.
    let daemon = listening(&settings).await;
    still_sweeping(&daemon, &shop, 1_001).await;
    let pass = order_closer(&settings, &["reconcile", "--json"]).await.expect_code(0).json();
    assert_eq!((&pass["overdue"], &pass["failed"]), (&0.into(), &0.into()));
    // Dropped, it is so for good, and nobody hears of it.
    order_closer(&settings, &["dead-letters", "drop", "150"]).await.expect_code(0);
    assert_eq!(listed(&settings).await, [] as [serde_json::Value; 0]);
    let unknown = order_closer(&settings, &["dead-letters", "drop", "150", "151"]).await.expect_code(64);
    assert!(unknown.stderr.contains("no dead letter has the id 150 or 151"), "{unknown:?}");
    still_sweeping(&daemon, &shop, 1_002).await;
    shop.assert_outcome_except(&[POISON]).await;
    let shown = order_closer(&settings, &["dead-letters", "show", "150"]).await.expect_code(0);
    assert!(shown.stdout.trim_end().ends_with("; dropped"), "{shown:?}");

    cure(&shop).await;
    let put_back = order_closer(&settings, &["dead-letters", "retry", "150"]).await.expect_code(0);
    assert_eq!(put_back.stdout, "150: put back\n");
    shop.until_status(POISON, CLOSED).await;
    daemon.stop().await;
    shop.assert_outcome().await;
    assert_eq!(daemon.summary().count("rejected"), 0);
    order_closer(&settings, &["dead-letters", "show", "150"]).await.expect_code(64);
}

/// Whoever closes a dead letter by its id, or settles it otherwise, has dealt with it.
#[tokio::test]
async fn an_order_that_is_settled_is_no_dead_letter() {
    let redis = Redis::start();
    let (shop, settings) = given_up(Kind::Postgres, &redis).await;
    let refused = order_closer(&settings, &["close", "150"]).await.expect_code(75);
    assert!(refused.stdout.contains("under dispute"), "{refused:?}");
    assert_eq!(listed(&settings).await.len(), 1);
    cure(&shop).await;
    order_closer(&settings, &["close", "150"]).await.expect_code(0);
    assert_eq!(listed(&settings).await.len(), 0);
    shop.assert_outcome().await;

    poison(&shop).await;
    shop.reopen(POISON, -1_000).await;
    let daemon = listening(&settings).await;
    daemon.until_logged("is a dead letter").await;
    daemon.stop().await;
    assert!(shop.pay(POISON).await);
    let daemon = listening(&settings).await;
    wait::until("it is forgotten", async || listed(&settings).await.is_empty()).await;
    daemon.stop().await;
    shop.assert_outcome().await;
}

#[tokio::test]
async fn an_event_waits_for_its_receiver_to_be_mended() {
    let (redis, receiver) = (Redis::start(), Receiver::start().await);
    let shop = Shop::open(Kind::MariaDb).await;
    let settings = shop.settings_with(&redis).add(&receiver.webhook("till", "")).set("events.retry.attempts", 3);
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    receiver.usually(Behaviour::Status(500));
    let daemon = listening(&settings).await;
    shop.orders_due_in(1..=2, -1_000).await;
    wait::until_eq("the number of dead letters", 2, async || daemon.logged("\"ERROR\"")).await;
    wait::until("both are listed", async || listed(&settings).await.len() == 2).await;
    daemon.stop().await;
    assert_eq!(receiver.received().len(), 6, "three attempts each");

    receiver.usually(Behaviour::Status(200));
    let daemon = listening(&settings).await;
    shop.order(3, -1_000).await;
    wait::until("the next event has arrived", async || receiver.taken().contains_key(&3)).await;
    let letters = listed(&settings).await;
    assert_eq!(letters.len(), 2, "a restart changes nothing");
    let id = letters[0]["id"].as_str().expect("a text");
    let order = letters[0]["order_id"].as_str().expect("a text");
    assert_eq!((&letters[0]["target"], &letters[0]["attempts"]), (&"till".into(), &3.into()));
    let shown = order_closer(&settings, &["dead-letters", "show", id]).await.expect_code(0).stdout;
    assert!(shown.contains(&format!("event {id} of order {order} to till  3 tries")) && shown.contains("answered 500"), "{shown}");
    assert!(shown.lines().last().is_some_and(|line| line.contains(&format!("order {order}  closed "))), "{shown}");
    let shown = order_closer(&settings, &["dead-letters", "show", &id.to_uppercase(), "--json"]).await.expect_code(0).json();
    assert_eq!((&shown["id"], &shown["target"], &shown["event"]["id"]), (&id.into(), &"till".into(), &id.into()));
    assert!(shown["event"]["closed_at"].is_string(), "{shown}");
    let ids: Vec<&str> = letters.iter().map(|letter| letter["id"].as_str().expect("a text")).collect();
    order_closer(&settings, &["dead-letters", "retry", ids[0], ids[1]]).await.expect_code(0);
    until_delivered(&shop).await;
    daemon.stop().await;
    assert_told(&shop, &receiver).await;
    assert_eq!(listed(&settings).await.len(), 0);
}

/// More events than an endpoint in trouble is ever asked with: what was never sent is not given up, however long that takes.
async fn an_endpoint_that_never_comes_back_in_time(kind: Kind) {
    let redis = Redis::start();
    let port = ports::free();
    let shop = Shop::open(kind).await;
    let settings = shop.settings_with(&redis).add(&webhook("till", &format!("http://127.0.0.1:{port}/hook"), ""));
    let settings = settings.set("events.retry.attempts", 3);
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    shop.orders_due_in(1..=3_000, -1_000).await;
    let daemon = listening(&settings).await;
    daemon.until_logged("the target fails; asking it less often").await;
    let dead = "SELECT count(*) FROM order_closer_deliveries WHERE due_at IS NULL";
    wait::until("some are dead letters", async || shop.database.number(dead).await > 0).await;
    let receiver = Receiver::on_port(port).await;
    daemon.until_logged("the target takes events again").await;
    let waiting = "SELECT count(*) FROM order_closer_deliveries WHERE due_at IS NOT NULL";
    wait::within(Duration::from_secs(60), "all that waited have arrived", async || shop.database.number(waiting).await == 0).await;
    let letters = listed(&settings).await;
    assert_eq!(letters.len() + receiver.taken().len(), 3_000);
    for letter in &letters {
        assert!(letter["attempts"].as_u64().is_some_and(|attempts| attempts >= 3), "{letter}");
        assert!(letter["error"].as_str().is_some_and(|error| error.to_lowercase().contains("refused")), "{letter}");
    }
    let all = order_closer(&settings, &["dead-letters", "retry", "--all"]).await.expect_code(0);
    assert_eq!(all.stdout, format!("{} put back\n", letters.len()));
    until_delivered(&shop).await;
    daemon.stop().await;
    assert_told(&shop, &receiver).await;
}
