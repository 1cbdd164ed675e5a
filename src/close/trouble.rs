//! Whose fault a failure is, told by outcomes alone: no error code tells an order that its database refuses from a
//! database that refuses every order.
//!
//! One or two orders that fail lose an attempt each, at once. When three different orders have failed since the last
//! closure, none of their failures counts until another order closes; then each counts once. Until then they are tried
//! one at a time, with growing pauses; an order that has not failed yet waits for none of them.
//!
//! Three orders that are to blame may well fail between two closures of others, so it is worth a word only when it lasts;
//! and only then are all tried at once when it is over.

use std::{collections::HashSet, time::Duration};

use tokio::time::Instant;

use crate::{close::reminder::Reminder, order::OrderId};

/// So many different orders that fail without a closure in between are not to blame.
const TOO_MANY: usize = 3;

/// What lasts no longer than this is not worth a word.
const WORTH_A_WORD: Duration = Duration::from_secs(1);

/// The pauses between two tries of orders that are not to blame.
const SHORTEST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The failures since the last closure.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    /// Different orders, as many as matter.
    failed: HashSet<OrderId>,
    /// While the orders that failed are not to blame: when one of them is tried next, and the pause after that.
    probes: Option<(Instant, Duration)>,
    since: Option<Instant>,
    said: Option<Reminder>,
}

/// What a failure means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blame {
    /// It is the order's own.
    Order,
    /// It may be everybody's.
    Everybodys,
    /// It may be everybody's, and that has lasted long enough to be said, each minute.
    EverybodysForAWhile,
}

/// What a closure ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// Nothing.
    Nothing,
    /// A while in which no failure counted, too short to matter.
    AMoment,
    /// Trouble of which was said that it had begun.
    Trouble,
}

impl Trouble {
    /// An order that was alone in its transaction has failed.
    pub(super) fn failed(&mut self, id: &OrderId, now: Instant) -> Blame {
        if let Some(since) = self.since {
            let is_worth_a_word = now - since >= WORTH_A_WORD && self.said.get_or_insert_default().is_due(now);
            return if is_worth_a_word { Blame::EverybodysForAWhile } else { Blame::Everybodys };
        }
        self.failed.insert(id.clone());
        if self.failed.len() < TOO_MANY {
            return Blame::Order;
        }
        self.since = Some(now);
        self.probes = Some((now + SHORTEST_PAUSE, SHORTEST_PAUSE));
        Blame::Everybodys
    }

    /// An order was closed.
    pub(super) fn closed(&mut self) -> Ended {
        let Self { probes, said, .. } = std::mem::take(self);
        match (probes, said) {
            (None, _) => Ended::Nothing,
            (Some(_), None) => Ended::AMoment,
            (Some(_), Some(_)) => Ended::Trouble,
        }
    }

    /// When one of the orders that failed may be tried; `None` when each has its own time.
    pub(super) fn next_probe(&self) -> Option<Instant> {
        self.probes.map(|(at, _)| at)
    }

    /// One of them is being tried.
    pub(super) fn probing(&mut self, now: Instant) {
        if let Some((at, pause)) = &mut self.probes {
            *pause = (*pause * 2).min(LONGEST_PAUSE);
            *at = now + *pause;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> OrderId {
        OrderId::from_database(&number.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn two_orders_are_to_blame_and_three_are_not() {
        let (mut trouble, now) = (Trouble::default(), Instant::now());
        for number in [1, 2, 1, 2, 1] {
            assert_eq!(trouble.failed(&id(number), now), Blame::Order);
        }
        assert_eq!(trouble.failed(&id(3), now), Blame::Everybodys);
        assert_eq!(trouble.failed(&id(1), now), Blame::Everybodys);
        assert_eq!(trouble.closed(), Ended::AMoment);
        assert_eq!(trouble.closed(), Ended::Nothing, "once");
        assert_eq!(trouble.failed(&id(1), now), Blame::Order);
    }

    #[tokio::test(start_paused = true)]
    async fn what_lasts_is_said_each_minute() {
        let (mut trouble, now) = (Trouble::default(), Instant::now());
        let said: Vec<u64> = (0..100)
            .filter(|tenth| trouble.failed(&id(3), now + Duration::from_millis(100 * tenth)) == Blame::EverybodysForAWhile)
            .collect();
        assert!(said.is_empty(), "one order alone is to blame");
        for number in [1, 2] {
            trouble.failed(&id(number), now);
        }
        let said =
            (0..1_500).filter(|tenth| trouble.failed(&id(3), now + Duration::from_millis(100 * tenth)) == Blame::EverybodysForAWhile);
        assert_eq!(said.collect::<Vec<u64>>(), [10, 610, 1_210]);
        assert_eq!(trouble.closed(), Ended::Trouble);
    }

    #[tokio::test(start_paused = true)]
    async fn a_closure_in_between_clears_the_database() {
        let (mut trouble, now) = (Trouble::default(), Instant::now());
        for number in 0..100 {
            assert_eq!(trouble.failed(&id(number), now), Blame::Order);
            trouble.closed();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn probes_come_ever_more_rarely_up_to_a_limit() {
        let mut trouble = Trouble::default();
        assert_eq!(trouble.next_probe(), None);
        for number in 0..3 {
            trouble.failed(&id(number), Instant::now());
        }
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let at = trouble.next_probe().expect("it is in trouble");
            pauses.push((at - Instant::now()).as_millis());
            tokio::time::advance(at - Instant::now()).await;
            trouble.probing(Instant::now());
        }
        assert_eq!(pauses, [200, 400, 800, 1_600, 3_200, 5_000, 5_000, 5_000]);
    }
}
