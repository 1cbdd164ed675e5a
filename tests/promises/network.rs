//! A database that is far away, and one to which the way is lost for a while.

use std::time::Duration;

use super::{assert_on_time, listening};
use crate::support::{Kind, Proxy, Redis, Shop, wait};

/// Makes one test of a case for each kind of database that has a server.
macro_rules! on_each_server {
    ($($case:ident)+) => {$(
        mod $case {
            use crate::support::Kind;

            #[tokio::test]
            async fn in_postgres() {
                super::$case(Kind::Postgres).await;
            }

            #[tokio::test]
            async fn in_mariadb() {
                super::$case(Kind::MariaDb).await;
            }
        }
    )+};
}

on_each_server! {
    fifteen_milliseconds_away
    the_way_is_lost_in_the_middle
    connections_that_nobody_ends
}

/// The database answers after 15 ms at the earliest: a backlog, a stream of orders and a crowd close on time, none early.
async fn fifteen_milliseconds_away(kind: Kind) {
    let redis = Redis::start();
    let shop = Shop::open(kind).await;
    let proxy = Proxy::before(&shop.database.url);
    proxy.delay(Duration::from_micros(7_500));
    shop.orders_due_in(1..=500, -1_000).await;
    let daemon = listening(&shop.settings_with(&redis).set("database.url", proxy.url(&shop.database.url))).await;
    wait::until("the backlog is closed", async || shop.closed().await == 500).await;
    let stream: Vec<(i64, i64)> = (501..=800).map(|number| (number, 1_000 + (number - 500) * 5)).collect();
    shop.orders(&stream).await;
    shop.orders_due_in(801..=1_300, 2_000).await;
    shop.write_keys(&redis, 0).await;
    shop.until_all_settled().await;
    assert!(proxy.open() > 0, "the daemon is connected through the proxy");
    daemon.stop().await;
    let mut outcome = shop.assert_outcome().await;
    assert_eq!(outcome.closed.len(), 1_300);
    outcome.closed.retain(|number, _| *number > 500);
    assert_on_time(&outcome);
}

/// The connections accept everything and answer nothing, with batches under way, some of them between COMMIT and its
/// answer. When the way is there again, all orders close, and none a second time.
async fn the_way_is_lost_in_the_middle(kind: Kind) {
    const COUNT: i64 = 2_000;
    let redis = Redis::start();
    let shop = Shop::open(kind).await;
    let proxy = Proxy::before(&shop.database.url);
    let settings = shop
        .settings_with(&redis)
        .set("database.url", proxy.url(&shop.database.url))
        .set("database.timeout", "1s")
        .set("close.batch_size", 20);
    let daemon = listening(&settings).await;
    shop.orders_due_in(1..=COUNT, -1_000).await;
    for round in 1..=2 {
        wait::until("some more are closed", async || shop.closed().await >= round * 200).await;
        proxy.black_hole();
        wait::until("it waits", async || daemon.logged("database unavailable; waiting for it") >= round as usize).await;
        assert!(shop.closed().await < COUNT, "lost too late to matter");
        proxy.pass();
    }
    shop.until_all_settled().await;
    shop.orders_due_in(COUNT + 1..=COUNT + 20, 2_500).await;
    shop.write_keys(&redis, 0).await;
    shop.until_all_settled().await;
    daemon.stop().await;
    let mut outcome = shop.assert_outcome().await;
    assert_eq!(outcome.closed.len(), 2_020);
    outcome.closed.retain(|number, _| *number > COUNT);
    assert_on_time(&outcome);
}

/// After a while without any way to the database new connections answer, and those of before never do, nor end: none of them is
/// waited for, one after the other.
async fn connections_that_nobody_ends(kind: Kind) {
    let redis = Redis::start();
    let shop = Shop::open(kind).await;
    let proxy = Proxy::before(&shop.database.url);
    let settings = shop.settings_with(&redis).set("database.url", proxy.url(&shop.database.url)).set("close.workers", 4);
    let daemon = listening(&settings.set("close.batch_size", 5)).await;
    // So that there are several connections.
    shop.orders_due_in(1..=500, -1_000).await;
    shop.until_all_settled().await;
    shop.orders_due_in(501..=501, 1_500).await;
    shop.write_keys(&redis, 0).await;
    proxy.black_hole();
    proxy.strand();
    daemon.until_logged("database unavailable; waiting for it").await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let due: Vec<(i64, i64)> = (0..40).map(|number| (601 + number, 1_000 + 50 * number)).collect();
    shop.orders(&due).await;
    shop.write_keys(&redis, 0).await;
    proxy.pass();
    shop.until_all_settled().await;
    daemon.stop().await;
    let mut outcome = shop.assert_outcome().await;
    outcome.closed.retain(|number, _| *number > 600);
    let late = outcome.closed.values().filter(|millis| **millis > 2_000).count();
    assert!(late == 0, "{late} of 40 were late: {outcome:?}");
}
