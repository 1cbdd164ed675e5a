//! linlinjava/litemall: payment, receipt and comments.

use super::{assert_changes, litemall};

/// Status and times of the further orders: number, status, days since it was sent, days since its receipt, comments, deleted.
const ORDERS: [(i32, i32, &str, &str, i32, i32); 10] = [
    (21, 301, "7.1", "NULL", 0, 0),
    (22, 301, "6.9", "NULL", 0, 0),
    (23, 301, "30", "NULL", 0, 1),
    (24, 401, "30", "7.1", 2, 0),
    (25, 401, "30", "6.9", 2, 0),
    (26, 402, "30", "20", 0, 0),
    (27, 203, "30", "20", 1, 0),
    (28, 401, "30", "20", 2, 1),
    (29, 201, "NULL", "NULL", 0, 0),
    (30, 402, "30", "20", 20, 0),
];

#[tokio::test]
async fn the_daemon_closes_as_litemall_and_its_jobs_do() {
    let example = litemall::open_with("litemall-all").await;
    let database = &example.database;
    for (id, status, sent, received, comments, deleted) in ORDERS {
        let ago = |days: &str| format!("NOW() - INTERVAL {days} * 24 * 60 MINUTE");
        let (sent, received) = (ago(sent), ago(received));
        database
            .execute(&format!(
                "INSERT INTO litemall_order (id, user_id, order_sn, order_status, consignee, mobile, address, goods_price, freight_price,
                                             coupon_price, integral_price, groupon_price, order_price, actual_price, add_time, update_time,
                                             ship_time, confirm_time, comments, deleted)
                 VALUES ({id}, 1, '{id}', {status}, 'c', '1', 'a', 9, 0, 0, 0, 0, 9, 9, '2026-01-01', '2026-01-01',
                         {sent}, {received}, {comments}, {deleted});
                 INSERT INTO litemall_order_goods (id, order_id, product_id, number, specifications, comment, deleted)
                   VALUES ({id}0, {id}, 10, 1, '[]', 0, 0), ({id}1, {id}, 11, 1, '[]', 55, 0), ({id}2, {id}, 12, 1, '[]', 0, 1)"
            ))
            .await;
    }
    let left = "SELECT COUNT(*) FROM litemall_order
                 WHERE id IN (1, 2) AND order_status = 101 OR id = 21 AND order_status = 301 OR id IN (24, 27, 30) AND comments > 0";
    let mut expected = litemall::CLOSED.to_vec();
    expected.extend([
        "litemall_order 21: order_status 301 -> 402",
        "litemall_order 21: confirm_time NULL -> now",
        "litemall_order 21: update_time 2026-01-01 00:00:00 -> now",
        "litemall_order 24: comments 2 -> 0",
        "litemall_order 24: update_time 2026-01-01 00:00:00 -> now",
        "litemall_order 27: comments 1 -> 0",
        "litemall_order 27: update_time 2026-01-01 00:00:00 -> now",
        "litemall_order 30: comments 20 -> 0",
        "litemall_order 30: update_time 2026-01-01 00:00:00 -> now",
        "litemall_order_goods 240: comment 0 -> -1",
        "litemall_order_goods 240: update_time NULL -> now",
        "litemall_order_goods 241: comment 55 -> -1",
        "litemall_order_goods 241: update_time NULL -> now",
        "litemall_order_goods 270: comment 0 -> -1",
        "litemall_order_goods 270: update_time NULL -> now",
        "litemall_order_goods 271: comment 55 -> -1",
        "litemall_order_goods 271: update_time NULL -> now",
        "litemall_order_goods 300: comment 0 -> -1",
        "litemall_order_goods 300: update_time NULL -> now",
        "litemall_order_goods 301: comment 55 -> -1",
        "litemall_order_goods 301: update_time NULL -> now",
    ]);
    assert_changes(example.close(left).await, &expected);
}
