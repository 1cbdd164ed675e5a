//! A pool that follows the host in use, and who of several rules may take how much of one.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use sqlx::{Pool, pool::PoolOptions};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use crate::store::{
    dialect::Dialect,
    hosts::{Hosts, Turn},
};

/// A pool of connections to the host in use: another one in each turn, and whenever the way there was lost.
pub(super) struct Pooled<D: Dialect> {
    hosts: Arc<Hosts<D>>,
    pub(super) options: PoolOptions<D::Driver>,
    now: Mutex<(Turn, Pool<D::Driver>)>,
    /// How often the way was found again when the pool was made.
    found: AtomicU64,
}

impl<D: Dialect> Pooled<D> {
    pub(super) fn new(hosts: &Arc<Hosts<D>>, options: PoolOptions<D::Driver>) -> Self {
        let turn = hosts.turn();
        let pool = options.clone().connect_lazy_with(hosts.options(&turn));
        let found = AtomicU64::new(hosts.found());
        Self { hosts: Arc::clone(hosts), options, now: Mutex::new((turn, pool)), found }
    }

    /// The pool of this turn.
    pub(super) fn now(&self) -> (Turn, Pool<D::Driver>) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let found = self.hosts.found();
        let is_stale = self.found.swap(found, Ordering::AcqRel) != found;
        if (is_stale || now.0.over.is_cancelled()) && !now.1.is_closed() {
            let turn = self.hosts.turn();
            let pool = self.options.clone().connect_lazy_with(self.hosts.options(&turn));
            let (_, before) = std::mem::replace(&mut *now, (turn, pool));
            // Marks it closed; nobody waits for what may never answer.
            drop(before.close());
        }
        now.clone()
    }

    pub(super) fn pool(&self) -> Pool<D::Driver> {
        self.now().1
    }
}

/// The places of a rule in a pool: one is its own, unless there are too many rules, the others are for whoever comes first.
#[derive(Debug)]
pub(super) struct Places {
    own: Arc<Semaphore>,
    each: usize,
    common: Arc<Semaphore>,
}

impl Places {
    /// Those of another rule.
    pub(super) fn beside(&self) -> Self {
        Self { own: Arc::new(Semaphore::new(self.each)), each: self.each, common: Arc::clone(&self.common) }
    }

    /// Of so many connections, so many of which are kept for single rules: so many for each.
    pub(super) fn of(connections: usize, kept: usize, each: usize) -> Self {
        let common = Arc::new(Semaphore::new(connections.saturating_sub(kept)));
        Self { own: Arc::new(Semaphore::new(each)), each, common }
    }

    pub(super) async fn take(&self) -> Result<OwnedSemaphorePermit, AcquireError> {
        if let Ok(place) = Arc::clone(&self.own).try_acquire_owned() {
            return Ok(place);
        }
        tokio::select! {
            place = Arc::clone(&self.own).acquire_owned() => place,
            place = Arc::clone(&self.common).acquire_owned() => place,
        }
    }
}
