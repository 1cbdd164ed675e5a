//! How the statements of a closure find their rows, by statistics of a time when hardly an order was unpaid: by their ids,
//! and never through an index of what is unpaid, which would be read as a whole each time.

use std::time::Duration;

use super::{
    Database, Kind, PAST, Settings, by_kind, create_orders,
    outbox::{claim, migrated, settle, with_events},
    plain_orders, settings, time_type,
};
use crate::support::order_closer;

pub async fn closing_finds_orders_by_id(database: Database) {
    create_orders(&database, "bigint", "varchar(20)", time_type(database.kind)).await;
    match database.kind {
        Kind::MariaDb => database.execute("ALTER TABLE orders STATS_PERSISTENT = 1, STATS_AUTO_RECALC = 0").await,
        Kind::Postgres | Kind::Sqlite => {
            database.execute("CREATE INDEX orders_unpaid ON orders (expires_at, order_no) WHERE status = 'pending'").await
        }
    };
    for chunk in 0..10 {
        let rows: Vec<String> = (chunk * 2_000..(chunk + 1) * 2_000).map(|number| format!("({number}, 'paid', {PAST})")).collect();
        database.execute(&format!("INSERT INTO orders (order_no, status, expires_at) VALUES {}", rows.join(", "))).await;
    }
    database.execute("UPDATE orders SET status = 'pending' WHERE order_no IN (7, 8)").await;
    database.execute(by_kind(database.kind, "ANALYZE orders", "ANALYZE TABLE orders", "ANALYZE")).await;
    database.execute("UPDATE orders SET status = 'pending'").await;

    let settings = settings(&database)
        .set("orders.unpaid", "pending")
        .set("orders.closed", "closed")
        .set("events.enabled", true)
        .set("events.include", vec!["note"])
        .set("log.format", "json")
        .set("log.level", "warn,sqlx::query=debug");
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    // With parentheses the filter might look elsewhere, so that each step is taken by itself.
    let stepwise = settings.clone().set("orders.unpaid", vec!["pending", "new"]).set("orders.filter", "(note IS NULL)");
    let mut seen = 0;
    for (settings, first) in [(settings, 100), (stepwise, 200)] {
        let asked: Vec<i32> = [999_999].into_iter().chain(first..first + 50).collect();
        for (statement, plan) in plans_of_closing(&database, &settings, &asked).await {
            // MariaDB reads a single row by a unique index while it plans.
            let by_id = plan.contains("orders_id") || plan.contains("after reading const tables");
            assert!(by_id && !plan.contains("orders_due") && !plan.contains("orders_unpaid"), "{statement}\n{plan}");
            seen += 1;
        }
    }
    assert_eq!(database.number("SELECT count(*) FROM orders WHERE status = 'closed'").await, 100);
    assert!(seen >= 8, "only {seen} statements were logged");
}

/// A table with a partition for each of 60 days, of which an order that falls due needs one or two. What the look-up does not
/// find there is found in all of the table.
pub async fn a_look_up_reads_few_partitions(database: Database) {
    let days = by_kind(
        database.kind,
        "SELECT (current_date + i - 30)::text FROM generate_series(0, 60) i",
        "SELECT CAST(CURRENT_DATE + INTERVAL (CAST(seq AS SIGNED) - 30) DAY AS CHAR) FROM seq_0_to_60",
        "",
    );
    let days: Vec<String> = database.column(days).await.into_iter().flatten().collect();
    let (time, columns) = (time_type(database.kind), "order_no bigint, status integer, expires_at");
    let first = &days[0];
    if database.kind == Kind::Postgres {
        database
            .execute(&format!("CREATE TABLE orders ({columns} {time}, PRIMARY KEY (order_no, expires_at)) PARTITION BY RANGE (expires_at)"))
            .await;
        for (number, day) in days.windows(2).enumerate() {
            let (from, to) = (&day[0], &day[1]);
            database.execute(&format!("CREATE TABLE day_{number:02} PARTITION OF orders FOR VALUES FROM ('{from}') TO ('{to}')")).await;
        }
    } else {
        let day = |(number, day): (usize, &String)| format!("PARTITION day_{number:02} VALUES LESS THAN ('{day}')");
        let parts: Vec<String> = days.iter().enumerate().map(day).collect();
        let parts = parts.join(", ");
        let table = format!(
            "CREATE TABLE orders ({columns} {time}, PRIMARY KEY (order_no, expires_at)) PARTITION BY RANGE COLUMNS (expires_at) ({parts})"
        );
        database.execute(&table).await;
    }
    // Both know both spellings.
    let (now, later) = ("now() - interval '1' minute", "now() + interval '9' day");
    let rows = format!("(1, 0, '{first}'), (2, 0, {now}), (3, 0, {later}), (4, 1, '{first}'), (5, 0, {now})");
    database.execute(&format!("INSERT INTO orders VALUES {rows}")).await;
    let settings = settings(&database).set("log.format", "json").set("log.level", "warn,sqlx::query=debug");
    let mut few = 0;
    for (statement, plan) in plans_of_closing(&database, &settings, &[1, 2, 3, 4, 5, 6]).await {
        let partitions = (0..60).filter(|number| plan.contains(&format!("day_{number:02}"))).count();
        // Without the bounds it reads them all.
        let bounded = partitions <= 4;
        assert!(bounded || partitions == 60 || database.kind == Kind::MariaDb, "{statement}\n{plan}");
        few += u8::from(bounded);
    }
    assert!(few >= 3, "{few} statements read few partitions");
    let left = database.column("SELECT concat(order_no, ' ', status) FROM orders ORDER BY order_no").await;
    assert_eq!(left.into_iter().flatten().collect::<Vec<_>>(), ["1 4", "2 4", "3 0", "4 1", "5 4"]);
}

/// Deliveries are found by their events, by statistics of a time when there was none: nothing reads the whole table for each of them.
pub async fn claiming_finds_deliveries_by_their_events(database: Database) {
    plain_orders(&database).await;
    let store = migrated(&with_events(&database)).await;
    for table in ["order_closer_events", "order_closer_deliveries"] {
        database.execute(&format!("ALTER TABLE {table} STATS_PERSISTENT = 1, STATS_AUTO_RECALC = 0")).await;
        database.execute(&format!("ANALYZE TABLE {table}")).await;
    }
    let id = "CONCAT('00000000-0000-7000-8000-', LPAD(seq, 12, '0'))";
    database
        .execute(&format!(
            "INSERT INTO order_closer_events (id, order_id, deadline, closed_at, lateness, triggered_by, instance, data)
                 SELECT {id}, seq, 1, 1, 0, 'sweep', 'test', '{{}}' FROM seq_1_to_5000;
             INSERT INTO order_closer_deliveries (event_id, target, attempts, due_at) SELECT id, 'one', 0, 1 FROM order_closer_events;
             SET GLOBAL userstat = 1"
        ))
        .await;
    let claimed = claim(&*store, "one", Duration::from_mins(1), 500).await;
    assert_eq!(claimed.len(), 500);
    let ids: Vec<_> = claimed.iter().map(|claimed| claimed.event.id).collect();
    settle(store.outbox(), "one", &ids, &[]).await;
    let read = "SELECT CAST(SUM(rows_read) AS SIGNED) FROM information_schema.table_statistics
                WHERE table_schema = DATABASE() AND table_name IN ('order_closer_events', 'order_closer_deliveries')";
    let read = database.number(read).await;
    assert!((500..20_000).contains(&read), "{read} rows were read for 500 of 5,000 deliveries");
}

/// The statements by which `close` finds these orders, and how the database would run them.
async fn plans_of_closing(database: &Database, settings: &Settings, asked: &[i32]) -> Vec<(String, String)> {
    let mut arguments = vec!["close".to_owned()];
    arguments.extend(asked.iter().map(i32::to_string));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let closed = order_closer(settings, &arguments).await;
    let mut plans = Vec::new();
    for line in closed.stderr.lines() {
        let record: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
        let statement = record["db.statement"].as_str().unwrap_or_default().trim();
        if let Some(plan) = plan(database, statement).await {
            plans.push((statement.to_owned(), plan));
        }
    }
    plans
}

/// How the database would run this statement, if it is one on a list of orders.
async fn plan(database: &Database, statement: &str) -> Option<String> {
    let explain = match database.kind {
        Kind::Postgres => {
            let on_orders = statement.contains("\"orders\"") && statement.contains("ANY($1");
            on_orders.then(|| {
                format!(
                    "PREPARE looked AS {statement}; SET plan_cache_mode = force_generic_plan; EXPLAIN EXECUTE looked('{{1,2,3}}');
                     SET plan_cache_mode = force_custom_plan; EXPLAIN EXECUTE looked('{{1,2,3}}'); DEALLOCATE looked"
                )
            })
        }
        Kind::MariaDb => {
            let on_orders = statement.contains("`orders`") && statement.contains("IN (?");
            // The beginning in a comment is a statement of its own.
            let statement = statement.split_once("*/ ").map_or(statement, |(_, rest)| rest);
            let numbered = |(at, piece): (usize, &str)| if at == 0 { piece.to_owned() } else { format!("{at}{piece}") };
            on_orders.then(|| format!("EXPLAIN PARTITIONS {}", statement.split('?').enumerate().map(numbered).collect::<String>()))
        }
        Kind::Sqlite => {
            let on_orders = statement.contains("\"orders\"") && statement.contains("json_each(?1)");
            on_orders.then(|| format!("EXPLAIN QUERY PLAN {}", statement.replace("?1", "'[1,2,3]'")))
        }
    }?;
    let rows = database.rows(&explain).await;
    Some(rows.into_iter().map(|row| row.into_iter().flatten().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>().join("\n"))
}
