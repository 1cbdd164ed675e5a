//! SQLite database files.

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions};
use tempfile::TempDir;

/// A database file in a folder of its own.
#[derive(Debug)]
pub struct Sqlite {
    folder: TempDir,
}

impl Sqlite {
    /// Makes the folder; the file comes with the first connection.
    pub fn new() -> Self {
        Self { folder: super::process::folder() }
    }

    /// The file's URL.
    pub fn url(&self) -> String {
        format!("sqlite://{}", self.folder.path().join("shop.db").display())
    }

    /// A pool of so many connections that creates the file if need be.
    pub async fn pool(&self, connections: u32) -> SqlitePool {
        let options = SqliteConnectOptions::new()
            .filename(self.folder.path().join("shop.db"))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .busy_timeout(super::wait::LIMIT);
        SqlitePoolOptions::new().max_connections(connections).connect_with(options).await.expect("a SQLite file can be opened")
    }
}
