//! Takes a batch through lock, judge, update, whatever the database says to it.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use backon::{BackoffBuilder, ExponentialBuilder};
use tracing::debug;

use crate::{
    close::{
        inbox::Pending,
        transaction::{Judged, Way, lock_judge_update},
    },
    order::Verdict,
    store::{self, Store, StoreError},
};

/// For how long conflicts are retried before the batch is split, or its last order left for later. Less
/// than the stores wait for a lock: a row that somebody holds is not given up by asking again.
const CONFLICT_PATIENCE: Duration = Duration::from_millis(400);

/// For how long a conflict is expected to come again.
const CONTENDED: Duration = Duration::from_secs(1);

/// Where transactions got into each other's way lately.
#[derive(Debug, Default)]
struct Contention {
    /// Somebody held an order's row: the fused way would wait for it, and step by step it is skipped.
    over_orders: Spell,
    /// Step by step it is no order's row, but those that the user's statements change. Two workers would only
    /// deadlock again, and take turns instead.
    elsewhere: Spell,
    turn: tokio::sync::Mutex<()>,
}

/// A while that begins anew with each cause.
#[derive(Debug, Default)]
struct Spell(Mutex<Option<Instant>>);

impl Spell {
    fn begin(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn lasts(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|began| began.elapsed() < CONTENDED)
    }
}

/// An order that was looked at, and how that ended.
#[derive(Debug, Clone)]
pub struct Looked {
    /// The order, and why it was looked at.
    pub pending: Pending,
    /// How it ended.
    pub outcome: Outcome,
}

/// How the look at one order ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Closed by us, and committed.
    Closed(Closed),
    /// Not an unpaid order.
    Settled {
        /// Its status; `None` is SQL's NULL.
        status: Option<String>,
    },
    /// Not yet due, or never (`None`).
    NotDue {
        /// The time until its deadline.
        remaining: Option<Duration>,
    },
    /// No such order.
    NotFound,
    /// Due, but somebody holds its row or another that it needs: to be looked at again soon.
    Locked,
    /// Its closure fails though it was alone in its transaction, and the database is well.
    Rejected {
        /// The database's reason.
        reason: String,
        /// Whether the reason speaks of a database in trouble, and not of the order.
        doubtful: bool,
    },
}

/// A closure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed {
    /// The commit's time minus the deadline.
    pub lateness: Duration,
}

/// What is left of a batch when the database closes nothing.
#[derive(Debug)]
pub struct Unfinished {
    /// The orders not yet looked at.
    pub left: Vec<Pending>,
    /// Why; no order is to blame.
    pub fault: StoreError,
}

/// Closes batches of orders.
#[derive(Debug, Clone)]
pub struct Closer {
    store: Arc<dyn Store>,
    contention: Arc<Contention>,
}

impl Closer {
    /// A closer of orders in `store`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, contention: Arc::default() }
    }

    /// The orders it closes.
    #[must_use]
    pub fn store(&self) -> &dyn Store {
        self.store.as_ref()
    }

    /// Looks at each order of a batch, closes those that are unpaid and due, and reports each in `looked`.
    ///
    /// # Errors
    /// [`Unfinished`] when the database closes nothing at all: `looked` has what was done, the error the rest.
    pub async fn close(&self, mut batch: Vec<Pending>, looked: &mut Vec<Looked>) -> Result<(), Unfinished> {
        // Everybody who changes several rows does so in this order.
        batch.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        batch.dedup_by(|one, other| one.id == other.id);
        // First in, first out: what can be closed is not kept waiting by what can't.
        let mut parts = VecDeque::from([batch]);
        let (mut again, mut well) = (false, false);
        while let Some(part) = parts.pop_front() {
            let second_try = std::mem::take(&mut again);
            let error = match self.close_together(&part).await {
                Ok(ends) => {
                    looked.extend(ends);
                    continue;
                }
                Err(error) => error,
            };
            // What a database says that was well a moment ago is about these orders.
            if !(well && matches!(error, StoreError::Rejected(_)))
                && let Err(fault) = store::examine(self.store()).await
            {
                debug!(orders = part.len(), %error, %fault, "nothing can be closed");
                parts.push_front(part);
                return Err(Unfinished { left: parts.into_iter().flatten().collect(), fault });
            }
            well = true;
            debug!(orders = part.len(), %error, "a batch failed, and the database is well");
            if part.len() > 1 {
                let (first, second) = part.split_at(part.len() / 2);
                parts.extend([first.to_vec(), second.to_vec()]);
                continue;
            }
            let outcome = match error {
                StoreError::Locked(_) => Outcome::Locked,
                // A connection may have been lost by chance.
                StoreError::Unavailable(_) if !second_try => {
                    parts.push_front(part);
                    again = true;
                    continue;
                }
                StoreError::Rejected(reason) => Outcome::Rejected { reason, doubtful: false },
                StoreError::Unavailable(reason) => Outcome::Rejected { reason, doubtful: true },
                StoreError::Conflict(_) | StoreError::TimedOut(_) => Outcome::Rejected { reason: error.to_string(), doubtful: true },
            };
            looked.extend(part.into_iter().map(|pending| Looked { pending, outcome: outcome.clone() }));
        }
        Ok(())
    }

    /// One transaction for the whole batch, retried while it conflicts with others.
    async fn close_together(&self, batch: &[Pending]) -> Result<Vec<Looked>, StoreError> {
        let mut pauses = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(5))
            .with_max_delay(Duration::from_millis(100))
            .without_max_times()
            .with_jitter()
            .build();
        let began = Instant::now();
        let judged = loop {
            let way = if self.contention.over_orders.lasts() { Way::Stepwise } else { Way::Fused };
            let turn = if self.contention.elsewhere.lasts() { Some(self.contention.turn.lock().await) } else { None };
            let ended = lock_judge_update(self.store.as_ref(), batch, way).await;
            drop(turn);
            match ended {
                Err(StoreError::Conflict(reason) | StoreError::Locked(reason)) if way == Way::Fused => {
                    debug!(orders = batch.len(), reason, "conflict with another transaction; going step by step");
                    self.contention.over_orders.begin();
                }
                Err(StoreError::Conflict(reason) | StoreError::Locked(reason)) if began.elapsed() < CONFLICT_PATIENCE => {
                    self.contention.elsewhere.begin();
                    debug!(orders = batch.len(), reason, "conflict with another transaction; retrying");
                    tokio::time::sleep(pauses.next().unwrap_or_default()).await;
                }
                ended => break ended?,
            }
        };
        Ok(batch.iter().cloned().zip(judged).map(|(pending, judged)| Looked { pending, outcome: judged.into() }).collect())
    }
}

impl From<Judged> for Outcome {
    fn from(Judged { verdict, lateness }: Judged) -> Self {
        match verdict {
            Verdict::Close { .. } => Self::Closed(Closed { lateness }),
            Verdict::Settled { status } => Self::Settled { status },
            Verdict::NotDue { remaining } => Self::NotDue { remaining },
            Verdict::NotFound => Self::NotFound,
            Verdict::Locked => Self::Locked,
        }
    }
}
