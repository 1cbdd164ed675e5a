//! Names that SQL would fold, split or take for keywords; tables that are more than one.

use super::{Database, Kind, PAST, Settings, by_kind, close, lockable, open, overdue, settings, time_type};

/// Closes one of two orders of a table, and looks at it through its quoted name.
async fn closes_in(database: &Database, settings: &Settings, table: &str, id: &str, status: &str) {
    let store = open(settings).await;
    assert_eq!(lockable(&*store, &["1", "2", "3"]).await, ["1", "2"]);
    assert_eq!(overdue(&*store).await, ["1", "2"]);
    assert_eq!(store.count_overdue().await, Ok(2));
    assert_eq!(close(&*store, &["1"]).await, 1);
    assert_eq!(database.number(&format!("SELECT {id} FROM {table} WHERE {status} = 4")).await, 1);
    assert_eq!(database.number(&format!("SELECT {id} FROM {table} WHERE {status} = 0")).await, 2);
    let catalogue = store.catalogue().await.expect("the catalogue can be read");
    let types: Vec<&str> = catalogue.columns.iter().map(|column| column.key).collect();
    assert_eq!(types, ["orders.id", "orders.status", "orders.deadline.column"]);
    assert!(catalogue.id_is_unique && catalogue.id_index.found.is_some(), "{catalogue:?}");
}

pub async fn reserved_and_mixed_case_names(database: Database) {
    let quote = by_kind(database.kind, "\"", "`", "\"");
    let quoted = |name: &str| format!("{quote}{name}{quote}");
    let (table, id, status, deadline, set) =
        (quoted("order"), quoted("Group"), quoted("select"), quoted("pay by.date"), quoted("Closed At"));
    let time = time_type(database.kind);
    database.execute(&format!("CREATE TABLE {table} ({id} bigint PRIMARY KEY, {status} integer, {deadline} {time}, {set} {time})")).await;
    database.execute(&format!("INSERT INTO {table} VALUES (1, 0, {PAST}, NULL), (2, 0, {PAST}, NULL)")).await;
    let settings = settings(&database)
        .set("orders.table", "order")
        .set("orders.id", "Group")
        .set("orders.status", "select")
        .set("orders.deadline.column", "\"pay by.date\"")
        .set("orders.set.Closed At", by_kind(database.kind, "now()", "now()", "datetime()"));
    closes_in(&database, &settings, &table, &id, &status).await;
    assert_eq!(database.number(&format!("SELECT {id} FROM {table} WHERE {set} IS NOT NULL")).await, 1);
}

pub async fn a_qualified_table(database: Database) {
    let name = database.url.rsplit('/').next().unwrap_or_default();
    let schema = by_kind(database.kind, "public", name, "main");
    let table = format!("{schema}.{}", by_kind(database.kind, "\"Orders\"", "`Orders`", "\"Orders\""));
    database
        .execute(&format!("CREATE TABLE {table} (order_no bigint PRIMARY KEY, status integer, expires_at {})", time_type(database.kind)))
        .await;
    database.execute(&format!("INSERT INTO {table} VALUES (1, 0, {PAST}), (2, 0, {PAST})")).await;
    let settings = settings(&database).set("orders.table", format!("{schema}.Orders"));
    closes_in(&database, &settings, &table, "order_no", "status").await;
}

/// A table of the same name in the schema that comes first must not be touched.
pub async fn a_table_in_another_schema(database: Database) {
    let name = database.url.rsplit('/').next().unwrap_or_default();
    let schema = format!("{name}_old.shop");
    let quote = by_kind(database.kind, "\"", "`", "");
    database.execute(&format!("CREATE SCHEMA {quote}{schema}{quote}")).await;
    let table = format!("{quote}{schema}{quote}.orders");
    for table in [table.as_str(), "orders"] {
        database
            .execute(&format!(
                "CREATE TABLE {table} (order_no bigint PRIMARY KEY, status integer, expires_at {})",
                time_type(database.kind)
            ))
            .await;
        database.execute(&format!("INSERT INTO {table} VALUES (1, 0, {PAST}), (2, 0, {PAST})")).await;
    }
    let settings = settings(&database).set("orders.table", format!("\"{schema}\".orders"));
    closes_in(&database, &settings, &table, "order_no", "status").await;
    assert_eq!(database.number("SELECT count(*) FROM orders WHERE status = 0").await, 2);
    if database.kind == Kind::MariaDb {
        database.execute(&format!("DROP SCHEMA `{schema}`")).await;
    }
}

pub async fn a_partitioned_table(database: Database) {
    let time = time_type(database.kind);
    database
        .execute(&format!(
            "CREATE TABLE orders (order_no bigint PRIMARY KEY, status integer, expires_at {time}) PARTITION BY HASH (order_no){}",
            by_kind(
                database.kind,
                "; CREATE TABLE orders_even PARTITION OF orders FOR VALUES WITH (MODULUS 2, REMAINDER 0);
                 CREATE TABLE orders_odd PARTITION OF orders FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
                " PARTITIONS 4",
                ""
            )
        ))
        .await;
    database.execute(&format!("INSERT INTO orders VALUES (1, 0, {PAST}), (2, 0, {PAST})")).await;
    closes_in(&database, &settings(&database), "orders", "order_no", "status").await;
}
