//! Orders about which somebody is asked first: they hold up nobody else, and wait until their time.

use std::time::Duration;

use order_closer::{
    close::{Clearance, Inbox, Leave, Offer, Pending, PutOff, Sorted, Why},
    order::Trigger,
};
use tokio::time::{Instant, advance};

use super::{due, found, hint, id, inbox, numbers, row, take};

/// Lets go of even numbers, and lets odd ones wait for a minute.
#[derive(Debug)]
struct EvenOnes;

#[async_trait::async_trait]
impl Clearance for EvenOnes {
    fn known(&self, orders: &[Pending]) -> Vec<Option<Leave>> {
        vec![None; orders.len()]
    }

    async fn ask(&self, orders: &[Pending]) -> Vec<Leave> {
        let even = |pending: &Pending| pending.id.as_str().parse::<u64>().expect("a number").is_multiple_of(2);
        let wait = Leave::Wait { until: Instant::now() + Duration::from_mins(1), why: Why::Disputed };
        orders.iter().map(|pending| if even(pending) { Leave::Go } else { wait }).collect()
    }
}

/// What a worker does with a batch of which nothing is known.
async fn put_off(inbox: &Inbox, max: usize) -> usize {
    let Sorted { ask, wait, .. } = Sorted::by_knowledge(&EvenOnes, inbox.take(max).await.expect("the inbox is open").orders);
    let count = ask.len();
    inbox.put_off(ask, wait);
    count
}

/// Takes orders to ask about, if there are any right now.
async fn to_ask(inbox: &Inbox) -> Option<Vec<Pending>> {
    tokio::time::timeout(Duration::ZERO, inbox.take_to_ask()).await.ok().flatten()
}

fn held(pending: Pending, time: Duration) -> PutOff {
    PutOff { pending, until: Instant::now() + time, why: Why::Disputed }
}

/// What is asked about holds up nobody else, goes on when it is cleared, and is asked about once.
#[tokio::test(start_paused = true)]
async fn orders_go_on_when_somebody_was_asked_about_them() {
    let inbox = inbox(100);
    for number in 1..=4 {
        found(&inbox, number);
    }
    assert_eq!(put_off(&inbox, 10).await, 4);
    assert_eq!(found(&inbox, 1), Offer::Known, "it is on its way");
    due(&inbox, [9]);
    assert_eq!(take(&inbox, 10).await, ["9"], "nobody has to be asked about that");
    let asked = to_ask(&inbox).await.expect("orders to ask about");
    inbox.asked(Sorted::by_asking(&EvenOnes, asked).await);
    let cleared = inbox.take(10).await.expect("the inbox is open").orders;
    assert_eq!(numbers(&cleared), ["2", "4"]);
    assert_eq!(Sorted::by_knowledge(&EvenOnes, cleared).ask.len(), 0, "they have passed");
    assert_eq!((inbox.waits(Why::Disputed), inbox.waiting()), (2, 0));
}

/// An order that waits is in no batch until its time has come, whoever speaks of it, unless its row has changed.
#[tokio::test(start_paused = true)]
async fn an_order_waits_until_its_time_or_until_its_row_changes() {
    let inbox = inbox(100);
    for number in 1..=3 {
        inbox.offer_found(&row(number, 7), Trigger::Sweep, Instant::now());
    }
    let batch = inbox.take(10).await.expect("the inbox is open").orders;
    inbox.put_off(Vec::new(), batch.into_iter().map(|pending| held(pending, Duration::from_mins(5))).collect());
    inbox.idle().await;
    assert_eq!(inbox.waits(Why::Disputed), 3);
    assert_eq!((hint(&inbox, 1), due(&inbox, [2])), (Offer::Known, Offer::Known));
    assert_eq!(inbox.offer_found(&row(3, 7), Trigger::Sweep, Instant::now()), Offer::Known);

    assert_eq!(inbox.offer_found(&row(3, 8), Trigger::Sweep, Instant::now()), Offer::Queued, "its row has changed");
    inbox.reopen(&id(2), Instant::now());
    assert_eq!(due(&inbox, [2]), Offer::Queued, "its row was no longer due");
    assert_eq!((take(&inbox, 10).await, take(&inbox, 10).await), (vec!["2".to_owned()], vec!["3".to_owned()]));
    assert_eq!(inbox.waits(Why::Disputed), 1);

    advance(Duration::from_mins(4)).await;
    assert!(to_ask(&inbox).await.is_none());
    assert_eq!(inbox.waiting(), 0, "its time has not come");
    advance(Duration::from_mins(1)).await;
    assert!(to_ask(&inbox).await.is_none());
    assert_eq!((take(&inbox, 10).await, inbox.waits(Why::Disputed)), (vec!["1".to_owned()], 0));
}

/// A crowd that waits for answers does not take the turns of others, and stays in its lane as far as it can.
#[tokio::test(start_paused = true)]
async fn only_so_many_are_asked_about_at_a_time() {
    let inbox = inbox(100_000);
    for number in 0..10_000 {
        found(&inbox, number);
    }
    let mut sorted = 0;
    while let Ok(count) = tokio::time::timeout(Duration::ZERO, put_off(&inbox, 1_000)).await {
        sorted += count;
    }
    assert_eq!(sorted, 4_000);
    assert_eq!(hint(&inbox, 20_001), Offer::Queued);
    assert_eq!(put_off(&inbox, 10).await, 1, "hints have room of their own");
    let asked = [to_ask(&inbox).await.expect("some"), to_ask(&inbox).await.expect("others")];
    assert!(asked.iter().any(|batch| batch.len() == 1), "and turns of their own");
    for batch in asked {
        inbox.asked(Sorted::by_asking(&EvenOnes, batch).await);
    }
    assert_eq!(take(&inbox, 1_000).await.len(), 500, "what was cleared goes before what is not known");
    assert_eq!(put_off(&inbox, 1_000).await, 1_000, "and others take its place");
}
