//! Several instances share the work: each order has one that tries first, and the others step in.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use super::{ON_TIME_MILLIS, Role, assert_on_time, listening, together::take_turns_at_hot_rows};
use crate::support::{Daemon, Kind, Proxy, Redis, Settings, Shop, order_closer, shop::Outcome, wait};

/// What this daemon looked at, closures included.
fn looks(daemon: &Daemon) -> u64 {
    let summary = daemon.summary();
    ["closed", "settled", "not_due", "not_found", "locked", "rejected"].iter().map(|name| summary.count(name)).sum()
}

/// Starts daemons, and waits until each of them knows all the others.
async fn acquainted(settings: &[&Settings]) -> Vec<Daemon> {
    let mut daemons = Vec::new();
    for settings in settings {
        daemons.push(listening(settings).await);
    }
    let others = format!("\"others\":{}", daemons.len() - 1);
    for daemon in &daemons {
        daemon.until_line("it knows the others", |line| line.contains("other instances") && line.contains(&others)).await;
    }
    daemons
}

/// They divide the orders among them, and nearly every look closes one.
#[tokio::test]
async fn three_share_the_work() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let settings = take_turns_at_hot_rows(Kind::Postgres, shop.settings_with(&redis));
    let daemons = acquainted(&[&settings; 3]).await;
    let orders: Vec<(i64, i64)> = (1..=1_500).map(|number| (number, 3_000 + number * 2)).collect();
    shop.orders(&orders).await;
    shop.write_keys(&redis, 0).await;
    shop.until_all_settled().await;
    let mut looked = 0;
    for daemon in &daemons {
        daemon.stop().await;
        let closed = daemon.summary().count("closed");
        assert!(closed > 150, "one of three closed only {closed} of 1,500");
        looked += looks(daemon);
    }
    assert!(looked < 2_250, "{looked} looks for 1,500 orders");
    assert_on_time(&shop.assert_outcome().await);
}

/// The others take over the orders of one that is killed, of one that hangs, and of one that says goodbye.
#[tokio::test]
async fn the_others_step_in() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let settings = take_turns_at_hot_rows(Kind::Postgres, shop.settings_with(&redis));
    let daemons = acquainted(&[&settings; 4]).await;
    let orders: Vec<(i64, i64)> = (1..=600).map(|number| (number, 3_000 + number * 10)).collect();
    shop.orders(&orders).await;
    shop.write_keys(&redis, 0).await;
    for (closed, end) in [(50, Daemon::kill as fn(&Daemon)), (200, Daemon::freeze), (350, Daemon::terminate)] {
        wait::until("some orders are closed", async || shop.closed().await >= closed).await;
        end(&daemons[usize::try_from(closed / 150).expect("a small number")]);
    }
    shop.until_all_settled().await;
    daemons[2].wait().await;
    daemons[3].until_line("it knows of one other, or none", |line| line.contains("other instances") && line.contains("\"was\":3")).await;
    daemons[3].stop().await;
    daemons[1].kill();
    // The batch that was in hand when its instance froze stays locked until the database gives that session up.
    let mut outcome = shop.assert_outcome().await;
    let locked = outcome.closed.iter().filter(|(_, millis)| **millis > ON_TIME_MILLIS).count();
    assert!(locked < 100, "{locked} of 600 orders were late");
    outcome.closed.retain(|_, millis| *millis <= ON_TIME_MILLIS || *millis > 20_000);
    assert_on_time(&outcome);
}

/// What a daemon of the first edition with a shop's settings calls the hash of its heartbeats.
fn first_editions_hash(shop: &Shop) -> String {
    let name = |name: &str| format!("ColumnName({name:?})");
    let group = format!(
        "({:?}, {:?}, None, TableName {{ schema: None, name: \"orders\" }}, {}, {}, [\"0\"], Deadline {{ column: {}, plus: None, unit: None }}, None, {:?})",
        gethostname::gethostname().to_string_lossy(),
        shop.database.url,
        name("order_no"),
        name("status"),
        name("expires_at"),
        "order_"
    );
    format!("order-closer:{:016x}", xxhash_rust::xxh3::xxh3_64(group.as_bytes()))
}

/// It closes what this one lets wait, so whoever runs both is to know.
#[tokio::test]
async fn a_daemon_of_the_first_edition_is_named() {
    const WHAT: &str = "a daemon of the first edition closes orders of this table, too";
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let settings = shop.settings_with(&redis);
    let (key, dead) = (first_editions_hash(&shop), uuid::Uuid::new_v4().to_string());
    redis.command(&["HSET", &key, &dead, "77 busy"]);
    let check = async || order_closer(&settings, &["check"]).await.expect_code(0).stdout;
    assert!(!check().await.contains(WHAT), "it may be a dead one's");
    let daemon = listening(&settings).await;
    let beats = async {
        for beat in 1_u64.. {
            redis.command(&["HSET", &key, "0b8f6c1e-older", &format!("{beat} ")]);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let named = async {
        daemon.until_logged(WHAT).await;
        let said = check().await;
        assert!(said.contains(WHAT) && said.contains("honours neither pause nor dispute"), "{said}");
    };
    tokio::select! {
        () = beats => {}
        () = named => {}
    }
    daemon.stop().await;
    assert_eq!(daemon.said(WHAT).len(), 1, "{:#?}", daemon.lines());
}

/// The time that a daemon gives to another before it steps in is longer than this.
const WITHOUT_WAITING_MILLIS: i64 = 500;

/// Orders fall due while the others are of no use: this daemon closes all of them itself and waits for none, and it looks
/// for what the others may have left no more than ten times a second.
pub(super) async fn closes_all_at_once(daemon: &Daemon, shop: &Shop, numbers: std::ops::RangeInclusive<i64>) {
    let orders: Vec<(i64, i64)> = numbers.clone().enumerate().map(|(at, number)| (number, 1_000 + 10 * at as i64)).collect();
    let (began, swept) = (Instant::now(), daemon.said("swept").len());
    shop.orders(&orders).await;
    shop.until_all_settled().await;
    let (took, swept) = (began.elapsed(), daemon.said("swept").len() - swept);
    assert!(swept as u128 <= took.as_millis() / 100 + 5, "{swept} sweeps in {took:?}");
    let late = late_ones(&shop.assert_outcome().await, numbers);
    assert!(late < orders.len() / 5, "{late} of {} waited for somebody", orders.len());
}

/// How many of these orders closed so late that somebody was waited for.
pub(super) fn late_ones(outcome: &Outcome, numbers: std::ops::RangeInclusive<i64>) -> usize {
    outcome.closed.range(numbers).filter(|(_, millis)| **millis > WITHOUT_WAITING_MILLIS).count()
}

/// Settings whose logs tell of each sweep.
pub(super) fn telling(settings: Settings) -> Settings {
    settings.set("log.level", "order_closer=debug")
}

/// One that has lost its database goes on beating, and says that it is unfit; one that is frozen does not. The database's
/// own identity makes them peers, though each calls it by another URL.
#[tokio::test]
async fn one_without_its_database_and_one_that_is_frozen() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let settings = telling(shop.settings_with(&redis));
    let proxy = Proxy::before(&shop.database.url);
    let far = settings.clone().set("database.url", proxy.url(&shop.database.url));
    let daemons = acquainted(&[&settings, &far]).await;
    let [healthy, other] = &daemons[..] else { unreachable!("two were started") };
    for spell in 0..2 {
        let unfit = healthy.logged("\"unfit\":1");
        proxy.black_hole();
        wait::until("the other says that it is unfit", async || healthy.logged("\"unfit\":1") > unfit).await;
        let first = 1 + 100 * spell;
        closes_all_at_once(healthy, &shop, first..=first + 99).await;
        let fit = healthy.logged("\"unfit\":0");
        proxy.pass();
        wait::until("it is fit again", async || healthy.logged("\"unfit\":0") > fit).await;
    }
    other.freeze();
    healthy.until_line("the other is gone", |line| line.contains("\"others\":0") && line.contains("\"was\":1")).await;
    closes_all_at_once(healthy, &shop, 301..=400).await;
    other.thaw();
    wait::until("it is there again", async || healthy.logged("\"others\":1") > 1).await;
    for daemon in &daemons {
        daemon.stop().await;
    }
    assert_on_time(&shop.assert_outcome().await);
}

/// One that reaches its database and may not read the orders closes none of its own.
#[tokio::test]
async fn one_that_may_not_read_the_orders() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let role = Role::of(&shop, "u").await;
    let settings = telling(shop.settings_with(&redis));
    let daemons = acquainted(&[&settings, &settings.clone().set("database.url", role.url.as_str())]).await;
    let [healthy, other] = &daemons[..] else { unreachable!("two were started") };
    shop.database.execute(&format!("REVOKE SELECT ON orders FROM {}", role.name)).await;
    healthy.until_line("the other says that it is unfit", |line| line.contains("\"unfit\":1")).await;
    closes_all_at_once(healthy, &shop, 1..=100).await;
    shop.database.execute(&format!("GRANT SELECT ON orders TO {}", role.name)).await;
    healthy.until_line("it is fit again", |line| line.contains("\"unfit\":0") && line.contains("\"was\":1")).await;
    healthy.stop().await;
    other.stop().await;
    assert_on_time(&shop.assert_outcome().await);
    role.drop_from(&shop).await;
}

/// While all are without their database, nobody takes the others' orders for his own.
#[tokio::test]
async fn all_without_their_database() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let proxy = Proxy::before(&shop.database.url);
    let settings = shop.settings_with(&redis).set("database.url", proxy.url(&shop.database.url));
    let settings = take_turns_at_hot_rows(Kind::Postgres, settings);
    let daemons = acquainted(&[&settings, &settings]).await;
    proxy.black_hole();
    for daemon in &daemons {
        daemon.until_line("both are unfit", |line| line.contains("\"unfit\":1")).await;
    }
    proxy.pass();
    for daemon in &daemons {
        daemon.until_line("both are fit", |line| line.contains("\"unfit\":0") && line.contains("\"was\":1")).await;
    }
    let orders: Vec<(i64, i64)> = (1..=500).map(|number| (number, 1_000 + number * 2)).collect();
    shop.orders(&orders).await;
    shop.until_all_settled().await;
    let mut looked = 0;
    for daemon in &daemons {
        daemon.stop().await;
        looked += looks(daemon);
    }
    assert!(looked < 750, "{looked} looks for 500 orders");
    assert_on_time(&shop.assert_outcome().await);
}

/// Two shops call their databases by the same words, and have one Redis: their daemons are no peers.
#[tokio::test]
async fn two_databases_behind_one_url() {
    let redis = Redis::start();
    let shops = [Shop::open(Kind::Sqlite).await, Shop::open(Kind::Sqlite).await];
    let mut daemons = Vec::new();
    for shop in &shops {
        let file = Path::new(shop.database.url.trim_start_matches("sqlite://"));
        let settings = telling(shop.settings_with(&redis).set("database.url", "sqlite://shop.db"));
        let folder = file.parent().expect("a file has a folder").to_owned();
        daemons.push(Daemon::started(&settings, |command| {
            command.current_dir(folder);
        }));
    }
    let groups = async || {
        let keys = redis.command(&["KEYS", "order-closer:3:*"]).array().to_vec();
        keys.iter().map(|key| redis.command(&["HLEN", &key.text()]).integer()).collect::<Vec<i64>>()
    };
    wait::until_eq("the sizes of the groups", vec![1, 1], groups).await;
    for (daemon, shop) in daemons.iter().zip(&shops) {
        daemon.until_logged("listening for expired keys").await;
        closes_all_at_once(daemon, shop, 1..=100).await;
        daemon.stop().await;
        assert_eq!(daemon.logged("other instances"), 0, "{:#?}", daemon.lines());
    }
}

/// Whoever writes into the hash and does not know the database is not believed, and makes no order late.
#[tokio::test]
async fn those_who_only_claim_to_be_there() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let daemon = listening(&telling(shop.settings_with(&redis))).await;
    let key =
        wait::some("the daemon's heartbeat", async || redis.command(&["KEYS", "order-closer:3:*"]).array().first().map(|key| key.text()))
            .await;
    let lying = AtomicBool::new(true);
    let lies = async {
        let mut beats = 0;
        while lying.load(Ordering::Relaxed) {
            beats += 1;
            for liar in 0..20 {
                let lie = match liar % 3 {
                    0 => format!("{beats} busy"),
                    1 => format!("beat={beats} fit=yes busy=yes sign=0123456789abcdef"),
                    _ => format!("beat={beats} \u{1F480}"),
                };
                redis.command(&["HSET", &key, &format!("liar-{liar}"), &lie]);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let closed = async {
        closes_all_at_once(&daemon, &shop, 1..=200).await;
        lying.store(false, Ordering::Relaxed);
    };
    tokio::join!(lies, closed);
    daemon.stop().await;
    assert_eq!(daemon.logged("other instances"), 0, "{:#?}", daemon.lines());
    // Theirs it removes as soon as it sees them.
    let left = redis.command(&["HKEYS", &key]);
    assert!(left.array().iter().all(|name| name.text().starts_with("liar-")), "it took its own field away");
}

/// Only those who close the same orders are peers, however else they differ.
#[tokio::test]
async fn those_who_close_other_orders_are_none() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    shop.database.execute("ALTER TABLE orders ADD COLUMN public_no bigint UNIQUE, ADD COLUMN created_at timestamptz").await;
    let settings = shop.settings_with(&redis);
    let twin = settings.clone().set("close.batch_size", 7).set("orders.set.paid_at", "NULL").set("orders.unpaid", 0);
    let strangers = [
        settings.clone().set("orders.filter", "order_no % 2 = 0"),
        settings.clone().set("orders.unpaid", vec![0, 2]),
        settings.clone().set("orders.deadline.column", "created_at"),
        settings.clone().add("[orders]\ndeadline = { column = 'expires_at', plus = '1h' }"),
        settings.clone().set("orders.id", "public_no"),
    ];
    let mut daemons = acquainted(&[&settings, &twin]).await;
    for stranger in &strangers {
        daemons.push(listening(stranger).await);
    }
    let groups = async || {
        let keys = redis.command(&["KEYS", "order-closer:3:*"]).array().to_vec();
        keys.iter().map(|key| redis.command(&["HLEN", &key.text()]).integer()).max().map(|largest| (keys.len(), largest))
    };
    wait::until_eq("the number of groups, and the size of the largest", Some((6, 2)), groups).await;
    for daemon in &daemons {
        daemon.stop().await;
    }
    let acquainted: Vec<usize> = daemons.iter().map(|daemon| daemon.logged("\"others\":1,")).collect();
    assert_eq!(acquainted, [1, 1, 0, 0, 0, 0, 0]);
}

/// Somebody else's key stands where the beat goes: that is said once for each time, and orders close all the same.
#[tokio::test]
async fn a_beat_that_is_refused() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let daemon = listening(&shop.settings_with(&redis)).await;
    let key =
        wait::some("the daemon's beat", async || redis.command(&["KEYS", "order-closer:3:*"]).array().first().map(|key| key.text())).await;
    for spell in 1..=2 {
        redis.command(&["CONFIG", "RESETSTAT"]);
        redis.command(&["SET", &key, "a text"]);
        wait::until("several beats were refused", async || {
            let stats = redis.command(&["INFO", "commandstats"]).text();
            let refused =
                stats.lines().find_map(|line| line.strip_prefix("cmdstat_hset:")?.rsplit_once("failed_calls=")?.1.trim().parse().ok());
            refused.is_some_and(|refused: u64| refused >= 3)
        })
        .await;
        let said = daemon.said("other instances can't be seen");
        assert_eq!(said.len(), spell, "{:#?}", daemon.lines());
        assert!(said[spell - 1]["error"].as_str().is_some_and(|error| error.contains("WRONGTYPE")), "{said:#?}");
        redis.command(&["DEL", &key]);
        wait::until("it beats again", async || redis.command(&["TYPE", &key]).text() == "hash").await;
    }
    shop.orders_due_in(1..=20, 300).await;
    shop.until_all_settled().await;
    daemon.stop().await;
    assert_on_time(&shop.assert_outcome().await);
}

/// Without the right to keep a beat, each tries every order.
#[tokio::test]
async fn strangers_to_each_other() {
    let redis = Redis::options().with_notifications().config("user order-closer on >closing-time ~order_* &* +@all").start();
    let shop = Shop::open(Kind::Postgres).await;
    let settings = shop.settings().set("redis.url", redis.url_as("order-closer", "closing-time"));
    let daemons = [listening(&settings).await, listening(&settings).await];
    shop.orders_due_in(1..=100, 3_000).await;
    shop.write_keys(&redis, 0).await;
    shop.until_all_settled().await;
    for daemon in &daemons {
        daemon.stop().await;
        assert_eq!(daemon.said("other instances can't be seen").len(), 1, "said once: {:#?}", daemon.lines());
    }
    assert_on_time(&shop.assert_outcome().await);
}
