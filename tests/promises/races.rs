//! Payments that race the deadline: whoever is first, an order is paid or closed, never both.

use std::{
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use rand::Rng;
use tokio::task::JoinSet;

use super::{listening, on_each_database};
use crate::support::{Kind, Redis, Shop};

on_each_database! {
    every_order_is_paid_or_closed
}

async fn every_order_is_paid_or_closed(kind: Kind) {
    // How many orders, how far apart, how long before or after its deadline a payment begins, for every which order.
    // SQLite has one writer at a time, and whoever waits for it sleeps: fewer payments there, and earlier ones.
    let (count, every_millis, close_call, paid_every) =
        if kind == Kind::Sqlite { (1_500, 4, -250..=20, 4) } else { (3_000, 2, -20..=20, 1) };
    let redis = Redis::start();
    let shop = Arc::new(Shop::open(kind).await);
    let daemon = listening(&shop.settings_with(&redis)).await;
    let orders: Vec<(i64, i64)> = (1..=count).map(|number| (number, 3_000 + number * every_millis)).collect();
    shop.orders(&orders).await;
    shop.write_keys(&redis, 0).await;

    let mut payments = JoinSet::new();
    for (order_no, deadline) in shop.deadlines().await.into_iter().step_by(paid_every) {
        let shop = Arc::clone(&shop);
        let begins = deadline + rand::rng().random_range(close_call.clone());
        payments.spawn(async move {
            let begins = UNIX_EPOCH + Duration::from_millis(begins.unsigned_abs());
            tokio::time::sleep(begins.elapsed().err().map_or(Duration::ZERO, |early| early.duration())).await;
            shop.pay(order_no).await
        });
    }
    let attempts = payments.len();
    let in_time = payments.join_all().await.into_iter().filter(|paid| *paid).count();
    shop.until_all_settled().await;
    daemon.stop().await;

    let outcome = shop.assert_outcome().await;
    assert_eq!(outcome.paid.len(), in_time);
    assert!(in_time > attempts / 200 && attempts - in_time > attempts / 200, "no race: {in_time} of {attempts} payments came first");
    assert_eq!(daemon.summary().count("closed"), outcome.closed.len() as u64);
}
