//! The sentence that says it all.

use std::time::Duration;

use super::{KeyState, State, facts::Facts, words::Words};
use crate::{
    close::{Kept, Why},
    config::{Disputed, Span},
    order::{Printable, Trigger, rfc3339},
    outbox::{Event, UNDONE},
    trigger::Difference,
};

const SECOND: i64 = 1_000_000;

/// A time for people: RFC 3339 to the millisecond, without a fraction that says nothing.
pub(super) fn moment(micros: i64) -> String {
    let text = rfc3339(micros.saturating_sub(micros.rem_euclid(1_000)));
    format!("{}Z", text.trim_end_matches('Z').trim_end_matches('0').trim_end_matches('.'))
}

/// A length of time for people: its two greatest units.
fn span(micros: i64) -> String {
    let micros = micros.unsigned_abs();
    if micros < 10 * SECOND.unsigned_abs() {
        return format!("{:.3} s", micros as f64 / 1e6);
    }
    let whole = Span::from(Duration::from_secs(micros / SECOND.unsigned_abs())).to_string();
    whole.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// The same of the time between a key and its row, which is told to the minute: order services round.
fn difference(micros: i64) -> String {
    let micros = i64::try_from(micros.unsigned_abs()).unwrap_or(i64::MAX);
    Difference::of(vec![micros]).map_or_else(|| span(micros), |difference| difference.to_string())
}

impl Facts<'_> {
    pub(super) fn sentence(&self, state: State) -> String {
        format!("{} {} {}.", self.words().thing, self.id, self.predicate(state))
    }

    fn predicate(&self, state: State) -> String {
        let (rule, words) = (&self.explainer.rule, self.words());
        let unpaid = || if rule.name.is_timers() { "is armed".into() } else { format!("is unpaid (status {})", self.status()) };
        let (due, left) = (self.due(), span(self.remaining().unwrap_or_default()));
        match state {
            State::NotFound => format!("is not in {}{}", rule.table, self.traces()),
            State::SeveralRows => {
                format!("has {} rows in {}, and none of them closes: an id has to name one order", self.rows.len(), rule.table)
            }
            State::Hidden => {
                let filter = rule.filter.as_deref().unwrap_or_default().trim();
                format!("is none for this rule, and nobody closes it: orders.filter ({}) hides its row", Printable(filter))
            }
            State::ClaimedTwice => {
                let rivals = rule.rivals.iter().map(|rival| rival.name.to_string()).collect::<Vec<_>>().join(" or ");
                format!("is claimed by two rules ({} and {rivals}), and neither closes it", rule.name)
            }
            State::Closed => {
                let closed = self.closure().or(self.story.events.last()).map(|event| closed_by(event, words)).unwrap_or_default();
                let times = match self.story.events.len() {
                    1 => String::new(),
                    several => format!("; it was {} {several} times in all", words.closed),
                };
                format!("{closed}{times}")
            }
            State::Settled => self.settled(),
            State::NeverDue => match self.row().and_then(|found| found.stored.as_deref()) {
                None => format!("{} and never due: its {} is NULL", unpaid(), rule.deadline.column),
                Some(stored) => {
                    format!("{} and never due: its {} is {}, which is no deadline", unpaid(), rule.deadline.column, Printable(stored))
                }
            },
            State::NotDue => format!("{} and due in {left}, at {due}{}", unpaid(), self.what_then()),
            State::ClockAhead => {
                let ahead = self.explainer.bounds.jumped().map(|by| span(i64::try_from(by.as_micros()).unwrap_or(i64::MAX)));
                let ahead = ahead.map_or_else(|| "ahead of others".into(), |by| format!("{by} ahead of others"));
                format!("is due (at {due}) only by the database's clock, which is {ahead}, and waits until that is right or accepted")
            }
            State::GivenUp => self.given_up(&due),
            State::Undone => {
                let closed = self.closure().map(|event| closed_by(event, words)).unwrap_or_default();
                format!("{closed}, and {UNDONE}")
            }
            State::Old => {
                let oldest = self.explainer.bounds.oldest().unwrap_or_default();
                let oldest = Span::from(oldest);
                format!(
                    "{} and has been overdue for {left}, since {due}: longer than sweep.oldest ({oldest}), so daemons leave it alone",
                    unpaid()
                )
            }
            State::Halted => {
                let reason = self.halted.as_deref().unwrap_or_default();
                let Words { deadline, closing, .. } = words;
                format!(
                    "{}, has the {deadline} {due} as it is read now, and waits with all others, since {closing} is stopped: {reason}",
                    unpaid()
                )
            }
            State::Paused => format!("is due since {due}, and waits: {}", self.paused()),
            State::Disputed => format!("is due by its row since {due}, but {}", self.disputed()),
            State::Asked => {
                format!("is due since {due}, and waits: {}{}", self.why().map_or("somebody is asked about it", Why::text), self.said())
            }
            State::Held => format!("is due since {due} and tried again every second: another transaction holds it{}", self.said()),
            State::Refused => {
                format!("is due since {due} and tried again by and by: the database refuses its {}{}", words.closure, self.said())
            }
            State::Due if self.is_standby => {
                format!(
                    "{} and due since {due} ({left}); this server takes no writes (a standby, or made read-only), so nothing {} it here",
                    unpaid(),
                    words.closes
                )
            }
            State::Due => {
                format!(
                    "{} and due since {due} ({left}); nothing known stands in its way, and the next sweep of a daemon {} it",
                    unpaid(),
                    words.closes
                )
            }
        }
    }

    fn status(&self) -> String {
        let status = self.row().and_then(|found| found.row.status.as_deref());
        status.map_or_else(|| "NULL".into(), |status| Printable(status).to_string())
    }

    fn key_name(&self) -> Printable<'_> {
        Printable(self.key.name.as_deref().unwrap_or_default())
    }

    fn due(&self) -> String {
        self.row().and_then(|found| found.row.deadline).map(moment).unwrap_or_default()
    }

    /// What is left of an order without a row.
    fn traces(&self) -> String {
        if let Some(event) = self.story.events.last() {
            return format!(", though it {}", closed_by(event, self.words()));
        }
        match self.key.at {
            Some(at) => format!(", though there is its key {}, which expires at {}", self.key_name(), moment(at)),
            None if self.key.state == KeyState::NoTtl => format!(", though there is its key {}", self.key_name()),
            None => String::new(),
        }
    }

    fn settled(&self) -> String {
        let (rule, words) = (&self.explainer.rule, self.words());
        let status = self.status();
        let before = self.story.events.last().map(|event| format!("; it {} before", closed_by(event, words))).unwrap_or_default();
        if rule.name.is_timers() {
            return match status == rule.closed.text() {
                true => "has fired, and the audit log has nothing of it: that is longer ago than events.keep, or its state was set by hand"
                    .into(),
                false => format!("is {status}, and does not fire{before}"),
            };
        }
        if status == rule.closed.text() {
            let outbox = self.explainer.store.outbox();
            let why = if outbox.is_ready() {
                "the audit log has no closure of it, so no daemon that records events has closed it"
            } else {
                "there is no audit log to say by whom"
            };
            return format!("has the closed status ({status}), and {why}");
        }
        let unpaid = rule.unpaid_texts().join(", ");
        format!(
            "has the status {status}, which is none of an unpaid order ({unpaid}): it is paid or settled otherwise, and is left as it is{before}"
        )
    }

    /// What closes an order at its deadline.
    fn what_then(&self) -> String {
        let (key, closes) = (self.key_name(), self.words().closes);
        match (self.difference(), self.key.at) {
            (Some(later), Some(at)) if later > 0 && self.explainer.rule.disputed == Disputed::Wait => {
                format!("; its key {key} expires {} later, at {}, and it waits for that (orders.disputed)", difference(later), moment(at))
            }
            (Some(earlier), _) if earlier < 0 => {
                format!("; its key {key} expires {} before that, which closes nothing yet, and its row closes it then", difference(earlier))
            }
            (_, Some(_)) => format!("; its key {key} expires then, and the notification closes it"),
            (_, None) if !self.explainer.looks_ahead => format!("; the first sweep after that {closes} it"),
            (_, None) if self.key.state == KeyState::None && self.key.name.is_some() => {
                format!("; there is no key {key}, and the pacer closes it then")
            }
            (_, None) => format!("; the pacer {closes} it then"),
        }
    }

    fn given_up(&self, due: &str) -> String {
        let dropped = |dropped: bool| if dropped { ", and dropped: nobody is told of it any more" } else { "" };
        match &self.story.dead_letter {
            Some(letter) => {
                let tries = if letter.attempts == 1 { "1 try".into() } else { format!("{} tries", letter.attempts) };
                let (at, error) = (&letter.failed_at, Printable(&letter.error));
                format!("(due at {due}) was given up after {tries}, the last at {at}{}: {error}", dropped(letter.dropped))
            }
            None => format!("(due at {due}) was given up by this daemon for a day{}", self.said()),
        }
    }

    fn paused(&self) -> String {
        let closing = self.words().closing;
        let Some(pause) = self.pause() else { return format!("{closing} is paused") };
        let until = match (pause.left, self.row()) {
            (Some(left), Some(found)) => {
                let end = found.row.now.saturating_add(i64::try_from(left.as_micros()).unwrap_or(i64::MAX));
                format!("until {}", moment(end / SECOND * SECOND))
            }
            _ => "until `order-closer resume`".into(),
        };
        format!("{closing} is paused {until} by {}: {}", Printable(&pause.who), Printable(&pause.reason))
    }

    fn disputed(&self) -> String {
        let key = self.key_name();
        match (self.difference(), self.key.at) {
            (Some(later), Some(at)) if later > 0 => {
                format!("its key {key} expires {} later, at {}, and it waits for that (orders.disputed)", difference(later), moment(at))
            }
            _ => {
                let left = self.kept.as_ref().filter(|kept| kept.what == Kept::Waits(Why::Disputed)).and_then(|kept| kept.left);
                let left = left.map_or_else(String::new, |left| {
                    format!(", for another {} at the most", span(i64::try_from(left.as_micros()).unwrap_or(i64::MAX)))
                });
                format!("its key {key} was to expire later, and it waits for that moment{left} (orders.disputed)")
            }
        }
    }

    /// What its last try said.
    fn said(&self) -> String {
        let said = self.kept.as_ref().and_then(|kept| kept.reason.as_deref());
        said.map_or_else(String::new, |said| format!(" ({})", Printable(said)))
    }
}

/// When and by what an order was closed, or a timer fired.
fn closed_by(event: &Event, Words { closed, deadline, .. }: &Words) -> String {
    let Event { closed_at, lateness, trigger, instance, .. } = event;
    let by = Trigger::ALL.into_iter().find(|known| known.name() == trigger).map_or(trigger.as_str(), |trigger| match trigger {
        Trigger::Expired => "the notification of its key",
        Trigger::Pacer => "the pacer",
        Trigger::Sweep => "the sweep",
        Trigger::Reconcile => "order-closer reconcile",
        Trigger::Request => "a request for it by its id",
        Trigger::Hint => "a hint that came in through a door",
    });
    let late = if *lateness < SECOND { format!("{:.1} ms", *lateness as f64 / 1e3) } else { span(*lateness) };
    format!("was {closed} at {}, {late} after its {deadline}, by {} ({})", moment(*closed_at), Printable(by), Printable(instance))
}
