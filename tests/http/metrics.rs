use std::collections::BTreeSet;

use order_closer::metric;

use super::Asked;
use crate::support::{Kind, Redis, Shop, wait};

#[tokio::test]
async fn closures_are_counted_with_their_lateness() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let asked = Asked::start(&shop, &redis).await;
    shop.orders_due_in(1..=20, -5_000).await;
    shop.until_all_settled().await;
    let closed = r#"order_closer_looks_total{rule="orders",trigger="sweep",outcome="closed"}"#;
    asked.until_sample(closed, |value| value == 20.0).await;
    let samples = asked.samples().await;
    let lateness = |suffix: &str| samples[&format!("order_closer_lateness_seconds_{suffix}")];
    assert_eq!(lateness(r#"count{rule="orders",trigger="sweep"}"#), 20.0);
    assert!(lateness(r#"sum{rule="orders",trigger="sweep"}"#) >= 100.0);
    assert_eq!(lateness(r#"bucket{rule="orders",trigger="sweep",le="2.5"}"#), 0.0);
    asked.daemon.stop().await;
}

/// What something keeps from closing must not hold the alert for ever.
#[tokio::test]
async fn overdue_orders_are_counted_by_what_keeps_them_from_closing() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    shop.orders_due_in(1..=4, -60_000).await;
    redis.command(&["SET", "order_1", "1", "PX", "600000"]);
    let mut payment = shop.database.begin().await;
    payment.execute("UPDATE orders SET paid_at = NULL WHERE order_no = 2").await;
    let asked = Asked::start(&shop, &redis).await;
    let overdue = |state: &str| format!(r#"order_closer_overdue_orders{{rule="orders",state="{state}"}}"#);
    for (state, orders) in [("disputed", 1.0), ("held", 1.0), ("open", 0.0)] {
        asked.until_sample(&overdue(state), |value| value == orders).await;
    }
    asked.until_sample(r#"order_closer_oldest_overdue_seconds{rule="orders"}"#, |value| value == 0.0).await;
    payment.rollback().await;
    asked.until_sample(&overdue("held"), |value| value == 0.0).await;
    asked.daemon.stop().await;
}

/// Counted by somebody who has nothing to do with closing.
#[tokio::test]
async fn overdue_orders_are_counted_while_none_can_be_closed() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    shop.orders_due_in(1..=5, -10_000).await;
    let asked = Asked::start(&shop, &redis).await;
    shop.until_all_settled().await;
    shop.database.execute("ALTER TABLE closures RENAME TO closures_gone").await;
    shop.orders_due_in(6..=15, -10_000).await;
    wait::until("all ten are counted, as whatever they are", async || {
        let samples = asked.samples().await;
        let overdue = |state: &str| samples.get(&format!(r#"order_closer_overdue_orders{{rule="orders",state="{state}"}}"#)).copied();
        overdue("open").zip(overdue("resting")).is_some_and(|(open, resting)| open + resting == 10.0)
    })
    .await;
    shop.database.execute("ALTER TABLE closures_gone RENAME TO closures").await;
    shop.until_all_settled().await;
    asked.until_sample(r#"order_closer_overdue_orders{rule="orders",state="resting"}"#, |value| value == 0.0).await;
    asked.daemon.stop().await;
    shop.assert_outcome().await;
}

/// The page that lists them, and what is exported.
#[tokio::test]
async fn the_documentation_lists_all_metrics_and_no_others() {
    let page = include_str!("../../docs/metrics.md");
    let documented: BTreeSet<&str> = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    // What stands in a file instead, after a pass of reconcile.
    let documented: BTreeSet<&str> = documented.into_iter().filter(|name| !name.starts_with("order_closer_reconcile_")).collect();
    let known: BTreeSet<&str> = metric::ALL.iter().map(|metric| metric.name).collect();
    assert_eq!(documented, known);
    for metric in metric::ALL {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{}`", metric.name))).unwrap();
        for label in metric.labels {
            assert!(row.contains(&format!("`{label}`")), "{row} says nothing of the label {label}");
        }
    }
    let redis = Redis::start();
    let shop = Shop::open(Kind::Sqlite).await;
    shop.orders_due_in(1..=3, -1_000).await;
    let asked = Asked::start(&shop, &redis).await;
    shop.until_all_settled().await;
    let lateness = r#"order_closer_lateness_seconds_count{rule="orders",trigger="sweep"}"#;
    asked.until_sample(lateness, |value| value == 3.0).await;
    for name in asked.samples().await.keys() {
        let name = name.split('{').next().unwrap();
        let base = ["_bucket", "_count", "_sum"].into_iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        assert!(known.contains(base) || known.contains(name), "{name}");
        assert!(!name.contains("order_1"));
    }
    asked.daemon.stop().await;
}
