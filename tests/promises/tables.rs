//! Tables as shops have them: without an index, with deadlines in local time.

use super::{assert_on_time, listening, on_each_database};
use crate::support::{Database, Kind, Redis, Settings, Shop, mariadb::MariaDb, postgres::Postgres, wait};

const HOUR: i64 = 3_600_000;

on_each_database! {
    without_an_index
}

/// Every sweep reads the whole table, which may slow it down, and nothing else.
async fn without_an_index(kind: Kind) {
    let redis = Redis::start();
    let shop = Shop::open(kind).await;
    let on = if kind == Kind::MariaDb { " ON orders" } else { "" };
    shop.database.execute(&format!("DROP INDEX orders_due{on}")).await;
    shop.orders_due_in(10_001..=15_000, HOUR).await;
    let daemon = listening(&shop.settings_with(&redis)).await;
    shop.orders_due_in(1..=100, 3_000).await;
    let soon: Vec<(String, i64)> =
        shop.deadlines().await.range(1..=50).map(|(number, millis)| (crate::support::shop::key(*number), *millis)).collect();
    redis.set_all_until(&soon);
    wait::until_eq("the number of closed orders", 100, async || shop.closed().await).await;
    daemon.stop().await;
    let outcome = shop.assert_outcome().await;
    assert_eq!((outcome.closed.len(), outcome.open.len()), (100, 5_000));
    assert_on_time(&outcome);
}

/// Rewrites a column of times as another type or in another zone; `to_local` or back.
async fn rewrite(shop: &Shop, to_local: bool) {
    let sql = match shop.database.kind {
        Kind::Postgres => {
            let kind = if to_local { "timestamp" } else { "timestamptz" };
            format!("ALTER TABLE orders ALTER COLUMN expires_at TYPE {kind} USING expires_at AT TIME ZONE 'Asia/Shanghai'")
        }
        Kind::MariaDb => {
            let sign = if to_local { '+' } else { '-' };
            format!("UPDATE orders SET expires_at = expires_at {sign} INTERVAL 8 HOUR, closed_at = closed_at {sign} INTERVAL 8 HOUR")
        }
        Kind::Sqlite => {
            let sign = if to_local { '+' } else { '-' };
            format!("UPDATE orders SET expires_at = strftime('%Y-%m-%d %H:%M:%f', expires_at, '{sign}8 hours')")
        }
    };
    shop.database.execute(&sql).await;
}

/// Orders due soon, and others that would be due by now if their local time were read eight hours wrong.
async fn take_orders(shop: &Shop) {
    shop.orders_due_in(1..=50, 3_000).await;
    shop.orders_due_in(51..=60, 3 * HOUR).await;
    shop.orders_due_in(61..=70, 7 * HOUR + 59 * 60_000).await;
    shop.orders_due_in(71..=80, 9 * HOUR).await;
}

async fn assert_read_rightly(shop: &Shop, redis: &Redis, settings: &Settings, as_local: bool) {
    take_orders(shop).await;
    // Forged, so that a look at each of them is certain.
    if as_local {
        rewrite(shop, true).await;
    }
    let daemon = listening(settings).await;
    for number in 1..=80 {
        redis.publish_expired(0, crate::support::shop::key(number).as_bytes());
    }
    wait::until_eq("the number of closed orders", 50, async || shop.closed().await).await;
    for number in 51..=80 {
        redis.publish_expired(0, crate::support::shop::key(number).as_bytes());
    }
    // This one closes after the others were looked at.
    daemon.stop().await;
    if as_local {
        rewrite(shop, false).await;
    }
    let outcome = shop.assert_outcome().await;
    assert_eq!((outcome.closed.len(), outcome.open.len()), (50, 30));
    assert_on_time(&outcome);
    assert!(daemon.summary().count("not_due") >= 30, "{:?}", daemon.summary());
}

on_each_database! {
    local_time_by_configuration
}

/// The server is in UTC, the shop writes its wall-clock's time, and `database.time_zone` says so.
async fn local_time_by_configuration(kind: Kind) {
    let redis = Redis::start();
    let shop = Shop::open(kind).await;
    let settings = shop.settings_with(&redis).set("database.time_zone", "+08:00");
    assert_read_rightly(&shop, &redis, &settings, true).await;
}

/// The server is in +08:00 itself, and the configuration says nothing.
#[tokio::test]
async fn local_time_by_the_server_in_mariadb() {
    let redis = Redis::start();
    let server = MariaDb::options().time_zone("+08:00").start();
    let shop = Shop::in_database(Database::on_mariadb(&server).await).await;
    assert_eq!(
        shop.database.number("SELECT TIMESTAMPDIFF(HOUR, UTC_TIMESTAMP(), NOW())").await,
        8,
        "wall-clock time is what the shop writes"
    );
    assert_read_rightly(&shop, &redis, &shop.settings_with(&redis), false).await;
}

/// The same in PostgreSQL, with a column of type `timestamp`.
#[tokio::test]
async fn local_time_by_the_server_in_postgres() {
    let redis = Redis::start();
    let server = Postgres::options().time_zone("Asia/Shanghai").start();
    let shop = Shop::in_database(Database::on_postgres(&server).await).await;
    assert_read_rightly(&shop, &redis, &shop.settings_with(&redis), true).await;
}

/// With a restart the server is in another zone: closing stops. Returns what the log says of it.
async fn restarted_in_another_zone(is_idle: bool) -> String {
    let redis = Redis::start();
    let mut server = Postgres::options().time_zone("Asia/Shanghai").start();
    let mut shop = Shop::in_database(Database::on_postgres(&server).await).await;
    rewrite(&shop, true).await;
    let daemon = listening(&shop.settings_with(&redis)).await;
    shop.database.execute("ALTER SYSTEM SET timezone = 'UTC'").await;
    server.kill();
    if !is_idle {
        redis.publish_expired(0, crate::support::shop::key(1).as_bytes());
        daemon.until_logged("database unavailable").await;
    }
    server.start_again();
    shop.database.disconnect().await;
    // Due by either zone.
    shop.orders_due_in(1..=5, -24 * HOUR).await;
    let said = daemon.until_logged("closing is stopped").await;
    daemon.stop().await;
    assert_eq!(shop.closed().await, 0);
    said
}

/// The log says why and what to do.
#[tokio::test]
async fn the_servers_zone_changes_under_a_daemon() {
    let said = restarted_in_another_zone(false).await;
    for part in
        ["\"ERROR\"", "UTC+08:00", "set database.time_zone to the zone in which the shop writes them", "set the server's time zone back"]
    {
        assert!(said.contains(part), "{part} is missing: {said}");
    }
}

/// While there is nothing to close the restart is in nobody's way: the first order that falls due waits.
#[tokio::test]
async fn the_servers_zone_changes_under_a_daemon_that_is_idle() {
    restarted_in_another_zone(true).await;
}

/// A query that takes long: it looks as much further ahead.
#[tokio::test]
async fn a_look_ahead_that_is_slow_looks_further() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    // No keys: only the sweep knows.
    let orders: Vec<(i64, i64)> = (1..=70).map(|number| (number, 2_000 + number * 100)).collect();
    shop.orders(&orders).await;
    let settings = shop.settings_with(&redis).set("orders.filter", "(SELECT pg_sleep(0.25)) IS NOT NULL");
    let daemon = listening(&settings).await;
    shop.until_all_settled().await;
    daemon.stop().await;
    assert_on_time(&shop.assert_outcome().await);
}
