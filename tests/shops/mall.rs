//! macrozheng/mall.

use super::{Example, assert_changes};
use crate::support::{Daemon, Database, Kind, Settings, wait};

/// mall writes Shanghai's time, and the test's server is in UTC.
pub(super) const NOW: &str = "UTC_TIMESTAMP() + INTERVAL 8 HOUR";

/// What the closure of the orders that are due changes.
pub(super) const CLOSED: [&str; 15] = [
    "oms_order 1: status 0 -> 4",
    "oms_order 2: status 0 -> 4",
    "oms_order 3: status 0 -> 4",
    "oms_order 4: status 0 -> 4",
    "pms_sku_stock 10: lock_stock 7 -> 3",
    "pms_sku_stock 11: lock_stock 9 -> 6",
    "pms_sku_stock 12: lock_stock 1 -> 0",
    // Two orders, two coupons of the three that are in use.
    "sms_coupon_history 1: use_status 1 -> 0",
    "sms_coupon_history 1: use_time 2026-01-01 00:00:00 -> now",
    "sms_coupon_history 2: use_status 1 -> 0",
    "sms_coupon_history 2: use_time 2026-01-01 00:00:00 -> now",
    "sms_coupon_history 6: use_status 1 -> 0",
    "sms_coupon_history 6: use_time 2026-01-01 00:00:00 -> now",
    "ums_member 1: integration 100 -> 150",
    "ums_member 2: integration NULL -> 40",
];

async fn open() -> Example {
    open_with("mall").await
}

/// The tables and their rows, with one of the files for mall.
pub(super) async fn open_with(name: &'static str) -> Example {
    let example = Example::open(name, Database::fresh(Kind::MariaDb).await, NOW, include_str!("mall.sql")).await;
    example
        .database
        .execute(
            "INSERT INTO pms_sku_stock (id, product_id, sku_code, stock, lock_stock) VALUES (10, 1, 'a', 100, 7), (11, 1, 'b', 50, 9), (12, 2, 'c', 5, 1);
             INSERT INTO ums_member (id, username, phone, integration) VALUES (1, 'ann', '1', 100), (2, 'bob', '2', NULL), (3, 'cid', '3', 5);
             INSERT INTO sms_coupon_history (id, coupon_id, member_id, use_status, use_time)
               VALUES (1, 5, 1, 1, '2026-01-01'), (2, 5, 1, 1, '2026-01-01'), (3, 5, 1, 1, '2026-01-01'), (4, 5, 1, 0, NULL),
                      (5, 5, 2, 1, '2026-01-01'), (6, 6, 2, 1, '2026-01-01'), (7, 5, 3, 1, '2026-01-01')",
        )
        .await;
    // Number, member, coupon, points, status, deleted, minutes since its creation.
    let orders = [
        "(1, 1, 5, 30, 0, 0, 121)",
        "(2, 1, 5, 20, 0, 0, 300)",
        "(3, 2, 6, 40, 0, 0, 121)",
        "(4, 3, NULL, NULL, 0, 0, 121)",
        "(5, 3, 5, 5, 0, 0, 119)",
        "(6, 3, 5, 5, 1, 0, 500)",
        "(7, 3, 5, 5, 0, 1, 500)",
        "(8, 3, 5, 5, 5, 0, 500)",
    ];
    for order in orders {
        let values = order.trim_matches(['(', ')']);
        let [id, member, coupon, points, status, deleted, age]: [&str; 7] =
            values.split(", ").collect::<Vec<_>>().try_into().expect("seven values");
        example
            .database
            .execute(&format!(
                "INSERT INTO oms_order (id, member_id, coupon_id, use_integration, status, delete_status, create_time, receiver_name, receiver_phone)
                 VALUES ({id}, {member}, {coupon}, {points}, {status}, {deleted}, {NOW} - INTERVAL {age} MINUTE, 'r', '1')"
            ))
            .await;
    }
    example
        .database
        .execute(
            "INSERT INTO oms_order_item (order_id, product_sku_id, product_quantity)
               VALUES (1, 10, 1), (1, 11, 2), (2, 10, 3), (3, 11, 1), (4, 12, 1), (5, 10, 1), (6, 11, 1), (7, 11, 1), (8, 11, 1)",
        )
        .await;
    example
}

#[tokio::test]
async fn closes_as_mall_does() {
    let example = open().await;
    assert_changes(example.reconcile((4, 0)).await, &CLOSED);
}

/// Stock that was not locked, or is gone: mall refuses to cancel, and nothing is lost in silence.
#[tokio::test]
async fn an_order_without_its_stock_stays_open() {
    let example = open().await;
    example
        .database
        .execute(
            "UPDATE pms_sku_stock SET lock_stock = 2 WHERE id = 10; DELETE FROM pms_sku_stock WHERE id = 12;
             INSERT INTO pms_sku_stock (id, product_id, sku_code, stock, lock_stock) VALUES (13, 2, 'd', 5, NULL);
             INSERT INTO oms_order_item (order_id, product_sku_id, product_quantity) VALUES (3, 13, 1)",
        )
        .await;
    let expected = [
        // Order 2 would release three of two, order 3 what nobody counts, order 4 what is not there.
        "oms_order 1: status 0 -> 4",
        "pms_sku_stock 10: lock_stock 2 -> 1",
        "pms_sku_stock 11: lock_stock 9 -> 7",
        "sms_coupon_history 1: use_status 1 -> 0",
        "sms_coupon_history 1: use_time 2026-01-01 00:00:00 -> now",
        "ums_member 1: integration 100 -> 130",
    ];
    assert_changes(example.reconcile((1, 3)).await, &expected);
}

/// The daemon, with a key such as the head of the file describes.
#[tokio::test]
async fn a_key_closes_its_order_at_its_deadline() {
    let example = open().await;
    let settings = Settings::new()
        .add(&example.text())
        .set("database.url", example.database.url.as_str())
        .set("redis.url", example.redis.url())
        .set("log.format", "json");
    let daemon = Daemon::start(&settings);
    daemon.until_logged("listening for expired keys").await;
    let database = &example.database;
    database.execute(&format!("UPDATE oms_order SET create_time = {NOW} - INTERVAL 2 HOUR + INTERVAL 3 SECOND WHERE id = 5")).await;
    let deadline = database.number("SELECT UNIX_TIMESTAMP(create_time - INTERVAL 6 HOUR) * 1000 FROM oms_order WHERE id = 5").await;
    example.redis.set_all_until(&[("mall:oms:unpaid:5".into(), deadline)]);
    wait::until_eq("order 5's status", 4, async || database.number("SELECT status FROM oms_order WHERE id = 5").await).await;
    let late =
        database.number(&format!("SELECT TIMESTAMPDIFF(SECOND, create_time + INTERVAL 2 HOUR, {NOW}) FROM oms_order WHERE id = 5")).await;
    assert!(late >= 0, "closed before its deadline");
    daemon.stop().await;
    assert_eq!(daemon.summary().count("closed"), 5);
    assert_eq!(database.number("SELECT lock_stock FROM pms_sku_stock WHERE id = 10").await, 2);
}
