//! linlinjava/litemall.

use super::{Example, assert_changes};
use crate::support::{Database, Kind};

/// What the closure of the orders that are due changes.
pub(super) const CLOSED: [&str; 14] = [
    "litemall_coupon_user 1: status 1 -> 0",
    "litemall_coupon_user 1: update_time NULL -> now",
    "litemall_coupon_user 5: status 1 -> 0",
    "litemall_coupon_user 5: update_time NULL -> now",
    "litemall_goods_product 10: number 5 -> 10",
    "litemall_goods_product 10: update_time NULL -> now",
    "litemall_goods_product 11: number 0 -> 1",
    "litemall_goods_product 11: update_time NULL -> now",
    "litemall_order 1: end_time NULL -> now",
    "litemall_order 1: order_status 101 -> 103",
    "litemall_order 1: update_time 2026-01-01 00:00:00 -> now",
    "litemall_order 2: end_time NULL -> now",
    "litemall_order 2: order_status 101 -> 103",
    "litemall_order 2: update_time 2026-01-01 00:00:00 -> now",
];

async fn open() -> Example {
    open_with("litemall").await
}

/// The tables and their rows, with one of the files for litemall.
pub(super) async fn open_with(name: &'static str) -> Example {
    let example = Example::open(name, Database::fresh(Kind::MariaDb).await, "NOW()", include_str!("litemall.sql")).await;
    example
        .database
        .execute(
            "INSERT INTO litemall_goods_product (id, goods_id, specifications, number)
               VALUES (10, 1, '[]', 5), (11, 1, '[]', 0), (12, 2, '[]', 9);
             INSERT INTO litemall_coupon_user (id, user_id, coupon_id, status, order_id, deleted)
               VALUES (1, 1, 1, 1, 1, 0), (2, 1, 1, 1, 4, 0), (3, 1, 1, 1, 1, 1), (4, 1, 1, 0, NULL, 0), (5, 2, 1, 1, 2, 0);
             INSERT INTO litemall_order_goods (order_id, product_id, number, specifications, deleted)
               VALUES (1, 10, 2, '[]', 0), (1, 11, 1, '[]', 0), (1, 12, 7, '[]', 1), (2, 10, 3, '[]', 0), (3, 10, 1, '[]', 0),
                      (4, 11, 1, '[]', 0), (5, 12, 1, '[]', 0), (6, 12, 1, '[]', 0)",
        )
        .await;
    // Number, status, minutes since its creation, deleted.
    for (id, status, age, deleted) in [(1, 101, 31, 0), (2, 101, 90, 0), (3, 101, 29, 0), (4, 201, 90, 0), (5, 101, 90, 1), (6, 102, 90, 0)]
    {
        example
            .database
            .execute(&format!(
                "INSERT INTO litemall_order (id, user_id, order_sn, order_status, consignee, mobile, address, goods_price, freight_price, coupon_price,
                                             integral_price, groupon_price, order_price, actual_price, add_time, update_time, deleted)
                 VALUES ({id}, 1, '{id}', {status}, 'c', '1', 'a', 9, 0, 0, 0, 0, 9, 9, NOW() - INTERVAL {age} MINUTE, '2026-01-01', {deleted})"
            ))
            .await;
    }
    example
}

#[tokio::test]
async fn closes_as_litemall_does() {
    let example = open().await;
    assert_changes(example.reconcile((2, 0)).await, &CLOSED);
}

#[tokio::test]
async fn an_order_without_its_product_stays_open() {
    let example = open().await;
    example.database.execute("DELETE FROM litemall_goods_product WHERE id = 11").await;
    let expected = [
        "litemall_coupon_user 5: status 1 -> 0",
        "litemall_coupon_user 5: update_time NULL -> now",
        "litemall_goods_product 10: number 5 -> 8",
        "litemall_goods_product 10: update_time NULL -> now",
        "litemall_order 2: end_time NULL -> now",
        "litemall_order 2: order_status 101 -> 103",
        "litemall_order 2: update_time 2026-01-01 00:00:00 -> now",
    ];
    assert_changes(example.reconcile((1, 1)).await, &expected);
}

/// litemall's payment, which has read the order before it was closed, finds that it has changed.
#[tokio::test]
async fn a_payment_that_read_the_order_before_is_told() {
    let example = open().await;
    let read = example.database.text("SELECT update_time FROM litemall_order WHERE id = 1").await.expect("a time");
    example.reconcile((2, 0)).await;
    let paid = format!("UPDATE litemall_order SET order_status = 201, update_time = NOW() WHERE id = 1 AND update_time = '{read}'");
    assert_eq!(example.database.execute(&paid).await, 0);
}
