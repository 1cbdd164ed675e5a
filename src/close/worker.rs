//! The daemon's workers: each takes what waits in the inbox, as soon as it is free.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use backon::{BackoffBuilder, ExponentialBuilder};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use crate::{
    close::{
        closer::{Closer, Looked, Outcome, Unfinished},
        inbox::{Ending, Inbox, Pending},
        stats::{Stats, millis},
        trouble::Trouble,
    },
    config::Retry,
    order::{OrderId, Trigger},
    store::{DeadOrder, StoreError},
};

/// How soon a locked order is looked at again: well within the second that is promised.
const LOCKED_PAUSE: Duration = Duration::from_millis(250);

/// How long an order may be carried until it is due; a longer wait is left to the sweep's look ahead.
const LONGEST_CARRY: Duration = Duration::from_mins(1);

/// An order to be looked at again.
#[derive(Debug, Clone)]
pub struct Later {
    /// The order.
    pub id: OrderId,
    /// What made us look at it first.
    pub trigger: Trigger,
    /// When.
    pub at: Instant,
}

/// Takes batches from the inbox and closes them, until the inbox is closed.
#[derive(Debug, Clone)]
pub struct Worker {
    /// Where ids come from.
    pub inbox: Arc<Inbox>,
    /// How they are closed.
    pub closer: Closer,
    /// The most orders in one transaction.
    pub batch_size: usize,
    /// When rejected orders are tried again.
    pub retry: Retry,
    /// Who carries orders that are to be looked at again.
    pub later: mpsc::Sender<Later>,
    /// Changes when orders were closed.
    pub closed: watch::Sender<()>,
    /// What has been done.
    pub stats: Arc<Stats>,
    /// What keeps all workers from closing anything.
    pub trouble: Arc<Trouble>,
    /// Ends the wait for an unavailable database.
    pub stop: CancellationToken,
}

impl Worker {
    /// Works until the inbox is closed; a batch in hand is finished first.
    pub async fn run(self) {
        while let Some(batch) = self.inbox.take(self.batch_size).await {
            self.close(batch).await;
        }
    }

    /// Closes a batch, waiting while nothing can be closed.
    async fn close(&self, mut batch: Vec<Pending>) {
        let started = Instant::now();
        let mut looked = Vec::with_capacity(batch.len());
        let mut pauses = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(100))
            .with_max_delay(Duration::from_secs(2))
            .without_max_times()
            .with_jitter()
            .build();
        let mut away = false;
        while let Err(Unfinished { left, fault }) = self.closer.close(batch, &mut looked).await {
            self.trouble.begin(left.len(), &fault);
            away = true;
            batch = left;
            let pause = pauses.next().unwrap_or_default();
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.stop.cancelled() => {
                    // Their rows are unpaid still, and the next sweep finds them.
                    for pending in &batch {
                        self.inbox.finish(&pending.id, Ending::Forgotten);
                    }
                    break;
                }
            }
        }
        if (away && !self.stop.is_cancelled()) || looked.iter().any(|one| matches!(one.outcome, Outcome::Closed(_))) {
            self.trouble.end();
        }
        self.report(&looked, started.elapsed());
        let rejected = looked.iter().filter(|one| matches!(one.outcome, Outcome::Rejected { .. })).count();
        let given_up: Vec<DeadOrder> = looked.into_iter().filter_map(|one| self.settle(one, started, rejected == 1)).collect();
        if !given_up.is_empty() {
            self.bury(&given_up, started).await;
        }
    }

    fn report(&self, looked: &[Looked], took: Duration) {
        self.stats.looked(looked);
        if looked.iter().any(|one| matches!(one.outcome, Outcome::Closed(_))) {
            self.closed.send_replace(());
        }
        if tracing::enabled!(tracing::Level::DEBUG) {
            let closed = looked.iter().filter(|one| matches!(one.outcome, Outcome::Closed(_))).count();
            debug!(orders = looked.len(), closed, took_ms = millis(took), "batch done");
        }
    }

    /// Says to the inbox, and to whoever carries the order on, how the look at it ended, which `started` then; `alone`
    /// if no other of its batch was rejected. Returns an order that is to be given up, and stays in hand until then.
    fn settle(&self, Looked { pending, outcome }: Looked, started: Instant, alone: bool) -> Option<DeadOrder> {
        let Pending { id, trigger, rejections } = pending;
        let ending = match outcome {
            Outcome::Closed(_) | Outcome::Settled { .. } | Outcome::NotFound => Ending::Settled,
            Outcome::NotDue { .. } | Outcome::Locked => Ending::Forgotten,
            Outcome::Rejected { ref reason, doubtful } => {
                let attempts = rejections + 1;
                let pause = match self.retry.pause_after(attempts) {
                    Some(pause) => pause,
                    None if !doubtful || self.is_to_blame(&id, started, alone) => {
                        return Some(DeadOrder { id, attempts, error: reason.clone() });
                    }
                    None => {
                        self.trouble.begin(1, &StoreError::Rejected(reason.clone()));
                        self.retry.max.get()
                    }
                };
                warn!(order = %id, attempt = attempts, retry_in_s = pause.as_secs_f64(), reason, "close failed; will retry this order alone");
                Ending::Resting { rejections: attempts, since: started, until: Instant::now().checked_add(pause) }
            }
        };
        self.inbox.finish(&id, ending);
        let pause = match outcome {
            Outcome::NotDue { remaining } => remaining.filter(|remaining| *remaining <= LONGEST_CARRY),
            Outcome::Locked => Some(LOCKED_PAUSE),
            Outcome::Closed(_) | Outcome::Settled { .. } | Outcome::NotFound | Outcome::Rejected { .. } => None,
        };
        if let Some(at) = pause.and_then(|pause| Instant::now().checked_add(pause)) {
            // If nobody has room for it, a sweep finds it when it is due.
            self.later.try_send(Later { id, trigger, at }).ok();
        }
        None
    }

    /// Whether a doubtful rejection is the order's own fault: another was closed since, or no other is rejected.
    fn is_to_blame(&self, id: &OrderId, started: Instant, alone: bool) -> bool {
        let since = self.inbox.rejected_since(id).unwrap_or(started);
        self.stats.last_closed().is_some_and(|closed| closed >= since) || (alone && !self.inbox.rejects_others(id))
    }

    /// Gives orders up: as dead letters, where there are tables for them, or else until a restart.
    async fn bury(&self, orders: &[DeadOrder], started: Instant) {
        let outbox = self.closer.store().outbox();
        if outbox.is_ready()
            && let Err(error) = outbox.bury(orders).await
        {
            warn!(orders = orders.len(), %error, "dead letters could not be written; trying these orders again");
            let until = Instant::now().checked_add(self.retry.max.get());
            for DeadOrder { id, attempts, .. } in orders {
                self.inbox.finish(id, Ending::Resting { rejections: *attempts, since: started, until });
            }
            return;
        }
        for DeadOrder { id, attempts, error: reason } in orders {
            if outbox.is_ready() {
                error!(
                    order = %id, attempts, reason,
                    "order can't be closed, and is a dead letter; mend the cause, then run `order-closer dead-letters retry` with its id"
                );
                // Not forgotten: a sweep that read the table before may still bring it.
                self.inbox.finish(id, Ending::Settled);
            } else {
                error!(
                    order = %id, attempts, reason,
                    "order can't be closed, and is left alone until a restart; mend the cause, then run `order-closer close` with its id"
                );
                self.inbox.finish(id, Ending::Resting { rejections: *attempts, since: started, until: None });
            }
        }
    }
}
