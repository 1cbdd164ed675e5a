//! The lanes of the inbox, and what it remembers: all that happens under its lock.

use std::{
    collections::{HashMap, HashSet, VecDeque, hash_map::Entry},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    close::{
        Spare,
        alone::{Alone, Waiting},
        asking::Asking,
        clearance::{PutOff, Why},
        inbox::{Consequence, Offer, Pending},
        looks::Awaited,
        outcome::{Looked, Outcome},
        queue::Queue,
        trouble::{Blame, Ended, Trouble},
        waits::{Held, Place, Waits},
    },
    config::{Retry, RuleName},
    metric,
    order::OrderId,
    outbox::DeadOrder,
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

/// More hints than this are a crowd, perhaps of strangers, and go in batches of so many, one at a time.
const CROWD: usize = 50;
const CROWD_BATCH: usize = 250;

/// How a lane's orders came to be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    DueNow,
    Backlog,
    Hints,
}

/// Where an order is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stage {
    /// In the queue of hints.
    Hinted,
    /// Anywhere else: queued, in hand, alone for the first time.
    Open,
    /// Looked at and found held: in the lane `alone`, or in hand for its next try.
    Held,
    /// The same of one that was rejected.
    Rejected,
    /// Not to be looked at before its time.
    Waits(Place),
    /// Since when, and when a closed one fell due whose notification has not come yet.
    Settled(Instant, Option<Instant>),
    /// Since when; and the deadline for which it was closed where that was undone: another one closes it, and this one never,
    /// for as long as its row is found so.
    GivenUp(Instant, Option<i64>),
}

impl Stage {
    /// Of an order that goes on as what it was before, if that is known.
    fn of(before: Option<&Waiting>) -> Self {
        match before {
            Some(Waiting { held: true, .. }) => Self::Held,
            Some(_) => Self::Rejected,
            None => Self::Open,
        }
    }
}

type ById<T> = HashMap<OrderId, T, foldhash::quality::RandomState>;

#[derive(Debug, Default)]
pub(super) struct State {
    /// Whose orders these are.
    pub(super) rule: RuleName,
    due_now: Queue,
    backlog: Queue,
    hints: Queue,
    turn: u32,
    pub(super) asking: Asking,
    pub(super) waits: Waits,
    pub(super) alone: Alone,
    pub(super) trouble: Trouble,
    pub(super) known: ById<Stage>,
    /// Whoever waits to hear what a look has shown.
    pub(super) awaited: Awaited,
    /// Settled orders and those given up, oldest first.
    settled: VecDeque<(Instant, OrderId)>,
    /// Orders in hand of which something new became known meanwhile, so that they are not to wait for it.
    answered: HashSet<OrderId>,
    given_up: VecDeque<(Instant, OrderId)>,
    pub(super) in_hand: usize,
    /// When it was said that orders are held for long.
    held_said: Option<Instant>,
    pub(super) closed: bool,
}

impl State {
    pub(super) fn admit(&mut self, pending: Pending, lane: Lane, seen: Option<Instant>, capacity: usize, now: Instant) -> Offer {
        let queued = if lane == Lane::Hints { self.hints.len() + self.asking.hints.queued() } else { self.facts() };
        let mut known = self.known.entry(pending.id.clone());
        if let Entry::Occupied(known) = &mut known {
            if pending.heard.is_some()
                && let Stage::Settled(_, due) = known.get_mut()
                && let Some(due) = due.take()
            {
                // Its notification has come after all.
                metric::NOTIFICATION_LAG.record((now - due).as_secs_f64(), &[self.rule.label()]);
            }
            match known.get() {
                Stage::Open | Stage::Held | Stage::Rejected => return Offer::Known,
                Stage::Hinted if lane == Lane::Hints => return Offer::Known,
                Stage::Settled(at, _) if now - *at < SETTLED_FOR && seen.is_none_or(|seen| seen <= *at) => return Offer::Known,
                Stage::GivenUp(at, undone)
                    if now - *at < GIVEN_UP_FOR && undone.zip(pending.deadline).is_none_or(|(undone, deadline)| undone == deadline) =>
                {
                    if undone.is_some() && pending.deadline.is_some() && now - *at > GIVEN_UP_FOR / 2 {
                        // As its row is still, and to close it again is as wrong as it was.
                        self.given_up.push_back((now, pending.id));
                        *known.get_mut() = Stage::GivenUp(now, pending.deadline);
                    }
                    return Offer::Known;
                }
                Stage::Waits(place) if pending.deadline.is_none_or(|deadline| self.waits.deadline(*place) == Some(deadline)) => {
                    return Offer::Known;
                }
                Stage::Hinted | Stage::Settled(..) | Stage::GivenUp(..) | Stage::Waits(_) => {}
            }
        }
        if self.closed || queued >= capacity {
            return Offer::Full;
        }
        if let Entry::Occupied(known) = &known
            && let Stage::Waits(place) = known.get()
        {
            drop(self.waits.remove(*place));
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

    /// The next orders for one transaction, and whether they are of a crowd of hints.
    pub(super) fn next_batch(&mut self, max: usize, is_crowd_free: bool, now: Instant) -> (Vec<Pending>, bool) {
        self.due_now.age(DUE_NOW, now, &mut self.backlog);
        self.turn = self.turn.wrapping_add(1);
        let mut lanes = [Lane::DueNow, Lane::Backlog, Lane::Hints];
        if self.turn.is_multiple_of(HINTS_TURN) {
            lanes.rotate_right(1);
        } else if self.turn.is_multiple_of(BACKLOG_TURN) {
            lanes.swap(0, 1);
        }
        let is_crowd = self.hints.len() + self.asking.hints.queued() > CROWD;
        for lane in lanes {
            let batch = match lane {
                Lane::DueNow => self.due_now.take(max, |_| true),
                Lane::Backlog if self.asking.facts.has_cleared() => self.asking.facts.take_cleared(max),
                Lane::Backlog if self.asking.facts.is_full() => Vec::new(),
                Lane::Backlog => self.backlog.take(max, |_| true),
                Lane::Hints if is_crowd && !is_crowd_free => Vec::new(),
                Lane::Hints if self.asking.hints.has_cleared() => self.asking.hints.take_cleared(max.min(CROWD_BATCH)),
                Lane::Hints if self.asking.hints.is_full() => Vec::new(),
                Lane::Hints => self.take_hints(max.min(CROWD_BATCH)),
            };
            if !batch.is_empty() {
                self.in_hand += batch.len();
                return (batch, is_crowd && lane == Lane::Hints);
            }
        }
        (Vec::new(), false)
    }

    fn take_hints(&mut self, max: usize) -> Vec<Pending> {
        // A fact may have overtaken the hint, and may have been settled since.
        let known = &mut self.known;
        self.hints.take(max, |pending| match known.get_mut(&pending.id) {
            Some(stage @ Stage::Hinted) => {
                *stage = Stage::Open;
                true
            }
            Some(Stage::Open | Stage::Held | Stage::Rejected | Stage::Waits(_) | Stage::Settled(..) | Stage::GivenUp(..)) | None => false,
        })
    }

    pub(super) fn settle(&mut self, Looked { pending, outcome }: Looked, retry: &Retry, now: Instant, consequences: &mut Vec<Consequence>) {
        self.in_hand = self.in_hand.saturating_sub(1);
        self.answered.remove(&pending.id);
        self.awaited.tell(&pending.id, &outcome);
        let before = self.alone.take_back(&pending);
        match outcome {
            Outcome::Closed(closed) => {
                let due = if pending.heard.is_none() { now.checked_sub(closed.lateness) } else { None };
                self.remember_settled(&pending.id, due, now);
                if before.is_some_and(|before| before.held) {
                    self.alone.hope();
                }
                match self.trouble.closed() {
                    Ended::Nothing => {}
                    Ended::AMoment => self.count_failures(retry, now, consequences),
                    Ended::Trouble => {
                        consequences.push(Consequence::Recovered);
                        self.try_all_again(retry, now, consequences);
                    }
                }
            }
            Outcome::Settled { .. } | Outcome::NotFound => self.remember_settled(&pending.id, None, now),
            Outcome::NotDue { .. } => drop(self.known.remove(&pending.id)),
            Outcome::Unasked => self.put_back(pending, before, now),
            Outcome::Locked { reason } => {
                self.is_now(&pending.id, Stage::Held);
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
                consequences.push(Consequence::GivenUp(DeadOrder::undone(pending.id, pending.attempts + 1, pending.deadline)));
            }
            Outcome::Rejected { reason } => {
                self.is_now(&pending.id, Stage::Rejected);
                let since = before.map_or(now, |before| before.since);
                let blame = self.trouble.failed(&pending.id, now);
                if blame == Blame::Order {
                    self.count(Waiting { pending, since, tries: 0, reason, held: false, uncounted: false }, retry, now, consequences);
                    return;
                }
                if blame == Blame::EverybodysForAWhile {
                    consequences.push(Consequence::AllRefused(reason.clone()));
                }
                self.alone.reject(Waiting { pending, since, tries: 0, reason, held: false, uncounted: true }, now);
            }
        }
    }

    fn is_now(&mut self, id: &OrderId, now: Stage) {
        if let Some(stage) = self.known.get_mut(id) {
            *stage = now;
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
                consequences.push(Consequence::GivenUp(DeadOrder { id, attempts, error: reason, undone: None }));
            }
        }
    }

    /// Another order was closed: each failure that was not counted counts now, once.
    fn count_failures(&mut self, retry: &Retry, now: Instant, consequences: &mut Vec<Consequence>) {
        for mut waiting in self.alone.uncounted() {
            waiting.uncounted = false;
            self.count(waiting, retry, now, consequences);
        }
    }

    /// The same after trouble that lasted: each order is tried at once, and given up only if it was to be before.
    fn try_all_again(&mut self, retry: &Retry, now: Instant, consequences: &mut Vec<Consequence>) {
        for mut waiting in self.alone.uncounted() {
            waiting.uncounted = false;
            if waiting.pending.attempts >= retry.attempts {
                self.count(waiting, retry, now, consequences);
            } else {
                waiting.pending.attempts += 1;
                self.alone.try_soon(waiting);
            }
        }
    }

    /// Forgets that an order was settled before `seen`, or that it waits.
    pub(super) fn reopen(&mut self, id: &OrderId, seen: Instant) {
        match self.known.get(id) {
            Some(Stage::Settled(at, _)) if *at < seen => {}
            Some(Stage::Waits(place)) => drop(self.waits.remove(*place)),
            Some(Stage::Hinted | Stage::Open | Stage::Held | Stage::Rejected | Stage::Settled(..) | Stage::GivenUp(..)) | None => return,
        }
        self.known.remove(id);
    }

    /// Lets an order that was in hand wait, if there is room; what is forgotten is found again in the table.
    pub(super) fn wait(&mut self, held: PutOff, capacity: usize) {
        self.in_hand = self.in_hand.saturating_sub(1);
        let before = self.alone.take_back(&held.pending);
        let id = held.pending.id.clone();
        if self.answered.remove(&id) && held.why != Why::Disputed {
            self.put_back(held.pending, before, Instant::now());
            return;
        }
        self.awaited.waits(&id);
        if self.waits.len() < capacity {
            let place = self.waits.add(held, before);
            self.known.insert(id, Stage::Waits(place));
        } else {
            self.known.remove(&id);
        }
    }

    /// Something new is known of an order about which somebody was asked.
    pub(super) fn answered(&mut self, id: &OrderId, now: Instant) {
        match self.known.get(id) {
            Some(Stage::Waits(place)) if self.waits.why(*place) != Some(Why::Disputed) => {
                if let Some(Held { pending, before, .. }) = self.waits.remove(*place) {
                    self.put_back(pending, before, now);
                }
            }
            Some(Stage::Open | Stage::Held | Stage::Rejected) => drop(self.answered.insert(id.clone())),
            Some(Stage::Hinted | Stage::Waits(_) | Stage::Settled(..) | Stage::GivenUp(..)) | None => {}
        }
    }

    /// Puts an order to where it came from, to be tried next.
    fn put_back(&mut self, pending: Pending, before: Option<Waiting>, now: Instant) {
        self.known.insert(pending.id.clone(), Stage::of(before.as_ref()));
        match before {
            Some(before) => self.alone.resume(Waiting { pending, ..before }, now),
            None => self.due_now.push(pending, now),
        }
    }

    /// Queues what has waited until now; returns whether there was any.
    pub(super) fn wake(&mut self, now: Instant) -> bool {
        let mut woken = false;
        while let Some(Held { pending, before, .. }) = self.waits.pop(now) {
            woken = true;
            self.known.insert(pending.id.clone(), Stage::of(before.as_ref()));
            match before {
                Some(before) => self.alone.resume(Waiting { pending, ..before }, now),
                None => self.backlog.push(pending, now),
            }
        }
        woken
    }

    /// Those of which the table has told.
    pub(super) fn facts(&self) -> usize {
        self.due_now.len() + self.backlog.len() + self.asking.facts.queued()
    }

    /// How many orders each lane has.
    pub(super) fn lanes(&self) -> [(&'static str, usize); 5] {
        let asked = self.asking.facts.queued() + self.asking.hints.queued();
        let (due, backlog, hints) = (self.due_now.len(), self.backlog.len(), self.hints.len());
        [("due", due), ("backlog", backlog), ("hints", hints), ("asked", asked), ("alone", self.alone.len())]
    }

    pub(super) fn queued(&self) -> usize {
        self.facts() + self.hints.len() + self.asking.hints.queued()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.closed || (self.queued() == 0 && self.in_hand == 0 && !self.alone.is_busy() && self.waits.count(Why::Asked) == 0)
    }

    /// `due` of one that was closed and whose notification has not come yet.
    pub(super) fn remember_settled(&mut self, id: &OrderId, due: Option<Instant>, now: Instant) {
        match self.known.get_mut(id) {
            Some(stage) => *stage = Stage::Settled(now, due),
            None => drop(self.known.insert(id.clone(), Stage::Settled(now, due))),
        }
        self.settled.push_back((now, id.clone()));
    }

    pub(super) fn remember_given_up(&mut self, id: &OrderId, undone: Option<i64>, now: Instant) {
        self.known.insert(id.clone(), Stage::GivenUp(now, undone));
        self.given_up.push_back((now, id.clone()));
    }

    /// Drops memories that are too old or too many.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some((at, id)) = pop_old(&mut self.settled, SETTLED_FOR, SETTLED_SIZE, now) {
            self.forget(&id, at);
        }
        while let Some((at, id)) = pop_old(&mut self.given_up, GIVEN_UP_FOR, GIVEN_UP_SIZE, now) {
            self.forget(&id, at);
        }
        self.settled.spare();
        self.known.spare();
    }

    /// Unless the id has a newer story than this memory of it.
    fn forget(&mut self, id: &OrderId, at: Instant) {
        if matches!(self.known.get(id), Some(Stage::Settled(newest, _) | Stage::GivenUp(newest, _)) if *newest == at) {
            self.known.remove(id);
        }
    }
}

/// The oldest memory, if it is older than this or there are more of them.
fn pop_old(memories: &mut VecDeque<(Instant, OrderId)>, lasts: Duration, size: usize, now: Instant) -> Option<(Instant, OrderId)> {
    let too_many = memories.len() > size;
    memories.pop_front_if(|(at, _)| too_many || now - *at > lasts)
}
