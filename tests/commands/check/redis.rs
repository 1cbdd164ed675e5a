//! What `check` says about Redis.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use super::{Report, good_redis};
use crate::{
    commands::{SECRET, assert_no_secret},
    support::{
        Kind, Redis, Settings, Shop, order_closer, ports, process,
        redis::{Impostor, Reply},
    },
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
    let report = Report::of(&settings, 78).await;
    report.assert("redis", "fail", "WRONGPASS");
    assert!(report.fix("redis").contains("redis.url"), "{:?}", report.findings);
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
    Report::of(&missing, 78).await.assert("redis", "fail", "redis.ca_file /no/such.pem can't be used");
}

#[tokio::test]
async fn a_user_without_the_channel() {
    let redis = good_redis();
    redis.command(&["ACL", "SETUSER", "closer", "on", &format!(">{SECRET}"), "~order_*", "~order-closer:*", "resetchannels", "+@all"]);
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

/// With no right but to connect, subscribe and write, all others are named at once, and the printed command grants them.
#[tokio::test]
async fn a_user_with_few_rights() {
    let redis = good_redis();
    let rules = "on ~order_* resetchannels &__keyevent@*__:expired -@all +hello +auth +select +ping +client|id +client|setname +client|info \
                 +psubscribe +punsubscribe +set +exists";
    let words: Vec<&str> = ["ACL", "SETUSER", "closer"].into_iter().chain(rules.split(' ').filter(|word| !word.is_empty())).collect();
    redis.command(&words);
    redis.command(&["ACL", "SETUSER", "closer", &format!(">{SECRET}")]);
    let (_shop, settings) = shop_and_settings(&redis).await;
    let settings = settings.set("redis.url", redis.url_as("closer", SECRET)).set("events.stream.key", "closed:orders");
    let report = Report::of(&settings, 78).await;
    let missing = "+pttl +hset +hgetall +hdel +pexpire +info +time +xadd";
    report.assert("rights", "fail", missing);
    report.assert("probe key", "ok", "its notification came");
    report.assert("notifications", "ok", "not shown");
    assert!(report.fix("clocks").contains("+time"), "{:#?}", report.finding("clocks"));
    // The keys are looked at after the commands.
    run_as_administrator(&redis, report.fix("rights"));
    let report = Report::of(&settings, 78).await;
    report.assert("rights", "fail", "lacks ~closed:orders ~order-closer:*");
    run_as_administrator(&redis, report.fix("rights"));
    let report = Report::of(&settings, 0).await;
    assert_eq!(report.wrong(), ["events"], "switched off: {:#?}", report.findings);
    assert_eq!(redis.command(&["DBSIZE"]).integer(), 0, "the rehearsal has changed nothing");
}

/// Runs what is printed behind a colon.
fn run_as_administrator(redis: &Redis, fix: &str) {
    let (_, command) = fix.rsplit_once(": ").expect("a command behind a colon");
    redis.command(&command.split(' ').collect::<Vec<_>>());
}

/// The ACL example of redis.conf has all the rights that are needed, and none that makes somebody else of its user.
#[tokio::test]
async fn the_user_of_redis_conf() {
    let conf = include_str!("../../../redis.conf");
    let line = conf.lines().find_map(|line| line.strip_prefix("#user order-closer ")).expect("an example");
    let redis = good_redis();
    let words: Vec<&str> = ["ACL", "SETUSER", "order-closer"].into_iter().chain(line.split(' ')).collect();
    redis.command(&words);
    let (_shop, settings) = shop_and_settings(&redis).await;
    let settings = settings.set("redis.url", redis.url_as("order-closer", "change-me-1"));
    let report = Report::of(&settings, 0).await;
    assert_eq!(report.wrong(), [] as [&str; 0], "{:#?}", report.findings);
    let answers = redis.pipeline(&[
        vec![b"AUTH", b"order-closer", b"change-me-1"],
        vec![b"CONFIG", b"GET", b"requirepass"],
        vec![b"CONFIG", b"SET", b"requirepass", b"mine"],
        vec![b"ACL", b"LIST"],
    ]);
    for answer in &answers.expect("Redis answers")[1..] {
        assert!(matches!(answer, Reply::Error(error) if error.contains("NOPERM")), "{answer:?}");
    }
}

/// Whoever is no primary is named, and nothing else is asked of it.
#[tokio::test]
async fn servers_that_are_no_primary() {
    let shop = Shop::open(Kind::Sqlite).await;
    let primary = good_redis();
    let replica = good_redis();
    replica.follow(&primary);
    replica.until_replicated().await;
    let (cluster, sentinel) = (Redis::options().config("cluster-enabled yes").start(), Redis::options().sentinel().start());
    for (redis, name) in [(&replica, "replica of 127.0.0.1"), (&cluster, "node of a cluster"), (&sentinel, "sentinel")] {
        // Neither of the latter two has a database with this number.
        for database in [0, 3] {
            let report = Report::of(&shop.settings().set("redis.url", redis.url_of(database)), 78).await;
            assert_eq!(report.wrong(), ["redis"], "{:#?}", report.findings);
            report.assert("redis", "fail", name);
            assert!(report.fix("redis").contains("redis.url"), "{:#?}", report.finding("redis"));
        }
        let armed = order_closer(&shop.settings().set("redis.url", redis.url()), &["arm", "1", "--ttl", "5s"]).await;
        assert!(armed.code == Some(78) && armed.stderr.contains(name), "{armed:#?}");
    }
}

#[tokio::test]
async fn servers_that_are_too_old_and_others() {
    let shop = Shop::open(Kind::Sqlite).await;
    let of = async |info: &'static str, code: i32| Report::of(&shop.settings().set("redis.url", Impostor::start(info).url()), code).await;
    for info in ["redis_version:6.0.20 redis_mode:standalone role:master", "redis_version:5.0.14 role:master"] {
        let report = of(info, 78).await;
        report.assert("redis", "fail", info.split(' ').next().and_then(|field| field.split(':').nth(1)).expect("a version"));
        assert!(report.fix("redis").contains("6.2"), "{:#?}", report.finding("redis"));
    }
    let valkey = of("redis_version:7.2.4 server_name:valkey valkey_version:8.1.1 server_mode:standalone role:master", 78).await;
    valkey.assert("redis", "ok", "Valkey 8.1.1");
    valkey.assert("probe key", "fail", "");
}

/// Many keys, and foreign keys that expire all the time: the answer is right, and comes in time.
#[tokio::test]
async fn a_busy_redis() {
    let redis = good_redis();
    let (_shop, settings) = shop_and_settings(&redis).await;
    let fill = "for i = 1, 20000 do redis.call('SET', ARGV[1] .. ':' .. i, '1', 'PX', 600000 + i) end";
    for part in 0..10 {
        redis.command(&["EVAL", fill, "0", &part.to_string()]);
    }
    let busy = AtomicBool::new(true);
    let (report, took) = std::thread::scope(|scope| {
        // So many that less than 20 ms lie between any two, whatever else this machine does.
        for _ in 0..2 {
            scope.spawn(|| {
                while busy.load(Ordering::SeqCst) {
                    redis.publish_expired(0, b"somebody-else's");
                    std::thread::park_timeout(Duration::from_millis(1));
                }
            });
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be built");
        let handle = scope.spawn(move || {
            runtime.block_on(async {
                let began = Instant::now();
                (order_closer(&settings, &["check", "--json"]).await, began.elapsed())
            })
        });
        let ended = handle.join().expect("it ends");
        busy.store(false, Ordering::SeqCst);
        ended
    });
    assert_eq!(report.code, Some(0), "{report:#?}");
    assert!(report.stdout.contains("its notification came"), "{report:#?}");
    assert!(took < Duration::from_secs(15), "it took {took:?}");
}

#[tokio::test]
async fn a_database_number_of_its_own() {
    let redis = good_redis();
    let (_shop, settings) = shop_and_settings(&redis).await;
    let settings = settings.set("redis.url", redis.url_of(7)).set("redis.listen", "own").set("redis.key_prefix", "shop:order:");
    assert_eq!(Report::of(&settings, 0).await.wrong(), [] as [&str; 0]);
    let too_high = settings.set("redis.url", redis.url_of(16));
    let finished = order_closer(&too_high, &["check"]).await.expect_code(78);
    assert_no_secret(&finished);
    assert!(finished.stdout.contains("DB index is out of range"), "{finished:#?}");
}
