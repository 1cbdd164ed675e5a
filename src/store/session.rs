//! One connection in use: every statement has a time limit, and a connection in an unknown state is
//! closed, so that its server rolls back, and never returned to the pool.

use std::{
    fmt,
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use sqlx::{Connection, Database, Executor, Pool, SqlStr, pool::PoolConnection};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::store::StoreError;

/// How much longer than its limit a statement is waited for: a server that ends it by itself keeps no lock of it.
const GRACE: Duration = Duration::from_secs(1);

/// The one session with which all take turns; empty until the first, and after one that went wrong.
pub(super) type Shared<DB> = Arc<Mutex<Option<Session<DB>>>>;

/// A connection taken from the pool.
pub(super) struct Session<DB: Database> {
    connection: PoolConnection<DB>,
    taken: Instant,
    timeout: Duration,
    sorted: fn(sqlx::Error) -> StoreError,
    /// A statement was sent and its end has not been seen.
    busy: bool,
    in_transaction: bool,
    /// Where it goes when its transaction has ended, if that is not the pool.
    home: Option<OwnedMutexGuard<Option<Session<DB>>>>,
}

impl<DB: Database> fmt::Debug for Session<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("busy", &self.busy).field("in_transaction", &self.in_transaction).finish_non_exhaustive()
    }
}

/// Takes a connection from the pool.
pub(super) async fn acquire<DB: Database>(pool: &Pool<DB>, timeout: Duration) -> Result<PoolConnection<DB>, sqlx::Error> {
    match pool.acquire().await {
        // The pool has tried again and again, and does not say why in vain; a single attempt does.
        Err(error @ sqlx::Error::PoolTimedOut) => {
            let attempt = tokio::time::timeout(timeout, DB::Connection::connect_with(&pool.connect_options())).await;
            Err(attempt.ok().and_then(Result::err).unwrap_or(error))
        }
        acquired => acquired,
    }
}

impl<DB: Database> Session<DB>
where
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
{
    pub(super) async fn take(pool: &Pool<DB>, timeout: Duration, sorted: fn(sqlx::Error) -> StoreError) -> Result<Self, StoreError> {
        let connection = acquire(pool, timeout).await.map_err(sorted)?;
        Ok(Self { connection, taken: Instant::now(), timeout, sorted, busy: false, in_transaction: false, home: None })
    }

    /// Takes the session that all share for so long, as soon as nobody else has it. It does not go through the pool each
    /// time, which would ping it after each transaction, in a task for which the next one waits.
    pub(super) async fn take_turn(
        shared: &Shared<DB>,
        kept: Duration,
        pool: &Pool<DB>,
        timeout: Duration,
        sorted: fn(sqlx::Error) -> StoreError,
    ) -> Result<Self, StoreError> {
        let mut home = Arc::clone(shared).lock_owned().await;
        let mut session = match home.take().filter(|session| session.taken.elapsed() < kept) {
            Some(session) => session,
            None => Self::take(pool, timeout, sorted).await?,
        };
        session.home = Some(home);
        Ok(session)
    }

    /// Runs what `work` makes of the connection, within the time limit.
    pub(super) async fn run<'c, T, F>(&'c mut self, work: impl FnOnce(&'c mut DB::Connection) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, sqlx::Error>> + 'c,
    {
        self.busy = true;
        let answer = tokio::time::timeout(self.timeout + GRACE, work(&mut self.connection)).await;
        let Ok(result) = answer else {
            return Err(StoreError::timed_out(self.timeout));
        };
        self.busy = false;
        result.map_err(self.sorted)
    }

    /// Runs statements without parameters.
    pub(super) async fn execute(&mut self, sql: SqlStr) -> Result<(), StoreError> {
        self.run(|connection| connection.execute(sqlx::raw_sql(sql))).await.map(drop)
    }

    pub(super) async fn begin(&mut self, sql: &'static str) -> Result<(), StoreError> {
        self.in_transaction = true;
        self.execute(sqlx::SqlSafeStr::into_sql_str(sql)).await.map_err(|error| match error {
            // Whatever refuses so small a statement refuses every other.
            StoreError::Rejected(reason) => StoreError::Unavailable(reason),
            StoreError::Conflict(_) | StoreError::Locked(_) | StoreError::TimedOut(_) | StoreError::Unavailable(_) => error,
        })
    }

    pub(super) async fn commit(mut self) -> Result<(), StoreError> {
        self.execute(sqlx::SqlSafeStr::into_sql_str("COMMIT")).await?;
        self.ended().await;
        Ok(())
    }

    pub(super) async fn rollback(mut self) {
        if !self.busy && self.execute(sqlx::SqlSafeStr::into_sql_str("ROLLBACK")).await.is_ok() {
            self.ended().await;
        }
    }

    async fn ended(mut self) {
        self.in_transaction = false;
        if let Some(mut home) = self.home.take() {
            *home = Some(self);
            drop(home);
            // The runtime runs whose turn it is next on this very thread: now, not after all that follows from the end.
            tokio::task::yield_now().await;
        }
    }
}

impl<DB: Database> Drop for Session<DB> {
    fn drop(&mut self) {
        if self.busy || self.in_transaction {
            self.connection.close_on_drop();
        }
    }
}
