//! The inbox: bounded, each id once, a short memory, and rejected orders that rest.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use order_closer::{
    close::{Ending, Inbox, Offer},
    order::{OrderId, Trigger},
};
use proptest::prelude::*;

fn id(number: usize) -> OrderId {
    OrderId::from_database(&number.to_string())
}

async fn take(inbox: &Inbox, max: usize) -> Vec<String> {
    let batch = inbox.take(max).await.expect("the inbox is open");
    batch.into_iter().map(|pending| pending.id.to_string()).collect()
}

/// Whether somebody has asked for a sweep since the last time.
async fn sweep_was_wanted(inbox: &Inbox) -> bool {
    // A request waits for whoever comes, so a turn of the executor is enough to see it.
    tokio::time::timeout(Duration::from_millis(1), inbox.sweep_wanted()).await.is_ok()
}

#[tokio::test]
async fn an_id_is_held_once_until_it_is_settled_and_remembered_then() {
    let inbox = Inbox::new(10);
    assert_eq!(inbox.offer(&id(1), Trigger::Expired), Offer::Queued);
    assert_eq!(inbox.offer(&id(1), Trigger::Pacer), Offer::Known, "it is queued");
    assert_eq!(take(&inbox, 10).await, ["1"]);
    assert_eq!(inbox.offer(&id(1), Trigger::Sweep), Offer::Known, "it is in hand");
    inbox.finish(&id(1), Ending::Settled);
    assert_eq!(inbox.offer(&id(1), Trigger::Expired), Offer::Known, "it was just settled");
    assert_eq!(inbox.waiting(), 0);
}

#[tokio::test]
async fn what_the_table_shows_unpaid_overrides_an_older_memory_only() {
    let inbox = Inbox::new(10);
    let before = Instant::now();
    inbox.offer(&id(1), Trigger::Expired);
    take(&inbox, 1).await;
    inbox.finish(&id(1), Ending::Settled);
    assert_eq!(inbox.offer_found(&id(1), Trigger::Sweep, before), Offer::Known, "the table was read before the order was settled");
    assert_eq!(inbox.offer_found(&id(1), Trigger::Sweep, Instant::now()), Offer::Queued, "the order was opened again");
}

#[tokio::test]
async fn an_order_that_is_open_again_is_heard_of_again() {
    let inbox = Inbox::new(10);
    inbox.offer(&id(1), Trigger::Expired);
    take(&inbox, 1).await;
    inbox.finish(&id(1), Ending::Settled);
    inbox.reopen(&id(1), Instant::now());
    assert_eq!(inbox.offer(&id(1), Trigger::Expired), Offer::Queued);
}

#[tokio::test]
async fn a_full_inbox_refuses_and_asks_for_a_sweep() {
    let inbox = Inbox::new(2);
    for number in 1..=2 {
        assert_eq!(inbox.offer(&id(number), Trigger::Expired), Offer::Queued);
    }
    assert!(!sweep_was_wanted(&inbox).await);
    assert_eq!(inbox.offer(&id(3), Trigger::Expired), Offer::Full);
    assert!(sweep_was_wanted(&inbox).await);
    assert_eq!(take(&inbox, 1).await, ["1"]);
    inbox.space().await;
    assert_eq!(inbox.offer(&id(3), Trigger::Sweep), Offer::Queued);
}

#[tokio::test]
async fn a_crowd_is_queued_as_far_as_there_is_space() {
    let inbox = Inbox::new(3);
    inbox.offer(&id(2), Trigger::Expired);
    inbox.offer_all(&[id(1), id(2), id(3)], Trigger::Pacer);
    assert!(!sweep_was_wanted(&inbox).await);
    inbox.offer_all(&[id(4), id(1)], Trigger::Pacer);
    assert!(sweep_was_wanted(&inbox).await);
    assert_eq!(take(&inbox, 10).await, ["2", "1", "3"]);
}

#[tokio::test]
async fn a_rejected_order_rests_and_then_goes_alone() {
    let inbox = Inbox::new(10);
    inbox.offer(&id(1), Trigger::Expired);
    take(&inbox, 1).await;
    inbox.finish(&id(1), Ending::Resting { rejections: 1, since: Instant::now(), until: Some(Instant::now() + Duration::from_millis(20)) });
    assert_eq!(inbox.offer_found(&id(1), Trigger::Sweep, Instant::now()), Offer::Known, "it rests");
    let offered = async || {
        while inbox.offer(&id(1), Trigger::Sweep) != Offer::Queued {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), offered()).await.expect("its rest ends");
    inbox.offer(&id(2), Trigger::Expired);
    inbox.offer(&id(3), Trigger::Expired);
    let mut batches = BTreeSet::new();
    for _ in 0..2 {
        batches.insert(take(&inbox, 10).await);
    }
    assert_eq!(batches, BTreeSet::from([vec!["1".to_owned()], vec!["2".to_owned(), "3".to_owned()]]));
}

/// In a crowd, neighbours in the table go together; whoever comes later is not mixed in.
#[tokio::test]
async fn a_crowd_goes_in_the_order_of_ids() {
    let inbox = Inbox::new(100);
    for number in [100, 7, 30, 9, 10, 8] {
        inbox.offer(&id(number), Trigger::Expired);
    }
    assert_eq!(take(&inbox, 2).await, ["7", "8"]);
    inbox.offer(&id(1), Trigger::Expired);
    assert_eq!(take(&inbox, 2).await, ["9", "10"]);
    assert_eq!(take(&inbox, 3).await, ["30", "100", "1"]);
}

#[tokio::test]
async fn an_order_that_is_given_up_is_left_alone() {
    let inbox = Inbox::new(10);
    inbox.offer(&id(1), Trigger::Expired);
    take(&inbox, 1).await;
    inbox.finish(&id(1), Ending::Resting { rejections: 8, since: Instant::now(), until: None });
    assert_eq!(inbox.offer_found(&id(1), Trigger::Sweep, Instant::now()), Offer::Known);
}

#[tokio::test]
async fn rejected_orders_have_their_turn_under_load() {
    let inbox = Inbox::new(100);
    inbox.offer(&id(0), Trigger::Expired);
    take(&inbox, 1).await;
    inbox.finish(&id(0), Ending::Resting { rejections: 1, since: Instant::now(), until: Some(Instant::now()) });
    for number in 1..=50 {
        inbox.offer(&id(number), Trigger::Expired);
    }
    assert_eq!(inbox.offer(&id(0), Trigger::Sweep), Offer::Queued);
    let mut seen = Vec::new();
    while inbox.waiting() > 0 {
        seen.push(take(&inbox, 5).await);
    }
    let turn = seen.iter().position(|batch| *batch == ["0"]).expect("it was taken, and alone");
    assert!(turn < 5, "it came as batch {turn} of {}", seen.len());
}

#[tokio::test]
async fn closing_ends_every_worker() {
    let inbox = Arc::new(Inbox::new(10));
    let workers: Vec<_> = (0..3)
        .map(|_| {
            let inbox = Arc::clone(&inbox);
            tokio::spawn(async move { inbox.take(1).await })
        })
        .collect();
    inbox.close();
    for worker in workers {
        assert_eq!(tokio::time::timeout(Duration::from_secs(60), worker).await.expect("it ends").unwrap(), None);
    }
    assert_eq!(inbox.offer(&id(1), Trigger::Expired), Offer::Full);
}

#[derive(Debug, Clone)]
enum Step {
    Offer(usize),
    Take(usize),
    Finish(bool),
}

proptest! {
    /// Whatever happens in whatever order, an id is never in two places at once, the bound holds, and nobody
    /// is overtaken by more than two full inboxes.
    #[test]
    fn no_id_is_ever_held_twice(steps in prop::collection::vec(
        prop_oneof![(0_usize..8).prop_map(Step::Offer), (1_usize..4).prop_map(Step::Take), any::<bool>().prop_map(Step::Finish)],
        0..200,
    )) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let inbox = Inbox::new(4);
        // With the number of those taken before it was offered.
        let mut queued: Vec<(OrderId, usize)> = Vec::new();
        let mut taken = 0;
        let mut in_hand: Vec<OrderId> = Vec::new();
        for step in steps {
            match step {
                Step::Offer(number) => {
                    let known = queued.iter().any(|(queued, _)| *queued == id(number)) || in_hand.contains(&id(number));
                    match inbox.offer(&id(number), Trigger::Expired) {
                        Offer::Queued => {
                            prop_assert!(!known && queued.len() < 4);
                            queued.push((id(number), taken));
                        }
                        Offer::Full => prop_assert!(queued.len() == 4),
                        // Known also from the memory of settled ids.
                        Offer::Known => {}
                    }
                }
                Step::Take(max) if !queued.is_empty() => {
                    let batch = runtime.block_on(inbox.take(max)).unwrap();
                    prop_assert!(batch.len() == queued.len().min(max));
                    for pending in batch {
                        let place = queued.iter().position(|(id, _)| *id == pending.id);
                        let (id, offered) = queued.remove(place.expect("only what was queued is taken"));
                        prop_assert!(taken - offered < 2 * 4, "{id:?} waited while {} others were taken", taken - offered);
                        taken += 1;
                        in_hand.push(id);
                    }
                }
                Step::Finish(settled) if !in_hand.is_empty() => {
                    inbox.finish(&in_hand.remove(0), if settled { Ending::Settled } else { Ending::Forgotten });
                }
                Step::Take(_) | Step::Finish(_) => {}
            }
            prop_assert_eq!(inbox.waiting(), queued.len());
        }
    }
}

#[tokio::test]
async fn an_order_that_is_rejected_is_so_since_its_first_rejection() {
    let inbox = Inbox::new(10);
    let soon = || Some(Instant::now());
    for number in [1, 2] {
        inbox.offer(&id(number), Trigger::Expired);
    }
    take(&inbox, 2).await;
    assert_eq!(inbox.rejected_since(&id(1)), None);
    inbox.finish(&id(1), Ending::Resting { rejections: 1, since: Instant::now(), until: soon() });
    let since = inbox.rejected_since(&id(1));
    assert!(since.is_some() && !inbox.rejects_others(&id(1)) && inbox.rejects_others(&id(2)));
    inbox.offer(&id(1), Trigger::Expired);
    take(&inbox, 1).await;
    assert!(inbox.rejects_others(&id(2)), "also while it is in hand");
    inbox.finish(&id(1), Ending::Resting { rejections: 2, since: Instant::now(), until: soon() });
    assert_eq!(inbox.rejected_since(&id(1)), since);
    // One that is given up, or closed, says nothing about others.
    inbox.offer(&id(1), Trigger::Expired);
    take(&inbox, 1).await;
    inbox.finish(&id(1), Ending::Resting { rejections: 3, since: Instant::now(), until: None });
    assert!(!inbox.rejects_others(&id(2)));
    inbox.finish(&id(2), Ending::Resting { rejections: 1, since: Instant::now(), until: soon() });
    inbox.finish(&id(2), Ending::Settled);
    assert!(!inbox.rejects_others(&id(1)));
}
