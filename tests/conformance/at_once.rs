//! Lock, judge and update in one statement, where the database can.

use order_closer::store::StoreError;

use super::{
    Database, FUTURE, PAST, begin, closed_at_once, ids, open, overdue_orders, plain_orders, settings, status_of, texts, time_type,
};

pub async fn closes_only_what_is_unpaid_and_due(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, 1..=8).await;
    database
        .execute(&format!(
            "UPDATE orders SET status = 1 WHERE order_no = 1; UPDATE orders SET expires_at = {FUTURE} WHERE order_no = 2;
             UPDATE orders SET expires_at = NULL WHERE order_no = 3; UPDATE orders SET note = 'deleted' WHERE order_no = 4;
             UPDATE orders SET status = 7 WHERE order_no = 5; UPDATE orders SET status = NULL WHERE order_no = 6"
        ))
        .await;
    let store =
        open(&settings(&database).set("orders.unpaid", vec![7, 0]).set("orders.filter", "note IS NULL").set("orders.set.note", "'late'"))
            .await;
    let all = ["1", "2", "3", "4", "5", "6", "7", "99"];
    assert_eq!(closed_at_once(&*store, &all).await, ["5", "7"]);
    let mut transaction = begin(&*store).await;
    let rows = transaction.close_due(&ids(&*store, &all)).await.expect("orders can be closed");
    transaction.commit().await.expect("a transaction can be committed");
    let mut had: Vec<(&str, Option<&str>)> = rows.iter().map(|row| (row.id.as_str(), row.status.as_deref())).collect();
    had.sort_unstable();
    assert_eq!(had, [("5", Some("7")), ("7", Some("0"))], "each with the status that it had");
    let expected = [("1", "1"), ("2", "0"), ("3", "0"), ("4", "0"), ("5", "4"), ("6", "NULL"), ("7", "4"), ("8", "0")];
    assert_eq!(status_of(&database).await, texts(expected));
    assert_eq!(database.column("SELECT order_no FROM orders WHERE note = 'late' ORDER BY 1").await, [Some("5".into()), Some("7".into())]);
}

/// It could not tell that there is a second row, and perhaps a paid one.
pub async fn closes_none_if_ids_may_repeat(database: Database) {
    database.execute(&format!("CREATE TABLE orders (order_no bigint, status integer, expires_at {})", time_type(database.kind))).await;
    database.execute(&format!("INSERT INTO orders VALUES (7, 0, {PAST}), (7, 1, {PAST}), (8, 0, {PAST})")).await;
    let store = open(&settings(&database)).await;
    assert_eq!(closed_at_once(&*store, &["7", "8"]).await, [""; 0]);
}

/// The row that it returns would no longer have the deadline by which it closed.
pub async fn closes_none_if_the_deadline_is_set(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, [1]).await;
    let store = open(&settings(&database).set("orders.set.expires_at", FUTURE)).await;
    assert_eq!(closed_at_once(&*store, &["1"]).await, [""; 0]);
}

/// A payment in progress is not waited for long, and its order does not close.
pub async fn gives_up_at_a_locked_row(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, 1..=3).await;
    let store = open(&settings(&database)).await;
    let mut payment = database.begin().await;
    payment.execute("UPDATE orders SET status = 1 WHERE order_no = 2").await;
    let mut transaction = begin(&*store).await;
    let closed = transaction.close_due(&ids(&*store, &["1", "2", "3"])).await;
    assert!(matches!(closed, Err(StoreError::Locked(_))), "{closed:?}");
    transaction.rollback().await;
    payment.commit().await;
    assert_eq!(closed_at_once(&*store, &["1", "2", "3"]).await, ["1", "3"]);
}
