//! Servers of a scenario's own, as durable as they come: what they promise to have written is on the disk.

use crate::{
    options::Base,
    shop::Shop,
    support::{Database, Kind, Redis, Settings, daemon::Daemon, mariadb::MariaDb, postgres::Postgres},
};

/// A Redis with its default settings.
pub fn redis() -> Redis {
    Redis::options().saving().start()
}

/// A PostgreSQL with its default settings that records when each transaction committed.
pub fn postgres() -> Postgres {
    Postgres::options().durable().setting("track_commit_timestamp=on").start()
}

/// A database on a server of its own.
#[derive(Debug)]
pub enum Server {
    /// A PostgreSQL server.
    Postgres(Postgres),
    /// A MariaDB server.
    MariaDb(MariaDb),
    /// SQLite needs none.
    None,
}

impl Server {
    /// Starts one.
    pub fn start(base: Base) -> Self {
        match base {
            Base::Postgres => Self::Postgres(postgres()),
            Base::Mariadb => Self::MariaDb(MariaDb::options().durable().start()),
            Base::Sqlite => Self::None,
        }
    }

    /// Its process, where there is one.
    pub fn pid(&self) -> Option<u32> {
        match self {
            Self::Postgres(server) => Some(server.pid()),
            Self::MariaDb(server) => Some(server.pid()),
            Self::None => None,
        }
    }

    /// `kill -9`.
    pub fn kill(&self) {
        match self {
            Self::Postgres(server) => server.kill(),
            Self::MariaDb(server) => server.kill(),
            Self::None => {}
        }
    }

    /// Starts it again on the same port with the same data; returns when it accepts connections.
    pub fn start_again(&mut self) {
        match self {
            Self::Postgres(server) => server.start_again(),
            Self::MariaDb(server) => server.start_again(),
            Self::None => {}
        }
    }

    /// A fresh database.
    pub async fn database(&self) -> Database {
        match self {
            Self::Postgres(server) => Database::on_postgres(server).await,
            Self::MariaDb(server) => Database::on_mariadb(server).await,
            Self::None => Database::fresh(Kind::Sqlite).await,
        }
    }

    /// A shop in a fresh database.
    pub async fn shop(&self, articles: Option<u32>) -> Shop {
        Shop::open(self.database().await, articles).await
    }
}

/// A shop in a fresh database of this server.
pub async fn shop_on(server: &Postgres, articles: Option<u32>) -> Shop {
    Shop::open(Database::on_postgres(server).await, articles).await
}

/// Starts a daemon and waits until it hears what expires.
pub async fn daemon(settings: &Settings) -> Daemon {
    let daemon = Daemon::start(settings);
    daemon.until_logged("listening for expired keys").await;
    daemon
}
