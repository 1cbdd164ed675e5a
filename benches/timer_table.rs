//! The timers' table on servers of its own, filled by the million, and the daemon for it.

use std::time::Duration;

use crate::{
    options::Base,
    orders::{self, Millis},
    servers::{self, Server},
    shop::numbers,
    support::{Daemon, Database, Kind, Redis, Settings, order_closer, ports, receiver::Receiver},
};

/// The stream that is told of timers, and that from which they are taken.
pub const FIRED: &str = "fired";
pub const INTAKE: &str = "order-closer:timers";

/// The targets: that stream, and a webhook.
pub const STREAM: &str = "stream";
pub const WEBHOOK: &str = "a";

/// The token of whoever asks over HTTP.
pub const TOKEN: &str = "0123456789abcdef-a-token-of-benchmarks";

/// What is pending falls due from then on, over a day.
const FAR: Millis = 3_600_000;
const DAY: Millis = 86_400_000;

/// So many rows are written by one statement.
const PIECE: i64 = 500_000;

/// The table, its database, a Redis, and somebody who is told.
#[derive(Debug)]
pub struct TimerTable {
    pub database: Database,
    pub redis: Redis,
    pub receiver: Receiver,
    /// The daemon's address.
    pub address: String,
    settings: Settings,
    server: Server,
}

impl TimerTable {
    /// An empty one.
    pub async fn open(base: Base) -> Self {
        let (server, redis, receiver) = (Server::start(base), servers::redis(), Receiver::start().await);
        let database = server.database().await;
        let address = format!("127.0.0.1:{}", ports::free());
        let settings = Settings::new()
            .set("orders.table", "none")
            .set("database.url", database.url.as_str())
            .set("redis.url", redis.url())
            .set("log.format", "json")
            .set("http.listen", address.as_str())
            .set("http.token", TOKEN)
            .set("timers.enabled", true)
            .set("timers.intake", INTAKE)
            .add(&format!("[timers.stream]\nkey = '{FIRED}'\nmax_len = 1000000"))
            .add(&receiver.one_more_webhook(WEBHOOK).replace("[[events.", "[[timers."));
        order_closer(&settings, &["migrate"]).await.expect_code(0);
        Self { database, redis, receiver, address, settings, server }
    }

    /// Writes so many timers that fall due tomorrow, more or less.
    pub async fn fill(&self, pending: u32) {
        let (from, pending) = (orders::now() + FAR, i64::from(pending));
        let mut first = 1;
        while first <= pending {
            let last = (first + PIECE - 1).min(pending);
            self.insert("pending", (first, last), &format!("{from} * 1000 + n * {}", DAY * 1_000 / pending), &format!("'{STREAM}'")).await;
            first = last + 1;
        }
        self.settle().await;
    }

    /// Writes the timers of this kind with these numbers as their keys. When they are due, in microseconds, and their target are
    /// SQL, in which `n` is the number.
    pub async fn insert(&self, kind: &str, (first, last): (i64, i64), due: &str, target: &str) {
        let numbers = numbers(self.database.kind, first, last);
        let (key, number) = match self.database.kind {
            Kind::Postgres => ("key", "n::text"),
            Kind::MariaDb => ("`key`", "CAST(n AS CHAR)"),
            Kind::Sqlite => ("key", "CAST(n AS TEXT)"),
        };
        let insert = format!(
            "INSERT INTO order_closer_timers (kind, {key}, due_at, target, data) \
             SELECT '{kind}', {number}, {due}, {target}, '{{\"order\": 1001}}' FROM {numbers}"
        );
        self.database.execute(&insert).await;
    }

    /// What a database does in the background is done now.
    pub async fn settle(&self) {
        let sql: &[&str] = match self.database.kind {
            Kind::Postgres => &["VACUUM ANALYZE order_closer_timers", "CHECKPOINT"],
            Kind::MariaDb => &["ANALYZE TABLE order_closer_timers"],
            Kind::Sqlite => &["ANALYZE", "PRAGMA wal_checkpoint(TRUNCATE)"],
        };
        for statement in sql {
            self.database.rows(statement).await;
        }
    }

    /// Starts the daemon.
    pub async fn daemon(&self) -> Daemon {
        let daemon = servers::daemon(&self.settings).await;
        daemon.until_logged("answering over HTTP").await;
        daemon
    }

    /// The database server's process, where there is one.
    pub fn server_pid(&self) -> Option<u32> {
        self.server.pid()
    }

    /// The number of rows with this condition.
    pub async fn count(&self, condition: &str) -> i64 {
        self.database.number(&format!("SELECT count(*) FROM order_closer_timers WHERE {condition}")).await
    }
}

/// When entries were added to the stream at the latest, with their fields: an id counts whole milliseconds.
pub fn entries(redis: &Redis) -> Vec<(Vec<String>, i64)> {
    let entries = redis.command(&["XRANGE", FIRED, "-", "+"]);
    let entry = |entry: &crate::support::redis::Reply| {
        let fields = entry.array()[1].array().iter().map(|field| field.text()).collect();
        (fields, added(&entry.array()[0].text()))
    };
    entries.array().iter().map(entry).collect()
}

/// When an entry with this id was added, to half a millisecond, in microseconds since 1970.
pub fn added(id: &str) -> i64 {
    let millis: i64 = id.split('-').next().and_then(|millis| millis.parse().ok()).expect("the server's own id");
    millis * 1_000 + 500
}

/// Waits until the stream has so many entries, and returns when the last was added; nothing if it takes longer than that.
pub async fn last_of(redis: &Redis, entries: u32, until: Millis) -> Option<i64> {
    while redis.command(&["XLEN", FIRED]).integer() < i64::from(entries) {
        if orders::now() > until {
            return None;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let last = redis.command(&["XREVRANGE", FIRED, "+", "-", "COUNT", "1"]);
    Some(added(&last.array()[0].array()[0].text()))
}
