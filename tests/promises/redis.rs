//! Redis away, killed, frozen, emptied, restarted without its setting: orders close on time all the same,
//! and notifications are back as soon as Redis is.

use super::{assert_on_time, listening};
use crate::support::{Daemon, Kind, Redis, Settings, Shop, redis::Keep, wait};

/// Redis prints flags in an order of its own.
fn has_flags(redis: &Redis, flags: &str) -> bool {
    let set = redis.config_get("notify-keyspace-events");
    flags.chars().all(|flag| set.contains(flag))
}

/// Settings under which the daemon says often how much it has heard.
fn settings(shop: &Shop, redis: &Redis) -> Settings {
    shop.settings_with(redis).set("log.summary", "200ms")
}

/// How many notifications the daemon has heard, as far as it has said so.
fn heard(daemon: &Daemon) -> u64 {
    daemon.records().iter().filter(|record| record["message"] == "summary").filter_map(|record| record["heard"].as_u64()).sum()
}

/// Takes twenty orders with keys from this number on, and waits until they are closed and every notification
/// was heard.
async fn assert_hears(redis: &Redis, shop: &Shop, daemon: &Daemon, first: i64) {
    let before = heard(daemon);
    shop.orders_due_in(first..first + 20, 2_500).await;
    shop.write_keys(redis, 0).await;
    shop.until_all_settled().await;
    wait::until("all notifications are heard", async || heard(daemon) >= before + 20).await;
}

#[tokio::test]
async fn absent_at_start() {
    let mut redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    redis.kill();
    shop.orders_due_in(1..=20, -5_000).await;
    let daemon = Daemon::start(&settings(&shop, &redis));
    shop.until_all_settled().await;
    shop.orders_due_in(21..=40, 500).await;
    shop.orders_due_in(41..=60, 2_500).await;
    shop.until_all_settled().await;
    let warning = daemon.until_logged("no keyspace notifications").await;
    assert!(warning.contains("WARN"), "{warning}");
    redis.start_again(Keep::Nothing);
    daemon.until_logged("listening for expired keys").await;
    assert_hears(&redis, &shop, &daemon, 61).await;
    daemon.stop().await;
    let outcome = shop.assert_outcome().await;
    let late = outcome.closed.iter().find(|(number, millis)| **number > 20 && **millis > 2_000);
    assert_eq!((outcome.closed.len(), late), (80, None));
}

/// Killed and back empty, again and again, while orders fall due.
#[tokio::test]
async fn killed_and_restarted_empty() {
    // As an operator has set it for somebody else.
    let mut redis = Redis::options().config("notify-keyspace-events Kg").start();
    let shop = Shop::open(Kind::Postgres).await;
    let daemon = listening(&settings(&shop, &redis)).await;
    assert!(has_flags(&redis, "KgEx"), "{}", redis.config_get("notify-keyspace-events"));
    let orders: Vec<(i64, i64)> = (1..=500).map(|number| (number, 1_000 + number * 10)).collect();
    shop.orders(&orders).await;
    for round in 1..=3 {
        shop.write_keys(&redis, 0).await;
        wait::until("some more orders are closed", async || shop.closed().await >= round * 100).await;
        redis.restart_empty();
        redis.until_subscribed().await;
        wait::until("the setting is back", async || has_flags(&redis, "KgEx")).await;
    }
    shop.write_keys(&redis, 0).await;
    assert_hears(&redis, &shop, &daemon, 501).await;
    daemon.stop().await;
    assert_on_time(&shop.assert_outcome().await);
    assert_eq!(daemon.said("set notify-keyspace-events").len(), 4);
}

/// Restarted with its data, which has keys that expired meanwhile: Redis never speaks of them.
#[tokio::test]
async fn restarted_with_keys_that_expired_meanwhile() {
    let mut redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let daemon = listening(&settings(&shop, &redis)).await;
    shop.orders_due_in(1..=50, 1_500).await;
    shop.write_keys(&redis, 0).await;
    redis.command(&["SAVE"]);
    redis.kill();
    shop.until_all_settled().await;
    redis.start_again(Keep::Data);
    redis.until_subscribed().await;
    assert_hears(&redis, &shop, &daemon, 51).await;
    daemon.stop().await;
    assert_on_time(&shop.assert_outcome().await);
}

/// Somebody takes the flags away while the subscription lasts.
#[tokio::test]
async fn the_setting_is_taken_away() {
    let redis = Redis::options().with_notifications().start();
    let shop = Shop::open(Kind::Postgres).await;
    let daemon = listening(&settings(&shop, &redis)).await;
    assert_eq!(daemon.logged("set notify-keyspace-events"), 0, "there was nothing to set");
    redis.command(&["CONFIG", "SET", "notify-keyspace-events", "Kl"]);
    shop.orders_due_in(1..=20, 500).await;
    shop.write_keys(&redis, 0).await;
    wait::until("the flags are there again", async || has_flags(&redis, "KlEx")).await;
    assert_hears(&redis, &shop, &daemon, 21).await;
    daemon.stop().await;
    assert_on_time(&shop.assert_outcome().await);
}

/// The same, when the daemon may not set it.
#[tokio::test]
async fn the_setting_is_missing_and_not_ours_to_set() {
    let redis = Redis::options().config("notify-keyspace-events Kg").start();
    let shop = Shop::open(Kind::Postgres).await;
    let daemon = listening(&settings(&shop, &redis).set("redis.enable_notifications", false)).await;
    let before = redis.config_get("notify-keyspace-events");
    let error = daemon.until_line("an error is logged", |line| line.contains("\"ERROR\"")).await;
    assert!(error.contains(&format!("redis-cli -p {} CONFIG SET notify-keyspace-events", redis.port())), "{error}");
    let command = error.split("CONFIG SET notify-keyspace-events ").nth(1).and_then(|rest| rest.split('"').next()).expect("a command");
    assert!("gKEx".chars().all(|flag| command.contains(flag)), "{error}");
    shop.orders_due_in(1..=20, 2_500).await;
    shop.write_keys(&redis, 0).await;
    shop.until_all_settled().await;
    assert_eq!(redis.config_get("notify-keyspace-events"), before, "not ours to set");
    // The command that the log shows mends it.
    redis.command(&["CONFIG", "SET", "notify-keyspace-events", command]);
    assert_hears(&redis, &shop, &daemon, 21).await;
    daemon.stop().await;
    assert_on_time(&shop.assert_outcome().await);
    assert_eq!(daemon.logged("\"ERROR\""), 1, "said once");
}

/// Frozen: connections stay open and nothing answers. Orders close without it, and it is heard again when it
/// thaws.
#[tokio::test]
async fn frozen_for_a_while() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let daemon = listening(&settings(&shop, &redis)).await;
    let orders: Vec<(i64, i64)> = (1..=300).map(|number| (number, 1_000 + number * 30)).collect();
    shop.orders(&orders).await;
    shop.write_keys(&redis, 0).await;
    wait::until("the first orders are closed", async || shop.closed().await >= 20).await;
    redis.freeze();
    daemon.until_logged("no keyspace notifications").await;
    shop.until_all_settled().await;
    redis.thaw();
    redis.until_subscribed().await;
    wait::until("it listens again", async || daemon.logged("listening for expired keys") >= 2).await;
    assert_hears(&redis, &shop, &daemon, 301).await;
    daemon.stop().await;
    assert_on_time(&shop.assert_outcome().await);
}

/// A frozen Redis does not hold up the end of the daemon.
#[tokio::test]
async fn frozen_while_the_daemon_stops() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let daemon = listening(&settings(&shop, &redis).set("shutdown.timeout", "20s")).await;
    shop.orders_due_in(1..=20, 10).await;
    shop.orders_due_in(21..=40, 3_600_000).await;
    wait::until_eq("the number of closed orders", 20, async || shop.closed().await).await;
    redis.freeze();
    let asked = std::time::Instant::now();
    daemon.stop().await;
    assert!(asked.elapsed().as_secs() < 10, "took {:?} to stop", asked.elapsed());
    assert_eq!(daemon.logged("did not finish in time"), 0);
    assert_on_time(&shop.assert_outcome().await);
}
