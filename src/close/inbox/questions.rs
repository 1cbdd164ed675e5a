//! What the inbox has, and what it knows of orders: questions that change nothing.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use tokio::time::Instant;

use super::Inbox;
use crate::{
    close::{clearance::Why, lanes::Stage},
    order::OrderId,
};

/// What keeps an overdue order from closing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// Another transaction holds it, or what its closure needs.
    Held,
    /// The database has refused it, and it rests until its next try.
    Resting,
    /// It waits: its key contradicts its row, or somebody is asked about it.
    Waits(Why),
    /// It was given up.
    GivenUp,
}

impl Kept {
    /// What it is, for people.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Held => "another transaction holds it, or a row that its closure needs",
            Self::Resting => "the database has refused its closure, which is tried again",
            Self::Waits(why) => why.text(),
            Self::GivenUp => "it was given up",
        }
    }
}

/// The same of one order, with what is known besides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptBy {
    /// What keeps it.
    pub what: Kept,
    /// What its last try said.
    pub reason: Option<String>,
    /// How long it waits at the most, where that is known.
    pub left: Option<Duration>,
}

impl Inbox {
    /// How many ids wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        let state = self.lock();
        state.queued() + state.alone.len()
    }

    /// How many of them wait for nothing but a worker.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.lock().queued()
    }

    /// How many orders each lane has.
    #[must_use]
    pub fn lanes(&self) -> [(&'static str, usize); 5] {
        self.lock().lanes()
    }

    /// Whether so many different orders fail that no order can be closed.
    #[must_use]
    pub fn refuses_all(&self) -> bool {
        self.lock().trouble.next_probe().is_some()
    }

    /// How many orders another transaction holds, and since when the oldest of them.
    #[must_use]
    pub fn held(&self) -> Option<(usize, Duration)> {
        let state = self.lock();
        state.alone.held_since().map(|since| (state.alone.held(), since.elapsed()))
    }

    /// What keeps those of these orders from closing for which something does.
    #[must_use]
    pub fn kept(&self, ids: &HashSet<&OrderId>) -> HashMap<OrderId, Kept> {
        let state = self.lock();
        let kept = |id: &OrderId| match state.known.get(id)? {
            Stage::Held => Some(Kept::Held),
            Stage::Rejected => Some(Kept::Resting),
            Stage::Waits(place) => Some(Kept::Waits(state.waits.why(*place)?)),
            Stage::GivenUp(..) => Some(Kept::GivenUp),
            Stage::Hinted | Stage::Open | Stage::Settled(..) => None,
        };
        ids.iter().filter_map(|id| Some(((*id).clone(), kept(id)?))).collect()
    }

    /// What keeps this order from closing, if something does.
    #[must_use]
    pub fn kept_by(&self, id: &OrderId) -> Option<KeptBy> {
        let what = *self.kept(&HashSet::from([id])).get(id)?;
        let state = self.lock();
        let reason = state.alone.known(id).map(|waiting| waiting.reason.clone());
        let left = match state.known.get(id) {
            Some(Stage::Waits((until, _))) => Some(until.saturating_duration_since(Instant::now())),
            Some(Stage::Hinted | Stage::Open | Stage::Held | Stage::Rejected | Stage::Settled(..) | Stage::GivenUp(..)) | None => None,
        };
        Some(KeptBy { what, reason, left })
    }

    /// The orders that were tried in vain and wait for their next try, with the last try's reason; `true` for those that
    /// another transaction holds.
    #[must_use]
    pub fn left(&self) -> Vec<(OrderId, String, bool)> {
        let state = self.lock();
        state.alone.waiting().map(|waiting| (waiting.pending.id.clone(), waiting.reason.clone(), waiting.held)).collect()
    }
}
