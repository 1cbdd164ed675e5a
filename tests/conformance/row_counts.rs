//! Statements that say how many rows they must change for each order.

use order_closer::store::{StoreError, rehearse};
use toml::{Table, Value};

use super::{Database, begin, by_kind, change, close, ids, open, overdue_orders, plain_orders, settings, status_of, texts as map};

/// A statement of `close.sql` that must change some number of rows.
fn counted(sql: &str, rows: impl Into<Value>) -> Value {
    Value::Table(Table::from_iter([("sql".to_owned(), sql.into()), ("rows".to_owned(), rows.into())]))
}

/// Orders 1 to 3; 1 has two reservations, 2 has none, 3 has one.
async fn reserved(database: &Database) {
    plain_orders(database).await;
    overdue_orders(database, 1..=3).await;
    database.execute("CREATE TABLE reservations (order_no bigint, sku integer); CREATE TABLE log (order_no bigint)").await;
    database.execute("INSERT INTO reservations VALUES (1, 7), (1, 8), (3, 7)").await;
}

/// Which of these orders close, each with all others of the list: none if one is rejected, and then why.
async fn try_close(database: &Database, statements: Vec<Value>, orders: &[&str]) -> Result<u64, String> {
    let store = open(&settings(database).set("close.sql", statements)).await;
    let mut transaction = begin(&*store).await;
    transaction.lock(&ids(&*store, orders)).await.expect("rows can be locked");
    match change(&mut *transaction, &ids(&*store, orders)).await {
        Ok(changed) => {
            transaction.commit().await.expect("a transaction can be committed");
            Ok(changed)
        }
        Err(StoreError::Rejected(reason)) => {
            transaction.rollback().await;
            Err(reason)
        }
        Err(other) => panic!("not rejected but {other:?}"),
    }
}

pub async fn a_statement_must_change_its_rows_for_each_order(database: Database) {
    reserved(&database).await;
    let release = "DELETE FROM reservations WHERE order_no IN (:ids)";
    let log: Value = "INSERT INTO log SELECT order_no FROM orders WHERE order_no IN (:ids)".into();
    for (rows, orders, order, changed) in [
        // Two and none are two, and one each would be two.
        (Value::Integer(1), ["1", "2"], "order 1,", "2 rows"),
        (Value::Integer(2), ["1", "3"], "order 3,", "1 rows"),
        (">= 1".into(), ["1", "2"], "order 2,", "0 rows"),
        (">=2".into(), ["1", "3"], "order 3,", "1 rows"),
    ] {
        let asked = rows.as_str().map_or_else(|| rows.to_string(), |text| format!(">= {}", text.trim_start_matches(">=").trim()));
        let reason = try_close(&database, vec![log.clone(), counted(release, rows)], &orders).await.expect_err("an order is short of rows");
        for needle in ["statement 2", "close.sql", order, changed, &format!("must change {asked}")] {
            assert!(reason.contains(needle), "{needle:?} is missing in: {reason}");
        }
    }
    assert_eq!(status_of(&database).await, map([("1", "0"), ("2", "0"), ("3", "0")]), "nothing was left behind");
    assert_eq!(database.number("SELECT (SELECT count(*) FROM reservations) * 10 + (SELECT count(*) FROM log)").await, 30);
    let all_well = vec![counted(release, ">= 1"), log];
    assert_eq!(try_close(&database, all_well, &["1", "3"]).await, Ok(2));
    assert_eq!(database.number("SELECT (SELECT count(*) FROM reservations) * 10 + (SELECT count(*) FROM log)").await, 2);
    assert_eq!(status_of(&database).await, map([("1", "4"), ("2", "0"), ("3", "4")]));
}

/// A row that an UPDATE finds counts, also where it changes nothing in it.
pub async fn what_counts_as_a_changed_row(database: Database) {
    reserved(&database).await;
    let same = "UPDATE reservations SET sku = sku WHERE order_no IN (:ids)";
    assert_eq!(try_close(&database, vec![counted(same, 1)], &["3"]).await, Ok(1));
    let joined = by_kind(
        database.kind,
        "UPDATE log SET order_no = log.order_no FROM reservations r WHERE r.order_no = log.order_no AND r.order_no IN (:ids)",
        "UPDATE log JOIN reservations r ON r.order_no = log.order_no SET log.order_no = log.order_no WHERE r.order_no IN (:ids)",
        "UPDATE log SET order_no = log.order_no FROM reservations r WHERE r.order_no = log.order_no AND r.order_no IN (:ids)",
    );
    database.execute("INSERT INTO log VALUES (1)").await;
    // Two reservations meet one row of the log.
    assert_eq!(try_close(&database, vec![counted(joined, 1)], &["1"]).await, Ok(1));
    // Nothing to count, after a statement that had something.
    let first: Value = "INSERT INTO log SELECT order_no FROM orders WHERE order_no IN (:ids)".into();
    let none = "DELETE FROM reservations WHERE order_no IN (:ids)";
    assert!(try_close(&database, vec![first, counted(none, 1)], &["2"]).await.is_err_and(|reason| reason.contains("0 rows")));
}

pub async fn a_rehearsal_finds_wrong_sql_in_a_counted_statement(database: Database) {
    reserved(&database).await;
    let good = counted("DELETE FROM reservations WHERE order_no IN (:ids)", 1);
    let bad = counted("DELETE FROM reservations WHERE order_nr IN (:ids)", ">= 1");
    let store = open(&settings(&database).set("close.sql", vec![good.clone()])).await;
    assert_eq!(rehearse(&*store).await, Ok(()), "no order is short of rows when there is none");
    assert_eq!(database.number("SELECT count(*) FROM reservations").await, 3);
    assert_eq!(close(&*store, &["3"]).await, 1);
    let store = open(&settings(&database).set("close.sql", vec![good, bad])).await;
    let rehearsed = rehearse(&*store).await;
    assert!(matches!(&rehearsed, Err(StoreError::Rejected(message)) if message.contains("order_nr")), "{rehearsed:?}");
}
