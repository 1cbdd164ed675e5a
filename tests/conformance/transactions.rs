//! Lock, judge, update: all of it or nothing, and nobody waits for somebody else's payment.

use std::time::{Duration, Instant};

use order_closer::{
    order::{Verdict, judge},
    store::{Inspected, Limits, StoreError},
};

use super::{
    Database, FUTURE, Kind, begin, by_kind, change, close, ids, lockable, open, overdue, overdue_orders, plain_orders, settings,
    sorted_ids, status_of, sweeping, texts as map, verdict,
};
use crate::support::{Database as Db, mariadb::MariaDb, postgres::Postgres, wait};

pub async fn closes_and_sets_columns(database: Database) {
    plain_orders(&database).await;
    database.execute("ALTER TABLE orders ADD COLUMN closed_at varchar(40)").await;
    overdue_orders(&database, 1..=3).await;
    let settings = settings(&database)
        .set(
            "orders.set.note",
            by_kind(database.kind, "'closed by ' || order_no", "concat('closed by ', order_no)", "'closed by ' || order_no"),
        )
        .set("orders.set.closed_at", by_kind(database.kind, "now()", "now()", "datetime('now')"));
    let store = open(&settings).await;
    let before = host_seconds();
    assert_eq!(close(&*store, &["1", "3", "99"]).await, 2);
    assert_eq!(status_of(&database).await, map([("1", "4"), ("2", "0"), ("3", "4")]));
    let notes = database.column("SELECT note FROM orders ORDER BY order_no").await;
    assert_eq!(notes, [Some("closed by 1".into()), None, Some("closed by 3".into())]);
    assert_eq!(database.number("SELECT count(*) FROM orders WHERE closed_at IS NOT NULL").await, 2);
    assert_eq!(verdict(&*store, "1").await, Verdict::Settled { status: Some("4".into()) });
    let seconds = by_kind(
        database.kind,
        "SELECT floor(extract(epoch FROM min(closed_at)::timestamptz))::bigint FROM orders",
        "SELECT floor(unix_timestamp(min(closed_at))) FROM orders",
        "SELECT unixepoch(min(closed_at)) FROM orders",
    );
    let closed_at = database.number(seconds).await;
    assert!((before..=host_seconds()).contains(&closed_at), "{closed_at} is not now");
    assert_eq!(close(&*store, &["1", "3"]).await, 0);
}

fn host_seconds() -> i64 {
    super::host_now() / 1_000_000
}

/// Whoever asks to close an order that somebody paid changes nothing.
pub async fn closes_only_what_is_unpaid(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, 1..=3).await;
    database
        .execute(&format!("UPDATE orders SET status = 1 WHERE order_no = 1; UPDATE orders SET expires_at = {FUTURE} WHERE order_no = 2"))
        .await;
    let store = open(&settings(&database)).await;
    assert_eq!(verdict(&*store, "1").await, Verdict::Settled { status: Some("1".into()) });
    assert!(matches!(verdict(&*store, "2").await, Verdict::NotDue { remaining: Some(_) }));
    assert!(matches!(verdict(&*store, "3").await, Verdict::Close { .. }));
    assert_eq!(verdict(&*store, "4").await, Verdict::NotFound);
    let mut transaction = begin(&*store).await;
    assert_eq!(change(&mut *transaction, &ids(&*store, &["1"])).await, Ok(0));
    transaction.commit().await.expect("a transaction can be committed");
    assert_eq!(close(&*store, &["1", "2", "3", "4"]).await, 1);
    assert_eq!(status_of(&database).await, map([("1", "1"), ("2", "0"), ("3", "4")]));
}

pub async fn a_filter_hides_rows(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, 1..=4).await;
    database.execute("UPDATE orders SET note = 'deleted' WHERE order_no IN (2, 4)").await;
    // An OR must not escape from the filter, nor a comment swallow what follows.
    let filter = "note IS NULL OR note = 'kept' -- soft delete";
    let store = open(&settings(&database).set("orders.filter", filter)).await;
    let asked = ["1", "2", "3", "4"];
    assert_eq!(lockable(&*store, &asked).await, ["1", "3"]);
    assert_eq!(overdue(&*store).await, ["1", "3"]);
    assert_eq!(store.count_overdue().await, Ok(2));
    for (id, passes) in [("1", true), ("2", false), ("3", true)] {
        let inspected = store.inspect(&ids(&*store, &[id])[0]).await.expect("a row can be read");
        let [Inspected { row, stored: Some(_), passes_filter, is_claimed_twice: false }] = &inspected[..] else { panic!("{inspected:?}") };
        assert_eq!((row.id.as_str(), row.status.as_deref(), *passes_filter), (id, Some("0"), passes));
    }
    assert_eq!(store.inspect(&ids(&*store, &["5"])[0]).await, Ok(Vec::new()));
    let mut transaction = begin(&*store).await;
    assert_eq!(sorted_ids(&transaction.peek(&ids(&*store, &asked)).await.expect("rows can be read")), ["1", "3"]);
    assert_eq!(change(&mut *transaction, &ids(&*store, &asked)).await, Ok(2));
    transaction.commit().await.expect("a transaction can be committed");
    assert_eq!(status_of(&database).await, map([("1", "4"), ("2", "0"), ("3", "4"), ("4", "0")]));
}

/// `:ids` twice in one statement; only what is closed in this transaction is in it.
pub async fn close_sql_runs_for_the_closed_orders(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, 1..=700).await;
    database.execute("UPDATE orders SET status = 1 WHERE order_no = 2").await;
    database
        .execute("CREATE TABLE items (order_no bigint, sku integer, quantity integer); CREATE TABLE stock (sku integer, n integer)")
        .await;
    database.execute("INSERT INTO items SELECT order_no, 1, 2 FROM orders; INSERT INTO stock VALUES (1, 0), (2, 0)").await;
    let statements = vec![
        "UPDATE stock SET n = n + (SELECT sum(quantity) FROM items WHERE order_no IN (:ids)) \
         WHERE sku IN (SELECT sku FROM items WHERE order_no IN (:ids)) -- :ids",
        "DELETE FROM items WHERE order_no IN ( :ids );",
    ];
    let store = open(&settings(&database).set("close.sql", statements)).await;
    assert_eq!(close(&*store, &["1", "2", "3", "1000"]).await, 2);
    assert_eq!(database.column("SELECT n FROM stock ORDER BY sku").await, [Some("4".into()), Some("0".into())]);
    assert_eq!(database.number("SELECT count(*) FROM items WHERE order_no IN (1, 3)").await, 0);
    assert_eq!(database.number("SELECT count(*) FROM items").await, 698);
    let rest: Vec<String> = (4..=700).map(|number| number.to_string()).collect();
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    assert_eq!(close(&*store, &rest).await, 697);
    assert_eq!(database.number("SELECT n FROM stock WHERE sku = 1").await, 2 * 699);
    assert_eq!(database.column("SELECT order_no FROM items").await, [Some("2".into())]);
}

/// Closes order 1 and expects a rejection; then the store is as good as new and nothing has changed.
async fn rejects(database: &Database, statements: Vec<&str>) {
    let store = open(&settings(database).set("close.sql", statements)).await;
    for _ in 0..3 {
        let mut transaction = begin(&*store).await;
        assert_eq!(transaction.lock(&ids(&*store, &["1", "2"])).await.expect("rows can be locked").len(), 2);
        let error = change(&mut *transaction, &ids(&*store, &["1", "2"])).await;
        assert!(matches!(error, Err(StoreError::Rejected(_))), "{error:?}");
        transaction.rollback().await;
    }
    assert_eq!(status_of(database).await, map([("1", "0"), ("2", "0")]));
    // Rolled back, and not merely dropped, which would give the lock back only in a while.
    assert_eq!(lockable(&*store, &["1"]).await, ["1"]);
}

pub async fn failing_close_sql_rejects(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, 1..=2).await;
    database.execute("CREATE TABLE coupons (order_no bigint PRIMARY KEY)").await;
    database.execute("INSERT INTO coupons VALUES (2)").await;
    rejects(&database, vec!["INSERT INTO coupons SELECT order_no FROM orders WHERE order_no IN (:ids)"]).await;
    assert_eq!(database.number("SELECT count(*) FROM coupons").await, 1);
    rejects(&database, vec!["DELETE FROM coupons WHERE order_no IN (:ids)", "DELETE FROM no_such_table WHERE order_no IN (:ids)"]).await;
    assert_eq!(database.number("SELECT count(*) FROM coupons").await, 1);
}

pub async fn a_constraint_rejects(database: Database) {
    // Order 2 may not be closed.
    let time = super::time_type(database.kind);
    database
        .execute(&format!(
            "CREATE TABLE orders (order_no bigint PRIMARY KEY, status integer, expires_at {time}, note text, CHECK (order_no <> 2 OR status <> 4))"
        ))
        .await;
    overdue_orders(&database, 1..=2).await;
    rejects(&database, vec![]).await;
    let store = open(&settings(&database)).await;
    assert_eq!(close(&*store, &["1"]).await, 1);
}

/// Begins to close order 1 and does not come to an end.
async fn half_closed(store: &dyn order_closer::store::Store) -> Box<dyn order_closer::store::Transaction> {
    let mut transaction = begin(store).await;
    assert_eq!(transaction.lock(&ids(store, &["1"])).await.expect("rows can be locked").len(), 1);
    assert_eq!(change(&mut *transaction, &ids(store, &["1"])).await, Ok(1));
    transaction
}

pub async fn a_dropped_transaction_leaves_nothing(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, 1..=2).await;
    let store = open(&settings(&database).set("close.sql", vec!["UPDATE orders SET note = 'closed' WHERE order_no IN (:ids)"])).await;
    for _ in 0..10 {
        drop(half_closed(&*store).await);
        // The server rolls back when it sees the connection close.
        wait::until("the dropped transaction's lock is gone", async || {
            let Ok(mut transaction) = store.begin(Limits::BRIEF).await else { return false };
            let rows = transaction.lock(&ids(&*store, &["1"])).await;
            transaction.rollback().await;
            rows.is_ok_and(|rows| rows.len() == 1)
        })
        .await;
    }
    assert_eq!(database.number("SELECT count(*) FROM orders WHERE status = 0 AND note IS NULL").await, 2);
    assert_eq!(close(&*store, &["1"]).await, 1);
}

pub async fn a_rolled_back_transaction_leaves_nothing(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, 1..=2).await;
    let store = open(&settings(&database).set("close.sql", vec!["UPDATE orders SET note = 'closed' WHERE order_no IN (:ids)"])).await;
    for _ in 0..10 {
        half_closed(&*store).await.rollback().await;
        assert_eq!(lockable(&*store, &["1"]).await, ["1"]);
    }
    assert_eq!(database.number("SELECT count(*) FROM orders WHERE status = 0 AND note IS NULL").await, 2);
    assert_eq!(close(&*store, &["1"]).await, 1);
}

/// A payment in progress holds up nobody else's order, and its own order is seen as it was.
pub async fn a_locked_row_is_skipped_and_peeked(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, 1..=3).await;
    let store = open(&settings(&database)).await;
    let mut payment = database.begin().await;
    payment.execute("UPDATE orders SET status = 1 WHERE order_no = 2").await;
    let mut transaction = begin(&*store).await;
    let all = ids(&*store, &["1", "2", "3"]);
    let locked = transaction.lock(&all).await.expect("rows can be locked");
    assert_eq!(sorted_ids(&locked), ["1", "3"]);
    let peeked = transaction.peek(&all[1..2]).await.expect("rows can be read");
    assert_eq!(peeked.len(), 1);
    assert_eq!(judge(store.unpaid(), peeked.first()), Verdict::Locked);
    assert_eq!(change(&mut *transaction, &ids(&*store, &["1", "3"])).await, Ok(2));
    transaction.commit().await.expect("a transaction can be committed");
    assert_eq!(overdue(&*store).await, ["2"], "the sweep reads what is committed and waits for nobody");
    payment.commit().await;
    assert_eq!(close(&*store, &["2"]).await, 0);
    assert_eq!(status_of(&database).await, map([("1", "4"), ("2", "1"), ("3", "4")]));
}

pub async fn two_closers_share_a_batch(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, 1..=6).await;
    let (one, other) = (open(&settings(&database)).await, open(&settings(&database)).await);
    let mut first = begin(&*one).await;
    assert_eq!(first.lock(&ids(&*one, &["1", "2", "3"])).await.expect("rows can be locked").len(), 3);
    let all = ["1", "2", "3", "4", "5", "6"];
    assert_eq!(close(&*other, &all).await, 3);
    assert_eq!(change(&mut *first, &ids(&*one, &["1", "2", "3"])).await, Ok(3));
    first.commit().await.expect("a transaction can be committed");
    assert_eq!(close(&*other, &all).await, 0);
    assert_eq!(database.number("SELECT count(*) FROM orders WHERE status = 4").await, 6);
}

/// Whatever keeps us waiting ends in time, and as something to be retried.
pub async fn waiting_for_a_lock_ends(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, [1]).await;
    database.execute("CREATE TABLE stock (sku integer PRIMARY KEY, n integer); INSERT INTO stock VALUES (1, 0)").await;
    let statement = "UPDATE stock SET n = n + 1 WHERE sku IN (SELECT order_no FROM orders WHERE order_no IN (:ids))";
    let store = open(&settings(&database).set("close.sql", vec![statement])).await;
    let mut other = database.begin().await;
    other.execute("UPDATE stock SET n = 10").await;
    let outcome = async {
        let mut transaction = store.begin(Limits::BRIEF).await?;
        let rows = transaction.lock(&ids(&*store, &["1"])).await?;
        let closed = change(&mut *transaction, &ids(&*store, &["1"])).await;
        transaction.rollback().await;
        closed.map(|changed| (rows, changed))
    }
    .await;
    assert!(matches!(outcome, Err(StoreError::Locked(_))), "{outcome:?}");
    other.commit().await;
    assert_eq!(close(&*store, &["1"]).await, 1);
    assert_eq!(database.number("SELECT n FROM stock").await, 11);
}

/// The error says to wait, and waiting helps.
pub async fn a_killed_server_is_unavailable_until_it_returns(database: Database) {
    let mut postgres = (database.kind == Kind::Postgres).then(|| Postgres::options().start());
    let mut mariadb = (database.kind == Kind::MariaDb).then(|| MariaDb::options().start());
    let mut database = match (&postgres, &mariadb) {
        (Some(server), _) => Db::on_postgres(server).await,
        (_, Some(server)) => Db::on_mariadb(server).await,
        _ => panic!("there is no server to kill"),
    };
    plain_orders(&database).await;
    overdue_orders(&database, 1..=2).await;
    let store = open(&settings(&database)).await;
    let in_flight = half_closed(&*store).await;
    let mut idle = begin(&*store).await;
    postgres.iter().for_each(Postgres::kill);
    mariadb.iter().for_each(MariaDb::kill);
    assert!(matches!(in_flight.commit().await, Err(StoreError::Unavailable(_))));
    assert!(matches!(idle.lock(&ids(&*store, &["2"])).await, Err(StoreError::Unavailable(_))));
    // A refused connection is no reason to wait as long as for a busy pool.
    let asked = Instant::now();
    assert!(matches!(store.begin(Limits::BRIEF).await.map(drop), Err(StoreError::Unavailable(_))));
    assert!(matches!(store.count_overdue().await, Err(StoreError::Unavailable(_))));
    assert!(matches!(store.reach().await, Err(StoreError::Unavailable(_))));
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    postgres.iter_mut().for_each(Postgres::start_again);
    mariadb.iter_mut().for_each(MariaDb::start_again);
    database.disconnect().await;
    wait::until("the store works again", async || store.count_overdue().await == Ok(2)).await;
    assert_eq!(store.reach().await, Ok(()));
    assert_eq!(status_of(&database).await, map([("1", "0"), ("2", "0")]));
    assert_eq!(close(&*store, &["1", "2"]).await, 2);
}

pub async fn a_long_list_uses_the_index(mut database: Database) {
    sweeping::many_orders(&database).await;
    database.disconnect().await;
    let store = open(&settings(&database)).await;
    let catalogue = store.catalogue().await.expect("the catalogue can be read");
    assert_eq!(catalogue.id_index.found.as_deref(), Some("orders_id"), "{catalogue:?}");
    let asked: Vec<String> = (0..100).map(|number| (number * 300).to_string()).collect();
    let asked = ids(&*store, &asked);
    let before = sweeping::settled_rows_read(&database).await;
    let mut transaction = begin(&*store).await;
    assert_eq!(transaction.lock(&asked).await.expect("rows can be locked").len(), 100);
    assert_eq!(transaction.peek(&asked).await.expect("rows can be read").len(), 100);
    // It looks at them again: they are not due.
    assert_eq!(change(&mut *transaction, &asked[1..11]).await, Ok(0));
    assert_eq!(transaction.close_due(&asked[20..30]).await.expect("nothing is due").len(), 0);
    transaction.commit().await.expect("a transaction can be committed");
    store.close().await;
    let read = sweeping::rows_read_since(&database, before, 210).await;
    assert!(read < 2_000, "{read} rows were read to find 220 at most");
}
