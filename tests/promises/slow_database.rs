//! Reading the table takes long, for a while or for good: the sweep is back soon, the database has time for others, and an
//! index is blamed only where it is missing.

use std::{
    str::FromStr,
    time::{Duration, Instant},
};

use sqlx::{
    ConnectOptions, Connection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode},
};

use super::{assert_on_time, listening};
use crate::support::{Database, Kind, Proxy, Redis, Settings, Shop, postgres::Postgres, process, wait};

/// How soon the sweep finds an order, when the database is quick again.
const SOON: Duration = Duration::from_secs(12);

/// Two backups, each of which holds the whole file while a pass of the sweep reads it.
#[tokio::test]
async fn an_sqlite_file_that_is_locked_twice() {
    let (redis, folder) = (Redis::start(), process::folder());
    let url = format!("sqlite://{}", folder.path().join("shop.db").display());
    let options = SqliteConnectOptions::from_str(&url).expect("a good URL").create_if_missing(true).journal_mode(SqliteJournalMode::Delete);
    let mut backup = options.connect().await.expect("a file can be made");
    let orders = "CREATE TABLE orders (order_no integer PRIMARY KEY, status integer, expires_at text);
                  CREATE INDEX orders_due ON orders (status, expires_at)";
    sqlx::raw_sql(orders).execute(&mut backup).await.expect("a table can be made");
    let settings =
        Settings::new().set("database.url", url).set("redis.url", redis.url()).set("log.format", "json").set("log.level", "debug");
    let daemon = listening(&settings).await;
    let swept = || daemon.logged("\"swept\"");
    for _ in 0..2 {
        sqlx::raw_sql("BEGIN EXCLUSIVE").execute(&mut backup).await.expect("the file can be locked");
        let began = Instant::now();
        wait::until("the backup is done", async || began.elapsed() > Duration::from_millis(3_500)).await;
        let before = swept();
        sqlx::raw_sql("COMMIT").execute(&mut backup).await.expect("a transaction ends");
        // The next one is to meet another pass.
        wait::until("the pass that waited has ended", async || swept() > before).await;
    }
    let began = Instant::now();
    let order = "INSERT INTO orders VALUES (1, 0, strftime('%Y-%m-%d %H:%M:%f', 'now', '-1 second'))";
    sqlx::raw_sql(order).execute(&mut backup).await.expect("an order can be taken");
    wait::until("the order is closed", async || {
        let status: i64 = sqlx::query_scalar("SELECT status FROM orders").fetch_one(&mut backup).await.expect("the file can be read");
        status == 4
    })
    .await;
    assert!(began.elapsed() < SOON, "swept after {:?}", began.elapsed());
    daemon.stop().await;
    backup.close().await.expect("a connection ends");
}

/// Every query takes three seconds for a while.
#[tokio::test]
async fn a_database_that_was_slow_for_a_while() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    shop.database.execute("CREATE TABLE slow (seconds double precision); INSERT INTO slow VALUES (0)").await;
    let settings = shop.settings_with(&redis).set("orders.filter", "(SELECT pg_sleep(seconds) FROM slow) IS NOT NULL");
    let daemon = listening(&settings).await;
    shop.orders_due_in(1..=5, -1_000).await;
    shop.until_all_settled().await;
    // So that there is a row for which the filter is asked.
    shop.database.execute("UPDATE slow SET seconds = 3").await;
    let began = Instant::now();
    shop.orders_due_in(6..=10, -1_000).await;
    let mut number = 10;
    wait::until("twelve seconds have passed", async || {
        number += 1;
        shop.order(number, 100).await;
        began.elapsed() > Duration::from_secs(12)
    })
    .await;
    shop.database.execute("UPDATE slow SET seconds = 0").await;
    let began = Instant::now();
    shop.orders_due_in(100_001..=100_005, -1_000).await;
    shop.until_all_settled().await;
    assert!(began.elapsed() < SOON, "swept after {:?}", began.elapsed());
    daemon.stop().await;
    shop.assert_outcome().await;
}

/// Whoever holds the whole table keeps everybody from reading; that is no slow query, and nobody rests for it.
#[tokio::test]
async fn a_table_that_is_locked() {
    let redis = Redis::start();
    let server = Postgres::options().start();
    let shop = Shop::in_database(Database::on_postgres(&server).await).await;
    let daemon = listening(&shop.settings_with(&redis)).await;
    let mut holder = shop.database.begin().await;
    holder.execute("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE").await;
    let ended = || server.log().matches("canceling statement due to lock timeout").count();
    wait::until("many reads have met the lock", async || ended() >= 15).await;
    let number = "INSERT INTO orders (order_no, expires_at) SELECT n, clock_timestamp() FROM generate_series(1, 5) n";
    holder.execute(number).await;
    holder.commit().await;
    wait::within(Duration::from_secs(3), "the sweep is back", async || shop.closed().await == 5).await;
    daemon.stop().await;
    assert_eq!(daemon.said("the query is slow").len(), 0, "{:#?}", daemon.lines());
}

/// What falls due soon can't be read in time, nor can what is overdue. What has a key closes by its notification, the
/// database is busy with the queries for a tenth of its time, and the log says which index they lack.
#[tokio::test]
async fn queries_that_time_out() {
    const STRANGE: i64 = 1_000_000;
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    shop.database.execute("DROP INDEX orders_due").await;
    let strange: Vec<(i64, i64)> = (0..200).map(|number| (STRANGE + number, number * 500)).collect();
    shop.orders(&strange).await;
    let settings = shop
        .settings_with(&redis)
        .set("database.timeout", "500ms")
        .set("orders.filter", format!("(order_no < {STRANGE} OR (SELECT pg_sleep(30)) IS NULL)"));
    let daemon = listening(&settings).await;
    let said = daemon.until_logged("the query is slow for want of an index").await;
    assert!(said.contains("CREATE INDEX"), "{said}");
    let orders: Vec<(i64, i64)> = (1..=100).map(|number| (number, 500 + number * 100)).collect();
    shop.orders(&orders).await;
    let keys: Vec<(String, i64)> =
        shop.deadlines().await.range(1..=100).map(|(number, millis)| (crate::support::shop::key(*number), *millis)).collect();
    redis.set_all_until(&keys);
    let (began, mut busy, mut asked) = (Instant::now(), 0, 0);
    wait::until("ten seconds have passed", async || {
        let reading = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%pg_sleep(30)%' AND pid <> pg_backend_pid() \
                       AND datname = current_database()";
        busy += i64::from(shop.database.number(reading).await > 0);
        asked += 1;
        began.elapsed() > Duration::from_secs(10)
    })
    .await;
    assert!(busy * 4 < asked, "the database was busy {busy} of {asked} times");
    wait::until_eq("the number of closed orders", 100, async || shop.closed().await).await;
    daemon.stop().await;
    let stuck: Vec<i64> = (0..200).map(|number| STRANGE + number).collect();
    assert_on_time(&shop.assert_outcome_except(&stuck).await);
}

/// Several statuses are several trips for each page, and a trip takes 32 ms: nothing is slow.
#[tokio::test]
async fn a_long_way_is_no_missing_index() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let proxy = Proxy::before(&shop.database.url);
    proxy.delay(Duration::from_millis(16));
    let settings = shop
        .settings_with(&redis)
        .set("database.url", proxy.url(&shop.database.url))
        .set("orders.unpaid", vec![0, 10, 11, 12, 13, 14])
        .set("log.level", "debug");
    let daemon = listening(&settings).await;
    wait::until("the sweep has had many passes", async || daemon.logged("\"swept\"") >= 6).await;
    daemon.stop().await;
    let slow: Vec<_> = daemon.records().into_iter().filter(|record| record["level"] == "WARN").collect();
    assert!(slow.is_empty(), "{slow:?}");
}
