//! A shop of one's own on PostgreSQL.

use super::{Example, assert_changes};
use crate::support::{Database, Kind};

fn id(number: u8) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

#[tokio::test]
async fn closes_by_the_pattern() {
    let database = Database::fresh(Kind::Postgres).await;
    let example = Example::open("plain-postgres", database, "now()", include_str!("plain_postgres.sql")).await;
    let database = &example.database;
    database
        .execute(
            "INSERT INTO inventory VALUES ('pen', 10, 6), ('ink', 0, 3), ('pad', 4, 2);
             INSERT INTO coupons VALUES ('spring', 5, 10), ('autumn', 1, 10)",
        )
        .await;
    // Number, status, payment, its deadline.
    for (number, status, payment, expires) in [
        (1, "pending", "'card'", "now() - interval '1 second'"),
        (2, "pending", "NULL", "now() - interval '1 day'"),
        (3, "pending", "'card'", "now() + interval '1 hour'"),
        (4, "paid", "'card'", "now() - interval '1 day'"),
        (5, "pending", "'cash_on_delivery'", "now() - interval '1 day'"),
        (6, "pending", "'card'", "NULL"),
        // It has no reservation.
        (7, "pending", "'card'", "now() - interval '1 day'"),
    ] {
        let id = id(number);
        database
            .execute(&format!(
                "INSERT INTO orders (id, customer, status, payment_method, expires_at) VALUES ('{id}', 'c', '{status}', {payment}, {expires});
                 INSERT INTO reservations SELECT '{id}', 'pen', 1 WHERE {number} <> 7;
                 INSERT INTO coupon_uses VALUES ('{id}', 'spring')"
            ))
            .await;
    }
    let two = id(2);
    database
        .execute(&format!("INSERT INTO reservations VALUES ('{two}', 'ink', 3); INSERT INTO coupon_uses VALUES ('{two}', 'autumn')"))
        .await;
    let [one, two] = [id(1), id(2)];
    let expected = [
        "coupons autumn: used 1 -> 0".to_owned(),
        "coupons spring: used 5 -> 3".to_owned(),
        "inventory ink: available 0 -> 3".to_owned(),
        "inventory ink: reserved 3 -> 0".to_owned(),
        "inventory pen: available 10 -> 12".to_owned(),
        "inventory pen: reserved 6 -> 4".to_owned(),
        format!("- coupon_uses {one}/spring"),
        format!("- coupon_uses {two}/autumn"),
        format!("- coupon_uses {two}/spring"),
        format!("- reservations {one}/pen"),
        format!("- reservations {two}/ink"),
        format!("- reservations {two}/pen"),
        format!("+ order_history: at=now note=not paid in time order_id={one} status=cancelled"),
        format!("+ order_history: at=now note=not paid in time order_id={two} status=cancelled"),
        format!("orders {one}: cancelled_at NULL -> now"),
        format!("orders {one}: status pending -> cancelled"),
        format!("orders {two}: cancelled_at NULL -> now"),
        format!("orders {two}: status pending -> cancelled"),
    ];
    assert_changes(example.reconcile((2, 1)).await, &expected.each_ref().map(String::as_str));
}
