use std::{collections::BTreeSet, process::Command};

use crate::support::{Daemon, Kind, NotifySocket, OneShot, Proxy, Redis, Shop, process, wait};

/// In microseconds: a watchdog of a minute, as in the units.
const WATCHDOG: u64 = 60_000_000;

/// While the database is away it is no failure to start, and no start.
#[tokio::test]
async fn systemd_hears_that_it_waits_and_then_that_it_has_started() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    shop.order(1, -1_000).await;
    let proxy = Proxy::before(&shop.database.url);
    proxy.refuse().await;
    let socket = NotifySocket::open();
    let settings = shop.settings_with(&redis).set("database.url", proxy.url(&shop.database.url));
    let daemon = Daemon::started(&settings, |command| socket.starts(command, WATCHDOG));
    socket.until("EXTEND_TIMEOUT_USEC=", 3).await;
    socket.until("WATCHDOG=1", 2).await;
    assert_eq!((socket.count("STATUS=waiting for the database") > 0, socket.count("READY=1")), (true, 0), "{:?}", socket.heard());
    proxy.accept().await;
    wait::until("it has started", async || socket.count("READY=1") == 1).await;
    shop.until_all_settled().await;
    socket.until_status("closing orders; 1 closed").await;
    assert_eq!(socket.count("STOPPING=1"), 0);
    daemon.stop().await;
    assert_eq!((socket.count("READY=1"), socket.count("STOPPING=1")), (1, 1), "{:?}", socket.heard());
}

#[tokio::test]
async fn the_watchdog_is_fed_while_nothing_is_to_do_and_while_the_database_is_away() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let proxy = Proxy::before(&shop.database.url);
    let socket = NotifySocket::open();
    let settings = shop.settings_with(&redis).set("database.url", proxy.url(&shop.database.url)).set("database.timeout", "1s");
    let daemon = Daemon::started(&settings, |command| socket.starts(command, WATCHDOG));
    wait::until("it has started", async || socket.count("READY=1") == 1).await;
    socket.until("WATCHDOG=1", 3).await;
    // It accepts everything and answers nothing.
    proxy.black_hole();
    shop.order(1, -1_000).await;
    socket.until_status("no order can be ").await;
    socket.until("WATCHDOG=1", 3).await;
    proxy.pass();
    shop.until_all_settled().await;
    socket.until_status("closing orders; 1 closed").await;
    socket.until("WATCHDOG=1", 2).await;
    daemon.stop().await;
    assert_eq!(daemon.logged("loops do not turn"), 0);
    shop.assert_outcome().await;
}

/// Whoever gives the daemon less time than its database has is told so.
#[tokio::test]
async fn a_watchdog_that_bites_before_the_database_may_answer() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Sqlite).await;
    let socket = NotifySocket::open();
    let daemon = Daemon::started(&shop.settings_with(&redis), |command| socket.starts(command, 3_000_000));
    daemon.until_logged("WatchdogSec is less than twice database.timeout").await;
    socket.until("WATCHDOG=1", 2).await;
    daemon.stop().await;
}

/// With systemd-analyze, of systemd.
#[test]
fn systemd_takes_the_units_as_they_are() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        eprintln!("systemd-analyze is not installed; left out");
        return;
    }
    let folder = process::folder();
    let units = ["order-closer.service", "order-closer@.service"].map(str::to_owned).into_iter();
    let passes =
        ["reconcile", "deliver"].into_iter().flat_map(|pass| ["service", "timer"].map(|kind| format!("order-closer-{pass}.{kind}")));
    for unit in units.chain(passes) {
        let text = std::fs::read_to_string(format!("{}/config/systemd/{unit}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        assert!(unit.ends_with(".timer") || text.contains("/usr/local/bin/order-closer "), "{unit}");
        let text = text.replace("/usr/local/bin/order-closer", env!("CARGO_BIN_EXE_order-closer"));
        std::fs::write(folder.path().join(unit), text).unwrap();
    }
    std::fs::rename(folder.path().join("order-closer@.service"), folder.path().join("order-closer@shop.service")).unwrap();
    for unit in ["order-closer.service", "order-closer@shop.service", "order-closer-reconcile.timer", "order-closer-deliver.timer"] {
        let verified = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(folder.path().join(unit)).output().unwrap();
        let said = String::from_utf8_lossy(&verified.stderr).into_owned();
        // What is wrong with other units of this host is not ours.
        let ours: Vec<&str> = said.lines().filter(|line| line.contains("order-closer")).collect();
        assert!(verified.status.success() && ours.is_empty(), "{unit}: {said}");
    }
}

/// What one unit has, the other has, too.
#[test]
fn the_unit_for_several_configurations_differs_in_names_alone() {
    let settings = |text: &'static str| text.lines().filter(|line| line.contains('=') && !line.starts_with('#'));
    let single: Vec<&str> = settings(include_str!("../../config/systemd/order-closer.service")).collect();
    let several: Vec<&str> = settings(include_str!("../../config/systemd/order-closer@.service")).collect();
    let differ: Vec<_> = single.iter().zip(&several).filter(|(one, other)| one != other).collect();
    assert_eq!(single.len(), several.len());
    assert_eq!(differ.len(), 5, "{differ:#?}");
    assert!(differ.iter().all(|(_, other)| other.contains("%i")), "{differ:#?}");
}

/// What no restart mends ends the daemon with a status after which systemd starts it no more, and there is no such status besides.
#[tokio::test]
async fn systemd_does_not_start_again_what_that_does_not_mend() {
    let unit = include_str!("../../config/systemd/order-closer.service");
    let line = unit.lines().find_map(|line| line.strip_prefix("RestartPreventExitStatus=")).expect("it names them");
    let final_ones: BTreeSet<i32> = line.split_whitespace().map(|status| status.parse().expect("a number")).collect();
    let redis = Redis::start();
    let shop = Shop::open(Kind::Sqlite).await;
    let settings = || shop.settings_with(&redis);
    let mut ended = BTreeSet::new();
    for (settings, arguments) in [
        (settings(), &["run", "--fast"][..]),
        (settings(), &["run", "--for", "1h"]),
        (settings().set("sweep.every", "soon"), &["run"]),
        (settings().set("close.workers", 0), &["run"]),
        (settings().set("redis.url", "rediss://127.0.0.1:1").set("redis.ca_file", "/nowhere/ca.pem"), &["run"]),
    ] {
        let finished = OneShot::with(&settings, arguments).run().await;
        assert!(finished.code.is_some_and(|code| final_ones.contains(&code)), "{arguments:?}: {finished:#?}");
        ended.extend(finished.code);
    }
    assert_eq!(ended, final_ones);
}
