//! Orders in several tables of several databases: each closes at its deadline, and trouble of one shard is no other's.

use std::{collections::BTreeMap, time::Duration};

use serde_json::Value;

use super::{ON_TIME_MILLIS, listening};
use crate::support::{Daemon, Database, Kind, Proxy, Redis, Settings, daemon::order_closer, postgres::Postgres, wait};

const TABLES: usize = 3;

/// Databases with three tables each, on servers of their own or not.
struct Shards(Vec<Database>);

impl Shards {
    async fn open(databases: Vec<Database>) -> Self {
        for database in &databases {
            let time = time(database.kind);
            for table in 0..TABLES {
                database
                    .execute(&format!(
                        "CREATE TABLE t_order_{table} (order_no bigint PRIMARY KEY, status integer NOT NULL DEFAULT 0, expires_at {time} NULL);
                         CREATE INDEX t_order_{table}_due ON t_order_{table} (status, expires_at);
                         CREATE TABLE t_closure_{table} (order_no bigint NOT NULL, late bigint);"
                    ))
                    .await;
            }
        }
        Self(databases)
    }

    /// With all orders of `t_order_<n>` their closures go to `t_closure_<n>`, with how many milliseconds late they are.
    fn settings(&self, redis: &Redis) -> Settings {
        let mut settings = Settings::new()
            .set("redis.url", redis.url())
            .set("orders.table", format!("ds_${{0..{}}}.t_order_$->{{0..2}}", self.0.len() - 1))
            .set("orders.closed", 4)
            .set("log.format", "json");
        for (number, database) in self.0.iter().enumerate() {
            settings = settings.set(&format!("databases.ds_{number}"), database.url.as_str());
        }
        let late = late(self.0[0].kind);
        settings.set(
            "close.sql",
            vec![format!(
                "INSERT INTO t_closure_{{shard}} (order_no, late) SELECT order_no, {late} FROM t_order_{{shard}} WHERE order_no IN (:ids)"
            )],
        )
    }

    /// Takes an order in each table, due in so many milliseconds, with numbers from this on.
    async fn orders(&self, first: usize, due_in_millis: i64) {
        for database in 0..self.0.len() {
            self.orders_in(database, first, due_in_millis).await;
        }
    }

    async fn orders_in(&self, database: usize, first: usize, due_in_millis: i64) {
        let moment = moment(self.0[database].kind, due_in_millis);
        for table in 0..TABLES {
            let order = first + database * TABLES + table;
            self.0[database].execute(&format!("INSERT INTO t_order_{table} (order_no, expires_at) VALUES ({order}, {moment})")).await;
        }
    }

    /// The closed orders of a database, each with its table and its lateness.
    async fn closed_in(&self, database: usize) -> BTreeMap<i64, (usize, i64)> {
        let mut closed = BTreeMap::new();
        for table in 0..TABLES {
            let rows = self.0[database]
                .rows(&format!(
                    "SELECT o.order_no, c.late FROM t_order_{table} o JOIN t_closure_{table} c ON c.order_no = o.order_no WHERE o.status = 4"
                ))
                .await;
            for row in rows {
                let number = |at: usize| row[at].as_ref().expect("a value").parse::<i64>().expect("a number");
                assert!(closed.insert(number(0), (table, number(1))).is_none(), "order {} closed twice", number(0));
            }
        }
        closed
    }

    /// Waits until so many orders of a database are closed, and returns how late the last of them was.
    async fn until_closed(&self, database: usize, orders: usize) -> i64 {
        wait::until_eq("closed orders", orders, async || self.closed_in(database).await.len()).await;
        self.closed_in(database).await.values().map(|(_, late)| *late).max().unwrap_or_default()
    }
}

fn time(kind: Kind) -> &'static str {
    match kind {
        Kind::Postgres => "timestamptz",
        Kind::MariaDb => "datetime(6)",
        Kind::Sqlite => "text",
    }
}

fn moment(kind: Kind, millis: i64) -> String {
    match kind {
        Kind::Postgres => format!("clock_timestamp() + interval '{millis} milliseconds'"),
        Kind::MariaDb => format!("NOW(6) + INTERVAL {} MICROSECOND", millis * 1_000),
        Kind::Sqlite => format!("strftime('%Y-%m-%d %H:%M:%f', 'now', '{:+.3} seconds')", millis as f64 / 1_000.0),
    }
}

fn late(kind: Kind) -> &'static str {
    match kind {
        Kind::Postgres => "floor(extract(epoch FROM clock_timestamp() - expires_at) * 1000)::bigint",
        Kind::MariaDb => "TIMESTAMPDIFF(MICROSECOND, expires_at, NOW(6)) DIV 1000",
        Kind::Sqlite => "CAST((unixepoch('now', 'subsec') - unixepoch(expires_at, 'subsec')) * 1000 AS INTEGER)",
    }
}

async fn two_postgres() -> Shards {
    Shards::open(vec![Database::fresh(Kind::Postgres).await, Database::fresh(Kind::Postgres).await]).await
}

/// By notifications where orders have keys, by their rows where they have none; each event says where its order was.
#[tokio::test]
async fn each_order_closes_where_it_is() {
    let (redis, shards) = (Redis::start(), two_postgres().await);
    let settings = shards.settings(&redis).set("events.enabled", true);
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    shards.orders(0, -60_000).await;
    let daemon = listening(&settings).await;
    for database in 0..2 {
        shards.until_closed(database, TABLES).await;
    }
    shards.orders(100, 3_000).await;
    let soon = std::time::SystemTime::now() + Duration::from_secs(3);
    (100..100 + 2 * TABLES).for_each(|order| redis.set_until(&format!("order_{order}"), "", soon));
    for database in 0..2 {
        let late = shards.until_closed(database, 2 * TABLES).await;
        assert!(late >= 0);
        let places: Vec<usize> = shards.closed_in(database).await.values().map(|(table, _)| *table).collect();
        assert_eq!(places, [0, 1, 2, 0, 1, 2], "each in its own table");
    }
    daemon.stop().await;
    let lines = order_closer(&settings, &["events", "--json"]).await.expect_code(0).stdout;
    let events: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let heard = events.iter().filter(|event| event["trigger"] == "expired").count();
    assert!(heard > 0, "notifications find the shards that expect them: {lines}");
    let shards_of: BTreeMap<String, String> = events
        .iter()
        .map(|event| (event["order_id"].as_str().expect("an id").to_owned(), event["shard"].as_str().expect("a shard").to_owned()))
        .collect();
    assert_eq!(shards_of.len(), 4 * TABLES);
    assert_eq!(shards_of["0"], "ds_0.t_order_0");
    assert_eq!(shards_of["102"], "ds_0.t_order_2");
    assert_eq!(shards_of["105"], "ds_1.t_order_2");
    let stopped = daemon.said("order-closer stopped");
    let spans: Vec<&str> = stopped.iter().map(|line| line["span"]["shard"].as_str().expect("a shard")).collect();
    assert_eq!(spans.len(), 2 * TABLES, "{spans:?}");
}

/// A server that is frozen keeps no order of another one waiting, and closes its own when it is back.
#[tokio::test]
async fn a_dead_database_delays_no_other() {
    let (redis, server) = (Redis::start(), Postgres::options().start());
    let shards = Shards::open(vec![Database::fresh(Kind::Postgres).await, Database::on_postgres(&server).await]).await;
    let daemon = listening(&shards.settings(&redis)).await;
    shards.orders(0, 500).await;
    shards.until_closed(0, TABLES).await;
    shards.until_closed(1, TABLES).await;
    shards.orders_in(1, 100, 1_500).await;
    server.freeze();
    for round in 1..=4 {
        shards.orders_in(0, 100 * round, 2_500).await;
        let late = shards.until_closed(0, TABLES * (round + 1)).await;
        assert!(late < ON_TIME_MILLIS, "{late} ms late");
    }
    server.thaw();
    shards.until_closed(1, 2 * TABLES).await;
    daemon.stop().await;
}

/// A table that somebody has locked makes its own orders late, and none of those beside it, though they are read together.
#[tokio::test]
async fn a_locked_table_delays_no_other() {
    let (redis, shards) = (Redis::start(), two_postgres().await);
    let daemon = listening(&shards.settings(&redis).set("log.level", "info,order_closer::store::together=debug")).await;
    shards.orders(0, 500).await;
    for database in 0..2 {
        shards.until_closed(database, TABLES).await;
    }
    let mut holder = shards.0[0].begin().await;
    holder.execute("LOCK TABLE t_order_1 IN ACCESS EXCLUSIVE MODE").await;
    daemon.until_logged("shards are read one by one").await;
    let closed_beside = async || {
        let rows = shards.0[0].rows("SELECT late FROM t_closure_0 UNION ALL SELECT late FROM t_closure_2").await;
        rows.into_iter().map(|row| row[0].as_ref().expect("a value").parse::<i64>().expect("a number")).collect::<Vec<_>>()
    };
    for round in 1..=4 {
        let moment = moment(Kind::Postgres, 2_500);
        for table in [0, 2] {
            let order = 100 * round + table;
            shards.0[0].execute(&format!("INSERT INTO t_order_{table} (order_no, expires_at) VALUES ({order}, {moment})")).await;
        }
        wait::until_eq("orders beside it", 2 + 2 * round, async || closed_beside().await.len()).await;
    }
    let late = closed_beside().await.into_iter().max().unwrap_or_default();
    assert!(late < ON_TIME_MILLIS, "{late} ms late");
    holder.rollback().await;
    shards.0[0].execute(&format!("INSERT INTO t_order_1 (order_no, expires_at) VALUES (900, {})", moment(Kind::Postgres, 100))).await;
    wait::until_eq("the table's own", 2, async || shards.0[0].rows("SELECT 1 FROM t_closure_1").await.len()).await;
    daemon.stop().await;
    // The statement that reads all failed when the lock came; since then the locked one has been read alone.
    let together = daemon.logged("shards are read one by one");
    assert!(together <= 8, "read one by one {together} times");
}

/// The same statement on the other databases.
#[tokio::test]
async fn shards_close_in_mariadb() {
    closes_on(Kind::MariaDb).await;
}

#[tokio::test]
async fn shards_close_in_sqlite() {
    closes_on(Kind::Sqlite).await;
}

async fn closes_on(kind: Kind) {
    let (redis, shards) = (Redis::start(), Shards::open(vec![Database::fresh(kind).await, Database::fresh(kind).await]).await);
    let daemon = listening(&shards.settings(&redis).set("log.level", "info,order_closer::store::together=debug")).await;
    shards.orders(0, -60_000).await;
    shards.orders(100, 2_500).await;
    for database in 0..2 {
        shards.until_closed(database, 2 * TABLES).await;
    }
    daemon.stop().await;
    assert_eq!(daemon.logged("shards are read one by one"), 0, "all are read by one statement");
}

/// A table that is missing is waited for, and keeps none of the others waiting.
#[tokio::test]
async fn a_table_that_is_missing_delays_no_other() {
    let (redis, shards) = (Redis::start(), two_postgres().await);
    shards.0[1].execute("DROP TABLE t_order_2").await;
    let daemon = Daemon::start(&shards.settings(&redis));
    shards.orders_in(0, 0, 300).await;
    shards.until_closed(0, TABLES).await;
    let waiting = daemon.said("no order can be closed; waiting for the database");
    assert_eq!(waiting[0]["span"]["shard"], "ds_1.t_order_2", "{waiting:?}");
    daemon.stop().await;
}

/// One of four databases is away when the daemon starts, is swallowed by the network later, and then answers slowly: the
/// orders of the others close all the same, and its own as soon as it is back.
#[tokio::test]
async fn of_four_databases_one_in_trouble_delays_no_other() {
    const SICK: usize = 2;
    let redis = Redis::start();
    let mut databases = Vec::new();
    for _ in 0..4 {
        databases.push(Database::fresh(Kind::MariaDb).await);
    }
    let shards = Shards::open(databases).await;
    let proxy = Proxy::before(&shards.0[SICK].url);
    let url = proxy.url(&shards.0[SICK].url);
    let healthy = || (0..4).filter(|database| *database != SICK);
    proxy.refuse().await;
    shards.orders(0, -60_000).await;
    let daemon = Daemon::start(&shards.settings(&redis).set(&format!("databases.ds_{SICK}"), url.as_str()));
    for database in healthy() {
        shards.until_closed(database, TABLES).await;
    }
    let said = "no order can be closed; waiting for the database";
    daemon.until_logged(said).await;
    let names: Vec<Value> = daemon.said(said).into_iter().map(|line| line["span"]["database"].clone()).collect();
    assert_eq!(names, ["ds_2"], "once, of the one that is away");
    proxy.accept().await;
    shards.until_closed(SICK, TABLES).await;
    let (mut late, mut closed) = (Vec::new(), TABLES);
    for (round, trouble) in (1..).zip([None, Some(Trouble::BlackHole), Some(Trouble::Slow)]) {
        match trouble {
            None => {}
            Some(Trouble::BlackHole) => proxy.black_hole(),
            Some(Trouble::Slow) => proxy.delay(Duration::from_millis(250)),
        }
        shards.orders(100 * round, 3_000).await;
        closed += TABLES;
        for database in healthy() {
            shards.until_closed(database, closed).await;
            late.extend(shards.closed_in(database).await.range(100 * round as i64..).map(|(_, (_, late))| *late));
        }
        proxy.pass();
        shards.until_closed(SICK, closed).await;
    }
    late.sort_unstable();
    assert!(late[late.len() / 2] < 1_000, "milliseconds late: {late:?}");
    daemon.stop().await;
}

/// What the network does to one of them.
enum Trouble {
    BlackHole,
    Slow,
}

/// A database that is away when the daemon starts is waited for, and the orders of the others close meanwhile.
#[tokio::test]
async fn a_database_that_is_away_at_the_start_delays_no_other() {
    let (redis, server) = (Redis::start(), Postgres::options().start());
    let shards = Shards::open(vec![Database::fresh(Kind::Postgres).await, Database::on_postgres(&server).await]).await;
    shards.orders(0, -60_000).await;
    server.freeze();
    let daemon = Daemon::start(&shards.settings(&redis));
    shards.until_closed(0, TABLES).await;
    server.thaw();
    shards.until_closed(1, TABLES).await;
    daemon.stop().await;
}

/// Monthly tables: those that there are when the daemon starts, another that is made while it runs, and those of a database that
/// comes later. What is called alike and is no month's table stays as it is.
#[tokio::test]
async fn the_table_of_another_month_joins() {
    let (redis, server) = (Redis::start(), Postgres::options().start());
    let databases = [Database::fresh(Kind::Postgres).await, Database::on_postgres(&server).await];
    let month = async |database: usize, table: &str, order: i64| {
        let columns = "order_no bigint PRIMARY KEY, status integer NOT NULL DEFAULT 0, expires_at timestamptz";
        databases[database].execute(&format!("CREATE TABLE {table} ({columns})")).await;
        databases[database].execute(&format!("INSERT INTO {table} (order_no, expires_at) VALUES ({order}, now())")).await;
    };
    let until_closed = async |database: usize, table: &str| {
        let what = format!("the order in {table}");
        wait::until_eq(&what, 4, async || databases[database].number(&format!("SELECT status FROM {table}")).await).await;
    };
    month(0, "t_order_202611", 1).await;
    for (order, alike) in (10..).zip(["t_order_202611_old", "t_order_item_0", "\"tXorder_202611\"", "t_order_"]) {
        month(0, alike, order).await;
    }
    month(1, "t_order_2026_11", 2).await;
    server.freeze();
    let mut settings = Settings::new().set("redis.url", redis.url()).set("orders.table", "ds_{0..1}.t_order_*").set("orders.closed", 4);
    for (number, database) in databases.iter().enumerate() {
        settings = settings.set(&format!("databases.ds_{number}"), database.url.as_str());
    }
    let daemon = Daemon::start(&settings);
    until_closed(0, "t_order_202611").await;
    month(0, "t_order_202612", 3).await;
    until_closed(0, "t_order_202612").await;
    server.thaw();
    until_closed(1, "t_order_2026_11").await;
    daemon.stop().await;
    for alike in ["t_order_202611_old", "t_order_item_0", "\"tXorder_202611\"", "t_order_"] {
        assert_eq!(databases[0].number(&format!("SELECT status FROM {alike}")).await, 0, "{alike}");
    }
}

/// A forged notification makes no shard look: none of them expects its order.
#[tokio::test]
async fn a_notification_that_no_shard_expects_is_dropped() {
    let (redis, shards) = (Redis::start(), two_postgres().await);
    shards.orders(0, 3_600_000).await;
    let daemon = listening(&shards.settings(&redis)).await;
    (0..200).for_each(|order| assert!(redis.publish_expired(0, format!("order_{order}").as_bytes()) > 0));
    // One that is expected comes after them, over the same connection.
    shards.orders(1_000, 2_500).await;
    let soon = std::time::SystemTime::now() + Duration::from_millis(2_500);
    redis.set_until("order_1000", "", soon);
    for database in 0..2 {
        shards.until_closed(database, TABLES).await;
    }
    daemon.stop().await;
    let stopped = daemon.said("order-closer stopped");
    let all = |what: &str| stopped.iter().map(|line| line[what].as_u64().expect("a number")).sum::<u64>();
    assert_eq!((all("not_due"), all("not_found")), (0, 0), "no order was looked at that is not due: {stopped:?}");
    assert!(all("ignored") >= 200, "all are counted: {stopped:?}");
}
