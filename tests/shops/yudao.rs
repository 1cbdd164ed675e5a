//! YunaiV/ruoyi-vue-pro: orders, receipts, comments and pay orders.
//!
//! One database is closed by the daemon. In another one with the same rows yudao's jobs do their work, order by order and
//! column by column as its services do. Afterwards all tables of both have changed alike.

use super::{Example, assert_changes};
use crate::support::{Database, Kind};

/// yudao writes Shanghai's time, and the test's server is in UTC.
const NOW: &str = "UTC_TIMESTAMP() + INTERVAL 8 HOUR";

/// Number, days since it was sent, channel, deleted.
const SENT: [(i32, &str, &str, i32); 5] =
    [(21, "14.1", "'wx_pub'", 0), (22, "13.9", "'wx_pub'", 0), (23, "20", "'wx_lite'", 0), (24, "20", "NULL", 1), (25, "20", "NULL", 0)];

/// Number, member, days since its receipt, status, whether the order, its first and its second item have comments.
const RECEIVED: [(i32, i32, &str, i32, i32, i32, i32); 7] = [
    (31, 1, "7.1", 30, 0, 0, 1),
    (32, 1, "6.9", 30, 0, 0, 0),
    (33, 1, "20", 30, 0, 1, 1),
    (34, 1, "20", 30, 1, 1, 1),
    (35, 1, "20", 40, 0, 0, 0),
    // An item has a comment that it doesn't know of. A member who is gone.
    (36, 1, "20", 30, 0, 0, 0),
    (37, 9, "20", 30, 0, 0, 0),
];

async fn open() -> Example {
    let example = Example::open("yudao", Database::fresh(Kind::MariaDb).await, NOW, include_str!("yudao.sql")).await;
    let database = &example.database;
    database
        .execute(
            "INSERT INTO member_user (id, status, register_ip, nickname, avatar, point, tenant_id)
               VALUES (1, 0, '', 'ann', 'a.png', 100, 1), (2, 0, '', 'bob', 'b.png', 0, 1);
             INSERT INTO product_spu (id, name, category_id, pic_url, status, stock, sales_count)
               VALUES (1, 'shirt', 1, 's.png', 1, 20, 30), (2, 'hat', 1, 'h.png', 1, 7, 8);
             INSERT INTO product_sku (id, spu_id, pic_url, stock, sales_count, properties)
               VALUES (10, 1, 's10.png', 15, 20, '[]'), (11, 1, 's11.png', 5, 10, NULL), (12, 2, 'h12.png', 7, 8, NULL);
             INSERT INTO promotion_coupon (id, template_id, name, status, user_id, take_type, use_price, valid_start_time, valid_end_time,
                                           product_scope, discount_type)
               VALUES (1, 1, 'c', 2, 1, 1, 0, '2026-01-01', '2099-01-01', 1, 1), (2, 1, 'c', 2, 1, 1, 0, '2026-01-01', '2026-02-01', 1, 1),
                      (3, 1, 'c', 2, 1, 1, 0, '2026-01-01', '2099-01-01', 1, 1), (4, 1, 'c', 1, 1, 1, 0, '2026-01-01', '2099-01-01', 1, 1);
             INSERT INTO promotion_seckill_activity (id, stock) VALUES (1, 3), (2, 3);
             INSERT INTO promotion_seckill_product (id, activity_id, sku_id, stock, activity_start_time, activity_end_time)
               VALUES (1, 1, 10, 3, '2026-01-01', '2026-01-01'), (2, 1, 11, 3, '2026-01-01', '2026-01-01'),
                      (3, 2, 10, 3, '2026-01-01', '2026-01-01');
             INSERT INTO promotion_bargain_activity (id, sku_id, stock) VALUES (1, 11, 4), (2, 11, 4);
             INSERT INTO promotion_point_activity (id, spu_id, status, sort, stock, total_stock) VALUES (1, 2, 0, 0, 5, 9), (2, 2, 0, 0, 5, 9);
             INSERT INTO promotion_point_product (id, activity_id, spu_id, sku_id, count, point, price, stock, activity_status)
               VALUES (1, 1, 2, 12, 1, 50, 0, 5, 0), (2, 1, 1, 10, 1, 50, 0, 5, 0), (3, 2, 2, 12, 1, 50, 0, 5, 0)",
        )
        .await;
    // Number, type, activity, member, coupon, pay order, minutes since its creation, status, deleted.
    for (id, kind, activity, member, coupon, pay_order, age, status, deleted) in [
        (1, 0, "NULL", 1, "1", "1", 121, 0, 0),
        (2, 1, "1", 1, "2", "NULL", 300, 0, 0),
        (3, 2, "1", 2, "0", "3", 300, 0, 0),
        (4, 4, "1", 2, "NULL", "NULL", 300, 0, 0),
        (5, 0, "NULL", 1, "NULL", "NULL", 100, 0, 0),
        // Paid, and the order has not heard of it. Begun, and nobody has asked the provider. Paid. Deleted.
        (6, 0, "NULL", 1, "NULL", "6", 300, 0, 0),
        (7, 0, "NULL", 1, "NULL", "7", 300, 0, 0),
        (8, 0, "NULL", 1, "3", "6", 300, 10, 0),
        (9, 0, "NULL", 1, "NULL", "NULL", 300, 0, 1),
        // A coupon that is not in use. A member who is gone, without points.
        (10, 0, "NULL", 1, "4", "NULL", 300, 0, 0),
        (11, 0, "NULL", 9, "NULL", "NULL", 300, 0, 0),
    ] {
        database
            .execute(&format!(
                "INSERT INTO trade_order (id, no, type, terminal, user_id, status, product_count, delivery_type, receiver_name,
                                          receiver_mobile, coupon_id, pay_order_id, seckill_activity_id, bargain_activity_id,
                                          point_activity_id, create_time, deleted, tenant_id)
                 VALUES ({id}, '{id}', {kind}, 20, {member}, {status}, 1, 1, 'r', '1', {coupon}, {pay_order}, {activity}, {activity},
                         {activity}, {NOW} - INTERVAL {age} MINUTE, {deleted}, 1)"
            ))
            .await;
    }
    // The second of order 1's has been given back already.
    database
        .execute(
            "INSERT INTO trade_order_item (order_id, user_id, spu_id, spu_name, sku_id, count, use_point, after_sale_status, tenant_id)
               VALUES (1, 1, 1, 'shirt', 10, 2, 30, 0, 1), (1, 1, 1, 'shirt', 11, 1, 7, 20, 1), (1, 1, 2, 'hat', 12, 1, 3, 0, 1),
                      (2, 1, 1, 'shirt', 10, 1, 20, 0, 1), (3, 2, 1, 'shirt', 11, 3, 5, 0, 1), (4, 2, 2, 'hat', 12, 1, 50, 0, 1),
                      (5, 1, 1, 'shirt', 10, 1, 1, 0, 1), (6, 1, 1, 'shirt', 10, 1, 1, 0, 1), (7, 1, 1, 'shirt', 10, 1, 1, 0, 1),
                      (8, 1, 1, 'shirt', 10, 1, 1, 0, 1), (9, 1, 1, 'shirt', 10, 1, 1, 0, 1), (10, 1, 1, 'shirt', 10, 1, 1, 0, 1),
                      (11, 9, 1, 'shirt', 10, 1, 0, 0, 1)",
        )
        .await;
    for (id, age, channel, deleted) in SENT {
        database
            .execute(&format!(
                "INSERT INTO trade_order (id, no, terminal, user_id, status, product_count, delivery_type, receiver_name, receiver_mobile,
                                          pay_channel_code, delivery_time, deleted, tenant_id)
                 VALUES ({id}, '{id}', 20, 1, 20, 1, 1, 'r', '1', {channel}, {NOW} - INTERVAL {age} * 24 * 60 MINUTE, {deleted}, 1)"
            ))
            .await;
    }
    for (id, member, age, status, all, first, second) in RECEIVED {
        database
            .execute(&format!(
                "INSERT INTO trade_order (id, no, terminal, user_id, status, product_count, delivery_type, receiver_name, receiver_mobile,
                                          receive_time, comment_status, tenant_id)
                 VALUES ({id}, '{id}', 20, {member}, {status}, 1, 1, 'r', '1', {NOW} - INTERVAL {age} * 24 * 60 MINUTE, {all}, 1);
                 INSERT INTO trade_order_item (id, order_id, user_id, spu_id, spu_name, sku_id, count, comment_status, tenant_id)
                   VALUES ({id}0, {id}, {member}, 1, 'shirt', 10, 1, {first}, 1), ({id}1, {id}, {member}, 2, 'hat', 12, 1, {second}, 1)"
            ))
            .await;
    }
    database
        .execute(
            "INSERT INTO product_comment (user_id, anonymous, order_id, order_item_id, spu_id, sku_id, sku_pic_url, scores, description_scores,
                                          benefit_scores, content)
               VALUES (1, 0, 36, 360, 1, 10, '', 4, 4, 4, 'good')",
        )
        .await;
    // Number, status, minutes until it expires, deleted, the status of its payment.
    for (id, status, left, deleted, payment) in [
        (1, 0, -1, 0, None),
        (3, 30, -60, 0, Some(30)),
        (6, 10, -60, 0, Some(10)),
        (7, 0, -60, 0, Some(0)),
        (8, 0, -60, 0, Some(30)),
        (9, 0, 20, 0, None),
        (10, 0, -60, 1, None),
    ] {
        database
            .execute(&format!(
                "INSERT INTO pay_order (id, app_id, merchant_order_id, subject, body, notify_url, price, status, user_ip, expire_time,
                                        refund_price, deleted)
                 VALUES ({id}, 1, '{id}', 's', 'b', 'n', 100, {status}, '', {NOW} + INTERVAL {left} MINUTE, 0, {deleted})"
            ))
            .await;
        if let Some(payment) = payment {
            database
                .execute(&format!(
                    "INSERT INTO pay_order_extension (no, order_id, channel_id, channel_code, user_ip, status)
                     VALUES ('{id}', {id}, 1, 'wx_pub', '', {payment})"
                ))
                .await;
        }
    }
    let tables = database.column("SELECT table_name FROM information_schema.tables WHERE table_schema = database()").await;
    for table in tables.into_iter().flatten() {
        database.execute(&format!("UPDATE {table} SET update_time = '2026-01-01'")).await;
    }
    example
}

/// yudao's jobs, for the orders that the rules take.
struct Jobs<'d>(&'d Database);

impl Jobs<'_> {
    /// In the zone of yudao's connections, in which the columns' own times are.
    async fn execute(&self, sql: &str) -> u64 {
        self.0.execute(&format!("SET time_zone = '+08:00'; {sql}")).await
    }

    async fn ids(&self, sql: &str) -> Vec<i64> {
        self.0.column(sql).await.into_iter().flatten().map(|id| id.parse().expect("a number")).collect()
    }

    async fn count(&self, sql: &str) -> i64 {
        self.0.number(sql).await
    }

    async fn log(&self, order: i64, from: i32, to: i32, kind: i32, content: &str) {
        self.execute(&format!(
            "INSERT INTO trade_order_log (user_id, user_type, order_id, before_status, after_status, operate_type, content, tenant_id)
             VALUES (0, 0, {order}, {from}, {to}, {kind}, '{content}', 1)"
        ))
        .await;
    }

    async fn cancel_all(&self) {
        let due =
            format!("SELECT id FROM trade_order WHERE status = 0 AND deleted = 0 AND create_time < {NOW} - INTERVAL 2 HOUR ORDER BY id");
        for order in self.ids(&due).await {
            let of_order = |column: &str| format!("SELECT COALESCE({column}, 0) FROM trade_order WHERE id = {order}");
            let pay_order = self.count(&of_order("pay_order_id")).await;
            let is_paid =
                self.count(&format!("SELECT COUNT(*) FROM pay_order WHERE id = {pay_order} AND status = 10 AND deleted = 0")).await > 0;
            // Order 7 is the rule's to leave alone, until PayOrderExpireJob has asked the provider.
            if is_paid || order == 7 {
                continue;
            }
            let coupon = self.count(&of_order("coupon_id")).await;
            let in_use = format!("SELECT COUNT(*) FROM promotion_coupon WHERE id = {coupon} AND status = 2 AND deleted = 0");
            if coupon > 0 && self.count(&in_use).await == 0 {
                continue;
            }
            self.cancel(order, coupon).await;
        }
    }

    async fn cancel(&self, order: i64, coupon: i64) {
        let of_order = |column: &str| format!("SELECT COALESCE({column}, 0) FROM trade_order WHERE id = {order}");
        self.execute(&format!(
            "UPDATE trade_order SET status = 40, cancel_type = 10, cancel_time = {NOW} WHERE id = {order} AND status = 0"
        ))
        .await;
        let (kind, user) = (self.count(&of_order("type")).await, self.count(&of_order("user_id")).await);
        let items = format!("FROM trade_order_item WHERE order_id = {order} AND after_sale_status = 0 AND deleted = 0");
        let mut points = 0;
        for item in self.ids(&format!("SELECT id {items}")).await {
            let of_item = |column: &str| format!("SELECT {column} FROM trade_order_item WHERE id = {item}");
            let (sku, count) = (self.count(&of_item("sku_id")).await, self.count(&of_item("count")).await);
            points += self.count(&of_item("use_point")).await;
            let spu = self.count(&format!("SELECT spu_id FROM product_sku WHERE id = {sku}")).await;
            for (table, id) in [("product_sku", sku), ("product_spu", spu)] {
                self.execute(&format!("UPDATE {table} SET stock = stock + {count}, sales_count = sales_count - {count} WHERE id = {id}"))
                    .await;
            }
            let activity = |column: &'static str| async move { self.count(&of_order(column)).await };
            let goods = match kind {
                1 => Some(("promotion_seckill", activity("seckill_activity_id").await)),
                4 => Some(("promotion_point", activity("point_activity_id").await)),
                2 => {
                    let activity = activity("bargain_activity_id").await;
                    self.execute(&format!("UPDATE promotion_bargain_activity SET stock = stock + {count} WHERE id = {activity}")).await;
                    None
                }
                _ => None,
            };
            if let Some((table, activity)) = goods {
                self.execute(&format!(
                    "UPDATE {table}_product SET stock = stock + {count} WHERE activity_id = {activity} AND sku_id = {sku};
                     UPDATE {table}_activity SET stock = stock + {count} WHERE id = {activity}"
                ))
                .await;
            }
        }
        if coupon > 0 {
            let status = self.count(&format!("SELECT IF(valid_end_time < {NOW}, 3, 1) FROM promotion_coupon WHERE id = {coupon}")).await;
            self.execute(&format!("UPDATE promotion_coupon SET status = {status} WHERE id = {coupon} AND status = 2")).await;
        }
        if points > 0 {
            let total = self.count(&format!("SELECT point FROM member_user WHERE id = {user}")).await + points;
            self.execute(&format!(
                "UPDATE member_user SET point = point + {points} WHERE id = {user};
                 INSERT INTO member_point_record (user_id, biz_id, biz_type, title, description, point, total_point, tenant_id)
                 VALUES ({user}, '{order}', 12, '订单超时未支付', '退回 {points} 积分', {points}, {total}, 1)"
            ))
            .await;
        }
        self.log(order, 0, 40, 41, "超时未支付，order-closer 取消订单").await;
    }

    async fn receive_all(&self) {
        // Receipts of which WeChat is to be told are the rule's to leave alone.
        let due = format!(
            "SELECT id FROM trade_order WHERE status = 20 AND deleted = 0 AND delivery_time < {NOW} - INTERVAL 14 DAY
                AND (pay_channel_code IS NULL OR pay_channel_code <> 'wx_lite') ORDER BY id"
        );
        for order in self.ids(&due).await {
            self.execute(&format!("UPDATE trade_order SET status = 30, receive_time = {NOW} WHERE id = {order} AND status = 20")).await;
            self.log(order, 20, 30, 31, "超时未确认，order-closer 确认收货").await;
        }
    }

    async fn comment_all(&self) {
        let due = format!(
            "SELECT id FROM trade_order WHERE status = 30 AND deleted = 0 AND comment_status = 0 AND receive_time < {NOW} - INTERVAL 7 DAY
              ORDER BY id"
        );
        for order in self.ids(&due).await {
            let items =
                self.ids(&format!("SELECT id FROM trade_order_item WHERE order_id = {order} AND comment_status = 0 ORDER BY id")).await;
            let has_comment = format!(
                "SELECT COUNT(*) FROM product_comment JOIN trade_order_item ON trade_order_item.id = order_item_id
                  WHERE trade_order_item.order_id = {order} AND trade_order_item.comment_status = 0"
            );
            if items.is_empty() || self.count(&has_comment).await > 0 {
                continue;
            }
            for item in items {
                self.execute(&format!(
                    "INSERT INTO product_comment (user_id, anonymous, order_id, order_item_id, spu_id, spu_name, sku_id, sku_pic_url,
                                                  sku_properties, scores, description_scores, benefit_scores, content, tenant_id)
                     SELECT i.user_id, 0, i.order_id, i.id, p.id, p.name, s.id, s.pic_url, s.properties, 5, 5, 5, '', 1
                       FROM trade_order_item i, product_sku s, product_spu p WHERE i.id = {item} AND s.id = i.sku_id AND p.id = s.spu_id;
                     UPDATE product_comment, member_user SET user_nickname = nickname, user_avatar = avatar
                      WHERE order_item_id = {item} AND member_user.id = product_comment.user_id;
                     UPDATE trade_order_item SET comment_status = 1 WHERE id = {item}"
                ))
                .await;
            }
            self.execute(&format!("UPDATE trade_order SET comment_status = 1, finish_time = {NOW} WHERE id = {order}")).await;
            self.log(order, 30, 30, 34, "超时未评价，order-closer 默认好评").await;
        }
    }

    /// Without a provider to ask: what was begun stays.
    async fn expire_all(&self) {
        for order in self.ids(&format!("SELECT id FROM pay_order WHERE status = 0 AND deleted = 0 AND expire_time < {NOW}")).await {
            let begun = format!("SELECT COUNT(*) FROM pay_order_extension WHERE order_id = {order} AND status <> 30");
            if self.count(&begun).await == 0 {
                self.execute(&format!("UPDATE pay_order SET status = 30 WHERE id = {order} AND status = 0")).await;
            }
        }
    }
}

/// What is the same in both databases. Which of a member's orders comes first is not, nor the balance that its record has.
fn without_balances(changes: Vec<String>) -> Vec<String> {
    changes.iter().map(|change| change.split(' ').filter(|word| !word.starts_with("total_point=")).collect::<Vec<_>>().join(" ")).collect()
}

#[tokio::test]
async fn the_daemon_changes_what_yudaos_jobs_change() {
    let yudao = open().await;
    let expected = yudao
        .changed(async |database| {
            let jobs = Jobs(database);
            jobs.cancel_all().await;
            jobs.receive_all().await;
            jobs.comment_all().await;
            jobs.expire_all().await;
        })
        .await;
    for line in [
        "trade_order 1: status 0 -> 40",
        "trade_order 11: status 0 -> 40",
        "member_user 1: point 100 -> 153",
        "member_user 2: point 0 -> 55",
        "product_sku 10: stock 15 -> 19",
        "product_spu 1: stock 20 -> 27",
        "promotion_coupon 1: status 2 -> 1",
        "promotion_coupon 2: status 2 -> 3",
        "promotion_seckill_activity 1: stock 3 -> 4",
        "promotion_bargain_activity 1: stock 4 -> 7",
        "promotion_point_product 1: stock 5 -> 6",
        "trade_order 25: status 20 -> 30",
        "trade_order 37: finish_time NULL -> now",
        "pay_order 8: status 0 -> 30",
    ] {
        assert!(expected.iter().any(|change| change == line), "{line}: {expected:#?}");
    }

    let example = open().await;
    let left = "SELECT (SELECT COUNT(*) FROM trade_order WHERE id IN (1, 2, 3, 4, 11) AND status = 0)
                     + (SELECT COUNT(*) FROM trade_order WHERE id IN (21, 25) AND status = 20)
                     + (SELECT COUNT(*) FROM trade_order WHERE id IN (31, 37) AND comment_status = 0)
                     + (SELECT COUNT(*) FROM pay_order WHERE id IN (1, 8) AND status = 0)";
    let expected = without_balances(expected);
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    assert_changes(without_balances(example.close(left).await), &expected);
    for (member, balance) in [(1, 153), (2, 55)] {
        let last = format!("SELECT MAX(total_point) FROM member_point_record WHERE user_id = {member}");
        assert_eq!(example.database.number(&last).await, balance);
    }
}

/// As soon as yudao has asked the provider, and closed the payment, its order closes.
#[tokio::test]
async fn an_order_whose_payment_was_begun_waits_for_the_answer() {
    let example = open().await;
    let answered = "UPDATE pay_order_extension SET status = 30 WHERE order_id = 7; UPDATE pay_order SET status = 30 WHERE id = 7";
    let left = "SELECT COUNT(*) FROM trade_order WHERE id = 7 AND status = 0";
    example.close("SELECT COUNT(*) FROM trade_order WHERE id IN (1, 2, 3, 4) AND status = 0").await;
    assert_eq!(example.database.number(left).await, 1);
    example.database.execute(answered).await;
    let changes = example.close(left).await;
    assert!(changes.iter().any(|change| change == "trade_order 7: status 0 -> 40"), "{changes:#?}");
}
