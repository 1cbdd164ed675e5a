//! The database's server, and how a standby takes its place.

use tokio::task::block_in_place;

use crate::support::{Database, Disk, Kind, mariadb::MariaDb, postgres::Postgres, wait};

/// The database's server.
#[derive(Debug)]
pub enum Server {
    /// PostgreSQL.
    Postgres(Postgres),
    /// MariaDB.
    MariaDb(MariaDb),
}

impl Server {
    /// Starts one, with its files on this disk.
    pub fn start(kind: Kind, disk: Option<&Disk>) -> Self {
        match (kind, disk.map(|disk| disk.folder("database"))) {
            (Kind::Postgres, Some(home)) => Self::Postgres(Postgres::options().setting("max_wal_size=128MB").start_in(home)),
            (Kind::Postgres, None) => Self::Postgres(Postgres::options().start()),
            (Kind::MariaDb | Kind::Sqlite, Some(home)) => Self::MariaDb(MariaDb::options().replicated().start_in(home)),
            (Kind::MariaDb | Kind::Sqlite, None) => Self::MariaDb(MariaDb::options().replicated().start()),
        }
    }

    /// Whether it runs.
    pub fn is_running(&self) -> bool {
        match self {
            Self::Postgres(server) => server.is_running(),
            Self::MariaDb(server) => server.is_running(),
        }
    }

    /// A fresh database there.
    pub async fn database(&self) -> Database {
        match self {
            Self::Postgres(server) => Database::on_postgres(server).await,
            Self::MariaDb(server) => Database::on_mariadb(server).await,
        }
    }

    /// `kill -9`.
    pub fn kill(&self) {
        match self {
            Self::Postgres(server) => server.kill(),
            Self::MariaDb(server) => server.kill(),
        }
    }

    /// The same port, the same data.
    pub fn start_again(&mut self) {
        match self {
            Self::Postgres(server) => server.start_again(),
            Self::MariaDb(server) => server.start_again(),
        }
    }

    /// SIGSTOP.
    pub fn freeze(&self) {
        match self {
            Self::Postgres(server) => server.freeze(),
            Self::MariaDb(server) => server.freeze(),
        }
    }

    /// SIGCONT.
    pub fn thaw(&self) {
        match self {
            Self::Postgres(server) => server.thaw(),
            Self::MariaDb(server) => server.thaw(),
        }
    }

    /// A standby takes its place, which has everything that was committed here; returns the URL of the database there. `nemesis`
    /// is the database here.
    pub async fn fail_over(&mut self, nemesis: &Database) -> String {
        let name = nemesis.url.rsplit('/').next().expect("a name");
        match self {
            Self::Postgres(primary) => {
                let standby = block_in_place(|| primary.standby());
                let streams = "SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'";
                wait::until("the standby follows", async || nemesis.try_rows(streams).await.is_ok_and(|rows| !rows.is_empty())).await;
                // It ends when it has sent everything.
                block_in_place(|| primary.end());
                let url = standby.url(name);
                Database::existing(&url).execute("SELECT pg_promote(true)").await;
                *primary = standby;
                url
            }
            Self::MariaDb(primary) => {
                let standby = block_in_place(|| primary.copy());
                let admin = Database::existing(&standby.url("mysql"));
                admin
                    .execute(&format!(
                        "SET GLOBAL gtid_slave_pos = @@gtid_binlog_pos;
                         CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={}, MASTER_USER='root', MASTER_USE_GTID=slave_pos;
                         START SLAVE",
                        primary.port()
                    ))
                    .await;
                // From now on nothing is committed.
                let mut locked = nemesis.begin().await;
                locked.execute("FLUSH TABLES WITH READ LOCK").await;
                let position = nemesis.text("SELECT @@gtid_binlog_pos").await.expect("there is one");
                let missed = admin.number(&format!("SELECT MASTER_GTID_WAIT('{position}', 60)")).await;
                assert_eq!(missed, 0, "the standby has it all");
                primary.kill();
                admin.execute("STOP SLAVE; RESET SLAVE ALL").await;
                let url = standby.url(name);
                *primary = standby;
                url
            }
        }
    }
}
