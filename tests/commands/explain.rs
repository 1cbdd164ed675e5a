//! `order-closer explain`: each way in which the matter of an order can stand.

use serde_json::Value;

use super::reconcile::on_every_database;
use crate::support::{Database, Kind, Redis, Settings, Shop, order_closer, ports};

on_every_database! {
    each_is_explained => each_is_explained_in_postgres, each_is_explained_in_mariadb, each_is_explained_in_sqlite;
    without_redis_and_tables => without_redis_and_tables_in_postgres, without_redis_and_tables_in_mariadb, without_redis_and_tables_in_sqlite;
    one_that_has_two_rows => one_that_has_two_rows_in_postgres, one_that_has_two_rows_in_mariadb, one_that_has_two_rows_in_sqlite;
}

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

async fn explain(settings: &Settings, id: &str) -> Value {
    order_closer(settings, &["explain", id, "--json"]).await.expect_code(0).json()
}

/// The state of an order, a part of its sentence, and what closes it.
async fn is_said(settings: &Settings, id: &str, (state, part, trigger): (&str, &str, Option<&str>)) -> Value {
    let said = explain(settings, id).await;
    let sentence = said["sentence"].as_str().expect("a sentence");
    let opens = format!("Order {id} ");
    assert!(sentence.starts_with(&opens) && sentence.contains(part) && sentence.ends_with('.'), "{part:?}: {said:#}");
    assert_eq!((said["id"].as_str(), said["state"].as_str()), (Some(id), Some(state)), "{said:#}");
    assert_eq!(said["next"]["trigger"].as_str(), trigger, "{said:#}");
    assert_eq!(said["unknown"], serde_json::json!([]), "{said:#}");
    said
}

async fn each_is_explained(kind: Kind) {
    let redis = Redis::start();
    let shop = Shop::open(kind).await;
    let settings = shop.settings_with(&redis).set("events.enabled", true).set("orders.filter", "order_no <> 13");
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    shop.orders(&[(1, HOUR), (2, HOUR), (3, -60_000), (4, -60_000), (5, HOUR), (6, -60_000), (7, -40 * DAY), (8, -60_000)]).await;
    shop.orders(&[(9, -60_000), (10, -60_000), (11, HOUR), (12, -60_000), (13, -60_000), (14, HOUR), (15, 900 * DAY), (16, HOUR)]).await;
    assert!(shop.pay(4).await);
    let sql = |text: &'static str| shop.database.execute(text);
    sql("UPDATE orders SET expires_at = NULL WHERE order_no = 5").await;
    sql("INSERT INTO order_closer_dead_letters (orders_table, order_id, attempts, failed_at, error, dropped) VALUES ('orders', '8', 8, 1, 'cursed', 0)")
        .await;
    order_closer(&settings, &["close", "9", "10", "12"]).await.expect_code(0);
    sql("UPDATE orders SET status = 0, closed_at = NULL WHERE order_no = 10").await;
    sql("UPDATE orders SET status = 4 WHERE order_no = 11").await;
    shop.reopen(12, HOUR).await;
    for (key, millis) in
        [("order_1", HOUR), ("order_6", 8 * HOUR - 60_000), ("order_14", 9 * HOUR), ("order_16", HOUR / 2), ("order_98", HOUR)]
    {
        redis.command(&["SET", key, "1", "PX", &millis.to_string()]);
    }
    redis.command(&["SET", "order_2", "1"]);

    let before = shop.statuses().await;
    let said = is_said(&settings, "1", ("not_due", "and due in 59m", Some("expired"))).await;
    assert!(said["sentence"].as_str().unwrap().contains("its key order_1 expires then"), "{said:#}");
    assert_eq!(
        (said["verdict"].as_str(), said["unpaid"].as_bool(), said["passes_filter"].as_bool()),
        (Some("not_due"), Some(true), Some(true))
    );
    assert!(said["deadline_stored"].is_string() && said["deadline"].as_str().unwrap().ends_with('Z'), "{said:#}");
    let said = is_said(&settings, "2", ("not_due", "the pacer closes it then", Some("pacer"))).await;
    assert!(said["notes"][0].as_str().unwrap().contains("does not expire"), "{said:#}");
    let said = is_said(&settings, "3", ("due", "(1m", Some("sweep"))).await;
    assert_eq!((said["verdict"].as_str(), said["to_do"].as_str().unwrap().contains("order-closer close 3")), (Some("close"), true));
    is_said(&settings, "4", ("settled", "has the status 1, which is none of an unpaid order (0)", None)).await;
    is_said(&settings, "5", ("never_due", "its expires_at is NULL", None)).await;
    let said = is_said(&settings, "6", ("disputed", "its key order_6 expires 8h later", Some("expired"))).await;
    let zone_matters = said["deadline_zone"].is_string();
    assert_eq!(zone_matters, kind != Kind::Postgres, "{said:#}");
    assert_eq!(said["to_do"].as_str().unwrap().contains("database.time_zone"), zone_matters, "{said:#}");
    let row_decides = settings.clone().set("orders.disputed", "close");
    is_said(&row_decides, "6", ("due", "nothing known stands in its way", Some("sweep"))).await;
    is_said(&settings, "7", ("old", "has been overdue for 1month", None)).await;
    let said = is_said(&settings, "8", ("given_up", "was given up after 8 tries", None)).await;
    assert_eq!((said["dead_letter"]["error"].as_str(), said["dead_letter"]["attempts"].as_u64()), (Some("cursed"), Some(8)));
    assert!(said["to_do"].as_str().unwrap().contains("order-closer dead-letters retry 8"), "{said:#}");
    let said = is_said(&settings, "9", ("closed", "after its deadline, by a request for it by its id (", None)).await;
    assert_eq!((said["events"][0]["trigger"].as_str(), said["events"].as_array().unwrap().len()), (Some("request"), 1), "{said:#}");
    is_said(&settings, "10", ("undone", "its closure was undone", None)).await;
    is_said(&settings, "11", ("settled", "has the closed status (4), and the audit log has no closure of it", None)).await;
    let said = is_said(&settings, "12", ("not_due", "there is no key order_12", Some("pacer"))).await;
    assert!(said["notes"][0].as_str().unwrap().contains("opened again since"), "{said:#}");
    let said = is_said(&settings, "13", ("hidden", "orders.filter (order_no <> 13) hides its row", None)).await;
    assert_eq!((said["verdict"].as_str(), said["passes_filter"].as_bool()), (Some("not_found"), Some(false)));
    is_said(&settings, "14", ("not_due", "its key order_14 expires 8h later", Some("expired"))).await;
    let said = is_said(&settings, "15", ("not_due", "and due in 2years", Some("pacer"))).await;
    assert!(said["notes"][0].as_str().unwrap().contains("wrong unit"), "{said:#}");
    is_said(&settings, "16", ("not_due", "before that, which closes nothing yet", Some("pacer"))).await;
    is_said(&settings, "98", ("not_found", "there is its key order_98", None)).await;
    is_said(&settings, "99", ("not_found", "is not in orders.", None)).await;
    sql("DELETE FROM orders WHERE order_no = 9").await;
    is_said(&settings, "9", ("not_found", "is not in orders, though it was closed at ", None)).await;

    order_closer(&settings, &["pause", "--reason", "the provider is down", "--for", "1h"]).await.expect_code(0);
    let said = is_said(&settings, "3", ("paused", "the provider is down", Some("sweep"))).await;
    assert!(said["next"]["at"].is_string() && said["pause"]["paused"] == true, "{said:#}");
    let after = shop.statuses().await;
    assert!(before.iter().filter(|(number, _)| **number != 9).all(|(number, status)| after[number] == *status), "nothing is changed");

    let text = order_closer(&settings, &["explain", "8"]).await.expect_code(0).stdout;
    assert!(text.starts_with("Order 8 ") && text.contains("\n  dead letter  order 8  8 tries") && text.contains("\n  to do "), "{text}");
}

/// What can't be known is named, and the rest is said.
async fn without_redis_and_tables(kind: Kind) {
    let shop = Shop::open(kind).await;
    shop.orders(&[(1, HOUR), (2, -60_000)]).await;
    let settings = shop.settings().set("redis.url", format!("redis://127.0.0.1:{}", ports::free()));
    for (id, state) in [("1", "not_due"), ("2", "due")] {
        let said = explain(&settings, id).await;
        assert_eq!((said["state"].as_str(), said["key"]["state"].as_str()), (Some(state), Some("unknown")), "{said:#}");
        let unknown = said["unknown"].to_string();
        assert!(unknown.contains("its key") && unknown.contains("order-closer migrate"), "{said:#}");
    }
    for (id, says) in [("lock_77", "order_no is bigint"), ("order_1", r#""order_1" is its key, and 1 its id"#)] {
        let refused = order_closer(&settings, &["explain", id]).await.expect_code(64);
        assert!(refused.stderr.to_lowercase().contains(says) && refused.stdout.is_empty(), "{refused:#?}");
    }
}

async fn one_that_has_two_rows(kind: Kind) {
    let database = Database::fresh(kind).await;
    database.execute("CREATE TABLE orders (order_no bigint, status integer, expires_at bigint)").await;
    database.execute("INSERT INTO orders VALUES (7, 0, 1700000000), (7, 1, 1700000000), (8, 0, 0)").await;
    let settings = Settings::new()
        .set("database.url", database.url.as_str())
        .set("redis.url", format!("redis://127.0.0.1:{}", ports::free()))
        .add("[orders]\ndeadline = { column = 'expires_at', unit = 's' }");
    let said = explain(&settings, "7").await;
    assert_eq!(
        (said["state"].as_str(), said["rows"].as_u64(), &said["verdict"]),
        (Some("several_rows"), Some(2), &Value::Null),
        "{said:#}"
    );
    assert!(said["sentence"].as_str().unwrap().contains("has 2 rows in orders, and none of them closes"), "{said:#}");
    // As many shops write that there is none.
    let said = explain(&settings, "8").await;
    assert_eq!((said["state"].as_str(), said["deadline_stored"].as_str()), (Some("never_due"), Some("0")), "{said:#}");
    assert!(said["sentence"].as_str().unwrap().contains("its expires_at is 0, which is no deadline"), "{said:#}");
}
