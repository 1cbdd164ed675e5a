//! One connection in use: every statement has a time limit, and a connection in an unknown state, or to a server that
//! takes no writes any more, is closed, so that its server rolls back, and never returned to the pool.

use std::{
    fmt,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use sqlx::{Database, Pool, SqlSafeStr, SqlStr, pool::PoolConnection};
use tokio::sync::{Mutex, OwnedMutexGuard, OwnedSemaphorePermit};
use tokio_util::sync::CancellationToken;

use crate::{
    store::{
        StoreError,
        cut_off::{CutOff, End},
        dialect::{Dialect, sorted},
        driver::{Driver, Value},
        hosts::Turn,
        statement::Statement,
    },
    watchdog,
};

/// How much longer than its limit a statement is waited for: a server that ends it by itself keeps no lock of it.
const GRACE: Duration = Duration::from_secs(1);

/// The one session with which all take turns; empty until the first, and after one that went wrong.
pub(super) type Shared<D> = Arc<Mutex<Option<Session<D>>>>;

type Connection<D> = <<D as Dialect>::Driver as Database>::Connection;
type Row<D> = <<D as Dialect>::Driver as Database>::Row;
type Arguments<D> = <<D as Dialect>::Driver as Database>::Arguments;

/// A connection taken from the pool.
pub(super) struct Session<D: Dialect> {
    connection: PoolConnection<D::Driver>,
    taken: Instant,
    timeout: Duration,
    /// Cancelled when another host is used: this one may never answer.
    over: CancellationToken,
    /// Whether the server has refused to write; shared by all sessions of a store.
    refused: Arc<AtomicBool>,
    /// A statement was sent and its end has not been seen.
    busy: bool,
    in_transaction: bool,
    condemned: bool,
    /// Whether a statement that ends by the server's limit on its time counts as one that met a lock.
    limited: bool,
    /// What ends a statement where the server does not, and how to, once a transaction has begun.
    cut_off: Option<CutOff<D>>,
    kill: Option<SqlStr>,
    /// What its rule gives back with it.
    place: Option<OwnedSemaphorePermit>,
    /// Where it goes when its transaction has ended, if that is not the pool.
    home: Option<OwnedMutexGuard<Option<Session<D>>>>,
}

impl<D: Dialect> fmt::Debug for Session<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("busy", &self.busy).field("in_transaction", &self.in_transaction).finish_non_exhaustive()
    }
}

impl<D: Dialect> Session<D> {
    pub(super) fn new(connection: PoolConnection<D::Driver>, timeout: Duration, refused: &Arc<AtomicBool>) -> Self {
        Self {
            connection,
            taken: Instant::now(),
            timeout,
            over: CancellationToken::new(),
            refused: Arc::clone(refused),
            busy: false,
            in_transaction: false,
            condemned: false,
            limited: false,
            cut_off: None,
            kill: None,
            place: None,
            home: None,
        }
    }

    /// The same, which ends with the turn of its host.
    pub(super) fn in_turn(mut self, turn: &Turn) -> Self {
        self.over = turn.over.clone();
        self
    }

    /// The same, which takes this place among a rule's connections.
    pub(super) fn on(mut self, place: OwnedSemaphorePermit) -> Self {
        self.place = Some(place);
        self
    }

    /// For how long it has been in use.
    pub(super) fn age(&self) -> Duration {
        self.taken.elapsed()
    }

    /// Whether a statement that ends by the server's limit on its time counts as one that met a lock.
    pub(super) fn limited(&mut self, limited: bool) {
        self.limited = limited;
    }

    /// Ends the statements of its transaction that take longer than this by a connection of this pool, where the server itself ends
    /// none, and they count as such that met a lock.
    pub(super) fn cut_off(&mut self, after: Duration, pool: impl FnOnce() -> Pool<D::Driver>) {
        self.cut_off = self.kill.take().map(|kill| CutOff::new(after, pool(), kill));
    }

    /// Makes it go there when its transaction has ended.
    pub(super) fn returns_to(&mut self, home: OwnedMutexGuard<Option<Self>>) {
        self.home = Some(home);
    }

    /// Runs what `work` makes of the connection, within the time limit.
    pub(super) async fn run<'c, T, F>(&'c mut self, work: impl FnOnce(&'c mut Connection<D>) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, sqlx::Error>> + 'c,
    {
        self.busy = true;
        let (cut_off, work) = (self.cut_off.clone(), work(&mut self.connection));
        let answer = async {
            match &cut_off {
                Some(cut_off) => cut_off.watch(work).await,
                None => (work.await, End::ByItself),
            }
        };
        let answer = self.over.run_until_cancelled(tokio::time::timeout(self.timeout + GRACE, answer)).await;
        watchdog::turned();
        let Some(answer) = answer else {
            return Err(StoreError::Unavailable("another host of the database takes the writes now".into()));
        };
        let Ok((result, end)) = answer else {
            return Err(StoreError::timed_out(self.timeout));
        };
        if let (Some(cut_off), true) = (&cut_off, end == End::Unsure || (end == End::CutOff && was_refused(&result))) {
            self.busy = end == End::Unsure;
            return Err(StoreError::Locked(format!("no end within {}", humantime::format_duration(cut_off.after()))));
        }
        self.busy = false;
        result.map_err(|error| {
            if error.as_database_error().is_some_and(D::refuses_to_write) {
                self.condemned = true;
                self.refused.store(true, Ordering::Relaxed);
            }
            let error = sorted::<D>(error);
            if self.limited
                && let StoreError::TimedOut(reason) = error
            {
                StoreError::Locked(reason)
            } else {
                error
            }
        })
    }

    /// Runs a statement and reads its rows.
    pub(super) async fn fetch(&mut self, sql: SqlStr, arguments: Arguments<D>, lasting: bool) -> Result<Vec<Row<D>>, StoreError> {
        self.run(|connection| D::Driver::fetch(connection, sql, arguments, lasting)).await
    }

    /// Runs a statement; returns how many rows it changed.
    pub(super) async fn change(&mut self, sql: SqlStr, arguments: Arguments<D>, lasting: bool) -> Result<u64, StoreError> {
        self.run(|connection| D::Driver::change(connection, sql, arguments, lasting)).await
    }

    /// The same with values that every dialect binds alike.
    pub(super) async fn read(&mut self, statement: &Statement, values: &[Value]) -> Result<Vec<Row<D>>, StoreError> {
        self.fetch(statement.sql(), bound::<D>(statement, values)?, statement.is_lasting()).await
    }

    /// The same.
    pub(super) async fn write(&mut self, statement: &Statement, values: &[Value]) -> Result<u64, StoreError> {
        self.change(statement.sql(), bound::<D>(statement, values)?, statement.is_lasting()).await
    }

    /// Runs statements without parameters, and reads the rows of all.
    pub(super) async fn execute(&mut self, sql: SqlStr) -> Result<Vec<Row<D>>, StoreError> {
        self.run(|connection| D::Driver::script(connection, sql)).await
    }

    /// Begins a transaction; where the beginning shows that the server takes no writes, fails.
    pub(super) async fn begin(&mut self, sql: SqlStr) -> Result<(), StoreError> {
        self.in_transaction = true;
        let rows = self.execute(sql).await.map_err(|error| match error {
            // Whatever refuses so small a statement refuses every other.
            StoreError::Rejected(reason) => StoreError::Unavailable(reason),
            StoreError::Conflict(_)
            | StoreError::Locked(_)
            | StoreError::TimedOut(_)
            | StoreError::Unavailable(_)
            | StoreError::Refused { .. } => error,
        })?;
        self.kill = D::kill(&rows);
        proved::<D>(&rows)
    }

    pub(super) async fn commit(mut self) -> Result<(), StoreError> {
        (self.limited, self.cut_off) = (false, None);
        self.execute(D::COMMIT.into_sql_str()).await?;
        self.ended().await;
        Ok(())
    }

    pub(super) async fn rollback(mut self) {
        self.cut_off = None;
        if !self.busy && self.execute("ROLLBACK".into_sql_str()).await.is_ok() {
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

impl<D: Dialect> Drop for Session<D> {
    fn drop(&mut self) {
        if self.busy || self.in_transaction || self.condemned {
            self.connection.close_on_drop();
        }
    }
}

/// Whether the server has answered with an error.
fn was_refused<T>(result: &Result<T, sqlx::Error>) -> bool {
    result.as_ref().is_err_and(|error| error.as_database_error().is_some())
}

fn bound<D: Dialect>(statement: &Statement, values: &[Value]) -> Result<Arguments<D>, StoreError> {
    let mut arguments = Arguments::<D>::default();
    for value in statement.in_order(values) {
        D::Driver::bind(&mut arguments, value).map_err(sorted::<D>)?;
    }
    Ok(arguments)
}

/// Reads a proof ([`Dialect::proof`]): a last row with a number other than 0 says that the server is read-only.
pub(super) fn proved<D: Dialect>(rows: &[Row<D>]) -> Result<(), StoreError> {
    let read_only = rows.last().map_or(Ok(None), |row| D::Driver::number(row, 0)).map_err(sorted::<D>)?;
    match read_only {
        None | Some(0) => Ok(()),
        Some(_) => Err(StoreError::Unavailable("the server takes no writes: it is a standby, or was made read-only".into())),
    }
}
