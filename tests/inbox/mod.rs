//! The inbox: bounded, each id once, three lanes of which none holds up another, and memories that end by the clock.

mod alone;
mod asking;
mod looks;

use std::{sync::Arc, time::Duration};

use order_closer::{
    close::{Closed, Consequence, Inbox, Kept, Looked, Offer, Outcome, Pending},
    config::{Retry, Span},
    order::{OrderId, Row, Trigger},
    store::LockWait,
};
use proptest::prelude::*;
use tokio::time::{Instant, advance};

fn id(number: usize) -> OrderId {
    OrderId::from_database(&number.to_string())
}

/// A row that is overdue.
fn row(number: usize, deadline: i64) -> Row {
    Row { id: id(number), status: Some("0".into()), deadline: Some(deadline), now: deadline + 1, locked: false }
}

/// Three attempts, a second and two apart.
fn retry() -> Retry {
    Retry { attempts: 3, initial: Span::from_secs(1), max: Span::from_secs(2) }
}

fn inbox(capacity: usize) -> Inbox {
    Inbox::new(capacity, retry())
}

fn hint(inbox: &Inbox, number: usize) -> Offer {
    inbox.offer_hint(&id(number), Trigger::Expired)
}

fn due(inbox: &Inbox, numbers: impl IntoIterator<Item = usize>) -> Offer {
    let ids: Vec<OrderId> = numbers.into_iter().map(id).collect();
    inbox.offer_due(&ids, Trigger::Pacer)
}

fn found(inbox: &Inbox, number: usize) -> Offer {
    inbox.offer_found(&row(number, 0), Trigger::Sweep, Instant::now())
}

async fn take(inbox: &Inbox, max: usize) -> Vec<String> {
    let batch = inbox.take(max).await.expect("the inbox is open").orders;
    batch.into_iter().map(|pending| pending.id.to_string()).collect()
}

/// What the lane `alone` has right now.
async fn alone(inbox: &Inbox) -> Option<Vec<Pending>> {
    tokio::time::timeout(Duration::ZERO, inbox.take_alone()).await.ok().flatten().map(|(group, _)| group)
}

fn numbers(group: &[Pending]) -> Vec<&str> {
    group.iter().map(|pending| pending.id.as_str()).collect()
}

fn settle(inbox: &Inbox, pending: Pending, outcome: Outcome) -> Vec<Consequence> {
    inbox.settle(vec![Looked { pending, outcome }])
}

fn closed() -> Outcome {
    Outcome::Closed(Closed { lateness: Duration::ZERO, deadline: 0 })
}

fn locked() -> Outcome {
    Outcome::Locked { reason: "held".into() }
}

fn rejected() -> Outcome {
    Outcome::Rejected { reason: "refused".into() }
}

/// Brings these orders into the lane `alone`, and takes them from it.
async fn suspects(inbox: &Inbox, range: impl IntoIterator<Item = usize>) -> Vec<Pending> {
    due(inbox, range);
    let batch = inbox.take(1_000).await.expect("the inbox is open").orders;
    let count = batch.len();
    inbox.isolate(batch, true);
    let mut taken = Vec::new();
    while taken.len() < count {
        taken.extend(alone(inbox).await.expect("suspects are tried at once"));
    }
    taken
}

/// Whether somebody has asked for a sweep since the last time.
async fn sweep_was_wanted(inbox: &Inbox) -> bool {
    // A request waits for whoever comes, so a turn of the executor is enough to see it.
    tokio::time::timeout(Duration::from_millis(1), inbox.sweep_wanted()).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn an_id_is_held_once_until_it_is_settled_and_remembered_then() {
    let inbox = inbox(10);
    assert_eq!(hint(&inbox, 1), Offer::Queued);
    assert_eq!(hint(&inbox, 1), Offer::Known, "it is queued");
    let batch = inbox.take(10).await.expect("the inbox is open").orders;
    assert_eq!(found(&inbox, 1), Offer::Known, "it is in hand");
    settle(&inbox, batch[0].clone(), closed());
    assert_eq!(hint(&inbox, 1), Offer::Known, "it was just settled");
    assert_eq!(inbox.waiting(), 0);
    advance(Duration::from_mins(2)).await;
    assert_eq!(hint(&inbox, 1), Offer::Queued, "that is forgotten");
}

#[tokio::test(start_paused = true)]
async fn what_the_table_shows_unpaid_overrides_an_older_memory_only() {
    let inbox = inbox(10);
    let before = Instant::now();
    due(&inbox, [1]);
    let batch = inbox.take(1).await.expect("the inbox is open").orders;
    advance(Duration::from_millis(1)).await;
    settle(&inbox, batch[0].clone(), closed());
    assert_eq!(inbox.offer_found(&row(1, 0), Trigger::Sweep, before), Offer::Known, "the table was read before the order was settled");
    advance(Duration::from_millis(1)).await;
    assert_eq!(found(&inbox, 1), Offer::Queued, "the order was opened again");
}

#[tokio::test(start_paused = true)]
async fn an_order_that_is_open_again_is_heard_of_again() {
    let inbox = inbox(10);
    due(&inbox, [1]);
    let batch = inbox.take(1).await.expect("the inbox is open").orders;
    settle(&inbox, batch[0].clone(), closed());
    advance(Duration::from_millis(1)).await;
    inbox.reopen(&id(1), Instant::now());
    assert_eq!(hint(&inbox, 1), Offer::Queued);
}

#[tokio::test(start_paused = true)]
async fn a_full_inbox_refuses_and_asks_for_a_sweep() {
    let inbox = inbox(2);
    for number in 1..=2 {
        assert_eq!(due(&inbox, [number]), Offer::Queued);
    }
    assert!(!sweep_was_wanted(&inbox).await);
    assert_eq!(due(&inbox, [3]), Offer::Full);
    assert!(sweep_was_wanted(&inbox).await);
    assert_eq!(take(&inbox, 1).await, ["1"]);
    inbox.space().await;
    assert_eq!(found(&inbox, 3), Offer::Queued);
}

#[tokio::test(start_paused = true)]
async fn a_crowd_is_queued_as_far_as_there_is_space() {
    let inbox = inbox(3);
    due(&inbox, [2]);
    due(&inbox, [1, 2, 3]);
    assert!(!sweep_was_wanted(&inbox).await);
    due(&inbox, [4, 1]);
    assert!(sweep_was_wanted(&inbox).await);
    assert_eq!(take(&inbox, 10).await, ["2", "1", "3"]);
}

/// In a crowd, neighbours in the table go together; whoever comes later is not mixed in.
#[tokio::test(start_paused = true)]
async fn a_crowd_goes_in_the_order_of_ids() {
    let inbox = inbox(100);
    due(&inbox, [100, 7, 30, 9, 10, 8]);
    assert_eq!(take(&inbox, 2).await, ["7", "8"]);
    due(&inbox, [1]);
    assert_eq!(take(&inbox, 2).await, ["9", "10"]);
    assert_eq!(take(&inbox, 3).await, ["30", "100", "1"]);
}

/// Thousands of forged hints leave the facts their space and their turns.
#[tokio::test(start_paused = true)]
async fn a_flood_of_hints_holds_up_no_fact() {
    let inbox = inbox(100);
    let dropped = (1_000..2_000).filter(|number| hint(&inbox, *number) == Offer::Full).count();
    assert_eq!(dropped, 975, "hints have a limit of their own");
    assert!(!sweep_was_wanted(&inbox).await, "nobody knows of an order that is due");
    assert_eq!(due(&inbox, [1]), Offer::Queued);
    assert_eq!(found(&inbox, 2), Offer::Queued);
    assert_eq!(take(&inbox, 10).await, ["1"]);
    assert_eq!(take(&inbox, 10).await, ["2"]);
    assert_eq!(take(&inbox, 10).await.len(), 10, "and then the hints");
}

/// A worker is left for what falls due; when the crowd's is free, the next of it are handed out.
#[tokio::test(start_paused = true)]
async fn a_crowd_of_hints_has_one_worker_and_a_few_need_none() {
    let inbox = inbox(10_000);
    for number in 0..2_000 {
        hint(&inbox, number);
    }
    let first = inbox.take(1_000).await.expect("the inbox is open");
    assert!((1..=250).contains(&first.orders.len()), "a short batch");
    let mut second = std::pin::pin!(inbox.take(1_000));
    assert!(tokio::time::timeout(Duration::from_millis(1), &mut second).await.is_err(), "another is in hand");
    due(&inbox, [5_000]);
    assert_eq!(numbers(&second.await.expect("the inbox is open").orders), ["5000"]);
    let mut third = std::pin::pin!(inbox.take(1_000));
    assert!(tokio::time::timeout(Duration::from_millis(1), &mut third).await.is_err());
    drop(first);
    let third = third.await.expect("the inbox is open");
    assert_eq!(third.orders.len(), 250);
    drop(third);
    while !take(&inbox, 1_000).await.is_empty() && inbox.waiting() > 0 {}
    // A few.
    hint(&inbox, 9_001);
    let _one = inbox.take(1_000).await;
    hint(&inbox, 9_002);
    assert_eq!(take(&inbox, 1_000).await, ["9002"]);
}

#[tokio::test(start_paused = true)]
async fn every_lane_has_its_share() {
    let inbox = inbox(1_000);
    due(&inbox, 0..200);
    for number in 1_000..1_200 {
        found(&inbox, number);
        hint(&inbox, number + 1_000);
    }
    let mut shares = [0; 3];
    for _ in 0..40 {
        let batch = take(&inbox, 1).await;
        shares[batch[0].parse::<usize>().expect("a number") / 1_000] += 1;
    }
    assert!(shares[0] >= 25, "what is due now goes first: {shares:?}");
    assert!(shares[1] >= 8 && shares[2] >= 4, "{shares:?}");
}

/// What waited out an outage is no longer what falls due now.
#[tokio::test(start_paused = true)]
async fn what_falls_due_goes_before_what_has_waited() {
    let inbox = inbox(1_000);
    due(&inbox, 1..=500);
    assert_eq!(take(&inbox, 1).await, ["1"], "a run has begun");
    advance(Duration::from_secs(1)).await;
    due(&inbox, [900]);
    assert_eq!(take(&inbox, 10).await, ["900"]);
    assert_eq!(take(&inbox, 10).await.len(), 10);
}

/// A row that was read is worth more than a hint, which is forgotten then.
#[tokio::test(start_paused = true)]
async fn a_fact_overtakes_the_hint_of_its_order() {
    let inbox = inbox(100);
    hint(&inbox, 1);
    hint(&inbox, 2);
    assert_eq!(due(&inbox, [2]), Offer::Queued);
    assert_eq!(due(&inbox, [2]), Offer::Known);
    assert_eq!(take(&inbox, 10).await, ["2"]);
    assert_eq!(take(&inbox, 10).await, ["1"], "each once");
    assert_eq!(inbox.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn it_is_idle_when_each_order_was_tried() {
    let inbox = Arc::new(inbox(10));
    inbox.idle().await;
    due(&inbox, [1, 2]);
    let batch = inbox.take(2).await.expect("the inbox is open").orders;
    let waiting = tokio::spawn({
        let inbox = Arc::clone(&inbox);
        async move { inbox.idle().await }
    });
    inbox.isolate(batch, true);
    for outcome in [locked(), closed()] {
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        let group = alone(&inbox).await.expect("a suspect");
        assert_eq!(numbers(&group).len(), 1);
        settle(&inbox, group[0].clone(), outcome);
    }
    // The held one waits for its next try, and was tried.
    tokio::time::timeout(Duration::from_millis(1), waiting).await.expect("it is idle").expect("no panic");
}

#[tokio::test]
async fn closing_ends_every_worker() {
    let inbox = Arc::new(inbox(10));
    let workers: Vec<_> = (0..3)
        .map(|_| {
            let inbox = Arc::clone(&inbox);
            tokio::spawn(async move { inbox.take(1).await })
        })
        .collect();
    inbox.close();
    for worker in workers {
        assert!(tokio::time::timeout(Duration::from_secs(60), worker).await.expect("it ends").unwrap().is_none());
    }
    assert_eq!(hint(&inbox, 1), Offer::Full);
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
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let _entered = runtime.enter();
        let inbox = inbox(4);
        // With the number of those taken before it was offered.
        let mut queued: Vec<(OrderId, usize)> = Vec::new();
        let mut taken = 0;
        let mut in_hand: Vec<Pending> = Vec::new();
        for step in steps {
            match step {
                Step::Offer(number) => {
                    let known = queued.iter().any(|(queued, _)| *queued == id(number)) || in_hand.iter().any(|held| held.id == id(number));
                    match due(&inbox, [number]) {
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
                    let batch = runtime.block_on(inbox.take(max)).unwrap().orders;
                    prop_assert!(batch.len() == queued.len().min(max));
                    for pending in batch {
                        let place = queued.iter().position(|(id, _)| *id == pending.id);
                        let (id, offered) = queued.remove(place.expect("only what was queued is taken"));
                        prop_assert!(taken - offered < 2 * 4, "{id:?} waited while {} others were taken", taken - offered);
                        taken += 1;
                        in_hand.push(pending);
                    }
                }
                Step::Finish(settled) if !in_hand.is_empty() => {
                    let outcome = if settled { Outcome::NotFound } else { Outcome::NotDue { remaining: None } };
                    settle(&inbox, in_hand.remove(0), outcome);
                }
                Step::Take(_) | Step::Finish(_) => {}
            }
            prop_assert_eq!(inbox.waiting(), queued.len());
        }
    }
}

/// What has failed under the old ones goes on under the new ones.
#[tokio::test(start_paused = true)]
async fn retries_change_while_orders_wait() {
    let inbox = inbox(10);
    found(&inbox, 1);
    let batch = inbox.take(1).await.expect("the inbox is open").orders;
    settle(&inbox, batch[0].clone(), rejected());
    inbox.set_retry(Retry { attempts: 2, ..retry() });
    advance(Duration::from_secs(2)).await;
    let group = alone(&inbox).await.expect("its time has come");
    let last = settle(&inbox, group[0].clone(), rejected());
    assert!(matches!(last.as_slice(), [Consequence::GivenUp(dead)] if dead.attempts == 2), "{last:?}");
}
