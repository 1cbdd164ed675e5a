//! Timers that are registered, moved and cancelled in the transactions of their orders.

use std::{process::Command, time::SystemTime};

use serde_json::json;

use super::{client::Client, orders::jdbc, toolchain};
use crate::{
    promises::listening,
    support::{Database, Kind, Redis, Shop, order_closer, receiver::Receiver, redis::unix_millis, shop::UNPAID, wait},
};

#[tokio::test]
async fn node_with_pg() {
    sit(Kind::Postgres, toolchain::node("timers.js"), url).await;
}

#[tokio::test]
async fn python_with_psycopg() {
    sit(Kind::Postgres, toolchain::python("timers.py"), url).await;
}

#[tokio::test]
async fn php_with_pdo() {
    sit(Kind::MariaDb, toolchain::php_timers(), url).await;
}

#[tokio::test]
async fn java_with_jdbc() {
    sit(Kind::MariaDb, toolchain::java_timers(), jdbc).await;
}

#[tokio::test]
async fn go_with_pgx() {
    sit(Kind::Postgres, toolchain::go_timers(), url).await;
}

/// The URL as most drivers know it.
fn url(database: &Database) -> String {
    database.url.clone()
}

/// The clients remind so long before the deadline.
const BEFORE: i64 = 600_000;

/// The exam for one client.
async fn sit(kind: Kind, command: Option<Command>, url: impl Fn(&Database) -> String) {
    let Some(mut command) = command else { return };
    let (redis, receiver) = (Redis::start(), Receiver::start().await);
    let shop = Shop::open(kind).await;
    let settings = shop.settings_with(&redis).add(&receiver.timer_webhook("reminders", ""));
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    command.env("DATABASE_URL", url(&shop.database));
    let mut client = Client::start(command);
    let daemon = listening(&settings).await;
    let key = if kind == Kind::MariaDb { "`key`" } else { "key" };
    let due = async |order: i64| {
        let sql = format!("SELECT due_at FROM order_closer_timers WHERE {key} = '{order}' AND state = 'armed'");
        shop.database.column(&sql).await.first().cloned().flatten().map(|due| due.parse::<i64>().expect("a number"))
    };

    let now = unix_millis(SystemTime::now());
    let told_in = |millis: i64| now + millis + BEFORE;
    for (order, deadline) in [(1, told_in(3_600_000)), (2, told_in(8_000)), (3, told_in(8_000)), (4, told_in(3_600_000))] {
        assert_eq!(client.call(&format!("create {order} {deadline}")).await, "done");
        assert_eq!(due(order).await, Some((deadline - BEFORE) * 1_000), "to the millisecond, in any zone");
    }
    // Paid: not told. Given more time: told later. Given less: sooner, and it is the last of all.
    assert_eq!(client.call("pay 2").await, "true");
    assert_eq!(due(2).await, None);
    assert_eq!(client.call("pay 2").await, "false", "a second time");
    for (order, deadline) in [(3, told_in(7_200_000)), (4, told_in(10_000))] {
        assert_eq!(client.call(&format!("extend {order} {deadline}")).await, "true");
        assert_eq!(due(order).await, Some((deadline - BEFORE) * 1_000));
    }
    assert_eq!(client.call(&format!("extend 2 {}", told_in(0))).await, "false", "it is paid");
    assert_eq!(due(2).await, None, "and not registered again");
    wait::until("a reminder is told", async || !receiver.received().is_empty()).await;
    assert_eq!(receiver.taken(), [(4, 1)].into());
    assert_eq!(receiver.received()[0].json()["data"]["data"], json!({ "order": 4 }));
    assert_eq!(client.call("pay 4").await, "true", "after it has been told");

    // There is no order without its reminder: both or none.
    let refusing = format!("ALTER TABLE order_closer_timers ADD CONSTRAINT refusing CHECK ({key} <> '5')");
    shop.database.execute(&refusing).await;
    let refused = client.answer(&format!("create 5 {}", told_in(3_600_000))).await;
    assert!(refused.text.starts_with("failed: "), "{refused:?}");
    let refused = client.answer(&format!("create 1 {}", told_in(0))).await;
    assert!(refused.text.starts_with("failed: "), "{refused:?}");
    assert_eq!(due(1).await, Some((told_in(3_600_000) - BEFORE) * 1_000), "as it was");
    assert_eq!(shop.database.number("SELECT count(*) FROM orders WHERE order_no = 5").await, 0);
    assert_eq!(client.call(&format!("create 6 {}", told_in(3_600_000))).await, "done", "what failed is in nobody's way");
    assert_eq!(shop.status(6).await, UNPAID);
    daemon.stop().await;
}
