//! The daemon's workers: each takes what waits in its lane of the inbox, as soon as it is free.

use std::{pin::pin, sync::Arc, time::Duration};

use tokio::{
    sync::{Semaphore, mpsc, watch},
    task::JoinSet,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, error, info, warn};

use crate::{
    close::{
        asking::{self, ASKERS},
        clearance::{Clearance, Share, Sorted},
        closer::{Closer, Ending},
        gate::Gate,
        inbox::{Batch, Consequence, Inbox, Pending},
        outage::Outage,
        outcome::{Looked, Outcome},
        stats::{Stats, millis},
        throttle::{Said, Throttle},
    },
    metric,
    order::{OrderId, Trigger},
    outbox::DeadOrder,
    store::{LockWait, StoreError},
    watchdog::{self, Watchdog},
};

/// How many workers the lane `alone` has, each with a connection of its own.
const ALONE: usize = 2;

/// A batch that takes longer than this no longer keeps another from beginning; so many more may run then, in each lane.
const SLOW: Duration = Duration::from_millis(250);
const SLOW_ONES: usize = 2;

/// How many orders are closed at the same time that somebody has asked for by their ids.
pub(super) const REQUESTED: usize = 2;

/// How long an order may be carried until it is due; a longer wait is left to the sweep's look ahead.
const LONGEST_CARRY: Duration = Duration::from_mins(1);

/// While an order was held this lately, a batch that meets a lock needs no turn of its own to know why.
const HELD_LATELY: Duration = Duration::from_secs(1);

/// How soon an order that could not be given up is tried again.
const TRY_TO_GIVE_UP: Duration = Duration::from_secs(30);

/// An order to be looked at again.
#[derive(Debug, Clone)]
pub struct Later {
    /// The order.
    pub id: OrderId,
    /// What made us look at it first.
    pub trigger: Trigger,
    /// The deadline in its row, in microseconds since 1970 UTC, where that is known.
    pub deadline: Option<i64>,
    /// When.
    pub at: Instant,
}

/// From where a worker takes orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    /// Batches of orders that have not failed yet.
    Shared,
    /// What failed.
    Alone,
}

/// What becomes of orders that the database refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follow {
    /// They are logged, and given up in the end.
    Daemon,
    /// They stay where they are: whoever runs one pass reports what is left.
    Pass,
}

/// Takes orders from the inbox and closes them, until the inbox is closed.
#[derive(Debug, Clone)]
pub struct Worker {
    /// Where orders come from.
    pub inbox: Arc<Inbox>,
    /// What shuts while closing is paused.
    pub gate: Arc<Gate>,
    /// What each order passes before its transaction.
    pub clearance: Arc<dyn Clearance>,
    /// How they are closed.
    pub closer: Closer,
    /// The most orders in one transaction.
    pub batch_size: usize,
    /// With how many instances the table's orders are shared.
    pub share: Arc<dyn Share>,
    /// Who carries orders that are to be looked at again.
    pub later: mpsc::Sender<Later>,
    /// Changes when orders were closed.
    pub closed: watch::Sender<()>,
    /// What has been done.
    pub stats: Arc<Stats>,
    /// Whether the database can be used.
    pub outage: Arc<Outage>,
    /// What becomes of orders that the database refuses.
    pub follow: Follow,
    /// How often it is said that an order was rejected.
    pub rejections: Arc<Throttle>,
    /// Ends the wait for an unavailable database.
    pub stop: CancellationToken,
}

/// What the workers of a lane have in common.
#[derive(Debug)]
struct Places {
    workers: u32,
    /// One for each batch in hand.
    any: Semaphore,
    /// A full batch takes one for each instance: each may have as many in hand, and all of them together would only wait for each
    /// other's locks.
    full: Semaphore,
}

impl Places {
    fn of(workers: usize) -> Arc<Self> {
        let places = || Semaphore::new(workers);
        Arc::new(Self { workers: u32::try_from(workers).unwrap_or(u32::MAX), any: places(), full: places() })
    }
}

impl Worker {
    /// Starts so many workers for batches, those of the lane `alone`, and those who ask about orders before their batches.
    pub fn spawn(&self, workers: usize, watchdog: &Watchdog, running: &mut JoinSet<()>) {
        for (lane, workers) in [(Lane::Shared, workers), (Lane::Alone, ALONE)] {
            let places = Places::of(workers);
            for _ in 0..workers + SLOW_ONES {
                running.spawn(watchdog.watch("worker", self.clone().run(lane, Arc::clone(&places))).in_current_span());
            }
        }
        for _ in 0..ASKERS {
            let ask = asking::ask(Arc::clone(&self.inbox), Arc::clone(&self.clearance), Arc::clone(&self.gate), self.stop.clone());
            running.spawn(watchdog.watch("asker", ask).in_current_span());
        }
    }

    /// Works until the inbox is closed; a batch in hand is finished first.
    async fn run(self, lane: Lane, places: Arc<Places>) {
        // Never closed.
        while let Ok(place) = watchdog::waiting(places.any.acquire()).await {
            let taken = match lane {
                Lane::Shared => {
                    let taken = watchdog::waiting(self.inbox.take(self.gate.most(self.batch_size))).await;
                    taken.map(|batch| (batch, LockWait::Briefly))
                }
                Lane::Alone => {
                    let taken = watchdog::waiting(self.inbox.take_alone()).await;
                    taken.map(|(orders, wait)| {
                        metric::RETRIES.add(orders.len() as u64, &[self.inbox.rule().label()]);
                        (Batch { orders, crowd: None }, wait)
                    })
                }
            };
            // A crowd is in hand until its orders were looked at.
            let Some((Batch { orders: batch, crowd: _crowd }, wait)) = taken else { return };
            let is_full = lane == Lane::Shared && batch.len() >= self.batch_size;
            let full = if is_full { self.share.instances().min(places.workers) } else { 0 };
            let places_of_full = watchdog::waiting(places.full.acquire_many(full)).await;
            let mut closing = pin!(self.close(batch, lane, wait));
            if timeout(SLOW, &mut closing).await.is_err() {
                drop((place, places_of_full));
                closing.await;
            }
        }
    }

    /// Closes a batch, waiting while the database can't be used.
    async fn close(&self, mut batch: Vec<Pending>, lane: Lane, wait: LockWait) {
        loop {
            let Some(waited) = watchdog::waiting(self.stop.run_until_cancelled(self.gate.pass(batch.len()))).await else {
                // Their rows are unpaid still.
                return;
            };
            if waited {
                // What was said of their keys may be so no longer.
                batch.iter_mut().for_each(|pending| pending.cleared = false);
            }
            let sorted = match lane {
                Lane::Shared => Sorted::by_knowledge(self.clearance.as_ref(), batch),
                // Its orders share no worker with any that needs no answer.
                Lane::Alone => Sorted::wholly(self.clearance.as_ref(), batch).await,
            };
            self.gate.turn_back(sorted.ask.len() + sorted.wait.len());
            self.inbox.put_off(sorted.ask, sorted.wait);
            if sorted.go.is_empty() {
                return;
            }
            let began = Instant::now();
            let ending = match lane {
                Lane::Shared if self.inbox.held_within(HELD_LATELY) => self.closer.apart(sorted.go, wait).await,
                Lane::Shared => self.closer.together(sorted.go).await,
                Lane::Alone => self.closer.apart(sorted.go, wait).await,
            };
            match ending {
                Ending::Looked(looked) => {
                    self.succeeded(&looked);
                    if tracing::enabled!(tracing::Level::DEBUG) {
                        let closed = looked.iter().filter(|one| one.is_closed()).count();
                        debug!(orders = looked.len(), closed, took_ms = millis(began.elapsed()), ?lane, "batch done");
                    }
                    return self.settle(looked).await;
                }
                Ending::Failed { batch, error } => {
                    debug!(orders = batch.len(), %error, ?lane, "a batch failed; trying its orders apart");
                    // To halve what takes too long would only take as long again and again.
                    return self.inbox.isolate(batch, matches!(error, StoreError::TimedOut(_)));
                }
                Ending::Unavailable { batch: left, fault } => {
                    tokio::select! {
                        biased;
                        () = self.outage.sit_out(left.len(), &fault) => batch = left,
                        // Their rows are unpaid still, and the next sweep finds them.
                        () = self.stop.cancelled() => return,
                    }
                }
            }
        }
    }

    /// The database has answered. It may be another, or an older one, and there may be much to find.
    fn succeeded(&self, looked: &[Looked]) {
        let refused = looked.iter().all(|one| matches!(one.outcome, Outcome::Rejected { .. }));
        if !refused && (self.outage.succeeded() | self.closer.has_moved()) {
            self.closer.forget_closures();
            self.inbox.want_sweep();
        }
    }

    /// Counts outcomes, tells the inbox, and does what follows.
    async fn settle(&self, looked: Vec<Looked>) {
        self.stats.looked(&looked);
        if looked.iter().any(Looked::is_closed) {
            self.closed.send_replace(());
        }
        let now = Instant::now();
        let later: Vec<Later> = looked.iter().filter_map(|one| later(one, now)).collect();
        let consequences = self.inbox.settle(looked);
        for one in later {
            // If nobody has room for it, a sweep finds it when it is due.
            self.later.try_send(one).ok();
        }
        if self.follow == Follow::Pass {
            return;
        }
        let mut given_up = Vec::new();
        for consequence in consequences {
            match consequence {
                Consequence::Retried { id, attempts, pause, reason } => match self.rejections.say(Instant::now()) {
                    Said::Now { withheld } => warn!(
                        order = %id, attempt = attempts, retry_in_s = pause.as_secs_f64(), reason, withheld,
                        "close failed; will retry this order alone"
                    ),
                    Said::Not => debug!(order = %id, attempt = attempts, reason, "close failed; will retry this order alone"),
                },
                Consequence::AllRefused(reason) => error!(
                    reason,
                    "no order can be closed, and all are tried again until that is mended: a table, a column, a right, a trigger, or close.sql"
                ),
                Consequence::HeldForLong { orders, time } => warn!(
                    orders,
                    since_s = time.as_secs(),
                    "orders have been held by other transactions for minutes: a transaction that was left open, a row that all closures \
                     change, or a policy or view that shows rows and does not let them be changed"
                ),
                Consequence::Recovered => info!("orders can be closed again"),
                Consequence::GivenUp(dead) => given_up.push(dead),
            }
        }
        if !given_up.is_empty() {
            self.give_up(&given_up).await;
        }
    }

    /// Gives orders up: as dead letters, where there are tables for them, or else for a day.
    async fn give_up(&self, orders: &[DeadOrder]) {
        let outbox = self.closer.store().outbox();
        if outbox.is_ready()
            && let Err(error) = outbox.bury(orders).await
        {
            warn!(orders = orders.len(), %error, "dead letters could not be written; trying these orders again");
            for dead in orders {
                self.inbox.not_given_up(dead, TRY_TO_GIVE_UP);
            }
            return;
        }
        for dead in orders {
            let DeadOrder { id, attempts, error: reason, undone } = dead;
            if undone.is_some() {
                error!(
                    order = %id, reason,
                    "order is not closed again; find out what has put its status back, then run `order-closer close` with its id"
                );
            } else if outbox.is_ready() {
                error!(
                    order = %id, attempts, reason,
                    "order can't be closed, and is a dead letter; mend the cause, then run `order-closer dead-letters retry` with its id"
                );
            } else {
                error!(
                    order = %id, attempts, reason,
                    "order can't be closed, and is left alone for a day; mend the cause, then run `order-closer close` with its id"
                );
            }
            self.inbox.given_up(dead, outbox.is_ready());
        }
    }
}

/// When an order that is not due yet is to be looked at again.
fn later(Looked { pending, outcome }: &Looked, now: Instant) -> Option<Later> {
    let Outcome::NotDue { remaining: Some(remaining) } = outcome else { return None };
    let Pending { id, trigger, deadline, .. } = pending;
    (*remaining <= LONGEST_CARRY).then(|| Later { id: id.clone(), trigger: *trigger, deadline: *deadline, at: now + *remaining })
}
