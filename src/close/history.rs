//! What was closed of late: the last hour by minutes, the last two minutes by seconds, the last orders one by one.
//!
//! What is kept has an end: a quarter of a megabyte where closures are milliseconds late, a few where they are years.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::{
    close::{
        outcome::{Looked, Outcome},
        stats::{Lateness, millis},
    },
    order::{OrderId, Trigger, rfc3339},
};

/// How many minutes are told of.
pub const MINUTES: usize = 60;

/// How many seconds.
pub const SECONDS: usize = 120;

/// How many closures, one by one.
const LATEST: usize = 12;

/// What was closed of late.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Recent {
    /// Closures in each of the last 120 whole seconds, oldest first.
    pub per_second: Vec<u64>,
    /// How late those of each of the last 60 minutes were, oldest first, the running one last; nothing of a minute without any.
    pub minutes_ms: Vec<Option<Lateness>>,
    /// The same of all of them.
    pub hour_ms: Option<Lateness>,
    /// How many they are.
    pub hour: u64,
    /// The same by what triggered them.
    pub triggers: BTreeMap<String, u64>,
    /// The last of them, newest first.
    pub latest: Vec<Closure>,
}

/// One closure.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Closure {
    /// The order.
    pub id: String,
    /// What triggered it.
    pub trigger: String,
    /// The commit's time minus the deadline, in milliseconds.
    pub lateness_ms: f64,
    /// When it was noted, by this host's clock, in RFC 3339.
    pub at: String,
}

/// Remembers.
#[derive(Debug)]
pub(super) struct History {
    began: Instant,
    memory: Mutex<Memory>,
}

#[derive(Debug, Default)]
struct Memory {
    /// By minutes and by seconds since the beginning, those without a closure left out.
    minutes: VecDeque<(u64, Minute)>,
    seconds: VecDeque<(u64, u64)>,
    /// Oldest first.
    latest: VecDeque<Noted>,
}

#[derive(Debug)]
struct Minute {
    /// In the order of [`Trigger::ALL`].
    triggers: [u64; Trigger::ALL.len()],
    /// Microseconds; as large as the latest of them needs.
    lateness: Histogram<u32>,
}

#[derive(Debug)]
struct Noted {
    id: OrderId,
    trigger: Trigger,
    lateness: Duration,
    at: SystemTime,
}

impl Default for History {
    fn default() -> Self {
        Self { began: Instant::now(), memory: Mutex::default() }
    }
}

impl History {
    /// Adds those of these orders that were closed.
    pub(super) fn add(&self, looked: &[Looked]) {
        let closed = |one: &Looked| match &one.outcome {
            Outcome::Closed(closed) => Some((one.pending.trigger, closed.lateness)),
            Outcome::Settled { .. }
            | Outcome::NotDue { .. }
            | Outcome::NotFound
            | Outcome::Locked { .. }
            | Outcome::Unasked
            | Outcome::Undone
            | Outcome::Rejected { .. } => None,
        };
        let closures = looked.iter().filter_map(closed).count() as u64;
        if closures == 0 {
            return;
        }
        let second = self.began.elapsed().as_secs();
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.forget(second);
        let minute = memory.minute(second / 60);
        for (trigger, lateness) in looked.iter().filter_map(closed) {
            minute.triggers[trigger as usize] += 1;
            // Unlike `saturating_record`, it grows.
            minute.lateness.record(u64::try_from(lateness.as_micros()).unwrap_or(u64::MAX)).ok();
        }
        match memory.seconds.back_mut() {
            Some((last, count)) if *last == second => *count += closures,
            Some(_) | None => memory.seconds.push_back((second, closures)),
        }
        let at = SystemTime::now();
        let newest = looked.iter().rev().filter_map(|one| Some((one, closed(one)?))).take(LATEST);
        let newest: Vec<Noted> =
            newest.map(|(one, (trigger, lateness))| Noted { id: one.pending.id.clone(), trigger, lateness, at }).collect();
        memory.latest.extend(newest.into_iter().rev());
        let excess = memory.latest.len().saturating_sub(LATEST);
        memory.latest.drain(..excess);
    }

    /// What was closed of late.
    pub(super) fn recent(&self) -> Recent {
        let second = self.began.elapsed().as_secs();
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.forget(second);
        let mut recent = Recent { per_second: vec![0; SECONDS], minutes_ms: vec![None; MINUTES], ..Recent::default() };
        // The running second is none yet.
        for (at, count) in memory.seconds.iter().filter(|(at, _)| *at < second) {
            if let Some(place) = place(second - 1 - at, SECONDS) {
                recent.per_second[place] = *count;
            }
        }
        let mut hour = empty();
        for (at, minute) in &memory.minutes {
            if let Some(place) = place(second / 60 - at, MINUTES) {
                recent.minutes_ms[place] = Lateness::of(&minute.lateness);
            }
            hour.add(&minute.lateness).ok();
            for (trigger, count) in Trigger::ALL.iter().zip(minute.triggers).filter(|(_, count)| *count > 0) {
                *recent.triggers.entry(trigger.name().to_owned()).or_default() += count;
                recent.hour += count;
            }
        }
        recent.hour_ms = Lateness::of(&hour);
        recent.latest = memory.latest.iter().rev().map(Noted::shown).collect();
        recent
    }
}

impl Memory {
    fn forget(&mut self, second: u64) {
        while self.seconds.pop_front_if(|(at, _)| *at + SECONDS as u64 + 1 < second).is_some() {}
        while self.minutes.pop_front_if(|(at, _)| *at + MINUTES as u64 <= second / 60).is_some() {}
    }

    fn minute(&mut self, minute: u64) -> &mut Minute {
        if self.minutes.back().is_none_or(|(last, _)| *last != minute) {
            self.minutes.push_back((minute, Minute { triggers: Default::default(), lateness: empty() }));
        }
        match self.minutes.back_mut() {
            Some((_, minute)) => minute,
            None => unreachable!("one was put there"),
        }
    }
}

impl Noted {
    fn shown(&self) -> Closure {
        let at = self.at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
        Closure {
            id: self.id.as_str().to_owned(),
            trigger: self.trigger.name().to_owned(),
            lateness_ms: millis(self.lateness),
            at: rfc3339(i64::try_from(at).unwrap_or(i64::MAX)),
        }
    }
}

/// Where in a list of so many, oldest first, what is so old stands.
fn place(age: u64, size: usize) -> Option<usize> {
    usize::try_from(age).ok().and_then(|age| size.checked_sub(age + 1))
}

/// To one part in a hundred; it grows by itself.
fn empty() -> Histogram<u32> {
    Histogram::new(2).unwrap_or_else(|error| unreachable!("{error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::close::{Closed, Pending};

    fn closed(number: u64, lateness: Duration) -> Looked {
        let pending = Pending::new(OrderId::from_database(&number.to_string()), Trigger::Pacer);
        Looked { pending, outcome: Outcome::Closed(Closed { deadline: 0, lateness }) }
    }

    fn looked(trigger: Trigger) -> Looked {
        Looked { pending: Pending::new(OrderId::from_database("1"), trigger), outcome: Outcome::NotFound }
    }

    #[tokio::test(start_paused = true)]
    async fn closures_are_told_of_for_as_long_as_they_are_recent() {
        let history = History::default();
        history.add(&[looked(Trigger::Expired)]);
        let nothing = Recent { per_second: vec![0; SECONDS], minutes_ms: vec![None; MINUTES], ..Recent::default() };
        assert_eq!(history.recent(), nothing, "nothing was closed");
        history.add(&[closed(1, Duration::from_millis(4)), looked(Trigger::Expired), closed(2, Duration::from_secs(3 * 365 * 86_400))]);
        let recent = history.recent();
        assert_eq!((recent.hour, recent.triggers["pacer"], recent.per_second[SECONDS - 1]), (2, 2, 0), "the second still runs");
        assert_eq!(recent.latest.iter().map(|closure| closure.id.as_str()).collect::<Vec<_>>(), ["2", "1"], "newest first");
        tokio::time::advance(Duration::from_secs(1)).await;
        history.add(&[closed(3, Duration::from_millis(8))]);
        let recent = history.recent();
        assert_eq!(recent.per_second[SECONDS - 1], 2);
        let lateness = recent.minutes_ms[MINUTES - 1].expect("three in this minute");
        assert!((lateness.p50 - 8.0).abs() < 0.1, "{lateness:?}");
        assert!((lateness.max / 94_608e6 - 1.0).abs() < 0.01, "{lateness:?}");
        assert_eq!(recent.hour_ms, Some(lateness));
        tokio::time::advance(Duration::from_mins(59)).await;
        let recent = history.recent();
        assert_eq!((recent.hour, recent.minutes_ms[0], recent.per_second.iter().sum::<u64>()), (3, Some(lateness), 0));
        tokio::time::advance(Duration::from_mins(1)).await;
        let recent = history.recent();
        assert_eq!((recent.hour, recent.hour_ms, recent.triggers.len()), (0, None, 0));
        assert_eq!(recent.latest.len(), 3, "the last ones stay");
    }

    #[tokio::test(start_paused = true)]
    async fn of_many_the_last_ones_are_told() {
        let history = History::default();
        history.add(&(0..1_000).map(|number| closed(number, Duration::ZERO)).collect::<Vec<_>>());
        history.add(&[closed(1_000, Duration::ZERO)]);
        let latest = history.recent().latest;
        assert_eq!((latest.len(), latest[0].id.as_str(), latest[1].id.as_str()), (LATEST, "1000", "999"));
    }
}
