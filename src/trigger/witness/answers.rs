//! What is remembered of keys.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use tokio::time::Instant;

use crate::{close::Spare, order::OrderId, trigger::witness::TOLERANCE};

/// For how long an answer is remembered beyond the moment for which it counts.
const AFTERWARDS: Duration = Duration::from_mins(1);

/// A key that expires so long before its row's deadline, in microseconds, was written for another one.
const EARLIER: i64 = 1_000_000;

/// How many answers are remembered; of more, those that end last.
const CAPACITY: usize = 200_000;

/// What Redis has said of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    /// There was none.
    Gone,
    /// It had no TTL.
    Never,
    /// It was to expire.
    Expires {
        /// In microseconds since 1970 UTC, by Redis' clock.
        at: i64,
        /// The same on this host's steady clock.
        until: Instant,
    },
}

impl Key {
    /// The moment at which it is to expire.
    pub(super) fn moment(self) -> Option<i64> {
        match self {
            Self::Expires { at, .. } => Some(at),
            Self::Gone | Self::Never => None,
        }
    }

    /// Whether it was written for an earlier deadline than this, as it seems.
    pub(super) fn is_of_an_earlier(self, deadline: i64) -> bool {
        self.moment().is_some_and(|at| at.saturating_add(EARLIER) < deadline)
    }

    /// Whether it contradicts a row with this deadline.
    pub(super) fn is_disputed(self, deadline: Option<i64>) -> bool {
        let tolerated = i64::try_from(TOLERANCE.as_micros()).unwrap_or(i64::MAX);
        matches!((self.moment(), deadline), (Some(at), Some(deadline)) if deadline.saturating_add(tolerated) < at)
    }
}

/// What was asked, and answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answer {
    /// The row's deadline when it was asked, where that was known.
    pub(super) deadline: Option<i64>,
    /// The key.
    pub(super) key: Key,
}

/// The answers, each until the clock says that it no longer counts.
#[derive(Debug, Default)]
pub(super) struct Answers {
    by_id: HashMap<OrderId, (Answer, Instant), foldhash::quality::RandomState>,
    ends: BTreeSet<(Instant, OrderId)>,
}

impl Answers {
    /// The answer for an order whose row has this deadline, or an unknown one.
    pub(super) fn get(&self, id: &OrderId, deadline: Option<i64>) -> Option<&Answer> {
        let (answer, _) = self.by_id.get(id)?;
        // A row that has changed has a key that may have changed; and so may one that nobody had read then.
        let is_of_another = deadline.is_some_and(|now| answer.deadline != Some(now));
        (!is_of_another).then_some(answer)
    }

    /// Remembers an answer for an order that is due after so long.
    pub(super) fn insert(&mut self, id: OrderId, answer: Answer, now: Instant, due_in: Duration) {
        let counts_until = match answer.key {
            Key::Expires { until, .. } if answer.key.is_disputed(answer.deadline) => until,
            Key::Gone | Key::Never | Key::Expires { .. } => now.checked_add(due_in).unwrap_or(now),
        };
        let end = counts_until.checked_add(AFTERWARDS).unwrap_or(counts_until);
        if let Some((_, before)) = self.by_id.insert(id.clone(), (answer, end)) {
            self.ends.remove(&(before, id.clone()));
        }
        self.ends.insert((end, id));
        while self.ends.len() > CAPACITY {
            self.drop_first();
        }
    }

    /// Drops what no longer counts.
    pub(super) fn expire(&mut self, now: Instant) {
        while self.ends.first().is_some_and(|(end, _)| *end <= now) {
            self.drop_first();
        }
        self.by_id.spare();
    }

    fn drop_first(&mut self) {
        if let Some((_, id)) = self.ends.pop_first() {
            self.by_id.remove(&id);
        }
    }
}
