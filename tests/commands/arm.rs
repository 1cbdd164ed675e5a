//! `order-closer arm`: the key of an order, as an order service would write it.

use super::{SECRET, assert_no_secret};
use crate::support::{Kind, Redis, Settings, Shop, order_closer, ports};

#[tokio::test]
async fn the_key_has_its_prefix_its_database_and_its_time() {
    let redis = Redis::start();
    let settings = Settings::new().set("redis.url", redis.url_of(3)).set("redis.key_prefix", "shop:");
    let finished = order_closer(&settings, &["arm", "A-77", "--ttl", "30m"]).await.expect_code(0);
    assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("shop:A-77 expires in 30m\n", ""));
    assert_eq!(redis.command(&["DBSIZE"]).integer(), 0);
    redis.command(&["SELECT", "3"]);
    let left = redis.command(&["PTTL", "shop:A-77"]).integer();
    assert!((29 * 60_000..=30 * 60_000).contains(&left), "{left}");
    // Armed again, it has its new time.
    order_closer(&settings, &["arm", "A-77", "--ttl", "1h 500ms"]).await.expect_code(0);
    let left = redis.command(&["PTTL", "shop:A-77"]).integer();
    assert!((59 * 60_000..=3_600_500).contains(&left), "{left}");
}

/// It says so, and leaves to its user what to make of it.
#[tokio::test]
async fn an_id_that_no_order_can_have_is_pointed_out() {
    let (shop, redis) = (Shop::open(Kind::Postgres).await, Redis::start());
    let settings = shop.settings().set("redis.url", redis.url());
    let finished = order_closer(&settings, &["arm", "abc", "--ttl", "30m"]).await.expect_code(0);
    assert!(finished.stdout.contains("abc expires in 30m\n"), "{finished:#?}");
    assert!(finished.stderr.starts_with("order-closer: \"abc\" can't be an order of orders: "), "{finished:#?}");
    assert!(finished.stderr.ends_with("; no order will be closed by this key\n"), "{finished:#?}");
    // An order that there will be is none to be warned of, nor is a database away.
    let finished = order_closer(&settings, &["arm", "77", "--ttl", "30m"]).await.expect_code(0);
    assert_eq!(finished.stderr, "", "{finished:#?}");
    let away = settings.set("database.url", format!("postgres://u@127.0.0.1:{}/shop", ports::free()));
    let finished = order_closer(&away, &["arm", "abc", "--ttl", "30m"]).await.expect_code(0);
    assert_eq!(finished.stderr, "", "{finished:#?}");
}

#[tokio::test]
async fn a_time_that_is_none_is_64() {
    let redis = Redis::start();
    let settings = Settings::new().set("redis.url", redis.url());
    for (id, ttl, text) in [
        ("7", "30", "such as \"30s\""),
        ("7", "soon", "such as \"30s\""),
        ("7", "-5s", "--ttl"),
        ("7", "0s", "a key lives for a millisecond at least"),
        ("7", "1us", "a key lives for a millisecond at least"),
        ("7", "1000000000y", "is longer than 100 years"),
        ("", "30s", "the id is empty"),
    ] {
        let finished = order_closer(&settings, &["arm", id, "--ttl", ttl]).await.expect_code(64);
        assert!(finished.stdout.is_empty() && finished.stderr.contains(text), "{id:?}, {ttl:?}: {finished:#?}");
    }
    assert_eq!(redis.command(&["DBSIZE"]).integer(), 0);
}

#[tokio::test]
async fn redis_down_is_69() {
    let port = ports::free();
    let settings = Settings::new().set("redis.url", format!("redis://closer:{SECRET}@127.0.0.1:{port}"));
    let finished = order_closer(&settings, &["arm", "7", "--ttl", "5s"]).await.expect_code(69);
    assert_no_secret(&finished);
    assert_eq!((finished.stdout.as_str(), finished.stderr.lines().count()), ("", 1), "{finished:#?}");
    assert!(finished.stderr.contains("Redis unavailable") && finished.stderr.contains(&format!("127.0.0.1:{port}")), "{finished:#?}");
    assert!(finished.stderr.contains("refused"), "{finished:#?}");
}
