//! The connections to an SQLite file: many that read, and one that writes.

use std::time::Duration;

use sqlx::{
    Sqlite as Driver, SqlitePool,
    sqlite::{SqliteConnectOptions, SqlitePoolOptions},
};

use super::{Result, sorted};
use crate::store::session::{Session, Shared};

/// For how long a connection is used: a backup that took the file's place meanwhile is another file.
const KEPT: Duration = Duration::from_mins(1);

/// The connections to a file.
#[derive(Debug, Clone)]
pub(super) struct Connections {
    readers: SqlitePool,
    writers: SqlitePool,
    /// The one that writes: a second would sleep in SQLite's busy handler and wake late, and each would make the other's
    /// page cache worthless.
    writer: Shared<Driver>,
    timeout: Duration,
}

impl Connections {
    /// To connect as these options say, with so many readers. A statement has until `timeout`, a connection until `acquire`.
    pub(super) fn new(options: &SqliteConnectOptions, readers: u32, timeout: Duration, acquire: Duration) -> Self {
        let pool = |connections| {
            // There is no server that could have gone away.
            let pool = SqlitePoolOptions::new().test_before_acquire(false).max_connections(connections).max_lifetime(KEPT);
            pool.acquire_timeout(acquire).connect_lazy_with(options.clone())
        };
        Self { readers: pool(readers), writers: pool(1), writer: Shared::default(), timeout }
    }

    /// A session that only reads.
    pub(super) async fn reader(&self) -> Result<Session<Driver>> {
        Session::take(&self.readers, self.timeout, sorted).await
    }

    /// A transaction that holds the only write lock that there is.
    pub(super) async fn begin(&self) -> Result<Session<Driver>> {
        let mut session = Session::take_turn(&self.writer, KEPT, &self.writers, self.timeout, sorted).await?;
        session.begin("BEGIN IMMEDIATE").await?;
        Ok(session)
    }

    /// Closes all, once they are not in use.
    pub(super) async fn close(&self) {
        drop(self.writer.lock().await.take());
        self.writers.close().await;
        self.readers.close().await;
    }
}
