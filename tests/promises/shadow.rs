//! A daemon that closes nothing: nothing changes in database and Redis, and what it reports is right.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
};

use serde_json::Value;

use super::{listening, on_each_database};
use crate::support::{
    Daemon, Database, Kind, Redis, Settings, Shop, order_closer, ports, process,
    shop::{CLOSED, PAID, UNPAID, key},
    wait,
};

on_each_database! {
    each_order_is_told_of_and_nothing_is_written
    it_says_how_late_orders_were_closed_the_day_before
}

const HOUR: i64 = 3_600_000;

/// All that a shadow says to Redis, as `INFO commandstats` names it. The last one is the test's own.
const READS: [&str; 15] = [
    "auth",
    "client|id",
    "client|info",
    "client|setinfo",
    "client|setname",
    "config|get",
    "hello",
    "info",
    "ping",
    "psubscribe",
    "pttl",
    "role",
    "subscribe",
    "time",
    "config|resetstat",
];

/// A shadow whose results are in a file.
struct Shadow {
    daemon: Daemon,
    folder: tempfile::TempDir,
}

impl Shadow {
    fn start(settings: &Settings, options: &[&str]) -> Self {
        let folder = process::folder();
        let output = File::create(Self::file(folder.path())).expect("a file can be made");
        let daemon = Daemon::started(settings, |command| {
            command.args(["--shadow", "--json"]).args(options).stdout(output);
        });
        Self { daemon, folder }
    }

    fn file(folder: &Path) -> std::path::PathBuf {
        folder.join("output")
    }

    fn said(&self) -> Vec<Value> {
        let text = process::read(&Self::file(self.folder.path()));
        text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line:?}"))).collect()
    }

    /// What it has told of each order.
    fn told(&self) -> BTreeMap<i64, Value> {
        let order = |line: Value| Some((line["order"].as_str()?.parse().expect("a number"), line));
        self.said().into_iter().filter_map(order).collect()
    }

    async fn until_told(&self, order: i64) {
        wait::until(&format!("order {order} is told of"), async || self.told().contains_key(&order)).await;
    }

    /// How many orders it would have closed.
    fn would_close(&self) -> u64 {
        let summaries = self.daemon.said("summary of a shadow, which closed nothing");
        summaries.iter().filter_map(|summary| summary["closed"].as_u64()).sum()
    }
}

/// Every row of every table.
async fn dump(database: &Database) -> BTreeMap<String, Vec<String>> {
    let tables = match database.kind {
        Kind::Postgres => "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'",
        Kind::MariaDb => "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()",
        Kind::Sqlite => "SELECT name FROM sqlite_master WHERE type = 'table'",
    };
    let mut all = BTreeMap::new();
    for table in database.column(tables).await.into_iter().flatten() {
        let columns = match database.kind {
            Kind::Postgres => format!("SELECT column_name FROM information_schema.columns WHERE table_name = '{table}'"),
            // Other tests have databases on the same server.
            Kind::MariaDb => {
                format!("SELECT column_name FROM information_schema.columns WHERE table_name = '{table}' AND table_schema = DATABASE()")
            }
            Kind::Sqlite => format!("SELECT name FROM pragma_table_info('{table}')"),
        };
        let columns: Vec<String> = database.column(&columns).await.into_iter().flatten().collect();
        let columns: std::collections::BTreeSet<String> = columns.into_iter().collect();
        let text = |column: &String| match database.kind {
            Kind::MariaDb => format!("CAST(`{column}` AS CHAR)"),
            Kind::Postgres | Kind::Sqlite => format!("CAST({column} AS text)"),
        };
        let columns: Vec<String> = columns.iter().map(text).collect();
        let rows = database.rows(&format!("SELECT {} FROM {table}", columns.join(", "))).await;
        let mut rows: Vec<String> = rows.iter().map(|row| format!("{row:?}")).collect();
        rows.sort();
        all.insert(table, rows);
    }
    all
}

/// The URL of a user that may read the orders, and nothing else.
async fn reader(database: &Database) -> String {
    let url = &database.url;
    let name = url.rsplit('/').next().expect("a name");
    match database.kind {
        Kind::Postgres => {
            database.execute(&format!("CREATE ROLE reader_{name} LOGIN; GRANT SELECT ON orders TO reader_{name}")).await;
            url.replace("postgres@", &format!("reader_{name}@"))
        }
        Kind::MariaDb => {
            database
                .execute(&format!("CREATE USER '{name}'@'%' IDENTIFIED BY 'read'; GRANT SELECT ON {name}.orders TO '{name}'@'%'"))
                .await;
            let host = url.rsplit_once('/').and_then(|(rest, _)| rest.rsplit_once('@')).expect("a host").1;
            format!("mysql://{name}:read@{host}/{name}")
        }
        Kind::Sqlite => url.clone(),
    }
}

async fn each_order_is_told_of_and_nothing_is_written(kind: Kind) {
    let redis = Redis::start();
    let shop = Shop::open(kind).await;
    let owner = shop.settings_with(&redis).set("events.enabled", true);
    order_closer(&owner, &["migrate"]).await.expect_code(0);
    shop.order(8, -60_000).await;
    shop.orders_due_in([3, 4], HOUR).await;
    let settings = owner.set("database.url", reader(&shop.database).await).set("log.summary", "100ms");
    let at_start = dump(&shop.database).await;
    redis.command(&["CONFIG", "RESETSTAT"]);
    let shadow = Shadow::start(&settings, &["--changed-at", "closed_at"]);
    shadow.daemon.until_logged("this is a shadow").await;
    shadow.daemon.until_logged("listening for expired keys").await;
    shadow.daemon.until_logged("watching what becomes of unpaid orders").await;
    assert_reads_alone(&redis);
    assert_eq!(dump(&shop.database).await, at_start);
    shop.orders_due_in([1, 2, 5, 6, 7, 9, 10], 6_000).await;
    // Two rows call their orders due an hour before their keys.
    let later = shop.deadlines().await[&7] + HOUR;
    redis.set_all_until(&[(key(7), later), (key(10), later)]);
    redis.command(&["CONFIG", "RESETSTAT"]);
    let before = dump(&shop.database).await;
    assert!(shop.pay(3).await);
    let close = async |order: i64| {
        let now = match kind {
            Kind::Postgres => "clock_timestamp()",
            Kind::MariaDb => "NOW(6)",
            Kind::Sqlite => "strftime('%Y-%m-%d %H:%M:%f', 'now')",
        };
        let sql = format!("UPDATE orders SET status = {CLOSED}, closed_at = {now} WHERE order_no = {order} AND status = {UNPAID}");
        assert_eq!(shop.database.execute(&sql).await, 1, "order {order} was unpaid");
    };
    close(4).await;
    shadow.until_told(4).await;
    // 1, 2, 5, 6, 8, 9: all but those that are paid, closed, or wait for their keys.
    wait::until("every order is judged", async || shadow.would_close() >= 6).await;
    assert_eq!(shop.statuses().await.values().filter(|status| **status != UNPAID).count(), 2, "it has closed nothing");
    close(1).await;
    close(10).await;
    assert!(shop.pay(2).await);
    shop.postpone(5, HOUR).await;
    shop.database.execute("DELETE FROM orders WHERE order_no = 9").await;
    for order in [1, 2, 3, 5, 9, 10] {
        shadow.until_told(order).await;
    }
    let after = dump(&shop.database).await;
    shadow.daemon.stop().await;
    assert_eq!(shadow.would_close(), 6, "each once");

    let told = shadow.told();
    let verdicts: BTreeMap<i64, &str> = told.iter().map(|(order, told)| (*order, told["verdict"].as_str().unwrap_or_default())).collect();
    let expected = [
        (1, "closed"),
        (2, "paid_after"),
        (3, "paid"),
        (4, "closed_early"),
        (5, "extended"),
        (6, "still_unpaid"),
        (7, "undecided"),
        (8, "still_unpaid"),
        (9, "gone"),
        (10, "closed_first"),
    ];
    assert_eq!(verdicts, BTreeMap::from(expected), "{told:#?}");
    assert!(told[&1]["decided_late_ms"].as_f64().is_some_and(|late| (0.0..5_000.0).contains(&late)), "{}", told[&1]);
    assert!(told[&1]["left_late_ms"].as_f64() >= told[&1]["decided_late_ms"].as_f64(), "{}", told[&1]);
    assert_eq!(told[&1]["left_within_ms"], 0.0, "the column says when: {}", told[&1]);
    assert!(told[&4]["left_late_ms"].as_f64().is_some_and(|late| late < -3_500_000.0), "{}", told[&4]);
    assert_eq!(told[&2]["status"], PAID.to_string(), "{}", told[&2]);
    for disputed in [7, 10] {
        assert!(told[&disputed]["kept"].as_str().is_some_and(|why| why.contains("contradicts")), "{}", told[&disputed]);
        assert!(told[&disputed]["decided_at"].is_null(), "{}", told[&disputed]);
    }
    assert_eq!((told[&8]["backlog"].as_bool(), told[&6]["backlog"].as_bool()), (Some(true), None));
    let said = shadow.said();
    let last = said.last().expect("it sums up");
    assert_eq!((last["end"].as_bool(), last["summary"]["seen"].as_u64()), (Some(true), Some(10)), "{last}");
    assert_eq!(last["summary"]["would_close"], 6, "{last}");

    // The rows of the orders are as the shop itself has left them, and everything else is as it was.
    let changed: Vec<&String> = before.iter().filter(|(table, rows)| after.get(*table) != Some(rows)).map(|(table, _)| table).collect();
    assert_eq!(changed, ["orders"], "by the shop itself");
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
    assert_eq!(shop.closures().await, BTreeMap::new(), "its own SQL did not run");
    assert!(assert_reads_alone(&redis).contains("cmdstat_pttl"), "it has asked when keys expire");
    assert_eq!(redis.command(&["DBSIZE"]).integer(), 2);
    assert_eq!(redis.config_get("notify-keyspace-events"), "");
}

/// Fails when anything was said to Redis that may change something. Returns what was said.
fn assert_reads_alone(redis: &Redis) -> String {
    let stats = redis.command(&["INFO", "commandstats"]).text();
    let used = stats.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split(':').next());
    let others: Vec<&str> = used.filter(|name| !READS.contains(name)).collect();
    assert!(others.is_empty(), "it has said {others:?} to Redis");
    stats
}

/// A job that came every five seconds, a customer who cancelled, and what was closed days ago.
async fn it_says_how_late_orders_were_closed_the_day_before(kind: Kind) {
    let (redis, shop) = (Redis::start(), Shop::open(kind).await);
    shop.orders_due_in(1..=3_000, -HOUR).await;
    shop.order(3_001, -HOUR).await;
    shop.order(3_002, -72 * HOUR).await;
    let closed_after = async |orders: &str, seconds: i64| {
        let at = match kind {
            Kind::Postgres => format!("expires_at + interval '{seconds} seconds'"),
            Kind::MariaDb => format!("expires_at + INTERVAL {seconds} SECOND"),
            Kind::Sqlite => format!("strftime('%Y-%m-%d %H:%M:%f', expires_at, '{seconds} seconds')"),
        };
        let sql = format!("UPDATE orders SET status = {CLOSED}, closed_at = {at} WHERE order_no {orders}");
        shop.database.execute(&sql).await;
    };
    closed_after("<= 2990", 5).await;
    closed_after("BETWEEN 2991 AND 3000", 60).await;
    closed_after("= 3001", -60).await;
    closed_after("= 3002", 7_200).await;
    let settings = shop.settings_with(&redis).set("database.url", reader(&shop.database).await);
    let shadow = Shadow::start(&settings, &["--changed-at", "closed_at"]);
    let before = async || shadow.said().into_iter().find_map(|line| line.get("before").cloned());
    let before = wait::some("the day before is told of", before).await;
    let figure = |name: &str| before["closed_ms"][name].as_f64().map(f64::round);
    assert_eq!(before["closed"], 3_000, "{before}");
    assert!(figure("p50").is_some_and(|half| (4_990.0..=5_010.0).contains(&half)), "{before}");
    assert!(figure("max").is_some_and(|max| (59_900.0..=60_100.0).contains(&max)), "{before}");
    shadow.daemon.stop().await;
    assert_eq!(shop.closures().await, BTreeMap::new());
}

/// It is no peer of a daemon that closes orders, and changes nothing for whoever asks for it over HTTP.
#[tokio::test]
async fn a_shadow_beside_a_daemon_takes_no_share_of_it() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let settings = shop.settings_with(&redis).set("log.summary", "100ms");
    let daemon = listening(&settings).await;
    let port = ports::free();
    let token = "0123456789abcdef-a-token-of-tests";
    let served = settings.clone().set("http.listen", format!("127.0.0.1:{port}")).set("http.token", token);
    let shadow = Shadow::start(&served, &[]);
    shadow.daemon.until_logged("answering over HTTP").await;
    shop.orders_due_in(1..=200, 2_500).await;
    shop.order(201, HOUR).await;
    shop.write_keys(&redis, 0).await;
    rustls::crypto::ring::default_provider().install_default().ok();
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let address = format!("http://127.0.0.1:{port}");
    let close = client.post(format!("{address}/orders/201/close")).bearer_auth(token).send().await.expect("it answers");
    assert_eq!(close.status(), 409, "{:?}", close.text().await);
    let ready = client.get(format!("{address}/readyz")).send().await.expect("it answers").text().await.expect("text");
    assert!(ready.contains("this is a shadow"), "{ready}");
    let metrics = client.get(format!("{address}/metrics")).send().await.expect("it answers").text().await.expect("text");
    assert!(metrics.contains("order_closer_shadow 1"), "{metrics}");
    shop.database.execute("DELETE FROM order_items WHERE order_no = 201; UPDATE inventory SET stock = stock + 1 WHERE sku = 1").await;
    shop.database.execute("DELETE FROM orders WHERE order_no = 201").await;
    shop.until_all_settled().await;
    for order in 1..=200 {
        shadow.until_told(order).await;
    }
    shadow.daemon.stop().await;
    daemon.stop().await;
    assert_eq!(daemon.logged("other instances close orders"), 0, "it has seen no peer");
    assert_eq!(daemon.summary().count("closed"), 200);
    let told = shadow.told();
    let strange: Vec<_> =
        told.values().filter(|told| !["closed", "closed_first", "gone"].contains(&told["verdict"].as_str().unwrap_or_default())).collect();
    assert!(strange.is_empty(), "{strange:#?}");
}

/// It ends by itself, and says for people what it has seen.
#[tokio::test]
async fn a_shadow_ends_when_its_time_is_over() {
    let shop = Shop::open(Kind::Sqlite).await;
    let redis = Redis::start();
    shop.order(1, -60_000).await;
    let settings = shop.settings_with(&redis);
    let ended = order_closer(&settings, &["run", "--shadow", "--for", "3s"]).await.expect_code(0);
    assert!(ended.stdout.contains("order 1, due ") && ended.stdout.contains("and is unpaid still"), "{}", ended.stdout);
    assert!(ended.stdout.contains("would have been closed by this daemon"), "{}", ended.stdout);
    assert_eq!(shop.status(1).await, UNPAID);
    let refused = order_closer(&settings, &["run", "--for", "3s"]).await.expect_code(64);
    assert!(refused.stderr.contains("--shadow"), "{}", refused.stderr);
}

/// As `| head -1` does it.
#[tokio::test]
async fn a_shadow_ends_when_what_it_tells_is_read_no_more() {
    let shop = Shop::open(Kind::Sqlite).await;
    let redis = Redis::start();
    shop.orders_due_in([1, 2], -60_000).await;
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let daemon = Daemon::started(&shop.settings_with(&redis), |command| {
        command.args(["--shadow", "--json"]).stdout(writer);
    });
    daemon.until_logged("watching what becomes of unpaid orders").await;
    let close = async |order: i64| shop.database.execute(&format!("UPDATE orders SET status = {CLOSED} WHERE order_no = {order}")).await;
    close(1).await;
    let first = tokio::task::spawn_blocking(|| BufReader::new(reader).lines().next()).await.expect("a reader");
    let first = first.expect("a line").expect("text");
    assert!(first.contains("\"order\":\"1\""), "{first}");
    close(2).await;
    let ended = wait::some("it ends", async || daemon.ended()).await;
    assert_eq!(ended.code(), Some(0), "{:?}", daemon.lines());
    assert_eq!(daemon.logged("what the shadow tells is read no more"), 1);
}
