//! Locked rows, orders that their database rejects, time that runs out, databases that are away.

use std::str::FromStr;

use sqlx::{
    ConnectOptions,
    sqlite::{SqliteConnectOptions, SqliteJournalMode},
};

use super::{on_every_database, settings};
use crate::{
    commands::{SECRET, assert_no_secret},
    support::{Database, Kind, Redis, Settings, Shop, order_closer, ports, process, shop::CLOSED},
};

on_every_database! {
    one_poison_order => one_poison_order_in_postgres, one_poison_order_in_mariadb, one_poison_order_in_sqlite;
    an_id_in_two_rows => an_id_in_two_rows_in_postgres, an_id_in_two_rows_in_mariadb, an_id_in_two_rows_in_sqlite;
}

#[tokio::test]
async fn a_locked_order_in_postgres() {
    a_locked_order(Kind::Postgres).await;
}

#[tokio::test]
async fn a_locked_order_in_mariadb() {
    a_locked_order(Kind::MariaDb).await;
}

/// The one whose row a payment holds is waited for a little, and named; the others close.
async fn a_locked_order(kind: Kind) {
    let shop = Shop::open(kind).await;
    shop.orders_due_in(1..=9, -1_000).await;
    let payment = shop.begin_payment(3).await;
    let finished = order_closer(&settings(&shop), &["reconcile", "--json"]).await.expect_code(75);
    let report = finished.json();
    assert_eq!([&report["overdue"], &report["closed"], &report["failed"]], [9, 8, 1], "{finished:#?}");
    assert!(report["duration_ms"].as_u64().is_some_and(|millis| millis >= 1_000), "it did not wait: {report}");
    assert!(finished.stderr.contains("order 3 ") && finished.stderr.contains("locked by another transaction"), "{finished:#?}");
    assert_eq!(finished.stderr.lines().count(), 1, "{finished:#?}");
    payment.rollback().await;
    shop.assert_outcome_except(&[3]).await;
    order_closer(&settings(&shop), &["reconcile"]).await.expect_code(0);
    shop.assert_outcome().await;
}

/// Who pays while it waits has paid.
#[tokio::test]
async fn a_payment_that_ends_in_time() {
    let shop = Shop::open(Kind::Postgres).await;
    shop.orders_due_in(1..=2, -1_000).await;
    let payment = shop.begin_payment(1).await;
    let settings = settings(&shop);
    let (finished, ()) = tokio::join!(order_closer(&settings, &["reconcile", "--json"]), async {
        shop.until_status(2, CLOSED).await;
        payment.commit().await;
    });
    let report = finished.expect_code(0).json();
    assert_eq!([&report["overdue"], &report["closed"], &report["settled"], &report["failed"]], [2, 1, 1, 0]);
    shop.assert_outcome().await;
}

/// All of an SQLite file is locked, so no order can be named.
#[tokio::test]
async fn a_locked_sqlite_file() {
    let shop = Shop::open(Kind::Sqlite).await;
    shop.orders_due_in(1..=3, -1_000).await;
    let payment = shop.begin_payment(1).await;
    let finished = order_closer(&settings(&shop), &["reconcile"]).await.expect_code(75);
    assert!(finished.stderr.contains("locked"), "{finished:#?}");
    payment.commit().await;
    order_closer(&settings(&shop), &["reconcile"]).await.expect_code(0);
    assert_eq!(shop.assert_outcome().await.closed.len(), 2);
}

/// Without WAL, whoever reads the file, a backup say, keeps every commit waiting; that is no order's fault.
#[tokio::test]
async fn a_reader_of_an_sqlite_file_without_wal() {
    let folder = process::folder();
    let url = format!("sqlite://{}", folder.path().join("shop.db").display());
    let options = SqliteConnectOptions::from_str(&url).expect("a good URL").create_if_missing(true).journal_mode(SqliteJournalMode::Delete);
    let mut reader = options.connect().await.expect("a file can be made");
    let orders = "CREATE TABLE orders (order_no integer PRIMARY KEY, status integer, expires_at text);
                  INSERT INTO orders VALUES (1, 0, '2020-01-01'), (2, 0, '2020-01-01')";
    sqlx::raw_sql(orders).execute(&mut reader).await.expect("a table can be made");
    sqlx::raw_sql("BEGIN; SELECT * FROM orders").execute(&mut reader).await.expect("a table can be read");
    let settings = Settings::new().set("database.url", url).set("database.timeout", "300ms").set("sweep.oldest", "none");
    let finished = order_closer(&settings, &["reconcile"]).await.expect_code(75);
    assert_eq!(finished.stderr.matches("locked by another transaction").count(), 2, "{finished:#?}");
    sqlx::raw_sql("COMMIT").execute(&mut reader).await.expect("a transaction ends");
    order_closer(&settings, &["reconcile"]).await.expect_code(0);
}

/// Makes the database reject the closure of the orders for which this condition holds.
async fn poison(shop: &Shop, condition: &str) {
    let sql = match shop.database.kind {
        Kind::Sqlite => format!(
            "CREATE TRIGGER cursed BEFORE UPDATE ON orders WHEN NEW.status = {CLOSED} AND ({condition})
             BEGIN SELECT RAISE(ABORT, 'cursed'); END"
        ),
        Kind::Postgres | Kind::MariaDb => {
            format!("ALTER TABLE orders ADD CONSTRAINT cursed CHECK (status <> {CLOSED} OR NOT ({}))", condition.replace("NEW.", ""))
        }
    };
    shop.database.execute(&sql).await;
}

async fn one_poison_order(kind: Kind) {
    let shop = Shop::open(kind).await;
    shop.orders_due_in(1..=60, -1_000).await;
    poison(&shop, "NEW.order_no = 13").await;
    let finished = order_closer(&settings(&shop), &["reconcile", "--json"]).await.expect_code(75);
    let report = finished.json();
    assert_eq!([&report["overdue"], &report["closed"], &report["failed"]], [60, 59, 1], "{finished:#?}");
    assert_eq!(finished.stderr.lines().count(), 1, "{finished:#?}");
    assert!(finished.stderr.contains("order 13 could not be closed") && finished.stderr.contains("cursed"), "{finished:#?}");
    shop.assert_outcome_except(&[13]).await;
}

/// It is one order that could not be closed.
async fn an_id_in_two_rows(kind: Kind) {
    let database = Database::fresh(kind).await;
    database.execute("CREATE TABLE orders (order_no bigint, status integer, expires_at bigint)").await;
    database.execute("INSERT INTO orders VALUES (7, 0, 1600000000), (8, 0, 1600000001), (7, 0, 1600000002)").await;
    let settings = Settings::new()
        .set("database.url", database.url.as_str())
        .set("sweep.oldest", "none")
        .add("[orders]\ndeadline = { column = 'expires_at', unit = 's' }");
    let finished = order_closer(&settings, &["reconcile", "--json"]).await.expect_code(75);
    let report = finished.json();
    assert_eq!([&report["closed"], &report["failed"]], [1, 1], "{finished:#?}");
    assert_eq!(finished.stderr.lines().count(), 1, "{finished:#?}");
    assert!(finished.stderr.contains("two rows have the id 7"), "{finished:#?}");
}

#[tokio::test]
async fn many_poison_orders_are_not_all_named() {
    let shop = Shop::open(Kind::Sqlite).await;
    shop.orders_due_in(1..=40, -1_000).await;
    poison(&shop, "NEW.order_no <= 25").await;
    let finished = order_closer(&settings(&shop), &["reconcile"]).await.expect_code(75);
    let lines: Vec<&str> = finished.stderr.lines().collect();
    assert_eq!(lines.len(), 21, "{finished:#?}");
    assert!(lines[20].contains("5 more"), "{finished:#?}");
    let stuck: Vec<i64> = (1..=25).collect();
    shop.assert_outcome_except(&stuck).await;
}

#[tokio::test]
async fn time_runs_out_between_pages() {
    time_runs_out(10).await;
}

#[tokio::test]
async fn time_runs_out_within_the_last_page() {
    time_runs_out(5_000).await;
}

/// Ten orders a batch, a tenth of a second each: twenty seconds' work.
async fn time_runs_out(page: i64) {
    let shop = Shop::open(Kind::Postgres).await;
    shop.orders_due_in(1..=2_000, -1_000).await;
    let quick = settings(&shop);
    let slow = quick.clone().set("sweep.page", page).set("close.batch_size", 10).set("close.workers", 1).add(
        "[close]\nsql = [
            'UPDATE inventory SET stock = stock + (SELECT sum(quantity) FROM order_items i WHERE i.sku = inventory.sku AND i.order_no IN (:ids)) \
             WHERE sku IN (SELECT sku FROM order_items WHERE order_no IN (:ids))',
            'INSERT INTO closures (order_no) SELECT order_no FROM orders WHERE order_no IN (:ids)',
            'SELECT pg_sleep(0.1) WHERE EXISTS (SELECT 1 FROM orders WHERE order_no IN (:ids))',
        ]",
    );
    let finished = order_closer(&slow, &["reconcile", "--json", "--max-duration", "2s"]).await.expect_code(75);
    let report = finished.json();
    let closed = report["closed"].as_i64().expect("a number");
    assert!(closed > 0 && closed < 2_000, "{report}");
    assert_eq!(closed, shop.closed().await);
    assert_eq!(report["failed"], 0, "{report}");
    assert!(finished.stderr.contains("time ran out"), "{finished:#?}");
    // What it closed, it closed wholly, and the next run does the rest.
    assert_eq!(shop.closures().await.len(), shop.statuses().await.values().filter(|status| **status == CLOSED).count());
    let report = order_closer(&quick, &["reconcile", "--json"]).await.expect_code(0).json();
    assert_eq!(report["closed"].as_i64(), Some(2_000 - closed));
    shop.assert_outcome().await;
}

#[tokio::test]
async fn a_database_that_is_down() {
    for scheme in ["postgres", "mysql"] {
        let port = ports::free();
        let url = format!("{scheme}://shop:{SECRET}@127.0.0.1:{port}/shop");
        let finished = order_closer(&Settings::new().set("database.url", url), &["reconcile", "--json"]).await.expect_code(69);
        assert_no_secret(&finished);
        assert_eq!((finished.stdout.as_str(), finished.stderr.lines().count()), ("", 1), "{finished:#?}");
        let expected = format!("{scheme}://shop:***@127.0.0.1:{port}/shop");
        assert!(finished.stderr.contains("database unavailable") && finished.stderr.contains(&expected), "{finished:#?}");
        assert!(finished.stderr.contains("refused"), "{finished:#?}");
    }
}

#[tokio::test]
async fn an_sqlite_file_that_is_missing() {
    let finished = order_closer(&Settings::new().set("database.url", "sqlite://no-such.db"), &["reconcile"]).await.expect_code(78);
    assert!(finished.stderr.contains("no file no-such.db"), "{finished:#?}");
}

/// A Redis that takes connections and says nothing has a part of the time, and the rows decide alone in what is left.
#[tokio::test]
async fn a_silent_redis_does_not_take_all_the_time() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    redis.freeze();
    let settings = shop.settings_with(&redis);
    for (numbers, arguments) in [(1..=50, &["--max-duration", "2s"][..]), (51..=100, &["--max-duration", "4s", "--accept-clock"])] {
        shop.orders_due_in(numbers, -90_000).await;
        let finished = order_closer(&settings, &[&["reconcile", "--json"], arguments].concat()).await.expect_code(0);
        assert_eq!(finished.json()["closed"], 50, "{finished:#?}");
    }
    shop.assert_outcome().await;
}
