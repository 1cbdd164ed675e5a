//! Shops that are known by their tables, as `tests/shops` has them.

use super::{init, refuses, written};
use crate::support::{Database, Kind, Redis};

/// The example of a shop is proposed, and taken if that is said.
async fn is_known(kind: Kind, name: &str, schema: &str, parts: &[&str]) {
    let (database, redis) = (Database::fresh(kind).await, Redis::options().with_notifications().start());
    database.execute(schema).await;
    refuses(&init(&database, &redis, &[]), &["--shop is missing", &format!("\n  --shop {name}  "), "--shop none"]).await;
    let command = init(&database, &redis, &["--shop", name]);
    let said = command.run().await.expect_code(0);
    assert!(said.stdout.contains(&format!("config/examples/{name}.toml")), "{}", said.stdout);
    assert!(said.stdout.contains("GRANT ") && said.stdout.contains("CREATE INDEX"), "{}", said.stdout);
    let text = written(&command);
    for part in parts {
        assert!(text.contains(part), "{part}\n{text}");
    }
    order_closer::config::load(Some(&command.config_file())).unwrap_or_else(|error| panic!("{error}"));
}

#[tokio::test]
async fn mall_is_known() {
    is_known(Kind::MariaDb, "mall", include_str!("../../shops/mall.sql"), &["table = \"oms_order\"", "key_prefix = \"mall:oms:unpaid:\""])
        .await;
}

#[tokio::test]
async fn litemall_is_known() {
    is_known(Kind::MariaDb, "litemall", include_str!("../../shops/litemall.sql"), &["closed = 103"]).await;
}

#[tokio::test]
async fn yudao_is_known() {
    is_known(Kind::MariaDb, "yudao", include_str!("../../shops/yudao.sql"), &["name = \"unpaid\""]).await;
}

#[tokio::test]
async fn magento_is_known() {
    is_known(Kind::MariaDb, "magento", include_str!("../../shops/magento.sql"), &["closed = \"canceled\""]).await;
}

#[tokio::test]
async fn woocommerce_is_known_whatever_its_prefix() {
    let schema = include_str!("../../shops/woocommerce.sql");
    is_known(Kind::MariaDb, "woocommerce", schema, &["table = \"wp_wc_orders\""]).await;
    let renamed = schema.replace("wp_", "shop7_");
    is_known(Kind::MariaDb, "woocommerce", &renamed, &["table = \"shop7_wc_orders\"", "STRAIGHT_JOIN shop7_postmeta"]).await;
}

/// Which of two shops in one database is meant is not guessed.
#[tokio::test]
async fn of_two_shops_in_one_database_one_is_named() {
    let (database, redis) = (Database::fresh(Kind::MariaDb).await, Redis::start());
    let schema = include_str!("../../shops/woocommerce.sql");
    database.execute(schema).await;
    database.execute(&schema.replace("wp_", "abc_2_")).await;
    let which = ["--table is missing", "\n  --table abc_2_wc_orders", "\n  --table wp_wc_orders"];
    refuses(&init(&database, &redis, &["--shop", "woocommerce"]), &which).await;
    let other = ["--shop", "woocommerce", "--table", "orders"];
    refuses(&init(&database, &redis, &other), &["the orders of woocommerce are in abc_2_wc_orders, wp_wc_orders"]).await;
    let command = init(&database, &redis, &["--shop", "woocommerce", "--table", "wp_wc_orders"]);
    command.run().await;
    assert!(written(&command).contains("table = \"wp_wc_orders\""));
}

#[tokio::test]
async fn saleor_is_known() {
    is_known(Kind::Postgres, "saleor", include_str!("../../shops/saleor.sql"), &["closed = \"expired\""]).await;
}

#[tokio::test]
async fn spree_is_known() {
    is_known(Kind::Postgres, "spree", include_str!("../../shops/spree.sql"), &["status = \"payment_state\""]).await;
}

#[tokio::test]
async fn medusa_is_known() {
    is_known(Kind::Postgres, "medusa", include_str!("../../shops/medusa/schema.sql"), &["closed = \"canceled\""]).await;
}

#[tokio::test]
async fn vendure_is_known() {
    is_known(Kind::Postgres, "vendure", include_str!("../../shops/vendure/schema.sql"), &["closed = \"Cancelled\""]).await;
}

#[tokio::test]
async fn prestashop_is_known_whatever_its_prefix() {
    let schema = include_str!("../../shops/prestashop/schema.sql").replace("ps_", "ps17_");
    is_known(Kind::MariaDb, "prestashop", &schema, &["table = \"ps17_orders\"", "STRAIGHT_JOIN ps17_stock_available"]).await;
}

#[tokio::test]
async fn shopware_is_known() {
    is_known(Kind::MariaDb, "shopware", include_str!("../../shops/shopware/schema.sql"), &["status = \"state_id\""]).await;
}

#[tokio::test]
async fn sylius_is_known() {
    is_known(Kind::MariaDb, "sylius", include_str!("../../shops/sylius/schema.sql"), &["table = \"sylius_order\""]).await;
}

/// A table `orders` as in the pattern for shops of one's own is anybody's.
#[tokio::test]
async fn a_pattern_is_no_shop() {
    let (database, redis) = (Database::fresh(Kind::MariaDb).await, Redis::start());
    database.execute(include_str!("../../shops/plain_mysql.sql")).await;
    refuses(&init(&database, &redis, &[]), &["--unpaid is missing"]).await;
}
