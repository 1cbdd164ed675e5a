//! "Our payment provider is down": nothing closes for a while, whoever would.

use std::time::Duration;

use serde_json::Value;

use super::{Role, listening, on_each_database};
use crate::support::{Kind, Redis, Shop, daemon::order_closer, shop::UNPAID, wait};

on_each_database! {
    nobody_closes_while_it_lasts
    a_daemon_older_than_the_tables_honours_it
}

async fn nobody_closes_while_it_lasts(kind: Kind) {
    let redis = Redis::start();
    let shop = Shop::open(kind).await;
    let settings = shop.settings_with(&redis);
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    let (one, other) = (listening(&settings).await, listening(&settings).await);
    shop.orders_due_in([1], -1_000).await;
    shop.until_all_settled().await;
    order_closer(&settings, &["pause", "--reason", "the provider is down"]).await.expect_code(0);
    one.until_logged("closing is paused").await;
    other.until_logged("closing is paused").await;
    shop.orders_due_in(2..=50, -1_000).await;
    redis.publish_expired(0, b"order_2");
    let reconciled = order_closer(&settings, &["reconcile", "--json"]).await.expect_code(0);
    assert!(reconciled.stderr.contains("the provider is down"), "{}", reconciled.stderr);
    assert_eq!((reconciled.json()["paused"].as_bool(), reconciled.json()["closed"].as_u64()), (Some(true), Some(0)));
    let closed = order_closer(&settings, &["close", "2"]).await.expect_code(75);
    assert!(closed.stdout.contains("paused"), "{}", closed.stdout);
    let status = order_closer(&settings, &["status", "--json"]).await.expect_code(75).json();
    assert_eq!((status["paused"].as_bool(), status["reason"].as_str()), (Some(true), Some("the provider is down")), "{status}");
    assert_eq!(status["overdue"].as_u64(), Some(49));
    let checked = order_closer(&settings, &["check"]).await;
    assert!(checked.stdout.contains("closing is paused by"), "{}", checked.stdout);
    // A daemon that starts meanwhile reads it before it closes anything.
    let late = listening(&settings).await;
    late.until_logged("closing is paused").await;
    assert_eq!(shop.closed().await, 1);
    order_closer(&settings, &["resume"]).await.expect_code(0);
    shop.until_all_settled().await;
    order_closer(&settings, &["status"]).await.expect_code(0);
    for daemon in [one, other, late] {
        daemon.stop().await;
    }
    shop.assert_outcome().await;
    let log = order_closer(&settings, &["events", "--json", "--since", "1h"]).await.expect_code(0).stdout;
    let events: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let named = |trigger: &str| events.iter().filter(|event| event["trigger"] == trigger).count();
    assert_eq!((named("pause"), named("resume")), (1, 1), "{log}");
    let lines = order_closer(&settings, &["events"]).await.expect_code(0).stdout;
    let pause = lines.lines().find(|line| line.contains("  pause  ")).unwrap_or_else(|| panic!("{lines}"));
    assert!(pause.contains("the provider is down") && !pause.contains("closed"), "{pause}");
}

/// Whoever wants a pause may have to make the tables first, while daemons run.
async fn a_daemon_older_than_the_tables_honours_it(kind: Kind) {
    let redis = Redis::start();
    let shop = Shop::open(kind).await;
    let settings = shop.settings_with(&redis).set("log.summary", "500ms").set("sweep.every", "100ms");
    let daemon = listening(&settings).await;
    shop.orders_due_in([1], -1_000).await;
    shop.until_all_settled().await;
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    order_closer(&settings, &["pause", "--reason", "the provider is down"]).await.expect_code(0);
    daemon.until_logged("closing is paused").await;
    shop.orders_due_in(2..=20, -1_000).await;
    redis.publish_expired(0, b"order_2");
    let summaries = || daemon.said("summary").len();
    let said = summaries();
    wait::until("it has had the time to close them", async || summaries() >= said + 3).await;
    assert_eq!(shop.closed().await, 1);
    order_closer(&settings, &["resume"]).await.expect_code(0);
    shop.until_all_settled().await;
    daemon.stop().await;
    assert_eq!(daemon.logged("order_closer_* are there now"), 1, "{:#?}", daemon.lines());
    shop.assert_outcome().await;
}

#[tokio::test]
async fn it_ends_by_itself() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let settings = shop.settings_with(&redis);
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    order_closer(&settings, &["pause", "--for", "8s", "--reason", "a short one"]).await.expect_code(0);
    let daemon = listening(&settings).await;
    daemon.until_logged("closing is paused").await;
    shop.orders_due_in(1..=10, -1_000).await;
    assert_eq!(shop.status(1).await, UNPAID);
    shop.until_all_settled().await;
    daemon.until_logged("closing goes on").await;
    daemon.stop().await;
    shop.assert_outcome().await;
}

/// So that a payment provider that is back is not asked for everything at once.
#[tokio::test]
async fn what_has_waited_closes_at_the_rate_that_was_asked_for() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let settings = shop.settings_with(&redis).set("close.batch_size", 10);
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    order_closer(&settings, &["pause", "--reason", "the provider is down"]).await.expect_code(0);
    shop.orders_due_in(1..=300, -1_000).await;
    let daemon = listening(&settings).await;
    daemon.until_logged("closing is paused").await;
    order_closer(&settings, &["resume", "--rate", "50/s"]).await.expect_code(0);
    daemon.until_logged("only so many orders a second").await;
    wait::until("some are closed", async || shop.closed().await >= 20).await;
    let began = tokio::time::Instant::now();
    shop.until_all_settled().await;
    assert!(began.elapsed() > Duration::from_secs(3), "all 300 within {:?}", began.elapsed());
    daemon.until_logged("closing goes on").await;
    daemon.stop().await;
    shop.assert_outcome().await;
}

#[tokio::test]
async fn without_tables_there_is_no_pause() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Sqlite).await;
    let settings = shop.settings_with(&redis);
    let refused = order_closer(&settings, &["pause", "--reason", "x"]).await.expect_code(78);
    assert!(refused.stderr.contains("order-closer migrate"), "{}", refused.stderr);
    order_closer(&settings, &["status"]).await.expect_code(0);
}

/// After an upgrade the daemon's user may lack the right to a new table: it closes as before, and says what it can't honour.
#[tokio::test]
async fn without_the_right_to_read_pauses_orders_close() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let settings = shop.settings_with(&redis);
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    let role = Role::of(&shop, "p").await;
    shop.database.execute(&format!("REVOKE ALL ON order_closer_pauses FROM {}", role.name)).await;
    let settings = settings.set("database.url", role.url.as_str());
    shop.orders_due_in(1..=3, -1_000).await;
    let daemon = listening(&settings).await;
    daemon.until_logged("no other pause is honoured").await;
    shop.until_all_settled().await;
    shop.orders_due_in(4..=6, -1_000).await;
    order_closer(&settings, &["reconcile"]).await.expect_code(0);
    daemon.stop().await;
    shop.assert_outcome().await;
    role.drop_from(&shop).await;
}

/// Whoever can't read it any more goes by what was read last.
#[tokio::test]
async fn it_lasts_though_it_can_no_longer_be_read() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let settings = shop.settings_with(&redis).set("log.summary", "200ms").set("sweep.every", "100ms");
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    order_closer(&settings, &["pause", "--reason", "x"]).await.expect_code(0);
    let daemon = listening(&settings).await;
    daemon.until_logged("closing is paused").await;
    shop.database.execute("ALTER TABLE order_closer_pauses RENAME TO gone").await;
    daemon.until_logged("no other pause is honoured").await;
    shop.orders_due_in(1..=5, -1_000).await;
    let waits = |record: &Value| record["paused"] == true && record["waiting"].as_u64() == Some(0);
    let said = daemon.said("summary").len();
    // Taken from the inbox, they wait in hand.
    wait::until("they were found", async || daemon.said("summary").len() > said + 10 && daemon.said("summary").last().is_some_and(waits))
        .await;
    shop.database.execute("ALTER TABLE gone RENAME TO order_closer_pauses").await;
    assert_eq!(shop.closed().await, 0);
    order_closer(&settings, &["resume"]).await.expect_code(0);
    shop.until_all_settled().await;
    daemon.stop().await;
    shop.assert_outcome().await;
}
