//! Several daemons and reconciles work on the same orders, and each order closes once.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{assert_on_time, listening, on_each_database};
use crate::support::{Kind, Redis, Settings, Shop, order_closer};

on_each_database! {
    two_daemons_and_a_looping_reconcile
}

async fn two_daemons_and_a_looping_reconcile(kind: Kind) {
    let redis = Redis::start();
    let shop = Shop::open(kind).await;
    let settings = take_turns_at_hot_rows(kind, shop.settings_with(&redis).set("close.batch_size", 50));
    let orders: Vec<(i64, i64)> = (1..=2_000).map(|number| (number, number * 2)).collect();
    shop.orders(&orders).await;
    shop.write_keys(&redis, 0).await;
    let done = AtomicBool::new(false);
    let reconcile = async {
        let mut closed = 0;
        while !done.load(Ordering::Relaxed) {
            let report = order_closer(&settings, &["reconcile", "--json"]).await.expect_code(0).json();
            assert_eq!(report["failed"], 0, "{report}");
            closed += report["closed"].as_u64().expect("a number");
        }
        closed
    };
    let daemons = async {
        let daemons = [listening(&settings).await, listening(&settings).await];
        shop.until_all_settled().await;
        done.store(true, Ordering::Relaxed);
        daemons
    };
    let (by_reconcile, daemons) = tokio::join!(reconcile, daemons);
    let mut closed = by_reconcile;
    for daemon in &daemons {
        daemon.stop().await;
        closed += daemon.summary().count("closed");
        assert_eq!(daemon.summary().count("rejected"), 0);
    }
    let outcome = shop.assert_outcome().await;
    assert_eq!((outcome.closed.len(), closed), (2_000, 2_000), "closed by the table, and by those who say they did it");
    assert!(by_reconcile > 0, "the reconciles had their share");
    // Most were due before the daemons had started.
    let last = outcome.closed.into_iter().filter(|(number, _)| *number > 1_900).collect();
    assert_on_time(&crate::support::shop::Outcome { closed: last, ..Default::default() });
}

/// Five articles for all: the hot rows, and the advice, of the README.
pub(super) fn take_turns_at_hot_rows(kind: Kind, settings: Settings) -> Settings {
    match kind {
        Kind::Postgres => settings.before_close_sql(
            "SELECT sku FROM inventory WHERE sku IN (SELECT sku FROM order_items WHERE order_no IN (:ids)) ORDER BY sku FOR UPDATE",
        ),
        Kind::MariaDb => settings.set("close.workers", 1),
        Kind::Sqlite => settings,
    }
}
