//! A fresh database of any of the three kinds, spoken to in plain SQL whose results are text.

use std::sync::{Mutex, PoisonError};

use sqlx::{
    AssertSqlSafe, MySql, MySqlPool, PgPool, Row, Sqlite as Lite, SqlitePool,
    mysql::{MySqlConnectOptions, MySqlPoolOptions},
    pool::PoolConnection,
    postgres::PgPoolOptions,
    raw_sql,
};

use super::{mariadb::MariaDb, postgres::Postgres, sqlite::Sqlite, wait};

/// The kinds of database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// PostgreSQL.
    Postgres,
    /// MariaDB.
    MariaDb,
    /// SQLite.
    Sqlite,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Postgres, Self::MariaDb, Self::Sqlite];
}

/// A database of one test's own.
#[derive(Debug)]
pub struct Database {
    /// What it is.
    pub kind: Kind,
    /// Its URL, as in the daemon's configuration.
    pub url: String,
    pool: Pool,
    /// The pool for transactions.
    transactions: Pool,
    /// Its name on the shared server.
    name: Option<String>,
    _file: Option<Sqlite>,
}

#[derive(Debug, Clone)]
enum Pool {
    Postgres(PgPool),
    MariaDb(MySqlPool),
    Sqlite(SqlitePool),
}

/// Rows of text; `None` is NULL.
pub type Rows = Vec<Vec<Option<String>>>;

/// The columns of one row as text. Plain SQL is answered in text, whatever the types, and SQLite converts.
macro_rules! texts {
    ($row:expr) => {
        (0..$row.len()).map(|at| $row.try_get_unchecked::<Option<String>, _>(at).expect("every column has a text")).collect()
    };
}

macro_rules! on {
    ($on:expr, $kind:ident, $name:ident => $work:expr) => {
        match $on {
            $kind::Postgres($name) => $work,
            $kind::MariaDb($name) => $work,
            $kind::Sqlite($name) => $work,
        }
    };
}

/// Databases of finished tests, each with its server's kind. A destructor can't wait for a server, so the next test drops them.
static FINISHED: Mutex<Vec<(Kind, String)>> = Mutex::new(Vec::new());

impl Database {
    /// A fresh one, on the shared server where there is one.
    pub async fn fresh(kind: Kind) -> Self {
        match kind {
            Kind::Postgres => {
                let server = Postgres::shared();
                drop_finished(&postgres_admin(server), kind).await;
                Self::on_postgres(server).await.dropped_later()
            }
            Kind::MariaDb => {
                let server = MariaDb::shared();
                drop_finished(&mariadb_admin(server), kind).await;
                Self::on_mariadb(server).await.dropped_later()
            }
            Kind::Sqlite => {
                let file = Sqlite::new();
                let [pool, transactions] = sqlite_pools(&file).await;
                Self { kind, url: file.url(), pool, transactions, name: None, _file: Some(file) }
            }
        }
    }

    /// A fresh one on this server.
    pub async fn on_postgres(server: &Postgres) -> Self {
        let name = new_name();
        postgres_admin(server).execute(&format!("CREATE DATABASE {name}")).await.expect("a database can be created");
        let url = server.url(&name);
        let pool = Pool::Postgres(PgPoolOptions::new().max_connections(20).connect_lazy(&url).expect("a good URL"));
        Self { kind: Kind::Postgres, url, transactions: pool.clone(), pool, name: None, _file: None }
    }

    /// A fresh one on this server.
    pub async fn on_mariadb(server: &MariaDb) -> Self {
        let name = new_name();
        mariadb_admin(server).execute(&format!("CREATE DATABASE {name}")).await.expect("a database can be created");
        let url = server.url(&name);
        let pool = Pool::MariaDb(mysql_pool(&url));
        Self { kind: Kind::MariaDb, url, transactions: pool.clone(), pool, name: None, _file: None }
    }

    /// The one of this name that is on this server already.
    pub fn existing(url: &str) -> Self {
        let (kind, pool) = if url.starts_with("postgres") {
            (Kind::Postgres, Pool::Postgres(PgPoolOptions::new().max_connections(20).connect_lazy(url).expect("a good URL")))
        } else {
            (Kind::MariaDb, Pool::MariaDb(mysql_pool(url)))
        };
        Self { kind, url: url.into(), transactions: pool.clone(), pool, name: None, _file: None }
    }

    /// The same database by connections of its own, where there is a server.
    #[must_use]
    pub fn again(&self) -> Self {
        assert_ne!(self.kind, Kind::Sqlite, "a file has no server");
        Self::existing(&self.url)
    }

    fn dropped_later(mut self) -> Self {
        self.name = self.url.rsplit('/').next().map(str::to_owned);
        self
    }

    /// Runs statements; returns how many rows the last one found (MariaDB: matched, whether or not they changed).
    pub async fn execute(&self, sql: &str) -> u64 {
        self.try_execute(sql).await.unwrap_or_else(|error| panic!("{error}\n{sql}"))
    }

    /// Runs statements that may fail.
    pub async fn try_execute(&self, sql: &str) -> Result<u64, sqlx::Error> {
        self.pool.execute(sql).await
    }

    /// Reads rows.
    pub async fn rows(&self, sql: &str) -> Rows {
        self.try_rows(sql).await.unwrap_or_else(|error| panic!("{error}\n{sql}"))
    }

    /// Reads rows, if it can.
    pub async fn try_rows(&self, sql: &str) -> Result<Rows, sqlx::Error> {
        let sql = AssertSqlSafe(sql.to_owned());
        on!(&self.pool, Pool, pool => Ok(raw_sql(sql).fetch_all(pool).await?.iter().map(|row| texts!(row)).collect()))
    }

    /// The first column of each row.
    pub async fn column(&self, sql: &str) -> Vec<Option<String>> {
        self.rows(sql).await.into_iter().map(|mut row| row.swap_remove(0)).collect()
    }

    /// One text.
    pub async fn text(&self, sql: &str) -> Option<String> {
        let mut column = self.column(sql).await;
        assert_eq!(column.len(), 1, "one row expected: {sql}");
        column.remove(0)
    }

    /// Waits until rows were made of all batches of events.
    pub async fn until_unpacked(&self) {
        let batches = "SELECT count(*) FROM order_closer_batches";
        wait::until_eq("the number of batches", 0, async || self.number(batches).await).await;
    }

    /// One whole number.
    pub async fn number(&self, sql: &str) -> i64 {
        let text = self.text(sql).await;
        text.as_deref().and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{text:?} is no whole number: {sql}"))
    }

    /// Begins a transaction on a connection of its own; in SQLite it locks the file.
    pub async fn begin(&self) -> Transaction {
        let mut connection = match &self.transactions {
            Pool::Postgres(pool) => Connection::Postgres(pool.acquire().await.expect("a connection")),
            Pool::MariaDb(pool) => Connection::MariaDb(pool.acquire().await.expect("a connection")),
            Pool::Sqlite(pool) => Connection::Sqlite(pool.acquire().await.expect("a connection")),
        };
        // Whatever becomes of the test, the server rolls back.
        on!(&mut connection, Connection, connection => connection.close_on_drop());
        let mut transaction = Transaction { connection };
        transaction.execute(if self.kind == Kind::Sqlite { "BEGIN IMMEDIATE" } else { "BEGIN" }).await;
        transaction
    }

    /// Closes all of this object's connections; new ones open as needed.
    pub async fn disconnect(&mut self) {
        on!(&self.pool, Pool, pool => pool.close().await);
        on!(&self.transactions, Pool, pool => pool.close().await);
        [self.pool, self.transactions] = match self.kind {
            Kind::Postgres => {
                let pool = Pool::Postgres(PgPoolOptions::new().max_connections(20).connect_lazy(&self.url).expect("a good URL"));
                [pool.clone(), pool]
            }
            Kind::MariaDb => {
                let pool = Pool::MariaDb(mysql_pool(&self.url));
                [pool.clone(), pool]
            }
            Kind::Sqlite => sqlite_pools(self._file.as_ref().expect("a file")).await,
        };
    }
}

/// Single statements go through one connection, so that each sees what the one before has done, tables included.
async fn sqlite_pools(file: &Sqlite) -> [Pool; 2] {
    [Pool::Sqlite(file.pool(1).await), Pool::Sqlite(file.pool(8).await)]
}

impl Drop for Database {
    fn drop(&mut self) {
        if let Some(name) = self.name.take() {
            FINISHED.lock().unwrap_or_else(PoisonError::into_inner).push((self.kind, name));
        }
    }
}

impl Pool {
    async fn execute(&self, sql: &str) -> Result<u64, sqlx::Error> {
        let sql = AssertSqlSafe(sql.to_owned());
        on!(self, Self, pool => Ok(raw_sql(sql).execute(pool).await?.rows_affected()))
    }
}

enum Connection {
    Postgres(PoolConnection<sqlx::Postgres>),
    MariaDb(PoolConnection<MySql>),
    Sqlite(PoolConnection<Lite>),
}

/// An open transaction; dropping it rolls back.
pub struct Transaction {
    connection: Connection,
}

impl Transaction {
    /// Runs statements.
    pub async fn execute(&mut self, sql: &str) -> u64 {
        self.try_execute(sql).await.unwrap_or_else(|error| panic!("{error}\n{sql}"))
    }

    /// Runs statements that may fail.
    pub async fn try_execute(&mut self, sql: &str) -> Result<u64, sqlx::Error> {
        let sql = AssertSqlSafe(sql.to_owned());
        on!(&mut self.connection, Connection, connection => Ok(raw_sql(sql).execute(&mut **connection).await?.rows_affected()))
    }

    /// Commits.
    pub async fn commit(mut self) {
        self.execute("COMMIT").await;
    }

    /// Rolls back.
    pub async fn rollback(mut self) {
        self.execute("ROLLBACK").await;
    }
}

fn postgres_admin(server: &Postgres) -> Pool {
    Pool::Postgres(PgPoolOptions::new().max_connections(1).connect_lazy(&server.url("postgres")).expect("a good URL"))
}

fn mariadb_admin(server: &MariaDb) -> Pool {
    Pool::MariaDb(mysql_pool(&server.url("mysql")))
}

fn mysql_pool(url: &str) -> MySqlPool {
    let options: MySqlConnectOptions = url.parse().expect("a good URL");
    // The driver would set the session to UTC; a shop's sessions have the server's zone.
    MySqlPoolOptions::new().max_connections(20).connect_lazy_with(options.timezone(None))
}

fn new_name() -> String {
    format!("test_{}", uuid::Uuid::new_v4().simple())
}

async fn drop_finished(admin: &Pool, kind: Kind) {
    let finished: Vec<String> = {
        let mut all = FINISHED.lock().unwrap_or_else(PoisonError::into_inner);
        all.extract_if(.., |(of, _)| *of == kind).map(|(_, name)| name).collect()
    };
    for name in finished {
        if kind == Kind::Postgres {
            // PostgreSQL 12 has no DROP DATABASE ... WITH (FORCE); without it, others may have five seconds to go.
            let ends = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'");
            admin.execute(&ends).await.expect("sessions can be ended");
        }
        admin.execute(&format!("DROP DATABASE IF EXISTS {name}")).await.expect("a database can be dropped");
    }
}
