//! The warehouse: a service of its own, with a database of its own.

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool};

use crate::orders::Result;

pub(crate) struct Warehouse {
    pool: SqlitePool,
}

impl Warehouse {
    /// With a hundred of one article.
    pub(crate) async fn open(file: &str) -> Result<Self> {
        let options = SqliteConnectOptions::new().filename(file).create_if_missing(true).journal_mode(SqliteJournalMode::Wal);
        let pool = SqlitePool::connect_with(options).await?;
        sqlx::raw_sql(
            "CREATE TABLE IF NOT EXISTS stock (sku TEXT PRIMARY KEY, available INTEGER NOT NULL CHECK (available >= 0));
             CREATE TABLE IF NOT EXISTS reservations (order_no INTEGER PRIMARY KEY, sku TEXT NOT NULL, quantity INTEGER NOT NULL);
             CREATE TABLE IF NOT EXISTS released (order_no INTEGER PRIMARY KEY);
             INSERT OR IGNORE INTO stock VALUES ('tea', 100)",
        )
        .execute(&pool)
        .await?;
        Ok(Self { pool })
    }

    pub(crate) async fn available(&self, sku: &str) -> Result<Option<i64>> {
        Ok(sqlx::query_scalar("SELECT available FROM stock WHERE sku = ?").bind(sku).fetch_optional(&self.pool).await?)
    }

    /// Whether there was enough, and the order had not been let go of before it came to this.
    pub(crate) async fn reserve(&self, order_no: i64, sku: &str, quantity: i64) -> Result<bool> {
        let mut transaction = self.pool.begin_with("BEGIN IMMEDIATE").await?;
        let take = sqlx::query(
            "UPDATE stock SET available = available - ?1
              WHERE sku = ?2 AND available >= ?1 AND NOT EXISTS (SELECT 1 FROM released WHERE order_no = ?3)",
        );
        if take.bind(quantity).bind(sku).bind(order_no).execute(&mut *transaction).await?.rows_affected() == 0 {
            return Ok(false);
        }
        let note = sqlx::query("INSERT INTO reservations VALUES (?, ?, ?)").bind(order_no).bind(sku).bind(quantity);
        note.execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(true)
    }

    /// Gives back what an order had reserved, once, and leaves a tombstone: a reservation that comes later, because the
    /// order service had stalled, would hold goods for ever.
    pub(crate) async fn release(&self, order_no: i64) -> Result<()> {
        let mut transaction = self.pool.begin_with("BEGIN IMMEDIATE").await?;
        let bury = sqlx::query("INSERT OR IGNORE INTO released VALUES (?)").bind(order_no);
        if bury.execute(&mut *transaction).await?.rows_affected() == 1 {
            let give = sqlx::query(
                "UPDATE stock SET available = available + reservations.quantity
                   FROM reservations WHERE reservations.sku = stock.sku AND reservations.order_no = ?",
            );
            give.bind(order_no).execute(&mut *transaction).await?;
            sqlx::query("DELETE FROM reservations WHERE order_no = ?").bind(order_no).execute(&mut *transaction).await?;
        }
        Ok(transaction.commit().await?)
    }
}
