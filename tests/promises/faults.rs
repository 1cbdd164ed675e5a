//! Whose fault a failure is: an order that is refused for its own sake is given up; what the database, its tables or
//! its rights refuse to all is waited for, and closes when it is mended.

use super::{listening, on_each_database};
use crate::support::{
    Daemon, Database, Kind, Redis, Settings, Shop, database::Transaction, mariadb::MariaDb, order_closer, shop::CLOSED, wait,
};

/// Gives up soon.
fn hasty(shop: &Shop, redis: &Redis) -> Settings {
    shop.settings_with(redis).add("[close.retry]\nattempts = 3\ninitial = '100ms'\nmax = '300ms'").set("database.timeout", "1s")
}

/// What a trigger does to the closure of these orders; `None` is all of them.
async fn at_closure(shop: &Shop, orders: Option<&[(i64, &str)]>, usually: &str) {
    let cases: Vec<String> =
        orders.unwrap_or_default().iter().map(|(order, act)| format!("IF NEW.order_no = {order} THEN {act} END IF;")).collect();
    let body = format!("IF NEW.status = {CLOSED} THEN {} {usually} END IF;", cases.join(" "));
    let sql = match shop.database.kind {
        Kind::Postgres => format!(
            "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} RETURN NEW; END $$;
             CREATE TRIGGER refuse BEFORE UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION refuse()"
        ),
        Kind::MariaDb => format!("CREATE TRIGGER refuse BEFORE UPDATE ON orders FOR EACH ROW BEGIN {body} END"),
        Kind::Sqlite => {
            format!("CREATE TRIGGER refuse BEFORE UPDATE ON orders WHEN NEW.status = {CLOSED} BEGIN SELECT RAISE(ABORT, 'refused'); END")
        }
    };
    shop.database.execute(&sql).await;
}

async fn cure(shop: &Shop) {
    super::poison::cure(shop).await;
}

/// Locks the whole orders table until it is dropped.
async fn lock_table(shop: &Shop) -> Transaction {
    let mut lock = shop.database.begin().await;
    let sql = if shop.database.kind == Kind::Postgres { "LOCK TABLE orders IN ACCESS EXCLUSIVE MODE" } else { "LOCK TABLES orders READ" };
    lock.execute(sql).await;
    lock
}

/// A migration or a backup locks the table for longer than any attempt lasts.
async fn a_locked_table(kind: Kind) {
    let redis = Redis::start();
    let shop = Shop::open(kind).await;
    let settings = hasty(&shop, &redis);
    shop.orders_due_in(1..=5, -1_000).await;
    let lock = lock_table(&shop).await;
    let daemon = Daemon::start(&settings);
    daemon.until_logged("waiting for").await;
    drop(lock);
    shop.until_all_settled().await;

    shop.orders_due_in(6..=10, 1_000).await;
    shop.write_keys(&redis, 0).await;
    let lock = lock_table(&shop).await;
    daemon.until_line("it waits", |line| line.contains("database unavailable; waiting") || line.contains("can't be closed")).await;
    drop(lock);
    shop.until_all_settled().await;
    daemon.stop().await;
    assert_eq!(shop.assert_outcome().await.closed.len(), 10);
    assert_eq!((daemon.logged("\"ERROR\""), daemon.summary().count("rejected")), (0, 0));
}

#[tokio::test]
async fn a_locked_table_in_postgres() {
    a_locked_table(Kind::Postgres).await;
}

#[tokio::test]
async fn a_locked_table_in_mariadb() {
    a_locked_table(Kind::MariaDb).await;
}

/// Somebody changes a stock row and does not commit: its orders wait, however long, and all others close.
async fn a_stock_row_held_for_long(kind: Kind) {
    let redis = Redis::start();
    let shop = Shop::open(kind).await;
    shop.orders_due_in(1..=20, -1_000).await;
    let mut holder = shop.database.begin().await;
    holder.execute("UPDATE inventory SET stock = stock WHERE sku = 3").await;
    let daemon = listening(&hasty(&shop, &redis).set("log.level", "debug")).await;
    wait::until_eq("the number of closed orders", 16, async || shop.closed().await).await;
    wait::until("each was tried more often than orders are", async || daemon.logged("a batch failed") >= 5 * 4).await;
    holder.rollback().await;
    shop.until_all_settled().await;
    daemon.stop().await;
    shop.assert_outcome().await;
    assert_eq!((daemon.logged("\"ERROR\""), daemon.summary().count("rejected")), (0, 0));
    assert_eq!(daemon.logged("nothing can be closed"), 0);
}

#[tokio::test]
async fn a_stock_row_held_for_long_in_postgres() {
    a_stock_row_held_for_long(Kind::Postgres).await;
}

#[tokio::test]
async fn a_stock_row_held_for_long_in_mariadb() {
    a_stock_row_held_for_long(Kind::MariaDb).await;
}

/// Orders whose closure fails as if the database were broken, or as if transactions were in each other's way.
async fn misleading_codes(kind: Kind, raise: impl Fn(&str) -> String, codes: &[&str]) {
    let redis = Redis::start();
    let shop = Shop::open(kind).await;
    let acts: Vec<(i64, String)> = (10..).step_by(10).zip(codes).map(|(order, code)| (order, raise(code))).collect();
    let acts: Vec<(i64, &str)> = acts.iter().map(|(order, act)| (*order, act.as_str())).collect();
    let cursed: Vec<i64> = acts.iter().map(|(order, _)| *order).collect();
    at_closure(&shop, Some(&acts), "").await;
    shop.orders_due_in(1..=60, -1_000).await;
    let settings = hasty(&shop, &redis);
    let report = order_closer(&settings, &["reconcile", "--json"]).await.expect_code(75);
    let (closed, failed) = (&report.json()["closed"], &report.json()["failed"]);
    assert_eq!((closed.as_u64(), failed.as_u64()), (Some(60 - cursed.len() as u64), Some(cursed.len() as u64)), "{report:#?}");

    order_closer(&settings, &["migrate"]).await.expect_code(0);
    let daemon = listening(&settings).await;
    let mut next = 100;
    wait::until("all of them are given up", async || {
        shop.orders_due_in(next..=next, -1_000).await;
        shop.until_status(next, CLOSED).await;
        next += 1;
        daemon.logged("is a dead letter") == cursed.len()
    })
    .await;
    daemon.stop().await;
    shop.assert_outcome_except(&cursed).await;
    assert_eq!(daemon.logged("database unavailable"), 0);
}

#[tokio::test]
async fn misleading_codes_in_postgres() {
    let raise = |code: &str| format!("RAISE EXCEPTION 'cursed' USING ERRCODE = '{code}';");
    misleading_codes(Kind::Postgres, raise, &["XX000", "53400", "40001", "42P01"]).await;
}

#[tokio::test]
async fn misleading_codes_in_mariadb() {
    let raise = |code: &str| format!("SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = {code}, MESSAGE_TEXT = 'cursed';");
    misleading_codes(Kind::MariaDb, raise, &["1114", "1030", "1213", "1146"]).await;
}

/// An order whose closure takes longer than it may.
async fn an_order_that_takes_too_long(kind: Kind, sleep: &str) {
    let redis = Redis::start();
    let shop = Shop::open(kind).await;
    at_closure(&shop, Some(&[(7, sleep)]), "").await;
    let daemon = listening(&hasty(&shop, &redis)).await;
    shop.orders_due_in(1..=20, 500).await;
    wait::until_eq("the number of closed orders", 19, async || shop.closed().await).await;
    daemon.until_logged("close failed; will retry this order alone").await;
    cure(&shop).await;
    shop.until_all_settled().await;
    daemon.stop().await;
    shop.assert_outcome().await;
}

#[tokio::test]
async fn an_order_that_takes_too_long_in_postgres() {
    an_order_that_takes_too_long(Kind::Postgres, "PERFORM pg_sleep(3);").await;
}

#[tokio::test]
async fn an_order_that_takes_too_long_in_mariadb() {
    an_order_that_takes_too_long(Kind::MariaDb, "DO SLEEP(4);").await;
}

on_each_database! {
    a_table_away_for_a_while
    all_refused
    dead_letters_that_cannot_be_written
}

/// Waits until so many orders have been tried more often than `hasty` allows each of them.
async fn until_tried_often(daemon: &Daemon, orders: usize) {
    wait::until("they have been tried more often than orders are", async || daemon.logged("a batch failed") >= 5 * orders).await;
}

/// A table that a statement of `close.sql` names is replaced, as deployments do.
async fn a_table_away_for_a_while(kind: Kind) {
    let redis = Redis::start();
    let shop = Shop::open(kind).await;
    shop.database.execute("CREATE TABLE coupons (order_no bigint)").await;
    let settings = hasty(&shop, &redis).after_close_sql("DELETE FROM coupons WHERE order_no IN (:ids)").set("log.level", "debug");
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    let daemon = listening(&settings).await;
    shop.database.execute("ALTER TABLE coupons RENAME TO coupons_before").await;
    shop.orders_due_in(1..=5, 500).await;
    let error = daemon.until_line("an error is logged", |line| line.contains("\"ERROR\"")).await;
    assert!(error.contains("no order can be closed") && error.contains("coupons"), "{error}");
    // One by one, too.
    shop.order(6, -1_000).await;
    until_tried_often(&daemon, 6).await;
    shop.database.execute("ALTER TABLE coupons_before RENAME TO coupons").await;
    shop.until_all_settled().await;
    daemon.stop().await;
    shop.assert_outcome().await;
    assert_eq!((daemon.logged("\"ERROR\""), daemon.logged("dead letter")), (1, 0));
}

/// What a rehearsal on no order does not show, a full disk for one.
async fn a_disk_full_for_a_while(kind: Kind, raise: &str) {
    let redis = Redis::start();
    let shop = Shop::open(kind).await;
    at_closure(&shop, None, raise).await;
    let settings = hasty(&shop, &redis).set("log.level", "debug");
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    let daemon = listening(&settings).await;
    shop.orders_due_in(1..=5, 500).await;
    until_tried_often(&daemon, 5).await;
    daemon.until_logged("no order can be closed").await;
    cure(&shop).await;
    shop.until_all_settled().await;
    daemon.stop().await;
    shop.assert_outcome().await;
    assert_eq!(daemon.said("no order can be closed").len(), 1, "{:#?}", daemon.lines());
    assert_eq!((daemon.logged("\"ERROR\""), daemon.logged("dead letter")), (1, 0));
}

#[tokio::test]
async fn a_disk_full_for_a_while_in_postgres() {
    a_disk_full_for_a_while(Kind::Postgres, "RAISE EXCEPTION 'refused' USING ERRCODE = '53100';").await;
}

#[tokio::test]
async fn a_disk_full_for_a_while_in_mariadb() {
    a_disk_full_for_a_while(Kind::MariaDb, "SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 1114, MESSAGE_TEXT = 'refused';").await;
}

/// Orders that the database refuses for their own sake are given up as soon as others close, which shows that it is theirs.
async fn all_refused(kind: Kind) {
    let redis = Redis::start();
    let shop = Shop::open(kind).await;
    shop.database.execute("CREATE TABLE coupons (order_no bigint CHECK (order_no > 5))").await;
    let settings = hasty(&shop, &redis)
        .after_close_sql("INSERT INTO coupons (order_no) SELECT order_no FROM orders WHERE order_no IN (:ids)")
        .set("log.level", "debug");
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    let daemon = listening(&settings).await;
    shop.orders_due_in(1..=5, 500).await;
    until_tried_often(&daemon, 5).await;
    let dead = async || daemon.logged("is a dead letter");
    assert!(dead().await <= 2, "nothing shows yet that they are to blame");
    let mut next = 10;
    wait::until("all are given up", async || {
        shop.order(next, -1_000).await;
        shop.until_status(next, CLOSED).await;
        next += 1;
        dead().await == 5
    })
    .await;
    daemon.stop().await;
    shop.assert_outcome_except(&[1, 2, 3, 4, 5]).await;
}

/// What can't be written down now is written down later.
async fn dead_letters_that_cannot_be_written(kind: Kind) {
    let redis = Redis::start();
    let shop = Shop::open(kind).await;
    super::poison::poison(&shop).await;
    let settings = hasty(&shop, &redis);
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    let (refuse, allow) = match kind {
        Kind::Postgres => (
            "CREATE FUNCTION full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'full'; END $$;
             CREATE TRIGGER full BEFORE INSERT ON order_closer_dead_letters FOR EACH ROW EXECUTE FUNCTION full()",
            "DROP TRIGGER full ON order_closer_dead_letters",
        ),
        Kind::MariaDb => (
            "CREATE TRIGGER no_room BEFORE INSERT ON order_closer_dead_letters FOR EACH ROW SIGNAL SQLSTATE '45000'",
            "DROP TRIGGER no_room",
        ),
        Kind::Sqlite => (
            "CREATE TRIGGER no_room BEFORE INSERT ON order_closer_dead_letters BEGIN SELECT RAISE(ABORT, 'full'); END",
            "DROP TRIGGER no_room",
        ),
    };
    shop.database.execute(&refuse.replace("full", "no_room")).await;
    let daemon = listening(&settings).await;
    shop.orders_due_in(140..=160, 500).await;
    daemon.until_logged("dead letters could not be written").await;
    shop.database.execute(&allow.replace("full", "no_room")).await;
    daemon.until_logged("is a dead letter").await;
    daemon.stop().await;
    shop.assert_outcome_except(&[super::poison::POISON]).await;
    assert_eq!(shop.database.number("SELECT count(*) FROM order_closer_dead_letters").await, 1);
    assert_eq!(daemon.logged("\"ERROR\""), 1);
}

/// A server that has no room for another statement has some later.
#[tokio::test]
async fn too_many_prepared_statements_at_the_start() {
    let redis = Redis::start();
    let server = MariaDb::options().argument("--max-prepared-stmt-count=0").start();
    let shop = Shop::in_database(Database::on_mariadb(&server).await).await;
    let settings = shop.settings_with(&redis);
    order_closer(&settings, &["reconcile"]).await.expect_code(69);
    let daemon = Daemon::start(&settings);
    daemon.until_logged("waiting for the database").await;
    shop.database.execute("SET GLOBAL max_prepared_stmt_count = 16382").await;
    shop.order(1, -1_000).await;
    shop.until_all_settled().await;
    daemon.stop().await;
    shop.assert_outcome().await;
}
