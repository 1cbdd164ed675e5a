//! Notifications by the thousand that name no order of ours, forged or of another application: facts go first.

use std::time::Duration;

use super::listening;
use crate::support::{Kind, Proxy, Redis, Settings, Shop, wait};

/// In each second.
const PUBLISHED: u32 = 30_000;

/// How late all but a few may be while the flood lasts, on a machine that is busy with it.
const MOST_WITHIN_MILLIS: i64 = 1_500;

/// Orders that fall due one after the other, with keys and without, while the flood lasts.
async fn assert_facts_go_first(shop: &Shop, redis: &Redis, settings: &Settings) {
    let daemon = listening(settings).await;
    let flood = redis.flood(10_000_000..20_000_000, PUBLISHED);
    let orders: Vec<(i64, i64)> = (1..=300).map(|number| (number, 3_000 + number * 15)).collect();
    shop.orders(&orders[..150]).await;
    shop.write_keys(redis, 0).await;
    shop.orders(&orders[150..]).await;
    // What only the sweep finds.
    shop.orders_due_in(1_001..=1_020, -5_000).await;
    shop.until_all_settled().await;
    let published = flood.end();
    daemon.stop().await;
    let outcome = shop.assert_outcome().await;
    let mut late: Vec<i64> = outcome.closed.range(..=300).map(|(_, millis)| *millis).collect();
    late.sort_unstable();
    assert!(late[294] <= MOST_WITHIN_MILLIS, "{published} forged, in ms: {late:?}");
    let swept = outcome.closed[&1_001] - 5_000;
    assert!(swept <= 10_000, "swept after {swept} ms");
    let (summary, most) = (daemon.summary(), published as u64 / 2);
    let counted = summary.count("heard") + summary.count("lost");
    assert!(counted >= most, "what is not looked at is counted: {summary:?}");
}

#[tokio::test]
async fn a_flood_of_forged_notifications() {
    let shop = Shop::open(Kind::Postgres).await;
    let redis = Redis::start();
    // So that there is no room for many.
    let settings = shop.settings_with(&redis).set("close.inbox", 20_000);
    assert_facts_go_first(&shop, &redis, &settings).await;
}

#[tokio::test]
async fn a_flood_while_the_database_is_far_away() {
    let shop = Shop::open(Kind::Postgres).await;
    let redis = Redis::start();
    let proxy = Proxy::before(&shop.database.url);
    proxy.delay(Duration::from_micros(7_500));
    let settings = shop.settings_with(&redis).set("database.url", proxy.url(&shop.database.url)).set("close.inbox", 20_000);
    assert_facts_go_first(&shop, &redis, &settings).await;
}

/// More at once than wait between the client and its reader, five times.
#[tokio::test]
async fn what_comes_faster_than_it_is_read_is_said_once() {
    const SAID: &str = "notifications came faster than they could be read";
    let shop = Shop::open(Kind::Sqlite).await;
    let redis = Redis::options().config("client-output-buffer-limit pubsub 0 0 0").start();
    let daemon = listening(&shop.settings_with(&redis)).await;
    let keys: Vec<String> = (0..150_000).map(|number| format!("another_{number}")).collect();
    let publish: Vec<Vec<&[u8]>> = keys.iter().map(|key| vec![b"PUBLISH".as_slice(), b"__keyevent@0__:expired", key.as_bytes()]).collect();
    for _ in 0..5 {
        daemon.freeze();
        redis.pipeline(&publish).expect("Redis takes them");
        daemon.thaw();
        wait::until("Redis has handed on all of them", async || {
            let clients = redis.command(&["CLIENT", "LIST"]).text();
            clients.lines().all(|client| client.contains(" oll=0 "))
        })
        .await;
    }
    daemon.until_logged(SAID).await;
    daemon.stop().await;
    let (said, summary) = (daemon.said(SAID), daemon.summary());
    let events: u64 = said.iter().map(|record| record["events"].as_u64().expect("a number")).sum();
    assert_eq!(events, summary.count("lost"), "each loss is said: {said:#?}");
    // At first, and when the daemon stops.
    assert!(said.len() <= 2, "{said:#?}");
}
