//! The lane of orders that are in nobody else's way: they share a transaction with no order that has not failed.
//!
//! - *Suspects*: batches that failed as a whole. They are halved until the orders that cause it stand alone.
//! - *Held*: another transaction holds the order's row, or one that its closure needs. Tried again after 20 ms, since most
//!   transactions end at once, and then every 0.25 to 1 s; as soon as one of them closes, all are,
//!   in groups, since then they are mostly held no longer. Each waits for locks
//!   briefly at every fourth try, and at every eighth patiently, one order in five seconds: whatever it has locked before is held
//!   meanwhile, and those who were found held by that are tried at once when it ends.
//! - *Rejected*: the database refuses the closure. Each rests ever longer between its tries, or, while
//!   [`crate::close::trouble`] clears them of the blame, until one after the other is tried.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    close::{Pending, trouble::Trouble},
    order::OrderId,
    store::LockWait,
};

/// A held order's first pause, and its shortest and longest afterwards: the more of them, the longer.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const HELD_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_HELD_PAUSE: Duration = Duration::from_millis(750);
const HELD_COST: Duration = Duration::from_millis(3);

/// A held order waits for its locks at the first of so many tries, briefly, and at the last of so many, patiently.
const BRIEF_TRY: u32 = 4;
const PATIENT_TRY: u32 = 8;

/// How soon after one that waited in vain another order waits patiently.
const PATIENT_EVERY: Duration = Duration::from_secs(5);

/// So many of them are tried together when one of them has closed.
const HOPEFUL: usize = 50;

/// An order that waits for its next try.
#[derive(Debug, Clone)]
pub(super) struct Waiting {
    pub(super) pending: Pending,
    /// Since when, in this lane.
    pub(super) since: Instant,
    /// How often it was found held, one after the other.
    pub(super) tries: u32,
    /// What the last try said.
    pub(super) reason: String,
    /// Whether another transaction holds what it needs; else the database refuses it.
    pub(super) held: bool,
    /// Whether that refusal has still to be counted.
    pub(super) uncounted: bool,
}

impl Waiting {
    fn is_patient(&self) -> bool {
        self.tries > 0 && self.tries.is_multiple_of(PATIENT_TRY)
    }
}

/// Orders by the time of their next try; the number tells those of one instant apart.
type Timed = BTreeMap<(Instant, u64), Waiting>;

/// The kinds of orders that are tried in turn.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Suspect,
    Held,
    Rejected,
}

/// What the lane has for whoever asks.
#[derive(Debug)]
pub(super) enum Next {
    /// Orders that failed together, or one order: to be tried together.
    Try(Vec<Pending>, LockWait),
    /// Nothing until then.
    At(Instant),
    /// Nothing at all.
    Nothing,
}

/// The lane.
#[derive(Debug, Default)]
pub(super) struct Alone {
    suspects: Vec<Vec<Pending>>,
    held: Timed,
    /// Orders that are tried at once: held ones since one of them has closed, rejected ones since orders close again.
    hopeful: VecDeque<Waiting>,
    rejected: Timed,
    /// Rejected orders whose failures have still to be counted.
    uncounted: Timed,
    /// What is known of the orders of this lane that are being tried.
    in_hand: BTreeMap<OrderId, Waiting>,
    number: u64,
    turn: u32,
    /// The order that waits patiently, and when one began to that did so in vain, or does so still.
    patient: Option<OrderId>,
    patient_at: Option<Instant>,
    /// When an order turned out to be held last.
    held_at: Option<Instant>,
}

impl Alone {
    pub(super) fn len(&self) -> usize {
        let waiting = self.held.len() + self.hopeful.len() + self.rejected.len() + self.uncounted.len();
        waiting + self.suspects.iter().map(Vec::len).sum::<usize>()
    }

    /// How many orders are held.
    pub(super) fn held(&self) -> usize {
        let elsewhere = self.hopeful.iter().chain(self.in_hand.values());
        self.held.len() + elsewhere.filter(|waiting| waiting.held).count()
    }

    /// Whether orders are being tried, or are to be tried for the first time.
    pub(super) fn is_busy(&self) -> bool {
        !self.suspects.is_empty() || !self.hopeful.is_empty()
    }

    /// Whether an order was held within this time.
    pub(super) fn held_within(&self, time: Duration, now: Instant) -> bool {
        self.held_at.is_some_and(|at| now - at < time)
    }

    /// Since when the oldest of the held orders is.
    pub(super) fn held_since(&self) -> Option<Instant> {
        let elsewhere = self.hopeful.iter().chain(self.in_hand.values()).filter(|waiting| waiting.held);
        self.held.values().chain(elsewhere).map(|waiting| waiting.since).min()
    }

    /// Takes in orders that failed together: two halves, or each by itself where halving would only take longer.
    pub(super) fn suspect(&mut self, batch: Vec<Pending>, singly: bool) {
        let size = if singly { 1 } else { batch.len().div_ceil(2).max(1) };
        // The last in is the first out.
        self.suspects.extend(batch.rchunks(size).map(<[Pending]>::to_vec));
    }

    /// What to try now. Suspects, most of which have just fallen due, have every second turn, held orders and rejected ones one
    /// in four each, and what one kind does not need another has: however many there are of one, none of the others waits for all of
    /// them.
    pub(super) fn next(&mut self, trouble: &mut Trouble, now: Instant) -> Next {
        self.turn = self.turn.wrapping_add(1);
        let kinds = match self.turn % 4 {
            1 => [Kind::Held, Kind::Suspect, Kind::Rejected],
            3 => [Kind::Rejected, Kind::Suspect, Kind::Held],
            _ => [Kind::Suspect, Kind::Held, Kind::Rejected],
        };
        let next = kinds.into_iter().find_map(|kind| match kind {
            Kind::Suspect => self.suspects.pop().map(|group| Next::Try(group, LockWait::Never)),
            Kind::Held => self.next_held(now),
            Kind::Rejected => self.next_rejected(trouble, now),
        });
        let soonest = || self.first_held().into_iter().chain(self.first_rejected(trouble)).min();
        next.or_else(|| soonest().map(Next::At)).unwrap_or(Next::Nothing)
    }

    /// When the first of the held orders is to be tried.
    fn first_held(&self) -> Option<Instant> {
        self.held.first_key_value().map(|((at, _), _)| *at)
    }

    /// The same of the rejected ones: in trouble all of them have one time.
    fn first_rejected(&self, trouble: &Trouble) -> Option<Instant> {
        let first = self.rejected.first_key_value().into_iter().chain(self.uncounted.first_key_value()).map(|((at, _), _)| *at).min();
        first.map(|at| trouble.next_probe().unwrap_or(at))
    }

    fn next_held(&mut self, now: Instant) -> Option<Next> {
        if !self.hopeful.is_empty() {
            let hopeful: Vec<Waiting> = self.hopeful.drain(..self.hopeful.len().min(HOPEFUL)).collect();
            let group = hopeful.into_iter().map(|waiting| self.remember(waiting)).collect();
            return Some(Next::Try(group, LockWait::Briefly));
        }
        self.first_held().filter(|at| *at <= now)?;
        let (_, waiting) = self.held.pop_first()?;
        Some(self.hand_out(waiting, now))
    }

    fn next_rejected(&mut self, trouble: &mut Trouble, now: Instant) -> Option<Next> {
        self.first_rejected(trouble).filter(|at| *at <= now)?;
        trouble.probing(now);
        let is_counted = match (self.rejected.first_key_value(), self.uncounted.first_key_value()) {
            (Some((counted, _)), Some((uncounted, _))) => counted < uncounted,
            (counted, _) => counted.is_some(),
        };
        let (_, waiting) = if is_counted { &mut self.rejected } else { &mut self.uncounted }.pop_first()?;
        Some(self.hand_out(waiting, now))
    }

    fn hand_out(&mut self, waiting: Waiting, now: Instant) -> Next {
        let wait = if waiting.is_patient() && self.patient_at.is_none_or(|at| now - at >= PATIENT_EVERY) {
            (self.patient, self.patient_at) = (Some(waiting.pending.id.clone()), Some(now));
            LockWait::Patiently
        } else if waiting.tries % BRIEF_TRY == 1 {
            LockWait::Briefly
        } else {
            LockWait::Never
        };
        Next::Try(vec![self.remember(waiting)], wait)
    }

    fn remember(&mut self, waiting: Waiting) -> Pending {
        let pending = waiting.pending.clone();
        self.in_hand.insert(pending.id.clone(), waiting);
        pending
    }

    /// What was known of an order that has been tried.
    pub(super) fn take_back(&mut self, pending: &Pending) -> Option<Waiting> {
        self.in_hand.remove(&pending.id)
    }

    /// An order is held; `before` is what was known of it.
    pub(super) fn hold(&mut self, pending: Pending, before: Option<Waiting>, reason: String, now: Instant) {
        let pause = if before.is_none() {
            FIRST_PAUSE
        } else {
            let many = HELD_COST.saturating_mul(u32::try_from(self.held()).unwrap_or(u32::MAX));
            (HELD_PAUSE + many).min(LONGEST_HELD_PAUSE).mul_f64(1.0 + 0.3 * fastrand::f64())
        };
        if self.patient.take_if(|id| *id == pending.id).is_some()
            && let Some(at) = self.patient_at
        {
            let found = self.held.extract_if(.., |_, waiting| waiting.since >= at);
            self.hopeful.extend(found.map(|(_, waiting)| waiting));
        }
        let (since, tries) = before.map_or((now, 1), |before| (before.since, before.tries.saturating_add(1)));
        self.held_at = Some(now);
        let key = self.key(now + pause);
        self.held.insert(key, Waiting { pending, since, tries, reason, held: true, uncounted: false });
    }

    /// A held order has closed: who held it may have held the others.
    pub(super) fn hope(&mut self) {
        self.patient_at = None;
        self.hopeful.extend(std::mem::take(&mut self.held).into_values());
    }

    /// An order was rejected as all were, and is tried at once: with others, since it is hardly to blame.
    pub(super) fn try_soon(&mut self, waiting: Waiting) {
        self.hopeful.push_back(waiting);
    }

    /// An order that had to wait for something else is tried next, as what it was before.
    pub(super) fn resume(&mut self, waiting: Waiting, now: Instant) {
        let key = self.key(now);
        self.rests(&waiting).insert(key, waiting);
    }

    /// An order was rejected, and is tried again at that time.
    pub(super) fn reject(&mut self, waiting: Waiting, at: Instant) {
        let key = self.key(at);
        self.rests(&waiting).insert(key, waiting);
    }

    /// Where it waits for its time.
    fn rests(&mut self, waiting: &Waiting) -> &mut Timed {
        match waiting {
            Waiting { held: true, .. } => &mut self.held,
            Waiting { uncounted: true, .. } => &mut self.uncounted,
            Waiting { .. } => &mut self.rejected,
        }
    }

    /// Takes out all rejected orders whose failures were not counted.
    pub(super) fn uncounted(&mut self) -> Vec<Waiting> {
        std::mem::take(&mut self.uncounted).into_values().collect()
    }

    /// What has been tried in vain and waits.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Waiting> {
        self.held.values().chain(&self.hopeful).chain(self.rejected.values()).chain(self.uncounted.values())
    }

    /// What is known of one order, also of one that is being tried.
    pub(super) fn known(&self, id: &OrderId) -> Option<&Waiting> {
        self.in_hand.get(id).or_else(|| self.waiting().find(|waiting| waiting.pending.id == *id))
    }

    fn key(&mut self, at: Instant) -> (Instant, u64) {
        self.number += 1;
        (at, self.number)
    }
}
