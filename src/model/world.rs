//! What there is besides daemons: a database's rows and locks, a Redis' keys, a payment provider, clocks; and all that happens.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout_at},
};

use super::{
    daemon::Node,
    history::{Entry, What},
    plan::{Kind, Plan},
    planted::Planted,
};
use crate::order::OrderId;

/// The host's clock at the beginning, in microseconds since 1970 UTC.
const START: i64 = 1_700_000_000_000_000;

/// How many articles are in stock; a closure gives one of them back, and locks its row.
pub(super) const ARTICLES: u32 = 3;

pub(super) const UNPAID: &str = "unpaid";
pub(super) const PAID: &str = "paid";
pub(super) const CANCELLED: &str = "cancelled";
pub(super) const CLOSED: &str = "closed";

/// A row that a transaction can lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lockable {
    Order(u32),
    Article(u32),
}

/// An order's row.
#[derive(Debug, Clone)]
pub(super) struct Order {
    pub(super) status: &'static str,
    pub(super) deadline: i64,
    /// No closure of it succeeds.
    pub(super) poison: bool,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) orders: BTreeMap<u32, Order>,
    /// Which transaction holds which row.
    pub(super) locks: BTreeMap<Lockable, u64>,
    /// Closures that gave stock back, and events, as committed.
    pub(super) restored: Vec<u32>,
    pub(super) events: Vec<(u32, i64)>,
    transactions: u64,
    /// Transactions before this one died with the database.
    dead_before: u64,
    pub(super) database_down: bool,
    pub(super) slow: Duration,
    /// How far the database's clock was set ahead.
    set_ahead: i64,
    /// When keys expire, by Redis' clock.
    pub(super) keys: BTreeMap<u32, i64>,
    pub(super) redis_away: bool,
    /// How often it was emptied.
    pub(super) life: u32,
    pub(super) board: BTreeMap<String, HashMap<String, String>>,
    /// Whom the provider has for paid, whose payment is under way, and who can't be paid any more.
    pub(super) paid: BTreeSet<u32>,
    pub(super) paying: BTreeSet<u32>,
    pub(super) expired: BTreeSet<u32>,
    /// Nothing goes wrong any more.
    pub(super) faults_over: bool,
    pub(super) history: Vec<Entry>,
}

/// All of it.
#[derive(Debug)]
pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) planted: Option<Planted>,
    pub(super) began: Instant,
    random: Mutex<fastrand::Rng>,
    state: Mutex<State>,
    released: Notify,
    pub(super) nodes: Mutex<Vec<Arc<Node>>>,
}

pub(super) fn id(order: u32) -> OrderId {
    OrderId::from_database(&order.to_string())
}

/// The number of an order; none for ids that are nobody's.
pub(super) fn number(id: &str) -> Option<u32> {
    id.parse().ok()
}

pub(super) fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

impl World {
    pub(super) fn new(seed: u64, plan: Plan, planted: Option<Planted>) -> Arc<Self> {
        Arc::new(Self {
            plan,
            planted,
            began: Instant::now(),
            random: Mutex::new(fastrand::Rng::with_seed(seed)),
            state: Mutex::default(),
            released: Notify::new(),
            nodes: Mutex::default(),
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What the database's clock shows where nobody has set it: what deadlines mean.
    pub(super) fn now(&self) -> i64 {
        let since = micros(self.began.elapsed());
        START + self.plan.database_ahead + since + since * self.plan.drift / 1_000_000
    }

    /// The same at the beginning.
    pub(super) const fn began_at(&self) -> i64 {
        START + self.plan.database_ahead
    }

    /// What it shows.
    pub(super) fn shown(&self) -> i64 {
        self.now() + self.state().set_ahead
    }

    pub(super) fn set_clock(&self, ahead: i64) {
        self.state().set_ahead = ahead;
    }

    pub(super) fn redis_now(&self) -> i64 {
        START + self.plan.redis_ahead + micros(self.began.elapsed())
    }

    /// When the database's clock shows this, by Redis' clock.
    pub(super) fn by_redis(&self, deadline: i64) -> i64 {
        deadline - self.now() + self.redis_now()
    }

    pub(super) fn chance(&self, of: f64) -> bool {
        self.random.lock().unwrap_or_else(PoisonError::into_inner).f64() < of
    }

    pub(super) fn draw(&self, from: u64, to: u64) -> u64 {
        self.random.lock().unwrap_or_else(PoisonError::into_inner).u64(from..to.max(from + 1))
    }

    pub(super) fn millis(&self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.draw(from, to))
    }

    /// Whether something of this kind may go wrong now.
    pub(super) fn goes_wrong(&self, kind: Kind) -> bool {
        self.plan.has(kind) && !self.state().faults_over
    }

    /// The way to a server, or back.
    pub(super) async fn way(&self) {
        let way = self.draw(0, micros(self.plan.way).unsigned_abs());
        // Timers count milliseconds.
        match way / 1_000 {
            0 => tokio::task::yield_now().await,
            millis => sleep(Duration::from_millis(millis)).await,
        }
    }

    pub(super) fn note(&self, order: u32, what: What) {
        let at = self.now();
        self.state().history.push(Entry { at, order, what });
    }

    pub(super) fn begin(&self) -> u64 {
        let mut state = self.state();
        state.transactions += 1;
        state.transactions
    }

    pub(super) fn is_dead(&self, transaction: u64) -> bool {
        self.state().dead_before > transaction
    }

    /// The database goes away, and all transactions with it.
    pub(super) fn crash(&self) {
        let mut state = self.state();
        state.database_down = true;
        state.dead_before = state.transactions + 1;
        state.locks.clear();
        drop(state);
        self.released.notify_waiters();
    }

    /// Locks a row if nobody else holds it.
    pub(super) fn try_lock(&self, row: Lockable, transaction: u64) -> bool {
        let mut state = self.state();
        if state.dead_before > transaction {
            return true;
        }
        *state.locks.entry(row).or_insert(transaction) == transaction
    }

    /// Waits for a row's lock, but no longer than that.
    pub(super) async fn lock(&self, row: Lockable, transaction: u64, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        loop {
            let released = self.released.notified();
            if self.try_lock(row, transaction) {
                return true;
            }
            if timeout_at(end, released).await.is_err() {
                return false;
            }
        }
    }

    /// Gives back all locks of a transaction.
    pub(super) fn release(&self, transaction: u64) {
        self.state().locks.retain(|_, holder| *holder != transaction);
        self.released.notify_waiters();
    }

    /// Whether nothing is left to be done about an order, but wait.
    pub(super) fn is_settled(&self) -> bool {
        let state = self.state();
        state.orders.iter().all(|(number, order)| order.status != UNPAID || order.poison || state.paid.contains(number))
    }
}
