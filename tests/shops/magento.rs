//! Magento 2.

use super::{Example, assert_changes};
use crate::support::{Database, Kind};

pub(super) async fn open() -> Example {
    let database = Database::fresh(Kind::MariaDb).await;
    let example = Example::open("magento", database, "NOW()", include_str!("magento.sql")).await;
    let database = &example.database;
    database
        .execute(
            "INSERT INTO store_website (website_id, code) VALUES (1, 'base'), (2, 'no_stock');
             INSERT INTO store (store_id, code, website_id, name) VALUES (1, 'default', 1, 'Default'), (2, 'other', 2, 'Other');
             INSERT INTO inventory_stock_sales_channel VALUES ('website', 'base', 3);
             INSERT INTO catalog_product_entity (entity_id, type_id, sku)
               VALUES (1, 'simple', 'shirt'), (2, 'configurable', 'shoes'), (3, 'simple', 'shoes-42'), (4, 'giftcard', 'card'),
                      (6, 'simple', 'sticker'), (7, 'downloadable', 'song'), (8, 'simple', 'hat');
             INSERT INTO cataloginventory_stock_item (product_id, stock_id, manage_stock, use_config_manage_stock)
               VALUES (1, 1, 0, 1), (2, 1, 0, 1), (3, 1, 0, 1), (6, 1, 0, 0), (7, 1, 0, 1), (8, 1, 1, 0);
             INSERT INTO salesrule (rule_id, times_used) VALUES (1, 9), (2, 1), (12, 5);
             INSERT INTO salesrule_coupon (coupon_id, rule_id, code, times_used) VALUES (1, 1, 'TEN', 4), (2, 12, 'OTHER', 4);
             INSERT INTO salesrule_coupon_usage VALUES (1, 7, 2), (1, 8, 1), (2, 7, 3);
             INSERT INTO salesrule_customer (rule_customer_id, rule_id, customer_id, times_used) VALUES (1, 1, 7, 2), (2, 2, 7, 1), (3, 12, 7, 1), (4, 1, 8, 1)",
        )
        .await;
    // Number, status, state, store, customer, minutes since its last change, coupon, rules, authorized.
    for (id, status, state, store, customer, age, coupon, rules, authorized) in [
        (1, "pending_payment", "pending_payment", 1, "7", 481, "'TEN'", "'1,2'", 0),
        (2, "pending_payment", "new", 1, "NULL", 9_000, "'TEN'", "'1'", 0),
        (3, "pending_payment", "pending_payment", 1, "7", 9_000, "NULL", "NULL", 0),
        (4, "pending_payment", "pending_payment", 1, "7", 479, "'TEN'", "'1'", 0),
        (5, "processing", "processing", 1, "7", 9_000, "'TEN'", "'1'", 0),
        // By check or on delivery.
        (6, "pending", "new", 1, "7", 9_000, "'TEN'", "'1'", 0),
        (7, "pending_payment", "pending_payment", 1, "7", 9_000, "'TEN'", "'1'", 50),
        (8, "pending_payment", "payment_review", 1, "7", 9_000, "'TEN'", "'1'", 0),
        // With a bundle; with an invoice.
        (9, "pending_payment", "pending_payment", 1, "7", 9_000, "'TEN'", "'1'", 0),
        (10, "pending_payment", "pending_payment", 1, "7", 9_000, "'TEN'", "'1'", 0),
        // Of a website that sells from no stock.
        (11, "pending_payment", "pending_payment", 2, "7", 9_000, "'TEN'", "'1'", 0),
        // With an authorization that is open.
        (12, "pending_payment", "pending_payment", 1, "7", 9_000, "'TEN'", "'1'", 0),
    ] {
        database
            .execute(&format!(
                "INSERT INTO sales_order (entity_id, status, state, store_id, customer_id, coupon_code, applied_rule_ids, increment_id, created_at, updated_at,
                                          subtotal, base_subtotal, tax_amount, base_tax_amount, shipping_amount, base_shipping_amount,
                                          discount_amount, base_discount_amount, grand_total, base_grand_total)
                   VALUES ({id}, '{status}', '{state}', {store}, {customer}, {coupon}, {rules}, '00000{id}', '2026-01-01', NOW() - INTERVAL {age} MINUTE,
                           100, 110, 19, 20, 5, 6, -10, -11, 114, 125);
                 INSERT INTO sales_order_grid (entity_id, status, store_id, increment_id, updated_at) VALUES ({id}, '{status}', {store}, '00000{id}', '2026-01-01');
                 INSERT INTO sales_order_payment (parent_id, method, amount_ordered, amount_authorized) VALUES ({id}, 'card', 114, {authorized});
                 INSERT INTO sales_order_item (item_id, order_id, product_id, product_type, sku, qty_ordered, base_tax_amount, discount_tax_compensation_amount)
                   VALUES ({id}0, {id}, 1, 'simple', 'shirt-with-print', 2, 20, 1)"
            ))
            .await;
    }
    database
        .execute(
            "INSERT INTO sales_order_item (item_id, order_id, parent_item_id, product_id, product_type, sku, qty_ordered) VALUES
               (21, 2, NULL, 2, 'configurable', 'shoes-42', 3), (22, 2, 21, 3, 'simple', 'shoes-42', 3), (23, 2, NULL, 4, 'giftcard', 'card', 1),
               (24, 2, NULL, 99, 'simple', 'gone', 1), (91, 9, NULL, 5, 'bundle', 'set', 1),
               (31, 3, NULL, 2, 'configurable', 'shoes-42-engraved', 4), (32, 3, 31, 3, 'simple', 'shoes-42', 4),
               (33, 3, NULL, 6, 'simple', 'sticker', 5), (34, 3, NULL, 7, 'downloadable', 'song', 1), (35, 3, NULL, 8, 'simple', 'hat', 6);
             UPDATE sales_order_item SET product_options = '{\"simple_name\":\"Shoes\",\"simple_sku\":\"shoes-42\"}' WHERE item_id IN (21, 31);
             UPDATE sales_order_item SET product_options = '{\"real_product_type\":\"downloadable\"}' WHERE item_id = 24;
             UPDATE sales_order_item SET qty_invoiced = 1 WHERE order_id = 10;
             INSERT INTO downloadable_link_purchased_item (item_id, order_item_id, status, updated_at)
               VALUES (1, 34, 'pending_payment', '2026-01-01'), (2, 24, 'pending_payment', '2026-01-01'),
                      (3, 40, 'pending_payment', '2026-01-01'), (4, 10, 'available', '2026-01-01');
             INSERT INTO sales_payment_transaction (order_id, payment_id, txn_id, txn_type, is_closed)
               VALUES (3, 3, 'a', 'authorization', 1), (3, 3, 'b', 'order', 0), (12, 12, 'c', 'authorization', 0)",
        )
        .await;
    example
}

#[tokio::test]
async fn cancels_as_magento_does() {
    let example = open().await;
    let updated = example.database.column("SELECT updated_at FROM sales_order WHERE entity_id <= 3 ORDER BY entity_id").await;
    let mut expected: Vec<String> = [
        "salesrule 1: times_used 9 -> 7",
        "salesrule 2: times_used 1 -> 0",
        "salesrule_coupon 1: times_used 4 -> 2",
        "salesrule_coupon_usage 1/7: times_used 2 -> 1",
        "salesrule_customer 1: times_used 2 -> 1",
        "salesrule_customer 2: times_used 1 -> 0",
    ]
    .map(str::to_owned)
    .into();
    for (id, updated) in (1..).zip(updated) {
        let updated = updated.expect("it is never NULL");
        expected.extend([
            format!("sales_order {id}: status pending_payment -> canceled"),
            format!("sales_order {id}: state {} -> canceled", if id == 2 { "new" } else { "pending_payment" }),
            format!("sales_order {id}: updated_at {updated} -> now"),
            format!("sales_order_grid {id}: status pending_payment -> canceled"),
            format!("sales_order_grid {id}: updated_at 2026-01-01 00:00:00 -> now"),
            format!("sales_order_item {id}0: qty_canceled 0.0000 -> 2.0000"),
            format!("sales_order_item {id}0: tax_canceled NULL -> 20.0000"),
            format!("sales_order_item {id}0: discount_tax_compensation_canceled NULL -> 1.0000"),
        ]);
        for (column, amount) in [
            ("subtotal", 100),
            ("base_subtotal", 110),
            ("tax", 19),
            ("base_tax", 20),
            ("shipping", 5),
            ("base_shipping", 6),
            ("discount", 10),
            ("base_discount", 11),
            ("total", 114),
            ("base_total", 125),
        ] {
            expected.push(format!("sales_order {id}: {column}_canceled NULL -> {amount}.0000"));
        }
    }
    for (item, quantity) in [(21, 3), (23, 1), (24, 1), (31, 4), (33, 5), (34, 1), (35, 6)] {
        expected.extend([
            format!("sales_order_item {item}: qty_canceled 0.0000 -> {quantity}.0000"),
            format!("sales_order_item {item}: tax_canceled NULL -> 0.0000"),
            format!("sales_order_item {item}: discount_tax_compensation_canceled NULL -> 0.0000"),
        ]);
    }
    // Of an item within another one nothing is counted.
    for item in [22, 32] {
        expected.extend([
            format!("sales_order_item {item}: tax_canceled NULL -> 0.0000"),
            format!("sales_order_item {item}: discount_tax_compensation_canceled NULL -> 0.0000"),
        ]);
    }
    for link in [1, 2] {
        expected.extend([
            format!("downloadable_link_purchased_item {link}: status pending_payment -> expired"),
            format!("downloadable_link_purchased_item {link}: updated_at 2026-01-01 00:00:00 -> now"),
        ]);
    }
    // A product by its own SKU, whatever options the item has; a configurable one by the chosen product's; gift cards have no
    // stock, and that of stickers is not managed.
    for (id, sku, quantity) in [
        (1, "shirt", 2),
        (2, "shirt", 2),
        (2, "shoes-42", 3),
        (2, "gone", 1),
        (3, "shirt", 2),
        (3, "shoes-42", 4),
        (3, "song", 1),
        (3, "hat", 6),
    ] {
        expected.push(format!(
            "+ inventory_reservation: metadata={{\"event_type\":\"order_canceled\",\"object_type\":\"order\",\"object_id\":\"{id}\",\
             \"object_increment_id\":\"00000{id}\"}} quantity={quantity}.0000 sku={sku} stock_id=3"
        ));
    }
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    assert_changes(example.reconcile((3, 1)).await, &expected);
}

/// Magento reserves nothing where stock is not subtracted or not managed; a product that is gone counts as managed.
#[tokio::test]
async fn reserves_what_the_shop_manages() {
    for (path, expected) in [
        ("cataloginventory/options/can_subtract", &[][..]),
        ("cataloginventory/item_options/manage_stock", &[("gone", "1.0000"), ("hat", "6.0000")]),
    ] {
        let example = open().await;
        example.database.execute(&format!("INSERT INTO core_config_data (path, value) VALUES ('{path}', '0')")).await;
        example.reconcile((3, 1)).await;
        let reserved = example.database.rows("SELECT sku, quantity FROM inventory_reservation ORDER BY sku").await;
        let expected: Vec<_> = expected.iter().map(|&(sku, quantity)| vec![Some(sku.to_owned()), Some(quantity.to_owned())]).collect();
        assert_eq!(reserved, expected, "{path}");
    }
}
