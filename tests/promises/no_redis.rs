//! No Redis at all: orders close by their rows alone, on time, and daemons see each other by our own tables.

use super::{assert_on_time, on_each_database};
use crate::support::{Daemon, Kind, Settings, Shop, order_closer, wait};

/// How late an order may be whose daemon has died: two seconds, and what a busy machine adds.
const TAKEN_OVER_MILLIS: i64 = 4_000;

fn without_redis(shop: &Shop) -> Settings {
    shop.settings().set("redis.url", "none")
}

async fn started(settings: &Settings) -> Daemon {
    let daemon = Daemon::start(settings);
    daemon.until_logged("orders close by their rows alone").await;
    daemon
}

async fn closes_on_time(kind: Kind) {
    let shop = Shop::open(kind).await;
    let daemon = started(&without_redis(&shop)).await;
    shop.orders(&(1..=300).map(|number| (number, 1_500 + number * 10)).collect::<Vec<_>>()).await;
    shop.order(301, -5_000).await;
    shop.until_all_settled().await;
    daemon.stop().await;
    let mut outcome = shop.assert_outcome().await;
    assert!(outcome.closed.remove(&301).is_some(), "what was overdue is found by the sweep");
    eprintln!("p50 {} ms, p99 {} ms late", outcome.lateness(0.5), outcome.lateness(0.99));
    assert_on_time(&outcome);
    for wrong in ["no keyspace notifications", "Redis can't be reached", "ERROR"] {
        assert_eq!(daemon.logged(wrong), 0, "{wrong}: {:#?}", daemon.lines());
    }
    assert_eq!(daemon.said("other instances can't be seen, and each tries every order; what has heartbeats must be ours alone").len(), 1);
}
on_each_database! { closes_on_time }

/// Two share the orders, and each takes over those of the other when that dies or stands still.
async fn two_share(kind: Kind, end: fn(&Daemon)) {
    let shop = Shop::open(kind).await;
    let settings = super::together::take_turns_at_hot_rows(kind, without_redis(&shop));
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    let (one, other) = (started(&settings).await, started(&settings).await);
    for daemon in [&one, &other] {
        daemon.until_line("it knows the other", |line| line.contains("other instances") && line.contains("\"others\":1")).await;
    }
    shop.orders(&(1..=600).map(|number| (number, 2_000 + number * 10)).collect::<Vec<_>>()).await;
    wait::until("some are closed", async || shop.closed().await >= 200).await;
    end(&one);
    shop.until_all_settled().await;
    other.until_line("it is alone", |line| line.contains("other instances") && line.contains("\"was\":1")).await;
    other.stop().await;
    one.kill();
    let closed = other.summary().count("closed");
    assert!((350..570).contains(&closed), "it closed {closed} of 600: not its share of the first 200, and all others");
    let outcome = shop.assert_outcome().await;
    let late = outcome.closed.values().filter(|millis| **millis > TAKEN_OVER_MILLIS).count();
    eprintln!("at most {} ms late", outcome.closed.values().max().expect("some are closed"));
    // The batch that was in hand when its daemon stood still stays locked until the database gives that session up.
    assert!(late < 50, "{late} of 600 were late");
}

#[tokio::test]
async fn a_killed_one_is_missed() {
    two_share(Kind::Postgres, Daemon::kill).await;
}

#[tokio::test]
async fn a_frozen_one_is_missed_on_mariadb() {
    two_share(Kind::MariaDb, Daemon::freeze).await;
}

/// What only Redis can do says that there is none.
#[tokio::test]
async fn what_needs_redis_says_so() {
    let shop = Shop::open(Kind::Sqlite).await;
    let settings = without_redis(&shop);
    let refused = order_closer(&settings, &["arm", "1", "--ttl", "5s"]).await.expect_code(78);
    assert!(refused.stderr.contains("redis.url is \"none\""), "{}", refused.stderr);
    let stream = settings.clone().set("events.enabled", true).set("events.stream.key", "orders:closed");
    let refused = order_closer(&stream, &["check"]).await.expect_code(78);
    assert!(refused.stderr.contains("events.stream") && refused.stderr.contains("redis.url is \"none\""), "{}", refused.stderr);
    let checked = order_closer(&settings, &["check"]).await.expect_code(0);
    assert!(checked.stdout.contains("orders close by their rows alone"), "{}", checked.stdout);
    shop.orders_due_in(1..=3, -1_000).await;
    order_closer(&settings, &["reconcile"]).await.expect_code(0);
    let explained = order_closer(&settings, &["explain", "1"]).await.expect_code(0);
    assert!(!explained.stdout.contains("Redis"), "{}", explained.stdout);
    shop.assert_outcome().await;
}
