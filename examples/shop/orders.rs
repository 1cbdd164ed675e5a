//! Orders, each with its deadline in the row and in the key.

use std::time::{SystemTime, UNIX_EPOCH};

use fred::{
    clients::Client,
    interfaces::{ClientLike, KeysInterface},
    types::{Builder, Expiration, config::Config},
};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool};

pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;

pub(crate) type Result<T> = std::result::Result<T, Error>;

/// How long before its deadline the customer is reminded of an order; half of the time where that is less.
const REMIND_BEFORE_MS: i64 = 600_000;

pub(crate) struct Orders {
    pool: SqlitePool,
    redis: Client,
    pay_within_ms: i64,
}

/// What became of a payment.
pub(crate) enum Paid {
    /// By this call or one before.
    Yes,
    /// The order has this other status.
    TooLate(String),
}

pub(crate) enum Cancelled {
    Yes,
    TooLate(String),
    NoSuchOrder,
}

fn key(order_no: i64) -> String {
    format!("order_{order_no}")
}

impl Orders {
    pub(crate) async fn open(file: &str, redis: &str, pay_within_ms: i64) -> Result<Self> {
        let options = SqliteConnectOptions::new().filename(file).create_if_missing(true).journal_mode(SqliteJournalMode::Wal);
        let pool = SqlitePool::connect_with(options).await?;
        sqlx::raw_sql(
            "CREATE TABLE IF NOT EXISTS orders (order_no INTEGER PRIMARY KEY AUTOINCREMENT, sku TEXT NOT NULL, quantity INTEGER NOT NULL,
                 status TEXT NOT NULL, expires_at INTEGER NOT NULL);
             CREATE INDEX IF NOT EXISTS orders_due ON orders (status, expires_at, order_no);
             CREATE TABLE IF NOT EXISTS mails (id TEXT PRIMARY KEY, order_no INTEGER NOT NULL)",
        )
        .execute(&pool)
        .await?;
        let redis = Builder::from_config(Config::from_url(redis)?).build()?;
        redis.init().await?;
        Ok(Self { pool, redis, pay_within_ms })
    }

    /// The row first, and in the same transaction the timer that reminds the customer; then the key, with the same deadline. Without
    /// a key, order-closer finds the row. Returns the order's number and its deadline in milliseconds since 1970.
    pub(crate) async fn place(&self, sku: &str, quantity: i64) -> Result<(i64, i64)> {
        let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?;
        let expires_at = now + self.pay_within_ms;
        let insert = sqlx::query("INSERT INTO orders (sku, quantity, status, expires_at) VALUES (?, ?, 'pending', ?)");
        let mut transaction = self.pool.begin().await?;
        let order_no = insert.bind(sku).bind(quantity).bind(expires_at).execute(&mut *transaction).await?.last_insert_rowid();
        let remind_at = (expires_at - REMIND_BEFORE_MS).max(now + self.pay_within_ms / 2);
        let timer = sqlx::query("INSERT INTO order_closer_timers (kind, key, due_at, target) VALUES ('reminder', ?, ?, 'reminders')");
        timer.bind(order_no.to_string()).bind(remind_at * 1_000).execute(&mut *transaction).await?;
        transaction.commit().await?;
        let written: std::result::Result<(), _> = self.redis.set(key(order_no), "", Some(Expiration::PXAT(expires_at)), None, false).await;
        if let Err(error) = written {
            eprintln!("shop: no key for order {order_no}: {error}");
        }
        Ok((order_no, expires_at))
    }

    pub(crate) async fn status(&self, order_no: i64) -> Result<Option<String>> {
        Ok(sqlx::query_scalar("SELECT status FROM orders WHERE order_no = ?").bind(order_no).fetch_optional(&self.pool).await?)
    }

    /// Whether this call changed the status of a pending order.
    async fn settle(&self, order_no: i64, status: &str) -> Result<bool> {
        let update = sqlx::query("UPDATE orders SET status = ? WHERE order_no = ? AND status = 'pending'").bind(status).bind(order_no);
        let mut transaction = self.pool.begin().await?;
        let settled = update.execute(&mut *transaction).await?.rows_affected() == 1;
        if settled {
            // Nobody is reminded of an order that is paid or cancelled.
            let cancel = "UPDATE order_closer_timers SET state = 'cancelled' WHERE kind = 'reminder' AND key = ? AND state = 'armed'";
            sqlx::query(cancel).bind(order_no.to_string()).execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        if settled {
            // Left to expire, it would cost a look and close nothing.
            let _deleted: std::result::Result<i64, _> = self.redis.del(key(order_no)).await;
        }
        Ok(settled)
    }

    /// Mails a reminder, once for each time that a timer fires, however often that is told; an order that is settled needs none.
    pub(crate) async fn remind(&self, id: &str, order_no: i64) -> Result<bool> {
        let mail = "INSERT OR IGNORE INTO mails SELECT ?, order_no FROM orders WHERE order_no = ? AND status = 'pending'";
        Ok(sqlx::query(mail).bind(id).bind(order_no).execute(&self.pool).await?.rows_affected() == 1)
    }

    pub(crate) async fn pay(&self, order_no: i64) -> Result<Paid> {
        if self.settle(order_no, "paid").await? {
            return Ok(Paid::Yes);
        }
        let status = self.status(order_no).await?.unwrap_or_default();
        Ok(if status == "paid" { Paid::Yes } else { Paid::TooLate(status) })
    }

    /// Begins to cancel an order. What it holds in other databases is let go of next, and then it is [`cancelled`](Self::cancelled).
    pub(crate) async fn cancel(&self, order_no: i64) -> Result<Cancelled> {
        if self.settle(order_no, "cancelling").await? {
            return Ok(Cancelled::Yes);
        }
        Ok(match self.status(order_no).await? {
            Some(status) if status.starts_with("cancel") => Cancelled::Yes,
            Some(status) => Cancelled::TooLate(status),
            None => Cancelled::NoSuchOrder,
        })
    }

    pub(crate) async fn cancelled(&self, order_no: i64) -> Result<()> {
        let update = sqlx::query("UPDATE orders SET status = 'cancelled' WHERE order_no = ? AND status = 'cancelling'").bind(order_no);
        update.execute(&self.pool).await?;
        Ok(())
    }

    /// Orders whose cancellation was broken off.
    pub(crate) async fn cancelling(&self) -> Result<Vec<i64>> {
        Ok(sqlx::query_scalar("SELECT order_no FROM orders WHERE status = 'cancelling'").fetch_all(&self.pool).await?)
    }
}
