//! Looks that somebody waits for: whoever brought the hint hears once what it has shown, whoever brings the order to its look.

use order_closer::close::{Look, Seen};
use tokio::sync::oneshot;

use super::*;

fn look(inbox: &Inbox, number: usize) -> Look {
    inbox.look_at(&id(number), Trigger::Hint)
}

fn awaited(inbox: &Inbox, number: usize) -> oneshot::Receiver<Seen> {
    match look(inbox, number) {
        Look::Awaited(look) => look,
        other => panic!("{other:?}"),
    }
}

fn taken(inbox: &Inbox, number: usize) -> Seen {
    match look(inbox, number) {
        Look::Taken(seen) => seen,
        other => panic!("{other:?}"),
    }
}

async fn in_hand(inbox: &Inbox) -> Pending {
    let mut orders = inbox.take(1).await.expect("the inbox is open").orders;
    assert_eq!(orders.len(), 1);
    orders.remove(0)
}

#[tokio::test(start_paused = true)]
async fn each_ending_is_told() {
    let inbox = inbox(100);
    let endings = [
        (closed(), Seen::Closed),
        (Outcome::Settled { status: None }, Seen::Settled),
        (Outcome::NotFound, Seen::NotFound),
        (Outcome::NotDue { remaining: None }, Seen::NotDue),
        (locked(), Seen::Waits),
        (rejected(), Seen::Waits),
        (Outcome::Undone, Seen::Waits),
    ];
    for (number, (outcome, seen)) in endings.into_iter().enumerate() {
        let mut look = awaited(&inbox, number);
        let order = in_hand(&inbox).await;
        assert!(look.try_recv().is_err(), "nobody has looked yet");
        settle(&inbox, order, outcome);
        assert_eq!(look.try_recv(), Ok(seen));
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_the_same_order_hears_the_same() {
    let inbox = inbox(100);
    let (mut one, mut other) = (awaited(&inbox, 1), awaited(&inbox, 1));
    // The table tells of it, too, and a batch of the table's is looked at.
    assert_eq!(due(&inbox, [1]), Offer::Queued);
    let order = in_hand(&inbox).await;
    let mut late = awaited(&inbox, 1);
    // It has to pass once more, and is looked at again: that is no look.
    settle(&inbox, order, Outcome::Unasked);
    assert!(one.try_recv().is_err());
    settle(&inbox, in_hand(&inbox).await, closed());
    for look in [&mut one, &mut other, &mut late] {
        assert_eq!(look.try_recv(), Ok(Seen::Closed));
    }
    assert_eq!(taken(&inbox, 1), Seen::Settled, "a moment ago");
}

#[tokio::test(start_paused = true)]
async fn what_is_held_or_rejected_keeps_nobody_waiting() {
    let inbox = inbox(100);
    let mut look = awaited(&inbox, 1);
    settle(&inbox, in_hand(&inbox).await, locked());
    assert_eq!((look.try_recv(), taken(&inbox, 1)), (Ok(Seen::Waits), Seen::Waits));
    // A batch that failed together says nothing of its orders.
    let mut look = awaited(&inbox, 2);
    let order = in_hand(&inbox).await;
    inbox.isolate(vec![order], true);
    assert!(look.try_recv().is_err());
    let order = alone(&inbox).await.expect("it is tried at once").remove(0);
    settle(&inbox, order, rejected());
    assert_eq!((look.try_recv(), taken(&inbox, 2)), (Ok(Seen::Waits), Seen::Waits));
}

#[tokio::test(start_paused = true)]
async fn what_there_is_no_space_for_is_to_be_offered_again() {
    // A quarter of it is for hints.
    let inbox = inbox(4);
    let _first = awaited(&inbox, 1);
    assert!(matches!(look(&inbox, 2), Look::Full));
    settle(&inbox, in_hand(&inbox).await, closed());
    let _second = awaited(&inbox, 2);
    inbox.close();
    assert!(matches!(look(&inbox, 3), Look::Full));
}
