//! Takes a batch through lock, judge, update, whatever the database says to it.
//!
//! A batch waits for locks once, briefly. When that is not enough it is tried once more while no other batch of ours runs:
//! a row that one of ours held is no held row. What fails then, fails for some of its orders, which the lane `alone`
//! finds out. Its groups wait for no lock, and a group that fails is halved.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use backon::{BackoffBuilder, ExponentialBuilder};
use tokio::{
    sync::RwLock,
    time::{Instant, timeout},
};
use tracing::debug;

use crate::{
    close::{
        Pending,
        bounds::Bounds,
        clearance::Cleared,
        closures::Closures,
        outcome::{Looked, Outcome},
        pace::Pace,
        transaction::{Failure, Way, lock_judge_update},
    },
    metric,
    store::{LockWait, OpenError, Store, StoreError},
};

/// For how long a batch is tried again that conflicts with others, as deadlocks do.
const CONFLICT_PATIENCE: Duration = Duration::from_secs(1);

/// The pause after which a batch that has all of our turns asks for a lock again, where the database itself does not wait.
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// For how long a batch waits for its turn.
const TURN_PATIENCE: Duration = Duration::from_millis(20);

/// For how long what got into each other's way is expected to do so again.
const CONTENDED: Duration = Duration::from_secs(1);

/// The table's catalogue is read again after a failure, at most so often: an index may have been renamed.
const REFRESH: Duration = Duration::from_secs(1);

/// How the look at a batch ended.
#[derive(Debug)]
pub enum Ending {
    /// Each order was judged; those that are to be closed are.
    Looked(Vec<Looked>),
    /// These orders failed together, and may not do so by themselves.
    Failed {
        /// The orders.
        batch: Vec<Pending>,
        /// What the database said.
        error: StoreError,
    },
    /// The database can't be used, or another transaction holds all of it; no order has to do with it.
    Unavailable {
        /// The orders, none of them looked at.
        batch: Vec<Pending>,
        /// What the database said.
        fault: StoreError,
    },
}

/// Closes batches of orders.
#[derive(Debug, Clone)]
pub struct Closer {
    store: Arc<dyn Store>,
    bounds: Arc<Bounds>,
    shared: Arc<Shared>,
}

/// What all batches have in common.
#[derive(Debug, Default)]
struct Shared {
    closures: Closures,
    pace: Pace,
    /// Every batch has a share; one that must be alone has all of it.
    turn: RwLock<()>,
    /// The fused way has failed lately, mostly since another transaction held an order's row; step by step that is skipped.
    fused_failed: Spell,
    /// Batches of ours held up each other, and take turns.
    contended: Spell,
    refreshed: Spell,
    /// In which turn of hosts the last batch was tried, and whether it has changed since that was asked.
    turn_of_host: AtomicU64,
    has_moved: AtomicBool,
}

/// A while that begins anew with each cause.
#[derive(Debug, Default)]
struct Spell(Mutex<Option<Instant>>);

impl Spell {
    fn begin(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn lasts(&self, length: Duration) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|began| began.elapsed() < length)
    }
}

impl Closer {
    /// A closer of orders in `store`, however old they are.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self::within(store, Arc::default())
    }

    /// A closer of orders in `store` that stays within these bounds.
    #[must_use]
    pub fn within(store: Arc<dyn Store>, bounds: Arc<Bounds>) -> Self {
        Self { store, bounds, shared: Arc::default() }
    }

    /// The orders it closes.
    #[must_use]
    pub fn store(&self) -> &dyn Store {
        self.store.as_ref()
    }

    /// Forgets which orders it has closed: the database was away, and may be another or an older one now.
    pub fn forget_closures(&self) {
        self.shared.closures.forget();
    }

    /// Whether another host of the database is used than when this was asked last. It may lack what the one before had.
    pub fn has_moved(&self) -> bool {
        self.shared.has_moved.swap(false, Ordering::Relaxed)
    }

    /// Which of these orders, each with its deadline, it has closed for that deadline in the last ten minutes.
    pub fn undone<'a>(&self, found: impl Iterator<Item = (&'a crate::order::OrderId, i64)>) -> Vec<crate::order::OrderId> {
        self.shared.closures.undone(found)
    }

    /// Looks at each order of a batch, and closes those that are unpaid and due. Locks are waited for briefly, and once more
    /// while no other batch runs.
    pub async fn together(&self, batch: Cleared) -> Ending {
        self.close(batch, LockWait::Briefly, true).await
    }

    /// The same without a turn of its own. A single order that fails has an outcome.
    pub async fn apart(&self, group: Cleared, wait: LockWait) -> Ending {
        outcome_of_one(self.close(group, wait, false).await)
    }

    /// Looks at one order, if that is cleared, and closes it if it is unpaid and due.
    ///
    /// # Errors
    /// What the database says when it can't be used.
    pub async fn one(&self, order: Cleared) -> Result<Vec<Looked>, StoreError> {
        match outcome_of_one(self.together(order).await) {
            Ending::Looked(looked) => Ok(looked),
            Ending::Failed { error, .. } | Ending::Unavailable { fault: error, .. } => Err(error),
        }
    }

    async fn close(&self, batch: Cleared, wait: LockWait, takes_turns: bool) -> Ending {
        let batch = in_order(batch.into_orders());
        let began = Instant::now();
        let mut turn_since = Some(began).filter(|_| takes_turns && self.shared.contended.lasts(CONTENDED));
        let (mut lost, mut blocked) = (false, false);
        let mut pauses = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(5))
            .with_max_delay(Duration::from_millis(100))
            .without_max_times()
            .with_jitter()
            .build();
        loop {
            let way = if self.shared.fused_failed.lasts(CONTENDED) { Way::Stepwise } else { Way::Fused };
            let failure = match self.attempt(&batch, way, wait, turn_since.is_some()).await {
                Ok(looked) if std::mem::take(&mut blocked) => {
                    // By one of ours, as it seems.
                    self.shared.contended.begin();
                    return Ending::Looked(self.unless_another(looked).await);
                }
                Ok(looked) => return Ending::Looked(self.unless_another(looked).await),
                Err(failure) => failure,
            };
            metric::BATCH_FAILURES.add(1, &[self.store.rule().label(), failure.name()]);
            debug!(orders = batch.len(), ?failure, turn = turn_since.is_some(), "a batch failed");
            let error = match failure {
                Failure::Database(fault) => return Ending::Unavailable { batch, fault },
                Failure::Fused(_) if way == Way::Fused => {
                    self.shared.fused_failed.begin();
                    continue;
                }
                Failure::Fused(reason) => StoreError::Locked(reason),
                Failure::Statement(error) => error,
            };
            let pause = match &error {
                StoreError::Locked(_) if !takes_turns => None,
                StoreError::Locked(_) => match turn_since {
                    None => Some(Duration::ZERO),
                    Some(since) => Some(LOCK_PAUSE).filter(|_| since.elapsed() < self.shared.pace.limits(wait, batch.len()).lock),
                },
                StoreError::Conflict(_) => pauses.next().filter(|_| began.elapsed() < CONFLICT_PATIENCE),
                // A connection may have been lost by chance.
                StoreError::Unavailable(_) if !std::mem::replace(&mut lost, true) => Some(Duration::ZERO),
                StoreError::TimedOut(_) => None,
                StoreError::Unavailable(_) | StoreError::Refused { .. } | StoreError::Rejected(_) => match self.refresh().await {
                    Ok(refreshed) => refreshed.then_some(Duration::ZERO),
                    Err(fault) => return Ending::Unavailable { batch, fault },
                },
            };
            let Some(pause) = pause else {
                return Ending::Failed { batch, error };
            };
            tokio::time::sleep(pause).await;
            if takes_turns && matches!(error, StoreError::Locked(_) | StoreError::Conflict(_)) && turn_since.is_none() {
                turn_since = Some(Instant::now());
                blocked = true;
            }
        }
    }

    /// In another database than the one in which they were closed, or in one whose server was started since, no closure of these
    /// orders was undone.
    async fn unless_another(&self, looked: Vec<Looked>) -> Vec<Looked> {
        let is_undone = |one: &Looked| one.outcome == Outcome::Undone;
        if !looked.iter().any(is_undone) {
            return looked;
        }
        let closures = &self.shared.closures;
        // Whoever asks first is told, and forgets for all.
        if self.store.is_another().await.unwrap_or(false) {
            closures.forget();
        } else if let Ok(Some(time)) = self.store.running_for().await
            && let Some(start) = Instant::now().checked_sub(time)
        {
            closures.forget_before(start);
        }
        let undone = looked.iter().filter(|one| is_undone(one));
        let undone = closures.undone(undone.filter_map(|one| Some((&one.pending.id, one.pending.deadline?))));
        // To be looked at again by the next sweep.
        let is_not = |one: &Looked| is_undone(one) && !undone.contains(&one.pending.id);
        let again = |one| if is_not(&one) { Looked { outcome: Outcome::NotDue { remaining: None }, ..one } } else { one };
        looked.into_iter().map(again).collect()
    }

    async fn attempt(&self, batch: &[Pending], way: Way, wait: LockWait, has_turn: bool) -> Result<Vec<Looked>, Failure> {
        let shared = &self.shared;
        let turn_of_host = self.store.turn();
        if shared.turn_of_host.swap(turn_of_host, Ordering::Relaxed) != turn_of_host {
            shared.closures.forget();
            shared.has_moved.store(true, Ordering::Relaxed);
        }
        let limits = shared.pace.limits(wait, batch.len());
        let run = lock_judge_update(self.store.as_ref(), (&shared.closures, &self.bounds), batch, way, limits);
        // Whoever can't have its turn soon goes on without: a slow batch holds up nobody.
        let looked = if has_turn {
            let _all = timeout(TURN_PATIENCE, shared.turn.write()).await;
            shared.pace.measured(self.store.rule(), batch.len(), run).await?
        } else {
            let _share = timeout(TURN_PATIENCE, shared.turn.read()).await;
            shared.pace.measured(self.store.rule(), batch.len(), run).await?
        };
        // Another host may not have them. A timer may be armed again for the time at which it has fired.
        if self.store.turn() == turn_of_host && !self.store.rule().is_timers() {
            shared.closures.remember(looked.iter().filter_map(|one| {
                let Outcome::Closed(closed) = &one.outcome else { return None };
                Some((&one.pending.id, closed.deadline))
            }));
        }
        Ok(looked)
    }

    /// Reads the table's catalogue again, unless that was done a moment ago; returns whether it was.
    async fn refresh(&self) -> Result<bool, StoreError> {
        if self.shared.refreshed.lasts(REFRESH) {
            return Ok(false);
        }
        self.shared.refreshed.begin();
        match self.store.refresh().await {
            Ok(()) => Ok(true),
            Err(error @ (OpenError::Misfit(_) | OpenError::Missing(_) | OpenError::Zone(_))) => {
                Err(StoreError::Rejected(error.to_string()))
            }
            Err(OpenError::Store(error)) => Err(error),
        }
    }
}

/// What fails for one order alone is its outcome.
fn outcome_of_one(ending: Ending) -> Ending {
    let (batch, error) = match ending {
        Ending::Failed { batch, error } if batch.len() == 1 => (batch, error),
        Ending::Looked(_) | Ending::Failed { .. } | Ending::Unavailable { .. } => return ending,
    };
    let outcome = match error {
        StoreError::Locked(_) => Outcome::Locked { reason: error.to_string() },
        StoreError::Rejected(reason) | StoreError::Unavailable(reason) | StoreError::Refused { reason, .. } => Outcome::Rejected { reason },
        StoreError::Conflict(_) | StoreError::TimedOut(_) => Outcome::Rejected { reason: error.to_string() },
    };
    Ending::Looked(batch.into_iter().map(|pending| Looked { pending, outcome: outcome.clone() }).collect())
}

/// Everybody who changes several rows does so in this order.
fn in_order(mut batch: Vec<Pending>) -> Vec<Pending> {
    batch.sort_unstable_by(|one, other| one.id.cmp(&other.id));
    batch.dedup_by(|one, other| one.id == other.id);
    batch
}
