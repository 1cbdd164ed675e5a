//! The row's deadline by the database's clock decides, whatever the key does.

use super::{assert_on_time, listening, on_each_database};
use crate::support::{Kind, Redis, Shop, shop::key};

on_each_database! {
    keys_and_rows_disagree
    orders_are_opened_again
}

async fn keys_and_rows_disagree(kind: Kind) {
    let redis = Redis::start();
    let shop = Shop::open(kind).await;
    let daemon = listening(&shop.settings_with(&redis)).await;
    // Keys that expire two seconds before their rows are due, five seconds after, and for orders that get three
    // more seconds once the key is written, or two less.
    let (early, late, postponed, hurried) = (1..=20, 21..=40, 41..=60, 61..=80);
    shop.orders_due_in(1..=80, 3_500).await;
    let deadlines = shop.deadlines().await;
    let keys = |numbers: std::ops::RangeInclusive<i64>, skew: i64| -> Vec<(String, i64)> {
        numbers.map(|number| (key(number), deadlines[&number] + skew)).collect()
    };
    redis.set_all_until(&keys(early, -2_000));
    redis.set_all_until(&keys(late, 5_000));
    redis.set_all_until(&keys(postponed.clone(), 0));
    redis.set_all_until(&keys(hurried.clone(), 0));
    for number in postponed {
        shop.postpone(number, 6_500).await;
    }
    for number in hurried {
        shop.postpone(number, 1_500).await;
    }
    shop.until_all_settled().await;
    daemon.stop().await;
    // Not early is part of the account.
    let outcome = shop.assert_outcome().await;
    assert_eq!(outcome.closed.len(), 80);
    assert_on_time(&outcome);
    let summary = daemon.summary();
    assert!(summary.count("not_due") >= 20, "the early events were heard: {summary:?}");
}

/// Closed, opened again with a new deadline, and closed on time once more; twice.
async fn orders_are_opened_again(kind: Kind) {
    let redis = Redis::start();
    let shop = Shop::open(kind).await;
    let daemon = listening(&shop.settings_with(&redis)).await;
    shop.orders_due_in(1..=10, 500).await;
    shop.until_all_settled().await;
    assert_on_time(&shop.assert_outcome().await);
    for due_in in [2_500, 300] {
        for number in 1..=10 {
            shop.reopen(number, due_in).await;
        }
        shop.write_keys(&redis, 0).await;
        shop.until_all_settled().await;
        assert_on_time(&shop.assert_outcome().await);
    }
    daemon.stop().await;
    shop.assert_outcome().await;
    assert_eq!(daemon.summary().count("closed"), 30);
}
