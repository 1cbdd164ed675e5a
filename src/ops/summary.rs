//! The lines that sum the daemon up: in the log every `log.summary` and at the end, and for the service manager.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::{
    close::{Gate, Inbox, Outage, Stats, Summary, Why},
    order::Trigger::{Expired, Hint, Pacer, Sweep},
    store::Store,
    trigger::{Hearing, Passes},
};

/// How long the count of dead letters may take.
const COUNTING: Duration = Duration::from_secs(2);

/// Sums up.
#[derive(Debug, Clone)]
pub struct Summaries {
    /// What was done.
    pub stats: Arc<Stats>,
    /// What waits.
    pub inbox: Arc<Inbox>,
    /// Whether closing is paused.
    pub gate: Arc<Gate>,
    /// Whether the database can be used.
    pub outage: Arc<Outage>,
    /// How look-ahead and sweep ended.
    pub passes: Arc<Passes>,
    /// What was given up.
    pub store: Arc<dyn Store>,
    /// From whom there are confirmed subscriptions.
    pub subscribed: watch::Receiver<Hearing>,
    /// Whether there is a Redis to subscribe to.
    pub has_redis: bool,
    /// Whether nothing is closed.
    pub is_shadow: bool,
}

impl Summaries {
    /// Sums up again and again.
    pub async fn run(self, every: Duration, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(every)).await.is_some() {
            let Some(dead) = stop.run_until_cancelled(self.dead_letters()).await else { return };
            let summary = self.stats.interval();
            // Of many shards most have nothing to tell.
            if self.store.rule().shard().is_some() && summary.is_nothing() && self.inbox.waiting() == 0 && dead.unwrap_or(0) == 0 {
                continue;
            }
            self.log(&summary, dead, if self.is_shadow { "summary of a shadow, which closed nothing" } else { "summary" });
        }
    }

    /// Sums up all since the start.
    pub fn at_the_end(&self) {
        let message = if self.is_shadow { "order-closer stopped; as a shadow it closed nothing" } else { "order-closer stopped" };
        self.log(&self.stats.total(), None, message);
    }

    /// How the daemon is, in a few words.
    pub fn line(&self) -> String {
        let state = if self.store.halted().borrow().is_some() {
            "closing is stopped: the server's time zone has changed"
        } else if self.outage.lasts() {
            "no order can be closed: the database is away or refuses"
        } else if self.passes.fail() {
            "no order can be found: the table can't be read"
        } else if self.inbox.refuses_all() {
            "no order can be closed: the database refuses each"
        } else if self.gate.is_shut() {
            "closing is paused"
        } else {
            "closing orders"
        };
        let missing = self.subscribed.borrow().missing().filter(|_| self.has_redis);
        let deaf = missing.map(|missing| format!("; {missing}")).unwrap_or_default();
        let held = self.inbox.held().map_or(0, |(orders, _)| orders);
        let state = if self.is_shadow { "a shadow, which closes nothing" } else { state };
        format!("{state}; {} closed, {} waiting, {held} held{deaf}", self.stats.closed(), self.inbox.waiting())
    }

    /// How many orders are dead letters; nothing where that can't be known.
    async fn dead_letters(&self) -> Option<u64> {
        let outbox = self.store.outbox();
        if !outbox.is_ready() {
            return None;
        }
        tokio::time::timeout(COUNTING, outbox.count_dead_letters()).await.ok()?.ok()
    }

    fn log(&self, summary: &Summary, dead_letters: Option<u64>, message: &'static str) {
        let held = self.inbox.held().map_or(0, |(orders, _)| orders);
        info!(
            closed = summary.closed,
            expired = summary.by(Expired),
            pacer = summary.by(Pacer),
            sweep = summary.by(Sweep),
            hint = summary.by(Hint),
            lateness_p50_ms = summary.lateness_ms.map(|lateness| lateness.p50),
            lateness_p99_ms = summary.lateness_ms.map(|lateness| lateness.p99),
            lateness_max_ms = summary.lateness_ms.map(|lateness| lateness.max),
            settled = summary.settled,
            not_due = summary.not_due,
            not_found = summary.not_found,
            locked = summary.locked,
            rejected = summary.rejected,
            heard = summary.heard,
            ignored = summary.ignored,
            lost = summary.lost,
            dropped = summary.dropped,
            paused = self.gate.is_shut(),
            subscribed = self.subscribed.borrow().all(),
            waiting = self.inbox.waiting(),
            disputed = self.inbox.waits(Why::Disputed),
            said_close = summary.answered("close"),
            said_paid = summary.answered("paid"),
            said_later = summary.answered("later"),
            said_nothing = summary.answered("none"),
            asking = Why::ASKED.iter().map(|why| self.inbox.waits(*why)).sum::<usize>(),
            paid = self.inbox.waits(Why::Paid),
            later = self.inbox.waits(Why::Later),
            unanswered = self.inbox.waits(Why::Unanswered),
            held,
            dead_letters,
            "{message}"
        );
    }
}
