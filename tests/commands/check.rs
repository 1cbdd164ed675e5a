//! `order-closer check`: each thing that is wrong has its mark, and what it prints fixes it.

/// A Redis Cluster, and who is none.
mod cluster;
/// The database: mapping, indexes, rights, time zones.
mod database;
/// Deadlines: how they are understood, and what is overdue.
mod deadlines;
/// Events: their tables, and who is told.
mod events;
/// Logins that the driver lacks.
mod logins;
/// What keeps orders from closing, though every statement is accepted.
mod obstacles;
/// Proxies before MariaDB.
mod proxies;
/// Redis: notifications, eviction, persistence, users.
mod redis;
/// Rights that are missing.
mod rights;
/// A primary that sentinels name.
mod sentinels;
/// Rows and keys that contradict each other.
mod witnesses;

use serde_json::Value;

use super::assert_no_secret;
use crate::support::{Kind, Redis, Settings, Shop, daemon::Finished, order_closer};

/// A Redis to which nothing is to be said.
fn good_redis() -> Redis {
    Redis::options().with_notifications().config("appendonly yes").start()
}

/// What `check --json` reported.
#[derive(Debug)]
struct Report {
    finished: Finished,
    findings: Vec<Value>,
}

impl Report {
    /// Runs it, and sees that exit status and `ok` agree.
    async fn of(settings: &Settings, code: i32) -> Self {
        let finished = order_closer(settings, &["check", "--json"]).await.expect_code(code);
        assert_no_secret(&finished);
        let report = finished.json();
        assert_eq!(report["ok"], code == 0, "{finished:#?}");
        let findings = report["findings"].as_array().expect("an array").clone();
        Self { finished, findings }
    }

    /// The worst finding of this name.
    fn finding(&self, name: &str) -> &Value {
        let mut named: Vec<&Value> = self.findings.iter().filter(|finding| finding["name"] == name).collect();
        named.sort_by_key(|finding| ["fail", "warn", "ok"].iter().position(|mark| finding["mark"] == *mark));
        named.first().unwrap_or_else(|| panic!("nothing about {name}: {:#?}", self.findings))
    }

    /// Its mark, and what was found.
    fn mark(&self, name: &str) -> (&str, &str) {
        let finding = self.finding(name);
        (finding["mark"].as_str().expect("a text"), finding["found"].as_str().expect("a text"))
    }

    /// Asserts a mark, and a part of what was found.
    fn assert(&self, name: &str, mark: &str, found: &str) {
        assert_eq!(self.mark(name).0, mark, "{:#?}", self.finding(name));
        assert!(self.mark(name).1.contains(found), "{found:?} expected: {:#?}", self.finding(name));
    }

    /// What fixes it.
    fn fix(&self, name: &str) -> &str {
        let finding = self.finding(name);
        assert_eq!(finding["mend"], finding["fix"], "the name that it had at first");
        finding["fix"].as_str().unwrap_or_else(|| panic!("no fix: {finding:#?}"))
    }

    /// The names of what is not as it should be.
    fn wrong(&self) -> Vec<&str> {
        let wrong = self.findings.iter().filter(|finding| finding["mark"] != "ok");
        wrong.map(|finding| finding["name"].as_str().expect("a text")).collect()
    }
}

/// Everything as it should be, for each kind of database.
async fn all_is_well(kind: Kind, product: &str) {
    let redis = good_redis();
    let shop = Shop::open(kind).await;
    shop.order(1, 600_000).await;
    let settings = shop.settings_with(&redis);
    let report = Report::of(&settings, 0).await;
    assert_eq!(report.wrong(), [] as [&str; 0], "{:#?}", report.findings);
    assert_eq!(report.finished.stderr, "");
    let names: Vec<&str> = report.findings.iter().filter_map(|finding| finding["name"].as_str()).collect();
    let expected = [
        "redis",
        "notifications",
        "eviction",
        "persistence",
        "probe key",
        "database",
        "mapping",
        "sweep index",
        "id index",
        "time zone",
        "sample deadline",
        "closing",
        "rehearsal",
        "own tables",
        "clocks",
        "clocks",
        "clocks",
    ];
    assert_eq!(names, expected);
    report.assert("redis", "ok", &format!("127.0.0.1:{}", redis.port()));
    report.assert("database", "ok", product);
    for text in ["orders: ", "id order_no (bigint", "status status (int", "deadline.column expires_at ("] {
        assert!(report.mark("mapping").1.to_lowercase().contains(text), "{text:?}: {:#?}", report.finding("mapping"));
    }
    report.assert("sweep index", "ok", "orders_due");
    report.assert("sample deadline", "ok", "order 1: expires_at is ");
    report.assert("sample deadline", "ok", "from now");
    report.assert("rehearsal", "ok", "order 1 could be closed");
    // The same as text: a line for each, and a mark on each.
    let text = order_closer(&settings, &["check"]).await.expect_code(0);
    assert_eq!(text.stdout.lines().count(), expected.len(), "{text:#?}");
    for (line, name) in text.stdout.lines().zip(expected) {
        assert!(line.starts_with(&format!("✓ {name} ")), "{line:?}");
    }
    assert_eq!(text.stderr, "");
    // Looking at it has changed nothing, and has left no key behind.
    assert_eq!(shop.assert_outcome().await.open.len(), 1);
    assert_eq!(redis.command(&["DBSIZE"]).integer(), 0);
}

#[tokio::test]
async fn all_is_well_in_postgres() {
    all_is_well(Kind::Postgres, "PostgreSQL 1").await;
}

#[tokio::test]
async fn all_is_well_in_mariadb() {
    all_is_well(Kind::MariaDb, "MariaDB 1").await;
}

#[tokio::test]
async fn all_is_well_in_sqlite() {
    all_is_well(Kind::Sqlite, "SQLite 3.").await;
}

#[tokio::test]
async fn text_shows_what_to_do() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Sqlite).await;
    let settings = shop.settings_with(&redis).set("redis.enable_notifications", false);
    let finished = order_closer(&settings, &["check"]).await.expect_code(78);
    let lines: Vec<&str> = finished.stdout.lines().collect();
    let at = lines.iter().position(|line| line.starts_with("✗ notifications ")).unwrap_or_else(|| panic!("{finished:#?}"));
    let fix = format!("-> redis-cli -p {} CONFIG SET notify-keyspace-events Ex", redis.port());
    assert_eq!(lines[at + 1].trim_start(), fix, "{finished:#?}");
    assert!(lines.iter().any(|line| line.starts_with("! persistence ")), "{finished:#?}");
}
