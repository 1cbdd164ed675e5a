//! Another transaction holds what a few orders need: they wait, and no other order does.

use std::time::Duration;

use tokio::time::Instant;

use super::listening;
use crate::support::{
    Kind, Redis, Settings, Shop,
    database::Transaction,
    mariadb, order_closer,
    shop::{ARTICLES, CLOSED, Outcome},
    wait,
};

/// So late an order may be that needs nothing that is held, on a machine that runs other tests too. What the promise is
/// in quiet, the benchmarks measure.
const UNAFFECTED_MILLIS: i64 = 500;

/// How many orders may be later: those that shared a batch with the held ones before that was known.
const UNLUCKY: usize = 20;

/// The same of MySQL proper, where the shortest wait for a lock is a second, which is what an order that shares its batch with a
/// held one waits: all but one in a hundred.
const UNAFFECTED_ON_MYSQL_MILLIS: i64 = 1_200;

/// Stock rows that this transaction holds.
async fn hold(shop: &Shop, rows: std::ops::RangeInclusive<i64>) -> Transaction {
    let mut holder = shop.database.begin().await;
    holder.execute(&format!("UPDATE warehouse SET n = n WHERE sku BETWEEN {} AND {}", rows.start(), rows.end())).await;
    holder
}

/// A shop whose closures give back stock in a warehouse, too: a row for each order above ten thousand.
async fn with_warehouse(kind: Kind, redis: &Redis, held: i64) -> (Shop, Settings) {
    let shop = Shop::open(kind).await;
    shop.database.execute("CREATE TABLE warehouse (sku bigint PRIMARY KEY, n bigint NOT NULL)").await;
    let rows: Vec<String> = (1..=held).map(|sku| format!("({sku}, 0)")).collect();
    shop.database.execute(&format!("INSERT INTO warehouse VALUES {}", rows.join(", "))).await;
    let wanted = "SELECT order_no - 10000 AS sku FROM orders WHERE order_no IN (:ids) AND order_no > 10000";
    let settings = shop.settings_with(redis).after_close_sql(match kind {
        // Otherwise it would lock all rows of so small a table, and not only those that it changes.
        Kind::MariaDb => format!("UPDATE ({wanted}) wanted STRAIGHT_JOIN warehouse ON warehouse.sku = wanted.sku SET n = n + 1"),
        Kind::Postgres | Kind::Sqlite => format!("UPDATE warehouse SET n = n + 1 WHERE sku IN ({wanted})"),
    });
    (shop, settings)
}

/// How many orders need nothing that is held.
const OTHERS: usize = 160;

/// `held` orders need rows that are held; others, of other articles, fall due, forty a second, and close on time; after the
/// release all close, each once.
async fn held_stock(kind: Kind, held: i64) {
    let redis = Redis::start();
    let (shop, settings) = with_warehouse(kind, &redis, held * ARTICLES).await;
    let daemon = listening(&settings).await;
    let holder = hold(&shop, 1..=held * ARTICLES).await;
    let others = (1..).filter(|number| number % ARTICLES != 0).take(OTHERS);
    let mut orders: Vec<(i64, i64)> = others.zip((1_500..).step_by(25)).collect();
    let stuck: Vec<i64> = (1..=held).map(|nth| 10_000 + nth * ARTICLES).collect();
    orders.extend(stuck.iter().map(|number| (*number, 2_000)));
    shop.orders(&orders).await;
    let others = i64::try_from(OTHERS).expect("a small number");
    wait::until("all others are closed", async || shop.closed().await == others).await;
    assert_on_time(kind, &shop.assert_outcome_except(&stuck).await);
    holder.rollback().await;
    wait::within(Duration::from_secs(10), "all close when nothing is held", async || shop.closed().await == others + held).await;
    daemon.stop().await;
    shop.assert_outcome().await;
    let once = format!("SELECT count(*) FROM warehouse WHERE n <> CASE sku % {ARTICLES} WHEN 0 THEN 1 ELSE 0 END");
    assert_eq!(shop.database.number(&once).await, 0, "stock is given back once");
    assert_eq!((daemon.logged("\"ERROR\""), daemon.summary().count("rejected")), (0, 0));
}

fn assert_on_time(kind: Kind, outcome: &Outcome) {
    let is_mysql = kind == Kind::MariaDb && mariadb::is_mysql();
    let limit = if is_mysql { UNAFFECTED_ON_MYSQL_MILLIS } else { UNAFFECTED_MILLIS };
    let late: Vec<_> = outcome.closed.iter().filter(|(_, millis)| **millis > limit).collect();
    if is_mysql {
        assert!(outcome.lateness(0.99) <= limit, "late: {late:?}");
    } else {
        assert!(late.len() <= UNLUCKY && outcome.lateness(0.5) <= limit / 2, "late: {late:?}");
    }
}

macro_rules! held_stock {
    ($($name:ident: $kind:ident, $held:literal;)+) => {$(
        #[tokio::test]
        async fn $name() {
            held_stock(Kind::$kind, $held).await;
        }
    )+};
}

held_stock! {
    one_held_stock_row_in_mariadb: MariaDb, 1;
    twenty_held_stock_rows_in_mariadb: MariaDb, 20;
    three_held_stock_rows_in_postgres: Postgres, 3;
    three_held_stock_rows_in_mariadb: MariaDb, 3;
    two_hundred_held_stock_rows_in_postgres: Postgres, 200;
    two_hundred_held_stock_rows_in_mariadb: MariaDb, 200;
}

/// A wave of which a tenth needs what is held.
async fn a_wave(kind: Kind) {
    let redis = Redis::start();
    let (shop, settings) = with_warehouse(kind, &redis, 30).await;
    let daemon = listening(&settings).await;
    let holder = hold(&shop, 1..=30).await;
    let orders: Vec<(i64, i64)> = (1..=270).chain(10_001..=10_030).map(|number| (number, 1_500)).collect();
    shop.orders(&orders).await;
    wait::within(Duration::from_secs(15), "all others are closed", async || shop.closed().await == 270).await;
    holder.rollback().await;
    wait::within(Duration::from_secs(10), "all close when nothing is held", async || shop.closed().await == 300).await;
    daemon.stop().await;
    shop.assert_outcome().await;
}

#[tokio::test]
async fn a_wave_in_postgres() {
    a_wave(Kind::Postgres).await;
}

#[tokio::test]
async fn a_wave_in_mariadb() {
    a_wave(Kind::MariaDb).await;
}

/// What is closed is closed and reported, and the time that was given is kept.
async fn reconcile_in_time(kind: Kind) {
    let redis = Redis::start();
    let (shop, settings) = with_warehouse(kind, &redis, 50).await;
    let orders: Vec<(i64, i64)> = (1..=950).chain(10_001..=10_050).map(|number| (number, -1_000)).collect();
    shop.orders(&orders).await;
    let holder = hold(&shop, 1..=50).await;
    let began = Instant::now();
    let finished = order_closer(&settings, &["reconcile", "--json", "--max-duration", "20s"]).await.expect_code(75);
    assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
    let report = finished.json();
    assert_eq!([&report["overdue"], &report["closed"], &report["failed"]], [1_000, 950, 50], "{finished:#?}");
    assert!(finished.stderr.contains("locked by another transaction"), "{finished:#?}");
    holder.rollback().await;
    order_closer(&settings, &["reconcile"]).await.expect_code(0);
    assert_eq!(shop.assert_outcome().await.closed.len(), 1_000);
}

#[tokio::test]
async fn reconcile_in_time_in_postgres() {
    reconcile_in_time(Kind::Postgres).await;
}

#[tokio::test]
async fn reconcile_in_time_in_mariadb() {
    reconcile_in_time(Kind::MariaDb).await;
}

/// Orders that are held at the head of a reconcile with a limit don't use it up.
#[tokio::test]
async fn a_limit_counts_what_was_closed() {
    let redis = Redis::start();
    let (shop, settings) = with_warehouse(Kind::Postgres, &redis, 10).await;
    let orders: Vec<(i64, i64)> =
        (10_001..=10_010).map(|number| (number, -60_000)).chain((1..=40).map(|number| (number, -1_000))).collect();
    shop.orders(&orders).await;
    let holder = hold(&shop, 1..=10).await;
    let finished = order_closer(&settings, &["reconcile", "--json", "--limit", "10"]).await.expect_code(75);
    assert_eq!(finished.json()["closed"], 10, "{finished:#?}");
    holder.rollback().await;
    let finished = order_closer(&settings, &["reconcile", "--json", "--limit", "10"]).await.expect_code(0);
    assert_eq!((finished.json()["closed"].as_i64(), shop.closed().await), (Some(10), 20));
}

/// Our own batches are no held rows: a whole crowd of one article, two daemons, and a checkout that sells it meanwhile.
async fn one_article(kind: Kind) {
    const COUNT: i64 = 6_000;
    let redis = Redis::start();
    let shop = Shop::open(kind).await;
    shop.database.execute("CREATE TABLE hot (sku bigint PRIMARY KEY, n bigint NOT NULL); INSERT INTO hot VALUES (1, 0)").await;
    let update = "UPDATE hot SET n = n + (SELECT count(*) FROM orders WHERE order_no IN (:ids)) WHERE sku = 1";
    let settings = shop.settings_with(&redis).set("close.sql", vec![update]).set("close.batch_size", 500);
    let daemons = [listening(&settings).await, listening(&settings).await];
    shop.orders_due_in(1..=COUNT, 3_000).await;
    let sold = wait::until("all are closed", async || {
        shop.database.execute("UPDATE hot SET n = n + 1000000 WHERE sku = 1").await;
        shop.closed().await == COUNT
    });
    sold.await;
    for daemon in &daemons {
        daemon.stop().await;
    }
    let n = shop.database.number("SELECT n FROM hot").await;
    assert_eq!(n % 1_000_000, COUNT, "each was given back once");
    let alone: u64 = daemons.iter().map(|daemon| daemon.summary().count("locked")).sum();
    assert!(alone < 60, "{alone} tries met a lock");
    assert_eq!(shop.status(1).await, CLOSED);
}

#[tokio::test]
async fn one_article_in_postgres() {
    one_article(Kind::Postgres).await;
}

#[tokio::test]
async fn one_article_in_mariadb() {
    one_article(Kind::MariaDb).await;
}
