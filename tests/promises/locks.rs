//! A payment in progress holds its order's row; that is no reason for any other order to wait.

use std::time::Duration;

use super::{assert_on_time, listening};
use crate::support::{Kind, Redis, Shop, shop::CLOSED, wait};

async fn neighbours_close_meanwhile(kind: Kind) {
    let redis = Redis::start();
    let shop = Shop::open(kind).await;
    let daemon = listening(&shop.settings_with(&redis)).await;
    shop.orders_due_in(1..=60, 1_500).await;
    shop.write_keys(&redis, 0).await;
    let committed = shop.begin_payment(20).await;
    let rolled_back = shop.begin_payment(40).await;
    assert!(committed.paid && rolled_back.paid);
    wait::until("all others are closed", async || shop.closed().await == 58).await;
    let outcome = shop.assert_outcome_except(&[20, 40]).await;
    assert_on_time(&outcome);
    rolled_back.rollback().await;
    wait::within(Duration::from_secs(2), "it closes soon after the payment failed", async || shop.status(40).await == CLOSED).await;
    committed.commit().await;
    // Looked at again and again while it was locked, and now settled.
    shop.order(99, 500).await;
    shop.until_status(99, CLOSED).await;
    daemon.stop().await;
    let outcome = shop.assert_outcome().await;
    assert_eq!((outcome.paid.len(), outcome.closed.len()), (1, 60));
    assert!(daemon.summary().count("locked") >= 2, "{:?}", daemon.summary());
}

#[tokio::test]
async fn neighbours_close_meanwhile_in_postgres() {
    neighbours_close_meanwhile(Kind::Postgres).await;
}

#[tokio::test]
async fn neighbours_close_meanwhile_in_mariadb() {
    neighbours_close_meanwhile(Kind::MariaDb).await;
}

/// SQLite has one lock for all: a payment in progress holds up everybody, and all close when it ends.
#[tokio::test]
async fn all_wait_for_a_payment_in_sqlite() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Sqlite).await;
    let daemon = listening(&shop.settings_with(&redis)).await;
    shop.orders_due_in(1..=60, 1_500).await;
    shop.write_keys(&redis, 0).await;
    let payment = shop.begin_payment(20).await;
    assert!(payment.paid);
    wait::until("all are overdue", async || shop.overdue().await == 60).await;
    payment.commit().await;
    wait::within(Duration::from_secs(2), "all others close soon after the payment", async || shop.closed().await == 59).await;
    daemon.stop().await;
    let outcome = shop.assert_outcome().await;
    assert_eq!((outcome.paid.len(), outcome.closed.len()), (1, 59));
}
