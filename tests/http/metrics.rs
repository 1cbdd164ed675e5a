use std::collections::BTreeSet;

use order_closer::metric;

use super::Asked;
use crate::support::{
    Kind, Redis, Shop, order_closer,
    receiver::{Behaviour, Receiver},
    shop::key,
    wait,
};

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

/// However many orders wait for a reason, one that waits without any is seen behind them.
#[tokio::test]
async fn an_open_order_is_counted_behind_thousands_that_are_disputed() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    shop.orders_due_in(1..=10_500, -60_000).await;
    redis.command(&["EVAL", "for n = 1, 10500 do redis.call('SET', 'order_' .. n, '1', 'PX', 600000) end", "0"]);
    let asked = Asked::start(&shop, &redis).await;
    let overdue = |state: &str| format!(r#"order_closer_overdue_orders{{rule="orders",state="{state}"}}"#);
    asked.until_sample(&overdue("disputed"), |value| value == 10_000.0).await;
    shop.orders_due_in(20_000..=20_000, 1_000).await;
    // Where rows and keys differ as a whole, one without a key would wait, too.
    redis.command(&["SET", "order_20000", "1", "PX", "1000"]);
    let mut holder = shop.database.begin().await;
    holder.execute("LOCK TABLE orders IN EXCLUSIVE MODE").await;
    asked.until_sample(&overdue("open"), |value| value == 1.0).await;
    asked.until_sample(r#"order_closer_oldest_overdue_seconds{rule="orders"}"#, |value| value > 0.0).await;
    holder.rollback().await;
    asked.until_sample(&overdue("open"), |value| value == 0.0).await;
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

/// Once for each order, whether its notification closes it or comes when that is done.
#[tokio::test]
async fn notifications_are_timed_by_the_deadlines_of_their_orders() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let settings = shop.settings_with(&redis).set("sweep.ahead", "0s");
    let asked = Asked::with(settings.set("sweep.every", "1h")).await;
    asked.daemon.until_logged("listening for expired keys").await;
    let of = |part: &str| format!(r#"order_closer_notification_lag_seconds_{part}{{rule="orders"}}"#);
    // Its notification closes it.
    shop.order(1, -30_000).await;
    redis.publish_expired(0, key(1).as_bytes());
    shop.until_all_settled().await;
    asked.until_sample(&of("count"), |count| count == 1.0).await;
    // It is closed when its notification comes, twice.
    let settings = std::fs::read_to_string(asked.daemon.config_file()).unwrap();
    assert!(asked.daemon.reload(&settings.replace("1h", "200ms")).await);
    shop.order(2, -60_000).await;
    shop.until_all_settled().await;
    let swept = r#"order_closer_looks_total{rule="orders",trigger="sweep",outcome="closed"}"#;
    asked.until_sample(swept, |closed| closed == 1.0).await;
    assert_eq!(asked.samples().await[&of("count")], 1.0);
    for number in [2, 2] {
        redis.publish_expired(0, key(number).as_bytes());
    }
    asked.until_sample(&of("count"), |count| count == 2.0).await;
    let sum = asked.samples().await[&of("sum")];
    assert!((89.0..150.0).contains(&sum), "{sum}");
    // Whatever came twice was heard twice, and counted once.
    asked.until_sample(r#"order_closer_notifications_total{rule="orders",kind="order"}"#, |heard| heard == 3.0).await;
    assert_eq!(asked.samples().await[&of("count")], 2.0);
    asked.daemon.stop().await;
}

/// What is told to others, by target and by what came of it.
#[tokio::test]
async fn deliveries_and_their_backlog_are_counted() {
    let (redis, receiver) = (Redis::start(), Receiver::start().await);
    let shop = Shop::open(Kind::Postgres).await;
    let settings = shop.settings_with(&redis).add(&receiver.webhook("erp", ""));
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    receiver.by_order(|order| (order == 2).then_some(Behaviour::Status(500)));
    let asked = Asked::with(settings).await;
    shop.orders_due_in(1..=3, -1_000).await;
    shop.until_all_settled().await;
    let deliveries = |result: &str| format!(r#"order_closer_deliveries_total{{target="erp",result="{result}"}}"#);
    asked.until_sample(&deliveries("delivered"), |delivered| delivered == 2.0).await;
    asked.until_sample(&deliveries("failed"), |failed| failed >= 3.0).await;
    asked.until_sample(r#"order_closer_events_waiting{target="erp"}"#, |waiting| waiting == 1.0).await;
    asked.until_sample(r#"order_closer_events_oldest_seconds{target="erp"}"#, |age| (1.0..600.0).contains(&age)).await;
    receiver.by_order(|_| None);
    asked.until_sample(&deliveries("delivered"), |delivered| delivered == 3.0).await;
    asked.until_sample(r#"order_closer_events_oldest_seconds{target="erp"}"#, |age| age == 0.0).await;
    asked.daemon.stop().await;
}

#[tokio::test]
async fn lanes_retries_and_connections_are_counted_and_a_refused_configuration_is_told() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    shop.orders_due_in(1..=3, -1_000).await;
    let mut payment = shop.database.begin().await;
    payment.execute("UPDATE orders SET paid_at = NULL WHERE order_no = 2").await;
    let asked = Asked::start(&shop, &redis).await;
    asked.until_sample(r#"order_closer_inbox_lane_orders{rule="orders",lane="alone"}"#, |orders| orders == 1.0).await;
    asked.until_sample(r#"order_closer_retries_total{rule="orders"}"#, |retries| retries >= 3.0).await;
    payment.rollback().await;
    shop.until_all_settled().await;
    asked.until_sample(r#"order_closer_inbox_lane_orders{rule="orders",lane="alone"}"#, |orders| orders == 0.0).await;
    let samples = asked.samples().await;
    for pool in ["closing", "reading"] {
        let of = |state: &str| samples[&format!(r#"order_closer_connections{{pool="{pool}",state="{state}"}}"#)];
        let limit = samples[&format!(r#"order_closer_connections_limit{{pool="{pool}"}}"#)];
        assert!((1.0..=limit).contains(&(of("idle") + of("in_use"))), "{pool}: {samples:?}");
    }
    let refused = "order_closer_config_refused";
    asked.until_sample(refused, |refused| refused == 0.0).await;
    let good = std::fs::read_to_string(asked.daemon.config_file()).unwrap();
    assert!(!asked.daemon.reload("[orders").await);
    asked.until_sample(refused, |refused| refused == 1.0).await;
    assert!(asked.daemon.reload(&good).await);
    asked.until_sample(refused, |refused| refused == 0.0).await;
    asked.daemon.stop().await;
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
