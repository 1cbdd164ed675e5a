//! A configuration that does not fit the database is refused with the key, the value, and what would be right.

use order_closer::store::{OpenError, StoreError};

use super::{Database, Kind, Settings, by_kind, create_orders, plain_orders, settings, time_type, try_open};
use crate::support::ports;

/// Opening fails, and the message has all of these.
async fn misfit(settings: &Settings, needles: &[&str]) {
    let message = match try_open(settings).await {
        Err(OpenError::Misfit(misfit) | OpenError::Missing(misfit)) => misfit.to_string(),
        other => panic!("no misfit but {other:?}"),
    };
    for needle in needles {
        assert!(message.contains(needle), "{needle:?} is missing in: {message}");
    }
}

pub async fn no_such_table(database: Database) {
    plain_orders(&database).await;
    misfit(&settings(&database).set("orders.table", "bestellungen"), &["orders.table", "bestellungen"]).await;
}

pub async fn a_table_of_another_case(database: Database) {
    database.execute(&format!("CREATE TABLE t_orders (order_no bigint, status integer, expires_at {})", time_type(database.kind))).await;
    misfit(&settings(&database).set("orders.table", "T_Orders"), &["orders.table", "T_Orders", "t_orders"]).await;
}

pub async fn no_such_column(database: Database) {
    plain_orders(&database).await;
    for key in ["orders.id", "orders.status", "orders.deadline.column"] {
        misfit(&settings(&database).set(key, "pay_status"), &[key, "pay_status", "order_no", "status", "expires_at", "note"]).await;
    }
    misfit(&settings(&database).set("orders.set.modified", "now()"), &["orders.set", "modified", "note"]).await;
}

pub async fn a_word_for_a_numeric_status(database: Database) {
    plain_orders(&database).await;
    misfit(&settings(&database).set("orders.unpaid", vec!["pending"]), &["orders.unpaid", "\"pending\"", "number"]).await;
    misfit(&settings(&database).set("orders.closed", "closed"), &["orders.closed", "\"closed\"", "number"]).await;
}

pub async fn a_number_for_a_text_status(database: Database) {
    create_orders(&database, "bigint", "varchar(20)", time_type(database.kind)).await;
    misfit(&settings(&database), &["orders.unpaid", "0", "\"0\""]).await;
}

pub async fn bytes_that_do_not_fit(database: Database) {
    create_orders(&database, "bigint", "binary(2)", time_type(database.kind)).await;
    let with = |unpaid: &str, closed: &str| settings(&database).set("orders.unpaid", unpaid).set("orders.closed", closed);
    misfit(&with("0xab", "0x0102"), &["orders.unpaid", "\"0xab\"", "status", "binary(2)", "1 byte", "4 hex digits"]).await;
    misfit(&with("0xabcd", "0x010203"), &["orders.closed", "\"0x010203\"", "3 bytes", "4 hex digits"]).await;
    misfit(&with("open", "0x0102"), &["orders.unpaid", "\"open\"", "0x", "HEX()"]).await;
    database.execute("ALTER TABLE orders MODIFY status varchar(9)").await;
    misfit(&with("0xabcd", "closed"), &["orders.unpaid", "\"0xabcd\"", "BINARY"]).await;
}

pub async fn an_unknown_label(database: Database) {
    if database.kind == Kind::Postgres {
        database.execute("CREATE TYPE state AS ENUM ('pending', 'paid')").await;
    }
    create_orders(&database, "bigint", by_kind(database.kind, "state", "enum ('pending', 'paid')", ""), time_type(database.kind)).await;
    let settings = settings(&database).set("orders.unpaid", "pending").set("orders.closed", "closed");
    misfit(&settings, &["orders.closed", "\"closed\"", "pending", "paid"]).await;
}

pub async fn an_integer_deadline_without_its_unit(database: Database) {
    create_orders(&database, "bigint", "integer", "bigint").await;
    misfit(&settings(&database), &["orders.deadline", "expires_at", "unit", "\"s\"", "\"ms\""]).await;
}

pub async fn a_time_with_a_unit(database: Database) {
    plain_orders(&database).await;
    misfit(
        &settings(&database).add("[orders]\ndeadline = { column = 'expires_at', unit = 's' }"),
        &["orders.deadline", "expires_at", "unit"],
    )
    .await;
}

pub async fn close_sql_without_ids(database: Database) {
    plain_orders(&database).await;
    let statements = vec!["UPDATE orders SET note = 'x' WHERE order_no IN (:ids)", "UPDATE orders SET note = ':ids'"];
    misfit(&settings(&database).set("close.sql", statements), &["close.sql", "2", ":ids"]).await;
}

pub async fn types_that_do_not_fit(database: Database) {
    let time = time_type(database.kind);
    for (id, status, deadline, key) in [
        (by_kind(database.kind, "double precision", "double", ""), "integer", time, "orders.id"),
        ("bigint", time, time, "orders.status"),
        ("bigint", "integer", by_kind(database.kind, "interval", "varchar(20)", ""), "orders.deadline"),
    ] {
        database.execute("DROP TABLE IF EXISTS orders").await;
        create_orders(&database, id, status, deadline).await;
        misfit(&settings(&database), &[key]).await;
    }
}

/// To the judge, a status that reads 4 is not '04'.
pub async fn texts_that_become_numbers(database: Database) {
    create_orders(&database, "integer", "string", time_type(database.kind)).await;
    for (unpaid, closed, number) in [("0", "closed", "\"0\""), ("pending", "04", "\"04\"")] {
        let settings = settings(&database).set("orders.unpaid", unpaid).set("orders.closed", closed);
        misfit(&settings, &["orders.status", "string", number, "without quotes", "TEXT"]).await;
    }
}

/// A status that reads 0.00 is not 0 to the judge, and an id that reads 7.0 is nobody's.
pub async fn numbers_that_may_have_a_fraction(database: Database) {
    let time = time_type(database.kind);
    let cases = match database.kind {
        Kind::Sqlite => vec![("bigint", "real", "orders.status", "whole number")],
        Kind::Postgres | Kind::MariaDb => vec![
            ("bigint", "numeric(4,2)", "orders.status", "numeric(n,0)"),
            ("bigint", "numeric", "orders.status", "numeric(n,0)"),
            ("numeric", "integer", "orders.id", "numeric(n,0)"),
            ("numeric(10,2)", "integer", "orders.id", "numeric(n,0)"),
        ],
    };
    for (id, status, key, text) in cases {
        database.execute("DROP TABLE IF EXISTS orders").await;
        create_orders(&database, id, status, time).await;
        misfit(&settings(&database), &[key, text]).await;
    }
    database.execute("DROP TABLE orders").await;
    create_orders(
        &database,
        by_kind(database.kind, "numeric(10)", "", "bigint"),
        by_kind(database.kind, "numeric(4,0)", "", "numeric"),
        time,
    )
    .await;
    try_open(&settings(&database)).await.expect("whole numbers fit");
}

/// Nothing could be rolled back, nor locked.
pub async fn an_engine_without_transactions(database: Database) {
    plain_orders(&database).await;
    for engine in ["MyISAM", "Aria"] {
        database.execute(&format!("ALTER TABLE orders ENGINE = {engine}")).await;
        misfit(&settings(&database), &["orders.table", "orders", engine, "ALTER TABLE `orders` ENGINE=InnoDB"]).await;
    }
    database.execute("ALTER TABLE `orders` ENGINE=InnoDB").await;
    try_open(&settings(&database)).await.expect("the table fits");
}

/// Nobody answers: wait, don't give up; and the password is not in the message.
pub async fn an_unreachable_database(database: Database) {
    let scheme = by_kind(database.kind, "postgres", "mysql", "");
    let url = format!("{scheme}://shop:tops3cret@127.0.0.1:{}/shop", ports::free());
    match try_open(&settings(&database).set("database.url", url)).await {
        Err(OpenError::Store(StoreError::Unavailable(message))) => assert!(!message.contains("tops3cret"), "{message}"),
        other => panic!("not unavailable but {other:?}"),
    }
    let absent = format!("{}_absent", database.url);
    match try_open(&settings(&database).set("database.url", absent)).await {
        Err(OpenError::Store(StoreError::Refused { reason, cure })) => {
            assert!(reason.contains("_absent") && cure.contains("CREATE DATABASE"), "{reason}; {cure}");
        }
        // A file that is not there.
        Err(OpenError::Store(StoreError::Unavailable(message))) => assert!(message.contains("_absent"), "{message}"),
        other => panic!("not refused but {other:?}"),
    }
}
