//! What a shadow prints: a line for each order whose story has ended, and what has come together, each minute and at the end.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde::Serialize;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    Before, Ledger, Totals,
    ledger::{Told, Verdict, between},
};
use crate::{
    close::{Lateness, millis},
    config::RuleName,
    order::rfc3339,
    store::{Shadow, Store},
};

/// How often it is summed up.
const EVERY: Duration = Duration::from_mins(1);

/// Takes a line.
pub type Tell = Arc<dyn Fn(String) + Send + Sync>;

/// Who prints.
#[derive(Clone)]
pub struct Report {
    tell: Tell,
    json: bool,
    began: Instant,
    rules: Arc<Mutex<Vec<Watched>>>,
}

/// A rule, and what has been seen of its orders.
type Watched = (Arc<Shadow>, Arc<Mutex<Ledger>>);

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Report").field("json", &self.json).finish_non_exhaustive()
    }
}

/// A line about an order, as JSON.
#[derive(Serialize)]
struct OrderLine<'t> {
    rule: &'t RuleName,
    order: &'t str,
    deadline: String,
    verdict: Verdict,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    backlog: bool,
    decided_at: Option<String>,
    decided_late_ms: Option<f64>,
    kept: Option<&'static str>,
    status: Option<&'t str>,
    left_at: Option<String>,
    /// Negative before the deadline.
    left_late_ms: Option<f64>,
    /// It may have been so much earlier.
    left_within_ms: Option<f64>,
}

/// A line about all of a rule's orders, as JSON.
#[derive(Serialize)]
struct SummaryLine<'t> {
    rule: &'t RuleName,
    summary: &'t Totals,
    running_s: u64,
    end: bool,
}

/// A line about a rule's orders before the start, as JSON.
#[derive(Serialize)]
struct BeforeLine<'t> {
    rule: &'t RuleName,
    before: &'t Before,
}

impl Report {
    /// For people, or for programs.
    #[must_use]
    pub fn new(json: bool, tell: Tell) -> Self {
        Self { tell, json, began: Instant::now(), rules: Arc::default() }
    }

    /// Sums up one more rule from now on. Returns where its watch notes what it sees.
    #[must_use]
    pub fn add(&self, shadow: &Arc<Shadow>) -> Arc<Mutex<Ledger>> {
        let ledger = Arc::new(Mutex::new(Ledger::new(shadow.closed())));
        self.rules.lock().unwrap_or_else(PoisonError::into_inner).push((Arc::clone(shadow), Arc::clone(&ledger)));
        ledger
    }

    /// Sums up each minute.
    pub async fn run(self, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(EVERY)).await.is_some() {
            self.sum_up(false);
        }
    }

    /// Sums up all since the start. At the end, `end` says so.
    pub fn sum_up(&self, end: bool) {
        let rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let running = self.began.elapsed();
        for (shadow, ledger) in rules {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            let now = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
            let totals = ledger.lock().unwrap_or_else(PoisonError::into_inner).totals(now, |id| shadow.decision(id));
            let text = if self.json {
                json(&SummaryLine { rule: shadow.rule(), summary: &totals, running_s: running.as_secs(), end })
            } else {
                summary(shadow.rule(), &totals, running, end)
            };
            (self.tell)(text);
        }
    }

    /// Tells how late orders were closed before the start.
    pub(super) fn tell_of_before(&self, rule: &RuleName, before: &Before) {
        (self.tell)(if self.json {
            json(&BeforeLine { rule, before })
        } else {
            let Before { closed, closed_ms } = before;
            format!("--- rule {rule}, the day before: {closed} orders were closed after their deadlines{}", late_by(closed_ms.as_ref()))
        });
    }

    /// Tells of an order. People are not told of those that are paid in time, which is nothing to look at.
    pub(super) fn tell(&self, rule: &RuleName, told: &Told) {
        if self.json {
            (self.tell)(json(&OrderLine::of(rule, told)));
        } else if told.verdict != Verdict::Paid {
            (self.tell)(line(told));
        }
    }
}

fn json(line: &impl Serialize) -> String {
    // Nothing in it can fail.
    serde_json::to_string(line).unwrap_or_default()
}

/// Milliseconds from one moment to another, negative if that was before.
fn late_ms(from: i64, to: i64) -> f64 {
    if to >= from { millis(between(from, to)) } else { -millis(between(to, from)) }
}

impl<'t> OrderLine<'t> {
    fn of(rule: &'t RuleName, told: &'t Told) -> Self {
        let Told { id, deadline, backlog, decided, kept, verdict, status, left, left_after } = told;
        Self {
            rule,
            order: id.as_str(),
            deadline: rfc3339(*deadline),
            verdict: *verdict,
            backlog: *backlog,
            decided_at: decided.map(rfc3339),
            decided_late_ms: decided.map(|at| late_ms(*deadline, at)),
            kept: *kept,
            status: status.as_deref(),
            left_at: left.map(rfc3339),
            left_late_ms: left.map(|at| late_ms(*deadline, at)),
            left_within_ms: left_after.zip(*left).map(|(from, to)| millis(between(from, to))),
        }
    }
}

/// What became of an order, for people.
fn line(told: &Told) -> String {
    let Told { id, deadline, backlog, decided, kept, verdict, status, left, .. } = told;
    let at = |moment: &Option<i64>| moment.map(|at| after(*deadline, at)).unwrap_or_default();
    let here = decided.as_ref().map_or_else(String::new, |_| format!("would have been closed {}, ", at(decided)));
    let status = status.as_ref().map(|status| format!(" (status {status})")).unwrap_or_default();
    let mark = if verdict.needs_a_look() { "! " } else { "  " };
    let backlog = if *backlog { ", overdue at the start" } else { "" };
    let why = kept.map(|why| format!(": {why}")).unwrap_or_default();
    let what = match verdict {
        Verdict::Closed => format!("{here}was closed {}", at(left)),
        Verdict::ClosedFirst => format!("was closed {}, before this daemon had judged it{why}", at(left)),
        Verdict::ClosedEarly => format!("was closed {}, while its deadline as understood here was still to come", at(left)),
        Verdict::PaidAfter => format!("{here}and was paid {}{status}", at(left)),
        Verdict::PaidLate => format!("was paid {}{status}, and would not have been closed before{why}", at(left)),
        Verdict::Paid => format!("was paid {}{status}", at(left)),
        Verdict::Extended => format!("{here}and was given a later deadline {}", at(left)),
        Verdict::Gone => format!("{here}was deleted, or hidden by its rule's filter, {}", at(left)),
        Verdict::StillUnpaid => format!("{here}and is unpaid still"),
        Verdict::Undecided => format!("is unpaid still, and would not have been closed{why}"),
    };
    format!("{mark}order {id}, due {}{backlog}: {what}", rfc3339(*deadline))
}

/// A moment by its distance from the deadline.
fn after(deadline: i64, at: i64) -> String {
    if at >= deadline {
        format!("{} after the deadline", span(between(deadline, at)))
    } else {
        format!("{} before the deadline", span(between(at, deadline)))
    }
}

/// A length of time, as exactly as people want it.
fn span(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        ..0.01 => format!("{:.1} ms", seconds * 1_000.0),
        ..1.0 => format!("{:.0} ms", seconds * 1_000.0),
        ..120.0 => format!("{seconds:.1} s"),
        _ => humantime::format_duration(Duration::from_secs(time.as_secs())).to_string(),
    }
}

/// Figures of lateness, if there are any.
fn late_by(lateness: Option<&Lateness>) -> String {
    let figure = |ms: f64| span(Duration::from_secs_f64(ms / 1_000.0));
    lateness.map_or_else(String::new, |Lateness { p50, p99, max }| {
        format!("   late by {} (p50), {} (p99), {} (max)", figure(*p50), figure(*p99), figure(*max))
    })
}

fn summary(rule: &RuleName, totals: &Totals, running: Duration, end: bool) -> String {
    let of = |verdict: Verdict| totals.verdicts.get(&verdict).copied().unwrap_or_default();
    let closed = of(Verdict::Closed) + of(Verdict::ClosedFirst);
    let mut text = format!(
        "--- rule {rule}, after {}: {} orders seen, {} of them overdue at the start\n",
        humantime::format_duration(Duration::from_secs(running.as_secs())),
        totals.seen,
        totals.backlog
    );
    let mut row = |what: &str, count: u64, rest: &str| text += &format!("  {what:<62}{count:>8}{rest}\n");
    row("would have been closed by this daemon", totals.would_close, &late_by(totals.would_close_ms.as_ref()));
    row("were closed after their deadlines", closed, &late_by(totals.closed_ms.as_ref()));
    row("paid before their deadlines", of(Verdict::Paid), "");
    for (what, verdict) in [
        ("! paid after this daemon would have closed them", Verdict::PaidAfter),
        ("! given more time after this daemon would have closed them", Verdict::Extended),
        ("! closed before their deadlines as understood here", Verdict::ClosedEarly),
        ("paid after their deadlines, and not closed by this daemon", Verdict::PaidLate),
        ("deleted, or hidden by the rule's filter", Verdict::Gone),
        ("unpaid to the end, though this daemon would have closed them", Verdict::StillUnpaid),
        ("! unpaid to the end, and not closed by this daemon either", Verdict::Undecided),
    ] {
        if of(verdict) > 0 {
            row(what, of(verdict), "");
        }
    }
    if !end {
        row("overdue and unpaid now", totals.overdue, "");
    }
    for (why, count) in &totals.kept {
        row(&format!("  of these: {why}"), *count, "");
    }
    if totals.unwatched > 0 {
        row("not watched for want of room", totals.unwatched, "");
    }
    text.trim_end().to_owned()
}
