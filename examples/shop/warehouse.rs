//! The warehouse: a service of its own, with a database of its own.

use sqlx::{
    Sqlite, Transaction,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool},
};

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
             CREATE TABLE IF NOT EXISTS seen (event_id TEXT PRIMARY KEY);
             INSERT OR IGNORE INTO stock VALUES ('tea', 100)",
        )
        .execute(&pool)
        .await?;
        Ok(Self { pool })
    }

    pub(crate) async fn available(&self, sku: &str) -> Result<Option<i64>> {
        Ok(sqlx::query_scalar("SELECT available FROM stock WHERE sku = ?").bind(sku).fetch_optional(&self.pool).await?)
    }

    /// Whether there was enough.
    pub(crate) async fn reserve(&self, order_no: i64, sku: &str, quantity: i64) -> Result<bool> {
        let mut transaction = self.pool.begin_with("BEGIN IMMEDIATE").await?;
        let take = sqlx::query("UPDATE stock SET available = available - ?1 WHERE sku = ?2 AND available >= ?1").bind(quantity).bind(sku);
        if take.execute(&mut *transaction).await?.rows_affected() == 0 {
            return Ok(false);
        }
        let note = sqlx::query("INSERT INTO reservations VALUES (?, ?, ?)").bind(order_no).bind(sku).bind(quantity);
        note.execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(true)
    }

    /// Gives back what an order had reserved, if it still has.
    pub(crate) async fn release(&self, order_no: i64) -> Result<()> {
        let mut transaction = self.pool.begin_with("BEGIN IMMEDIATE").await?;
        give_back(&mut transaction, order_no).await?;
        Ok(transaction.commit().await?)
    }

    /// The same for an order that was closed. The event's id is noted in the same transaction, so that it counts once.
    pub(crate) async fn order_closed(&self, event_id: &str, order_no: i64) -> Result<()> {
        let mut transaction = self.pool.begin_with("BEGIN IMMEDIATE").await?;
        let note = sqlx::query("INSERT OR IGNORE INTO seen VALUES (?)").bind(event_id);
        if note.execute(&mut *transaction).await?.rows_affected() == 1 {
            give_back(&mut transaction, order_no).await?;
        }
        Ok(transaction.commit().await?)
    }
}

async fn give_back(transaction: &mut Transaction<'_, Sqlite>, order_no: i64) -> Result<()> {
    let gone = sqlx::query_as::<_, (String, i64)>("DELETE FROM reservations WHERE order_no = ? RETURNING sku, quantity").bind(order_no);
    if let Some((sku, quantity)) = gone.fetch_optional(&mut **transaction).await? {
        let give = sqlx::query("UPDATE stock SET available = available + ? WHERE sku = ?").bind(quantity).bind(sku);
        give.execute(&mut **transaction).await?;
    }
    Ok(())
}
