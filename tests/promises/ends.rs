//! The daemon killed in the middle of a batch, told to stop, told so twice.

use std::time::{Duration, Instant};

use super::{listening, on_each_database};
use crate::support::{Daemon, Kind, Redis, Settings, Shop, ports, process, shop::UNPAID, wait};

on_each_database! {
    killed_in_the_middle_of_a_batch
}

async fn killed_in_the_middle_of_a_batch(kind: Kind) {
    const COUNT: i64 = 2_000;
    let redis = Redis::start();
    let shop = Shop::open(kind).await;
    let settings = shop.settings_with(&redis).set("close.batch_size", 40);
    shop.orders_due_in(1..=COUNT, -1_000).await;
    let mut closed = 0;
    for _ in 0..4 {
        let daemon = Daemon::start(&settings);
        wait::until("it has closed some more", async || shop.closed().await >= closed + 80).await;
        daemon.kill();
        // A commit on its way may still come to its end, and is in the account all the same.
        closed = shop.closed().await;
    }
    assert!(closed < COUNT, "killed too late to matter");
    let daemon = listening(&settings).await;
    shop.until_all_settled().await;
    daemon.stop().await;
    let outcome = shop.assert_outcome().await;
    assert_eq!(outcome.closed.len(), 2_000);
    assert!(daemon.summary().count("closed") > 0);
}

/// Stopped by its machine while orders fall due, as in a snapshot or a debugger.
#[tokio::test]
async fn frozen_while_orders_fall_due() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let daemon = listening(&shop.settings_with(&redis)).await;
    let orders: Vec<(i64, i64)> = (1..=500).map(|number| (number, 500 + number * 5)).collect();
    shop.orders(&orders).await;
    shop.write_keys(&redis, 0).await;
    wait::until("some orders are closed", async || shop.closed().await >= 50).await;
    daemon.freeze();
    let closed = shop.closed().await;
    wait::until("all others are overdue", async || shop.overdue().await + shop.closed().await == 500).await;
    assert!(closed < 450, "frozen too late to matter");
    daemon.thaw();
    wait::within(Duration::from_secs(3), "all are closed", async || shop.closed().await == 500).await;
    daemon.stop().await;
    assert_eq!(shop.assert_outcome().await.closed.len(), 500);
}

/// A closure that takes so many seconds, once for each batch.
fn slow(settings: Settings, seconds: f64) -> Settings {
    settings
        .after_close_sql(format!("SELECT pg_sleep({seconds}) WHERE EXISTS (SELECT 1 FROM orders WHERE order_no IN (:ids))"))
        .set("close.batch_size", 10)
        .set("close.workers", 1)
        .set("database.timeout", "60s")
}

/// Starts a daemon on twenty overdue orders, and waits until ten of them are in the middle of their transaction.
async fn in_the_middle(shop: &Shop, settings: &Settings) -> Daemon {
    shop.orders_due_in(1..=20, -1_000).await;
    let daemon = listening(settings).await;
    until_asleep(shop).await;
    daemon
}

async fn until_asleep(shop: &Shop) {
    let asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()";
    wait::until_eq("the number of slow transactions", 1, async || shop.database.number(asleep).await).await;
}

/// The sessions of a daemon that has gone do not notice that while they sleep.
async fn end_slow_sessions(shop: &Shop) {
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()";
    shop.database.rows(end).await;
    let locks = "SELECT count(*) FROM pg_locks JOIN pg_class ON pg_class.oid = relation WHERE relname = 'orders' AND mode = 'RowShareLock'";
    wait::until_eq("the number of locks left behind", 0, async || shop.database.number(locks).await).await;
}

async fn the_rest_closes_after_the_next_start(shop: &Shop, redis: &Redis) {
    let next = listening(&shop.settings_with(redis)).await;
    shop.until_all_settled().await;
    next.stop().await;
    assert_eq!(shop.assert_outcome().await.closed.len(), 20);
}

#[tokio::test]
async fn told_to_stop_it_finishes_what_is_in_hand() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let daemon = in_the_middle(&shop, &slow(shop.settings_with(&redis), 2.0)).await;
    daemon.stop().await;
    let open: Vec<i64> = shop.statuses().await.into_iter().filter(|(_, status)| *status == UNPAID).map(|(number, _)| number).collect();
    assert_eq!(open.len(), 10, "what was in hand is finished, what was not is not begun");
    shop.assert_outcome_except(&open).await;
    assert_eq!(daemon.summary().count("closed"), 10);
    the_rest_closes_after_the_next_start(&shop, &redis).await;
}

#[tokio::test]
async fn told_to_stop_when_idle_it_is_gone_at_once() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    shop.order(1, 3_600_000).await;
    let daemon = listening(&shop.settings_with(&redis).set("shutdown.timeout", "50s")).await;
    let asked = Instant::now();
    daemon.interrupt();
    assert!(daemon.wait().await.success());
    assert!(asked.elapsed() < Duration::from_secs(5), "took {:?}", asked.elapsed());
    shop.assert_outcome().await;
}

#[tokio::test]
async fn told_to_stop_before_its_database_is_there() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let nowhere = format!("postgres://postgres@127.0.0.1:{}/shop", ports::free());
    let daemon = Daemon::start(&shop.settings_with(&redis).set("database.url", nowhere));
    daemon.until_logged("waiting for the database").await;
    daemon.terminate();
    assert!(daemon.wait().await.success());
    shop.assert_outcome().await;
}

#[tokio::test]
async fn told_twice_it_is_gone_at_once() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let settings = slow(shop.settings_with(&redis), 50.0).set("shutdown.timeout", "50s");
    let daemon = in_the_middle(&shop, &settings).await;
    daemon.terminate();
    daemon.until_logged("finishing what is in hand").await;
    let asked = Instant::now();
    // The first ones may come so soon that they pass for echoes.
    wait::until("it has ended", async || {
        daemon.interrupt();
        daemon.ended().is_some()
    })
    .await;
    let status = daemon.wait().await;
    assert!(asked.elapsed() < Duration::from_secs(5), "took {:?}", asked.elapsed());
    assert_eq!(status.code(), Some(75), "some orders could not be closed");
    end_slow_sessions(&shop).await;
    shop.assert_outcome_except(&Vec::from_iter(1..=20)).await;
    the_rest_closes_after_the_next_start(&shop, &redis).await;
}

/// `timeout` and service managers signal a process and its whole group: that is one wish, not two.
#[tokio::test]
async fn an_echo_of_the_signal_is_no_second_one() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let daemon = in_the_middle(&shop, &slow(shop.settings_with(&redis), 2.0)).await;
    daemon.terminate();
    daemon.interrupt();
    daemon.until_logged("finishing what is in hand").await;
    daemon.terminate();
    assert!(daemon.wait().await.success());
    assert_eq!(daemon.summary().count("closed"), 10);
    the_rest_closes_after_the_next_start(&shop, &redis).await;
}

#[tokio::test]
async fn its_patience_when_stopping_has_an_end() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let settings = slow(shop.settings_with(&redis), 50.0).set("shutdown.timeout", "700ms");
    let daemon = in_the_middle(&shop, &settings).await;
    let asked = Instant::now();
    daemon.terminate();
    let status = daemon.wait().await;
    let took = asked.elapsed();
    assert!((Duration::from_millis(700)..Duration::from_secs(6)).contains(&took), "took {took:?}");
    assert!(status.success(), "{status}");
    assert_eq!(daemon.said("did not finish in time").len(), 1, "{:#?}", daemon.lines());
    end_slow_sessions(&shop).await;
    shop.assert_outcome_except(&Vec::from_iter(1..=20)).await;
    the_rest_closes_after_the_next_start(&shop, &redis).await;
}

/// The name of Redis is asked of a server that does not answer.
#[tokio::test]
async fn told_to_stop_while_a_name_is_asked_for_in_vain() {
    let shop = Shop::open(Kind::Sqlite).await;
    let folder = process::folder();
    let silent = folder.path().join("hosts");
    nix::unistd::mkfifo(&silent, nix::sys::stat::Mode::S_IRWXU).expect("a pipe can be made");
    let settings = shop.settings().set("redis.url", "redis://some-name:6379").set("shutdown.timeout", "5s");
    // Whoever looks a name up opens this file first, and waits there.
    let daemon = Daemon::started(&settings, |command| {
        let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        let program = command.get_program().to_owned();
        let namespace = if nix::unistd::geteuid().is_root() { "-m" } else { "-Urm" };
        let folder = command.get_current_dir().map(ToOwned::to_owned);
        *command = process::mortal("unshare");
        command.args([namespace, "sh", "-c", "mount --bind \"$1\" /etc/hosts && shift && exec \"$@\"", "sh"]).arg(&silent);
        command.arg(program).args(arguments).current_dir(folder.expect("it has a folder"));
    });
    daemon.until_logged("orders table fits").await;
    daemon.until_logged("no keyspace notifications").await;
    let asked = Instant::now();
    daemon.terminate();
    assert!(daemon.wait().await.success());
    assert!(asked.elapsed() < Duration::from_secs(5), "took {:?}", asked.elapsed());
    shop.assert_outcome().await;
}
