//! What `check` says about Redis.

use std::collections::BTreeSet;

use super::{Report, good_redis};
use crate::{
    commands::{SECRET, assert_no_secret},
    support::{Kind, Redis, Settings, Shop, order_closer, ports, process},
};

/// Runs a printed `redis-cli` command as it stands, and gives the password if it asks for one.
fn run_printed(command: &str) {
    let client = process::find_program(&["redis-cli", "valkey-cli"]);
    let mut shell = process::mortal("bash");
    shell.args(["-ec", &format!("redis-cli() {{ '{}' \"$@\"; }}\n{command} <<< {SECRET}", client.display())]);
    let said = process::run("bash", shell);
    assert!(said.contains("OK"), "{command}: {said}");
}

async fn shop_and_settings(redis: &Redis) -> (Shop, Settings) {
    let shop = Shop::open(Kind::Sqlite).await;
    let settings = shop.settings_with(redis);
    (shop, settings)
}

#[tokio::test]
async fn notifications_that_are_off_and_stay_off() {
    let redis = Redis::options().config("appendonly yes").start();
    let (_shop, settings) = shop_and_settings(&redis).await;
    let settings = settings.set("redis.enable_notifications", false);
    // The dollar is a flag too, and nothing that a shell should see.
    for flags in ["", "K$"] {
        redis.command(&["CONFIG", "SET", "notify-keyspace-events", flags]);
        let before = redis.config_get("notify-keyspace-events");
        let report = Report::of(&settings, 78).await;
        assert_eq!(report.wrong(), ["notifications", "probe key"]);
        report.assert("notifications", "fail", &format!("notify-keyspace-events is {before:?}"));
        report.assert("probe key", "warn", "no notification came");
        assert_eq!(redis.config_get("notify-keyspace-events"), before, "check changes no setting");
        run_printed(report.fix("notifications"));
        let after: BTreeSet<char> = redis.config_get("notify-keyspace-events").chars().collect();
        assert_eq!(after, format!("{flags}Ex").chars().collect());
        assert_eq!(Report::of(&settings, 0).await.wrong(), [] as [&str; 0]);
    }
}

/// The daemon will switch them on, so that is no failure.
#[tokio::test]
async fn notifications_that_the_daemon_will_switch_on() {
    let redis = Redis::options().config("appendonly yes").start();
    let (_shop, settings) = shop_and_settings(&redis).await;
    let report = Report::of(&settings, 0).await;
    report.assert("notifications", "warn", "`order-closer run`");
    run_printed(report.fix("notifications"));
    assert_eq!(Report::of(&settings, 0).await.wrong(), [] as [&str; 0]);
}

#[tokio::test]
async fn keys_that_may_be_evicted() {
    let redis = good_redis();
    let (_shop, settings) = shop_and_settings(&redis).await;
    redis.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let report = Report::of(&settings, 0).await;
    report.assert("eviction", "ok", "no limit");
    redis.command(&["CONFIG", "SET", "maxmemory", "100mb"]);
    let report = Report::of(&settings, 0).await;
    assert_eq!(report.wrong(), ["eviction"]);
    report.assert("eviction", "warn", "allkeys-lru");
    run_printed(report.fix("eviction"));
    assert_eq!(redis.config_get("maxmemory-policy"), "noeviction");
    Report::of(&settings, 0).await.assert("eviction", "ok", "noeviction");
}

#[tokio::test]
async fn keys_that_a_restart_loses() {
    let redis = Redis::options().with_notifications().start();
    let (_shop, settings) = shop_and_settings(&redis).await;
    let report = Report::of(&settings, 0).await;
    assert_eq!(report.wrong(), ["persistence"]);
    report.assert("persistence", "warn", "none");
    redis.command(&["CONFIG", "SET", "save", "3600 1"]);
    Report::of(&settings, 0).await.assert("persistence", "ok", "snapshots (3600 1)");
    redis.command(&["CONFIG", "SET", "save", ""]);
    run_printed(report.fix("persistence"));
    Report::of(&settings, 0).await.assert("persistence", "ok", "appendonly is yes");
}

#[tokio::test]
async fn redis_that_is_down() {
    let shop = Shop::open(Kind::Sqlite).await;
    let port = ports::free();
    let settings = shop.settings().set("redis.url", format!("redis://closer:{SECRET}@127.0.0.1:{port}"));
    let report = Report::of(&settings, 69).await;
    assert_eq!(report.wrong(), ["redis"]);
    report.assert("redis", "fail", &format!("redis://closer:***@127.0.0.1:{port} can't be reached"));
    report.assert("redis", "fail", "refused");
    report.assert("closing", "ok", "");
}

#[tokio::test]
async fn a_wrong_password() {
    let redis = Redis::options().with_notifications().config("appendonly yes").password("right").start();
    let shop = Shop::open(Kind::Sqlite).await;
    let settings = shop.settings().set("redis.url", redis.url_as("default", SECRET));
    let report = Report::of(&settings, 69).await;
    report.assert("redis", "fail", "WRONGPASS");
    let right = Report::of(&settings.set("redis.url", redis.url()), 0).await;
    assert_eq!(right.wrong(), [] as [&str; 0]);
}

/// What is printed reaches the server that was examined, whatever leads there, and names no password.
#[tokio::test]
async fn the_printed_command_reaches_the_server() {
    let redis = Redis::options().password(SECRET).socket().tls().start();
    redis.command(&["ACL", "SETUSER", "till$1", "on", &format!(">{SECRET}"), "~*", "&*", "+@all"]);
    let shop = Shop::open(Kind::Sqlite).await;
    let socket = redis.ca_file().with_file_name("redis.sock");
    let address = format!("127.0.0.1:{}", redis.port());
    for (url, has) in [
        (redis.url(), format!("redis-cli -p {} --askpass CONFIG", redis.port())),
        (format!("redis://till$1:{SECRET}@{address}/3"), "--user 'till$1' --askpass CONFIG".into()),
        (format!("redis://:{SECRET}@localhost:{}", redis.port()), format!("redis-cli -h localhost -p {} ", redis.port())),
        (redis.tls_url(), "--tls --cacert ".into()),
        (format!("redis+unix://{}?password={SECRET}", socket.display()), format!("redis-cli -s {} --askpass CONFIG", socket.display())),
    ] {
        redis.command(&["CONFIG", "SET", "notify-keyspace-events", ""]);
        let settings = shop.settings().set("redis.url", url.as_str()).set("redis.ca_file", redis.ca_file().display().to_string());
        let report = Report::of(&settings, 0).await;
        let fix = report.fix("notifications");
        assert!(fix.contains(&has), "{has:?} expected: {fix}");
        run_printed(fix);
        assert_eq!(redis.config_get("notify-keyspace-events"), "xE", "{fix}");
    }
}

/// A socket with its login in the URL, and TLS under an authority of its own.
#[tokio::test]
async fn other_ways_to_redis() {
    let redis = Redis::options().with_notifications().config("appendonly yes").password(SECRET).socket().tls().start();
    let shop = Shop::open(Kind::Sqlite).await;
    let socket = redis.ca_file().with_file_name("redis.sock");
    let settings = shop.settings().set("redis.url", format!("redis+unix://{}?db=1&password={SECRET}", socket.display()));
    let report = Report::of(&settings, 0).await;
    assert_eq!(report.wrong(), [] as [&str; 0]);
    report.assert("redis", "ok", "redis.sock");
    let settings = shop.settings().set("redis.url", redis.tls_url());
    let report = Report::of(&settings, 69).await;
    report.assert("redis", "fail", "can't be reached");
    let settings = settings.set("redis.ca_file", redis.ca_file().display().to_string());
    assert_eq!(Report::of(&settings, 0).await.wrong(), [] as [&str; 0]);
    let missing = settings.set("redis.ca_file", "/no/such.pem");
    Report::of(&missing, 69).await.assert("redis", "fail", "redis.ca_file /no/such.pem can't be used");
}

#[tokio::test]
async fn a_user_without_the_channel() {
    let redis = good_redis();
    redis.command(&["ACL", "SETUSER", "closer", "on", &format!(">{SECRET}"), "~order_*", "resetchannels", "+@all"]);
    let (_shop, settings) = shop_and_settings(&redis).await;
    let settings = settings.set("redis.url", redis.url_as("closer", SECRET));
    for listen in ["all", "own"] {
        let settings = settings.clone().set("redis.listen", listen);
        redis.command(&["ACL", "SETUSER", "closer", "resetchannels"]);
        let report = Report::of(&settings, 78).await;
        assert_eq!(report.wrong(), ["probe key"]);
        report.assert("probe key", "fail", "subscription");
        let (_, rules) = report.fix("probe key").rsplit_once(": ").expect("rules behind a colon");
        let words: Vec<&str> = ["ACL", "SETUSER", "closer"].into_iter().chain(rules.split(' ')).collect();
        redis.command(&words);
        assert_eq!(Report::of(&settings, 0).await.wrong(), [] as [&str; 0], "{rules}");
    }
}

/// With no right but to connect, subscribe, write and touch, orders close; what can't be read is said.
#[tokio::test]
async fn a_user_with_few_rights() {
    let redis = good_redis();
    let rules = "on ~order_* resetchannels &__keyevent@*__:expired -@all +hello +auth +select +ping +quit +client|id +client|setname +client|info \
                 +psubscribe +punsubscribe +exists +set";
    let words: Vec<&str> = ["ACL", "SETUSER", "closer"].into_iter().chain(rules.split(' ').filter(|word| !word.is_empty())).collect();
    redis.command(&words);
    redis.command(&["ACL", "SETUSER", "closer", &format!(">{SECRET}")]);
    let (_shop, settings) = shop_and_settings(&redis).await;
    let settings = settings.set("redis.url", redis.url_as("closer", SECRET));
    let report = Report::of(&settings, 0).await;
    assert_eq!(report.wrong(), ["redis", "clocks", "notifications", "eviction", "persistence", "rows and keys"]);
    report.assert("probe key", "ok", "its notification came");
    let advice: Vec<&str> = ["redis", "clocks", "notifications"].map(|name| report.fix(name)).into();
    assert!(advice[0].contains("+info") && advice[1].contains("+time") && advice[2].contains("+config|get"), "{advice:?}");
}

/// The ACL example of redis.conf gives `check` everything that it wants.
#[tokio::test]
async fn the_user_of_redis_conf() {
    let conf = include_str!("../../../redis.conf");
    let line = conf.lines().find_map(|line| line.strip_prefix("#user order-closer ")).expect("an example");
    let redis = good_redis();
    let words: Vec<&str> = ["ACL", "SETUSER", "order-closer"].into_iter().chain(line.split(' ')).collect();
    redis.command(&words);
    let (_shop, settings) = shop_and_settings(&redis).await;
    let report = Report::of(&settings.set("redis.url", redis.url_as("order-closer", "change-me-1")), 0).await;
    assert_eq!(report.wrong(), [] as [&str; 0], "{:#?}", report.findings);
}

#[tokio::test]
async fn a_database_number_of_its_own() {
    let redis = good_redis();
    let (_shop, settings) = shop_and_settings(&redis).await;
    let settings = settings.set("redis.url", redis.url_of(7)).set("redis.listen", "own").set("redis.key_prefix", "shop:order:");
    assert_eq!(Report::of(&settings, 0).await.wrong(), [] as [&str; 0]);
    let too_high = settings.set("redis.url", redis.url_of(16));
    let finished = order_closer(&too_high, &["check"]).await.expect_code(69);
    assert_no_secret(&finished);
    assert!(finished.stdout.contains("DB index is out of range") || finished.stdout.contains("database"), "{finished:#?}");
}
