//! Rows and keys that contradict each other: no order closes before its key's moment, whatever becomes of Redis.

use std::time::Duration;

use order_closer::{
    config::{self, RedisUrl},
    redis::Commands,
};

use super::{assert_on_time, listening};
use crate::support::{
    Daemon, Database, Kind, Redis, Settings, Shop,
    mariadb::MariaDb,
    order_closer,
    shop::{CLOSED, UNPAID, key},
    wait,
};

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;

/// How many orders wait for their keys, as the daemon has said last.
fn disputed(daemon: &Daemon) -> u64 {
    daemon.said("summary").last().and_then(|summary| summary["disputed"].as_u64()).unwrap_or(0)
}

async fn until_disputed(daemon: &Daemon, count: u64) {
    wait::until_eq("the number of disputed orders", count, async || disputed(daemon)).await;
}

/// Settings under which the daemon says often how many orders it lets wait.
fn settings(shop: &Shop, redis: &Redis) -> Settings {
    shop.settings_with(redis).set("log.summary", "100ms")
}

/// The number of orders that were closed before their keys' moments, which came so many milliseconds after their deadlines.
async fn closed_early(shop: &Shop, later: i64) -> i64 {
    shop.database.number(&format!("SELECT count(*) FROM orders WHERE closed_at < expires_at + interval '{later} milliseconds'")).await
}

/// Moves all deadlines, as an application does that writes them in another zone.
async fn move_deadlines(shop: &Shop, hours: i64) {
    shop.database.execute(&format!("UPDATE orders SET expires_at = expires_at + INTERVAL {hours} HOUR")).await;
}

/// The server is in +08:00, and the application writes UTC: rows call orders due eight hours early.
#[tokio::test]
async fn the_application_writes_another_zone_than_the_servers() {
    let redis = Redis::start();
    let server = MariaDb::options().time_zone("+08:00").start();
    let shop = Shop::in_database(Database::on_mariadb(&server).await).await;
    let settings = settings(&shop, &redis);
    shop.orders_due_in(1..=480, 30 * MINUTE).await;
    shop.orders_due_in(481..=500, 8_000).await;
    shop.write_keys(&redis, 0).await;
    move_deadlines(&shop, -8).await;
    let daemon = listening(&settings).await;
    let said = daemon.until_logged("rows and keys contradict each other").await;
    assert!(said.contains("\"ERROR\"") && said.contains("database.time_zone") && said.contains("8h"), "{said}");
    until_disputed(&daemon, 500).await;
    // Whoever else brings them.
    redis.publish_expired(0, key(1).as_bytes());
    let reconciled = order_closer(&settings, &["reconcile", "--json"]).await.expect_code(75);
    assert_eq!((reconciled.json()["closed"].as_i64(), reconciled.json()["failed"].as_i64()), (Some(0), Some(0)), "{reconciled:?}");
    assert!(reconciled.json()["disputed"].as_i64() >= Some(480) && reconciled.stderr.contains("orders.disputed"), "{reconciled:?}");
    let closed = order_closer(&settings, &["close", "2"]).await.expect_code(75);
    assert!(closed.stdout.starts_with("2: due by its row, but its key is to expire in 29m"), "{closed:?}");
    wait::until_eq("the number of closed orders", 20, async || shop.closed().await).await;
    wait::until_eq("the number of disputed orders", 480, async || disputed(&daemon)).await;
    daemon.stop().await;
    assert_eq!(daemon.logged("rows and keys contradict each other"), 1, "said once");
    // Mended, an order closes when it is due. Its session has the zone in which it writes when that was.
    let daemon = listening(&settings.clone().set("database.time_zone", "+00:00")).await;
    shop.order(501, 1_000).await;
    move_deadlines_of(&shop, 501, -8).await;
    shop.until_status(501, CLOSED).await;
    daemon.stop().await;
    shop.database.execute("UPDATE orders SET closed_at = closed_at + INTERVAL 8 HOUR WHERE order_no = 501").await;
    move_deadlines(&shop, 8).await;
    let outcome = shop.assert_outcome().await;
    assert_eq!(outcome.closed.len(), 21);
    assert_on_time(&outcome);
}

async fn move_deadlines_of(shop: &Shop, order: i64, hours: i64) {
    shop.database.execute(&format!("UPDATE orders SET expires_at = expires_at + INTERVAL {hours} HOUR WHERE order_no = {order}")).await;
}

/// The deadline column is that of the creation, and nobody has said how long an order may take.
#[tokio::test]
async fn plus_is_missing() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let daemon = listening(&settings(&shop, &redis)).await;
    for hundred in 0..5 {
        let numbers = hundred * 100 + 1..=hundred * 100 + 100;
        let placed: i64 = shop.database.number("SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint").await;
        let keys: Vec<(String, i64)> = numbers.clone().map(|number| (key(number), placed + 30 * MINUTE)).collect();
        redis.set_all_until(&keys);
        shop.orders_due_in(numbers, 0).await;
    }
    let said = daemon.until_logged("rows and keys contradict each other").await;
    assert!(said.contains("plus = \\\"30m\\\"") && !said.contains("time_zone"), "{said}");
    until_disputed(&daemon, 500).await;
    daemon.stop().await;
    assert_eq!(shop.closed().await, 0);
    // Whoever means it so has all of them closed.
    let daemon = listening(&settings(&shop, &redis).set("orders.disputed", "close")).await;
    shop.until_all_settled().await;
    daemon.stop().await;
    shop.assert_outcome().await;
}

/// What is seen ahead is asked about before its deadline.
#[tokio::test]
async fn what_falls_due_ahead_of_its_key_waits() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let daemon = listening(&settings(&shop, &redis).set("sweep.every", "1h")).await;
    shop.orders_due_in(1..=50, 3_000).await;
    shop.write_keys(&redis, 2 * HOUR).await;
    shop.orders_due_in(51..=100, 3_000).await;
    let fitting: Vec<(String, i64)> = shop.deadlines().await.range(51..).map(|(number, millis)| (key(*number), *millis)).collect();
    redis.set_all_until(&fitting);
    until_disputed(&daemon, 50).await;
    wait::until_eq("the number of closed orders", 50, async || shop.closed().await).await;
    // One gets another deadline, and its key with it.
    shop.postpone(1, 1_500).await;
    redis.set_all_until(&[(key(1), shop.deadlines().await[&1])]);
    shop.until_status(1, CLOSED).await;
    daemon.stop().await;
    let disputed: Vec<i64> = (2..=50).collect();
    let outcome = shop.assert_outcome_except(&disputed).await;
    assert_eq!(outcome.closed.len(), 51);
    assert_on_time(&outcome);
}

/// Thousands of orders are disputed when something happens to Redis: each closes at its key's moment, and not before.
async fn whatever_becomes_of_redis(what: fn(&mut Redis)) {
    const LATER: i64 = 2 * MINUTE;
    let mut redis = Redis::options().with_notifications().start();
    let shop = Shop::open(Kind::Postgres).await;
    shop.orders_due_in(1..=3_000, 17_000 - LATER).await;
    shop.orders_due_in(3_001..=3_010, 2 * HOUR - LATER).await;
    shop.write_keys(&redis, LATER).await;
    let daemon = listening(&settings(&shop, &redis)).await;
    until_disputed(&daemon, 3_000).await;
    daemon.until_logged("rows and keys contradict each other").await;
    what(&mut redis);
    // Nobody has asked for their keys before.
    shop.orders_due_in(3_011..=3_020, -1_000).await;
    wait::until_eq("the number of closed orders", 3_000, async || shop.closed().await).await;
    assert_eq!(closed_early(&shop, LATER).await, 0);
    daemon.stop().await;
    let waiting: Vec<i64> = (3_011..=3_020).collect();
    let outcome = shop.assert_outcome_except(&waiting).await;
    let late = outcome.closed.values().filter(|millis| **millis > LATER + 5_000).count();
    assert_eq!(late, 0, "each closes at its key's moment");
}

#[tokio::test]
async fn redis_is_flushed_while_orders_are_disputed() {
    whatever_becomes_of_redis(|redis| drop(redis.command(&["FLUSHALL"]))).await;
}

/// Whoever looks after a flush sees it, also two at the same moment.
#[tokio::test]
async fn a_flush_shows_to_all_who_look() {
    let redis = Redis::start();
    let url = RedisUrl::try_from(redis.url()).expect("a URL");
    let commands = Commands::connect(&config::Redis { url, ..config::Redis::default() }).await.expect("it is there");
    let life = async || commands.lives("order-closer:mark:test", Duration::from_secs(60)).await.expect("it answers");
    let first = life().await;
    assert_eq!(life().await, first);
    for _ in 0..20 {
        redis.command(&["FLUSHALL"]);
        let (one, other) = tokio::join!(life(), life());
        assert!(one != first && other != first, "{one:?}, {other:?} after {first:?}");
    }
}

#[tokio::test]
async fn redis_is_restarted_empty_while_orders_are_disputed() {
    whatever_becomes_of_redis(Redis::restart_empty).await;
}

#[tokio::test]
async fn redis_is_stopped_while_orders_are_disputed() {
    whatever_becomes_of_redis(|redis| redis.freeze()).await;
}

#[tokio::test]
async fn redis_is_gone_while_orders_are_disputed() {
    whatever_becomes_of_redis(|redis| redis.kill()).await;
}

/// The daemon begins with orders that are overdue by their rows, and has no connection yet: it waits for one.
#[tokio::test]
async fn the_first_orders_are_asked_about_too() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    shop.orders_due_in(1..=100, -HOUR).await;
    shop.write_keys(&redis, 2 * HOUR).await;
    let daemon = Daemon::start(&settings(&shop, &redis));
    until_disputed(&daemon, 100).await;
    daemon.stop().await;
    assert_eq!(shop.closed().await, 0);
    assert!(shop.statuses().await.values().all(|status| *status == UNPAID));
}

#[tokio::test]
async fn without_the_right_to_ask_rows_decide() {
    let redis = Redis::start();
    redis.command(&["ACL", "SETUSER", "closer", "on", ">secret", "~*", "&*", "+@all", "-pttl"]);
    rows_decide(&redis, redis.url_as("closer", "secret")).await;
}

#[tokio::test]
async fn without_the_command_to_ask_rows_decide() {
    let redis = Redis::options().config("rename-command PTTL elsewhere").start();
    rows_decide(&redis, redis.url()).await;
}

/// Rows decide alone, and that is said once.
async fn rows_decide(redis: &Redis, url: String) {
    let shop = Shop::open(Kind::Postgres).await;
    shop.orders_due_in(1..=20, -MINUTE).await;
    shop.write_keys(redis, HOUR).await;
    let daemon = listening(&settings(&shop, redis).set("redis.url", url)).await;
    shop.until_all_settled().await;
    assert!(daemon.until_logged("rows decide alone").await.contains("+pttl"));
    daemon.stop().await;
    shop.assert_outcome().await;
    assert_eq!(daemon.logged("rows decide alone"), 1);
}
