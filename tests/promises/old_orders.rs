//! Unpaid rows of long ago, which nobody has asked to be closed: they are counted, shown, and left alone.

use super::{listening, on_each_database};
use crate::support::{Kind, OneShot, Redis, Shop, daemon::Finished, order_closer, wait};

const DAY: i64 = 86_400_000;

on_each_database! {
    what_is_too_old_is_left_alone
}

async fn what_is_too_old_is_left_alone(kind: Kind) {
    let redis = Redis::start();
    let shop = Shop::open(kind).await;
    let settings = shop.settings_with(&redis);
    shop.orders_due_in(1..=10, -31 * DAY).await;
    shop.orders_due_in(11..=20, -29 * DAY).await;
    let daemon = listening(&settings).await;
    wait::until_eq("the number of closed orders", 10, async || shop.closed().await).await;
    // Heard of again, by a notification that anybody may have sent; followed by one that is due.
    for number in 1..=10 {
        redis.publish_expired(0, crate::support::shop::key(number).as_bytes());
    }
    shop.order(21, 500).await;
    redis.publish_expired(0, crate::support::shop::key(21).as_bytes());
    shop.until_status(21, 4).await;
    daemon.stop().await;
    let (overdue, older) = (daemon.said("orders are overdue"), daemon.said("left alone"));
    assert_eq!((overdue.len(), overdue[0]["orders"].as_u64()), (1, Some(10)), "{overdue:?}");
    assert_eq!((older.len(), older[0]["orders"].as_u64()), (1, Some(10)), "{older:?}");
    assert!(older[0]["fix"].as_str().is_some_and(|fix| fix.contains("reconcile --oldest none")), "{older:?}");
    assert!(overdue[0]["since"].as_str().is_some_and(|since| since > older[0]["since"].as_str().unwrap_or("9")), "{overdue:?}");

    // Cron mails whatever is printed, every time.
    let silent = order_closer(&settings, &["reconcile"]).await.expect_code(0);
    assert_eq!((silent.stdout.as_str(), silent.stderr.as_str()), ("", ""));
    let in_words = |finished: &Finished| finished.stdout.contains("10 orders have been overdue for longer than 30d");
    for arguments in [&["reconcile", "--verbose"], &["reconcile", "--dry-run"]] {
        let finished = order_closer(&settings, arguments).await.expect_code(0);
        assert!(in_words(&finished) && finished.stdout.contains("--oldest none"), "{finished:?}");
    }
    let finished = OneShot::with(&settings, &["reconcile"]).on_terminal().run().await;
    assert!(in_words(&finished), "{finished:?}");
    let report = order_closer(&settings, &["reconcile", "--json"]).await.expect_code(0).json();
    assert_eq!(report["left_alone"], 10);
    assert_eq!(shop.closed().await, 11);
    order_closer(&settings, &["close", "1"]).await.expect_code(0);
    assert_eq!(shop.closed().await, 12, "who asks for one means it");
    let report = order_closer(&settings, &["reconcile", "--oldest", "40d", "--limit", "4", "--json"]).await.expect_code(0).json();
    assert_eq!((report["closed"].as_u64(), report["left_alone"].as_u64()), (Some(4), Some(0)));
    order_closer(&settings, &["reconcile", "--oldest", "none"]).await.expect_code(0);
    assert_eq!(shop.assert_outcome().await.closed.len(), 21);
}

/// A filter that takes a tenth of a second for each row: nobody waits for the count, and that there is none is said.
#[tokio::test]
async fn what_can_not_be_counted_in_time_is_said() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    shop.orders_due_in(1..=25, -60_000).await;
    let daemon =
        listening(&shop.settings_with(&redis).set("orders.filter", "pg_sleep(0.1) IS NOT NULL").set("database.timeout", "10s")).await;
    daemon.until_logged("what is overdue could not be counted in time").await;
    wait::until_eq("the number of closed orders", 25, async || shop.closed().await).await;
    daemon.stop().await;
    assert_eq!(daemon.logged("orders are overdue, and will be closed now"), 0);
}
