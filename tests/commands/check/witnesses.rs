//! What `check` says of rows and keys that contradict each other.

use super::{Report, good_redis};
use crate::support::{Database, Kind, Redis, Settings, Shop, mariadb::MariaDb};

const NAME: &str = "rows and keys";
const MINUTE: i64 = 60_000;

/// A shop with so many pending orders, whose keys expire so much later than their rows are due.
async fn shop(redis: &Redis, orders: i64, later: i64) -> (Shop, Settings) {
    let shop = Shop::open(Kind::Postgres).await;
    shop.orders_due_in(1..=orders, 30 * MINUTE).await;
    shop.write_keys(redis, later).await;
    let settings = shop.settings_with(redis);
    (shop, settings)
}

#[tokio::test]
async fn they_agree() {
    let redis = good_redis();
    let (_shop, settings) = shop(&redis, 150, 2_000).await;
    let report = Report::of(&settings, 0).await;
    report.assert(NAME, "ok", "100 pending orders have keys that expire at their rows' deadlines");
    assert_eq!(report.wrong(), [] as [&str; 0]);
}

/// The server is in +08:00, and the application writes UTC.
#[tokio::test]
async fn another_zone() {
    let redis = good_redis();
    let server = MariaDb::options().time_zone("+08:00").start();
    let shop = Shop::in_database(Database::on_mariadb(&server).await).await;
    shop.orders_due_in(1..=150, 30 * MINUTE).await;
    shop.write_keys(&redis, 0).await;
    shop.database.execute("UPDATE orders SET expires_at = expires_at - INTERVAL 8 HOUR").await;
    let settings = shop.settings_with(&redis);
    let report = Report::of(&settings, 78).await;
    report.assert(NAME, "fail", "100 of 100 pending orders have keys that expire 8h after their rows' deadlines");
    assert!(report.fix(NAME).starts_with("database.time_zone = \"+00:00\""), "{}", report.fix(NAME));
    Report::of(&settings.clone().set("database.time_zone", "+00:00"), 0).await.assert(NAME, "ok", "100 pending orders");
    let close = Report::of(&settings.set("orders.disputed", "close"), 0).await;
    close.assert(NAME, "warn", "8h after");
}

#[tokio::test]
async fn plus_is_missing_and_a_few_differ() {
    let redis = good_redis();
    let (shop, settings) = shop(&redis, 40, 15 * MINUTE).await;
    let report = Report::of(&settings, 78).await;
    assert!(report.fix(NAME).starts_with("set plus = \"15m\""), "{}", report.fix(NAME));
    shop.write_keys(&redis, 0).await;
    let deadline = shop.deadlines().await[&7];
    redis.set_all_until(&[(crate::support::shop::key(7), deadline + 15 * MINUTE)]);
    let report = Report::of(&settings, 0).await;
    report.assert(NAME, "warn", "1 of 40 pending orders have keys that expire 15m after their rows' deadlines, such as order 7");
}

#[tokio::test]
async fn keys_without_ttl() {
    let redis = good_redis();
    let (_shop, settings) = shop(&redis, 20, 0).await;
    redis.command(&["PERSIST", "order_3"]);
    Report::of(&settings, 0).await.assert(NAME, "warn", "1 keys have no TTL, such as order_3");
}

/// Another prefix, another database, and keys that nobody writes.
#[tokio::test]
async fn keys_that_are_elsewhere() {
    let redis = good_redis();
    let (_shop, settings) = shop(&redis, 20, 0).await;
    let other = Report::of(&settings.clone().set("redis.key_prefix", "pay:"), 0).await;
    other.assert(NAME, "warn", "none of 20 pending orders has a key, such as pay:1");
    assert!(other.fix(NAME).starts_with("redis.key_prefix = \"order_\""), "{}", other.fix(NAME));
    let other = Report::of(&settings.clone().set("redis.url", redis.url_of(3)), 0).await;
    assert!(other.fix(NAME).contains("in 0 (keys=20, expires=20)"), "{}", other.fix(NAME));
    redis.command(&["FLUSHALL"]);
    let nobody = Report::of(&settings, 0).await;
    assert!(nobody.fix(NAME).starts_with("let the order service write a key"), "{}", nobody.fix(NAME));
}

#[tokio::test]
async fn no_right_to_ask() {
    let redis = good_redis();
    redis.command(&["ACL", "SETUSER", "closer", "on", ">hush-hush-hush", "~*", "&*", "+@all", "-pttl"]);
    let (_shop, settings) = shop(&redis, 20, 0).await;
    let report = Report::of(&settings.set("redis.url", redis.url_as("closer", "hush-hush-hush")), 78).await;
    report.assert("rights", "fail", "+pttl");
    report.assert(NAME, "warn", "does not say when keys expire");
    assert!(report.fix(NAME).contains("+pttl"));
}
