//! What the daemon did, counted for its logs.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use hdrhistogram::{Counter, Histogram};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::{
    close::{
        history::{History, Recent},
        outcome::{Looked, Outcome},
    },
    config::RuleName,
    metric,
    order::Trigger,
};

/// Lateness beyond a century counts as a century.
const LONGEST_LATENESS_MICROS: u64 = 100 * 366 * 24 * 3_600 * 1_000_000;

/// Percentiles of lateness, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Lateness {
    /// Half of the closures were not later.
    pub p50: f64,
    /// Ninety-nine of a hundred were not later.
    pub p99: f64,
    /// None was later.
    pub max: f64,
}

impl Lateness {
    /// Of a histogram of microseconds; nothing where that is empty.
    #[must_use]
    pub fn of<C: Counter>(micros: &Histogram<C>) -> Option<Self> {
        let millis = |micros| millis(Duration::from_micros(micros));
        (!micros.is_empty()).then(|| Self {
            p50: millis(micros.value_at_quantile(0.5)),
            p99: millis(micros.value_at_quantile(0.99)),
            max: millis(micros.max()),
        })
    }
}

/// Counts over some stretch of time.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Orders closed.
    pub closed: u64,
    /// The same by what triggered them.
    pub triggers: BTreeMap<&'static str, u64>,
    /// How late they were; nothing where nothing was closed.
    pub lateness_ms: Option<Lateness>,
    /// Looks at orders that were paid or closed already.
    pub settled: u64,
    /// Looks that came before the deadline.
    pub not_due: u64,
    /// Ids without an order.
    pub not_found: u64,
    /// Looks at orders that somebody had locked.
    pub locked: u64,
    /// Closures that the database rejected.
    pub rejected: u64,
    /// Questions about orders, by their answers: close, paid, later, none.
    pub asked: BTreeMap<&'static str, u64>,
    /// Notifications heard.
    pub heard: u64,
    /// Notifications of keys that are no orders.
    pub ignored: u64,
    /// Notifications lost on the way, as far as that can be known.
    pub lost: u64,
    /// Notifications that came faster than their orders could be looked at, and were dropped: the sweep finds what is due.
    pub dropped: u64,
}

impl Summary {
    /// Whether no order was looked at.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.closed + self.settled + self.not_due + self.not_found + self.locked + self.rejected == 0
    }
}

/// A time in milliseconds, to the microsecond: what logs and reports print.
#[must_use]
pub fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1_000_000.0).round() / 1_000.0
}

#[derive(Debug)]
struct Counts {
    summary: Summary,
    /// Microseconds.
    lateness: Histogram<u64>,
}

impl Counts {
    fn new() -> Self {
        // To one part in a hundred, up to a century. These bounds are valid, so it can't fail.
        let lateness = Histogram::new_with_max(LONGEST_LATENESS_MICROS, 2).unwrap_or_else(|error| unreachable!("{error}"));
        Self { summary: Summary::default(), lateness }
    }

    fn add(&mut self, looked: &Looked) {
        let summary = &mut self.summary;
        match &looked.outcome {
            Outcome::Closed(closed) => {
                summary.closed += 1;
                *summary.triggers.entry(looked.pending.trigger.name()).or_default() += 1;
                self.lateness.saturating_record(u64::try_from(closed.lateness.as_micros()).unwrap_or(u64::MAX));
            }
            Outcome::Settled { .. } => summary.settled += 1,
            Outcome::NotDue { .. } => summary.not_due += 1,
            Outcome::NotFound => summary.not_found += 1,
            Outcome::Locked { .. } => summary.locked += 1,
            Outcome::Unasked => {}
            Outcome::Rejected { .. } | Outcome::Undone => summary.rejected += 1,
        }
    }

    fn summary(&self) -> Summary {
        Summary { lateness_ms: Lateness::of(&self.lateness), ..self.summary.clone() }
    }
}

/// How much was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// Orders closed.
    pub closed: u64,
    /// Looks at orders that their database let end as they should.
    pub looks: u64,
}

/// Counts since the start, and since the last summary; and the last hour.
#[derive(Debug)]
pub struct Stats {
    rule: RuleName,
    counts: Mutex<(Counts, Counts)>,
    history: History,
}

impl Default for Stats {
    fn default() -> Self {
        Self::of(&RuleName::default())
    }
}

impl Stats {
    /// Those of a rule.
    #[must_use]
    pub fn of(rule: &RuleName) -> Self {
        Self { rule: rule.clone(), counts: Mutex::new((Counts::new(), Counts::new())), history: History::default() }
    }

    /// Counts how looks at orders ended.
    pub fn looked(&self, looked: &[Looked]) {
        self.both(|counts| looked.iter().for_each(|one| counts.add(one)));
        let now = Instant::now();
        self.history.add(looked);
        for Looked { pending, outcome } in looked {
            let trigger = pending.trigger.name();
            metric::LOOKS.add(1, &[self.rule.label(), trigger, outcome.name()]);
            if let Outcome::Closed(closed) = outcome {
                metric::LATENESS.record(closed.lateness.as_secs_f64(), &[self.rule.label(), trigger]);
                if let Some(heard) = pending.heard {
                    let lag = closed.lateness.saturating_sub(now - heard);
                    metric::NOTIFICATION_LAG.record(lag.as_secs_f64(), &[self.rule.label()]);
                }
            }
        }
    }

    /// Counts questions about orders that have ended with this answer.
    pub fn answered(&self, answer: &'static str, orders: u64) {
        self.both(|counts| *counts.summary.asked.entry(answer).or_default() += orders);
        metric::ASKS.add(orders, &[self.rule.label(), answer]);
    }

    /// Counts one notification; `order` if its key named one.
    pub fn heard(&self, order: bool) {
        self.both(|Counts { summary, .. }| {
            summary.heard += 1;
            summary.ignored += u64::from(!order);
        });
        metric::NOTIFICATIONS.add(1, &[self.rule.label(), if order { "order" } else { "foreign" }]);
    }

    /// Counts notifications that were lost.
    pub fn lost(&self, events: u64) {
        self.both(|counts| counts.summary.lost += events);
        metric::NOTIFICATIONS.add(events, &[self.rule.label(), "lost"]);
    }

    /// Counts a notification that was dropped.
    pub fn dropped(&self) {
        self.both(|counts| counts.summary.dropped += 1);
        metric::NOTIFICATIONS.add(1, &[self.rule.label(), "dropped"]);
    }

    /// What was closed of late.
    pub fn recent(&self) -> Recent {
        self.history.recent()
    }

    /// How many orders were closed since the start.
    pub fn closed(&self) -> u64 {
        self.counts().closed
    }

    /// How much was done since the start.
    pub fn counts(&self) -> Done {
        let Summary { closed, settled, not_due, not_found, .. } = self.counts.lock().unwrap_or_else(PoisonError::into_inner).0.summary;
        Done { closed, looks: closed + settled + not_due + not_found }
    }

    /// The counts since the last call.
    pub fn interval(&self) -> Summary {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut counts.1, Counts::new()).summary()
    }

    /// The counts since the start.
    pub fn total(&self) -> Summary {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).0.summary()
    }

    fn both(&self, change: impl Fn(&mut Counts)) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut counts.0);
        change(&mut counts.1);
    }
}

impl Summary {
    /// The questions that have ended with this answer.
    #[must_use]
    pub fn answered(&self, answer: &str) -> u64 {
        self.asked.get(answer).copied().unwrap_or_default()
    }

    /// The closures that one trigger brought.
    #[must_use]
    pub fn by(&self, trigger: Trigger) -> u64 {
        self.triggers.get(trigger.name()).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        close::{Closed, Pending},
        order::OrderId,
    };

    fn closed(lateness: Duration) -> Looked {
        let pending = Pending::new(OrderId::from_database("1"), Trigger::Sweep);
        Looked { pending, outcome: Outcome::Closed(Closed { deadline: 0, lateness }) }
    }

    #[test]
    fn lateness_of_years_is_told_and_none_where_nothing_was_closed() {
        let stats = Stats::default();
        assert_eq!(stats.total().lateness_ms, None);
        let years = Duration::from_secs(10 * 365 * 86_400);
        stats.looked(&[closed(years)]);
        let lateness = stats.interval().lateness_ms.expect("an order was closed");
        assert!((lateness.p50 / millis(years) - 1.0).abs() < 0.01, "{lateness:?}");
        assert!((lateness.max / millis(years) - 1.0).abs() < 0.01, "{lateness:?}");
        assert_eq!(stats.interval().lateness_ms, None, "nothing since");
    }
}
