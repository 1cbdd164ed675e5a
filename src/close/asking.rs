//! The way of orders about which somebody is to be asked before their batch: off the workers, so that a slow answer holds
//! up only whom it concerns.
//!
//! ```text
//!   a lane ──> worker: not known ──> to ask ──> asked, off the workers ──> cleared ──> the lane's next batch
//!                                                        └─> waits, until its time has come or its row has changed
//! ```
//!
//! Facts and hints are asked about apart, and only so many of each at a time: what waits for answers stays in its lane.

use std::{collections::VecDeque, sync::Arc};

use tokio_util::sync::CancellationToken;

use crate::{
    close::{
        Pending,
        clearance::{Clearance, Sorted},
        gate::Gate,
        inbox::Inbox,
    },
    order::Trigger,
    watchdog,
};

/// How many tasks ask at the same time.
pub(super) const ASKERS: usize = 4;

/// How many orders are asked about at once.
const AT_ONCE: usize = 1_000;

/// So many of a lane's orders may be on this way.
const ON_THE_WAY: usize = 4_000;

/// The orders of one kind that are on this way.
#[derive(Debug, Default)]
pub(super) struct OnTheWay {
    to_ask: VecDeque<Pending>,
    asking: usize,
    cleared: VecDeque<Pending>,
}

impl OnTheWay {
    pub(super) fn queued(&self) -> usize {
        self.to_ask.len() + self.cleared.len()
    }

    /// Whether more would only wait here instead of in their lane.
    pub(super) fn is_full(&self) -> bool {
        self.queued() + self.asking >= ON_THE_WAY
    }

    pub(super) fn has_cleared(&self) -> bool {
        !self.cleared.is_empty()
    }

    pub(super) fn take_cleared(&mut self, max: usize) -> Vec<Pending> {
        self.cleared.drain(..self.cleared.len().min(max)).collect()
    }
}

/// The orders on this way.
#[derive(Debug, Default)]
pub(super) struct Asking {
    pub(super) facts: OnTheWay,
    pub(super) hints: OnTheWay,
    /// Whether hints had the last turn.
    hints_last: bool,
}

impl Asking {
    fn of(&mut self, pending: &Pending) -> &mut OnTheWay {
        if pending.trigger == Trigger::Expired { &mut self.hints } else { &mut self.facts }
    }

    pub(super) fn add(&mut self, orders: Vec<Pending>) {
        for pending in orders {
            self.of(&pending).to_ask.push_back(pending);
        }
    }

    /// The next orders to ask about, facts and hints in turn.
    pub(super) fn next(&mut self) -> Vec<Pending> {
        let hints_first = !self.hints_last;
        for hints in [hints_first, !hints_first] {
            let way = if hints { &mut self.hints } else { &mut self.facts };
            if !way.to_ask.is_empty() {
                self.hints_last = hints;
                let batch: Vec<Pending> = way.to_ask.drain(..way.to_ask.len().min(AT_ONCE)).collect();
                way.asking += batch.len();
                return batch;
            }
        }
        Vec::new()
    }

    /// Somebody was asked about these.
    pub(super) fn asked<'a>(&mut self, orders: impl Iterator<Item = &'a Pending>) {
        for pending in orders {
            let way = self.of(pending);
            way.asking = way.asking.saturating_sub(1);
        }
    }

    pub(super) fn clear(&mut self, orders: Vec<Pending>) {
        for pending in orders {
            self.of(&pending).cleared.push_back(pending);
        }
    }
}

/// Asks about one batch after the other, until the inbox is closed.
pub(super) async fn ask(inbox: Arc<Inbox>, clearance: Arc<dyn Clearance>, gate: Arc<Gate>, stop: CancellationToken) {
    while let Some(batch) = watchdog::waiting(inbox.take_to_ask()).await {
        if watchdog::waiting(stop.run_until_cancelled(gate.pass(0))).await.is_none() {
            return;
        }
        inbox.asked(Sorted::by_asking(clearance.as_ref(), batch).await);
    }
}
