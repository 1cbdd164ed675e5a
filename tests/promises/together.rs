//! Several daemons and reconciles work on the same orders, and each order closes once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{assert_on_time, listening, on_each_database};
use crate::support::{Kind, Redis, Settings, Shop, order_closer, wait};

on_each_database! {
    two_daemons_and_a_looping_reconcile
    tables_are_made_meanwhile
}

async fn two_daemons_and_a_looping_reconcile(kind: Kind) {
    let redis = Redis::start();
    let shop = Shop::open(kind).await;
    let settings = take_turns_at_hot_rows(kind, shop.settings_with(&redis).set("close.batch_size", 50));
    let daemons = [listening(&settings).await, listening(&settings).await];
    let (by_reconcile, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let reconcile = async {
        while !done.load(Ordering::Relaxed) {
            let report = order_closer(&settings, &["reconcile", "--json"]).await.expect_code(0).json();
            assert_eq!(report["failed"], 0, "{report}");
            by_reconcile.fetch_add(report["closed"].as_u64().expect("a number"), Ordering::Relaxed);
        }
    };
    let mut taken = 0;
    let orders = async {
        wait::until("a reconcile has got hold of an order before the daemons did", async || {
            // A quarter was due before it had a key, and waits for whoever sweeps next.
            let new: Vec<(i64, i64)> = (1..=2_000).map(|number| (taken + number, number - 500)).collect();
            shop.orders(&new).await;
            shop.write_keys(&redis, 0).await;
            shop.until_all_settled().await;
            taken += 2_000;
            by_reconcile.load(Ordering::Relaxed) > 0
        })
        .await;
        done.store(true, Ordering::Relaxed);
    };
    tokio::join!(reconcile, orders);
    let mut closed = by_reconcile.into_inner();
    for daemon in &daemons {
        daemon.stop().await;
        closed += daemon.summary().count("closed");
        assert_eq!(daemon.summary().count("rejected"), 0);
    }
    let outcome = shop.assert_outcome().await;
    assert_eq!(i64::try_from(outcome.closed.len()), Ok(taken));
    assert_eq!(i64::try_from(closed), Ok(taken), "by those who say they did it");
    assert_on_time(&outcome);
}

/// `migrate` holds up no closure, before our tables are used and after.
async fn tables_are_made_meanwhile(kind: Kind) {
    let redis = Redis::start();
    let shop = Shop::open(kind).await;
    let settings = take_turns_at_hot_rows(kind, shop.settings_with(&redis));
    let first = listening(&settings).await;
    let orders: Vec<(i64, i64)> = (1..=1_000).map(|number| (number, 2_000 + number * 5)).collect();
    shop.orders(&orders).await;
    let made = order_closer(&settings, &["migrate"]).await.expect_code(0);
    assert!(made.stdout.contains("created"), "{made:?}");
    let second = listening(&settings.clone().set("events.enabled", true)).await;
    while shop.closed().await < 1_000 {
        let again = order_closer(&settings, &["migrate"]).await.expect_code(0);
        assert!(again.stdout.contains("up to date"), "{again:?}");
    }
    for daemon in [first, second] {
        daemon.stop().await;
        assert_eq!(daemon.summary().count("rejected"), 0);
    }
    let outcome = shop.assert_outcome().await;
    assert_eq!(outcome.closed.len(), 1_000);
    assert_on_time(&outcome);
}

/// Five articles for all: the hot rows, and the advice, of docs/closing-sql.md.
pub(super) fn take_turns_at_hot_rows(kind: Kind, settings: Settings) -> Settings {
    match kind {
        Kind::Postgres => settings.before_close_sql(
            "SELECT sku FROM inventory WHERE sku IN (SELECT sku FROM order_items WHERE order_no IN (:ids)) ORDER BY sku FOR UPDATE",
        ),
        Kind::MariaDb => settings.set("close.workers", 1),
        Kind::Sqlite => settings,
    }
}

/// Without that advice: one daemon changes the hot rows in one order, the other in the opposite one, and
/// each holds the first for a while. Of two batches that wait for each other the database ends one, as a deadlock or
/// because it waited too long; it is tried again, and all close.
async fn opposite_orders(kind: Kind, pause: &str) {
    let redis = Redis::start();
    let shop = Shop::open(kind).await;
    shop.database.execute("CREATE TABLE counters (sku bigint PRIMARY KEY, n bigint); INSERT INTO counters VALUES (1, 0), (2, 0)").await;
    let count = |sku: i64| {
        let sum = "(SELECT count(*) FROM orders WHERE order_no IN (:ids))";
        format!("UPDATE counters SET n = n + {sum} WHERE sku = {sku}")
    };
    let settings = |first: i64, second: i64| {
        shop.settings_with(&redis)
            .set("close.batch_size", 10)
            .set("log.level", "debug")
            .after_close_sql(count(first))
            .after_close_sql(pause)
            .after_close_sql(count(second))
    };
    let daemons = [listening(&settings(1, 2)).await, listening(&settings(2, 1)).await];
    let conflicts = || daemons.iter().map(|daemon| daemon.logged("a batch failed")).sum::<usize>();
    let mut taken = 0;
    wait::until("batches of the two have met", async || {
        let new: Vec<(i64, i64)> = (taken + 1..=taken + 100).map(|number| (number, 300)).collect();
        shop.orders(&new).await;
        shop.write_keys(&redis, 0).await;
        shop.until_all_settled().await;
        taken += 100;
        conflicts() > 0
    })
    .await;
    for daemon in &daemons {
        daemon.stop().await;
        assert_eq!(daemon.summary().count("rejected"), 0);
    }
    assert_eq!(i64::try_from(shop.assert_outcome().await.closed.len()), Ok(taken));
    let counted = shop.database.column("SELECT n FROM counters ORDER BY sku").await;
    assert_eq!(counted, [Some(taken.to_string()), Some(taken.to_string())], "once for each closure");
}

#[tokio::test]
async fn hot_rows_in_opposite_orders_in_postgres() {
    opposite_orders(Kind::Postgres, "SELECT pg_sleep(0.03) WHERE EXISTS (SELECT 1 FROM orders WHERE order_no IN (:ids))").await;
}

#[tokio::test]
async fn hot_rows_in_opposite_orders_in_mariadb() {
    opposite_orders(Kind::MariaDb, "SELECT sleep(0.03) FROM DUAL WHERE EXISTS (SELECT 1 FROM orders WHERE order_no IN (:ids))").await;
}
