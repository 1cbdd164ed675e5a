//! Saleor.

use super::{Example, assert_changes};
use crate::support::{Database, Kind};

fn uuid(kind: u8, number: u8) -> String {
    format!("0000000{kind}-0000-4000-8000-{number:012}")
}

async fn open() -> Example {
    let example = Example::open("saleor", Database::fresh(Kind::Postgres).await, "now()", include_str!("saleor.sql")).await;
    let database = &example.database;
    let (limited, free) = (uuid(3, 1), uuid(3, 2));
    database
        .execute(&format!(
            "INSERT INTO account_user (id, email) VALUES (1, 'ann@example.com');
             INSERT INTO channel_channel (id, name, is_active, slug, currency_code, expire_orders_after)
               VALUES (1, 'Shop', true, 'shop', 'EUR', 60), (2, 'Slow', true, 'slow', 'EUR', 180), (3, 'Never', true, 'never', 'EUR', NULL),
                      (4, 'Zero', true, 'zero', 'EUR', 0);
             INSERT INTO discount_voucher (id, usage_limit) VALUES (1, 10), (2, NULL);
             INSERT INTO discount_vouchercode (id, code, used, voucher_id) VALUES ('{limited}', 'TEN', 6, 1), ('{free}', 'FREE', 6, 2);
             INSERT INTO discount_vouchercustomer (id, voucher_code_id, customer_email)
               VALUES (1, '{limited}', 'ann@example.com'), (2, '{limited}', 'guest@example.com'), (3, '{free}', 'ann@example.com'),
                      (4, '{limited}', 'other@example.com');
             INSERT INTO warehouse_stock (id, warehouse_id, product_variant_id, quantity, quantity_allocated)
               VALUES (1, '{limited}', 1, 50, 22), (2, '{limited}', 2, 9, 2)"
        ))
        .await;
    // Number, status, channel, minutes since its creation, user, address, voucher.
    for (number, status, channel, age, user, email, voucher) in [
        (1, "unconfirmed", 1, 61, "1", "old@example.com", "TEN"),
        (2, "unconfirmed", 1, 5_000, "NULL", "guest@example.com", "TEN"),
        (3, "unconfirmed", 2, 181, "1", "ann@example.com", "FREE"),
        (4, "unconfirmed", 1, 59, "1", "ann@example.com", "TEN"),
        (5, "unconfirmed", 2, 179, "1", "ann@example.com", "TEN"),
        (6, "unconfirmed", 3, 5_000, "1", "ann@example.com", "TEN"),
        (7, "unconfirmed", 4, 5_000, "1", "ann@example.com", "TEN"),
        // With a payment, and with a transaction: offline or not, somebody is paying.
        (8, "unconfirmed", 1, 5_000, "1", "ann@example.com", "TEN"),
        (9, "unconfirmed", 1, 5_000, "1", "ann@example.com", "TEN"),
        (10, "unfulfilled", 1, 5_000, "1", "ann@example.com", "TEN"),
        (11, "draft", 1, 5_000, "1", "ann@example.com", "TEN"),
    ] {
        let (id, line) = (uuid(1, number), uuid(2, number));
        database
            .execute(&format!(
                "INSERT INTO order_order (id, number, status, channel_id, created_at, updated_at, user_id, user_email, voucher_code)
                   VALUES ('{id}', {number}, '{status}', {channel}, now() - interval '1 minute' * {age}, '2026-01-01', {user}, '{email}', '{voucher}');
                 INSERT INTO order_orderline (id, created_at, order_id, variant_id, product_name, quantity, is_shipping_required, is_gift_card)
                   VALUES ('{line}', now(), '{id}', 1, 'A shirt', 2, true, false);
                 INSERT INTO warehouse_allocation (id, order_line_id, stock_id, quantity_allocated) VALUES ({number}, '{line}', 1, 2)"
            ))
            .await;
    }
    let (eight, nine, two, line) = (uuid(1, 8), uuid(1, 9), uuid(1, 2), uuid(2, 20));
    database
        .execute(&format!(
            "INSERT INTO payment_payment (gateway, is_active, charge_status, order_id) VALUES ('offline', true, 'not-charged', '{eight}');
             INSERT INTO payment_transactionitem (token, name, order_id) VALUES ('{nine}', 'Card', '{nine}');
             INSERT INTO order_orderline (id, created_at, order_id, variant_id, product_name, quantity, is_shipping_required, is_gift_card)
               VALUES ('{line}', now(), '{two}', 2, 'Shoes', 3, true, false);
             INSERT INTO warehouse_allocation (id, order_line_id, stock_id, quantity_allocated) VALUES (20, '{line}', 2, 2), (21, '{line}', 1, 0)"
        ))
        .await;
    example
}

#[tokio::test]
async fn expires_as_saleor_does() {
    let example = open().await;
    let mut expected: Vec<String> = [
        // Both uses of the code with a limit; the other has none, and is not counted.
        format!("discount_vouchercode {}: used 6 -> 4", uuid(3, 1)),
        "- discount_vouchercustomer 1".into(),
        "- discount_vouchercustomer 2".into(),
        "- discount_vouchercustomer 3".into(),
        "warehouse_stock 1: quantity_allocated 22 -> 16".into(),
        "warehouse_stock 2: quantity_allocated 2 -> 0".into(),
        "warehouse_allocation 1: quantity_allocated 2 -> 0".into(),
        "warehouse_allocation 2: quantity_allocated 2 -> 0".into(),
        "warehouse_allocation 3: quantity_allocated 2 -> 0".into(),
        "warehouse_allocation 20: quantity_allocated 2 -> 0".into(),
    ]
    .into();
    for id in [1, 2, 3].map(|number| uuid(1, number)) {
        expected.push(format!("order_order {id}: status unconfirmed -> expired"));
        expected.push(format!("order_order {id}: expired_at NULL -> now"));
        expected.push(format!("+ order_orderevent: date=now order_id={id} parameters={{}} type=expired"));
    }
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    assert_changes(example.reconcile((3, 0)).await, &expected);
}
