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
//!   and a limit of their own. The lane `alone` has workers of its own and is in nobody's way.
//! - When full it refuses an order and asks for a sweep: nothing is lost, because the row is still there.
//! - Everything that it remembers has an end by the clock: settled orders a minute, orders given up a day. Held and
//!   rejected orders are tried again until the database says that they are settled.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use crate::{
    close::{
        alone::{Alone, Next, Waiting},
        outcome::{Looked, Outcome, UNDONE},
        queue::Queue,
        trouble::{Blame, Trouble},
    },
    config::Retry,
    order::{OrderId, Trigger},
    store::{DeadOrder, LockWait},
};

/// How long a settled order is remembered, and how many of them.
const SETTLED_FOR: Duration = Duration::from_mins(1);
const SETTLED_SIZE: usize = 65_536;

/// The same of orders that were given up.
const GIVEN_UP_FOR: Duration = Duration::from_hours(24);
const GIVEN_UP_SIZE: usize = 100_000;

/// What falls due now is backlog after so long.
const DUE_NOW: Duration = Duration::from_millis(500);

/// No payment takes so long.
const HELD_FOR_LONG: Duration = Duration::from_mins(2);

/// Of so many batches one is of the backlog, or of hints, while others wait, too.
const BACKLOG_TURN: u32 = 4;
const HINTS_TURN: u32 = 10;

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
}

impl Pending {
    /// An order that has not failed yet.
    #[must_use]
    pub fn new(id: OrderId, trigger: Trigger) -> Self {
        Self { id, trigger, attempts: 0 }
    }
}

/// What became of an offered id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// Queued.
    Queued,
    /// Already queued, in hand, just settled, or waiting for its next try.
    Known,
    /// The inbox is full or closed; a sweep has been asked for.
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

/// How a lane's orders came to be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    DueNow,
    Backlog,
    Hints,
}

/// Where an order is.
#[derive(Debug, Clone, Copy)]
enum Stage {
    /// In the queue of hints.
    Hinted,
    /// Anywhere else: queued, in hand, alone.
    Open,
    Settled(Instant),
    GivenUp(Instant),
}

type ById<T> = HashMap<OrderId, T, foldhash::quality::RandomState>;

#[derive(Debug, Default)]
struct State {
    due_now: Queue,
    backlog: Queue,
    hints: Queue,
    turn: u32,
    alone: Alone,
    trouble: Trouble,
    known: ById<Stage>,
    /// Settled orders and those given up, oldest first.
    settled: VecDeque<(Instant, OrderId)>,
    given_up: VecDeque<(Instant, OrderId)>,
    in_hand: usize,
    /// When it was said that orders are held for long.
    held_said: Option<Instant>,
    closed: bool,
}

/// The queue. Share it by reference or [`std::sync::Arc`].
#[derive(Debug)]
pub struct Inbox {
    state: Mutex<State>,
    capacity: usize,
    retry: Retry,
    arrived: Notify,
    alone: Notify,
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
            state: Mutex::default(),
            capacity,
            retry,
            arrived: Notify::new(),
            alone: Notify::new(),
            space: Notify::new(),
            idle: Notify::new(),
            sweep_wanted: Notify::new(),
        }
    }

    /// Offers an id of which nobody has read the row yet.
    pub fn offer_hint(&self, id: &OrderId, trigger: Trigger) -> Offer {
        self.admit([id], trigger, Lane::Hints, None)
    }

    /// Offers orders that fall due now, as their rows have said. What there is no space for is refused, and the next sweep's.
    pub fn offer_due<'a>(&self, ids: impl IntoIterator<Item = &'a OrderId>, trigger: Trigger) -> Offer {
        self.admit(ids, trigger, Lane::DueNow, None)
    }

    /// Offers an order that was found overdue in the table at the time `seen`, or later. Overrides the memory of settled
    /// orders that is older: orders are opened again.
    pub fn offer_found(&self, id: &OrderId, trigger: Trigger, seen: Instant) -> Offer {
        self.admit([id], trigger, Lane::Backlog, Some(seen))
    }

    /// Forgets that an order was settled before `seen`, when it was found unpaid and not yet due.
    pub fn reopen(&self, id: &OrderId, seen: Instant) {
        let mut state = self.lock();
        if matches!(state.known.get(id), Some(Stage::Settled(at)) if *at < seen) {
            state.known.remove(id);
        }
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
    pub async fn take(&self, max: usize) -> Option<Vec<Pending>> {
        loop {
            let arrived = self.arrived.notified();
            {
                let mut state = self.lock();
                if state.closed {
                    // The next worker has to see it too.
                    self.arrived.notify_one();
                    return None;
                }
                let batch = state.next_batch(max, Instant::now());
                if !batch.is_empty() {
                    if state.queued() > 0 {
                        self.arrived.notify_one();
                    }
                    self.space.notify_one();
                    return Some(batch);
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
        let mut state = self.lock();
        for one in looked {
            state.settle(one, &self.retry, now, &mut consequences);
        }
        state.expire(now);
        self.tell_idle(&state);
        drop(state);
        self.alone.notify_one();
        consequences
    }

    /// An order was given up, and is left alone: for a day, or until its dead letter is put back.
    pub fn given_up(&self, id: &OrderId, is_dead_letter: bool) {
        let now = Instant::now();
        let mut state = self.lock();
        state.in_hand = state.in_hand.saturating_sub(1);
        if is_dead_letter {
            // Not forgotten: a sweep that read the table before may still bring it.
            state.remember_settled(id, now);
        } else {
            state.known.insert(id.clone(), Stage::GivenUp(now));
            state.given_up.push_back((now, id.clone()));
        }
        state.expire(now);
        self.tell_idle(&state);
    }

    /// An order that was to be given up is tried again after so long, since that could not be noted.
    pub fn not_given_up(&self, dead: &DeadOrder, pause: Duration) {
        let now = Instant::now();
        let mut state = self.lock();
        state.in_hand = state.in_hand.saturating_sub(1);
        let pending = Pending { id: dead.id.clone(), trigger: Trigger::Sweep, attempts: dead.attempts.saturating_sub(1) };
        state
            .alone
            .reject(Waiting { pending, since: now, tries: 0, reason: dead.error.clone(), held: false, uncounted: false }, now + pause);
        self.alone.notify_one();
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
        self.space.notify_waiters();
        self.idle.notify_waiters();
    }

    /// How many ids wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        let state = self.lock();
        state.queued() + state.alone.len()
    }

    /// How many orders another transaction holds, and since when the oldest of them.
    #[must_use]
    pub fn held(&self) -> Option<(usize, Duration)> {
        let state = self.lock();
        state.alone.held_since().map(|since| (state.alone.held(), since.elapsed()))
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

    /// The orders that were tried in vain and wait for their next try, with the last try's reason; `true` for those that
    /// another transaction holds.
    #[must_use]
    pub fn left(&self) -> Vec<(OrderId, String, bool)> {
        let state = self.lock();
        state.alone.waiting().map(|waiting| (waiting.pending.id.clone(), waiting.reason.clone(), waiting.held)).collect()
    }

    fn tell_idle(&self, state: &State) {
        if state.is_idle() {
            self.idle.notify_waiters();
        }
    }

    /// Returns what became of the last of these ids.
    fn admit<'a>(&self, ids: impl IntoIterator<Item = &'a OrderId>, trigger: Trigger, lane: Lane, seen: Option<Instant>) -> Offer {
        let ids = ids.into_iter();
        let (mut queued, mut full, mut last) = (false, false, Offer::Known);
        let capacity = if lane == Lane::Hints { self.capacity.div_ceil(HINTS_PART) } else { self.capacity };
        let now = Instant::now();
        let mut state = self.lock();
        state.known.reserve(ids.size_hint().0);
        for id in ids {
            last = state.admit(Pending::new(id.clone(), trigger), lane, seen, capacity, now);
            queued |= last == Offer::Queued;
            full |= last == Offer::Full;
        }
        drop(state);
        if queued {
            self.arrived.notify_one();
        }
        if full {
            self.want_sweep();
        }
        last
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here can panic halfway through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn admit(&mut self, pending: Pending, lane: Lane, seen: Option<Instant>, capacity: usize, now: Instant) -> Offer {
        let queued = if lane == Lane::Hints { self.hints.len() } else { self.facts() };
        let known = self.known.entry(pending.id.clone());
        if let Entry::Occupied(known) = &known {
            match known.get() {
                Stage::Open => return Offer::Known,
                Stage::Hinted if lane == Lane::Hints => return Offer::Known,
                Stage::Settled(at) if now - *at < SETTLED_FOR && seen.is_none_or(|seen| seen <= *at) => return Offer::Known,
                Stage::GivenUp(at) if now - *at < GIVEN_UP_FOR => return Offer::Known,
                Stage::Hinted | Stage::Settled(_) | Stage::GivenUp(_) => {}
            }
        }
        if self.closed || queued >= capacity {
            return Offer::Full;
        }
        known.insert_entry(if lane == Lane::Hints { Stage::Hinted } else { Stage::Open });
        let queue = match lane {
            Lane::DueNow => &mut self.due_now,
            Lane::Backlog => &mut self.backlog,
            Lane::Hints => &mut self.hints,
        };
        queue.push(pending, now);
        Offer::Queued
    }

    fn next_batch(&mut self, max: usize, now: Instant) -> Vec<Pending> {
        self.due_now.age(DUE_NOW, now, &mut self.backlog);
        self.turn = self.turn.wrapping_add(1);
        let mut lanes = [Lane::DueNow, Lane::Backlog, Lane::Hints];
        if self.turn.is_multiple_of(HINTS_TURN) {
            lanes.rotate_right(1);
        } else if self.turn.is_multiple_of(BACKLOG_TURN) {
            lanes.swap(0, 1);
        }
        for lane in lanes {
            let batch = match lane {
                Lane::DueNow => self.due_now.take(max, |_| true),
                Lane::Backlog => self.backlog.take(max, |_| true),
                Lane::Hints => {
                    // A fact may have overtaken the hint, and may have been settled since.
                    let known = &mut self.known;
                    self.hints.take(max, |pending| match known.get_mut(&pending.id) {
                        Some(stage @ Stage::Hinted) => {
                            *stage = Stage::Open;
                            true
                        }
                        Some(Stage::Open | Stage::Settled(_) | Stage::GivenUp(_)) | None => false,
                    })
                }
            };
            if !batch.is_empty() {
                self.in_hand += batch.len();
                return batch;
            }
        }
        Vec::new()
    }

    fn settle(&mut self, Looked { pending, outcome }: Looked, retry: &Retry, now: Instant, consequences: &mut Vec<Consequence>) {
        self.in_hand = self.in_hand.saturating_sub(1);
        let before = self.alone.take_back(&pending);
        match outcome {
            Outcome::Closed(_) => {
                self.remember_settled(&pending.id, now);
                if before.is_some_and(|before| before.held) {
                    self.alone.hope();
                }
                if self.trouble.closed() {
                    consequences.push(Consequence::Recovered);
                    self.count_failures(retry, now, consequences);
                }
            }
            Outcome::Settled { .. } | Outcome::NotFound => self.remember_settled(&pending.id, now),
            Outcome::NotDue { .. } => drop(self.known.remove(&pending.id)),
            Outcome::Locked { reason } => {
                let before = before.filter(|before| before.held);
                let long = before.as_ref().is_some_and(|before| now - before.since >= HELD_FOR_LONG);
                self.alone.hold(pending, before, reason, now);
                if long && self.held_said.is_none_or(|said| now - said >= HELD_FOR_LONG) {
                    self.held_said = Some(now);
                    let time = self.alone.held_since().map_or(HELD_FOR_LONG, |since| now - since);
                    consequences.push(Consequence::HeldForLong { orders: self.alone.held(), time });
                }
            }
            Outcome::Undone => {
                self.in_hand += 1;
                consequences.push(Consequence::GivenUp(DeadOrder { id: pending.id, attempts: pending.attempts + 1, error: UNDONE.into() }));
            }
            Outcome::Rejected { reason } => {
                let since = before.map_or(now, |before| before.since);
                let blame = self.trouble.failed(&pending.id, now);
                if blame == Blame::Order {
                    self.count(Waiting { pending, since, tries: 0, reason, held: false, uncounted: false }, retry, now, consequences);
                    return;
                }
                if blame == Blame::BegunToBeEverybodys {
                    consequences.push(Consequence::AllRefused(reason.clone()));
                }
                self.alone.reject(Waiting { pending, since, tries: 0, reason, held: false, uncounted: true }, now);
            }
        }
    }

    /// Counts an order's failure: it rests, or is given up.
    fn count(&mut self, mut waiting: Waiting, retry: &Retry, now: Instant, consequences: &mut Vec<Consequence>) {
        waiting.pending.attempts += 1;
        let (id, attempts, reason) = (waiting.pending.id.clone(), waiting.pending.attempts, waiting.reason.clone());
        match retry.pause_after(attempts) {
            Some(pause) => {
                self.alone.reject(waiting, now + pause);
                consequences.push(Consequence::Retried { id, attempts, pause, reason });
            }
            None => {
                self.in_hand += 1;
                consequences.push(Consequence::GivenUp(DeadOrder { id, attempts, error: reason }));
            }
        }
    }

    /// Another order was closed: each failure that was not counted counts now, once, and its order is tried at once.
    fn count_failures(&mut self, retry: &Retry, now: Instant, consequences: &mut Vec<Consequence>) {
        for mut waiting in self.alone.uncounted() {
            waiting.uncounted = false;
            if waiting.pending.attempts >= retry.attempts {
                self.count(waiting, retry, now, consequences);
            } else {
                waiting.pending.attempts += 1;
                self.alone.reject(waiting, now);
            }
        }
    }

    /// Those of which the table has told.
    fn facts(&self) -> usize {
        self.due_now.len() + self.backlog.len()
    }

    fn queued(&self) -> usize {
        self.facts() + self.hints.len()
    }

    fn is_idle(&self) -> bool {
        self.closed || (self.queued() == 0 && self.in_hand == 0 && !self.alone.is_busy())
    }

    fn remember_settled(&mut self, id: &OrderId, now: Instant) {
        match self.known.get_mut(id) {
            Some(stage) => *stage = Stage::Settled(now),
            None => drop(self.known.insert(id.clone(), Stage::Settled(now))),
        }
        self.settled.push_back((now, id.clone()));
    }

    /// Drops memories that are too old or too many.
    fn expire(&mut self, now: Instant) {
        while let Some((at, id)) = pop_old(&mut self.settled, SETTLED_FOR, SETTLED_SIZE, now) {
            self.forget(&id, at);
        }
        while let Some((at, id)) = pop_old(&mut self.given_up, GIVEN_UP_FOR, GIVEN_UP_SIZE, now) {
            self.forget(&id, at);
        }
    }

    /// Unless the id has a newer story than this memory of it.
    fn forget(&mut self, id: &OrderId, at: Instant) {
        if matches!(self.known.get(id), Some(Stage::Settled(newest) | Stage::GivenUp(newest)) if *newest == at) {
            self.known.remove(id);
        }
    }
}

/// The oldest memory, if it is older than this or there are more of them.
fn pop_old(memories: &mut VecDeque<(Instant, OrderId)>, lasts: Duration, size: usize, now: Instant) -> Option<(Instant, OrderId)> {
    let too_many = memories.len() > size;
    memories.pop_front_if(|(at, _)| too_many || now - *at > lasts)
}
