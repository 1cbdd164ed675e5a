//! The lane `alone`: what failed is tried by itself, held and rejected orders in turn, and whose fault a failure is.

use std::collections::BTreeSet;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_batch_that_fails_is_halved_until_its_orders_stand_alone() {
    let inbox = inbox(100);
    due(&inbox, 1..=8);
    let batch = inbox.take(8).await.expect("the inbox is open").orders;
    inbox.isolate(batch, false);
    let mut sizes = Vec::new();
    let mut closed_ones = Vec::new();
    while let Some(group) = alone(&inbox).await {
        sizes.push(group.len());
        if group.iter().any(|pending| pending.id == id(3)) {
            if let [one] = group.as_slice() {
                settle(&inbox, one.clone(), locked());
            } else {
                inbox.isolate(group, false);
            }
        } else {
            closed_ones.extend(group.iter().map(|pending| pending.id.clone()));
            assert_eq!(inbox.settle(group.into_iter().map(|pending| Looked { pending, outcome: closed() }).collect()), []);
        }
    }
    assert_eq!(sizes, [4, 2, 2, 1, 1, 4]);
    assert_eq!(closed_ones.len(), 7);
    assert_eq!(inbox.left(), [(id(3), "held".to_owned(), true)]);
}

/// A held order comes again and again, without growing pauses; the first that closes brings all others at once.
#[tokio::test(start_paused = true)]
async fn held_orders_are_tried_again_and_all_at_once_when_one_closes() {
    let inbox = inbox(100);
    for pending in suspects(&inbox, 1..=5).await {
        settle(&inbox, pending, locked());
    }
    for round in 0..20 {
        let began = Instant::now();
        for _ in 1..=5 {
            let (group, _) = inbox.take_alone().await.expect("the inbox is open");
            settle(&inbox, group[0].clone(), locked());
        }
        let pause = began.elapsed();
        assert!(pause <= Duration::from_millis(if round == 0 { 21 } else { 1_000 }), "round {round} took {pause:?}");
        assert!(round == 0 || pause >= Duration::from_millis(100), "round {round} took {pause:?}");
    }
    assert_eq!(inbox.held().map(|(orders, _)| orders), Some(5));
    let (first, _) = inbox.take_alone().await.expect("the inbox is open");
    let at = Instant::now();
    settle(&inbox, first[0].clone(), closed());
    let (group, _) = inbox.take_alone().await.expect("the inbox is open");
    assert_eq!((group.len(), at.elapsed()), (4, Duration::ZERO));
    for pending in group {
        settle(&inbox, pending, closed());
    }
    assert_eq!(inbox.held(), None);
}

/// Tries all that is held as it comes, in vain, for so long; says when it was said that orders are held for long, of how many, and
/// for how long they have been.
async fn held_for(inbox: &Inbox, time: Duration) -> Vec<(Duration, usize, Duration)> {
    let (began, mut said) = (Instant::now(), Vec::new());
    while began.elapsed() < time {
        let (group, _) = inbox.take_alone().await.expect("the inbox is open");
        for pending in group {
            for consequence in settle(inbox, pending, locked()) {
                let Consequence::HeldForLong { orders, time } = consequence else { panic!("{consequence:?}") };
                said.push((began.elapsed(), orders, time));
            }
        }
    }
    said
}

/// However many they are, and however often they are tried.
#[tokio::test(start_paused = true)]
async fn orders_that_are_held_for_minutes_are_spoken_of_every_other_minute() {
    const EVERY: Duration = Duration::from_mins(2);
    let inbox = inbox(100);
    for pending in suspects(&inbox, 1..=5).await {
        assert_eq!(settle(&inbox, pending, locked()), []);
    }
    let said = held_for(&inbox, Duration::from_mins(7)).await;
    assert_eq!(said.len(), 3, "{said:?}");
    for ((at, orders, time), nth) in said.iter().zip(1..) {
        assert_eq!(*orders, 5, "{said:?}");
        // The next try shows it, and that is a second away at the most; what was said before was as late.
        assert!((EVERY * nth..=EVERY * nth + Duration::from_secs(4)).contains(at), "{said:?}");
        assert!(time.abs_diff(*at) < Duration::from_secs(1), "{said:?}");
    }
    // Those that are held for a moment, one after the other, are not spoken of.
    while inbox.held().is_some() {
        let (group, _) = inbox.take_alone().await.expect("the inbox is open");
        for pending in group {
            settle(&inbox, pending, closed());
        }
    }
    for round in 0..10 {
        for pending in suspects(&inbox, [100 + round]).await {
            settle(&inbox, pending, locked());
        }
        assert_eq!(held_for(&inbox, Duration::from_mins(1)).await, [], "round {round}");
        let (group, _) = inbox.take_alone().await.expect("the inbox is open");
        for pending in group {
            settle(&inbox, pending, closed());
        }
    }
}

/// However many orders fail, and are to be tried apart, those that are held are tried meanwhile.
#[tokio::test(start_paused = true)]
async fn held_orders_wait_for_no_crowd_of_others() {
    let inbox = inbox(10_000);
    let held = suspects(&inbox, [1]).await.remove(0);
    settle(&inbox, held, locked());
    // Two that fail beside others that close, time and again.
    for number in 10..500 {
        for pending in suspects(&inbox, [number]).await {
            settle(&inbox, pending, rejected());
        }
        let good = suspects(&inbox, [10_000 + number]).await.remove(0);
        settle(&inbox, good, closed());
    }
    due(&inbox, 1_000..2_000);
    let batch = inbox.take(1_000).await.expect("the inbox is open").orders;
    inbox.isolate(batch, true);
    // All that rest are to be tried again, and so is the held one.
    advance(Duration::from_secs(5)).await;
    let mut tries = Vec::new();
    for _ in 0..8 {
        let (group, _) = inbox.take_alone().await.expect("the inbox is open");
        tries.extend(numbers(&group).into_iter().map(|number| number.parse::<usize>().expect("a number")));
    }
    assert!(tries.contains(&1), "the held one: {tries:?}");
    assert!(tries.iter().any(|number| (10..500).contains(number)), "one that rested: {tries:?}");
    assert!(tries.iter().filter(|number| (1_000..2_000).contains(*number)).count() >= 4, "those that were not tried yet: {tries:?}");
}

/// What it has locked is held while it waits: not all the time.
#[tokio::test(start_paused = true)]
async fn one_held_order_in_five_seconds_waits_patiently() {
    let inbox = inbox(1_000);
    for pending in suspects(&inbox, 1..=200).await {
        settle(&inbox, pending, locked());
    }
    let mut patient: Vec<Instant> = Vec::new();
    let began = Instant::now();
    while began.elapsed() < Duration::from_mins(1) {
        let (group, wait) = inbox.take_alone().await.expect("the inbox is open");
        if wait == LockWait::Patiently {
            patient.push(Instant::now());
            advance(Duration::from_secs(1)).await;
        }
        settle(&inbox, group[0].clone(), locked());
    }
    assert!((8..=12).contains(&patient.len()), "{patient:?}");
    assert!(patient.windows(2).all(|pair| pair[1] - pair[0] >= Duration::from_secs(5)), "{patient:?}");
}

/// Those who need what it has locked are found held meanwhile, and are so no longer when it ends.
#[tokio::test(start_paused = true)]
async fn whoever_was_in_the_way_of_a_patient_try_is_tried_when_that_ends() {
    let inbox = inbox(1_000);
    let held = suspects(&inbox, [1]).await.remove(0);
    settle(&inbox, held, locked());
    let patient = loop {
        let (mut group, wait) = inbox.take_alone().await.expect("the inbox is open");
        let one = group.remove(0);
        if wait == LockWait::Patiently {
            break one;
        }
        settle(&inbox, one, locked());
    };
    advance(Duration::from_millis(900)).await;
    for pending in suspects(&inbox, [2, 3]).await {
        settle(&inbox, pending, locked());
    }
    for _ in 0..2 {
        let (group, _) = inbox.take_alone().await.expect("the inbox is open");
        settle(&inbox, group[0].clone(), locked());
    }
    settle(&inbox, patient, locked());
    let ended = Instant::now();
    let (group, _) = inbox.take_alone().await.expect("the inbox is open");
    // The pauses after which they would have been tried are drawn.
    assert_eq!(group.iter().map(|pending| pending.id.clone()).collect::<BTreeSet<_>>(), [id(2), id(3)].into());
    assert_eq!(ended.elapsed(), Duration::ZERO);
}

/// What keeps an order from closing is known also while it is tried once more.
#[tokio::test(start_paused = true)]
async fn what_is_tried_again_is_kept_still() {
    let inbox = inbox(100);
    let [held, refused]: [Pending; 2] = suspects(&inbox, [1, 2]).await.try_into().expect("two orders");
    settle(&inbox, held, locked());
    settle(&inbox, refused, rejected());
    let (one, two) = (id(1), id(2));
    let kept = || inbox.kept(&[&one, &two].into());
    let both = std::collections::HashMap::from([(id(1), Kept::Held), (id(2), Kept::Resting)]);
    assert_eq!(kept(), both);
    let mut in_hand = Vec::new();
    while in_hand.len() < 2 {
        in_hand.extend(inbox.take_alone().await.expect("the inbox is open").0);
    }
    assert_eq!(kept(), both, "both are tried just now");
    assert_eq!(inbox.kept_by(&one).and_then(|kept| kept.reason), Some("held".into()));
}

#[tokio::test(start_paused = true)]
async fn a_rejected_order_rests_ever_longer_and_is_given_up() {
    let inbox = inbox(100);
    let one = suspects(&inbox, [1]).await.remove(0);
    let Some(Consequence::Retried { attempts: 1, pause, .. }) = settle(&inbox, one, rejected()).pop() else { panic!("it is tried again") };
    assert!(pause >= Duration::from_secs(1), "{pause:?}");
    assert_eq!(found(&inbox, 1), Offer::Known, "it rests");
    assert!(alone(&inbox).await.is_none());
    let began = Instant::now();
    let (group, _) = inbox.take_alone().await.expect("the inbox is open");
    assert!(began.elapsed() >= pause);
    assert_eq!(group[0].attempts, 1);
    let again = settle(&inbox, group[0].clone(), rejected());
    assert!(matches!(again.as_slice(), [Consequence::Retried { attempts: 2, .. }]), "{again:?}");
    let (group, _) = inbox.take_alone().await.expect("the inbox is open");
    let last = settle(&inbox, group[0].clone(), rejected());
    let [Consequence::GivenUp(dead)] = last.as_slice() else { panic!("{last:?}") };
    assert_eq!(dead.attempts, 3);
    assert_eq!(found(&inbox, 1), Offer::Known, "it is in hand until it is given up");
    inbox.given_up(dead, false);
    assert_eq!(found(&inbox, 1), Offer::Known);
    advance(Duration::from_hours(25)).await;
    assert_eq!(found(&inbox, 1), Offer::Queued, "everything has an end by the clock");
}

/// Without our tables, too, it closes for another deadline than the one for which that was undone.
#[tokio::test(start_paused = true)]
async fn an_order_whose_closure_was_undone_waits_for_another_deadline() {
    let inbox = inbox(100);
    let undone = |deadline| {
        assert_eq!(inbox.offer_found(&row(1, deadline), Trigger::Sweep, Instant::now()), Offer::Queued);
    };
    undone(0);
    let pending = inbox.take(1).await.expect("the inbox is open").orders.remove(0);
    let said = settle(&inbox, pending, Outcome::Undone);
    let [Consequence::GivenUp(dead)] = said.as_slice() else { panic!("{said:?}") };
    inbox.given_up(dead, false);
    assert_eq!((found(&inbox, 1), hint(&inbox, 1)), (Offer::Known, Offer::Known));
    undone(7);
}

/// Without our tables nothing else keeps it from being closed again and again: it rests for as long as its row is found unpaid.
#[tokio::test(start_paused = true)]
async fn an_order_whose_closure_was_undone_rests_for_days() {
    let inbox = inbox(100);
    assert_eq!(found(&inbox, 1), Offer::Queued);
    let one = inbox.take(1).await.expect("the inbox is open").orders.remove(0);
    let said = settle(&inbox, one, Outcome::Undone);
    let [Consequence::GivenUp(dead)] = said.as_slice() else { panic!("{said:?}") };
    inbox.given_up(dead, false);
    for hour in 0..72 {
        advance(Duration::from_hours(1)).await;
        assert_eq!(found(&inbox, 1), Offer::Known, "in hour {hour}");
        // Memories end when others are settled.
        let other = suspects(&inbox, [2 + hour]).await.remove(0);
        settle(&inbox, other, closed());
    }
    advance(Duration::from_hours(25)).await;
    assert_eq!(found(&inbox, 1), Offer::Queued, "everything has an end by the clock");
}

/// One that was paid meanwhile is found out by its next try, whoever has paid it.
#[tokio::test(start_paused = true)]
async fn a_rejected_order_that_was_paid_is_forgotten() {
    let inbox = inbox(100);
    let one = suspects(&inbox, [1]).await.remove(0);
    settle(&inbox, one, rejected());
    let (group, _) = inbox.take_alone().await.expect("the inbox is open");
    settle(&inbox, group[0].clone(), Outcome::Settled { status: Some("1".into()) });
    assert_eq!((inbox.waiting(), inbox.left()), (0, Vec::new()));
}

/// When nothing closes any more, no order is to blame, however often it fails, which is said about each minute; and all are tried
/// at once when one closes.
#[tokio::test(start_paused = true)]
async fn what_all_orders_suffer_is_no_orders_fault() {
    let inbox = inbox(1_000);
    let mut said = Vec::new();
    for pending in suspects(&inbox, 1..=50).await {
        said.extend(settle(&inbox, pending, rejected()));
    }
    assert_eq!(said.iter().filter(|one| matches!(one, Consequence::Retried { .. })).count(), 2, "{said:?}");
    let began = Instant::now();
    let mut tries = 0;
    while began.elapsed() < Duration::from_mins(10) {
        let (group, _) = inbox.take_alone().await.expect("the inbox is open");
        said.extend(settle(&inbox, group[0].clone(), rejected()));
        tries += 1;
    }
    let minutes = said.iter().filter(|one| matches!(one, Consequence::AllRefused(_))).count();
    assert!((9..=10).contains(&minutes), "{said:?}");
    assert_eq!(said.len(), 2 + minutes, "{said:?}");
    assert!((100..200).contains(&tries), "{tries} tries in ten minutes");
    // One that has not failed yet waits for none of them.
    let fresh = suspects(&inbox, [99]).await.remove(0);
    let said = settle(&inbox, fresh, closed());
    assert!(matches!(said.as_slice(), [Consequence::Recovered]), "{said:?}");
    let at = Instant::now();
    while inbox.waiting() > 0 {
        let (group, _) = inbox.take_alone().await.expect("the inbox is open");
        for pending in group {
            assert!(pending.attempts <= 2, "each failure has counted once: {pending:?}");
            assert_eq!(settle(&inbox, pending, closed()), []);
        }
    }
    assert!(at.elapsed() < Duration::from_secs(5), "{:?}", at.elapsed());
    assert_eq!(inbox.waiting(), 0);
}

/// Three orders that are refused for their own sake end, since others close.
#[tokio::test(start_paused = true)]
async fn orders_that_are_to_blame_are_given_up_while_others_close() {
    let inbox = inbox(1_000);
    for pending in suspects(&inbox, 1..=10).await {
        settle(&inbox, pending, rejected());
    }
    let (mut given_up, mut next) = (0, 100);
    for _ in 0..200 {
        while let Some(group) = alone(&inbox).await {
            for consequence in settle(&inbox, group[0].clone(), rejected()) {
                if let Consequence::GivenUp(dead) = consequence {
                    inbox.given_up(&dead, true);
                    given_up += 1;
                }
            }
        }
        due(&inbox, [next]);
        let batch = inbox.take(1).await.expect("the inbox is open").orders;
        for consequence in settle(&inbox, batch[0].clone(), closed()) {
            if let Consequence::GivenUp(dead) = consequence {
                inbox.given_up(&dead, true);
                given_up += 1;
            }
        }
        next += 1;
        advance(Duration::from_secs(1)).await;
    }
    assert_eq!((given_up, inbox.waiting()), (10, 0));
}

#[tokio::test(start_paused = true)]
async fn an_order_whose_closure_was_undone_is_given_up_at_once() {
    let inbox = inbox(10);
    due(&inbox, [1]);
    let batch = inbox.take(1).await.expect("the inbox is open").orders;
    let said = settle(&inbox, batch[0].clone(), Outcome::Undone);
    assert!(matches!(said.as_slice(), [Consequence::GivenUp(dead)] if dead.error.contains("undone")), "{said:?}");
}
