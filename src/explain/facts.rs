//! What is known of an order, put together: how its matter stands, what would close it, what somebody can do.

use tokio::time::Instant;

use super::{Explainer, Explanation, Key, KeyState, Next, State, sentence::moment, story::Story, words::Words};
use crate::{
    close::{Kept, KeptBy, Why},
    config::Disputed,
    order::{OrderId, Row, ShellWord, Trigger, Verdict, rfc3339},
    outbox::{Event, Pause, PauseStatus, UNDONE},
    store::Inspected,
    trigger::{Difference, TOLERANCE},
};

/// A deadline that is further away is mostly a mistake.
const FAR: i64 = 366 * 86_400 * 1_000_000;

/// All that was read about an order.
pub(super) struct Facts<'e> {
    pub(super) explainer: &'e Explainer,
    pub(super) id: &'e OrderId,
    pub(super) rows: Vec<Inspected>,
    pub(super) key: Key,
    pub(super) story: Story,
    pub(super) kept: Option<KeptBy>,
    pub(super) halted: Option<String>,
    /// Whether the server takes no writes, so that nothing closes there.
    pub(super) is_standby: bool,
    pub(super) verdict: Option<Verdict>,
}

impl<'e> Facts<'e> {
    /// `asked` is when the row was asked for.
    pub(super) fn new(
        explainer: &'e Explainer,
        id: &'e OrderId,
        rows: Vec<Inspected>,
        (key, story): (Key, Story),
        (kept, halted): (Option<KeptBy>, Option<String>),
        is_standby: bool,
        asked: Instant,
    ) -> Self {
        let verdict = match &rows[..] {
            [] => Some(None),
            // The lock alone can't be had by reading.
            [one] => Some((one.passes_filter && !one.is_claimed_twice).then(|| Row { locked: true, ..one.row.clone() })),
            _ => None,
        };
        let verdict = verdict.map(|row| explainer.bounds.judge_row(explainer.store.unpaid(), Trigger::Request, row.as_ref(), asked));
        Self { explainer, id, rows, key, story, kept, halted, is_standby, verdict }
    }

    pub(super) fn words(&self) -> &'static Words {
        Words::of(&self.explainer.rule)
    }

    /// Its row, if it has one.
    pub(super) fn row(&self) -> Option<&Inspected> {
        if let [one] = &self.rows[..] { Some(one) } else { None }
    }

    /// Until its deadline, in microseconds.
    pub(super) fn remaining(&self) -> Option<i64> {
        self.row().and_then(|found| found.row.remaining())
    }

    /// The closure for the very deadline that its row has, if there was one.
    pub(super) fn closure(&self) -> Option<&Event> {
        let deadline = self.row()?.row.deadline?;
        self.story.events.iter().rev().find(|event| event.deadline == deadline)
    }

    /// By how much its key expires later than its row's deadline, in microseconds, where that is more than a little.
    pub(super) fn difference(&self) -> Option<i64> {
        let difference = self.key.at? - self.row()?.row.deadline?;
        (u128::from(difference.unsigned_abs()) > TOLERANCE.as_micros()).then_some(difference)
    }

    /// The pause that keeps it from closing.
    pub(super) fn pause(&self) -> Option<&Pause> {
        self.story.pause.as_ref()?.as_ref().filter(|pause| pause.rate.is_none())
    }

    /// What whoever has to be asked about it has said, or not.
    pub(super) fn why(&self) -> Option<Why> {
        match self.kept.as_ref()?.what {
            Kept::Waits(why) if why != Why::Disputed => Some(why),
            Kept::Waits(_) | Kept::Held | Kept::Resting | Kept::GivenUp => None,
        }
    }

    fn is_kept(&self, what: Kept) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.what == what)
    }

    pub(super) fn state(&self) -> State {
        let Some(found) = self.row() else {
            return if self.rows.is_empty() { State::NotFound } else { State::SeveralRows };
        };
        if !found.passes_filter {
            return State::Hidden;
        }
        if found.is_claimed_twice {
            return State::ClaimedTwice;
        }
        let gives_up = self.story.dead_letter.is_some() || self.is_kept(Kept::GivenUp);
        match &self.verdict {
            Some(Verdict::Settled { status }) => {
                let is_closed = status.as_deref() == Some(&*self.explainer.rule.closed.text());
                if is_closed && !self.story.events.is_empty() { State::Closed } else { State::Settled }
            }
            Some(Verdict::NotDue { remaining: None }) | None => State::NeverDue,
            Some(Verdict::NotDue { .. }) if self.remaining().is_some_and(|left| left <= 0) => State::ClockAhead,
            Some(Verdict::NotDue { .. } | Verdict::Close { .. }) if gives_up => State::GivenUp,
            Some(Verdict::NotDue { .. }) if self.halted.is_some() => State::Halted,
            Some(Verdict::NotDue { .. }) => State::NotDue,
            Some(Verdict::NotFound | Verdict::Close { .. } | Verdict::Locked | Verdict::Unasked) => self.in_the_way(),
        }
    }

    /// What keeps an order from closing that is due.
    fn in_the_way(&self) -> State {
        let Explainer { bounds, rule, .. } = self.explainer;
        let overdue = self.remaining().unwrap_or_default().saturating_neg();
        let is_old = bounds.oldest().is_some_and(|oldest| u128::from(overdue.unsigned_abs()) > oldest.as_micros());
        let is_disputed = rule.disputed == Disputed::Wait && self.difference().is_some_and(|later| later > 0);
        // A timer may be armed again for the very time at which it has fired.
        if self.closure().is_some() && !self.explainer.rule.name.is_timers() {
            State::Undone
        } else if is_old {
            State::Old
        } else if self.halted.is_some() {
            State::Halted
        } else if self.pause().is_some() {
            State::Paused
        } else if is_disputed || self.is_kept(Kept::Waits(Why::Disputed)) {
            State::Disputed
        } else if self.why().is_some() {
            State::Asked
        } else if self.is_kept(Kept::Held) {
            State::Held
        } else if self.is_kept(Kept::Resting) {
            State::Refused
        } else {
            State::Due
        }
    }

    /// What would close it.
    fn next(&self, state: State) -> Option<Next> {
        let next = |trigger: Trigger, at: Option<i64>| Some(Next { trigger: trigger.name(), at: at.map(rfc3339) });
        let row = &self.row()?.row;
        let waits_for_key = self.explainer.rule.disputed == Disputed::Wait && self.difference().is_some_and(|later| later > 0);
        match state {
            State::NotDue | State::Disputed if waits_for_key => next(Trigger::Expired, self.key.at),
            State::Disputed => {
                let left = self.kept.as_ref().and_then(|kept| kept.left).and_then(|left| i64::try_from(left.as_micros()).ok());
                next(Trigger::Sweep, left.map(|left| row.now.saturating_add(left)))
            }
            State::NotDue if self.key.state == KeyState::Expires && self.difference().is_none() => next(Trigger::Expired, row.deadline),
            State::NotDue if self.explainer.looks_ahead => next(Trigger::Pacer, row.deadline),
            State::NotDue => next(Trigger::Sweep, row.deadline),
            State::Paused => {
                let left = self.pause()?.left.and_then(|left| i64::try_from(left.as_micros()).ok());
                next(Trigger::Sweep, left.map(|left| row.now.saturating_add(left)))
            }
            State::Due if self.is_standby => None,
            State::Asked | State::Held | State::Refused | State::Due => next(Trigger::Sweep, None),
            State::NotFound
            | State::SeveralRows
            | State::Hidden
            | State::ClaimedTwice
            | State::Closed
            | State::Settled
            | State::NeverDue
            | State::ClockAhead
            | State::GivenUp
            | State::Undone
            | State::Old
            | State::Halted => None,
        }
    }

    /// Whether it was given up because its closure was undone.
    fn was_undone(&self) -> bool {
        self.story.dead_letter.as_ref().is_some_and(|death| death.error.starts_with(UNDONE))
    }

    /// What somebody can do about it.
    fn to_do(&self, state: State) -> Option<String> {
        let id = ShellWord(self.id.as_str());
        let (rule, Words { closed, option, .. }) = (&self.explainer.rule, self.words());
        let undone = || format!("find out what has put its status back; then run: order-closer close {id}{option}");
        Some(match state {
            State::NotFound if self.key.state == KeyState::Expires => {
                format!("see whether it is in another table than {}, or another database", rule.table)
            }
            State::SeveralRows => format!("let the id name one row: {} has to be unique among the orders", rule.id),
            State::Hidden => "change orders.filter, if it is to be closed".into(),
            State::ClaimedTwice => "see that no row passes the filters of both rules".into(),
            State::NeverDue => {
                format!("see orders.deadline (column, unit) in the configuration, if {} is meant as a time", rule.deadline.column)
            }
            State::ClockAhead => "set the database's clock right, or, if it is right, run: order-closer reconcile --accept-clock".into(),
            State::GivenUp if self.was_undone() => undone(),
            State::GivenUp => format!("mend what its last try said, then run: order-closer dead-letters retry {id}{option}"),
            State::Undone => undone(),
            State::Old => {
                format!(
                    "if it is to be {closed}, run: order-closer close {id}{option} (reconcile --oldest none does that with all of its kind)"
                )
            }
            State::Halted => "set database.time_zone to the zone in which the shop writes deadlines".into(),
            State::Paused => "order-closer resume".into(),
            State::Disputed | State::NotDue => self.advice()?,
            State::Asked => {
                "see what the receiver of close.ask says of it; `order-closer close --without-asking` closes it all the same".into()
            }
            State::Held => "see which transaction holds it, if it does so for long: it may wait for somebody at a payment page".into(),
            State::Refused => "mend what its last try said; it is tried again by itself".into(),
            State::Due if self.is_standby => {
                "let database.url lead to the server that takes writes, and see that a daemon runs with that URL".into()
            }
            State::Due => format!("see that a daemon runs (order-closer healthcheck), or run: order-closer close {id}{option}"),
            State::Closed | State::Settled | State::NotFound => return None,
        })
    }

    /// Which setting would explain that its key and its row differ.
    fn advice(&self) -> Option<String> {
        Some(Difference::of(vec![self.difference()?])?.advice(&self.explainer.mapping))
    }

    fn notes(&self, state: State) -> Vec<String> {
        let mut notes = Vec::new();
        let waits = !matches!(state, State::Closed | State::Settled | State::Hidden);
        let other = self.story.events.last().filter(|_| waits && self.closure().is_none() && self.row().is_some());
        if let Some(event) = other {
            let (closed, deadline) = (moment(event.closed_at), moment(event.deadline));
            let Words { closed: fate, deadline: time, opened, .. } = self.words();
            notes.push(format!("it was {fate} at {closed} for another {time} ({deadline}), and {opened} again since"));
        }
        if state == State::NotDue && self.remaining().is_some_and(|left| left > FAR) {
            notes.push(if self.explainer.rule.name.is_timers() {
                "a time more than a year away is mostly a wrong unit: due_at counts microseconds since 1970".into()
            } else {
                "a deadline more than a year away is mostly a wrong unit or column: order-closer check".into()
            });
        }
        if waits && self.key.state == KeyState::NoTtl {
            notes.push("its key does not expire, so no notification will come: it is closed by its row alone".into());
        }
        if state == State::NotDue && self.pause().is_some() {
            let Words { closing, deadline, .. } = self.words();
            notes.push(format!("{closing} is paused; if that lasts until its {deadline}, it waits"));
        }
        if self.is_standby && self.next(state).is_some() {
            notes.push("this server takes no writes (a standby, or made read-only): orders close at the one that does".into());
        }
        if state == State::Due && self.explainer.inbox.is_none() && !self.is_standby {
            notes.push(
                "whether another transaction holds its row just now can't be seen by reading: a daemon knows of its own tries".into(),
            );
        }
        notes
    }

    pub(super) fn explanation(self) -> Explanation {
        let state = self.state();
        let rule = &self.explainer.rule;
        let (sentence, next, to_do, notes) = (self.sentence(state), self.next(state), self.to_do(state), self.notes(state));
        let found = self.row();
        let row = found.map(|found| &found.row);
        let plus = rule.deadline.plus.map_or_else(String::new, |plus| format!(" plus {plus}"));
        Explanation {
            id: self.id.as_str().to_owned(),
            state,
            rule: rule.name.to_string(),
            table: rule.name.shard().map_or_else(|| rule.table.to_string(), str::to_owned),
            filter: rule.filter.clone(),
            passes_filter: found.filter(|_| rule.filter.is_some()).map(|found| found.passes_filter),
            rows: self.rows.len(),
            status: row.and_then(|row| row.status.clone()),
            unpaid: row.and_then(|row| row.status.as_ref()).is_some_and(|status| self.explainer.store.unpaid().contains(status)),
            deadline_column: format!("{}{plus}", rule.deadline.column),
            deadline_stored: found.and_then(|found| found.stored.clone()),
            deadline_zone: self.explainer.mapping.zone_matters.then(|| self.explainer.store.time_zone()),
            deadline: row.and_then(|row| row.deadline).map(rfc3339),
            now: row.map(|row| rfc3339(row.now)),
            seconds_left: row.and_then(Row::remaining).map(|micros| micros as f64 / 1e6),
            verdict: self.verdict.as_ref().map(Verdict::name),
            waits: self.kept.as_ref().map(|kept| kept.what.text()),
            last_error: self.kept.as_ref().and_then(|kept| kept.reason.clone()),
            pause: self.story.pause.clone().map(|pause| PauseStatus::of(&rule.name, pause)),
            sentence,
            next,
            to_do,
            notes,
            key: self.key,
            dead_letter: self.story.dead_letter,
            undelivered: self.story.undelivered,
            events: self.story.events,
            unknown: self.story.unknown,
        }
    }
}
