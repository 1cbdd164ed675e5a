//! How many orders are overdue, and why they are not closed: counted from outside, so that nothing that is stuck can keep
//! the count at what it was.

use std::{collections::HashSet, sync::Arc, time::Duration};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::{
    close::{Gate, Inbox, Kept, Why},
    config::{Live, Sweep},
    metric,
    order::OrderId,
    store::{Store, StoreError, Window},
    trigger::Pages,
};

/// How often, and for how long at the most.
const EVERY: Duration = Duration::from_secs(2);
const LIMIT: Duration = Duration::from_secs(5);

/// Counts end here.
const MOST: usize = 10_000;

/// How many orders are read at a time.
const PAGE: u32 = 1_000;

/// Old orders are counted so often.
const OLD_EVERY: Duration = Duration::from_mins(1);

/// What is overdue, by why it is not closed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Overdue {
    open: u64,
    held: u64,
    resting: u64,
    paused: u64,
    disputed: u64,
    asked: u64,
    dead: u64,
    /// For how long the oldest open one has been, in microseconds.
    oldest: i64,
}

/// Counts.
#[derive(Debug)]
pub struct Overdues {
    /// The orders.
    pub store: Arc<dyn Store>,
    /// What is known of them.
    pub inbox: Arc<Inbox>,
    /// Whether closing is paused.
    pub gate: Arc<Gate>,
    /// What has been overdue for longer is left alone.
    pub sweep: Live<Sweep>,
    /// When to stop.
    pub stop: CancellationToken,
}

impl Overdues {
    /// Counts again and again.
    pub async fn run(self) {
        let counting = async { tokio::join!(self.count_again_and_again(), self.count_old_ones()) };
        self.stop.run_until_cancelled(counting).await;
    }

    async fn count_again_and_again(&self) {
        loop {
            let began = Instant::now();
            match tokio::time::timeout(LIMIT, self.count()).await {
                Ok(Ok(overdue)) => overdue.publish(self.store.rule().as_str()),
                Ok(Err(error)) => debug!(%error, "overdue orders were not counted"),
                Err(_) => debug!(limit_s = LIMIT.as_secs(), "overdue orders were not counted in time"),
            }
            // A table that is slow is not made slower by being counted: a tenth of the time at the most.
            tokio::time::sleep(EVERY.max(began.elapsed() * 9)).await;
        }
    }

    async fn count(&self) -> Result<Overdue, StoreError> {
        let mut pages = Pages::of(self.store.as_ref(), Window::overdue(self.sweep.get().oldest.get()), PAGE);
        let (mut overdue, mut seen) = (Overdue::default(), 0);
        while let Some(page) = pages.next().await? {
            let ids: HashSet<&OrderId> = page.rows.iter().map(|row| &row.id).collect();
            let kept = self.inbox.kept(&ids);
            for row in &page.rows {
                match kept.get(&row.id) {
                    Some(Kept::Held) => overdue.held += 1,
                    Some(Kept::Resting) => overdue.resting += 1,
                    Some(Kept::Waits(Why::Disputed)) => overdue.disputed += 1,
                    Some(Kept::Waits(_)) => overdue.asked += 1,
                    Some(Kept::GivenUp) => overdue.dead += 1,
                    None if self.gate.is_shut() => overdue.paused += 1,
                    None => {
                        overdue.open += 1;
                        overdue.oldest = overdue.oldest.max(row.remaining().map_or(0, i64::saturating_neg));
                    }
                }
            }
            seen += page.rows.len();
            if seen >= MOST {
                break;
            }
        }
        Ok(overdue)
    }

    async fn count_old_ones(&self) {
        let mut sweep = self.sweep.clone();
        loop {
            match sweep.get().oldest.get() {
                None => metric::OVERDUE.set(0.0, &[self.store.rule().as_str(), "old"]),
                Some(oldest) => {
                    if let Ok(Ok(old)) = tokio::time::timeout(LIMIT, self.store.count(Window::older(oldest))).await {
                        metric::OVERDUE.set(old.orders.min(MOST as u64) as f64, &[self.store.rule().as_str(), "old"]);
                    }
                }
            }
            tokio::time::timeout(OLD_EVERY, sweep.changed()).await.unwrap_or_default();
        }
    }
}

impl Overdue {
    fn publish(&self, rule: &str) {
        let states = [
            ("open", self.open),
            ("held", self.held),
            ("resting", self.resting),
            ("paused", self.paused),
            ("disputed", self.disputed),
            ("asked", self.asked),
            ("dead", self.dead),
        ];
        for (state, orders) in states {
            metric::OVERDUE.set(orders as f64, &[rule, state]);
        }
        metric::OLDEST_OVERDUE.set(self.oldest as f64 / 1e6, &[rule]);
        metric::SAMPLED.now(&[rule]);
    }
}
