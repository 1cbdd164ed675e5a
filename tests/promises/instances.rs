//! Many instances that come and go while orders fall due: started, stopped, killed, frozen for longer than any patience.

use std::time::Duration;

use super::{ON_TIME_MILLIS, assert_on_time, listening, together::take_turns_at_hot_rows};
use crate::support::{Daemon, Kind, Redis, Settings, Shop, wait};

/// So many orders fall due in a wave, over three seconds, from one second on.
const WAVE: i64 = 300;

async fn open() -> (Redis, Shop, Settings) {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let settings = take_turns_at_hot_rows(Kind::Postgres, shop.settings_with(&redis));
    (redis, shop, settings)
}

/// Creates the orders of a wave.
async fn wave(redis: &Redis, shop: &Shop, number: i64) {
    let orders: Vec<(i64, i64)> = (1..=WAVE).map(|order| (number * WAVE + order, 1_000 + order * 3_000 / WAVE)).collect();
    shop.orders(&orders).await;
    shop.write_keys(redis, 0).await;
}

/// Stops daemons; how many closures there were, by those who say that they made them.
async fn stopped(daemons: Vec<Daemon>) -> u64 {
    let mut closed = 0;
    for daemon in daemons {
        daemon.stop().await;
        assert_eq!(daemon.summary().count("rejected"), 0, "{:#?}", daemon.lines());
        closed += daemon.summary().count("closed");
    }
    closed
}

/// Four daemons are replaced by new ones, one after the other, while orders fall due.
#[tokio::test]
async fn a_rolling_restart_under_load() {
    let (redis, shop, settings) = open().await;
    let mut daemons = Vec::new();
    for _ in 0..4 {
        daemons.push(listening(&settings).await);
    }
    let mut closed = 0;
    for round in 0..4 {
        wave(&redis, &shop, round).await;
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        closed += stopped(vec![daemons.remove(0)]).await;
        daemons.push(listening(&settings).await);
    }
    shop.until_all_settled().await;
    closed += stopped(daemons).await;
    let outcome = shop.assert_outcome().await;
    assert_eq!((outcome.closed.len() as i64, closed as i64), (4 * WAVE, 4 * WAVE), "each once, by those who say they did it");
    assert_on_time(&outcome);
}

/// Up to ten daemons: some are killed, some say goodbye, some join, and some stand still until all others have given them up,
/// and go on with what they had in hand.
#[tokio::test]
async fn ten_that_come_and_go() {
    let (redis, shop, settings) = open().await;
    let mut daemons = Vec::new();
    for _ in 0..9 {
        daemons.push(listening(&settings).await);
    }
    wave(&redis, &shop, 0).await;
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    let killed: Vec<Daemon> = daemons.drain(..3).collect();
    killed.iter().for_each(Daemon::kill);
    daemons.push(listening(&settings).await);
    wave(&redis, &shop, 1).await;
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    let frozen: Vec<Daemon> = daemons.drain(..3).collect();
    frozen.iter().for_each(Daemon::freeze);
    daemons[0]
        .until_line("those that stand still are given up", |line| line.contains("\"others\":3,") && line.contains("other instances"))
        .await;
    wave(&redis, &shop, 2).await;
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    frozen.iter().for_each(Daemon::thaw);
    stopped(daemons.drain(..2).collect()).await;
    shop.until_all_settled().await;
    stopped(daemons).await;
    stopped(frozen).await;
    let outcome = shop.assert_outcome().await;
    assert_eq!(outcome.closed.len() as i64, 3 * WAVE);
    // What a killed or frozen one had in hand stays locked until the database gives its session up, or it goes on.
    let late = outcome.closed.values().filter(|late| **late > ON_TIME_MILLIS).count();
    assert!(late <= 100, "{late} of {} orders were late", 3 * WAVE);
}

/// A crowd of notifications is heard to its end by one of several, and what comes after it by all.
#[tokio::test]
async fn a_crowd_of_notifications_is_heard_by_one() {
    const CROWD: u64 = 60_000;
    let (redis, shop, settings) = open().await;
    let mut daemons = Vec::new();
    for _ in 0..3 {
        daemons.push(listening(&settings).await);
    }
    for daemon in &daemons {
        daemon.until_line("that it knows both others", |line| line.contains("other instances") && line.contains("\"others\":2")).await;
    }
    // Of no orders of ours, so that nothing is left to do.
    let publish = "for number = 1, 10000 do redis.call('PUBLISH', '__keyevent@0__:expired', 'session_' .. number) end";
    for _ in 0..CROWD / 10_000 {
        redis.command(&["EVAL", publish, "0"]);
    }
    let leaving = || daemons.iter().filter(|daemon| daemon.logged("another instance hears a crowd") > 0).collect::<Vec<_>>();
    wait::until("two leave it to the third", async || leaving().len() == 2).await;
    for daemon in leaving() {
        wait::until("it listens again", async || daemon.logged("listening for expired keys") == 2).await;
    }
    wave(&redis, &shop, 0).await;
    shop.until_all_settled().await;
    assert_on_time(&shop.assert_outcome().await);
    let mut heard = Vec::new();
    for daemon in &daemons {
        daemon.stop().await;
        heard.push(daemon.summary().count("heard") + daemon.summary().count("lost"));
    }
    heard.sort_unstable();
    assert!(heard[1] < CROWD && heard[2] >= CROWD, "{heard:?}");
}

/// However many instances close a crowd, full batches are no more at a time than those of one: they would only wait for each other.
#[tokio::test]
async fn full_batches_of_all_are_as_many_as_those_of_one() {
    let (_redis, shop, settings) = open().await;
    shop.database.execute("CREATE TABLE batches (began timestamptz, ended timestamptz)").await;
    let settings = settings
        .set("close.batch_size", 20)
        .set("close.sql", vec!["SELECT pg_sleep(0.04) WHERE EXISTS (SELECT 1 FROM orders WHERE order_no IN (:ids))"])
        .after_close_sql(
            "INSERT INTO batches SELECT now(), clock_timestamp() WHERE EXISTS (SELECT 1 FROM orders WHERE order_no IN (:ids))",
        );
    let daemons = [listening(&settings).await, listening(&settings).await];
    for daemon in &daemons {
        daemon.until_line("that it knows the other", |line| line.contains("other instances") && line.contains("\"others\":1")).await;
    }
    let orders: Vec<(i64, i64)> = (1..=1_000).map(|number| (number, 2_500)).collect();
    shop.orders(&orders).await;
    wait::until("all are closed", async || shop.closed().await == 1_000).await;
    // Some that take long on a busy machine hold up none.
    let beside = "SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY beside) FROM (SELECT (SELECT count(*) FROM batches AS other
        WHERE other.began < batch.began AND other.ended > batch.began) AS beside FROM batches AS batch) AS counted";
    let (batches, beside) = (shop.database.number("SELECT count(*) FROM batches").await, shop.database.number(beside).await);
    assert!(batches >= 50 && beside == 1, "{batches} batches, each beside {beside} others");
    for daemon in daemons {
        daemon.stop().await;
    }
}
