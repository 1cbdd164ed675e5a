//! How many orders are overdue, and why they are not closed: counted from outside, so that nothing that is stuck can keep
//! the count at what it was.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};
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
const MOST: u64 = 10_000;

/// How many orders are read at a time.
const PAGE: u32 = 1_000;

/// Old orders are counted so often.
const OLD_EVERY: Duration = Duration::from_mins(1);

/// What is overdue, by why it is not closed. Counts end at 10,000.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Overdue {
    /// Nothing known is in the way.
    pub open: u64,
    /// Another transaction holds them.
    pub held: u64,
    /// Refused by the database, and tried again.
    pub resting: u64,
    /// Closing is paused.
    pub paused: u64,
    /// Their keys contradict their rows.
    pub disputed: u64,
    /// Somebody is asked about them, or has not said that they may be closed.
    pub asked: u64,
    /// Given up.
    pub dead: u64,
    /// For longer than `sweep.oldest`.
    pub old: u64,
    /// For how long the oldest open one has been, in seconds.
    pub oldest_s: f64,
    /// How long ago they were counted, in seconds.
    pub age_s: f64,
}

/// What was counted last, and when.
#[derive(Debug, Default)]
pub struct LastOverdue(Mutex<Last>);

#[derive(Debug, Clone, Copy, Default)]
struct Last {
    counted: Option<(Instant, Overdue)>,
    /// Counted less often.
    old: u64,
}

impl LastOverdue {
    /// What was counted last; nothing before the first count.
    #[must_use]
    pub fn get(&self) -> Option<Overdue> {
        let Last { counted, old } = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counted.map(|(at, overdue)| Overdue { old, age_s: at.elapsed().as_secs_f64(), ..overdue })
    }

    fn change(&self, change: impl FnOnce(&mut Last)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
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
    /// Where what was counted is kept.
    pub last: Arc<LastOverdue>,
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
                Ok(Ok(overdue)) => {
                    overdue.publish(self.store.rule().label());
                    self.last.change(|last| last.counted = Some((Instant::now(), overdue)));
                }
                Ok(Err(error)) => debug!(%error, "overdue orders were not counted"),
                Err(_) => debug!(limit_s = LIMIT.as_secs(), "overdue orders were not counted in time"),
            }
            // A table that is slow is not made slower by being counted: a tenth of the time at the most.
            tokio::time::sleep(EVERY.max(began.elapsed() * 9)).await;
        }
    }

    async fn count(&self) -> Result<Overdue, StoreError> {
        let began = Instant::now();
        let mut pages = Pages::of(self.store.as_ref(), Window::overdue(self.sweep.get().oldest.get()), PAGE);
        let mut overdue = Overdue::default();
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
                        overdue.oldest_s = overdue.oldest_s.max(row.remaining().map_or(0.0, |micros| -micros as f64 / 1e6));
                    }
                }
            }
            // However many wait for a reason, those behind them that wait without any are to be seen.
            if overdue.open.max(overdue.paused) >= MOST || began.elapsed() >= LIMIT / 2 {
                break;
            }
        }
        Ok(overdue.up_to(MOST))
    }

    fn found_old(&self, orders: u64) {
        metric::OVERDUE.set(orders as f64, &[self.store.rule().label(), "old"]);
        self.last.change(|last| last.old = orders);
    }

    async fn count_old_ones(&self) {
        let mut sweep = self.sweep.clone();
        loop {
            match sweep.get().oldest.get() {
                None => self.found_old(0),
                Some(oldest) => {
                    if let Ok(Ok(old)) = tokio::time::timeout(LIMIT, self.store.count(Window::older(oldest))).await {
                        self.found_old(old.orders.min(MOST));
                    }
                }
            }
            tokio::time::timeout(OLD_EVERY, sweep.changed()).await.unwrap_or_default();
        }
    }
}

impl Overdue {
    /// The same, no count of it above this.
    fn up_to(self, most: u64) -> Self {
        let Self { open, held, resting, paused, disputed, asked, dead, .. } = self;
        let [open, held, resting, paused, disputed, asked, dead] =
            [open, held, resting, paused, disputed, asked, dead].map(|orders| orders.min(most));
        Self { open, held, resting, paused, disputed, asked, dead, ..self }
    }

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
        metric::OLDEST_OVERDUE.set(self.oldest_s, &[rule]);
        metric::SAMPLED.now(&[rule]);
    }
}
