//! How the statements of a closure find their rows, by statistics of a time when hardly an order was unpaid: by their ids,
//! and never through an index of what is unpaid, which would be read as a whole each time.

use super::{Database, Kind, PAST, by_kind, create_orders, settings, time_type};
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
        let mut arguments = vec!["close".to_owned(), "999999".to_owned()];
        arguments.extend((first..first + 50).map(|number: i32| number.to_string()));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let closed = order_closer(&settings, &arguments).await;
        for line in closed.stderr.lines() {
            let record: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
            let statement = record["db.statement"].as_str().unwrap_or_default().trim();
            if let Some(plan) = plan(&database, statement).await {
                assert!(
                    plan.contains("orders_id") && !plan.contains("orders_due") && !plan.contains("orders_unpaid"),
                    "{statement}\n{plan}"
                );
                seen += 1;
            }
        }
    }
    assert_eq!(database.number("SELECT count(*) FROM orders WHERE status = 'closed'").await, 100);
    assert!(seen >= 8, "only {seen} statements were logged");
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
            on_orders.then(|| format!("EXPLAIN {}", statement.split('?').enumerate().map(numbered).collect::<String>()))
        }
        Kind::Sqlite => {
            let on_orders = statement.contains("\"orders\"") && statement.contains("json_each(?1)");
            on_orders.then(|| format!("EXPLAIN QUERY PLAN {}", statement.replace("?1", "'[1,2,3]'")))
        }
    }?;
    let rows = database.rows(&explain).await;
    Some(rows.into_iter().map(|row| row.into_iter().flatten().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>().join("\n"))
}
