//! What there is besides daemons: a database's rows and locks, a Redis' keys, a payment provider, clocks; and all that happens.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, advance, sleep, timeout_at},
};

use super::{
    daemon::Node,
    history::{Entry, What},
    outbox::{Delivery, Known, Recorded},
    plan::{Kind, Plan},
    planted::Planted,
};
use crate::order::OrderId;

/// The host's clock at the beginning, in microseconds since 1970 UTC.
const START: i64 = 1_700_000_000_000_000;

/// So long after the last deadline, and before a key expires, something may still happen, in microseconds.
const A_WHILE: i64 = 3_000_000;

/// So often it is seen whether all is settled.
const A_MOMENT: Duration = Duration::from_millis(100);

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

/// Nothing is closed, or so many orders a second, since then.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pause {
    pub(super) since: i64,
    pub(super) rate: Option<u32>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) orders: BTreeMap<u32, Order>,
    /// Which transaction holds which row.
    pub(super) locks: BTreeMap<Lockable, u64>,
    /// Closures that gave stock back, and events, as committed.
    pub(super) restored: Vec<u32>,
    pub(super) events: Vec<Recorded>,
    /// What is still to be told of them, by their places; what was taken of them when, and what is known of the receiver.
    pub(super) deliveries: BTreeMap<usize, Delivery>,
    pub(super) told: Vec<(usize, i64)>,
    pub(super) target: Known,
    transactions: u64,
    /// Transactions before this one died with the database.
    dead_before: u64,
    pub(super) database_down: bool,
    pub(super) slow: Duration,
    /// How far the database's clock was set ahead.
    set_ahead: i64,
    /// The pause that lasts, and from when to when nothing was to be closed.
    pub(super) pause: Option<Pause>,
    pub(super) paused: Vec<(i64, i64)>,
    /// When keys expire, by Redis' clock.
    pub(super) keys: BTreeMap<u32, i64>,
    /// How often it was asked when each of them expires, and how often keys were touched.
    pub(super) asked: BTreeMap<u32, u32>,
    pub(super) touches: u32,
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

impl State {
    /// The orders about which something is still to be done.
    fn open(&self) -> impl Iterator<Item = &u32> {
        let is_open = |number: &u32, order: &Order| order.status == UNPAID && !order.poison && !self.paid.contains(number);
        self.orders.iter().filter(move |(number, order)| is_open(number, order)).map(|(number, _)| number)
    }
}

/// As tokio's own, which looks at all timers, too, each time.
async fn let_others_go_first() {
    let mut has_waited = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// How long a read of what is overdue or soon due takes, and whether it fails then.
pub(super) type Reading = Box<dyn Fn(&World) -> (Duration, bool) + Send>;

/// Such a read: when it began, how long it took, and whether it was one of what is overdue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Read {
    pub(super) at: Instant,
    pub(super) took: Duration,
    pub(super) is_sweep: bool,
}

/// All of it.
pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) planted: Option<Planted>,
    pub(super) began: Instant,
    random: Mutex<fastrand::Rng>,
    state: Mutex<State>,
    released: Notify,
    pub(super) nodes: Mutex<Vec<Arc<Node>>>,
    /// How reads go, where that is told, and how they went.
    reading: Mutex<Option<Reading>>,
    reads: Mutex<Vec<Read>>,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("plan", &self.plan).finish_non_exhaustive()
    }
}

/// Each is of another share than its neighbours.
const APART: u32 = 32;

pub(super) fn id(order: u32) -> OrderId {
    OrderId::from_database(&(order * APART).to_string())
}

/// The number of an order; none for ids that are nobody's.
pub(super) fn number(id: &str) -> Option<u32> {
    id.parse().ok().filter(|id: &u32| id.is_multiple_of(APART)).map(|id| id / APART)
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
            reading: Mutex::default(),
            reads: Mutex::default(),
        })
    }

    /// From now on reads go like this.
    pub(super) fn read_like(&self, reading: Reading) {
        *self.reading.lock().unwrap_or_else(PoisonError::into_inner) = Some(reading);
    }

    /// A read goes as it was told to; whether it ends well.
    pub(super) async fn reads(&self, is_sweep: bool) -> bool {
        let told = self.reading.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|reading| reading(self));
        let Some((took, fails)) = told else { return true };
        let at = Instant::now();
        sleep(took).await;
        self.reads.lock().unwrap_or_else(PoisonError::into_inner).push(Read { at, took, is_sweep });
        !fails
    }

    /// How they went: those of what is overdue, or of what is soon due.
    pub(super) fn were_read(&self, is_sweep: bool) -> Vec<Read> {
        let reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        reads.iter().copied().filter(|read| read.is_sweep == is_sweep).collect()
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

    /// Somebody pauses closing, or ends that.
    pub(super) fn pause(&self, pause: Option<Option<u32>>) {
        let now = self.now();
        let mut state = self.state();
        if let Some(Pause { since, rate: None }) = state.pause {
            state.paused.push((since, now));
        }
        state.pause = pause.map(|rate| Pause { since: now, rate });
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
            0 => let_others_go_first().await,
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
        state.deliveries.is_empty() && state.open().next().is_none()
    }

    /// Once all is mended: waits for a moment. While nothing can happen all stand still, as the machine does that they run on.
    pub(super) async fn wait(&self) {
        match self.quiet_for() {
            Some(quiet) if quiet > A_MOMENT => advance(quiet).await,
            Some(_) | None => sleep(A_MOMENT).await,
        }
    }

    /// How long nothing can happen: whatever is open has been overdue for a while and waits for its key, and no key expires before.
    fn quiet_for(&self) -> Option<Duration> {
        let is_over = self.now() > self.last_deadline() + A_WHILE;
        let (now, state) = (self.redis_now(), self.state());
        let is_idle = is_over && state.deliveries.is_empty() && state.open().all(|order| state.keys.contains_key(order));
        let first = state.keys.values().min().filter(|_| is_idle)?;
        u64::try_from(first - now - A_WHILE).ok().map(Duration::from_micros)
    }
}
