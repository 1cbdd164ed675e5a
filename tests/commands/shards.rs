//! Orders in several tables of several databases: what may be configured, and which commands look where.

use std::time::{Duration, Instant};

use crate::support::{Database, Kind, Proxy, Redis, Settings, daemon::order_closer, process};

fn settings(databases: &str, table: &str) -> Settings {
    Settings::new().add(&format!("[databases]\n{databases}")).set("orders.table", table).set("orders.closed", 4)
}

/// What is wrong with a configuration is said with the setting, its value and its place.
#[tokio::test]
async fn what_is_wrong_is_said() {
    let two = "ds = 'sqlite:///tmp/none_{0..1}.db'";
    for (settings, expected) in [
        (settings(two, "orders"), "orders.table \"orders\" names no database; write one of [databases] before it, such as ds_0.orders"),
        (settings(two, "ds_{0..3}.orders"), "names the database ds_2, and [databases] has ds_0, ds_1"),
        (settings(two, "ds_{1..0}.orders"), "has the range {1..0}, which counts down; write {0..1}"),
        (settings(two, "ds_{0..1}.orders_${a,b}"), "no range such as {0..15}"),
        (settings(two, "a.b.c.d"), "is not a table name such as"),
        (settings("'d s' = 'sqlite://x.db'", "ds.orders"), "databases.d s is no name of a database"),
        (settings("ds_0 = 'sqlite://x.db'\nds = 'sqlite://x_{0..1}.db'", "ds_0.orders"), "has a database ds_0, and so has databases.ds"),
        (settings("ds = 'mysql://u:geheim@h{0..1}/s{0..2}'", "ds_0.orders"), "databases.ds: its ranges differ"),
        (settings("ds = 'postgres:/u:geheim@h/s'", "ds.orders"), "two slashes are missing"),
        (settings("timeout = '5s'", "ds.orders"), "databases names no database"),
        (settings(&format!("{two}\ntimeout = '0s'"), "ds_0.orders"), "databases.timeout is 0s, and must be longer"),
        (settings(&format!("{two}\nconnections = 2"), "ds_0.orders"), "databases.connections is 2, and must be from 5 to 1000"),
        (settings(two, "ds_0.orders").set("database.timeout", "5s"), "database and [databases] (set in "),
        (settings(two, "ds_0.orders").set("close.sql", vec!["UPDATE i_{shard} SET a = 1 WHERE o IN (:ids)"]), "close.sql has {shard}"),
        (Settings::new().set("orders.table", "a.b.c"), "orders.table \"a.b.c\" is not a table name such as orders, shop.orders"),
    ] {
        let refused = order_closer(&settings, &["config"]).await.expect_code(78);
        assert!(refused.stderr.contains(expected), "{expected}:\n{}\n{}", settings.toml(), refused.stderr);
        assert!(!refused.stderr.contains("geheim"), "a password is shown: {}", refused.stderr);
    }
}

#[tokio::test]
async fn no_password_is_shown() {
    let settings = settings("ds = 'mysql://closer:geheim@db-{0..3}/shop_{0..3}'\ntimeout = '5s'", "ds_${0..3}.t_order_$->{0..15}");
    for arguments in [&["config"][..], &["config", "--json"]] {
        let shown = order_closer(&settings, arguments).await.expect_code(0).stdout;
        assert!(shown.contains("mysql://closer:***@db-0/shop_0 to mysql://closer:***@db-3/shop_3"), "{shown}");
        assert!(!shown.contains("geheim") && !shown.contains("database.url"), "{shown}");
    }
}

/// URLs with passwords stand in files, one for each database or one for all, and a range is read however it was pasted.
#[tokio::test]
async fn urls_stand_in_files() {
    let folder = process::folder();
    let write = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).expect("a file can be written");
        folder.path().join(name).display().to_string()
    };
    for number in 0..2 {
        write(&format!("url-{number}"), &format!("mysql://closer:geheim@db-{number}/shop"));
    }
    let each = format!("{}/url-{{0..1}}", folder.path().display());
    let all = write("all", "mysql://closer:geheim@db-$->{0..1}/shop_${0..1}\n");
    for (file, first, last) in [(&each, "db-0/shop", "db-1/shop"), (&all, "db-0/shop_0", "db-1/shop_1")] {
        let settings = settings(&format!("ds_file = '{file}'"), "ds_${0..1}.t_order_$->{0..1}");
        let shown = order_closer(&settings, &["config"]).await.expect_code(0).stdout;
        assert!(shown.contains(first) && shown.contains(last) && !shown.contains("geheim"), "{shown}");
        assert!(shown.contains("databases.ds_file") && shown.contains(&folder.path().display().to_string()), "{shown}");
    }
    let place = folder.path().display();
    for (databases, expected) in [
        (format!("ds_file = '{place}/url-{{0..2}}'"), format!("databases.ds_file can't be used: {place}/url-2 can't be read: ")),
        (format!("ds_file = '{all}'\nds = 'sqlite://x.db'"), "databases.ds_file and databases.ds (set in ".into()),
        (format!("ds_file = '{each}'\nds_1 = 'sqlite://x.db'"), "databases.ds_file and databases.ds_1 (set in ".into()),
        ("ds_file = 'mysql://closer:geheim@db/shop'".into(), "databases.ds_file has ".into()),
    ] {
        let refused = order_closer(&settings(&databases, "ds_0.t_order"), &["config"]).await.expect_code(78).stderr;
        assert!(refused.contains(&expected) && !refused.contains("geheim"), "{expected}: {refused}");
    }
}

/// Three tables in each of two databases, with an order 1 in one of them and an order 2 in two.
async fn shop() -> (Vec<Database>, Settings) {
    let databases = vec![Database::fresh(Kind::Sqlite).await, Database::fresh(Kind::Sqlite).await];
    for database in &databases {
        for table in 0..3 {
            database
                .execute(&format!(
                    "CREATE TABLE orders_{table} (order_no bigint PRIMARY KEY, status integer NOT NULL DEFAULT 0, expires_at text NULL)"
                ))
                .await;
        }
    }
    databases[1].execute("INSERT INTO orders_2 (order_no, expires_at) VALUES (1, '2020-01-01 00:00:00')").await;
    databases[0].execute("INSERT INTO orders_0 (order_no, expires_at) VALUES (2, '2020-01-01 00:00:00')").await;
    databases[1].execute("INSERT INTO orders_1 (order_no, expires_at) VALUES (2, '2020-01-01 00:00:00')").await;
    let urls: Vec<String> = databases.iter().enumerate().map(|(number, database)| format!("ds_{number} = '{}'", database.url)).collect();
    let settings = settings(&urls.join("\n"), "ds_{0..1}.orders_{0..2}").set("redis.url", "none").set("sweep.oldest", "none");
    (databases, settings)
}

/// All shards are asked for an order; one that is in several is closed in none without a name.
#[tokio::test]
async fn an_order_is_looked_for_in_all() {
    let (databases, settings) = shop().await;
    let explained = order_closer(&settings, &["explain", "1"]).await.expect_code(0).stdout;
    assert!(explained.contains("table ds_1.orders_2") && !explained.contains("orders_0"), "{explained}");
    let nowhere = order_closer(&settings, &["explain", "9"]).await.expect_code(0).stdout;
    assert_eq!(nowhere.matches("rule ").count(), 1, "{nowhere}");
    let closed = order_closer(&settings, &["close", "1"]).await.expect_code(0).stdout;
    assert!(closed.contains("1: closed"), "{closed}");
    assert_eq!(databases[1].number("SELECT status FROM orders_2").await, 4);
    let refused = order_closer(&settings, &["close", "2"]).await.expect_code(64).stderr;
    assert!(refused.contains("name one of their shards with --shard: orders (ds_0.orders_0), orders (ds_1.orders_1)"), "{refused}");
    assert_eq!(databases[0].number("SELECT status FROM orders_0").await, 0);
    order_closer(&settings, &["close", "2", "--shard", "ds_1.orders_1"]).await.expect_code(0);
    assert_eq!(databases[0].number("SELECT status FROM orders_0").await, 0, "only where it was named");
    assert_eq!(databases[1].number("SELECT status FROM orders_1").await, 4);
    let unknown = order_closer(&settings, &["close", "2", "--shard", "ds_1.orders_7"]).await.expect_code(64).stderr;
    assert!(unknown.contains("there is no shard \"ds_1.orders_7\", but 6, such as ds_0.orders_0"), "{unknown}");
}

/// Whatever is about all orders goes over all databases.
#[tokio::test]
async fn all_databases_are_gone_over() {
    let (databases, settings) = shop().await;
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    for database in &databases {
        assert!(database.number("SELECT count(*) FROM order_closer_migrations").await > 0);
    }
    let settings = settings.set("events.enabled", true);
    let status = order_closer(&settings, &["status"]).await.expect_code(0).stdout;
    assert!(status.contains("orders (ds_1.orders_2): closing; 1 orders overdue"), "{status}");
    order_closer(&settings, &["pause", "--reason", "a test"]).await.expect_code(0);
    order_closer(&settings, &["reconcile"]).await.expect_code(0);
    assert_eq!(databases[1].number("SELECT status FROM orders_2").await, 0, "paused");
    order_closer(&settings, &["resume"]).await.expect_code(0);
    order_closer(&settings, &["reconcile"]).await.expect_code(0);
    let events = order_closer(&settings, &["events", "--json"]).await.expect_code(0).stdout;
    let mut shards: Vec<String> = events
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"))
        .filter(|event| event["order_id"] != "")
        .map(|event| format!("{} {}", event["order_id"].as_str().expect("an id"), event["shard"].as_str().expect("a shard")))
        .collect();
    shards.sort();
    assert_eq!(shards, ["1 ds_1.orders_2", "2 ds_0.orders_0", "2 ds_1.orders_1"]);
    let checked = order_closer(&settings, &["check", "--json"]).await.json();
    let found: Vec<_> = checked["findings"].as_array().expect("findings").iter().filter_map(|finding| finding["shard"].as_str()).collect();
    assert!(found.contains(&"ds_0.orders_0"), "{checked}");
}

/// Of two databases one can't be reached: commands do what they can for the other, name it once, and end as unavailable.
#[tokio::test]
async fn a_database_that_is_away_is_named_and_the_other_gone_over() {
    let (redis, mut databases) = (Redis::start(), Vec::new());
    for database in 0..2 {
        databases.push(Database::fresh(Kind::Postgres).await);
        for table in 0..2 {
            let columns = "order_no bigint PRIMARY KEY, status integer NOT NULL DEFAULT 0, expires_at timestamptz";
            databases[database].execute(&format!("CREATE TABLE orders_{table} ({columns})")).await;
            let order = 10 * database + table;
            databases[database].execute(&format!("INSERT INTO orders_{table} (order_no, expires_at) VALUES ({order}, now())")).await;
        }
    }
    let proxy = Proxy::before(&databases[1].url);
    let urls = format!("ds_0 = '{}'\nds_1 = '{}'\ntimeout = '2s'", databases[0].url, proxy.url(&databases[1].url));
    let settings = settings(&urls, "ds_{0..1}.orders_{0..1}").set("redis.url", redis.url());
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    let settings = settings.set("events.enabled", true);
    proxy.refuse().await;
    proxy.reset();
    let left_out = async |arguments: &[&str]| {
        let ended = order_closer(&settings, arguments).await.expect_code(69);
        assert_eq!(ended.stderr.matches("ds_1: database unavailable").count(), 1, "{arguments:?}: {ended:#?}");
        ended
    };
    let status = left_out(&["status"]).await;
    assert!(status.stdout.contains("(ds_0.orders_1): closing; 1 orders overdue"), "{status:#?}");
    assert!(status.stderr.contains("(shards left out: 2)"), "{status:#?}");
    let paused = left_out(&["pause", "--reason", "a test"]).await;
    assert!(paused.stderr.contains("in all others closing is paused"), "{paused:#?}");
    assert_eq!(databases[0].number("SELECT count(*) FROM order_closer_pauses WHERE until IS NULL").await, 2);
    assert!(left_out(&["resume"]).await.stdout.contains("closing goes on"));
    left_out(&["reconcile"]).await;
    assert_eq!(databases[0].number("SELECT min(status) FROM (SELECT * FROM orders_0 UNION ALL SELECT * FROM orders_1) o").await, 4);
    assert_eq!(left_out(&["events"]).await.stdout.matches("  closed ").count(), 2);
    left_out(&["dead-letters", "list"]).await;
    left_out(&["migrate"]).await;
    left_out(&["explain", "9"]).await;
    assert!(left_out(&["explain", "1"]).await.stdout.contains("ds_0.orders_1"));
    let checked = order_closer(&settings, &["check"]).await.expect_code(69).stdout;
    assert_eq!(checked.matches("ds_1: database unavailable").count(), 1, "{checked}");
    assert!(checked.contains("rule orders (ds_0.orders_1)"), "{checked}");
    let asked = order_closer(&settings, &["close", "0"]).await.expect_code(69).stderr;
    assert!(asked.contains("(ds_1.orders_0): database unavailable") && asked.contains("named with --shard"), "{asked}");
    order_closer(&settings, &["close", "0", "--shard", "ds_0.orders_0"]).await.expect_code(0);
    // One that swallows what it is sent is waited for once, and not for each of its shards.
    proxy.accept().await;
    proxy.black_hole();
    let began = Instant::now();
    left_out(&["status"]).await;
    left_out(&["reconcile"]).await;
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

/// Tables by a pattern, on each database: the catalogue says which there are, and where there is none what is called alike.
#[tokio::test]
async fn tables_are_found_by_their_pattern() {
    for kind in [Kind::Sqlite, Kind::Postgres, Kind::MariaDb] {
        let (database, redis) = (Database::fresh(kind).await, "none");
        let time = if kind == Kind::MariaDb { "datetime(6)" } else { "text" };
        let time = if kind == Kind::Postgres { "timestamptz" } else { time };
        for (order, table) in (1..).zip(["t_order_7_2026", "t_order_7_2027", "t_order_8_2026", "t_order_7x2026", "t_order_7_2026_old"]) {
            let columns = format!("order_no bigint PRIMARY KEY, status integer NOT NULL DEFAULT 0, expires_at {time}");
            database.execute(&format!("CREATE TABLE {table} ({columns})")).await;
            database.execute(&format!("INSERT INTO {table} (order_no, expires_at) VALUES ({order}, '2026-01-01 00:00:00')")).await;
        }
        database.execute("CREATE TABLE closed_7_2026 (order_no bigint)").await;
        database.execute("CREATE TABLE closed_7_2027 (order_no bigint)").await;
        let by = |table: &str| {
            let settings = settings(&format!("ds = '{}'", database.url), table).set("redis.url", redis).set("sweep.oldest", "none");
            settings.set(
                "close.sql",
                vec!["INSERT INTO closed_{shard} (order_no) SELECT order_no FROM t_order_{shard} WHERE order_no IN (:ids)"],
            )
        };
        let months = by("ds.t_order_{7..7}_*");
        let status = order_closer(&months, &["status"]).await.expect_code(0).stdout;
        assert_eq!(status.lines().count(), 2, "{status}");
        assert!(status.contains("(ds.t_order_7_2026): closing; 1 orders overdue") && status.contains("(ds.t_order_7_2027)"), "{status}");
        order_closer(&months, &["reconcile", "--shard", "ds.t_order_7_2027"]).await.expect_code(0);
        assert_eq!(database.number("SELECT order_no FROM closed_7_2027").await, 2);
        assert_eq!(database.number("SELECT status FROM t_order_7_2026").await, 0, "only where it was named");
        order_closer(&months, &["reconcile"]).await.expect_code(0);
        for (table, status) in [("t_order_7_2026", 4), ("t_order_8_2026", 0), ("t_order_7x2026", 0), ("t_order_7_2026_old", 0)] {
            assert_eq!(database.number(&format!("SELECT status FROM {table}")).await, status, "{table}");
        }
        for (table, near) in
            [("ds.t_order_7_2026*", "; there are t_order_7_2026, t_order_7_2026_old"), ("ds.t_ordr_7_*", "; did you mean t_order_7_")]
        {
            for arguments in [&["status"][..], &["run"]] {
                let refused = order_closer(&by(table), arguments).await.expect_code(78);
                let said = format!("{}{}", refused.stdout, refused.stderr);
                let expected =
                    format!("no table is called {table}, where an asterisk stands for digits, and for _ and - between them{near}");
                assert!(said.contains(&expected), "{expected}: {said}");
            }
        }
    }
    let refused = order_closer(&settings("ds = 'sqlite://x.db'", "d*.t_order"), &["config"]).await.expect_code(78).stderr;
    assert!(refused.contains("has an asterisk elsewhere than once in the name of the table"), "{refused}");
}

/// What does not go over several databases yet is refused, and closes nothing.
#[tokio::test]
async fn what_is_lacking_is_refused() {
    let (_databases, settings) = shop().await;
    for arguments in [&["run", "--shadow"][..], &["targets"], &["deliver"], &["reconcile", "--accept-clock"]] {
        let refused = order_closer(&settings, arguments).await.expect_code(78).stderr;
        assert!(refused.contains("does not work with orders in several tables or databases"), "{refused}");
    }
}
