//! A Redis that is there and does not serve: busy, paused, full, shut to us, out of reach, emptied. Orders close on time
//! meanwhile, and notifications are heard again when it is over, without a restart.

use std::time::Duration;

use super::{assert_on_time, listening};
use crate::support::{Daemon, Kind, Proxy, Redis, Settings, Shop, wait};

/// How many notifications the daemon has heard, as far as it has said so.
fn heard(daemon: &Daemon) -> u64 {
    daemon.said("summary").iter().filter_map(|record| record["heard"].as_u64()).sum()
}

/// Orders close while there is trouble, and are heard again when it is over.
async fn assert_survives(
    redis: &Redis,
    settings: Settings,
    shop: &Shop,
    begin: impl AsyncFnOnce(&Daemon),
    end: impl AsyncFnOnce(),
) -> Daemon {
    let daemon = listening(&settings.set("log.summary", "200ms")).await;
    let orders: Vec<(i64, i64)> = (1..=200).map(|number| (number, 1_000 + number * 30)).collect();
    shop.orders(&orders).await;
    shop.write_keys(redis, 0).await;
    wait::until("the first orders are closed", async || shop.closed().await >= 20).await;
    begin(&daemon).await;
    shop.until_all_settled().await;
    end().await;
    let mut next = 1_001;
    let is_heard = async || {
        let before = heard(&daemon);
        shop.orders_due_in(next..next + 20, 2_500).await;
        shop.write_keys(redis, 0).await;
        shop.until_all_settled().await;
        next += 20;
        heard(&daemon) >= before + 20
    };
    wait::until("notifications are heard again", is_heard).await;
    daemon.stop().await;
    assert_on_time(&shop.assert_outcome().await);
    daemon
}

/// A script that does not end: Redis answers BUSY to nearly everything.
#[tokio::test]
async fn busy_with_a_script() {
    let redis = Redis::options().with_notifications().config("lua-time-limit 100").start();
    let shop = Shop::open(Kind::Sqlite).await;
    let settings = shop.settings_with(&redis);
    let begin = async |_: &Daemon| redis.start_command(&["EVAL", "while true do end", "0"]);
    let daemon = assert_survives(&redis, settings, &shop, begin, async || drop(redis.command(&["SCRIPT", "KILL"]))).await;
    assert_eq!(daemon.said("no keyspace notifications").len(), 0, "the subscription stays: {:#?}", daemon.lines());
}

/// Whoever asks waits, also he who would end the pause.
#[tokio::test]
async fn paused() {
    let redis = Redis::options().with_notifications().start();
    let shop = Shop::open(Kind::Sqlite).await;
    let pause = async |_: &Daemon| {
        redis.command(&["CLIENT", "PAUSE", "10000", "ALL"]);
    };
    assert_survives(&redis, shop.settings_with(&redis), &shop, pause, async || {}).await;
}

/// The way to Redis swallows everything, on old connections and on new ones.
#[tokio::test]
async fn out_of_reach() {
    let redis = Redis::options().with_notifications().start();
    let shop = Shop::open(Kind::Sqlite).await;
    let proxy = Proxy::before(&redis.url());
    let settings = shop.settings().set("redis.url", proxy.url(&redis.url()));
    let begin = async |daemon: &Daemon| {
        proxy.black_hole();
        daemon.until_logged("no keyspace notifications").await;
    };
    assert_survives(&redis, settings, &shop, begin, async || proxy.pass()).await;
}

/// The user is switched off, its connections are cut, and it is switched on again.
#[tokio::test]
async fn shut_to_its_user() {
    let redis = Redis::options().with_notifications().start();
    redis.command(&["ACL", "SETUSER", "closer", "on", ">closing-time", "~*", "&*", "+@all"]);
    let shop = Shop::open(Kind::Sqlite).await;
    let settings = shop.settings().set("redis.url", redis.url_as("closer", "closing-time"));
    let begin = async |daemon: &Daemon| {
        redis.command(&["ACL", "SETUSER", "closer", "off"]);
        redis.command(&["CLIENT", "KILL", "USER", "closer"]);
        let said = daemon.until_line("why", |line| line.contains("no keyspace notifications") && line.contains("WRONGPASS")).await;
        for part in ["\"ERROR\"", "redis.url and restart order-closer", "see that the ACL user is on"] {
            assert!(said.contains(part), "{part:?} is missing: {said}");
        }
    };
    assert_survives(&redis, settings, &shop, begin, async || drop(redis.command(&["ACL", "SETUSER", "closer", "on"]))).await;
}

/// There is no room for another connection.
#[tokio::test]
async fn full_of_clients() {
    let redis = Redis::options().with_notifications().start();
    let shop = Shop::open(Kind::Sqlite).await;
    let begin = async |daemon: &Daemon| {
        redis.command(&["CONFIG", "SET", "maxclients", "1"]);
        redis.kill_subscribers();
        let said = daemon.until_logged("max number of clients").await;
        assert!(said.contains("raise maxclients"), "{said}");
    };
    let end = async || {
        redis.command(&["CONFIG", "SET", "maxclients", "100"]);
    };
    assert_survives(&redis, shop.settings_with(&redis), &shop, begin, end).await;
}

#[tokio::test]
async fn emptied() {
    let redis = Redis::options().with_notifications().start();
    let shop = Shop::open(Kind::Sqlite).await;
    let flush = async |_: &Daemon| drop(redis.command(&["FLUSHALL"]));
    let daemon = assert_survives(&redis, shop.settings_with(&redis), &shop, flush, async || {}).await;
    assert_eq!(daemon.said("no keyspace notifications").len(), 0);
}

/// What comes late is late, and not lost.
#[tokio::test]
async fn slow() {
    let redis = Redis::options().with_notifications().start();
    let shop = Shop::open(Kind::Sqlite).await;
    let proxy = Proxy::before(&redis.url());
    let settings = shop.settings().set("redis.url", proxy.url(&redis.url()));
    let begin = async |_: &Daemon| proxy.delay(Duration::from_millis(125));
    let daemon = assert_survives(&redis, settings, &shop, begin, async || proxy.delay(Duration::ZERO)).await;
    assert_eq!(daemon.said("no keyspace notifications").len(), 0, "slow is not away: {:#?}", daemon.lines());
}
