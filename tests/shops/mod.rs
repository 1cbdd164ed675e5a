//! Real shops: each file of `config/examples` against the tables of its system, by the real binary.
//!
//! A test fills the tables with orders of every sort, lets `reconcile` or the daemon close what is due, and compares *all*
//! tables before and after: what is listed, or what the system's own statements change, has changed, and nothing else has.

mod changes;
mod held;
mod litemall;
mod litemall_all;
mod magento;
mod mall;
mod mall_all;
mod plain_mysql;
mod plain_postgres;
mod recorded;
mod saleor;
mod spree;
mod woocommerce;
mod yudao;

use std::{collections::BTreeSet, path::PathBuf};

use changes::Snapshot;
use order_closer::config::{self, Config};
use serde_json::Value;

use crate::support::{Daemon, Database, Kind, OneShot, Redis, Settings, wait};

/// An example, and a database with its system's tables.
struct Example {
    /// Its file in `config/examples`, without the ending.
    name: &'static str,
    /// SQL for the time that it is, as the shop's tables have it.
    clock: &'static str,
    database: Database,
    /// The database for a user who has the rights of the example's head, and no others.
    url: String,
    redis: Redis,
}

impl Example {
    /// Creates the tables, and the indexes that the example's head asks for.
    async fn open(name: &'static str, database: Database, clock: &'static str, schema: &str) -> Self {
        database.execute(schema).await;
        let url = database.url.clone();
        let mut example =
            Self { name, clock, database, url, redis: Redis::options().with_notifications().config("appendonly yes").start() };
        for prefix in example.settings().of_each_rule().into_iter().map(|rule| String::from(rule.redis.key_prefix)) {
            let is_named = prefix == "none" || example.text().contains(&format!("# Keys: SET {prefix}<"));
            assert!(is_named, "the head names keys as they are expected: {prefix}");
        }
        if !example.name.starts_with("plain") {
            for table in example.signs() {
                assert_eq!(example.database.rows(&format!("SELECT 1 FROM {table} WHERE 1 = 0")).await.len(), 0, "{table} tells the shop");
            }
        }
        // Of a table with several versions of an order the head says that no index is to make their id unique.
        let missing: &[&str] = if example.text().contains("no unique index on id") { &["id index"] } else { &[] };
        assert_eq!(example.check().await, [missing, &["sweep index"]].concat(), "the system's own tables lack that index alone");
        let indexes = example.indexes();
        assert!(!indexes.is_empty(), "the head has the statement that creates the missing index");
        for index in indexes {
            example.database.execute(&index).await;
        }
        example.url = example.url_with_rights().await;
        assert_eq!(example.check().await, missing);
        example
    }

    fn file(&self) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("config/examples").join(self.name).with_extension("toml")
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.file()).expect("the example can be read")
    }

    fn settings(&self) -> Config {
        config::load(Some(&self.file())).unwrap_or_else(|error| panic!("{error}")).config
    }

    /// The tables by which the head says that the shop is to be known, quoted.
    fn signs(&self) -> Vec<String> {
        let quote = if self.database.kind == Kind::Postgres { '"' } else { '`' };
        let text = self.text();
        let tables = text.lines().find_map(|line| line.strip_prefix("# Tables that tell this shop: ")).expect("the head names them");
        tables.split(", ").map(|table| format!("{quote}{table}{quote}")).collect()
    }

    /// The statements in the comments of the file that begin so.
    fn statements(&self, beginning: &str) -> Vec<String> {
        let comments: String = self.text().lines().filter_map(|line| line.strip_prefix('#')).map(|line| format!("{line}\n")).collect();
        let statements = comments.split(beginning).skip(1);
        statements.filter_map(|rest| Some(format!("{beginning}{}", rest.split_once(';')?.0))).collect()
    }

    fn indexes(&self) -> Vec<String> {
        // Outside a transaction alone could an index be made concurrently, and nobody else is here.
        self.statements("CREATE INDEX").into_iter().map(|statement| statement.replace("CONCURRENTLY ", "")).collect()
    }

    /// Makes a user, grants it what the head of the example has, and returns the database's URL for it.
    async fn url_with_rights(&self) -> String {
        let grants = self.statements("  GRANT ");
        assert!(!grants.is_empty(), "the head has no GRANTs; for a user without rights `order-closer check` prints them");
        // The servers are shared, and so are their users.
        let user: String = self.database.url.rsplit('/').next().expect("a name").replace("test_", "shop_").chars().take(30).collect();
        let (create, owner) = match self.database.kind {
            Kind::Postgres => (format!("CREATE ROLE {user} LOGIN PASSWORD 'a-password'"), "postgres@"),
            Kind::MariaDb => (format!("CREATE USER {user}@'%' IDENTIFIED BY 'a-password'"), "root@"),
            Kind::Sqlite => return self.database.url.clone(),
        };
        self.database.execute(&create).await;
        for grant in grants {
            self.database.execute(&grant.replace("TO order_closer", &format!("TO {user}"))).await;
        }
        self.database.url.replace(owner, &format!("{user}:a-password@"))
    }

    /// The shipped file, told where the servers are.
    fn command(&self, arguments: &[&str]) -> OneShot {
        let file = self.file().display().to_string();
        OneShot::new(&[&["--config", &file], arguments].concat())
            .env("ORDER_CLOSER_DATABASE__URL", &self.url)
            .env("ORDER_CLOSER_REDIS__URL", &self.redis.url())
    }

    /// What `check` finds that is not as it should be, sorted; anything that keeps orders from closing fails.
    async fn check(&self) -> Vec<String> {
        let report = self.command(&["check", "--json"]).run().await.expect_code(0).json();
        let findings = report["findings"].as_array().expect("a list of findings");
        let wrong = findings.iter().filter(|finding| finding["mark"] != "ok");
        let names: BTreeSet<String> = wrong.map(|finding| finding["name"].as_str().expect("a text").to_owned()).collect();
        names.into_iter().collect()
    }

    /// Closes what is due, and returns what has changed in all tables; `expected` is (closed, failed).
    async fn reconcile(&self, expected: (u64, u64)) -> Vec<String> {
        let before = Snapshot::take(&self.database).await;
        let began = self.now().await;
        let report = self.reconcile_once(if expected.1 == 0 { 0 } else { 75 }).await;
        let ended = self.now().await;
        let count = |key: &str| report[key].as_u64().expect("a count");
        assert_eq!((count("closed"), count("failed")), expected, "{report:#}");
        let after = Snapshot::take(&self.database).await;
        // Nothing happens twice.
        let again = self.reconcile_once(if expected.1 == 0 { 0 } else { 75 }).await;
        assert_eq!(again["closed"], 0, "{again:#}");
        assert_eq!(Snapshot::take(&self.database).await, after, "the second sweep changed something");
        before.changes(&after, &(began..=ended))
    }

    /// Lets the daemon close until the SQL `left` counts nothing, and returns what has changed in all tables.
    async fn close(&self, left: &str) -> Vec<String> {
        let settings = Settings::new()
            .add(&self.text())
            .set("database.url", self.url.as_str())
            .set("redis.url", self.redis.url())
            .set("log.format", "json");
        self.changed(async |database| {
            let daemon = Daemon::start(&settings);
            wait::until_eq(left, 0, async || database.number(left).await).await;
            daemon.stop().await;
        })
        .await
    }

    /// What has changed in all tables after that.
    async fn changed(&self, act: impl AsyncFnOnce(&Database)) -> Vec<String> {
        let before = Snapshot::take(&self.database).await;
        let began = self.now().await;
        act(&self.database).await;
        let ended = self.now().await;
        before.changes(&Snapshot::take(&self.database).await, &(began..=ended))
    }

    async fn reconcile_once(&self, code: i32) -> Value {
        self.command(&["reconcile", "--json"]).run().await.expect_code(code).json()
    }

    /// To the second.
    async fn now(&self) -> String {
        let now = self.database.text(&format!("SELECT {}", self.clock)).await.expect("a time");
        now[..19].to_owned()
    }
}

/// Fails unless just this has changed, in any order.
#[track_caller]
fn assert_changes(mut changes: Vec<String>, expected: &[&str]) {
    let mut expected: Vec<String> = expected.iter().map(|&line| line.to_owned()).collect();
    changes.sort();
    expected.sort();
    let missing: Vec<&String> = expected.iter().filter(|line| !changes.contains(line)).collect();
    let surplus: Vec<&String> = changes.iter().filter(|line| !expected.contains(line)).collect();
    assert!(changes == expected, "missing: {missing:#?}\nnot expected: {surplus:#?}");
}

/// The rule about payment is the same in the file that has it alone and in the one with all rules.
#[test]
fn files_of_one_system_have_the_same_rule_for_payment() {
    let rules = |name: &str| {
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("config/examples").join(name).with_extension("toml");
        config::load(Some(&file)).unwrap_or_else(|error| panic!("{error}")).config.of_each_rule()
    };
    for (alone, all) in [("mall", "mall-all"), ("litemall", "litemall-all")] {
        let of = |rule: &Config| format!("{:#?} {:#?} {:#?} {:#?}", rule.orders, rule.close, rule.redis, rule.database);
        assert_eq!(of(&rules(alone)[0]), of(rules(all).iter().find(|rule| rule.which.name.as_str() == "unpaid").expect("a rule unpaid")));
    }
}
