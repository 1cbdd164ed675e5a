//! A closure is tried out before the first order is due, and nothing of it stays.

use order_closer::store::{Rehearsed, StoreError, rehearse, rehearse_on_an_order};

use super::{Database, FUTURE, begin, close, ids, open, overdue_orders, plain_orders, settings, status_of, texts as map};

pub async fn a_rehearsal_leaves_nothing(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, 1..=3).await;
    database.execute("CREATE TABLE log (order_no bigint)").await;
    let settings = settings(&database)
        .set("orders.set.note", "'closed'")
        .set("orders.filter", "note IS NULL")
        .set("close.sql", vec!["INSERT INTO log SELECT order_no FROM orders WHERE order_no IN (:ids)"]);
    let store = open(&settings).await;
    assert_eq!(rehearse(&*store).await, Ok(()));
    assert_eq!(rehearse_on_an_order(&*store).await, Rehearsed::Closable(ids(&*store, &["1"]).remove(0)));
    assert_eq!(database.number("SELECT count(*) FROM orders WHERE status = 0 AND note IS NULL").await, 3);
    assert_eq!(database.number("SELECT count(*) FROM log").await, 0);
    assert_eq!(close(&*store, &["1"]).await, 1);
    assert_eq!(database.number("SELECT order_no FROM log").await, 1);
}

/// What shows only when there is an order to close: it is found with one that is not due yet, too.
pub async fn a_rehearsal_on_an_order_finds_what_none_shows(database: Database) {
    plain_orders(&database).await;
    database.execute("CREATE TABLE history (order_no bigint NOT NULL, at bigint NOT NULL CHECK (at > 5))").await;
    let with = |sql: &str| settings(&database).set("close.sql", vec![sql]);
    let store = open(&with("INSERT INTO history SELECT order_no, 9 FROM orders WHERE order_no IN (:ids)")).await;
    assert!(matches!(rehearse_on_an_order(&*store).await, Rehearsed::NotTried(why) if why.contains("no unpaid order")));
    database.execute(&format!("INSERT INTO orders (order_no, status, expires_at) VALUES (7, 0, {FUTURE})")).await;
    assert_eq!(rehearse_on_an_order(&*store).await, Rehearsed::Closable(ids(&*store, &["7"]).remove(0)));
    let store = open(&with("INSERT INTO history SELECT order_no, 3 FROM orders WHERE order_no IN (:ids)")).await;
    assert_eq!(rehearse(&*store).await, Ok(()));
    match rehearse_on_an_order(&*store).await {
        Rehearsed::Refused { id, lacking: false, .. } => assert_eq!(id.as_str(), "7"),
        other => panic!("{other:?}"),
    }
    assert_eq!(database.number("SELECT count(*) FROM history").await, 0);
    assert_eq!(status_of(&database).await, map([("7", "0")]));
}

/// It waits for nobody, and takes another order.
pub async fn a_rehearsal_passes_over_a_held_order(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, 1..=2).await;
    let store = open(&settings(&database)).await;
    let mut other = begin(&*store).await;
    other.lock(&ids(&*store, &["1"])).await.expect("it can be locked");
    let rehearsed = rehearse_on_an_order(&*store).await;
    assert_eq!(rehearsed, Rehearsed::Closable(ids(&*store, &["2"]).remove(0)));
    other.rollback().await;
}

pub async fn a_rehearsal_finds_wrong_sql(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, [1]).await;
    for (key, value, needle) in [
        ("orders.filter", "deletedd = 0", "deletedd"),
        ("orders.set.note", "no_such_function()", "no_such_function"),
        ("close.sql", "UPDATE orders SET nott = 'x' WHERE order_no IN (:ids)", "nott"),
        ("close.sql", "UPDATE no_such_table SET note = 'x' WHERE order_no IN (:ids)", "no_such_table"),
        ("close.sql", "UPDAT orders SET note = 'x' WHERE order_no IN (:ids)", "UPDAT"),
    ] {
        let settings = settings(&database);
        let settings = if key == "close.sql" { settings.set(key, vec![value]) } else { settings.set(key, value) };
        let store = open(&settings).await;
        match rehearse(&*store).await {
            Err(StoreError::Rejected(message)) => assert!(message.contains(needle), "{needle:?} is missing in: {message}"),
            other => panic!("{key} = {value:?}: {other:?}"),
        }
    }
    assert_eq!(status_of(&database).await, map([("1", "0")]));
}

/// It would reset the status of each order at the commit.
pub async fn a_rehearsal_runs_what_is_deferred(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, [1]).await;
    database
        .execute(
            "CREATE FUNCTION reopen() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN UPDATE orders SET status = 0 WHERE order_no = NEW.order_no AND status = 4; RETURN NULL; END $$",
        )
        .await;
    database
        .execute(
            "CREATE CONSTRAINT TRIGGER reopen AFTER UPDATE ON orders DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION reopen()",
        )
        .await;
    let store = open(&settings(&database)).await;
    match rehearse_on_an_order(&*store).await {
        Rehearsed::Refused { reason, lacking: false, .. } => assert!(reason.contains("trigger"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

pub async fn a_rehearsal_names_a_missing_partition(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, [1]).await;
    database.execute("CREATE TABLE history (order_no bigint, day date) PARTITION BY RANGE (day)").await;
    let sql = "INSERT INTO history SELECT order_no, current_date FROM orders WHERE order_no IN (:ids)";
    let store = open(&settings(&database).set("close.sql", vec![sql])).await;
    assert_eq!(rehearse(&*store).await, Ok(()));
    let rehearsed = rehearse_on_an_order(&*store).await;
    assert!(matches!(&rehearsed, Rehearsed::Refused { reason, lacking: true, .. } if reason.contains("history")), "{rehearsed:?}");
}

/// A trigger may write it, and what it writes there stays.
pub async fn no_rehearsal_beside_a_table_without_transactions(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, [1]).await;
    let store = open(&settings(&database)).await;
    assert!(matches!(rehearse_on_an_order(&*store).await, Rehearsed::Closable(_)));
    database.execute("CREATE TABLE visits (at bigint) ENGINE = MyISAM").await;
    database.execute("CREATE TRIGGER visit AFTER UPDATE ON orders FOR EACH ROW INSERT INTO visits VALUES (1)").await;
    let rehearsed = rehearse_on_an_order(&*store).await;
    assert!(matches!(&rehearsed, Rehearsed::NotTried(why) if why.contains("visits (MyISAM)")), "{rehearsed:?}");
    assert_eq!(database.number("SELECT count(*) FROM visits").await, 0);
}
