//! Standard output or standard error that takes nothing: what was done, and what it is called, stays the same.

use std::{
    io::{BufRead, BufReader},
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;

use super::reconcile::on_every_database;
use crate::support::{Kind, OneShot, Redis, Settings, Shop, daemon::Finished, ports, process, process::Process};

/// A pipe that nobody reads, as file 3.
const CLOSED_PIPE: &str = "exec 3> >(true); wait $!";

on_every_database! {
    orders_that_are_rejected => rejected_in_postgres, rejected_in_mariadb, rejected_in_sqlite;
}

/// Runs a command with its streams as this line has them.
async fn run(settings: &Settings, arguments: &[&str], streams: &str) -> Finished {
    OneShot::with(settings, arguments).in_shell(&format!("{CLOSED_PIPE}; order-closer {streams}")).run().await
}

async fn orders_that_are_rejected(kind: Kind) {
    let shop = Shop::open(kind).await;
    shop.orders_due_in(1..=8, -1_000).await;
    shop.database.execute("CREATE TABLE poison (order_no bigint PRIMARY KEY); INSERT INTO poison VALUES (2), (5)").await;
    let settings = shop
        .settings()
        .set("redis.url", format!("redis://127.0.0.1:{}", ports::free()))
        .after_close_sql("INSERT INTO poison SELECT order_no FROM poison WHERE order_no IN (:ids)");
    for (arguments, streams, named) in [
        (["reconcile", "--json"].as_slice(), ">/dev/full", true),
        (&["reconcile", "--json"], ">&3", true),
        (&["reconcile", "--json"], "2>&3", false),
        (&["reconcile", "--json"], ">&3 2>&3", false),
        (&["close", "2", "5"], ">/dev/full", false),
        (&["close", "2", "5"], ">&3", false),
    ] {
        let finished = run(&settings, arguments, streams).await.expect_code(75);
        let names = ["order 2 could not be closed", "order 5 could not be closed"].map(|text| finished.stderr.contains(text));
        assert_eq!(names, [named; 2], "{arguments:?} {streams}: {finished:#?}");
        let said = streams.contains("full");
        assert_eq!(finished.stderr.contains("standard output: No space left on device"), said, "{arguments:?} {streams}: {finished:#?}");
    }
    shop.assert_outcome_except(&[2, 5]).await;
}

/// What can't be written is an error of its own where all else went well; a reader who has gone away is none.
#[tokio::test]
async fn results_that_are_lost() {
    let shop = Shop::open(Kind::Sqlite).await;
    let settings = shop.settings();
    for arguments in [["config"].as_slice(), &["config", "--json"], &["reconcile", "--json"], &["close", "7"], &["migrate"], &["--help"]] {
        let finished = run(&settings, arguments, ">/dev/full").await.expect_code(74);
        assert_eq!(finished.stderr.lines().count(), 1, "{arguments:?}: {finished:#?}");
        assert!(finished.stderr.contains("standard output: No space left on device"), "{arguments:?}: {finished:#?}");
        let finished = run(&settings, arguments, ">&3").await.expect_code(0);
        assert_eq!(finished.stderr, "", "{arguments:?}");
    }
}

/// Nobody to say it to.
#[tokio::test]
async fn mistakes_that_are_told_to_nobody() {
    let shop = Shop::open(Kind::Sqlite).await;
    let settings = shop.settings();
    for (arguments, code) in [(["close", "1", "abc"].as_slice(), 64), (&["dead-letters", "list"], 78), (&["close"], 64)] {
        for streams in ["2>&3", "2>/dev/full"] {
            assert_eq!(run(&settings, arguments, streams).await.expect_code(code).stdout, "", "{arguments:?}");
        }
    }
    let nowhere = settings.set("database.url", format!("postgres://postgres@127.0.0.1:{}/shop", ports::free()));
    run(&nowhere, &["reconcile"], "2>&3").await.expect_code(69);
}

/// The reader of the log has gone away, and orders close all the same.
#[tokio::test]
async fn a_daemon_whose_log_is_read_by_nobody() {
    let shop = Shop::open(Kind::Sqlite).await;
    let settings = shop.settings().set("redis.url", format!("redis://127.0.0.1:{}", ports::free())).set("log.level", "debug");
    let one = OneShot::with(&settings, &[]);
    let (reader, writer) = std::io::pipe().expect("a pipe can be made");
    drop(reader);
    let mut command = process::mortal(env!("CARGO_BIN_EXE_order-closer"));
    command.arg("--config").arg(one.config_file()).arg("run").stderr(writer);
    let daemon = Process::spawn("the daemon", command);
    shop.orders_due_in(1..=20, 300).await;
    shop.until_all_settled().await;
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.wait().await.success());
    shop.assert_outcome().await;
}

/// How many bytes a pipe holds, and the log's queue, and more.
const MORE_THAN_WAITS: usize = 3 << 20;

/// Keys that are no orders: each is a line of the log, and a long one.
fn flood(redis: &Redis) {
    let key = [b"order_".as_slice(), &[b'!'; 1 << 14]].concat();
    for _ in 0..MORE_THAN_WAITS / key.len() {
        redis.publish_expired(0, &key);
    }
}

/// The log goes into a pipe that nobody reads: orders close, and the daemon ends when it is told to. Once somebody reads, the
/// log says how many of its lines are missing.
#[tokio::test]
async fn a_daemon_whose_log_nobody_reads() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Sqlite).await;
    let one = OneShot::with(&shop.settings_with(&redis).set("log.level", "info,order_closer=debug"), &[]);
    let (reader, writer) = std::io::pipe().expect("a pipe can be made");
    let mut command = process::mortal(env!("CARGO_BIN_EXE_order-closer"));
    command.arg("--config").arg(one.config_file()).arg("run").stderr(writer);
    let daemon = Process::spawn("the daemon", command);
    redis.until_subscribed().await;
    flood(&redis);
    shop.orders_due_in(1..=20, 300).await;
    shop.until_all_settled().await;
    let mut lines = BufReader::new(reader).lines();
    let missing = tokio::task::spawn_blocking(move || {
        let records = lines.by_ref().map(|line| serde_json::from_str(&line.expect("UTF-8")).expect("JSON on each line"));
        let missing = { records }.find_map(|record: serde_json::Value| {
            let is_it = record["message"].as_str().is_some_and(|message| message.contains("lines of this log were dropped"));
            is_it.then(|| record["lines"].as_u64())?
        });
        // Kept open: nobody reads any more, and nobody has gone away either.
        (missing, lines)
    });
    let (missing, _unread) = missing.await.expect("it has read the log");
    assert!(missing.is_some_and(|lines| lines > 0), "{missing:?}");
    flood(&redis);
    shop.orders_due_in(21..=40, 300).await;
    shop.until_all_settled().await;
    let asked = Instant::now();
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.wait().await.success());
    assert!(asked.elapsed() < Duration::from_secs(8), "took {:?}", asked.elapsed());
    shop.assert_outcome().await;
}
