//! Histories: an order service at work, one daemon, one fault at a time; afterwards every order's history is judged.
//!
//! The service reaches its servers itself; the faults are on the daemon's way to them, or the daemon's own. `HISTORY_SEED`
//! repeats a run's choices, `HISTORY_SECONDS` makes it longer.

pub mod history;
mod service;

use std::{
    ops::RangeInclusive,
    time::{Duration, Instant, SystemTime},
};

use history::{Excuse, Histories};
use service::Service;

use crate::{
    promises::listening,
    support::{Daemon, Kind, Redis, Settings, Shop, proxy::Proxy, redis::unix_millis, shop::key},
};

/// How long the service works, unless `HISTORY_SECONDS` says otherwise: the fault in its middle third.
const SECONDS: u64 = 30;

/// What a fault can reach.
struct Scene<'a> {
    shop: &'a Shop,
    redis: &'a Redis,
    to_redis: &'a Proxy,
    to_database: &'a Proxy,
    daemon: &'a mut Daemon,
    settings: &'a Settings,
}

impl Scene<'_> {
    /// Does something again and again, for so long.
    async fn again_and_again(&self, time: Duration, pause: Duration, what: impl Fn(&Self)) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            what(self);
            tokio::time::sleep(pause).await;
        }
    }
}

/// Whom a fault may make late.
enum Touches {
    /// Nobody: what needs nothing that is broken is on time.
    Nobody,
    /// Whoever falls due meanwhile, and for so many milliseconds after it.
    Everybody(i64),
}

/// For how long the last orders may be open.
const LAST: Duration = Duration::from_secs(20);

fn setting<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

fn now() -> i64 {
    unix_millis(SystemTime::now())
}

async fn wait_until_settled(shop: &Shop, histories: &Histories) {
    while !history::unsettled(shop, histories).await.is_empty() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Runs a shop with this fault, and judges each order's history.
async fn holds(touches: Touches, keys_are_lost: bool, fault: impl AsyncFnOnce(&mut Scene<'_>, Duration) -> Vec<i64>) {
    let seed = setting("HISTORY_SEED").unwrap_or_else(rand::random);
    let seconds = setting("HISTORY_SECONDS").unwrap_or(SECONDS);
    let third = Duration::from_secs(seconds) / 3;
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let (to_redis, to_database) = (Proxy::before(&redis.url()), Proxy::before(&shop.database.url));
    let settings =
        shop.settings_with(&redis).set("redis.url", to_redis.url(&redis.url())).set("database.url", to_database.url(&shop.database.url));
    let mut daemon = listening(&settings).await;
    let mut scene =
        Scene { shop: &shop, redis: &redis, to_redis: &to_redis, to_database: &to_database, daemon: &mut daemon, settings: &settings };
    let working = Service::new(&shop, &redis, seed).run(third * 3);
    let failing = async {
        tokio::time::sleep(third).await;
        let began = now();
        let orders = fault(&mut scene, third).await;
        (orders, began..=now())
    };
    let (histories, (orders, during)) = tokio::join!(working, failing);
    // Whatever is never closed is among the violations.
    let settled = wait_until_settled(&shop, &histories);
    tokio::time::timeout(LAST, settled).await.ok();
    let during: Option<RangeInclusive<i64>> = match touches {
        Touches::Nobody => None,
        // What fell due just before was still in hand.
        Touches::Everybody(after) => Some(*during.start() - history::LATE..=*during.end() + after),
    };
    let excuse = Excuse { during, orders, keys: keys_are_lost };
    let orders = histories.len();
    let wrong = history::judge(&shop, histories, now(), &excuse).await;
    assert!(wrong.is_empty(), "HISTORY_SEED={seed}: {} of {orders} histories must not be:\n{}", wrong.len(), wrong.join("\n"));
    assert!(orders > 100, "only {orders} orders were made");
    scene.daemon.stop().await;
}

/// Nothing is wrong, so nothing is excused.
#[tokio::test]
async fn in_quiet() {
    holds(Touches::Nobody, false, async |_, _| Vec::new()).await;
}

#[tokio::test]
async fn redis_is_black_holed() {
    holds(Touches::Nobody, true, async |scene, time| {
        scene.to_redis.black_hole();
        tokio::time::sleep(time).await;
        scene.to_redis.pass();
        Vec::new()
    })
    .await;
}

#[tokio::test]
async fn redis_answers_late() {
    holds(Touches::Nobody, true, async |scene, time| {
        scene.to_redis.delay(Duration::from_millis(125));
        tokio::time::sleep(time).await;
        scene.to_redis.delay(Duration::ZERO);
        Vec::new()
    })
    .await;
}

#[tokio::test]
async fn connections_to_redis_are_cut() {
    holds(Touches::Nobody, true, async |scene, time| {
        scene.again_and_again(time, Duration::from_millis(400), |scene| scene.to_redis.reset()).await;
        Vec::new()
    })
    .await;
}

#[tokio::test]
async fn redis_is_emptied() {
    holds(Touches::Nobody, true, async |scene, time| {
        let empty = |scene: &Scene| drop(scene.redis.command(&["FLUSHALL"]));
        scene.again_and_again(time, Duration::from_millis(700), empty).await;
        Vec::new()
    })
    .await;
}

/// Of orders that are not due, that are paid, that do not exist.
#[tokio::test]
async fn notifications_are_forged() {
    holds(Touches::Nobody, false, async |scene, time| {
        let forge = |scene: &Scene| {
            for _ in 0..50 {
                scene.redis.publish_expired(0, key(rand::random_range(1..2_000)).as_bytes());
            }
        };
        scene.again_and_again(time, Duration::from_millis(10), forge).await;
        Vec::new()
    })
    .await;
}

#[tokio::test]
async fn connections_to_the_database_are_cut() {
    holds(Touches::Everybody(1_000), false, async |scene, time| {
        scene.again_and_again(time, Duration::from_millis(900), |scene| scene.to_database.reset()).await;
        Vec::new()
    })
    .await;
}

#[tokio::test]
async fn the_database_is_black_holed() {
    holds(Touches::Everybody(3_000), false, async |scene, time| {
        scene.to_database.black_hole();
        tokio::time::sleep(time / 2).await;
        scene.to_database.pass();
        Vec::new()
    })
    .await;
}

#[tokio::test]
async fn the_daemon_is_frozen() {
    holds(Touches::Everybody(1_000), false, async |scene, time| {
        scene.daemon.freeze();
        tokio::time::sleep(time / 3).await;
        scene.daemon.thaw();
        Vec::new()
    })
    .await;
}

#[tokio::test]
async fn the_daemon_is_killed() {
    holds(Touches::Everybody(1_000), false, async |scene, time| {
        for _ in 0..3 {
            scene.daemon.kill();
            *scene.daemon = listening(scene.settings).await;
            tokio::time::sleep(time / 6).await;
        }
        Vec::new()
    })
    .await;
}

/// Only the orders whose rows are held may be late.
#[tokio::test]
async fn rows_are_held() {
    holds(Touches::Nobody, false, async |scene, time| {
        let mut other = scene.shop.database.begin().await;
        let held = scene.shop.database.column("SELECT order_no FROM orders WHERE status = 0 AND order_no % 5 = 0").await;
        let held: Vec<i64> = held.iter().flatten().filter_map(|number| number.parse().ok()).collect();
        for number in &held {
            other.execute(&format!("UPDATE orders SET paid_at = NULL WHERE order_no = {number}")).await;
        }
        tokio::time::sleep(time / 3).await;
        other.rollback().await;
        held
    })
    .await;
}
