//! The second witness of a deadline: an order's key, which the order service wrote with a TTL.
//!
//! An order that its row calls due more than a minute before its key expires is *disputed*: a wrong time zone, a missing
//! `plus`, an order that was given more time in one of the two places. It waits until the moment at which its key was to
//! expire, or until its row has another deadline.
//!
//! - The key is asked for when the look-ahead reads the row, seconds before the deadline, and the deadline waits for no answer
//!   but the first after the start, and one that is under way since just before, from a Redis that was not away.
//! - What comes without such an answer is asked about before its batch, a thousand keys at a time, for 300 ms at the most.
//!   After that Redis counts as away for a second, and the row decides alone. Three seconds, where all of them have been overdue for
//!   more than a minute and Redis has answered before: they are late already, and a thousand rows of a wrong mapping are among them.
//! - What is known to be disputed waits, whatever becomes of Redis or the key. While rows and keys differ as a whole, and
//!   Redis is away or was restarted since, an order without a known key waits, too, until its row has been due for longer than
//!   the two differ.
//! - No key, a key without TTL, no Redis from the start, no right to ask: no dispute.
//!
//! Each memory has an end by the clock and a limit.

mod answers;
mod difference;
mod sample;
mod sources;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use tokio::time::{Instant, timeout};
use tracing::{debug, error, info, warn};

use crate::{
    close::{Clearance, Leave, Pending, Why},
    config::{Disputed, Rule, Span},
    order::{OrderId, Trigger},
    redis::{Commands, Expiries, Expiry},
    stall,
    store::{Store, StoreError},
    trigger::witness::{
        answers::{Answer, Answers, Key},
        sample::{News, Sample},
        sources::KeysInRedis,
    },
};

pub use difference::{Difference, Mapping};
pub use sources::{Keys, Rows, Unanswered};

/// A row may call an order due so long before its key expires.
pub const TOLERANCE: Duration = Duration::from_mins(1);

/// How long Redis may take to answer; and, unless whoever closes has less time, at the start, when there is no connection yet,
/// and about orders that are late already.
const LIMIT: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(3);

/// For how long Redis counts as away when it has not answered, and when it does not let us ask.
const REST: Duration = Duration::from_secs(1);
const DENIED_REST: Duration = Duration::from_secs(30);

/// So long after a deadline an answer about it is none about the order, unless its row was read: it may have been put off by that
/// much since it was seen ahead.
const OVER: Duration = Duration::from_secs(1);

/// How many keys are asked for at once.
const AT_ONCE: usize = 1_000;

/// When an order is looked at again whose row could not be read.
const UNREAD: Duration = Duration::from_secs(1);

/// Single disputes are spoken of so often.
const SAY_EVERY: Duration = Duration::from_hours(1);

/// Compares rows with keys, and lets disputed orders wait.
#[derive(Debug)]
pub struct Witness {
    prefix: String,
    keys: Arc<dyn Keys>,
    rows: Arc<dyn Rows>,
    mapping: Mapping,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    answers: Answers,
    sample: Sample,
    started: Instant,
    patience: Duration,
    /// What Redis' clock showed when it answered last, in microseconds since 1970 UTC.
    clock: Option<(i64, Instant)>,
    /// The orders about which looks ahead have asked a Redis that was not away, until that is answered or is not.
    asked: HashSet<OrderId>,
    /// Redis counts as away until then.
    away_until: Option<Instant>,
    denied_said: bool,
    dispute_said: Option<Instant>,
}

impl Witness {
    /// The witness that a rule asks for, if it does.
    #[must_use]
    pub fn of(rule: &Rule, store: &Arc<dyn Store>, commands: &Commands) -> Option<Arc<Self>> {
        let mapping = Mapping { zone_matters: store.zone_matters(), plus: rule.deadline.plus.map(Span::get) };
        let witness = |prefix| Arc::new(Self::new(prefix, Arc::new(KeysInRedis::new(commands)), Arc::new(Arc::clone(store)), mapping));
        let is_wanted = rule.disputed == Disputed::Wait && !commands.is_absent();
        rule.key_prefix.get().filter(|_| is_wanted).map(witness)
    }

    /// A witness that asks for keys with this prefix.
    #[must_use]
    pub fn new(prefix: &str, keys: Arc<dyn Keys>, rows: Arc<dyn Rows>, mapping: Mapping) -> Self {
        let state = State {
            answers: Answers::default(),
            sample: Sample::default(),
            started: Instant::now(),
            patience: PATIENCE,
            clock: None,
            asked: HashSet::new(),
            away_until: None,
            denied_said: false,
            dispute_said: None,
        };
        Self { prefix: prefix.to_owned(), keys, rows, mapping, state: Mutex::new(state) }
    }

    /// Waits no longer than this for Redis where it would wait for seconds.
    pub fn be_patient_for(&self, patience: Duration) {
        self.lock().patience = patience.min(PATIENCE);
    }

    /// Asks for Redis' time alone: once that is answered, or is not, the start is over, and a deadline waits for nothing.
    pub fn greet(self: &Arc<Self>) {
        let witness = Arc::clone(self);
        tokio::spawn(async move { witness.learn(&[]).await });
    }

    /// Asks for the keys of orders that are due soon, each with its row's deadline, and waits for nothing.
    pub fn foresee(self: &Arc<Self>, mut orders: Vec<(OrderId, i64)>) {
        {
            let state = self.lock();
            if state.is_away(Instant::now()) {
                return;
            }
            // A service may write the key when the row is committed: one that was not there yet, or was there for an earlier
            // deadline, is asked for again.
            orders.retain(|(id, deadline)| {
                let known = state.answers.get(id, Some(*deadline));
                known.is_none_or(|answer| answer.key == Key::Gone || answer.key.is_of_an_earlier(*deadline))
            });
        }
        if orders.is_empty() {
            return;
        }
        {
            let mut state = self.lock();
            if state.away_until.is_none() {
                state.asked.extend(orders.iter().map(|(id, _)| id.clone()));
            }
        }
        let witness = Arc::clone(self);
        tokio::spawn(async move {
            let orders: Vec<_> = orders.into_iter().map(|(id, deadline)| (id, Some(deadline))).collect();
            for orders in orders.chunks(AT_ONCE) {
                witness.learn(orders).await;
                let mut state = witness.lock();
                for (id, _) in orders {
                    state.asked.remove(id);
                }
            }
        });
    }

    /// Asks for the keys of these orders. Returns what is known of each then, or nothing if Redis counts as away; of a cluster,
    /// a part may.
    async fn learn(&self, orders: &[(OrderId, Option<i64>)]) -> Option<Vec<Option<Key>>> {
        let limit = self.lock().limit(orders, Instant::now())?;
        let names: Vec<String> = orders.iter().map(|(id, _)| format!("{}{}", self.prefix, id.as_str())).collect();
        let answer = stall::ask_again(limit, || self.keys.expiries(&names, limit)).await;
        let answered = Instant::now();
        let keys = match answer {
            Ok(expiries) => self.lock().learned(orders, &expiries, answered, &self.mapping),
            Err(unanswered) => {
                self.lock().unanswered(&unanswered, answered);
                return None;
            }
        };
        // Asked for last: a key that a restart or a flush has lost is not to be taken for one that was never there.
        if self.lock().sample.is_whole() {
            let life = timeout(limit, self.keys.life()).await.ok().flatten();
            self.lock().sample.lives(life);
        }
        Some(keys)
    }

    /// The deadlines of those of these orders that are unpaid, where what is known of the key does not suffice without.
    async fn read(&self, orders: &[&Pending]) -> Result<HashMap<OrderId, i64>, StoreError> {
        if orders.is_empty() {
            return Ok(HashMap::new());
        }
        let ids: Vec<OrderId> = orders.iter().map(|order| order.id.clone()).collect();
        self.rows.deadlines(&ids).await
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here can panic halfway through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Clearance for Witness {
    fn known(&self, orders: &[Pending]) -> Vec<Option<Leave>> {
        let now = Instant::now();
        let mut state = self.lock();
        state.answers.expire(now);
        orders.iter().map(|order| state.known(order, now)).collect()
    }

    async fn ask(&self, orders: &[Pending]) -> Vec<Leave> {
        let mut keys: Vec<Option<Key>> = Vec::with_capacity(orders.len());
        for chunk in orders.chunks(AT_ONCE) {
            let asked: Vec<_> = chunk.iter().map(|order| (order.id.clone(), order.deadline)).collect();
            match self.learn(&asked).await {
                Some(learned) => keys.extend(learned),
                None => keys.extend(chunk.iter().map(|_| None)),
            }
        }
        for (key, order) in keys.iter_mut().zip(orders).filter(|(key, _)| key.is_none()) {
            *key = self.lock().answers.get(&order.id, order.deadline).map(|answer| answer.key);
        }
        let now = Instant::now();
        let unread: Vec<&Pending> = {
            let state = self.lock();
            let unread = orders.iter().zip(&keys).filter(|(order, key)| order.deadline.is_none() && state.needs_deadline(**key, now));
            unread.map(|(order, _)| order).collect()
        };
        let read = self.read(&unread).await;
        let mut state = self.lock();
        if let Ok(unpaid) = &read {
            state.were_read(unpaid, now, &self.mapping);
        }
        let leave = |(order, key): (&Pending, &Option<Key>)| {
            if order.deadline.is_some() || !state.needs_deadline(*key, now) {
                return state.decide(*key, order.deadline, now);
            }
            match &read {
                // Whoever is paid, or is no order, is none to dispute about.
                Ok(unpaid) => unpaid.get(&order.id).map_or(Leave::Go, |deadline| state.decide(*key, Some(*deadline), now)),
                Err(_) => Leave::Wait { until: now + UNREAD, why: Why::Disputed },
            }
        };
        orders.iter().zip(&keys).map(leave).collect()
    }
}

impl State {
    fn is_away(&self, now: Instant) -> bool {
        self.away_until.is_some_and(|until| now < until)
    }

    /// How long Redis may take to be asked about these; `None` while it counts as away.
    fn limit(&self, orders: &[(OrderId, Option<i64>)], now: Instant) -> Option<Duration> {
        if self.is_away(now) {
            return None;
        }
        let is_late = |(_, deadline): &(OrderId, Option<i64>)| deadline.is_some_and(|deadline| self.since(deadline, now) > TOLERANCE);
        Some(if self.is_starting() {
            LIMIT.max(self.patience.saturating_sub(now - self.started))
        } else if self.away_until.is_none() && !orders.is_empty() && orders.iter().all(is_late) {
            LIMIT.max(self.patience)
        } else {
            LIMIT
        })
    }

    /// Whether Redis has neither answered nor counted as away yet.
    fn is_starting(&self) -> bool {
        self.clock.is_none() && self.away_until.is_none()
    }

    fn unanswered(&mut self, why: &Unanswered, now: Instant) {
        self.sample.away();
        match why {
            Unanswered::Away(reason) => {
                debug!(reason, "Redis does not say when keys expire; rows decide alone");
                self.away_until = Some(now + REST);
            }
            Unanswered::Denied(reason) => {
                self.away_until = Some(now + DENIED_REST);
                if !std::mem::replace(&mut self.denied_said, true) {
                    warn!(
                        reason,
                        "Redis does not let us ask when keys expire, and rows decide alone; let the ACL user run +pttl and +time, under \
                         these names, so that an order waits whose key contradicts its row"
                    );
                }
            }
        }
    }

    /// Takes in an answer of Redis, and compares it with rows whose deadlines are known.
    fn learned(&mut self, orders: &[(OrderId, Option<i64>)], expiries: &Expiries, now: Instant, mapping: &Mapping) -> Vec<Option<Key>> {
        self.clock = Some((expiries.now, now));
        (self.away_until, self.denied_said) = (None, false);
        let keys: Vec<Option<Key>> = expiries.keys.iter().map(|expiry| key(*expiry, expiries.now, now)).collect();
        let unknown = keys.iter().filter(|key| key.is_none()).count();
        if unknown > 0 {
            debug!(unknown, "a node of Redis does not say when its keys expire; their rows decide alone");
        }
        let mut disputed = None;
        for ((id, deadline), key) in orders.iter().zip(&keys).filter_map(|(order, key)| Some((order, key.as_ref()?))) {
            let is_new = self.answers.get(id, *deadline).is_none_or(|known| known.key.is_disputed(*deadline) != key.is_disputed(*deadline));
            let ahead = deadline.map_or(0, |deadline| deadline.saturating_sub(expiries.now));
            // A hint may name an order that is yet to be taken, and its key written.
            if deadline.is_some() || *key != Key::Gone {
                self.answers.insert(id.clone(), Answer { deadline: *deadline, key: *key }, now, micros(ahead));
            }
            let Some(deadline) = deadline.filter(|_| is_new) else { continue };
            self.sample.add(key.moment().map(|at| at - deadline), now);
            if key.is_disputed(Some(deadline)) {
                disputed = key.moment().map(|at| (id, at - deadline));
            }
        }
        self.say(disputed, mapping, now);
        keys
    }

    /// The rows of orders have been read of which only the keys were known, and these are unpaid.
    fn were_read(&mut self, unpaid: &HashMap<OrderId, i64>, now: Instant, mapping: &Mapping) {
        let mut disputed = None;
        for (id, deadline) in unpaid {
            let Some(key) = self.answers.get(id, None).map(|answer| answer.key).filter(|key| key.is_disputed(Some(*deadline))) else {
                continue;
            };
            self.answers.insert(id.clone(), Answer { deadline: Some(*deadline), key }, now, Duration::ZERO);
            let later = key.moment().map(|at| at - deadline);
            self.sample.add(later, now);
            disputed = later.map(|later| (id, later));
        }
        self.say(disputed, mapping, now);
    }

    /// Says once by how much rows and keys differ, and which setting would explain it.
    fn say(&mut self, disputed: Option<(&OrderId, i64)>, mapping: &Mapping, now: Instant) {
        match self.sample.judge(now) {
            News::Differ(difference) => error!(
                by = %difference,
                setting = difference.advice(mapping),
                "rows and keys contradict each other: rows call orders due before their keys expire, and orders wait for their keys"
            ),
            News::Agree => info!("rows and keys agree again"),
            News::Nothing => {
                let said = self.dispute_said.is_some_and(|said| now - said < SAY_EVERY);
                if let Some((id, difference)) = disputed.filter(|_| !said && !self.sample.is_whole()) {
                    self.dispute_said = Some(now);
                    let difference = Difference::of(vec![difference]);
                    warn!(
                        order = %id,
                        by = difference.map(|difference| difference.to_string()),
                        "an order's row calls it due before its key expires; such an order waits for its key"
                    );
                }
            }
        }
    }

    fn known(&self, order: &Pending, now: Instant) -> Option<Leave> {
        let Some(answer) = self.answers.get(&order.id, order.deadline) else {
            // The deadline waits for no answer, unless rows are known to be wrong; or this is the start; or the question is under
            // way; or the row has another deadline than when somebody was asked, and no look ahead has shown it since.
            let has_moved = self.answers.get(&order.id, None).is_some();
            let waits = has_moved || self.sample.is_whole() || self.is_starting() || self.asked.contains(&order.id);
            return (order.trigger == Trigger::Pacer && !waits).then_some(Leave::Go);
        };
        // Whoever brings it has not read its row, which may have been put off since.
        let is_over = order.deadline.is_none() && answer.deadline.is_some_and(|deadline| self.is_over(deadline, now));
        if is_over && !answer.key.is_disputed(answer.deadline) {
            return None;
        }
        let deadline = order.deadline.or(answer.deadline);
        match answer.key {
            // It may have been put off.
            Key::Expires { until, .. } if until <= now && answer.key.is_disputed(deadline) => None,
            // Or it was there for the deadline before, and has been written anew.
            Key::Expires { until, .. }
                if until <= now
                    && order.trigger != Trigger::Pacer
                    && deadline.is_some_and(|deadline| answer.key.is_of_an_earlier(deadline)) =>
            {
                None
            }
            Key::Gone | Key::Never | Key::Expires { .. } if deadline.is_none() && self.needs_deadline(Some(answer.key), now) => None,
            Key::Gone | Key::Never | Key::Expires { .. } => Some(self.decide(Some(answer.key), deadline, now)),
        }
    }

    /// Whether a deadline has passed so long ago that its order would have closed, or has another one.
    fn is_over(&self, deadline: i64, now: Instant) -> bool {
        self.since(deadline, now) > OVER
    }

    /// How long ago a deadline has passed; zero where that is not known.
    fn since(&self, deadline: i64, now: Instant) -> Duration {
        self.clock.map_or(Duration::ZERO, |(then, at)| {
            let since = i64::try_from((now - at).as_micros()).unwrap_or(i64::MAX);
            micros(then.saturating_add(since).saturating_sub(deadline))
        })
    }

    /// Whether it depends on the row's deadline what becomes of an order.
    fn needs_deadline(&self, key: Option<Key>, now: Instant) -> bool {
        match key {
            Some(Key::Expires { until, .. }) => until > now,
            Some(Key::Never) => false,
            Some(Key::Gone) => self.sample.keys_were_lost(),
            None => self.sample.is_whole(),
        }
    }

    /// What becomes of an order with this key (none if that is not known), whose row is due since `deadline`.
    fn decide(&self, key: Option<Key>, deadline: Option<i64>, now: Instant) -> Leave {
        let until = match key {
            Some(key @ Key::Expires { until, .. }) => Some(until).filter(|_| key.is_disputed(deadline)),
            Some(Key::Never) => None,
            Some(Key::Gone) if !self.sample.keys_were_lost() => None,
            Some(Key::Gone) | None => self.without_key(deadline, now),
        };
        until.filter(|until| *until > now).map_or(Leave::Go, |until| Leave::Wait { until, why: Why::Disputed })
    }

    /// Until when an order waits of whose key nothing is known, where rows are known to be wrong.
    fn without_key(&self, deadline: Option<i64>, now: Instant) -> Option<Instant> {
        let (difference, (micros_then, then)) = (self.sample.whole()?, self.clock?);
        let clock = micros_then.saturating_add(i64::try_from((now - then).as_micros()).unwrap_or(i64::MAX));
        let overdue = deadline.map_or(0, |deadline| clock.saturating_sub(deadline));
        now.checked_add(micros(difference.saturating_sub(overdue)))
    }
}

/// What Redis has said at this instant, if it has.
fn key(expiry: Expiry, clock: i64, now: Instant) -> Option<Key> {
    Some(match expiry {
        Expiry::Unknown => return None,
        Expiry::NoKey => Key::Gone,
        Expiry::Never => Key::Never,
        // A key beyond all calendars is as good as one without TTL.
        Expiry::At(at) => now.checked_add(micros(at.saturating_sub(clock))).map_or(Key::Never, |until| Key::Expires { at, until }),
    })
}

/// So many microseconds; none if that is before zero.
fn micros(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}
