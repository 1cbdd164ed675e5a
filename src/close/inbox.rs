//! The bounded queue between triggers and workers.
//!
//! ```text
//!              facts                      hints                        alone
//!   due now <──── backlog         nobody has read the      suspects | held | rejected
//!      │  after 0.5 s ^           row yet                       ^          │
//!      v              │                 v                       │          v
//!   workers, a batch in a transaction ──────── what fails ──────┘   each in its own
//! ```
//!
//! Guarantees:
//!
//! - An order is in it once, wherever it is. A fact overtakes the hint of the same order.
//! - What falls due now goes before the backlog, which has at least a quarter of the batches; hints have at least a tenth,
//!   and a limit of their own. A crowd of hints has one worker at a time, for a short batch, so that another is free for what
//!   falls due; what exceeds the limit is dropped. The lane `alone` has workers of its own and is in nobody's way.
//! - When full of facts it refuses an order and asks for a sweep: nothing is lost, because the row is still there.
//! - An order about which somebody is to be asked first, or that is to wait, is in no batch meanwhile: [`crate::close::Clearance`].
//! - Everything that it remembers has an end by the clock: settled orders a minute, orders given up a day, and those whose closure
//!   was undone a day after they were found so the last time. Held and rejected orders are tried again until the database says
//!   that they are settled.

mod asking;
mod look;
mod questions;

pub use questions::{Kept, KeptBy};

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, atomic::AtomicBool},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use crate::{
    close::{
        Looked,
        alone::{Next, Waiting},
        clearance::May,
        lanes::{Lane, Stage, State},
    },
    config::{Retry, RuleName},
    order::{OrderId, Row, Trigger},
    outbox::DeadOrder,
    store::LockWait,
};

/// Hints may fill this part of the inbox.
const HINTS_PART: usize = 4;

/// An order waiting to be looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// The order.
    pub id: OrderId,
    /// What made us look.
    pub trigger: Trigger,
    /// How many of its closures have failed so far, as far as they count.
    pub attempts: u32,
    /// The deadline in its row, in microseconds since 1970 UTC, where whoever brought it has read the row.
    pub deadline: Option<i64>,
    /// When its notification came, if that is why it is looked at.
    pub(super) heard: Option<Instant>,
    /// Somebody was asked about it, and has let it go on to the next transaction.
    pub(super) cleared: bool,
    /// What that may do.
    pub(super) may: May,
}

impl Pending {
    /// An order that has not failed yet.
    #[must_use]
    pub fn new(id: OrderId, trigger: Trigger) -> Self {
        Self { id, trigger, attempts: 0, deadline: None, heard: None, cleared: false, may: May::Look }
    }

    /// The same of an order whose row has this deadline.
    #[must_use]
    pub fn with_deadline(self, deadline: Option<i64>) -> Self {
        Self { deadline, ..self }
    }
}

/// Orders for one transaction.
#[derive(Debug)]
pub struct Batch {
    /// The orders.
    pub orders: Vec<Pending>,
    /// While it is there, no other crowd of hints is handed out.
    pub crowd: Option<Crowd>,
}

/// The one crowd of hints that is in hand.
#[derive(Debug)]
pub struct Crowd {
    _only: Arc<()>,
    arrived: Arc<Notify>,
}

impl Drop for Crowd {
    fn drop(&mut self) {
        // Whoever left the next crowd where it was.
        self.arrived.notify_one();
    }
}

/// What became of an offered id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// Queued.
    Queued,
    /// Already queued, in hand, just settled, or waiting for its next try.
    Known,
    /// The inbox is full or closed; a sweep has been asked for, unless it was a hint.
    Full,
}

/// What follows from the outcome of a look at an order, besides what the inbox does itself.
#[derive(Debug, Clone, PartialEq)]
pub enum Consequence {
    /// The database refuses this order's closure, which is tried again.
    Retried {
        /// The order.
        id: OrderId,
        /// How many of its closures have failed.
        attempts: u32,
        /// How long it rests.
        pause: Duration,
        /// What the database said.
        reason: String,
    },
    /// This order is to be given up; it stays in hand until [`Inbox::given_up`].
    GivenUp(DeadOrder),
    /// So many different orders fail that none of them is to blame; the last one's reason.
    AllRefused(String),
    /// Orders can be closed again.
    Recovered,
    /// Orders have been held by other transactions for minutes; said again after as many.
    HeldForLong {
        /// How many are held.
        orders: usize,
        /// For how long the oldest of them has been.
        time: Duration,
    },
}

/// The queue. Share it by reference or [`std::sync::Arc`].
#[derive(Debug)]
pub struct Inbox {
    rule: RuleName,
    state: Mutex<State>,
    capacity: usize,
    retry: RwLock<Retry>,
    arrived: Arc<Notify>,
    /// Shared with the crowd of hints in hand.
    crowd: Arc<()>,
    alone: Notify,
    asking: Notify,
    /// Whether nobody answers who is asked about orders.
    silence: AtomicBool,
    space: Notify,
    idle: Notify,
    sweep_wanted: Notify,
}

impl Inbox {
    /// An inbox for at most `capacity` waiting ids of which the table has told, and a quarter of that of which it has not.
    /// Orders that their database rejects are tried again as `retry` says.
    #[must_use]
    pub fn new(capacity: usize, retry: Retry) -> Self {
        Self {
            rule: RuleName::default(),
            state: Mutex::default(),
            capacity,
            retry: RwLock::new(retry),
            arrived: Arc::default(),
            crowd: Arc::default(),
            alone: Notify::new(),
            asking: Notify::new(),
            silence: AtomicBool::new(false),
            space: Notify::new(),
            idle: Notify::new(),
            sweep_wanted: Notify::new(),
        }
    }

    /// The same for orders of this rule.
    #[must_use]
    pub fn of(mut self, rule: &RuleName) -> Self {
        self.rule = rule.clone();
        self.lock().rule = rule.clone();
        self
    }

    /// The rule whose orders these are.
    #[must_use]
    pub fn rule(&self) -> &RuleName {
        &self.rule
    }

    /// Orders that their database rejects from now on are tried again so; what rests already rests as long as it was told.
    pub fn set_retry(&self, retry: Retry) {
        *self.retry.write().unwrap_or_else(PoisonError::into_inner) = retry;
    }

    /// Offers an id of which nobody has read the row yet. What there is no space for is dropped.
    pub fn offer_hint(&self, id: &OrderId, trigger: Trigger) -> Offer {
        self.admit([(id, None)], trigger, Lane::Hints, None)
    }

    /// Offers orders that fall due now, as their rows have said. What there is no space for is refused, and the next sweep's.
    pub fn offer_due<'a>(&self, ids: impl IntoIterator<Item = &'a OrderId>, trigger: Trigger) -> Offer {
        self.offer_due_since(ids.into_iter().map(|id| (id, None)), trigger)
    }

    /// The same, each with the deadline that its row had when that was read, where it is known.
    pub fn offer_due_since<'a>(&self, orders: impl IntoIterator<Item = (&'a OrderId, Option<i64>)>, trigger: Trigger) -> Offer {
        self.admit(orders, trigger, Lane::DueNow, None)
    }

    /// Offers an order whose row was found overdue in the table at the time `seen`, or later. Overrides the memory of settled
    /// orders that is older, since orders are opened again, and ends the wait of one whose deadline has changed.
    pub fn offer_found(&self, row: &Row, trigger: Trigger, seen: Instant) -> Offer {
        self.admit([(&row.id, row.deadline)], trigger, Lane::Backlog, Some(seen))
    }

    /// Forgets that an order was settled before `seen`, or that it waits, when it was found unpaid and not yet due.
    pub fn reopen(&self, id: &OrderId, seen: Instant) {
        self.lock().reopen(id, seen);
    }

    /// Waits until the inbox has space for what the table tells.
    pub async fn space(&self) {
        self.fewer_than(self.capacity).await;
    }

    /// Waits until fewer than `count` orders are queued of which the table has told.
    pub async fn fewer_than(&self, count: usize) {
        loop {
            let space = self.space.notified();
            {
                let state = self.lock();
                if state.closed || state.facts() < count {
                    return;
                }
            }
            space.await;
        }
    }

    /// Takes a batch of up to `max` orders as soon as there is one; `None` once the inbox is closed.
    pub async fn take(&self, max: usize) -> Option<Batch> {
        loop {
            let arrived = self.arrived.notified();
            {
                let mut state = self.lock();
                if state.closed {
                    // The next worker has to see it too.
                    self.arrived.notify_one();
                    return None;
                }
                let is_crowd_free = Arc::strong_count(&self.crowd) == 1;
                let (orders, is_crowd) = state.next_batch(max, is_crowd_free, Instant::now());
                if !orders.is_empty() {
                    let crowd = is_crowd.then(|| Crowd { _only: Arc::clone(&self.crowd), arrived: Arc::clone(&self.arrived) });
                    if state.queued() > 0 {
                        self.arrived.notify_one();
                    }
                    self.space.notify_one();
                    return Some(Batch { orders, crowd });
                }
                self.tell_idle(&state);
            }
            arrived.await;
        }
    }

    /// Takes what is to be tried next in the lane `alone`, as soon as its time has come, and how it is to wait for locks; `None`
    /// once the inbox is closed.
    pub async fn take_alone(&self) -> Option<(Vec<Pending>, LockWait)> {
        loop {
            let arrived = self.alone.notified();
            let at = {
                let mut state = self.lock();
                if state.closed {
                    self.alone.notify_one();
                    return None;
                }
                let (now, State { alone, trouble, .. }) = (Instant::now(), &mut *state);
                match alone.next(trouble, now) {
                    Next::Try(group, wait) => {
                        state.in_hand += group.len();
                        // There may be more for another worker.
                        self.alone.notify_one();
                        return Some((group, wait));
                    }
                    Next::At(at) => Some(at),
                    Next::Nothing => None,
                }
            };
            match at {
                Some(at) => tokio::time::timeout_at(at, arrived).await.unwrap_or_default(),
                None => arrived.await,
            }
        }
    }

    /// Takes in orders that failed together, to find out which of them cause it. Halves of them are tried, or each by itself
    /// if that is asked for, or while nobody's closure succeeds.
    pub fn isolate(&self, batch: Vec<Pending>, singly: bool) {
        let mut state = self.lock();
        state.in_hand = state.in_hand.saturating_sub(batch.len());
        let singly = singly || state.trouble.next_probe().is_some();
        state.alone.suspect(batch, singly);
        drop(state);
        self.alone.notify_one();
    }

    /// Whether an order turned out to be held by another transaction within this time.
    #[must_use]
    pub fn held_within(&self, time: Duration) -> bool {
        self.lock().alone.held_within(time, Instant::now())
    }

    /// Takes in how looks at orders have ended, and says what else is to be done.
    #[must_use = "what is given up stays in hand until the inbox is told"]
    pub fn settle(&self, looked: Vec<Looked>) -> Vec<Consequence> {
        let now = Instant::now();
        let mut consequences = Vec::new();
        let retry = self.retry.read().unwrap_or_else(PoisonError::into_inner).clone();
        let mut state = self.lock();
        for one in looked {
            state.settle(one, &retry, now, &mut consequences);
        }
        state.expire(now);
        self.tell_idle(&state);
        let queued = state.queued() > 0;
        drop(state);
        self.alone.notify_one();
        if queued {
            // What was closed for another deadline than it was cleared for is back.
            self.arrived.notify_one();
        }
        consequences
    }

    /// An order was given up, and is left alone: for a day, or until its dead letter is put back.
    pub fn given_up(&self, dead: &DeadOrder, is_dead_letter: bool) {
        let DeadOrder { id, undone, .. } = dead;
        let now = Instant::now();
        let mut state = self.lock();
        state.in_hand = state.in_hand.saturating_sub(1);
        if is_dead_letter {
            // Not forgotten: a sweep that read the table before may still bring it.
            state.remember_settled(id, None, now);
        } else {
            state.remember_given_up(id, *undone, now);
        }
        state.expire(now);
        self.tell_idle(&state);
    }

    /// An order that was to be given up is tried again after so long, since that could not be noted.
    pub fn not_given_up(&self, dead: &DeadOrder, pause: Duration) {
        let now = Instant::now();
        let mut state = self.lock();
        state.in_hand = state.in_hand.saturating_sub(1);
        let pending = Pending { attempts: dead.attempts.saturating_sub(1), ..Pending::new(dead.id.clone(), Trigger::Sweep) };
        state.known.insert(dead.id.clone(), Stage::Rejected);
        state
            .alone
            .reject(Waiting { pending, since: now, tries: 0, reason: dead.error.clone(), held: false, uncounted: false }, now + pause);
        self.alone.notify_one();
    }

    /// Whether it takes no more orders, now and ever.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Asks for a sweep.
    pub fn want_sweep(&self) {
        self.sweep_wanted.notify_one();
    }

    /// Waits until somebody asks for a sweep.
    pub async fn sweep_wanted(&self) {
        self.sweep_wanted.notified().await;
    }

    /// Stops intake. What is queued stays where it is: in the table.
    pub fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_one();
        self.alone.notify_one();
        self.asking.notify_one();
        self.space.notify_waiters();
        self.idle.notify_waiters();
    }

    /// Waits until each order has been tried at least once, and only held and rejected ones are left.
    pub async fn idle(&self) {
        loop {
            let idle = self.idle.notified();
            if self.lock().is_idle() {
                return;
            }
            idle.await;
        }
    }

    fn tell_idle(&self, state: &State) {
        if state.is_idle() {
            self.idle.notify_waiters();
        }
    }

    /// Returns what became of the last of these ids.
    fn admit<'a>(
        &self,
        orders: impl IntoIterator<Item = (&'a OrderId, Option<i64>)>,
        trigger: Trigger,
        lane: Lane,
        seen: Option<Instant>,
    ) -> Offer {
        let orders = orders.into_iter();
        let (mut queued, mut full, mut last) = (false, false, Offer::Known);
        let capacity = if lane == Lane::Hints { self.capacity.div_ceil(HINTS_PART) } else { self.capacity };
        let now = Instant::now();
        let mut state = self.lock();
        state.known.reserve(orders.size_hint().0);
        for (id, deadline) in orders {
            let heard = (trigger == Trigger::Expired).then_some(now);
            let pending = Pending { heard, ..Pending::new(id.clone(), trigger).with_deadline(deadline) };
            last = state.admit(pending, lane, seen, capacity, now);
            queued |= last == Offer::Queued;
            full |= last == Offer::Full;
        }
        drop(state);
        if queued {
            self.arrived.notify_one();
        }
        if full && lane != Lane::Hints {
            self.want_sweep();
        }
        last
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here can panic halfway through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
