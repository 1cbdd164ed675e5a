//! The bounded queue between those who hear of orders and those who close them.
//!
//! Guarantees that an id is queued or in hand at most once. When full it refuses an id and asks for a
//! sweep: nothing is lost, because the row is still there. Ids just settled are remembered for a short
//! while, so that a late duplicate costs nothing; an order that its database rejected rests here between
//! its tries.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::Notify;

use crate::order::{OrderId, Trigger};

/// How long a settled id is remembered, and how many of them.
const MEMORY: Duration = Duration::from_mins(1);
const MEMORY_SIZE: usize = 65_536;

/// How many rejected orders may rest; beyond that they begin anew when a sweep finds them.
const RESTING_SIZE: usize = 100_000;

/// Of so many batches, one is an order tried alone, when both kinds wait.
const ALONE_TURN: u32 = 4;

/// An order waiting to be looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// The order.
    pub id: OrderId,
    /// What made us look.
    pub trigger: Trigger,
    /// How often its database has rejected it so far; if ever, it is tried alone.
    pub rejections: u32,
}

/// What became of an offered id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// Queued.
    Queued,
    /// Already queued, in hand, just settled, or resting until its next try.
    Known,
    /// The inbox is full or closed; a sweep has been asked for.
    Full,
}

/// How the look at an order ended, for the inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Nothing is left to do: closed, paid, or no such order.
    Settled,
    /// Somebody else carries it now, or a sweep will find it.
    Forgotten,
    /// Rejected: not to be looked at before `until`; never, if that is `None`.
    Resting {
        /// How often it has been rejected.
        rejections: u32,
        /// When the look began that ended so.
        since: Instant,
        /// When it may be tried again.
        until: Option<Instant>,
    },
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    /// Queued or in hand.
    Open,
    Settled(Instant),
    Resting {
        until: Option<Instant>,
    },
}

/// An order that is rejected, and will be tried again.
#[derive(Debug, Clone, Copy)]
struct Rejected {
    times: u32,
    since: Instant,
}

type ById<T> = HashMap<OrderId, T, foldhash::quality::RandomState>;

#[derive(Debug, Default)]
struct State {
    /// What is being worked off, neighbours together.
    run: VecDeque<Pending>,
    /// What has arrived since the run began.
    arrived: Vec<Pending>,
    /// Orders rejected before; they go one by one, so that they can't spoil a batch.
    alone: VecDeque<Pending>,
    turn: u32,
    known: ById<Stage>,
    /// The settled ids, oldest first.
    settled: VecDeque<(Instant, OrderId)>,
    resting: usize,
    rejected: ById<Rejected>,
    closed: bool,
}

/// The queue. Share it by reference or [`std::sync::Arc`].
#[derive(Debug)]
pub struct Inbox {
    state: Mutex<State>,
    capacity: usize,
    arrived: Notify,
    space: Notify,
    sweep_wanted: Notify,
}

impl Inbox {
    /// An inbox for at most `capacity` waiting ids.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { state: Mutex::default(), capacity, arrived: Notify::new(), space: Notify::new(), sweep_wanted: Notify::new() }
    }

    /// Offers an id that somebody heard of.
    pub fn offer(&self, id: &OrderId, trigger: Trigger) -> Offer {
        self.admit([id], trigger, None)
    }

    /// Offers many at once. What there is no space for is refused as ever, and the next sweep's.
    pub fn offer_all(&self, ids: &[OrderId], trigger: Trigger) {
        self.admit(ids, trigger, None);
    }

    /// Offers an id that was found unpaid in the table at the time `seen`, or later. Overrides the memory
    /// of settled ids that are older: orders are re-opened.
    pub fn offer_found(&self, id: &OrderId, trigger: Trigger, seen: Instant) -> Offer {
        self.admit([id], trigger, Some(seen))
    }

    /// Forgets that an order was settled before `seen`, when it was found unpaid and not yet due.
    pub fn reopen(&self, id: &OrderId, seen: Instant) {
        let mut state = self.lock();
        if matches!(state.known.get(id), Some(Stage::Settled(at)) if *at < seen) {
            state.known.remove(id);
        }
    }

    /// Waits until the inbox has space.
    pub async fn space(&self) {
        self.fewer_than(self.capacity).await;
    }

    /// Waits until fewer than `count` ids are queued.
    pub async fn fewer_than(&self, count: usize) {
        loop {
            let space = self.space.notified();
            {
                let state = self.lock();
                if state.closed || state.queued() < count {
                    return;
                }
            }
            space.await;
        }
    }

    /// Takes up to `max` ids as soon as there is one; `None` once the inbox is closed.
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
                let batch = state.next_batch(max);
                if !batch.is_empty() {
                    if state.waiting() > 0 {
                        self.arrived.notify_one();
                    }
                    self.space.notify_one();
                    return Some(batch);
                }
            }
            arrived.await;
        }
    }

    /// Says how the look at an order that was taken has ended.
    pub fn finish(&self, id: &OrderId, ending: Ending) {
        let now = Instant::now();
        let mut state = self.lock();
        let before = state.rejected.remove(id);
        match ending {
            Ending::Forgotten => state.forget(id),
            Ending::Settled => {
                match state.known.get_mut(id) {
                    Some(stage) => *stage = Stage::Settled(now),
                    None => drop(state.known.insert(id.clone(), Stage::Settled(now))),
                }
                state.settled.push_back((now, id.clone()));
                state.expire(now);
            }
            Ending::Resting { .. } if state.resting >= RESTING_SIZE => state.forget(id),
            Ending::Resting { rejections, since, until } => {
                state.resting += 1;
                state.known.insert(id.clone(), Stage::Resting { until });
                if until.is_some() {
                    let since = before.map_or(since, |before| before.since);
                    state.rejected.insert(id.clone(), Rejected { times: rejections, since });
                }
            }
        }
    }

    /// Since when this order is rejected, if it was before.
    #[must_use]
    pub fn rejected_since(&self, id: &OrderId) -> Option<Instant> {
        self.lock().rejected.get(id).map(|rejected| rejected.since)
    }

    /// Whether some other order is rejected too, and will be tried again.
    #[must_use]
    pub fn rejects_others(&self, id: &OrderId) -> bool {
        let (state, now) = (self.lock(), Instant::now());
        // One that nobody brings again is open no longer.
        let gone = |other| matches!(state.known.get(other), Some(Stage::Resting { until: Some(until) }) if now > *until + MEMORY);
        state.rejected.keys().any(|other| other != id && !gone(other))
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
        self.space.notify_waiters();
    }

    /// How many ids wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.lock().waiting()
    }

    /// Returns what became of the last of these ids.
    fn admit<'a>(&self, ids: impl IntoIterator<Item = &'a OrderId>, trigger: Trigger, seen: Option<Instant>) -> Offer {
        let ids = ids.into_iter();
        let (mut queued, mut full, mut last) = (false, false, Offer::Known);
        let mut state = self.lock();
        state.known.reserve(ids.size_hint().0);
        let now = Instant::now();
        for id in ids {
            last = state.admit(id, trigger, seen, self.capacity, now);
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
    fn admit(&mut self, id: &OrderId, trigger: Trigger, seen: Option<Instant>, capacity: usize, now: Instant) -> Offer {
        let full = self.closed || self.queued() >= capacity;
        let known = self.known.entry(id.clone());
        if let Entry::Occupied(known) = &known {
            match known.get() {
                Stage::Open => return Offer::Known,
                Stage::Settled(at) if now.duration_since(*at) < MEMORY && seen.is_none_or(|seen| seen <= *at) => return Offer::Known,
                Stage::Resting { until } if until.is_none_or(|until| until > now) => return Offer::Known,
                Stage::Settled(_) | Stage::Resting { .. } => {}
            }
        }
        if full {
            return Offer::Full;
        }
        known.insert_entry(Stage::Open);
        let rejections = self.rejected.get(id).map_or(0, |rejected| rejected.times);
        let pending = Pending { id: id.clone(), trigger, rejections };
        if rejections == 0 {
            self.arrived.push(pending);
        } else {
            self.resting -= 1;
            self.alone.push_back(pending);
        }
        Offer::Queued
    }

    fn next_batch(&mut self, max: usize) -> Vec<Pending> {
        self.turn = self.turn.wrapping_add(1);
        let alone_first = self.queued() == 0 || self.turn.is_multiple_of(ALONE_TURN);
        match self.alone.pop_front_if(|_| alone_first) {
            Some(pending) => vec![pending],
            None => self.next_of_run(max),
        }
    }

    /// A run is all that had arrived when it began, so nobody waits for more than two. In a crowd it goes in
    /// the order of ids: neighbours share pages of the table, and a batch at random touches them all.
    fn next_of_run(&mut self, max: usize) -> Vec<Pending> {
        let mut batch = Vec::new();
        loop {
            let count = self.run.len().min(max - batch.len());
            batch.extend(self.run.drain(..count));
            if batch.len() == max || self.arrived.is_empty() {
                return batch;
            }
            let mut arrived = std::mem::take(&mut self.arrived);
            if arrived.len() > max {
                arrived.sort_unstable_by(|one, other| one.id.cmp(&other.id));
            }
            self.run = arrived.into();
        }
    }

    fn queued(&self) -> usize {
        self.run.len() + self.arrived.len()
    }

    fn waiting(&self) -> usize {
        self.queued() + self.alone.len()
    }

    fn forget(&mut self, id: &OrderId) {
        self.known.remove(id);
    }

    /// Drops memories of settled ids that are too old or too many.
    fn expire(&mut self, now: Instant) {
        while let Some((at, id)) = self.settled.pop_front_if(|(at, _)| now.duration_since(*at) > MEMORY) {
            self.forget_settled(at, &id);
        }
        while self.settled.len() > MEMORY_SIZE {
            if let Some((at, id)) = self.settled.pop_front() {
                self.forget_settled(at, &id);
            }
        }
    }

    /// Unless the id has a newer story than this memory of it.
    fn forget_settled(&mut self, at: Instant, id: &OrderId) {
        if matches!(self.known.get(id), Some(Stage::Settled(newer)) if *newer == at) {
            self.known.remove(id);
        }
    }
}
