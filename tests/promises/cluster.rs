//! A Redis Cluster: whatever becomes of its nodes, orders close on time, and notifications are back soon.

use std::{
    ops::Range,
    time::{Duration, Instant, SystemTime},
};

use super::{assert_on_time, listening, webhooks::until_delivered};
use crate::support::{
    Daemon, Kind, Settings, Shop, order_closer,
    redis::{Cluster, unix_millis},
    wait,
};

/// So many keys of others are written to see whether they are heard.
pub(super) const KEYS: u64 = 300;

/// Within which a daemon hears all primaries, on a machine that is busy with other tests. The promise is 3 s.
const FOLLOWED: Duration = Duration::from_secs(10);

async fn shop_and_settings(cluster: &Cluster, seeds: &[usize]) -> (Shop, Settings) {
    let shop = Shop::open(Kind::Sqlite).await;
    let events =
        "[events]\nenabled = true\nretry = { attempts = 500, initial = '50ms', max = '100ms' }\n[events.stream]\nkey = 'orders:closed'";
    let settings = shop.settings().set("redis.url", cluster.url(seeds)).set("log.summary", "200ms").add(events);
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    (shop, settings)
}

/// Waits until all primaries have a subscriber; says how long that took since the cluster is healthy.
async fn until_subscribed(cluster: &Cluster, after: &str) {
    let began = Instant::now();
    wait::within(FOLLOWED, "all primaries have a subscriber", async || {
        let primaries = cluster.primaries();
        !primaries.is_empty() && primaries.iter().all(|primary| primary.subscriptions() > 0)
    })
    .await;
    eprintln!("subscribed {:.1} s after {after}", began.elapsed().as_secs_f64());
}

/// Keys all over the cluster that are no orders' are heard, each once.
async fn assert_heard(cluster: &Cluster, daemon: &Daemon, how: &str) {
    let before = ignored(daemon);
    let soon = unix_millis(SystemTime::now()) + 2_000;
    let keys: Vec<(String, i64)> = (0..KEYS).map(|number| (format!("other_{}_{number}", how.replace(' ', "_")), soon)).collect();
    cluster.set_all_until(&keys).await;
    wait::until("each of them is heard", async || ignored(daemon) >= before + KEYS).await;
    assert_eq!(ignored(daemon), before + KEYS, "none twice");
}

/// How many keys of others the daemon has heard of, as far as it has said so.
pub(super) fn ignored(daemon: &Daemon) -> u64 {
    daemon.said("summary").iter().filter_map(|record| record["ignored"].as_u64()).sum()
}

fn in_turn(numbers: Range<i64>, apart: i64) -> Vec<(i64, i64)> {
    let first = numbers.start;
    numbers.map(|number| (number, 1_000 + (number - first) * apart)).collect()
}

/// A primary goes by hand, by death, and by silence, one after the other; orders fall due all the time.
#[tokio::test]
async fn primaries_that_are_replaced() {
    let mut cluster = Cluster::start().await;
    let (shop, settings) = shop_and_settings(&cluster, &[0, 1, 2]).await;
    let daemon = listening(&settings).await;
    until_subscribed(&cluster, "the start").await;
    shop.orders(&in_turn(1..1_501, 15)).await;
    cluster.set_all_until(&shop.keys(0).await).await;
    assert_heard(&cluster, &daemon, "at the start").await;

    cluster.fail_over(3).await;
    until_subscribed(&cluster, "a failover by hand").await;
    assert_heard(&cluster, &daemon, "after a failover").await;

    let killed = cluster.leader(1);
    cluster.nodes[killed].kill();
    cluster.until_replaced(killed).await;
    until_subscribed(&cluster, "the death of a primary").await;
    assert_heard(&cluster, &daemon, "after a death").await;
    cluster.start_again(killed);

    let frozen = cluster.leader(2);
    cluster.nodes[frozen].freeze();
    cluster.until_replaced(frozen).await;
    until_subscribed(&cluster, "the silence of a primary").await;
    assert_heard(&cluster, &daemon, "after a silence").await;
    cluster.nodes[frozen].thaw();
    wait::until("nobody stays with a replica", async || cluster.nodes[frozen].subscriptions() == 0).await;

    shop.until_all_settled().await;
    until_delivered(&shop).await;
    daemon.stop().await;
    assert_on_time(&shop.assert_outcome().await);
}

/// Slots go to another primary and to a new one, and the node of the URL dies; two daemons share the orders.
#[tokio::test]
async fn slots_that_move() {
    let mut cluster = Cluster::start().await;
    let (shop, settings) = shop_and_settings(&cluster, &[2]).await;
    let (daemon, other) = (listening(&settings).await, listening(&settings).await);
    daemon.until_logged("other instances close orders of this table").await;
    until_subscribed(&cluster, "the start").await;
    shop.orders(&in_turn(1..1_001, 15)).await;
    cluster.set_all_until(&shop.keys(0).await).await;

    cluster.move_slots(0..400, 0, 1).await;
    cluster.until_healthy().await;
    let new = cluster.join().await;
    cluster.move_slots(6_000..6_400, 1, new).await;
    cluster.move_slots(12_000..12_400, 2, new).await;
    cluster.until_healthy().await;
    assert_eq!(cluster.primaries().len(), 4);
    until_subscribed(&cluster, "a new primary had slots").await;
    assert_heard(&cluster, &daemon, "after slots moved").await;

    cluster.nodes[2].kill();
    cluster.until_replaced(2).await;
    until_subscribed(&cluster, "the death of the seed").await;
    let before = ignored(&other);
    assert_heard(&cluster, &daemon, "after the seed died").await;
    wait::until("the other hears them, too", async || ignored(&other) >= before + KEYS).await;

    shop.until_all_settled().await;
    until_delivered(&shop).await;
    daemon.stop().await;
    other.stop().await;
    assert_on_time(&shop.assert_outcome().await);
}

/// Two of three primaries are gone, and nobody is left to replace them: what is left is heard, and a key that contradicts its
/// row is still believed there; all others close by their rows.
#[tokio::test]
async fn a_majority_that_is_lost() {
    let mut cluster = Cluster::of(3, 0, Cluster::options()).await;
    let (shop, settings) = shop_and_settings(&cluster, &[0, 1, 2]).await;
    let daemon = listening(&settings).await;
    until_subscribed(&cluster, "the start").await;
    let is_left = |number: &i64| cluster.owner(&format!("order_{number}")).is_some_and(|node| node.port() == cluster.nodes[0].port());
    let (left, gone): (Vec<i64>, Vec<i64>) = (1..=60).partition(is_left);
    assert!(left.len() > 5 && gone.len() > 20, "{left:?} {gone:?}");
    let disputed = left[0];
    shop.orders_due_in(1..=60, 6_000).await;
    let mut keys = shop.keys(0).await;
    for (key, expiry) in &mut keys {
        if *key == format!("order_{disputed}") {
            *expiry += 3_600_000;
        }
    }
    cluster.set_all_until(&keys).await;
    daemon.until_logged("an order's row calls it due before its key expires").await;
    cluster.nodes[1].kill();
    cluster.nodes[2].freeze();
    let down = async || cluster.nodes[0].command(&["CLUSTER", "INFO"]).text().contains("cluster_state:fail");
    wait::until("the one that is left knows", down).await;
    wait::until("all but the disputed one are closed", async || shop.closed().await == 59).await;
    shop.orders_due_in(101..=130, 1_000).await;
    wait::until("orders without keys are closed", async || shop.closed().await == 89).await;
    let ready = daemon.records().into_iter().filter_map(|record| record["subscribed"].as_bool()).next_back();
    assert_eq!(ready, Some(false), "not all are heard");

    cluster.nodes[2].thaw();
    cluster.start_again(1);
    cluster.until_healthy().await;
    until_subscribed(&cluster, "the majority was back").await;
    assert_heard(&cluster, &daemon, "after a majority was back").await;
    daemon.stop().await;
    assert_on_time(&shop.assert_outcome_except(&[disputed]).await);
}
