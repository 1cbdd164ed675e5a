//! Ids: whatever the column can hold is found, and only exactly.

use std::sync::Arc;

use order_closer::{
    close::Outcome,
    store::{Store, StoreError},
};

use super::{
    Database, Kind, PAST, begin, by_kind, change, close, closing::outcomes, create_orders, ids, lockable, open, overdue, overdue_orders,
    plain_orders, settings, sorted_ids, status_of, texts as map, time_type,
};

pub async fn integer_ids(database: Database) {
    plain_orders(&database).await;
    // The last two and their neighbours are one number to whoever thinks in doubles.
    overdue_orders(&database, [1, -5, 9_007_199_254_740_993, i64::MAX]).await;
    let store = open(&settings(&database)).await;
    let asked = ["1", "2", "-5", "9007199254740992", "9007199254740993", "9223372036854775806", "9223372036854775807"];
    let found = ["-5", "1", "9007199254740993", "9223372036854775807"];
    assert_eq!(lockable(&*store, &asked).await, found);
    assert_eq!(overdue(&*store).await, found);
    for not_an_id in ["", "01", "1.0", " 1", "1 ", "+1", "0x1", "1e3", "lock_77", "9223372036854775808"] {
        assert!(store.id_kind().parse(not_an_id.as_bytes()).is_err(), "{not_an_id:?}");
    }
    assert_eq!(close(&*store, &asked).await, 4);
}

pub async fn unsigned_ids(database: Database) {
    create_orders(&database, "bigint unsigned", "integer", time_type(database.kind)).await;
    database.execute(&format!("INSERT INTO orders VALUES (18446744073709551615, 0, {PAST}, NULL)")).await;
    let store = open(&settings(&database)).await;
    assert_eq!(lockable(&*store, &["18446744073709551615", "18446744073709551614", "1"]).await, ["18446744073709551615"]);
    assert!(store.id_kind().parse(b"-1").is_err());
    assert!(store.id_kind().parse(b"18446744073709551616").is_err());
    assert_eq!(close(&*store, &["18446744073709551615"]).await, 1);
}

pub async fn ids_filled_with_zeros(database: Database) {
    for id_type in ["int(6) zerofill", "decimal(8) zerofill"] {
        create_orders(&database, id_type, "integer", time_type(database.kind)).await;
        overdue_orders(&database, [7]).await;
        let store = open(&settings(&database)).await;
        assert_eq!(overdue(&*store).await, ["7"], "{id_type}");
        assert_eq!(close(&*store, &["7"]).await, 1, "{id_type}");
        store.close().await;
        database.execute("DROP TABLE orders").await;
    }
}

pub async fn ids_of_a_domain_over_a_domain(database: Database) {
    database.execute("CREATE DOMAIN code AS varchar(5); CREATE DOMAIN order_code AS code CHECK (VALUE <> '')").await;
    create_orders(&database, "order_code", "integer", time_type(database.kind)).await;
    database.execute(&format!("INSERT INTO orders VALUES ('abcde', 0, {PAST}, NULL)")).await;
    let store = open(&settings(&database)).await;
    assert!(store.id_kind().parse(b"abcdef").is_err());
    assert_eq!(overdue(&*store).await, ["abcde"]);
    assert_eq!(close(&*store, &["abcde"]).await, 1);
}

/// Texts that have broken somebody's SQL before.
const STRANGE: [&str; 11] =
    ["2026-000001", "it's", "a\"b", r"back\slash", "{1,2}", "NULL", "100%_", "a,b", "grüße 🛒", "x'); DROP TABLE orders; --", ":ids ? $1"];

pub async fn text_ids(database: Database) {
    create_orders(&database, by_kind(database.kind, "text", "varchar(100)", "text"), "integer", time_type(database.kind)).await;
    for text in STRANGE {
        let mut literal = text.replace('\'', "''");
        if database.kind == Kind::MariaDb {
            literal = literal.replace('\\', r"\\");
        }
        database.execute(&format!("INSERT INTO orders VALUES ('{literal}', 0, {PAST}, NULL)")).await;
    }
    let mut all = STRANGE.map(str::to_owned).to_vec();
    all.sort();
    let store = open(&settings(&database).set("close.sql", vec!["UPDATE orders SET note = 'closed' WHERE order_no IN (:ids)"])).await;
    assert_eq!(lockable(&*store, &STRANGE).await, all);
    assert_eq!(overdue(&*store).await, all);
    assert_eq!(lockable(&*store, &["no such order", "2026-00000", "2026-0000011"]).await, [""; 0]);
    assert_eq!(close(&*store, &STRANGE[..10]).await, 10);
    assert_eq!(database.column("SELECT order_no FROM orders WHERE status = 0").await, [Some(STRANGE[10].to_owned())]);
    assert_eq!(database.number("SELECT count(*) FROM orders WHERE note = 'closed'").await, 10);
}

/// Rows that a collation takes for equal are different orders.
pub async fn ids_that_look_alike(database: Database) {
    let text = by_kind(database.kind, "text", "varchar(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci", "text");
    database.execute(&format!("CREATE TABLE orders (order_no {text}, status integer, expires_at {})", time_type(database.kind))).await;
    database.execute("CREATE INDEX orders_id ON orders (order_no)").await;
    for id in ["x-1", "X-1", "x-1 ", "ü", "7"] {
        database.execute(&format!("INSERT INTO orders VALUES ('{id}', 0, {PAST})")).await;
    }
    let store = open(&settings(&database)).await;
    assert_eq!(lockable(&*store, &["X-1", "u", "U", "Ü", "x-1  ", "07", "7.0"]).await, ["X-1"]);
    assert_eq!(lockable(&*store, &["x-1", "X-1", "x-1 "]).await, ["X-1", "x-1", "x-1 "]);
    assert_eq!(overdue(&*store).await, ["7", "X-1", "x-1", "x-1 ", "ü"]);
    let mut transaction = begin(&*store).await;
    let peeked = transaction.peek(&ids(&*store, &["X-1", "u"])).await.expect("rows can be read");
    assert_eq!(sorted_ids(&peeked), ["X-1"]);
    transaction.rollback().await;
    assert_eq!(close(&*store, &["x-1", "u"]).await, 1);
    let expected = map([("x-1", "4"), ("X-1", "0"), ("x-1 ", "0"), ("ü", "0"), ("7", "0")]);
    assert_eq!(status_of(&database).await, expected);
}

pub async fn ids_within_the_columns_length(database: Database) {
    create_orders(&database, "varchar(5)", "integer", time_type(database.kind)).await;
    database.execute(&format!("INSERT INTO orders VALUES ('äbcde', 0, {PAST}, NULL)")).await;
    let store = open(&settings(&database)).await;
    // Cut to the column's length it would be another order.
    if let Ok(longer) = store.id_kind().parse("äbcdef".as_bytes()) {
        let mut transaction = begin(&*store).await;
        assert_eq!(transaction.lock(&[longer]).await, Ok(Vec::new()));
        transaction.rollback().await;
    }
    assert_eq!(lockable(&*store, &["äbcde", "äbcd"]).await, ["äbcde"]);
}

pub async fn ids_padded_by_the_column(database: Database) {
    create_orders(&database, "char(10)", "integer", time_type(database.kind)).await;
    database.execute(&format!("INSERT INTO orders VALUES ('abc', 0, {PAST}, NULL)")).await;
    let store = open(&settings(&database)).await;
    assert_eq!(lockable(&*store, &["abc", "ab"]).await, ["abc"]);
    assert_eq!(overdue(&*store).await, ["abc"]);
    assert_eq!(close(&*store, &["abc"]).await, 1);
}

pub async fn uuid_ids(database: Database) {
    create_orders(&database, "uuid", "integer", time_type(database.kind)).await;
    let id = "0190163d-8694-739b-aea5-966c26f8ad90";
    database.execute(&format!("INSERT INTO orders VALUES ('{id}', 0, {PAST}, NULL)")).await;
    let store = open(&settings(&database)).await;
    let other = "0190163d-8694-739b-aea5-966c26f8ad91";
    assert_eq!(lockable(&*store, &[other, &id.to_uppercase()]).await, [id]);
    assert!(store.id_kind().parse(id.replace('-', "").as_bytes()).is_err());
    assert!(store.id_kind().parse(b"7").is_err());
    assert_eq!(close(&*store, &[id, other]).await, 1);
}

pub async fn more_ids_than_one_statement_holds(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, 1..=3_000).await;
    let store = open(&settings(&database)).await;
    for count in [1, 2, 63, 64, 65, 499, 500, 501, 1_499, 2_999] {
        let texts: Vec<String> = (1..=count).map(|number| number.to_string()).collect();
        let mut transaction = begin(&*store).await;
        let rows = transaction.lock(&ids(&*store, &texts)).await.expect("rows can be locked");
        assert_eq!(rows.len(), texts.len());
        let peeked = transaction.peek(&ids(&*store, &texts)).await.expect("rows can be read");
        assert_eq!(peeked.len(), texts.len());
        assert_eq!(change(&mut *transaction, &ids(&*store, &texts)).await, Ok(count));
        transaction.rollback().await;
    }
    assert_eq!(database.number("SELECT count(*) FROM orders WHERE status <> 0").await, 0);
}

pub async fn no_ids_at_all(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, [1]).await;
    let store = open(&settings(&database).set("close.sql", vec!["UPDATE orders SET note = 'closed' WHERE order_no IN (:ids)"])).await;
    let mut transaction = begin(&*store).await;
    assert_eq!(transaction.lock(&[]).await, Ok(Vec::new()));
    assert_eq!(transaction.peek(&[]).await, Ok(Vec::new()));
    assert_eq!(change(&mut *transaction, &[]).await, Ok(0));
    transaction.commit().await.expect("an empty transaction can be committed");
    assert_eq!(database.number("SELECT count(*) FROM orders WHERE status = 0 AND note IS NULL").await, 1);
}

/// Without a unique index a table may have several rows of one id, and which of them is the order nobody knows.
pub async fn two_rows_with_one_id(database: Database) {
    database.execute(&format!("CREATE TABLE orders (order_no bigint, status integer, expires_at {})", time_type(database.kind))).await;
    database.execute(&format!("INSERT INTO orders VALUES (7, 0, {PAST}), (7, 1, {PAST}), (8, 0, {PAST})")).await;
    let store = open(&settings(&database)).await;
    let catalogue = store.catalogue().await.expect("the catalogue can be read");
    assert!(!catalogue.id_is_unique && catalogue.id_index.found.is_none(), "{catalogue:?}");
    assert!(catalogue.id_index.create.contains("INDEX") && catalogue.id_index.create.contains("order_no"), "{catalogue:?}");
    assert!(store.look(&ids(&*store, &["7"])).await.is_ok_and(|rows| rows.len() == 2));
    none_of_two_closes(&database, &store, &["7", "8"]).await;
}

/// Its twin is locked by a payment, and would be skipped.
pub async fn a_locked_row_with_the_same_id(database: Database) {
    database.execute(&format!("CREATE TABLE orders (order_no bigint, status integer, expires_at {})", time_type(database.kind))).await;
    database.execute("CREATE INDEX orders_id ON orders (order_no, status)").await;
    database.execute(&format!("INSERT INTO orders VALUES (7, 0, {PAST}), (7, 1, {PAST}), (8, 0, {PAST})")).await;
    let store = open(&settings(&database)).await;
    let mut payment = database.begin().await;
    payment.execute("UPDATE orders SET expires_at = expires_at WHERE order_no = 7 AND status = 1").await;
    let lockable = begin(&*store).await.lock(&ids(&*store, &["7"])).await;
    assert!(matches!(&lockable, Err(StoreError::Rejected(reason)) if reason.contains("two rows have the id 7")), "{lockable:?}");
    none_of_two_closes(&database, &store, &["7", "8"]).await;
    payment.rollback().await;
    none_of_two_closes(&database, &store, &["7"]).await;
}

/// Of the orders 7, 7 and 8 only the last closes.
async fn none_of_two_closes(database: &Database, store: &Arc<dyn Store>, asked: &[&str]) {
    let outcomes = outcomes(store, asked).await;
    assert!(matches!(&outcomes[0], Outcome::Rejected { reason, .. } if reason.contains("two rows have the id 7")), "{outcomes:?}");
    let left = database.rows("SELECT order_no, status FROM orders ORDER BY order_no, status").await;
    let left: Vec<String> = left.into_iter().map(|row| row.into_iter().flatten().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(left, ["7 0", "7 1", "8 4"]);
}
