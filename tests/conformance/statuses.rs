//! The status column: numbers, words and enumerations.

use order_closer::{close::Outcome, order::Verdict, store::rehearse};

use super::{
    Database, Kind, PAST, begin, by_kind, change, close, closed_at_once, closing::outcomes, create_orders, ids, open, overdue, settings,
    status_of, texts as map, time_type, verdict,
};

fn settled(status: &str) -> Verdict {
    Verdict::Settled { status: Some(status.into()) }
}

/// Orders 1, 2, ... with these statuses, all overdue.
async fn orders_in(database: &Database, statuses: &[&str]) {
    for (number, status) in (1..).zip(statuses) {
        database.execute(&format!("INSERT INTO orders VALUES ({number}, {status}, {PAST}, NULL)")).await;
    }
}

pub async fn integer_statuses(database: Database) {
    create_orders(&database, "bigint", "smallint", time_type(database.kind)).await;
    orders_in(&database, &["0", "1", "10", "-1", "2", "0"]).await;
    let store = open(&settings(&database).set("orders.unpaid", vec![0, 10]).set("orders.closed", -9)).await;
    assert_eq!(store.unpaid(), ["0", "10"]);
    assert_eq!(overdue(&*store).await, ["1", "3", "6"]);
    assert_eq!(store.count_overdue().await, Ok(3));
    assert!(matches!(verdict(&*store, "3").await, Verdict::Close { .. }));
    assert_eq!(verdict(&*store, "2").await, settled("1"));
    assert_eq!(close(&*store, &["1", "2", "3", "4", "5"]).await, 2);
    let expected = map([("1", "-9"), ("2", "1"), ("3", "-9"), ("4", "-1"), ("5", "2"), ("6", "0")]);
    assert_eq!(status_of(&database).await, expected);
}

async fn words(database: &Database) {
    orders_in(database, &["'pending'", "'paid'", "'awaiting payment'", "'closed'"]).await;
    let store = open(&settings(database).set("orders.unpaid", vec!["pending", "awaiting payment"]).set("orders.closed", "closed")).await;
    assert_eq!(store.unpaid(), ["pending", "awaiting payment"]);
    assert_eq!(overdue(&*store).await, ["1", "3"]);
    assert_eq!(verdict(&*store, "2").await, settled("paid"));
    assert_eq!(close(&*store, &["1", "2", "3", "4"]).await, 2);
    assert_eq!(verdict(&*store, "3").await, settled("closed"));
    assert_eq!(status_of(database).await, map([("1", "closed"), ("2", "paid"), ("3", "closed"), ("4", "closed")]));
}

pub async fn text_statuses(database: Database) {
    create_orders(&database, "bigint", "varchar(20)", time_type(database.kind)).await;
    words(&database).await;
}

pub async fn enumerated_statuses(database: Database) {
    const LABELS: &str = "('pending', 'awaiting payment', 'paid', 'closed')";
    if database.kind == Kind::Postgres {
        database.execute(&format!("CREATE TYPE \"Order State\" AS ENUM {LABELS}")).await;
    }
    let maria = format!("enum {LABELS}");
    create_orders(&database, "bigint", by_kind(database.kind, "\"Order State\"", &maria, ""), time_type(database.kind)).await;
    words(&database).await;
}

pub async fn digits_as_text_statuses(database: Database) {
    create_orders(&database, "bigint", "varchar(20)", time_type(database.kind)).await;
    orders_in(&database, &["'0'", "'00'", "'0.0'", "'1'"]).await;
    let store = open(&settings(&database).set("orders.unpaid", vec!["0"]).set("orders.closed", "4")).await;
    assert_eq!(overdue(&*store).await, ["1"]);
    assert_eq!(close(&*store, &["1", "2", "3", "4"]).await, 1);
    assert_eq!(status_of(&database).await, map([("1", "4"), ("2", "00"), ("3", "0.0"), ("4", "1")]));
}

/// A column may take other spellings for the unpaid status, and the judge does not: such orders neither close nor keep
/// the sweep busy.
pub async fn statuses_that_look_alike(database: Database) {
    if database.kind == Kind::Postgres {
        database.execute("CREATE EXTENSION citext").await;
    }
    let status = by_kind(database.kind, "citext", "varchar(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci", "text COLLATE NOCASE");
    create_orders(&database, "bigint", status, time_type(database.kind)).await;
    orders_in(&database, &["'pending'", "'PENDING'", "'pending '"]).await;
    let store = open(&settings(&database).set("orders.unpaid", vec!["pending"]).set("orders.closed", "closed")).await;
    assert_eq!(overdue(&*store).await, ["1"]);
    assert_eq!(store.count_overdue().await, Ok(1));
    assert_eq!(close(&*store, &["1", "2", "3"]).await, 1);
    let mut transaction = begin(&*store).await;
    assert_eq!(change(&mut *transaction, &ids(&*store, &["2", "3"])).await, Ok(0));
    transaction.rollback().await;
    assert_eq!(closed_at_once(&*store, &["2", "3"]).await, [""; 0]);
    assert_eq!(status_of(&database).await, map([("1", "closed"), ("2", "PENDING"), ("3", "pending ")]));
}

pub async fn negative_statuses(database: Database) {
    create_orders(&database, "bigint", "smallint", time_type(database.kind)).await;
    orders_in(&database, &["-1", "1", "-2"]).await;
    let store = open(&settings(&database).set("orders.unpaid", vec![-1, -2]).set("orders.closed", -9)).await;
    assert_eq!(rehearse(&*store).await, Ok(()));
    assert_eq!(overdue(&*store).await, ["1", "3"]);
    assert!(matches!(outcomes(&store, &["1", "2", "3"]).await[..], [Outcome::Closed(_), Outcome::Settled { .. }, Outcome::Closed(_)]));
    assert_eq!(status_of(&database).await, map([("1", "-9"), ("2", "1"), ("3", "-9")]));
}

pub async fn statuses_filled_with_zeros(database: Database) {
    create_orders(&database, "bigint", "int(2) unsigned zerofill", time_type(database.kind)).await;
    orders_in(&database, &["0", "1"]).await;
    let store = open(&settings(&database)).await;
    assert_eq!(verdict(&*store, "2").await, settled("1"));
    assert_eq!(close(&*store, &["1", "2"]).await, 1);
    assert_eq!(status_of(&database).await, map([("1", "04"), ("2", "01")]));
}

pub async fn a_null_status_is_not_unpaid(database: Database) {
    create_orders(&database, "bigint", "integer", time_type(database.kind)).await;
    orders_in(&database, &["NULL", "0"]).await;
    let store = open(&settings(&database)).await;
    assert_eq!(overdue(&*store).await, ["2"]);
    assert_eq!(verdict(&*store, "1").await, Verdict::Settled { status: None });
    assert_eq!(close(&*store, &["1", "2"]).await, 1);
    assert_eq!(status_of(&database).await, map([("1", "NULL"), ("2", "4")]));
}

/// As some shops keep the id of a state: compared byte by byte, and shown as HEX() does.
pub async fn statuses_of_bytes(database: Database) {
    create_orders(&database, "bigint", "binary(4)", time_type(database.kind)).await;
    orders_in(&database, &["0x00ab27ff", "0x00AB27FE", "'ab\\0\\0'", "NULL", "0x00ab27ff"]).await;
    let [open_state, closed] = ["0x00AB27ff", "0x5c270022"];
    let settings = settings(&database).set("orders.unpaid", vec![open_state, "0x61620000"]).set("orders.closed", closed);
    let store = open(&settings).await;
    assert_eq!(store.unpaid(), ["0x00ab27ff", "0x61620000"]);
    assert_eq!(rehearse(&*store).await, Ok(()));
    assert_eq!(overdue(&*store).await, ["1", "3", "5"]);
    assert_eq!(store.count_overdue().await, Ok(3));
    assert_eq!(verdict(&*store, "2").await, settled("0x00ab27fe"));
    assert_eq!(verdict(&*store, "4").await, Verdict::Settled { status: None });
    assert_eq!(close(&*store, &["1", "2", "3", "4"]).await, 2);
    assert_eq!(closed_at_once(&*store, &["5"]).await, [""; 0]);
    assert_eq!(verdict(&*store, "1").await, settled(closed));
    let closed_rows = "SELECT count(*) FROM orders WHERE status = 0x5c270022";
    assert_eq!(database.number(closed_rows).await, 2);
}
