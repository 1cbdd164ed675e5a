//! `order-closer reconcile`: what it closes, and what it says about it.

/// What a pass did, as a file for node_exporter.
mod textfile;
/// Locked rows, orders that their database rejects, time that runs out, databases that are away.
mod trouble;

use std::collections::BTreeSet;

use crate::support::{
    Kind, OneShot, Settings, Shop, order_closer, ports,
    shop::{CLOSED, UNPAID},
};

/// Each test for each kind of database.
macro_rules! on_every_database {
    ($($test:ident => $postgres:ident, $mariadb:ident, $sqlite:ident;)*) => {$(
        #[tokio::test]
        async fn $postgres() {
            $test($crate::support::Kind::Postgres).await;
        }

        #[tokio::test]
        async fn $mariadb() {
            $test($crate::support::Kind::MariaDb).await;
        }

        #[tokio::test]
        async fn $sqlite() {
            $test($crate::support::Kind::Sqlite).await;
        }
    )*};
}
pub(super) use on_every_database;

on_every_database! {
    closes_what_is_overdue => closes_what_is_overdue_in_postgres, closes_what_is_overdue_in_mariadb, closes_what_is_overdue_in_sqlite;
    a_dry_run_changes_nothing => a_dry_run_changes_nothing_in_postgres, a_dry_run_changes_nothing_in_mariadb, a_dry_run_changes_nothing_in_sqlite;
    pages_with_equal_deadlines => pages_with_equal_deadlines_in_postgres, pages_with_equal_deadlines_in_mariadb, pages_with_equal_deadlines_in_sqlite;
    three_at_once => three_at_once_in_postgres, three_at_once_in_mariadb, three_at_once_in_sqlite;
}

/// For a shop whose Redis is down.
fn settings(shop: &Shop) -> Settings {
    shop.settings().set("redis.url", format!("redis://127.0.0.1:{}", ports::free()))
}

/// Three overdue orders, a paid one, one not yet due, and one without a deadline.
async fn mixed_shop(kind: Kind) -> Shop {
    let shop = Shop::open(kind).await;
    shop.orders(&[(1, -90_000), (2, -5_000), (3, -1), (4, -60_000), (5, 600_000), (6, 600_000)]).await;
    shop.database.execute("UPDATE orders SET expires_at = NULL WHERE order_no = 6").await;
    assert!(shop.pay(4).await);
    shop
}

async fn closes_what_is_overdue(kind: Kind) {
    let shop = mixed_shop(kind).await;
    let finished = order_closer(&settings(&shop), &["reconcile", "--json"]).await.expect_code(0);
    assert_eq!(finished.stderr, "");
    assert_eq!(finished.stdout.lines().count(), 1, "{finished:#?}");
    let report = finished.json();
    let keys: BTreeSet<&str> = report.as_object().expect("an object").keys().map(String::as_str).collect();
    let contract = [
        "rule",
        "overdue",
        "closed",
        "settled",
        "not_found",
        "failed",
        "disputed",
        "paid",
        "later",
        "unanswered",
        "left_alone",
        "paused",
        "dry_run",
        "lateness_ms",
        "duration_ms",
    ];
    assert_eq!(keys, BTreeSet::from(contract));
    let counts = ["overdue", "closed", "settled", "not_found", "failed"].map(|key| report[key].as_u64().expect("a count"));
    assert_eq!(counts, [3, 3, 0, 0, 0]);
    assert_eq!(report["dry_run"], false);
    let lateness = ["p50", "p99", "max"].map(|key| report["lateness_ms"][key].as_f64().expect("a number"));
    let outcome = shop.assert_outcome().await;
    assert_eq!(outcome.closed.keys().copied().collect::<Vec<_>>(), [1, 2, 3]);
    // The table has whole milliseconds, of a moment within the transaction; the report may round by one in a hundred.
    for (reported, order_no) in lateness.into_iter().zip([2, 1, 1]) {
        #[allow(clippy::cast_precision_loss, reason = "a few minutes in milliseconds")]
        let stored = outcome.closed[&order_no] as f64;
        assert!((reported - stored).abs() < stored * 0.01 + 1_000.0, "reported {reported}, in the table {stored}");
    }
    let duration = report["duration_ms"].as_u64().expect("a number");
    assert!((1..60_000).contains(&duration), "{duration}");
}

async fn a_dry_run_changes_nothing(kind: Kind) {
    let shop = mixed_shop(kind).await;
    let finished = order_closer(&settings(&shop), &["reconcile", "--json", "--dry-run"]).await.expect_code(0);
    let report = finished.json();
    assert_eq!((report["overdue"].as_u64(), report["closed"].as_u64(), &report["dry_run"]), (Some(3), Some(0), &true.into()));
    assert_eq!(shop.assert_outcome_except(&[1, 2, 3]).await.closed.len(), 0);
}

async fn pages_with_equal_deadlines(kind: Kind) {
    let shop = Shop::open(kind).await;
    shop.orders_due_in(1..=95, -1_000).await;
    let moment = shop.database.text("SELECT min(expires_at) FROM orders").await.expect("a deadline");
    shop.database.execute(&format!("UPDATE orders SET expires_at = '{moment}'")).await;
    let settings = settings(&shop).set("sweep.page", 10);
    let report = order_closer(&settings, &["reconcile", "--json"]).await.expect_code(0).json();
    assert_eq!((report["overdue"].as_u64(), report["closed"].as_u64()), (Some(95), Some(95)));
    assert_eq!(shop.assert_outcome().await.closed.len(), 95);
}

async fn three_at_once(kind: Kind) {
    let shop = Shop::open(kind).await;
    shop.orders_due_in(1..=600, -1_000).await;
    let settings = settings(&shop).set("sweep.page", 50).set("close.batch_size", 20);
    let arguments = ["reconcile", "--json"];
    let (first, second, third) =
        tokio::join!(order_closer(&settings, &arguments), order_closer(&settings, &arguments), order_closer(&settings, &arguments));
    let reports = [first, second, third].map(|finished| finished.expect_code(0).json());
    let closed: u64 = reports.iter().filter_map(|report| report["closed"].as_u64()).sum();
    assert_eq!(closed, 600, "{reports:#?}");
    assert_eq!(shop.assert_outcome().await.closed.len(), 600);
}

#[tokio::test]
async fn it_is_silent_for_cron() {
    let shop = Shop::open(Kind::Sqlite).await;
    shop.orders(&[(1, 600_000), (2, -1_000)]).await;
    // First with something to do, then without.
    for _ in 0..2 {
        let finished = order_closer(&settings(&shop), &["reconcile"]).await.expect_code(0);
        assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("", ""));
    }
    assert_eq!((shop.status(1).await, shop.status(2).await), (UNPAID, CLOSED));
    let report = order_closer(&settings(&shop), &["reconcile", "--json"]).await.expect_code(0).json();
    assert_eq!((&report["overdue"], &report["closed"]), (&0.into(), &0.into()));
    assert_eq!(report["lateness_ms"], serde_json::Value::Null);
}

/// Whoever asks for a dry run asks for an answer.
#[tokio::test]
async fn a_dry_run_is_never_silent() {
    let shop = Shop::open(Kind::Sqlite).await;
    shop.orders(&[(1, 600_000), (2, -1_000)]).await;
    let finished = order_closer(&settings(&shop), &["reconcile", "--dry-run"]).await.expect_code(0);
    assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("1 overdue orders; nothing was closed\n", ""));
}

#[tokio::test]
async fn a_limit_takes_the_oldest() {
    let shop = Shop::open(Kind::Postgres).await;
    let orders: Vec<(i64, i64)> = (1..=25).map(|number| (number, number * 10_000 - 900_000)).collect();
    shop.orders(&orders).await;
    let settings = settings(&shop).set("sweep.page", 10);
    let report = order_closer(&settings, &["reconcile", "--json", "--limit", "12"]).await.expect_code(0).json();
    assert_eq!((report["overdue"].as_u64(), report["closed"].as_u64()), (Some(12), Some(12)));
    let youngest: Vec<i64> = (13..=25).collect();
    shop.assert_outcome_except(&youngest).await;
    let report = order_closer(&settings, &["reconcile", "--json", "--limit", "100"]).await.expect_code(0).json();
    assert_eq!(report["closed"].as_u64(), Some(13));
    shop.assert_outcome().await;
    let finished = order_closer(&settings, &["reconcile", "--limit", "0"]).await.expect_code(64);
    assert!(finished.stderr.contains("--limit"), "{finished:#?}");
}

#[tokio::test]
async fn a_terminal_shows_progress_and_a_result() {
    let shop = Shop::open(Kind::Sqlite).await;
    shop.orders_due_in(1..=1_500, -1_000).await;
    let settings = settings(&shop).set("close.batch_size", 100);
    let finished = OneShot::with(&settings, &["reconcile", "--dry-run"]).on_terminal().run().await.expect_code(0);
    assert!(finished.stdout.contains("1500 overdue orders; nothing was closed"), "{finished:#?}");
    let finished = OneShot::with(&settings, &["reconcile"]).on_terminal().run().await.expect_code(0);
    // The bar may be redrawn seldom or often, but its total is right from the first time on.
    assert!(finished.stdout.contains("of 1500 overdue orders"), "{finished:#?}");
    assert!(finished.stdout.contains("left"), "no bar: {finished:#?}");
    assert!(finished.stdout.contains("1500 of 1500 overdue orders closed, 0 settled by others, 0 failed, in "), "{finished:#?}");
    assert_eq!(shop.assert_outcome().await.closed.len(), 1_500);
    // For a machine there is no bar, even there.
    let finished = OneShot::with(&settings, &["reconcile", "--json"]).on_terminal().run().await.expect_code(0);
    assert_eq!(finished.json()["overdue"], 0);
}
