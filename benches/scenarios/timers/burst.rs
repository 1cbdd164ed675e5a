//! A crowd that is due at one instant, told to a stream: by order-closer, and by other products that have a job for each.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    options::Base,
    orders::{self, Millis},
    peers::{Peer, Task},
    servers,
    support::{Database, Redis, postgres::Postgres},
    timer_table::{STREAM, TimerTable, last_of},
    usage,
};

/// How many there are, at the most.
pub(super) const CROWD: u32 = 20_000;

/// How long is waited for the last. A contestant that takes longer has the rate of one that took this long.
const LONGEST: Millis = 60_000;

/// Who fires them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Way {
    Bullmq,
    Graphile,
    PgBoss,
    Postgres,
    MariaDb,
    Sqlite,
}

impl Way {
    pub(super) const ALL: [Self; 6] = [Self::Bullmq, Self::Graphile, Self::PgBoss, Self::Postgres, Self::MariaDb, Self::Sqlite];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bullmq => "BullMQ",
            Self::Graphile => "graphile-worker",
            Self::PgBoss => "pg-boss",
            Self::Postgres => "order-closer, PostgreSQL",
            Self::MariaDb => "order-closer, MariaDB",
            Self::Sqlite => "order-closer, SQLite",
        }
    }

    /// The same in two lines.
    pub(super) fn short(self) -> [String; 2] {
        let (first, second) = self.name().split_once(", ").unwrap_or((self.name(), ""));
        [first.to_owned(), second.to_owned()]
    }

    /// The database of ours, or the name in `benches/peers/products.js`.
    fn who(self) -> Result<Base, &'static str> {
        match self {
            Self::Bullmq => Err("bullmq"),
            Self::Graphile => Err("graphile"),
            Self::PgBoss => Err("pgboss"),
            Self::Postgres => Ok(Base::Postgres),
            Self::MariaDb => Ok(Base::Mariadb),
            Self::Sqlite => Ok(Base::Sqlite),
        }
    }

    pub(super) fn takes_part(self, databases: &[Base], without_products: bool) -> bool {
        self.who().map_or(!without_products && databases.contains(&Base::Postgres), |database| databases.contains(&database))
    }
}

/// One crowd.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Turn {
    pub(super) way: Way,
    /// From the instant to the last entry.
    took_s: f64,
    /// Processor time until then of whoever fires, and of the servers with it; seconds.
    pub(super) own_s: f64,
    pub(super) all_s: f64,
}

impl Turn {
    pub(super) fn per_s(&self, crowd: u32) -> f64 {
        f64::from(crowd) / self.took_s
    }
}

/// One contestant on servers of its own, alone on the machine.
pub(super) async fn measure(way: Way, crowd: u32) -> Turn {
    match way.who() {
        Ok(database) => by_daemon(way, database, crowd).await,
        Err(product) => by_product(way, product, crowd).await,
    }
}

async fn by_daemon(way: Way, base: Base, crowd: u32) -> Turn {
    let table = TimerTable::open(base).await;
    let daemon = table.daemon().await;
    let due = orders::now() + 4_000 + Millis::from(crowd) / 10;
    table.insert("crowd", (1, crowd.into()), &(due * 1_000).to_string(), &format!("'{STREAM}'")).await;
    table.settle().await;
    assert!(orders::now() + 2_500 < due, "they were written in time to be seen ahead");
    let mut servers = vec![table.redis.pid()];
    servers.extend(table.server_pid());
    let turn = watched(way, due, crowd, &table.redis, daemon.pid(), &servers).await;
    daemon.stop().await;
    turn
}

async fn by_product(way: Way, product: &str, crowd: u32) -> Turn {
    let (server, redis): (Postgres, Redis) = (servers::postgres(), servers::redis());
    let database = Database::on_postgres(&server).await;
    let peer = Peer::start(product, Task::Fire, &database.url, &redis.url(), "");
    // So late that the slowest has heard of all.
    let due = orders::now() + 8_000 + Millis::from(crowd) * 6 / 10;
    let jobs: Vec<(i64, Millis)> = (1..=i64::from(crowd)).map(|number| (number, due)).collect();
    tokio::task::block_in_place(|| peer.fill(&jobs));
    database.rows("VACUUM ANALYZE").await;
    database.rows("CHECKPOINT").await;
    peer.work();
    assert!(orders::now() < due, "{product} was told of a crowd only when it was due");
    watched(way, due, crowd, &redis, peer.pid(), &[server.pid(), redis.pid()]).await
}

/// Waits until the stream has them all.
async fn watched(way: Way, due: Millis, crowd: u32, redis: &Redis, own: u32, servers: &[u32]) -> Turn {
    let used = || (usage::processor_time(own), servers.iter().copied().map(usage::processor_time).sum::<Duration>());
    orders::sleep_until(due - 200).await;
    let before = used();
    let last = last_of(redis, crowd, due + LONGEST).await.unwrap_or((due + LONGEST) * 1_000);
    let after = used();
    let (own, all) = (after.0 - before.0, after.1 - before.1);
    Turn { way, took_s: (last - due * 1_000) as f64 / 1e6, own_s: own.as_secs_f64(), all_s: (own + all).as_secs_f64() }
}
