//! The demo's shop: orders, their items, and an inventory, in SQLite.

use std::{path::Path, time::Duration};

use sqlx::{
    SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

use crate::cli::{Exit, Failure};

const FILE: &str = "shop.db";
const SKUS: i64 = 20;
const STOCK: i64 = 10_000;

const SCHEMA: &str = "
    CREATE TABLE orders (order_no TEXT PRIMARY KEY, status INTEGER NOT NULL DEFAULT 0, expires_at INTEGER NOT NULL, closed_at INTEGER);
    CREATE INDEX orders_due ON orders (status, expires_at, order_no);
    CREATE TABLE order_items (order_no TEXT NOT NULL, sku INTEGER NOT NULL, quantity INTEGER NOT NULL);
    CREATE INDEX order_items_order ON order_items (order_no);
    CREATE TABLE inventory (sku INTEGER PRIMARY KEY, available INTEGER NOT NULL);
    CREATE TABLE closures (order_no TEXT NOT NULL);
";

/// The configuration that fits the shop.
pub(super) fn configuration(folder: &Path, redis: &str) -> String {
    format!(
        r#"
[redis]
url = "{redis}"

[database]
url = "sqlite://{file}"

[orders]
deadline = {{ column = "expires_at", unit = "ms" }}
set = {{ closed_at = "CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)" }}

[close]
sql = [
  """
  UPDATE inventory SET available = available + released.quantity
    FROM (SELECT sku, sum(quantity) AS quantity FROM order_items WHERE order_no IN (:ids) GROUP BY sku) AS released
   WHERE inventory.sku = released.sku
  """,
  "INSERT INTO closures SELECT order_no FROM orders WHERE order_no IN (:ids)",
]

[log]
format = "json"
"#,
        file = folder.join(FILE).display()
    )
}

/// The order service's view of the shop.
#[derive(Debug, Clone)]
pub(super) struct Shop {
    pool: SqlitePool,
}

/// Where the orders stand.
#[derive(Debug, Clone, Default)]
pub(super) struct Counts {
    pub(super) pending: u64,
    pub(super) paid: u64,
    pub(super) closed: u64,
    /// Of those closed, sorted, in milliseconds.
    pub(super) lateness: Vec<i64>,
}

/// What is in the tables at the end.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    /// Number and status of each order.
    pub(super) orders: Vec<(String, i64)>,
    /// One entry for each closure.
    pub(super) closures: Vec<String>,
    /// Units missing from the inventory.
    pub(super) missing: i64,
    /// Units in paid orders.
    pub(super) sold: i64,
}

fn failed(error: sqlx::Error) -> Failure {
    Failure::new(Exit::Software, format!("the shop's database: {error}"))
}

impl Shop {
    pub(super) async fn create(folder: &Path) -> Result<Self, Failure> {
        let options = SqliteConnectOptions::new()
            .filename(folder.join(FILE))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal)
            .busy_timeout(Duration::from_secs(10));
        let pool = SqlitePoolOptions::new().max_connections(4).connect_with(options).await.map_err(failed)?;
        sqlx::raw_sql(SCHEMA).execute(&pool).await.map_err(failed)?;
        for sku in 1..=SKUS {
            sqlx::query("INSERT INTO inventory VALUES (?, ?)").bind(sku).bind(STOCK).execute(&pool).await.map_err(failed)?;
        }
        Ok(Self { pool })
    }

    /// Takes an order and reserves its stock, in one transaction. Returns its deadline in milliseconds
    /// since 1970.
    pub(super) async fn take_order(&self, order: &str, lifetime: Duration) -> Result<i64, Failure> {
        let lifetime = i64::try_from(lifetime.as_millis()).unwrap_or(i64::MAX);
        let mut transaction = self.pool.begin().await.map_err(failed)?;
        let deadline: i64 = sqlx::query_scalar(
            "INSERT INTO orders (order_no, expires_at) VALUES (?, CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) + ?) RETURNING expires_at",
        )
        .bind(order)
        .bind(lifetime)
        .fetch_one(&mut *transaction)
        .await
        .map_err(failed)?;
        let number: i64 = order.parse().unwrap_or_default();
        for item in 0..=number % 3 {
            let (sku, quantity) = ((number + item * 7) % SKUS + 1, item + 1);
            let insert = sqlx::query("INSERT INTO order_items VALUES (?, ?, ?)").bind(order).bind(sku).bind(quantity);
            insert.execute(&mut *transaction).await.map_err(failed)?;
            let reserve = sqlx::query("UPDATE inventory SET available = available - ? WHERE sku = ?").bind(quantity).bind(sku);
            reserve.execute(&mut *transaction).await.map_err(failed)?;
        }
        transaction.commit().await.map_err(failed)?;
        Ok(deadline)
    }

    /// Pays an order, if it still can be paid: the payment that can't race.
    pub(super) async fn pay(&self, order: &str) -> Result<bool, Failure> {
        let pay = sqlx::query("UPDATE orders SET status = 1 WHERE order_no = ? AND status = 0").bind(order);
        Ok(pay.execute(&self.pool).await.map_err(failed)?.rows_affected() == 1)
    }

    pub(super) async fn counts(&self) -> Result<Counts, Failure> {
        let rows: Vec<(i64, Option<i64>)> =
            sqlx::query_as("SELECT status, closed_at - expires_at FROM orders").fetch_all(&self.pool).await.map_err(failed)?;
        let mut counts = Counts::default();
        for (status, lateness) in rows {
            match status {
                0 => counts.pending += 1,
                1 => counts.paid += 1,
                _ => counts.closed += 1,
            }
            counts.lateness.extend(lateness);
        }
        counts.lateness.sort_unstable();
        Ok(counts)
    }

    pub(super) async fn outcome(&self) -> Result<Outcome, Failure> {
        let number = async |sql: &'static str| sqlx::query_scalar::<_, i64>(sql).fetch_one(&self.pool).await.map_err(failed);
        Ok(Outcome {
            orders: sqlx::query_as("SELECT order_no, status FROM orders").fetch_all(&self.pool).await.map_err(failed)?,
            closures: sqlx::query_scalar("SELECT order_no FROM closures").fetch_all(&self.pool).await.map_err(failed)?,
            missing: SKUS * STOCK - number("SELECT sum(available) FROM inventory").await?,
            sold: number("SELECT coalesce(sum(quantity), 0) FROM order_items JOIN orders USING (order_no) WHERE status = 1").await?,
        })
    }
}
