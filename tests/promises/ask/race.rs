//! Payments that race the question.

use super::*;

/// Customers pay around the deadline, half of the callbacks are lost, and the receiver is stopped, hangs and talks nonsense
/// meanwhile: no order closes whose money was taken, and none stays open that was not paid.
async fn payments_race_the_question(kind: Kind, count: i64) {
    let (redis, till) = (Redis::start(), Till::start().await);
    let (shop, settings) = shop_that_asks(kind, &redis, &till, "timeout = '150ms'\nahead = '0s'\nbatch = 20").await;
    till.provide();
    let daemon = listening(&settings).await;
    let seconds = 3 + count / 500;
    let deadlines: Vec<(i64, i64)> = (1..=count).map(|order| (order, 1_500 + order * 1_000 * seconds / count)).collect();
    shop.orders(&deadlines).await;
    shop.write_keys(&redis, 0).await;
    let began = tokio::time::Instant::now();
    let customers = deadlines.iter().filter(|(order, _)| order % 3 != 0).map(async |(order, due_in)| {
        let around = rand::random_range(-300..150);
        tokio::time::sleep_until(began + Duration::from_millis((due_in + around).unsigned_abs())).await;
        if till.pay(*order) && rand::random_bool(0.5) {
            shop.pay(*order).await;
        }
    });
    let nonsense = [
        Manner::Honest,
        Manner::Hang,
        Manner::Honest,
        Manner::Status(503),
        Manner::Honest,
        Manner::Drop,
        Manner::Honest,
        Manner::Body(r#"{"orders": {"0": "close", "1": "perhaps"}}"#.into()),
        Manner::Honest,
        Manner::Slow(Duration::from_millis(120)),
    ];
    let trouble = async {
        for manner in nonsense.iter().cycle() {
            till.is(manner.clone());
            tokio::time::sleep(Duration::from_millis(rand::random_range(50..400))).await;
        }
    };
    tokio::select! {
        _ = futures::future::join_all(customers) => {}
        () = trouble => {}
    }
    till.stop().await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    till.start_again().await;
    let taken = till.taken();
    let open = async || shop.statuses().await.into_iter().filter(|(order, status)| *status == UNPAID && !taken.contains(order)).count();
    wait::until_eq("the number of orders that were not paid and are open", 0, async || open().await).await;
    // Somebody finds out about the callbacks that were lost.
    let statuses = shop.statuses().await;
    for order in &taken {
        assert_ne!(statuses[order], CLOSED, "order {order} is closed, and its money was taken");
        shop.pay(*order).await;
    }
    daemon.stop().await;
    let outcome = shop.assert_outcome().await;
    assert_eq!(outcome.paid, taken);
    // How many of each kind there are depends on how busy the machine is.
    let some = usize::try_from(count / 20).unwrap();
    assert!(taken.len() > some && outcome.closed.len() > some, "{outcome:?}");
}

#[tokio::test]
async fn hundreds_of_payments_race_the_question() {
    payments_race_the_question(Kind::Postgres, 600).await;
}

#[tokio::test]
async fn thousands_of_payments_race_the_question() {
    for kind in [Kind::Postgres, Kind::MariaDb, Kind::Sqlite] {
        payments_race_the_question(kind, 3_000).await;
    }
}
