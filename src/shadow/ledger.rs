//! What a shadow knows of each order: what this daemon would have done, and what has become of the order.
//!
//! All times are microseconds since 1970 UTC, by the database's clock.

use std::{collections::HashMap, time::Duration};

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::{
    close::Lateness,
    order::{OrderId, Row},
    store::Decision,
};

/// The most orders that are watched at a time.
pub(super) const LIMIT: usize = 500_000;

/// How one order ended, set beside what this daemon would have done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Both close it.
    Closed,
    /// It was closed after its deadline, before this daemon had judged it.
    ClosedFirst,
    /// It was closed before its deadline, as that is understood here: a wrong zone, unit or plus, or a customer who cancelled.
    ClosedEarly,
    /// This daemon would have closed it, and afterwards it was paid.
    PaidAfter,
    /// It was paid after its deadline, and this daemon would not have closed it before.
    PaidLate,
    /// It was paid before its deadline.
    Paid,
    /// This daemon would have closed it, and afterwards it was given a later deadline.
    Extended,
    /// It was deleted, or the filter of its rule hides it by now.
    Gone,
    /// This daemon would have closed it, and it is unpaid to the end.
    StillUnpaid,
    /// It is overdue and unpaid to the end, and this daemon would not have closed it.
    Undecided,
}

impl Verdict {
    /// Whether somebody should look at it before this daemon closes orders.
    #[must_use]
    pub const fn needs_a_look(self) -> bool {
        match self {
            Self::ClosedEarly | Self::PaidAfter | Self::Extended | Self::Undecided => true,
            Self::Closed | Self::ClosedFirst | Self::PaidLate | Self::Paid | Self::Gone | Self::StillUnpaid => false,
        }
    }
}

/// An order's story, told when it has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// The order.
    pub id: OrderId,
    /// Its deadline.
    pub deadline: i64,
    /// Whether it was overdue already when it was first seen at the start.
    pub backlog: bool,
    /// When this daemon would have closed it, if it would.
    pub decided: Option<i64>,
    /// What kept this daemon from that.
    pub kept: Option<&'static str>,
    /// How it ended.
    pub verdict: Verdict,
    /// Its status at the end; `None` when it is unpaid, or gone.
    pub status: Option<String>,
    /// When it left the unpaid status: not later than this.
    pub left: Option<i64>,
    /// Not sooner than this; the same where a column has it.
    pub left_after: Option<i64>,
}

/// An order that is watched.
#[derive(Debug)]
struct Story {
    deadline: i64,
    backlog: bool,
    last_unpaid: i64,
    pass: u64,
    /// The last pass over the table has not found it.
    missing: bool,
    /// It has left the unpaid status.
    left: Option<(Option<String>, i64)>,
    /// What kept it when it was last looked at.
    kept: Option<&'static str>,
}

/// What has been seen of all orders.
#[derive(Debug)]
pub struct Ledger {
    closed: String,
    stories: HashMap<OrderId, Story>,
    pass: u64,
    began: Option<i64>,
    totals: Totals,
    here: Histogram<u64>,
    elsewhere: Histogram<u64>,
}

/// What has come together since the start.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Totals {
    /// Orders that were seen unpaid.
    pub seen: u64,
    /// Those of them that were overdue at the start; they are not in the figures of lateness.
    pub backlog: u64,
    /// Orders that this daemon would have closed.
    pub would_close: u64,
    /// How late it would have been, in milliseconds.
    pub would_close_ms: Option<Lateness>,
    /// How late they were closed in fact, after their deadlines, in milliseconds.
    pub closed_ms: Option<Lateness>,
    /// How they ended.
    pub verdicts: std::collections::BTreeMap<Verdict, u64>,
    /// What overdue orders that it would not have closed wait for, now.
    pub kept: std::collections::BTreeMap<&'static str, u64>,
    /// Unpaid and due now.
    pub overdue: u64,
    /// Orders that there was no room to watch, each time they were found.
    pub unwatched: u64,
}

impl Ledger {
    /// For a rule whose closed orders have this status.
    #[must_use]
    pub fn new(closed: &str) -> Self {
        let histogram = || Histogram::new(3).unwrap_or_else(|_| unreachable!("three digits are possible"));
        Self {
            closed: closed.to_owned(),
            stories: HashMap::new(),
            pass: 0,
            began: None,
            totals: Totals::default(),
            here: histogram(),
            elsewhere: histogram(),
        }
    }

    /// A pass over the table begins.
    pub fn begin_pass(&mut self) {
        self.pass += 1;
    }

    /// A row was read that is unpaid. Returns the story of a deadline that it has no more, if that is one to tell.
    pub fn found(&mut self, row: &Row, decision: Option<Decision>) -> Option<Told> {
        let deadline = row.deadline?;
        let began = *self.began.get_or_insert(row.now);
        let pass = self.pass;
        let mut told = None;
        if let Some(story) = self.stories.get_mut(&row.id) {
            (story.pass, story.missing, story.left) = (pass, false, None);
            story.last_unpaid = story.last_unpaid.max(row.now);
            if story.deadline == deadline {
                return None;
            }
            let was_decided = decision.filter(|decision| decision.deadline == story.deadline && deadline > story.deadline);
            let told_of = was_decided.map(|decision| Told {
                id: row.id.clone(),
                deadline: story.deadline,
                backlog: story.backlog,
                decided: Some(decision.at),
                kept: None,
                verdict: Verdict::Extended,
                status: None,
                left: Some(row.now),
                left_after: None,
            });
            story.deadline = deadline;
            told = told_of;
        } else if self.stories.len() >= LIMIT {
            self.totals.unwatched += 1;
        } else {
            let backlog = deadline <= began;
            self.totals.seen += 1;
            self.totals.backlog += u64::from(backlog);
            let story = Story { deadline, backlog, last_unpaid: row.now, pass, missing: false, left: None, kept: None };
            self.stories.insert(row.id.clone(), story);
        }
        if let Some(told) = &told {
            self.count(told);
        }
        told
    }

    /// A pass has ended over all deadlines up to that one: what it has not found has left the unpaid status, or has another
    /// deadline.
    pub fn end_pass(&mut self, until: i64) {
        let pass = self.pass;
        for story in self.stories.values_mut().filter(|story| story.deadline <= until) {
            story.missing = story.pass < pass;
        }
    }

    /// How many orders are watched.
    #[must_use]
    pub fn watched(&self) -> usize {
        self.stories.len()
    }

    /// The orders to look at: those that the last pass has missed, and those that are due by then; the longest unseen first. What was
    /// overdue at the start comes last: however much that is, it must not keep us from what falls due now.
    #[must_use]
    pub fn to_look_at(&self, due_by: i64, most: usize) -> Vec<OrderId> {
        let mut found: Vec<(bool, bool, i64, &OrderId)> = self
            .stories
            .iter()
            .filter(|(_, story)| story.left.is_none() && (story.missing || story.deadline <= due_by))
            .map(|(id, story)| (!story.missing, story.backlog, story.last_unpaid, id))
            .collect();
        found.sort_unstable_by_key(|(seen, backlog, at, _)| (*seen, *backlog, *at));
        found.into_iter().take(most).map(|(.., id)| id.clone()).collect()
    }

    /// How many orders the last pass has missed that were not looked at since.
    #[must_use]
    pub fn missing(&self) -> usize {
        self.stories.values().filter(|story| story.missing && story.left.is_none()).count()
    }

    /// An order was looked at and is unpaid no more: its status, and `None` when it is gone.
    pub fn has_left(&mut self, id: &OrderId, status: Option<String>, now: i64) {
        if let Some(story) = self.stories.get_mut(id) {
            story.left = Some((status, now));
        }
    }

    /// What keeps an order that is due.
    pub fn is_kept(&mut self, id: &OrderId, why: Option<&'static str>) {
        if let Some(story) = self.stories.get_mut(id) {
            story.kept = why;
        }
    }

    /// The orders that have left the unpaid status, and are still to be told of.
    #[must_use]
    pub fn to_tell(&self) -> Vec<OrderId> {
        self.stories.iter().filter(|(_, story)| story.left.is_some()).map(|(id, _)| id.clone()).collect()
    }

    /// Tells of an order that has left the unpaid status. `changed` is when, as a column of its row has it; it counts where it
    /// agrees with what was seen, to a second.
    pub fn tell(&mut self, id: &OrderId, decision: Option<Decision>, changed: Option<i64>) -> Option<Told> {
        const SECOND: i64 = 1_000_000;
        let story = self.stories.get(id)?;
        let (status, seen) = story.left.clone()?;
        let agrees = |changed: &i64| (story.last_unpaid - SECOND..=seen + SECOND).contains(changed);
        let changed = changed.filter(agrees);
        // Between these two it has left.
        let (after, left) = (changed.unwrap_or(story.last_unpaid), changed.unwrap_or(seen));
        let decided = decision.filter(|decision| decision.deadline == story.deadline).map(|decision| decision.at);
        let (is_early, is_late) = (left < story.deadline, after >= story.deadline);
        let verdict = match (&status, decided) {
            (None, _) => Verdict::Gone,
            (Some(status), _) if *status == self.closed && is_early => Verdict::ClosedEarly,
            (Some(status), Some(_)) if *status == self.closed => Verdict::Closed,
            (Some(status), None) if *status == self.closed => Verdict::ClosedFirst,
            (Some(_), Some(_)) => Verdict::PaidAfter,
            (Some(_), None) if is_late => Verdict::PaidLate,
            (Some(_), None) => Verdict::Paid,
        };
        let told = Told {
            id: id.clone(),
            deadline: story.deadline,
            backlog: story.backlog,
            decided,
            kept: story.kept.filter(|_| decided.is_none() && !is_early),
            verdict,
            status,
            left: Some(left),
            left_after: Some(after),
        };
        self.stories.remove(id);
        self.count(&told);
        Some(told)
    }

    /// Tells of what is overdue and unpaid to the end. `now` is the database's clock.
    pub fn tell_the_rest(&mut self, now: i64, decision: impl Fn(&OrderId) -> Option<Decision>) -> Vec<Told> {
        let mut rest: Vec<Told> = self
            .stories
            .iter()
            .filter(|(_, story)| story.left.is_none() && story.deadline <= now)
            .map(|(id, story)| {
                let decided = decision(id).filter(|decision| decision.deadline == story.deadline).map(|decision| decision.at);
                Told {
                    id: id.clone(),
                    deadline: story.deadline,
                    backlog: story.backlog,
                    decided,
                    kept: story.kept.filter(|_| decided.is_none()),
                    verdict: if decided.is_some() { Verdict::StillUnpaid } else { Verdict::Undecided },
                    status: None,
                    left: None,
                    left_after: None,
                }
            })
            .collect();
        rest.sort_unstable_by(|one, other| (one.deadline, &one.id).cmp(&(other.deadline, &other.id)));
        for told in &rest {
            self.stories.remove(&told.id);
            self.count(told);
        }
        rest
    }

    fn count(&mut self, told: &Told) {
        *self.totals.verdicts.entry(told.verdict).or_default() += 1;
        self.totals.would_close += u64::from(told.decided.is_some());
        if told.backlog {
            return;
        }
        let note = |histogram: &mut Histogram<u64>, at: Option<i64>| {
            if let Some(at) = at {
                // A histogram that grows takes whatever a clock can show.
                histogram.record(u64::try_from(at - told.deadline).unwrap_or_default()).unwrap_or_default();
            }
        };
        note(&mut self.here, told.decided);
        if matches!(told.verdict, Verdict::Closed | Verdict::ClosedFirst) {
            note(&mut self.elsewhere, told.left);
        }
    }

    /// What has come together; `decision` says whether an order that is unpaid would have been closed.
    #[must_use]
    pub fn totals(&self, now: i64, decision: impl Fn(&OrderId) -> Option<Decision>) -> Totals {
        let mut totals = Totals {
            would_close_ms: Lateness::of(&self.here),
            closed_ms: Lateness::of(&self.elsewhere),
            overdue: 0,
            ..self.totals.clone()
        };
        for (id, story) in self.stories.iter().filter(|(_, story)| story.deadline <= now) {
            totals.overdue += 1;
            if decision(id).is_some() {
                totals.would_close += 1;
            } else if let Some(why) = story.kept {
                *totals.kept.entry(why).or_default() += 1;
            }
        }
        totals
    }
}

/// A length of time between two moments, where the second is not the earlier one.
#[must_use]
pub(super) fn between(from: i64, to: i64) -> Duration {
    Duration::from_micros(u64::try_from(to - from).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;
    const DUE: i64 = 1_700_000_000 * SECOND;

    fn id(text: &str) -> OrderId {
        OrderId::from_database(text)
    }

    fn row(text: &str, deadline: i64, now: i64) -> Row {
        Row { id: id(text), status: Some("0".into()), deadline: Some(deadline), now, locked: false }
    }

    /// An order that is due at `DUE`, was last seen unpaid at one moment, and with a status at another.
    fn told(seen: i64, decided: Option<i64>, status: Option<&str>, left: i64, changed: Option<i64>) -> Told {
        let mut ledger = Ledger::new("4");
        ledger.found(&row("0", DUE + 1, DUE - 60 * SECOND), None);
        ledger.found(&row("1", DUE, seen), None);
        ledger.has_left(&id("1"), status.map(str::to_owned), left);
        let decision = decided.map(|at| Decision { deadline: DUE, at });
        ledger.tell(&id("1"), decision, changed).expect("it is watched")
    }

    #[test]
    fn an_order_is_told_of_by_what_came_first() {
        let verdict = |seen, decided, status, left| told(seen, decided, status, left, None).verdict;
        let (before, after, later) = (DUE - SECOND, DUE + 2_000, DUE + 9 * SECOND);
        assert_eq!(verdict(after, Some(after), Some("4"), later), Verdict::Closed);
        assert_eq!(verdict(after, Some(after), Some("1"), later), Verdict::PaidAfter);
        assert_eq!(verdict(after, Some(after), None, later), Verdict::Gone);
        assert_eq!(verdict(before, None, Some("4"), DUE - 1), Verdict::ClosedEarly);
        assert_eq!(verdict(before, None, Some("4"), later), Verdict::ClosedFirst);
        assert_eq!(verdict(before, None, Some("1"), DUE - 1), Verdict::Paid);
        assert_eq!(verdict(before, None, Some("1"), later), Verdict::Paid, "it was not unpaid any more when it was judged");
        assert_eq!(verdict(after, None, Some("1"), later), Verdict::PaidLate, "it was kept");
    }

    #[test]
    fn a_column_counts_where_it_agrees_with_what_was_seen() {
        let (seen, left) = (DUE + 1, DUE + 9 * SECOND);
        let agrees = told(seen, None, Some("4"), left, Some(DUE + 5 * SECOND));
        assert_eq!((agrees.left, agrees.left_after), (Some(DUE + 5 * SECOND), Some(DUE + 5 * SECOND)));
        let of_another_zone = told(seen, None, Some("4"), left, Some(DUE + 3_600 * SECOND));
        assert_eq!((of_another_zone.left, of_another_zone.left_after), (Some(left), Some(seen)));
    }

    #[test]
    fn a_later_deadline_is_told_of_if_the_order_would_have_been_closed() {
        let mut ledger = Ledger::new("4");
        let decision = Some(Decision { deadline: DUE, at: DUE + 2_000 });
        ledger.found(&row("1", DUE, DUE - SECOND), None);
        ledger.found(&row("2", DUE, DUE - SECOND), None);
        let moved = ledger.found(&row("1", DUE + 60 * SECOND, DUE + SECOND), decision).expect("a story");
        assert_eq!((moved.verdict, moved.deadline, moved.decided), (Verdict::Extended, DUE, Some(DUE + 2_000)));
        assert_eq!(ledger.found(&row("2", DUE + 60 * SECOND, DUE - 1), None), None, "in time");
        let rest = ledger.tell_the_rest(DUE + 60 * SECOND, |_| decision);
        assert!(rest.iter().all(|told| told.verdict == Verdict::Undecided), "the decision was about another deadline: {rest:?}");
        let totals = ledger.totals(DUE, |_| None);
        assert_eq!((totals.seen, totals.would_close, totals.verdicts[&Verdict::Extended]), (2, 1, 1));
    }

    #[test]
    fn what_a_pass_has_not_found_is_looked_at() {
        let mut ledger = Ledger::new("4");
        for order in ["1", "2"] {
            ledger.found(&row(order, DUE, DUE - 60 * SECOND), None);
        }
        ledger.begin_pass();
        ledger.found(&row("1", DUE, DUE - 50 * SECOND), None);
        ledger.end_pass(i64::MAX);
        assert_eq!(ledger.to_look_at(DUE - 50 * SECOND, 10), [id("2")]);
        assert_eq!(ledger.to_look_at(DUE, 1), [id("2")], "the longest unseen first");
        assert_eq!(ledger.to_look_at(DUE, 10).len(), 2);
    }

    #[test]
    fn what_was_overdue_at_the_start_is_looked_at_last() {
        let mut ledger = Ledger::new("4");
        ledger.found(&row("old", DUE - 3_600 * SECOND, DUE - SECOND), None);
        ledger.found(&row("paid", DUE - 3_600 * SECOND, DUE - SECOND), None);
        ledger.begin_pass();
        ledger.found(&row("old", DUE - 3_600 * SECOND, DUE - SECOND), None);
        ledger.end_pass(i64::MAX);
        ledger.found(&row("new", DUE, DUE - 1), None);
        assert_eq!(ledger.missing(), 1);
        assert_eq!(ledger.to_look_at(DUE, 10), [id("paid"), id("new"), id("old")]);
        ledger.has_left(&id("paid"), Some("1".into()), DUE);
        assert_eq!(ledger.missing(), 0);
    }
}
