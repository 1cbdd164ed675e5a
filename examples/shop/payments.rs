//! Payments: a service of its own, with a database of its own, which stands for a payment provider.
//!
//! It is a stand-in, and no money moves. A payment is a session that is `open` until its money is `captured`, or until it is
//! `expired`: then nobody can pay in it any more. Money that comes by another way all the same is `refunded`.

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool};

use crate::orders::Result;

pub(crate) struct Payments {
    pool: SqlitePool,
}

impl Payments {
    pub(crate) async fn open(file: &str) -> Result<Self> {
        let options = SqliteConnectOptions::new().filename(file).create_if_missing(true).journal_mode(SqliteJournalMode::Wal);
        let pool = SqlitePool::connect_with(options).await?;
        let create = "CREATE TABLE IF NOT EXISTS payments (order_no INTEGER PRIMARY KEY, state TEXT NOT NULL)";
        sqlx::raw_sql(create).execute(&pool).await?;
        Ok(Self { pool })
    }

    /// What became of an order's payment; nobody has begun it if there is none.
    pub(crate) async fn state(&self, order_no: i64) -> Result<Option<String>> {
        Ok(sqlx::query_scalar("SELECT state FROM payments WHERE order_no = ?").bind(order_no).fetch_optional(&self.pool).await?)
    }

    /// Opens a session in which an order can be paid.
    pub(crate) async fn begin(&self, order_no: i64) -> Result<()> {
        sqlx::query("INSERT OR IGNORE INTO payments VALUES (?, 'open')").bind(order_no).execute(&self.pool).await?;
        Ok(())
    }

    /// A customer pays in the session; whether it was still open.
    pub(crate) async fn take(&self, order_no: i64) -> Result<bool> {
        let take = sqlx::query("UPDATE payments SET state = 'captured' WHERE order_no = ? AND state = 'open'");
        Ok(take.bind(order_no).execute(&self.pool).await?.rows_affected() == 1)
    }

    /// Expires the session, so that nobody pays for an order that is about to be closed; whether the money is there already.
    /// This can be repeated.
    pub(crate) async fn expire(&self, order_no: i64) -> Result<bool> {
        let expire = "INSERT INTO payments VALUES (?, 'expired') ON CONFLICT DO UPDATE
                      SET state = CASE state WHEN 'open' THEN 'expired' ELSE state END RETURNING state";
        let state: String = sqlx::query_scalar(expire).bind(order_no).fetch_one(&self.pool).await?;
        Ok(state == "captured")
    }

    /// The money has come. It goes back at once where the session has expired: whoever let the order go will not come again.
    pub(crate) async fn capture(&self, order_no: i64) -> Result<()> {
        let capture = "INSERT INTO payments VALUES (?, 'captured') ON CONFLICT DO UPDATE
                       SET state = CASE state WHEN 'open' THEN 'captured' WHEN 'expired' THEN 'refunded' ELSE state END";
        sqlx::query(capture).bind(order_no).execute(&self.pool).await?;
        Ok(())
    }

    /// Nobody is to pay for an order that is closed or cancelled: its session expires, and money that came too late goes
    /// back. This can be repeated.
    pub(crate) async fn let_go(&self, order_no: i64) -> Result<()> {
        let update = "INSERT INTO payments VALUES (?, 'expired') ON CONFLICT DO UPDATE
                      SET state = CASE state WHEN 'open' THEN 'expired' WHEN 'captured' THEN 'refunded' ELSE state END";
        sqlx::query(update).bind(order_no).execute(&self.pool).await?;
        Ok(())
    }
}
