//! Hints that must not get lost: from a stream, and from a sorted set.

use super::{by_notification_alone, listening};
use crate::support::{
    Daemon, Kind, Redis, Settings, Shop, order_closer,
    redis::{Cluster, Keep, Reply},
    shop::{CLOSED, UNPAID},
    wait,
};

const STREAM: &str = "orders:due";
const SET: &str = "orders:delayed";
const TAKEN: &str = "{orders:delayed}:order-closer:taken";
const MALFORMED: &str = "{orders:delayed}:order-closer:malformed";

/// A shop whose orders only hints close, and the door.
async fn shop_with(redis: &Redis, door: &str) -> (Shop, Settings) {
    let shop = Shop::open(Kind::Sqlite).await;
    let settings = by_notification_alone(shop.settings_with(redis)).add(door);
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    (shop, settings)
}

/// A daemon whose first sweep is over, and which takes hints.
async fn taking(settings: &Settings) -> Daemon {
    let daemon = listening(settings).await;
    daemon.until_logged("hints are taken").await;
    daemon
}

fn stream(more: &str) -> String {
    format!("[[hints]]\nname = 'due'\nfrom = 'redis-stream'\nkey = '{STREAM}'\nlease = '1s'\n{more}")
}

fn set(more: &str) -> String {
    format!("[[hints]]\nname = 'delayed'\nfrom = 'redis-zset'\nkey = '{SET}'\nlease = '1s'\n{more}")
}

fn add(redis: &Redis, field: &str, id: &str) {
    redis.command(&["XADD", STREAM, "*", field, id]);
}

/// How many entries were read and not acknowledged.
fn pending(redis: &Redis) -> i64 {
    redis.try_command(&["XPENDING", STREAM, "order-closer"]).map_or(0, |reply| reply.array()[0].integer())
}

/// Waits until every entry was read and acknowledged.
async fn until_acknowledged(redis: &Redis, entries: i64) {
    wait::until("every entry is acknowledged", async || {
        let groups = redis.command(&["XINFO", "GROUPS", STREAM]);
        // Redis that came back empty has none for a moment.
        let Some(group) = groups.array().first() else { return false };
        let mut fields = group.array().chunks(2);
        fields.any(|field| field[0].text() == "entries-read" && field[1] == Reply::Integer(entries)) && pending(redis) == 0
    })
    .await;
}

#[tokio::test]
async fn an_entry_is_acknowledged_when_its_order_was_judged() {
    let redis = Redis::start();
    let (shop, settings) = shop_with(&redis, &stream("")).await;
    let daemon = taking(&settings).await;
    shop.orders_due_in([1, 2], -100).await;
    shop.orders_due_in([3], 1_500).await;
    shop.orders_due_in([4], 3_600_000).await;
    assert!(shop.pay(2).await);
    for id in ["1", "2", "3", "4", "99"] {
        add(&redis, "order_id", id);
    }
    add(&redis, "order", "1");
    add(&redis, "order_id", "one\nERROR");
    // Paid, unknown, not due: of all of them the row has told, or that there is none.
    until_acknowledged(&redis, 7).await;
    assert_eq!(shop.status(4).await, UNPAID);
    // It came early, and waits here and not in the stream.
    shop.until_status(3, CLOSED).await;
    shop.until_status(1, CLOSED).await;
    let malformed = daemon.until_logged("a hint names no order, and is set aside").await;
    assert!(malformed.contains("the entry has no field order_id"), "{malformed}");
    assert_eq!(redis.command(&["XLEN", STREAM]).integer(), 7, "whatever was wrong with an entry, it can be read again");
    daemon.stop().await;
    // No sweep has found the third, and no key.
    assert!(daemon.summary().count("hint") >= 1);
}

#[tokio::test]
async fn an_entry_whose_daemon_died_before_the_look_is_read_again() {
    let redis = Redis::start();
    let (shop, settings) = shop_with(&redis, &stream("prefetch = 100")).await;
    let daemon = taking(&settings).await;
    order_closer(&settings, &["pause", "--reason", "a test"]).await.expect_code(0);
    daemon.until_logged("closing is paused").await;
    shop.orders_due_in(1..=300, -100).await;
    (1..=300).for_each(|id| add(&redis, "order_id", &id.to_string()));
    wait::until("as many are read as may be in hand", async || pending(&redis) == 100).await;
    daemon.kill();
    assert_eq!((pending(&redis), shop.closed().await), (100, 0));
    let other = taking(&settings).await;
    order_closer(&settings, &["resume"]).await.expect_code(0);
    until_acknowledged(&redis, 300).await;
    shop.until_all_settled().await;
    other.stop().await;
    shop.assert_outcome().await;
}

#[tokio::test]
async fn a_stream_whose_redis_was_away_and_comes_back_empty() {
    let mut redis = Redis::start();
    let (shop, settings) = shop_with(&redis, &stream("")).await;
    let daemon = taking(&settings).await;
    redis.kill();
    daemon.until_logged("no hints come in through this door").await;
    redis.start_again(Keep::Nothing);
    redis.until_subscribed().await;
    wait::until("the sweep after the subscription is over", async || daemon.logged("listening for expired keys") == 2).await;
    shop.orders_due_in([1], -100).await;
    add(&redis, "order_id", "1");
    until_acknowledged(&redis, 1).await;
    shop.until_all_settled().await;
    daemon.stop().await;
    shop.assert_outcome().await;
}

#[tokio::test]
async fn a_key_that_is_no_stream_is_said_and_mended_while_the_daemon_runs() {
    let redis = Redis::start();
    redis.command(&["SET", STREAM, "mine"]);
    let (shop, settings) = shop_with(&redis, &stream("")).await;
    let daemon = listening(&settings).await;
    let said = daemon.until_logged("no hints come in through this door").await;
    assert!(said.contains("WRONGTYPE") && said.contains("\"fix\"") && said.contains("ERROR"), "{said}");
    redis.command(&["DEL", STREAM]);
    daemon.until_logged("hints are taken").await;
    shop.orders_due_in([1], -100).await;
    add(&redis, "order_id", "1");
    shop.until_all_settled().await;
    assert_eq!(daemon.logged("no hints come in through this door"), 1);
    daemon.stop().await;
    shop.assert_outcome().await;
}

#[tokio::test]
async fn a_shadow_takes_no_hints() {
    let redis = Redis::start();
    let (shop, settings) = shop_with(&redis, &stream("")).await;
    add(&redis, "order_id", "1");
    let shadow = Daemon::started(&settings, |command| {
        command.arg("--shadow");
    });
    shadow.until_logged("a shadow takes no hints").await;
    shadow.until_logged("listening for expired keys").await;
    shadow.stop().await;
    assert_eq!(redis.command(&["XINFO", "GROUPS", STREAM]).array().len(), 0);
    shop.assert_outcome().await;
}

fn due(redis: &Redis, id: &str, score: &str) {
    redis.command(&["ZADD", SET, score, id]);
}

fn members(redis: &Redis, key: &str) -> i64 {
    redis.command(&["ZCARD", key]).integer()
}

#[tokio::test]
async fn members_are_taken_when_they_are_due() {
    let redis = Redis::start();
    let (shop, settings) = shop_with(&redis, &set("")).await;
    let daemon = taking(&settings).await;
    shop.orders_due_in(1..=1_200, -100).await;
    let now = shop.clock().await;
    (1..=1_200).for_each(|id| due(&redis, &id.to_string(), &(now - id).to_string()));
    due(&redis, "5000", &(now + 3_600_000).to_string());
    due(&redis, "no order", "1");
    shop.until_all_settled().await;
    wait::until("nothing is in hand", async || members(&redis, TAKEN) == 0 && members(&redis, SET) == 1).await;
    daemon.until_logged("a hint names no order, and is set aside").await;
    assert_eq!(redis.command(&["ZRANGE", MALFORMED, "0", "-1"]).array()[0].text(), "no order");
    daemon.stop().await;
    shop.assert_outcome().await;
}

#[tokio::test]
async fn members_whose_look_was_not_taken_go_back() {
    let redis = Redis::start();
    let (shop, settings) = shop_with(&redis, &set("unit = 's'")).await;
    let daemon = taking(&settings).await;
    order_closer(&settings, &["pause", "--reason", "a test"]).await.expect_code(0);
    daemon.until_logged("closing is paused").await;
    shop.orders_due_in([1, 2], -100).await;
    let now = shop.clock().await / 1_000;
    due(&redis, "1", &(now - 10).to_string());
    wait::until("it is in hand", async || members(&redis, TAKEN) == 1 && members(&redis, SET) == 0).await;
    // Stopped, a daemon gives back what it has; killed, it can't.
    daemon.stop().await;
    assert_eq!((members(&redis, TAKEN), members(&redis, SET)), (0, 1));
    let daemon = listening(&settings).await;
    wait::until("it is in hand", async || members(&redis, TAKEN) == 1).await;
    daemon.kill();
    let other = taking(&settings).await;
    // Its producer has another opinion meanwhile, which counts.
    due(&redis, "1", &(now + 3_600).to_string());
    due(&redis, "2", "1");
    order_closer(&settings, &["resume"]).await.expect_code(0);
    shop.until_status(2, CLOSED).await;
    wait::until("nothing is in hand", async || members(&redis, TAKEN) == 0).await;
    let left = redis.command(&["ZRANGE", SET, "0", "-1", "WITHSCORES"]);
    let left: Vec<String> = left.array().iter().map(|text| text.text()).collect();
    assert_eq!(left, ["1".to_owned(), (now + 3_600).to_string()]);
    other.stop().await;
}

#[tokio::test]
async fn a_door_that_changes_needs_another_start() {
    let redis = Redis::start();
    let (_shop, settings) = shop_with(&redis, &stream("")).await;
    let daemon = taking(&settings).await;
    assert!(!daemon.reload(&settings.clone().add(&stream("prefetch = 7")).toml()).await);
    daemon.until_line("what can't change is named", |line| line.contains("hints can't change while the daemon runs")).await;
    daemon.stop().await;
}

/// In a cluster each key is at a node of its own, and so are a set's two others.
#[tokio::test]
async fn hints_come_from_the_nodes_of_a_cluster() {
    let cluster = Cluster::start().await;
    let shop = Shop::open(Kind::Sqlite).await;
    let settings = by_notification_alone(shop.settings()).set("redis.url", cluster.url(&[0]));
    let doors = format!("{}{}", stream(""), set("unit = 's'"));
    let daemon = listening(&settings.add(&doors)).await;
    wait::until("both doors are open", async || daemon.logged("hints are taken") == 2).await;
    shop.orders_due_in([1, 2], -100).await;
    let command = |words: &[&str]| {
        let answers: Vec<Reply> = cluster.primaries().iter().filter_map(|node| node.try_command(words).ok()).collect();
        answers.into_iter().find(|answer| !matches!(answer, Reply::Error(_)))
    };
    assert!(command(&["XADD", STREAM, "*", "order_id", "1"]).is_some());
    assert!(command(&["ZADD", SET, "1", "2"]).is_some());
    shop.until_all_settled().await;
    wait::until("nothing is in hand", async || {
        let pending = command(&["XPENDING", STREAM, "order-closer"]).map(|reply| reply.array()[0].integer());
        pending == Some(0) && command(&["ZCARD", TAKEN]) == Some(Reply::Integer(0))
    })
    .await;
    daemon.stop().await;
    shop.assert_outcome().await;
}
