//! A shop of one's own on MySQL.

use super::{Example, assert_changes};
use crate::support::{Database, Kind};

#[tokio::test]
async fn closes_by_the_pattern() {
    let database = Database::fresh(Kind::MariaDb).await;
    let example = Example::open("plain-mysql", database, "NOW()", include_str!("plain_mysql.sql")).await;
    let database = &example.database;
    database.execute("INSERT INTO stock VALUES ('pen', 10), ('ink', 0), ('pad', 4)").await;
    // Number, status, payment, seconds since its creation, deleted.
    for (number, status, payment, age, deleted) in [
        ("S-1", 0, 1, 1801, 0),
        ("S-2", 0, 0, 90_000, 0),
        ("S-3", 0, 1, 1700, 0),
        ("S-4", 1, 1, 90_000, 0),
        ("S-5", 0, 9, 90_000, 0),
        ("S-6", 0, 1, 90_000, 1),
        // One of its articles is gone.
        ("S-7", 0, 1, 90_000, 0),
    ] {
        let sql = format!(
            "INSERT INTO orders (order_no, member_id, status, pay_type, created_at, deleted)
               VALUES ('{number}', 1, {status}, {payment}, NOW(3) - INTERVAL {age} SECOND, {deleted});
             INSERT INTO order_items (order_no, sku, quantity) VALUES ('{number}', 'pen', 1);
             INSERT INTO coupons VALUES ('c{number}x{status}', 1, '{number}')"
        );
        database.execute(&sql).await;
    }
    database.execute("INSERT INTO order_items (order_no, sku, quantity) VALUES ('S-2', 'ink', 3), ('S-7', 'gone', 1)").await;
    let expected = [
        "+ order_log: at=now note=not paid in time order_no=S-1 status=4",
        "+ order_log: at=now note=not paid in time order_no=S-2 status=4",
        "coupons cS-1x0: order_no S-1 -> NULL",
        "coupons cS-2x0: order_no S-2 -> NULL",
        "orders S-1: closed_at NULL -> now",
        "orders S-1: status 0 -> 4",
        "orders S-2: closed_at NULL -> now",
        "orders S-2: status 0 -> 4",
        "stock ink: quantity 0 -> 3",
        "stock pen: quantity 10 -> 12",
    ];
    assert_changes(example.reconcile((2, 1)).await, &expected);
}
