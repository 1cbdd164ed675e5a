//! A notification is a hint: it may get lost, come twice or be forged, and the outcome is the same.

use std::time::Duration;

use super::{assert_on_time, by_notification_alone, listening};
use crate::support::{Daemon, Kind, Redis, Shop, shop::key, wait};

#[tokio::test]
async fn subscribers_are_cut_off_again_and_again() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let daemon = listening(&shop.settings_with(&redis)).await;
    let orders: Vec<(i64, i64)> = (1..=400).map(|number| (number, 1_000 + number * 10)).collect();
    shop.orders(&orders).await;
    shop.write_keys(&redis, 0).await;
    let mut cut = 0;
    while shop.closed().await < 400 {
        cut += redis.kill_subscribers();
        // The connection for commands too, now and then.
        if cut % 3 == 0 {
            redis.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        wait::until("subscribed again, or done", async || redis.subscriptions() > 0 || shop.closed().await == 400).await;
    }
    daemon.stop().await;
    assert!(cut >= 5, "only {cut} connections were cut");
    assert_on_time(&shop.assert_outcome().await);
}

#[tokio::test]
async fn keys_are_never_written_deleted_or_evicted() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let daemon = listening(&shop.settings_with(&redis)).await;
    // Due in a while and evicted; soon and deleted; in between without a key at all.
    shop.orders_due_in(1..=50, 4_000).await;
    shop.write_keys(&redis, 0).await;
    // The daemon has a key of its own there, too.
    let keys = || redis.command(&["KEYS", "order_*"]).array().len();
    redis.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-random"]);
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
    wait::until("all keys are evicted", async || keys() == 0).await;
    redis.command(&["CONFIG", "SET", "maxmemory", "0"]);
    shop.orders_due_in(51..=100, 2_500).await;
    shop.write_keys(&redis, 0).await;
    for number in 1..=100 {
        redis.command(&["DEL", &key(number)]);
    }
    shop.orders_due_in(101..=150, 3_000).await;
    assert_eq!(keys(), 0);
    shop.until_all_settled().await;
    daemon.stop().await;
    assert_on_time(&shop.assert_outcome().await);
    let summary = daemon.summary();
    assert_eq!((summary.count("closed"), summary.count("heard")), (150, 0));
}

/// More events at once than the inbox holds.
#[tokio::test]
async fn a_burst_that_the_inbox_can_not_hold() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let daemon = listening(&shop.settings_with(&redis).set("close.batch_size", 20).set("close.inbox", 20)).await;
    shop.orders_due_in(1..=1_000, 2_500).await;
    shop.write_keys(&redis, 0).await;
    shop.until_all_settled().await;
    daemon.stop().await;
    assert_eq!(shop.assert_outcome().await.closed.len(), 1_000);
    assert_eq!(daemon.summary().count("closed"), 1_000);
}

#[tokio::test]
async fn an_event_comes_many_times() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let daemon = listening(&shop.settings_with(&redis).set("log.level", "debug")).await;
    shop.orders_due_in(1..=100, 2_000).await;
    shop.orders_due_in(101..=120, 3_600_000).await;
    let mut told = 0;
    while shop.closed().await < 100 {
        for number in 1..=120 {
            told += redis.publish_expired(0, key(number).as_bytes());
        }
    }
    for number in 1..=120 {
        told += redis.publish_expired(0, key(number).as_bytes());
    }
    until_all_heard(&redis, &daemon, "order_last").await;
    daemon.stop().await;
    let outcome = shop.assert_outcome().await;
    assert_eq!(outcome.closed.len(), 100);
    assert_on_time(&outcome);
    let summary = daemon.summary();
    assert_eq!(summary.count("closed"), 100);
    assert_eq!(summary.count("heard") + summary.count("lost"), told.unsigned_abs() + 1, "{summary:?}");
}

/// What anybody may publish: orders that are not due or do not exist, and keys that can't be orders.
#[tokio::test]
async fn events_are_forged() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let daemon = listening(&shop.settings_with(&redis).set("log.level", "debug")).await;
    shop.orders_due_in(1..=100, 1_500).await;
    shop.orders_due_in(101..=200, 3_600_000).await;
    let overlong = "order_".to_owned() + &"7".repeat(2_000);
    let no_orders: [&[u8]; 22] = [
        b"",
        b"order_",
        b"order",
        b"order_lock_77",
        b"order_007",
        b"order_+7",
        b"order_-0",
        b"order_ 7",
        b"order_7 ",
        b"order_7\n",
        b"order_7\0",
        b"order_7.0",
        b"order_1e2",
        b"order_0x7",
        b"order_9223372036854775808",
        b"order_-9223372036854775809",
        b"order_1 OR 1=1",
        b"order_\xff\xfe",
        b"\x00\xff\r\n$5\r\n",
        "order_７".as_bytes(),
        b"cart_7",
        overlong.as_bytes(),
    ];
    let (mut told, mut no_order, mut round) = (0, 0, 0);
    while shop.closed().await < 100 {
        for number in 1..=200 {
            told += redis.publish_expired(0, key(number).as_bytes());
            if number % 10 == 0 {
                for no in no_orders {
                    no_order += redis.publish_expired(0, no);
                }
                told += redis.publish_expired(3, key(number).as_bytes());
                told += redis.publish_expired(0, key(1_000_000 + number).as_bytes());
                told += redis.publish_expired(0, b"order_9223372036854775807");
                told += redis.publish_expired(0, b"order_-9223372036854775808");
            }
        }
        // They are all to be heard, and none lost because they come too fast.
        until_all_heard(&redis, &daemon, &format!("order_round_{round}")).await;
        (no_order, round) = (no_order + 1, round + 1);
    }
    daemon.stop().await;
    let outcome = shop.assert_outcome().await;
    assert_eq!((outcome.closed.len(), outcome.open.len()), (100, 100));
    assert_on_time(&outcome);
    let summary = daemon.summary();
    assert_eq!(summary.count("lost"), 0, "{summary:?}");
    assert_eq!(summary.count("ignored"), no_order.unsigned_abs(), "{summary:?}");
    assert_eq!(summary.count("heard"), (told + no_order).unsigned_abs(), "{summary:?}");
    assert!(summary.count("not_due") > 0 && summary.count("not_found") > 0, "{summary:?}");
    // Ids that can't be are dropped before the batch, which therefore never fails.
    assert_eq!(daemon.logged("batch failed"), 0);
    assert_eq!(summary.count("rejected"), 0, "{summary:?}");
}

/// Channels that match the pattern and are no database's, and messages where Redis never sends any.
#[tokio::test]
async fn channels_are_forged() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let daemon = listening(&by_notification_alone(shop.settings_with(&redis).set("log.level", "debug"))).await;
    shop.orders_due_in(1..=50, 1_500).await;
    shop.orders_due_in(51..=100, 3_600_000).await;
    shop.write_keys(&redis, 0).await;
    let channels: [&[u8]; 7] = [
        b"__keyevent@__:expired",
        b"__keyevent@x__:expired",
        b"__keyevent@-1__:expired",
        b"__keyevent@999999999999__:expired",
        b"__keyevent@\xff\x00__:expired",
        b"__keyevent@0__:del__:expired",
        b"__keyevent@0__:expired__:expired",
    ];
    let mut round = 0;
    while shop.closed().await < 50 {
        for channel in channels {
            for number in 1..=100 {
                redis.pipeline(&[vec![b"PUBLISH", channel, key(number).as_bytes()]]).expect("Redis answers");
            }
        }
        until_all_heard(&redis, &daemon, &format!("order_round_{round}")).await;
        round += 1;
    }
    daemon.stop().await;
    let outcome = shop.assert_outcome().await;
    assert_eq!((outcome.closed.len(), outcome.open.len()), (50, 50));
    assert_on_time(&outcome);
    assert_eq!(daemon.summary().count("expired"), 50, "real notifications still count");
}

/// Messages keep their order: once this last one, of a key that is no order, has been heard, all have.
async fn until_all_heard(redis: &Redis, daemon: &Daemon, last: &str) {
    assert_eq!(redis.publish_expired(0, last.as_bytes()), 1);
    daemon.until_logged(&format!("\"{last}\"")).await;
}
