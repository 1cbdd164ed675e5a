//! WooCommerce, on a server whose own zone is not that of the columns in GMT.

use std::{path::Path, process::Command};

use super::{Example, assert_changes};
use crate::support::{Database, Redis, mariadb::MariaDb};

pub(super) async fn open(server: &MariaDb) -> Example {
    let database = Database::on_mariadb(server).await;
    let example = Example::open("woocommerce", database, "UTC_TIMESTAMP()", include_str!("woocommerce.sql")).await;
    let database = &example.database;
    // Number, status, type, customer, created via, minutes since its last change, counted coupons, stock taken.
    for (id, status, kind, customer, via, age, counted, reduced) in [
        (1, "wc-pending", "shop_order", 7, "checkout", 61, 1, 0),
        (2, "wc-pending", "shop_order", 0, "store-api", 600, 1, 1),
        (3, "wc-pending", "shop_order", 0, "checkout", 600, 0, 0),
        (4, "wc-pending", "shop_order", 7, "checkout", 59, 1, 1),
        (5, "wc-processing", "shop_order", 7, "checkout", 600, 1, 1),
        (6, "wc-on-hold", "shop_order", 7, "checkout", 600, 1, 1),
        (7, "wc-pending", "shop_order", 7, "admin", 600, 1, 1),
        (10, "wc-pending", "shop_order", 7, "checkout", 600, 1, 1),
        (8, "wc-pending", "shop_order_refund", 7, "checkout", 600, 1, 1),
        (9, "wc-checkout-draft", "shop_order", 7, "store-api", 600, 1, 1),
    ] {
        let sql = format!(
            "INSERT INTO wp_wc_orders (id, status, type, customer_id, billing_email, date_created_gmt, date_updated_gmt)
               VALUES ({id}, '{status}', '{kind}', {customer}, 'guest@example.com', '2026-01-01', UTC_TIMESTAMP() - INTERVAL {age} MINUTE);
             INSERT INTO wp_wc_order_operational_data (order_id, created_via, coupon_usages_are_counted, order_stock_reduced)
               VALUES ({id}, '{via}', {counted}, {reduced});
             INSERT INTO wp_wc_order_stats (order_id, status, customer_id) VALUES ({id}, '{status}', 1);
             INSERT INTO wp_wc_reserved_stock (order_id, product_id, stock_quantity) VALUES ({id}, 20, 1);
             INSERT INTO wp_woocommerce_order_items (order_item_id, order_item_name, order_item_type, order_id)
               VALUES ({id}0, 'A shirt', 'line_item', {id}), ({id}1, 'Spring', 'coupon', {id});
             INSERT INTO wp_woocommerce_order_itemmeta (order_item_id, meta_key, meta_value)
               VALUES ({id}0, '_product_id', '20'), ({id}0, '_variation_id', ''), ({id}0, '_qty', '2')"
        );
        database.execute(&sql).await;
    }
    // Order 2 has taken its stock: a simple product, a variation with stock of its own, and one whose product keeps it.
    database
        .execute(
            "INSERT INTO wp_posts (ID, post_type, post_status, post_title, post_date, post_modified, post_modified_gmt,
                                   post_content, post_excerpt, to_ping, pinged, post_content_filtered) VALUES
               (20, 'product', 'publish', 'A shirt', '2026-01-01', '2026-01-01', '2026-01-01', '', '', '', '', ''),
               (21, 'product', 'publish', 'Shoes', '2026-01-01', '2026-01-01', '2026-01-01', '', '', '', '', ''),
               (22, 'product_variation', 'publish', 'Shoes, 42', '2026-01-01', '2026-01-01', '2026-01-01', '', '', '', '', ''),
               (23, 'product_variation', 'publish', 'Shoes, 43', '2026-01-01', '2026-01-01', '2026-01-01', '', '', '', '', ''),
               (24, 'product_variation', 'publish', 'Shoes, 44', '2026-01-01', '2026-01-01', '2026-01-01', '', '', '', '', ''),
               (25, 'product', 'publish', 'A voucher', '2026-01-01', '2026-01-01', '2026-01-01', '', '', '', '', ''),
               (26, 'product', 'publish', 'Trousers', '2026-01-01', '2026-01-01', '2026-01-01', '', '', '', '', ''),
               (27, 'product_variation', 'publish', 'Trousers, 48', '2026-01-01', '2026-01-01', '2026-01-01', '', '', '', '', ''),
               (28, 'product_variation', 'publish', 'Trousers, 50', '2026-01-01', '2026-01-01', '2026-01-01', '', '', '', '', ''),
               (30, 'shop_coupon', 'publish', 'spring', '2026-01-01', '2026-01-01', '2026-01-01', '', '', '', '', ''),
               (32, 'shop_coupon', 'publish', 'autumn', '2026-01-01', '2026-01-01', '2026-01-01', '', '', '', '', ''),
               (31, 'shop_coupon', 'trash', 'spring', '2026-02-01', '2026-01-01', '2026-01-01', '', '', '', '', '');
             UPDATE wp_posts SET post_parent = IF(ID < 26, 21, 26) WHERE post_type = 'product_variation';
             INSERT INTO wp_wc_product_meta_lookup (product_id, stock_quantity, stock_status)
               VALUES (20, 5, 'instock'), (21, 0, 'outofstock'), (22, 0, 'outofstock'), (23, NULL, 'outofstock'), (24, NULL, 'outofstock'),
                      (25, NULL, 'instock'), (26, NULL, 'outofstock'), (27, 0, 'outofstock'), (28, 0, 'outofstock');
             INSERT INTO wp_postmeta (meta_id, post_id, meta_key, meta_value) VALUES
               (1, 20, '_manage_stock', 'yes'), (2, 20, '_stock', '5'), (3, 20, '_stock_status', 'instock'),
               (4, 21, '_manage_stock', 'yes'), (5, 21, '_stock', '0'), (6, 21, '_stock_status', 'outofstock'),
               (7, 22, '_manage_stock', 'yes'), (8, 22, '_stock', '0'), (9, 22, '_stock_status', 'outofstock'),
               (10, 23, '_manage_stock', 'no'), (11, 23, '_stock_status', 'outofstock'),
               (12, 30, 'usage_count', '6'), (13, 30, '_used_by', '7'), (14, 30, '_used_by', '7'), (15, 30, '_used_by', 'guest@example.com'),
               (16, 31, 'usage_count', '9'), (32, 32, 'usage_count', '0'), (17, 30, '_coupon_held_1700000000_abc', 'x'), (18, 30, '_maybe_used_by_1700000000_def', 'x'),
               (19, 30, '_coupon_held_1700000000_other', 'x'),
               (20, 24, '_manage_stock', 'no'), (21, 24, '_stock_status', 'outofstock'),
               (22, 25, '_manage_stock', 'no'), (23, 25, '_stock_status', 'instock'),
               (24, 26, '_manage_stock', 'no'), (25, 26, '_stock_status', 'outofstock'),
               (26, 27, '_manage_stock', 'yes'), (27, 27, '_stock', '0.5'), (28, 27, '_stock_status', 'outofstock'),
               (29, 28, '_manage_stock', 'yes'), (30, 28, '_stock', '0'), (31, 28, '_stock_status', 'outofstock');
             INSERT INTO wp_terms (term_id, name, slug) VALUES (5, 'outofstock', 'outofstock'), (6, 'outofstock', 'outofstock-2'), (7, 'featured', 'featured');
             INSERT INTO wp_term_taxonomy (term_taxonomy_id, term_id, taxonomy, description, count)
               VALUES (15, 5, 'product_visibility', '', 9), (16, 5, 'post_tag', '', 9), (17, 7, 'product_visibility', '', 9);
             INSERT INTO wp_term_relationships (object_id, term_taxonomy_id)
               VALUES (21, 15), (22, 15), (23, 15), (26, 15), (27, 15), (28, 15), (21, 16), (26, 17), (29, 15);
             INSERT INTO wp_wc_product_attributes_lookup VALUES
               (20, 20, 'pa_color', 1, 0, 1), (21, 21, 'pa_color', 1, 0, 0), (22, 21, 'pa_size', 42, 1, 0), (23, 21, 'pa_size', 43, 1, 0),
               (26, 26, 'pa_color', 1, 0, 0), (27, 26, 'pa_size', 48, 1, 0), (28, 26, 'pa_size', 50, 1, 0), (29, 29, 'pa_color', 1, 0, 0);
             INSERT INTO wp_woocommerce_order_items (order_item_id, order_item_name, order_item_type, order_id)
               VALUES (202, 'Shoes, 42', 'line_item', 2), (203, 'Shoes, 43', 'line_item', 2), (204, 'A voucher', 'line_item', 2), (205, 'Gone', 'line_item', 2),
                      (206, 'Trousers, 48', 'line_item', 2), (11002, 'Autumn', 'coupon', 2);
             INSERT INTO wp_woocommerce_order_itemmeta (meta_id, order_item_id, meta_key, meta_value) VALUES
               (500, 20, '_reduced_stock', '2'),
               (501, 202, '_product_id', '21'), (502, 202, '_variation_id', '22'), (503, 202, '_reduced_stock', '1'),
               (504, 203, '_product_id', '21'), (505, 203, '_variation_id', '23'), (506, 203, '_reduced_stock', '3'),
               (507, 50, '_reduced_stock', '2'),
               (508, 204, '_product_id', '25'), (509, 204, '_reduced_stock', '1'),
               (510, 205, '_product_id', '99'), (511, 205, '_reduced_stock', '1'),
               (512, 206, '_product_id', '26'), (513, 206, '_variation_id', '27'), (514, 206, '_reduced_stock', '1.75');
             INSERT INTO wp_wc_orders_meta (id, order_id, meta_key, meta_value) VALUES
               (1, 3, '_coupon_held_keys', 'a:1:{i:30;s:27:\"_coupon_held_1700000000_abc\";}'),
               (2, 3, '_coupon_held_keys_for_users', 'a:1:{i:30;s:29:\"_maybe_used_by_1700000000_def\";}'),
               (3, 4, '_coupon_held_keys', 'a:1:{i:30;s:29:\"_coupon_held_1700000000_other\";}'), (4, 3, '_other', 'x');
             INSERT INTO wp_options (option_name, option_value) VALUES ('gmt_offset', '0'), ('timezone_string', ''),
               ('woocommerce_manage_stock', 'yes'), ('woocommerce_notify_no_stock_amount', '0');
             UPDATE wp_wc_order_operational_data SET date_paid_gmt = '2026-01-01' WHERE order_id = 10",
        )
        .await;
    example
}

#[tokio::test]
async fn cancels_as_woocommerce_does() {
    let server = MariaDb::options().time_zone("+08:00").start();
    assert_cancels(&open(&server).await).await;
}

/// WordPress's tables are as old as the site, WooCommerce's as new as the plugin: character sets and collations differ.
#[tokio::test]
async fn tables_of_several_ages_go_together() {
    let server = MariaDb::options().time_zone("+08:00").start();
    for (posts, meta) in [("utf8mb3", "utf8mb3"), ("utf8mb4 COLLATE utf8mb4_unicode_ci", "utf8mb4 COLLATE utf8mb4_general_ci")] {
        let example = open(&server).await;
        for (table, set) in [("wp_posts", posts), ("wp_postmeta", meta), ("wp_options", meta), ("wp_comments", meta)] {
            example.database.execute(&format!("ALTER TABLE {table} CONVERT TO CHARACTER SET {set}")).await;
        }
        assert_cancels(&example).await;
    }
}

async fn assert_cancels(example: &Example) {
    let updated = example.database.column("SELECT date_updated_gmt FROM wp_wc_orders WHERE id <= 3 ORDER BY id").await;
    let updated: Vec<String> = updated.into_iter().map(Option::unwrap).collect();
    let mut expected: Vec<String> = [
        "wp_postmeta 12: meta_value 6 -> 4",
        "- wp_postmeta 13",
        "- wp_postmeta 15",
        "- wp_postmeta 17",
        "- wp_postmeta 18",
        "- wp_wc_orders_meta 1",
        "- wp_wc_orders_meta 2",
        "wp_wc_order_operational_data 1: coupon_usages_are_counted 1 -> 0",
        "wp_wc_order_operational_data 2: coupon_usages_are_counted 1 -> 0",
        "wp_wc_order_operational_data 2: order_stock_reduced 1 -> 0",
        "wp_postmeta 2: meta_value 5 -> 7",
        "wp_postmeta 5: meta_value 0 -> 3",
        "wp_postmeta 6: meta_value outofstock -> instock",
        "wp_postmeta 8: meta_value 0 -> 1",
        "wp_postmeta 9: meta_value outofstock -> instock",
        // The variations whose stock their product keeps, bought or not.
        "wp_postmeta 11: meta_value outofstock -> instock",
        "wp_postmeta 21: meta_value outofstock -> instock",
        "wp_wc_product_meta_lookup 23: stock_status outofstock -> instock",
        "wp_wc_product_meta_lookup 24: stock_status outofstock -> instock",
        "wp_wc_product_meta_lookup 20: stock_quantity 5 -> 7",
        "wp_wc_product_meta_lookup 21: stock_quantity 0 -> 3",
        "wp_wc_product_meta_lookup 21: stock_status outofstock -> instock",
        "wp_wc_product_meta_lookup 22: stock_quantity 0 -> 1",
        "wp_wc_product_meta_lookup 22: stock_status outofstock -> instock",
        "- wp_woocommerce_order_itemmeta 500",
        "- wp_woocommerce_order_itemmeta 503",
        "- wp_woocommerce_order_itemmeta 506",
        // A variation of a product that keeps no stock: half a piece is none, but the one that comes back is.
        "- wp_woocommerce_order_itemmeta 514",
        "wp_postmeta 25: meta_value outofstock -> instock",
        "wp_postmeta 27: meta_value 0.5 -> 1.5",
        "wp_postmeta 28: meta_value outofstock -> instock",
        "wp_wc_product_meta_lookup 26: stock_status outofstock -> instock",
        "wp_wc_product_meta_lookup 27: stock_quantity 0 -> 1",
        "wp_wc_product_meta_lookup 27: stock_status outofstock -> instock",
        "wp_wc_product_attributes_lookup 21/1/21/pa_color: in_stock 0 -> 1",
        "wp_wc_product_attributes_lookup 21/42/22/pa_size: in_stock 0 -> 1",
        "wp_wc_product_attributes_lookup 21/43/23/pa_size: in_stock 0 -> 1",
        "wp_wc_product_attributes_lookup 26/1/26/pa_color: in_stock 0 -> 1",
        "wp_wc_product_attributes_lookup 26/48/27/pa_size: in_stock 0 -> 1",
        "wp_term_taxonomy 15: count 9 -> 4",
        "- wp_term_relationships 21/15",
        "- wp_term_relationships 22/15",
        "- wp_term_relationships 23/15",
        "- wp_term_relationships 26/15",
        "- wp_term_relationships 27/15",
    ]
    .map(str::to_owned)
    .into();
    for product in [20, 21, 22, 26, 27] {
        expected.push(format!("wp_posts {product}: post_modified 2026-01-01 00:00:00 -> now"));
        expected.push(format!("wp_posts {product}: post_modified_gmt 2026-01-01 00:00:00 -> now"));
    }
    for id in 1..=3_usize {
        expected.push(format!("wp_wc_orders {id}: status wc-pending -> wc-cancelled"));
        expected.push(format!("wp_wc_orders {id}: date_updated_gmt {} -> now", updated[id - 1]));
        expected.push(format!("wp_wc_order_stats {id}: status wc-pending -> wc-cancelled"));
        expected.push(format!("- wp_wc_reserved_stock {id}/20"));
        expected.push(format!(
            "+ wp_comments: comment_agent=WooCommerce comment_approved=1 comment_author=WooCommerce comment_author_email=woocommerce@noreply.com \
             comment_content=Unpaid order cancelled - time limit reached. Order status changed from Pending payment to Cancelled. \
             comment_date=now comment_date_gmt=now comment_karma=0 comment_parent=0 comment_post_ID={id} comment_type=order_note user_id=0"
        ));
    }
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    assert_changes(example.reconcile((3, 0)).await, &expected);
}

/// A shop that no longer manages stock gets none back, and its items still know what they took.
#[tokio::test]
async fn stock_that_is_not_managed_stays() {
    let server = MariaDb::options().start();
    let example = open(&server).await;
    example.database.execute("UPDATE wp_options SET option_value = 'no' WHERE option_name = 'woocommerce_manage_stock'").await;
    let changes = example.reconcile((3, 0)).await;
    let of_stock = [
        "wp_postmeta 2:",
        "wp_postmeta 5:",
        "wp_postmeta 8:",
        "wp_wc_product_meta_lookup",
        "wp_posts",
        "wp_woocommerce_order_itemmeta",
        "wp_wc_product_attributes_lookup",
        "wp_term",
    ];
    let wrong: Vec<&String> = changes.iter().filter(|line| of_stock.iter().any(|what| line.contains(what))).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(changes.contains(&"wp_wc_order_operational_data 2: order_stock_reduced 1 -> 0".to_owned()), "{changes:#?}");
}

/// Notes and products have the site's own time: by an offset, or by a name that the server knows.
#[tokio::test]
async fn local_times_are_those_of_the_site() {
    let server = MariaDb::options().time_zone("+08:00").start();
    let time_zones = Database::on_mariadb(&server).await;
    time_zones.execute(&format!("USE mysql; {}", MariaDb::time_zone_tables(&["Asia/Tokyo"]))).await;
    for (zone, offset, minutes) in [("", "-3.5", -210), ("Asia/Tokyo", "", 540), ("No/Where", "", 0), ("", "", 0)] {
        let example = open(&server).await;
        let set = |name: &str, value: &str| format!("UPDATE wp_options SET option_value = '{value}' WHERE option_name = '{name}'");
        example.database.execute(&[set("timezone_string", zone), set("gmt_offset", offset)].join(";")).await;
        example.reconcile((3, 0)).await;
        let notes = "SELECT DISTINCT TIMESTAMPDIFF(MINUTE, comment_date_gmt, comment_date) FROM wp_comments";
        assert_eq!(example.database.number(notes).await, minutes, "{zone:?} {offset:?}");
        let products = "SELECT DISTINCT TIMESTAMPDIFF(MINUTE, post_modified_gmt, post_modified) FROM wp_posts WHERE ID IN (20, 21, 22)";
        assert_eq!(example.database.number(products).await, minutes, "{zone:?} {offset:?}");
    }
}

/// The plugin beside the example, where PHP is installed.
#[test]
fn the_plugin_writes_keys_and_a_checkout_goes_on_without_redis() {
    if Command::new("php").arg("-v").output().is_err() {
        eprintln!("php is not installed");
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let save = |port: u16, password: &str| {
        let mut php = Command::new("php");
        php.arg(root.join("tests/shops/woocommerce_keys.php")).arg(root.join("config/examples/woocommerce/order-closer.php"));
        let output = php.args([&format!("tcp://127.0.0.1:{port}"), "0", password]).output().expect("php runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let turned_off = "__return_false 9223372036854775807\n";
    let redis = Redis::options().password("secret").start();
    assert_eq!(save(redis.port(), "secret"), turned_off);
    assert_eq!(redis.command(&["PEXPIRETIME", "wc_order_1"]).integer(), (4_000_000_000 + 45 * 60) * 1_000);
    assert_eq!(redis.command(&["GET", "wc_order_1"]).text(), "");
    assert_eq!(redis.command(&["DBSIZE"]).integer(), 1);
    assert!(save(redis.port(), "wrong").starts_with("order 1 has no key in Redis: AUTH: -WRONGPASS"));
    redis.freeze();
    assert_eq!(save(redis.port(), "secret"), format!("order 1 has no key in Redis: no answer to AUTH\n{turned_off}"));
    redis.thaw();
    redis.kill();
    assert!(save(redis.port(), "").starts_with("order 1 has no key in Redis: Connection refused"));
}
