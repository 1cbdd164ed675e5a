//! Rows of an article, a rule or a coupon that a checkout holds keep no order waiting that has nothing to do with them, in tables as
//! small as those in which a server finds it cheaper to read, and lock, all rows.

use super::{Example, magento, recorded, woocommerce};
use crate::support::{Kind, mariadb::MariaDb};

/// Closes these many orders, `failed` others for reasons of their own, while a transaction holds rows of no order.
async fn closes_beside(example: &Example, held: &[&str], (closed, failed): (u64, u64)) {
    let mut holder = example.database.begin().await;
    for statement in held {
        assert_ne!(holder.execute(statement).await, 0, "{statement}");
    }
    let report = example.reconcile_once(if failed == 0 { 0 } else { 75 }).await;
    assert_eq!((&report["closed"], &report["failed"]), (&closed.into(), &failed.into()), "{report:#}");
    holder.rollback().await;
}

#[tokio::test]
async fn a_held_product_of_prestashop() {
    let example = recorded::open("prestashop", Kind::MariaDb, "NOW()").await;
    let held = "UPDATE ps_stock_available SET quantity = quantity + 1 WHERE id_stock_available = 6";
    closes_beside(&example, &[held], (3, 0)).await;
}

#[tokio::test]
async fn a_held_product_of_shopware() {
    let example = recorded::open("shopware", Kind::MariaDb, "UTC_TIMESTAMP()").await;
    let (id, version) = ("0x000000000000000000000000000000c4", "0x0fa91ce3e96a4bc2be4bd9ce752c3425");
    let product = format!("INSERT INTO product (id, version_id, product_number, stock) VALUES ({id}, {version}, 'hat', 5)");
    example.database.execute(&product).await;
    closes_beside(&example, &[&format!("UPDATE product SET stock = stock + 1 WHERE id = {id}")], (3, 0)).await;
}

#[tokio::test]
async fn a_held_product_and_a_held_coupon_of_woocommerce() {
    let example = woocommerce::open(MariaDb::shared()).await;
    example
        .database
        .execute(
            "INSERT INTO wp_posts (ID, post_type, post_status, post_title, post_date, post_modified, post_modified_gmt,
                                   post_content, post_excerpt, to_ping, pinged, post_content_filtered) VALUES
               (40, 'product', 'publish', 'A hat', '2026-01-01', '2026-01-01', '2026-01-01', '', '', '', '', ''),
               (41, 'shop_coupon', 'publish', 'winter', '2026-01-01', '2026-01-01', '2026-01-01', '', '', '', '', '');
             INSERT INTO wp_wc_product_meta_lookup (product_id, stock_quantity, stock_status) VALUES (40, 5, 'instock');
             INSERT INTO wp_postmeta (post_id, meta_key, meta_value) VALUES
               (40, '_manage_stock', 'yes'), (40, '_stock', '5'), (40, '_stock_status', 'instock'), (41, 'usage_count', '3');
             INSERT INTO wp_wc_product_attributes_lookup VALUES (40, 40, 'pa_color', 1, 0, 1)",
        )
        .await;
    let held = [
        "UPDATE wp_posts SET post_title = CONCAT(post_title, '!') WHERE ID IN (40, 41)",
        "UPDATE wp_postmeta SET meta_value = CONCAT(meta_value, '1') WHERE post_id IN (40, 41)",
        "UPDATE wp_wc_product_meta_lookup SET stock_quantity = 6 WHERE product_id = 40",
        "UPDATE wp_wc_product_attributes_lookup SET in_stock = 0 WHERE product_or_parent_id = 40",
    ];
    closes_beside(&example, &held, (3, 0)).await;
}

#[tokio::test]
async fn a_held_coupon_of_magento() {
    let example = magento::open().await;
    let held = [
        "UPDATE salesrule_coupon SET times_used = times_used + 1 WHERE coupon_id = 2",
        "UPDATE salesrule_coupon_usage SET times_used = times_used + 1 WHERE coupon_id = 2",
        "UPDATE salesrule_customer SET times_used = times_used + 1 WHERE rule_id = 12",
        "UPDATE salesrule SET times_used = times_used + 1 WHERE rule_id = 12",
        "UPDATE downloadable_link_purchased_item SET status = 'expired' WHERE item_id = 4",
        "UPDATE sales_order_grid SET status = 'complete' WHERE entity_id = 5",
    ];
    closes_beside(&example, &held, (3, 1)).await;
}
