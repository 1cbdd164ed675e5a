//! A Redis that answers late, or accepts everything and never answers: worse than none, if its answers were waited for.

use std::time::Duration;

use super::listening;
use crate::support::{Kind, Proxy, Redis, Shop, shop::Outcome};

/// How late half of the orders may be: the 20 ms for which the pacer waits for a notification, and what a busy machine adds.
/// An answer takes several times as long.
const HALF_WITHIN_MILLIS: i64 = 120;

/// Two hundred orders that fall due one after the other, with keys.
async fn stream(shop: &Shop, redis: &Redis) {
    let orders: Vec<(i64, i64)> = (1..=200).map(|number| (number, 2_500 + number * 15)).collect();
    shop.orders(&orders).await;
    shop.write_keys(redis, 0).await;
}

fn assert_half_is_punctual(outcome: &Outcome) {
    let mut late: Vec<i64> = outcome.closed.values().copied().collect();
    late.sort_unstable();
    assert_eq!(late.len(), 200);
    assert!(late[100] <= HALF_WITHIN_MILLIS, "half of the orders are later than {} ms: {late:?}", late[100]);
}

#[tokio::test]
async fn redis_answers_late() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let proxy = Proxy::before(&redis.url());
    let daemon = listening(&shop.settings().set("redis.url", proxy.url(&redis.url()))).await;
    proxy.delay(Duration::from_millis(125));
    stream(&shop, &redis).await;
    shop.until_all_settled().await;
    daemon.stop().await;
    assert_half_is_punctual(&shop.assert_outcome().await);
}

#[tokio::test]
async fn redis_is_a_black_hole() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let proxy = Proxy::before(&redis.url());
    let daemon = listening(&shop.settings().set("redis.url", proxy.url(&redis.url()))).await;
    stream(&shop, &redis).await;
    proxy.black_hole();
    shop.until_all_settled().await;
    proxy.pass();
    daemon.stop().await;
    let outcome = shop.assert_outcome().await;
    assert_half_is_punctual(&outcome);
    let late = outcome.closed.values().filter(|millis| **millis > 250).count();
    assert!(late <= 2, "{late} orders waited for an answer: {:?}", outcome.closed);
}
