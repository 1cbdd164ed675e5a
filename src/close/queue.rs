//! A queue whose batches are neighbours in the table, and in which nobody is overtaken for long.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use crate::close::{Pending, Spare};

/// First in, first out, in runs: a run is all that had arrived when it began, so nobody waits for more than two. In a crowd
/// a run goes in the order of ids: neighbours share pages of the table, and a batch at random touches them all.
#[derive(Debug, Default)]
pub(super) struct Queue {
    run: VecDeque<Pending>,
    /// When the first of the run had arrived, at the latest.
    run_since: Option<Instant>,
    /// What has arrived since the run began, oldest first.
    arrived: VecDeque<(Instant, Pending)>,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.run.len() + self.arrived.len()
    }

    pub(super) fn push(&mut self, pending: Pending, now: Instant) {
        self.arrived.push_back((now, pending));
    }

    /// Takes up to `max` of those for which `is_wanted` holds; the others are dropped.
    pub(super) fn take(&mut self, max: usize, mut is_wanted: impl FnMut(&Pending) -> bool) -> Vec<Pending> {
        let mut batch = Vec::new();
        loop {
            while batch.len() < max
                && let Some(pending) = self.run.pop_front()
            {
                if is_wanted(&pending) {
                    batch.push(pending);
                }
            }
            self.run.spare();
            if batch.len() == max || self.arrived.is_empty() {
                return batch;
            }
            self.run_since = self.arrived.front().map(|(at, _)| *at);
            self.run = self.arrived.drain(..).map(|(_, pending)| pending).collect();
            self.arrived.spare();
            if self.run.len() > max {
                self.run.make_contiguous().sort_unstable_by(|one, other| one.id.cmp(&other.id));
            }
        }
    }

    /// Moves whatever has waited for longer than this to another queue.
    pub(super) fn age(&mut self, limit: Duration, now: Instant, older: &mut Self) {
        if self.run_since.is_some_and(|since| now - since > limit) {
            let run = self.run.drain(..);
            older.arrived.extend(run.map(|pending| (now, pending)));
            self.run_since = None;
        }
        while let Some((_, pending)) = self.arrived.pop_front_if(|(at, _)| now - *at > limit) {
            older.arrived.push_back((now, pending));
        }
    }
}
