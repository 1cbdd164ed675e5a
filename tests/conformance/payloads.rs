//! What events carry: strict JSON, whatever stands in the columns, and never a reason for an order to stay open.

use order_closer::{close::Outcome, order::Trigger};
use serde_json::{Value, json};

use super::{
    Database, Kind, by_kind,
    outbox::{close, events, migrated, with_events},
    overdue_orders, plain_orders,
};
use crate::support::mariadb;

/// Columns, their types, values, and what an event says of them; `None` where that is the server's own way to write it.
type Column = (&'static str, &'static str, &'static str, Option<Value>);

fn columns(kind: Kind) -> Vec<Column> {
    match kind {
        Kind::Postgres => vec![
            ("endless", "float8", "'Infinity'", Some(json!("Infinity"))),
            ("below", "float4", "'-Infinity'", Some(json!("-Infinity"))),
            ("nan", "float8", "'NaN'", Some(json!("NaN"))),
            ("numeric_nan", "numeric", "'NaN'", Some(json!("NaN"))),
            ("huge", "numeric", "1e1000", Some(json!(format!("1{}", "0".repeat(1_000))))),
            ("forever", "timestamptz", "'infinity'", Some(json!("infinity"))),
            ("never", "date", "'-infinity'", Some(json!("-infinity"))),
            ("ides", "date", "'0044-03-15 BC'", Some(json!("0044-03-15 BC"))),
            ("late", "timestamp", "'294276-12-31 23:59:59'", Some(json!("294276-12-31T23:59:59"))),
            ("bytes", "bytea", "'\\x00ff'", Some(json!("\\x00ff"))),
            ("controls", "text", "E'\\x01\\x1b\\n\\x7f'", Some(json!("\u{1}\u{1b}\n\u{7f}"))),
            ("plain_json", "json", "'{\"nul\": \"\\u0000\", \"half\": \"\\ud83d\"}'", Some(json!({ "nul": "\0", "half": "\u{fffd}" }))),
            ("list", "text[]", "'{a,NULL}'", Some(json!(["a", null]))),
            ("point", "point", "'(1,Infinity)'", None),
            ("span", "interval", "'-178000000 years'", None),
            ("range", "tstzrange", "'[,infinity]'", None),
            ("money", "money", "'-92233720368547758.08'", None),
            ("bits", "bit(3)", "B'101'", Some(json!("101"))),
            ("blank", "text", "NULL", Some(Value::Null)),
        ],
        Kind::MariaDb => vec![
            ("big", "double", "1.5e300", Some(json!(1.5e300))),
            ("huge", "decimal(65,0)", "REPEAT('9', 65)", None),
            ("zero_date", "date", "'0000-00-00'", Some(json!("0000-00-00"))),
            ("half_date", "date", "'2026-02-00'", Some(json!("2026-02-00"))),
            ("late", "datetime(6)", "'9999-12-31 23:59:59.999999'", Some(json!("9999-12-31 23:59:59.999999"))),
            ("span", "time", "'-838:59:59'", Some(json!(if mariadb::is_mysql() { "-838:59:59.000000" } else { "-838:59:59" }))),
            ("bytes", "blob", "x'00ff'", Some(json!("00ff"))),
            ("few_bytes", "varbinary(4)", "x'80'", Some(json!("80"))),
            ("bits", "bit(9)", "b'111111111'", Some(json!("1ff"))),
            ("western", "varchar(10) CHARACTER SET latin1", "x'e981'", None),
            ("smile", "varchar(10) CHARACTER SET utf8mb4", "x'f09f9880'", Some(json!("😀"))),
            ("controls", "varchar(10) CHARACTER SET utf8mb4", "x'011b0a7f22'", Some(json!("\u{1}\u{1b}\n\u{7f}\""))),
            ("plain_json", "json", "'{\"a\": [1]}'", None),
            ("place", "point", "ST_GeomFromText('POINT(1 2)')", None),
            ("filled", "int(9) unsigned zerofill", "7", Some(json!(7))),
            ("huge_filled", "bigint unsigned zerofill", "18446744073709551615", Some(json!(u64::MAX))),
            ("words", "set('a','b')", "'a,b'", Some(json!("a,b"))),
            ("blank", "text", "NULL", Some(Value::Null)),
        ],
        Kind::Sqlite => vec![
            ("endless", "real", "9e999", Some(json!("Infinity"))),
            ("below", "real", "-9e999", Some(json!("-Infinity"))),
            ("big", "real", "1.5e308", Some(json!(1.5e308))),
            ("small", "integer", "-9223372036854775808", Some(json!(i64::MIN))),
            ("latin", "text", "CAST(x'6ce97276' AS TEXT)", Some(json!("l\u{fffd}rv"))),
            ("cut_off", "text", "CAST(x'61f09f98' AS TEXT)", Some(json!("a\u{fffd}"))),
            ("surrogate", "text", "CAST(x'eda0bd22' AS TEXT)", Some(json!("\u{fffd}\u{fffd}\u{fffd}\""))),
            ("nul", "text", "CAST(x'610062' AS TEXT)", None),
            ("controls", "text", "CAST(x'011b0a7f' AS TEXT)", Some(json!("\u{1}\u{1b}\n\u{7f}"))),
            ("bytes", "blob", "x'00ff'", Some(json!("00ff"))),
            ("number_in_text", "text", "'9e999'", Some(json!("9e999"))),
            ("plain_json", "text", "'{\"a\": [1]}'", Some(json!("{\"a\": [1]}"))),
            ("blank", "text", "NULL", Some(Value::Null)),
        ],
    }
}

pub async fn whatever_the_columns_hold(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, 1..=3).await;
    let columns = columns(database.kind);
    for (name, declared, value, _) in &columns {
        database.execute(&format!("ALTER TABLE orders ADD COLUMN {name} {declared} NULL")).await;
        // MySQL takes half a date only where it is told that there may be one.
        let [first, lax] = if database.kind == Kind::MariaDb { ["SET SESSION sql_mode = ''; ", "IGNORE "] } else { ["", ""] };
        database.execute(&format!("{first}UPDATE {lax}orders SET {name} = {value} WHERE order_no = 2")).await;
    }
    let names: Vec<&str> = columns.iter().map(|(name, ..)| *name).collect();
    let store = migrated(&with_events(&database).set("events.include", names)).await;
    let looked = close(&store, &["1", "2", "3"], Trigger::Sweep).await;
    assert!(looked.iter().all(|one| matches!(one.outcome, Outcome::Closed(_))), "{looked:?}");
    let events = events(&*store).await;
    assert_eq!(events.len(), 3);
    let text = events.iter().find(|event| event.order_id == "2").map_or("", |event| event.data.get());
    for (name, _, value, expected) in &columns {
        let data: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {}", text));
        let found = data.get(*name).unwrap_or_else(|| panic!("{name} is missing: {data}"));
        assert!(expected.as_ref().is_none_or(|expected| expected == found), "{name}, {value}: {found}");
        assert!(*name == "blank" || !found.is_null(), "{name}, {value}: {found}");
    }
}

pub async fn a_payload_that_is_too_long(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, 1..=3).await;
    let long = by_kind(database.kind, "repeat('x', 300000)", "REPEAT('x', 300000)", "hex(zeroblob(150000))");
    if database.kind == Kind::MariaDb {
        database.execute("ALTER TABLE orders MODIFY note longtext").await;
    }
    database.execute(&format!("UPDATE orders SET note = {long} WHERE order_no = 2")).await;
    let store = migrated(&with_events(&database).set("events.include", vec!["note", "status"])).await;
    let looked = close(&store, &["1", "2", "3"], Trigger::Sweep).await;
    assert!(looked.iter().all(|one| matches!(one.outcome, Outcome::Closed(_))), "{looked:?}");
    assert_eq!(carried(&events(&*store).await), [json!({ "note": null, "status": 4 }), json!({}), json!({ "note": null, "status": 4 })]);
}

/// The server itself fails while it renders what one order has.
pub async fn a_column_that_the_server_cant_render(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, 1..=3).await;
    database
        .execute(
            "CREATE TYPE mood AS ENUM ('good', 'bad');
             CREATE FUNCTION mood_as_json(mood) RETURNS json LANGUAGE plpgsql AS
                $$ BEGIN IF $1 = 'bad' THEN RAISE EXCEPTION 'no'; END IF; RETURN '\"good\"'; END $$;
             CREATE CAST (mood AS json) WITH FUNCTION mood_as_json(mood);
             ALTER TABLE orders ADD COLUMN mood mood NOT NULL DEFAULT 'good';
             UPDATE orders SET mood = 'bad' WHERE order_no = 2",
        )
        .await;
    let store = migrated(&with_events(&database).set("events.include", vec!["mood"])).await;
    let looked = close(&store, &["1", "2", "3"], Trigger::Sweep).await;
    assert!(looked.iter().all(|one| matches!(one.outcome, Outcome::Closed(_))), "{looked:?}");
    let good = json!({ "mood": "good" });
    assert_eq!(carried(&events(&*store).await), [good.clone(), json!({}), good]);
}

fn carried(events: &[order_closer::outbox::Event]) -> Vec<Value> {
    let mut events: Vec<_> = events.iter().collect();
    events.sort_by(|one, other| one.order_id.cmp(&other.order_id));
    events.iter().map(|event| serde_json::from_str(event.data.get()).expect("JSON")).collect()
}
