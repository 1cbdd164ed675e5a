//! A Redis that is another than it was: demoted, behind another name, with a new certificate, without a right, out of
//! memory. The daemon follows, says why, and orders close on time meanwhile.

use std::{process::Command, time::Duration};

use super::{assert_on_time, listening, webhooks::until_delivered};
use crate::support::{Daemon, Kind, Proxy, Redis, Settings, Shop, order_closer, process, proxy::Existing, redis::Keep, wait};

/// Within which a daemon has found the new primary, on a machine that is busy with other tests. The promise is 5 s.
const FOLLOWED: Duration = Duration::from_secs(15);

/// Three attempts in a moment, and events are dead letters.
fn with_events(settings: Settings) -> Settings {
    settings
        .add("[events]\nenabled = true\nretry = { attempts = 3, initial = '50ms', max = '100ms' }\n[events.stream]\nkey = 'orders:closed'")
}

/// How many notifications the daemon has heard, as far as it has said so.
fn heard(daemon: &Daemon) -> u64 {
    daemon.said("summary").iter().filter_map(|record| record["heard"].as_u64()).sum()
}

/// Redis is demoted in the middle of it, while its name leads to the new primary, and its connections stay.
#[tokio::test]
async fn demoted_while_orders_close() {
    let (old, new) = (Redis::start(), Redis::start());
    new.follow(&old);
    new.until_replicated().await;
    let proxy = Proxy::before(&old.url());
    let shop = Shop::open(Kind::Postgres).await;
    let settings = with_events(shop.settings_with(&old)).set("redis.url", proxy.url(&old.url())).set("log.summary", "200ms");
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    let daemon = listening(&settings).await;
    let orders: Vec<(i64, i64)> = (1..=600).map(|number| (number, 1_000 + number * 15)).collect();
    shop.orders(&orders).await;
    shop.write_keys(&old, 0).await;
    wait::until("some are closed", async || shop.closed().await >= 100).await;
    old.command(&["CONFIG", "SET", "replica-serve-stale-data", "yes"]);
    proxy.lead_to(&new.url(), Existing::Stay);
    new.promote();
    old.follow(&new);
    wait::within(FOLLOWED, "the new primary has a subscriber", async || new.subscriptions() > 0).await;
    let before = heard(&daemon);
    shop.orders_due_in(1_001..=1_020, 3_000).await;
    shop.write_keys(&new, 0).await;
    shop.until_all_settled().await;
    wait::until("it hears the new primary", async || heard(&daemon) >= before + 20).await;
    until_delivered(&shop).await;
    daemon.stop().await;
    assert_on_time(&shop.assert_outcome().await);
    let said = daemon.said("no keyspace notifications");
    assert!(said.iter().any(|record| record["reason"].as_str().is_some_and(|reason| reason.contains("replica"))), "{said:#?}");
    assert_eq!(shop.database.number("SELECT count(*) FROM order_closer_dead_letters").await, 0, "{:#?}", daemon.lines());
    assert_eq!(daemon.logged("is a dead letter"), 0);
    assert_eq!(old.command(&["CLIENT", "LIST"]).text().matches("name=order-closer").count(), 0, "nobody stays with the old one");
}

/// A replica from the start is named, and used as soon as it is a primary.
#[tokio::test]
async fn a_replica_until_it_is_promoted() {
    let (primary, replica) = (Redis::start(), Redis::start());
    replica.follow(&primary);
    replica.until_replicated().await;
    let shop = Shop::open(Kind::Sqlite).await;
    let daemon = Daemon::start(&shop.settings_with(&replica));
    let warning = daemon.until_logged("no keyspace notifications").await;
    assert!(warning.contains(&format!("replica of 127.0.0.1:{}", primary.port())) && warning.contains("\"fix\""), "{warning}");
    shop.orders_due_in(1..=10, 500).await;
    shop.until_all_settled().await;
    assert_eq!(replica.subscriptions(), 0);
    replica.promote();
    daemon.until_logged("listening for expired keys").await;
    daemon.stop().await;
    assert_on_time(&shop.assert_outcome().await);
    assert_eq!(daemon.said("no keyspace notifications").len(), 1, "said once: {:#?}", daemon.lines());
}

/// The name leads elsewhere, and the old server says nothing of it.
#[tokio::test]
async fn the_name_leads_elsewhere() {
    const NAME: &str = "redis-of-the-shop.test";
    let redis = Redis::options().with_notifications().config("bind 127.0.0.1 127.0.0.2").start();
    let shop = Shop::open(Kind::Sqlite).await;
    let Some(hosts) = Hosts::new(NAME, "127.0.0.1") else {
        eprintln!("this machine gives no file system of its own to a process, so names can't be changed for one");
        return;
    };
    let settings = shop.settings().set("redis.url", format!("redis://{NAME}:{}", redis.port()));
    let daemon = Daemon::started(&settings, |command| *command = hosts.for_one(command));
    daemon.until_logged("listening for expired keys").await;
    let connected = |address: &str| {
        let at = format!("laddr={address}:");
        redis.command(&["CLIENT", "LIST"]).text().lines().filter(|line| line.contains("user=default") && line.contains(&at)).count()
    };
    assert_eq!(connected("127.0.0.2"), 0);
    hosts.lead(NAME, "127.0.0.2");
    wait::within(FOLLOWED, "both connections have followed", async || connected("127.0.0.2") == 2).await;
    wait::until_eq("the test's own connection alone is where it was", 1, async || connected("127.0.0.1")).await;
    daemon.stop().await;
    let said = daemon.said("no keyspace notifications");
    assert_eq!(said.len(), 1, "{said:#?}");
    assert!(said[0]["reason"].as_str().is_some_and(|reason| reason.contains("now leads to 127.0.0.2")), "{said:#?}");
}

/// The table of names that one process sees.
struct Hosts(tempfile::NamedTempFile);

impl Hosts {
    /// `None` where the system does not let a process have one.
    fn new(name: &str, address: &str) -> Option<Self> {
        let allowed = Command::new("unshare").args(["-rm", "true"]).status().is_ok_and(|status| status.success());
        let hosts = Self(tempfile::NamedTempFile::new().expect("a file can be made"));
        hosts.lead(name, address);
        allowed.then_some(hosts)
    }

    /// Changed in place: another file would not be the one that the process sees.
    fn lead(&self, name: &str, address: &str) {
        std::fs::write(self.0.path(), format!("127.0.0.1 localhost\n{address} {name}\n")).expect("the file can be written");
    }

    fn for_one(&self, command: &Command) -> Command {
        let mut unshared = process::mortal("unshare");
        unshared.args(["-rm", "sh", "-c", "mount --bind \"$0\" /etc/hosts && exec \"$@\""]).arg(self.0.path());
        unshared.arg(command.get_program()).args(command.get_args());
        unshared
    }
}

/// A new certificate by a new authority, whose file is where the old one was: nobody restarts the daemon.
#[tokio::test]
async fn a_new_authority() {
    let mut redis = Redis::options().tls().start();
    let shop = Shop::open(Kind::Sqlite).await;
    let settings = shop.settings().set("redis.url", redis.tls_url()).set("redis.ca_file", redis.ca_file().to_str().expect("UTF-8"));
    let daemon = listening(&settings).await;
    redis.renew_certificates();
    redis.until_subscribed().await;
    let beats = async || !redis.command(&["KEYS", "order-closer:*"]).array().is_empty();
    wait::until("commands come through again", beats).await;
    wait::until("the setting is back", async || redis.config_get("notify-keyspace-events").contains('x')).await;
    shop.orders_due_in(1..=10, 2_500).await;
    shop.until_all_settled().await;
    daemon.stop().await;
    assert_on_time(&shop.assert_outcome().await);
}

/// A certificate that nobody vouches for is said to be that.
#[tokio::test]
async fn an_authority_that_is_not_trusted() {
    let (redis, other) = (Redis::options().tls().start(), Redis::options().tls().start());
    let shop = Shop::open(Kind::Sqlite).await;
    let settings = shop.settings().set("redis.url", redis.tls_url()).set("redis.ca_file", other.ca_file().to_str().expect("UTF-8"));
    let daemon = Daemon::start(&settings);
    let warning = daemon.until_logged("no keyspace notifications").await;
    assert!(warning.contains("redis.ca_file"), "what to do: {warning}");
    daemon.stop().await;
}

/// The right to touch keys is withdrawn and given back.
#[tokio::test]
async fn the_right_to_touch_keys_is_withdrawn() {
    let redis = Redis::options().with_notifications().start();
    redis.command(&["ACL", "SETUSER", "closer", "on", ">closing-time", "~*", "&*", "+@all"]);
    let shop = Shop::open(Kind::Sqlite).await;
    let daemon = listening(&shop.settings().set("redis.url", redis.url_as("closer", "closing-time"))).await;
    redis.command(&["ACL", "SETUSER", "closer", "-exists"]);
    let mut next = 1;
    let mut until_said = async |text: &str| {
        let said = async || {
            shop.orders_due_in(next..next + 5, 2_200).await;
            shop.write_keys(&redis, 0).await;
            shop.until_all_settled().await;
            next += 5;
            daemon.logged(text) > 0
        };
        wait::until(&format!("the daemon has said {text:?}"), said).await;
    };
    until_said("Redis does not take commands").await;
    redis.command(&["ACL", "SETUSER", "closer", "+exists"]);
    until_said("Redis takes commands again").await;
    daemon.stop().await;
    assert_on_time(&shop.assert_outcome().await);
    let said = daemon.said("Redis does not take commands");
    assert_eq!(said.len(), 1, "said once: {said:#?}");
    assert!(said[0]["reason"].as_str().is_some_and(|reason| reason.contains("NOPERM")), "{said:#?}");
    assert!(said[0]["fix"].as_str().is_some_and(|fix| fix.contains("+exists ~order_*")), "{said:#?}");
}

/// Who is out of memory lacks no right.
#[tokio::test]
async fn out_of_memory_is_no_matter_of_rights() {
    let redis = Redis::options().with_notifications().start();
    let shop = Shop::open(Kind::Sqlite).await;
    let settings = with_events(shop.settings_with(&redis)).set("events.retry.attempts", 500).set("log.level", "debug");
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let daemon = listening(&settings).await;
    shop.orders_due_in(1..=10, 500).await;
    shop.until_all_settled().await;
    daemon.until_line("the stream is out of memory", |line| line.contains("delivery failed") && line.contains("OOM")).await;
    daemon.until_line("other instances are not seen", |line| line.contains("can't be seen") && line.contains("OOM")).await;
    redis.command(&["CONFIG", "SET", "maxmemory", "0"]);
    until_delivered(&shop).await;
    daemon.stop().await;
    assert_on_time(&shop.assert_outcome().await);
    let advice: Vec<String> = daemon.lines().into_iter().filter(|line| line.contains("ACL")).collect();
    assert_eq!(advice, [] as [&str; 0]);
}

/// Flags that others have set stay, also the one that Redis does not show beside `A`.
#[tokio::test]
async fn flags_of_others_stay() {
    let redis = Redis::options().config("notify-keyspace-events AKn").start();
    let shop = Shop::open(Kind::Sqlite).await;
    redis.command(&["CONFIG", "SET", "notify-keyspace-events", "AKEn"]);
    assert!(redis.announces_new_keys(), "as set");
    redis.command(&["CONFIG", "SET", "notify-keyspace-events", "AKn"]);
    let daemon = listening(&shop.settings_with(&redis)).await;
    daemon.until_logged("set notify-keyspace-events").await;
    assert!(redis.announces_new_keys(), "{}", redis.config_get("notify-keyspace-events"));
    daemon.stop().await;
}

/// A server that doesn't know HELLO repeats the login in its answer: plain, cut off in the middle, or as the client wrote it.
#[tokio::test]
async fn a_server_that_repeats_the_login() {
    let shop = Shop::open(Kind::Sqlite).await;
    let long = format!("tell-nobody-{}", "0123456789".repeat(20));
    for (password, encoded) in [("tell-nobody", "tell-nobody"), ("tell nobody's\"", "tell%20nobody's%22"), (&long, &long)] {
        let redis = Redis::options().config("rename-command HELLO \"\"").start();
        redis.command(&["CONFIG", "SET", "requirepass", password]);
        let settings = shop.settings().set("redis.url", redis.url_as("default", encoded)).set("log.level", "trace");
        let daemon = Daemon::start(&settings);
        daemon.until_logged("no keyspace notifications").await;
        daemon.stop().await;
        let check = order_closer(&settings, &["check"]).await.expect_code(78);
        let arm = order_closer(&settings, &["arm", "1", "--ttl", "5s"]).await;
        let said = format!("{}{}{}{}{}", daemon.lines().join("\n"), check.stdout, check.stderr, arm.stdout, arm.stderr);
        for secret in ["tell-nobody", "tell nobody", "nobody's", r"\x74\x65\x6c\x6c", "0123456789"] {
            assert!(!said.contains(secret), "{secret}: {said}");
        }
        assert!(check.stdout.contains("6.2") && daemon.lines().iter().any(|line| line.contains("6.2")), "what is needed: {said}");
    }
}

/// While the login is refused rows decide alone; as soon as it is taken again, keys count.
#[tokio::test]
async fn a_login_that_is_refused_for_a_while() {
    let redis = Redis::options().config("user closer on >first ~* &* +@all").start();
    let shop = Shop::open(Kind::Sqlite).await;
    let settings = shop.settings().set("redis.url", redis.url_as("closer", "first")).set("log.level", "order_closer::trigger=debug,info");
    let settings = settings.set("log.format", "json");
    let daemon = listening(&settings).await;
    redis.command(&["ACL", "SETUSER", "closer", "resetpass", ">second"]);
    redis.command(&["CLIENT", "KILL", "USER", "closer"]);
    let orders = std::cell::Cell::new(0);
    wait::until("it can't ask about keys", async || {
        orders.set(orders.get() + 1);
        shop.order(orders.get(), -1_000).await;
        daemon.lines().iter().any(|line| line.contains("rows decide alone") && line.contains("WRONGPASS"))
    })
    .await;
    redis.command(&["ACL", "SETUSER", "closer", "resetpass", ">first"]);
    let connections = async || redis.command(&["CLIENT", "LIST"]).text().lines().filter(|line| line.contains("user=closer")).count();
    wait::until_eq("the subscription, and the commands", 2, connections).await;
    let in_an_hour = std::time::SystemTime::now() + Duration::from_secs(3_600);
    redis.set_until("order_1001", "1", in_an_hour);
    shop.order(1_001, 4_000).await;
    shop.order(1_002, 4_500).await;
    shop.until_status(1_002, 4).await;
    assert_eq!(shop.status(1_001).await, 0, "its key contradicts its row");
    daemon.stop().await;
}

/// Restarted again and again, Redis has one connection of each kind, and no leftovers.
#[tokio::test]
async fn connections_do_not_pile_up() {
    let mut redis = Redis::start();
    let shop = Shop::open(Kind::Sqlite).await;
    let daemon = listening(&shop.settings_with(&redis)).await;
    for _ in 0..3 {
        redis.start_again(Keep::Nothing);
        redis.until_subscribed().await;
    }
    for _ in 0..5 {
        assert!(redis.kill_subscribers() > 0);
        redis.until_subscribed().await;
    }
    // The subscription, the commands, and the test.
    let connections = async || redis.command(&["CLIENT", "LIST"]).text().lines().count();
    wait::until_eq("the number of connections", 3, connections).await;
    daemon.stop().await;
}
