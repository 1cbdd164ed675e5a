//! The figures for people who look: one value once a second, for the page and for `order-closer top`.
//!
//! Whoever reads them may be another version of this program: what is missing is as it is by default, and what is unknown is
//! passed over. A part of the daemon that has something to tell adds a [`Part`], or a field.

mod sampler;

use serde::{Deserialize, Serialize};

use crate::{
    close::Recent,
    ops::Overdue,
    order::rfc3339,
    outbox::{Pause, TargetState},
};

pub use sampler::{Sampled, Sampler, Source, Sources, Told, Watchers};

/// What falls due is counted in stretches of so many seconds; each count ends at so many orders, and that of all at so many.
const STEP_S: u32 = 300;
const STEPS: u32 = 12;
/// At how many orders each of those counts ends.
pub const MOST_DUE: u32 = 10_000;
const MOST_PENDING: u32 = 100_000;

/// All figures.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Figures {
    /// The daemon's version.
    pub version: String,
    /// Its host's name and its number there.
    pub instance: String,
    /// This host's time, in RFC 3339.
    pub now: String,
    /// For how long it has run.
    pub uptime_s: u64,
    /// Whether orders are closed; unknown before that was looked at.
    pub ready: Option<bool>,
    /// What keeps them from that.
    pub missing: Vec<String>,
    /// What is wrong, and keeps none from closing on time.
    pub degraded: Vec<String>,
    /// What the daemon works with.
    pub parts: Vec<Part>,
    /// Whose orders are closed.
    pub rules: Vec<RuleFigures>,
    /// Who is told of closures.
    pub targets: Vec<TargetFigures>,
    /// Whether this is the view without ids, reasons and addresses.
    pub read_only: bool,
}

/// Something that the daemon works with.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Part {
    /// What it is.
    pub name: String,
    /// Whether it works.
    pub ok: bool,
    /// How it is, in a few words.
    pub state: String,
    /// Which one it is, or what is wrong with it.
    pub says: String,
}

/// The figures of one rule's orders.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RuleFigures {
    /// The rule.
    pub name: String,
    /// The table.
    pub table: String,
    /// What keeps its orders from closing, or slows that down.
    pub pause: Option<PauseFigures>,
    /// How many unpaid orders have their deadline still before them; the count ends at 100,000.
    pub pending: Option<u64>,
    /// How many fall due within each five minutes of the next hour; each count ends at 10,000.
    pub due: Option<Vec<u64>>,
    /// How long ago these two were counted.
    pub due_age_s: f64,
    /// What is overdue.
    pub overdue: Option<Overdue>,
    /// What was closed of late.
    pub recent: Recent,
    /// How many orders wait for a worker.
    pub queued: u64,
    /// How many other instances share the work.
    pub others: u64,
    /// Whether this one tells them that it closes what is its.
    pub fit: bool,
    /// How many orders are dead letters; the count ends at 10,000.
    pub dead_letters: Option<u64>,
}

/// A pause, or a rate.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PauseFigures {
    /// How many orders a second are closed meanwhile; none without.
    pub rate: Option<u32>,
    /// Since when, in RFC 3339; empty while that is not known.
    pub since: String,
    /// How long it still lasts; for good without.
    pub seconds_left: Option<u64>,
    /// Why.
    pub reason: String,
    /// Who wanted it.
    pub who: String,
}

impl From<&Pause> for PauseFigures {
    fn from(pause: &Pause) -> Self {
        Self {
            rate: pause.rate,
            since: rfc3339(pause.since),
            seconds_left: pause.left.map(|left| left.as_secs()),
            reason: pause.reason.clone(),
            who: pause.who.clone(),
        }
    }
}

/// Somebody who is told of closures.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TargetFigures {
    /// Its name.
    pub name: String,
    /// Whether the configuration names it.
    pub configured: bool,
    /// How telling it goes: ok, troubled, resting, gone.
    pub state: String,
    /// Events that wait for it; the count ends at 10,000.
    pub waiting: u64,
    /// Events that were given up; likewise.
    pub dead: u64,
    /// Since when it has been failing, in RFC 3339.
    pub failing_since: Option<String>,
    /// When it took an event last.
    pub last_success: Option<String>,
    /// What it said when it took none.
    pub last_error: Option<String>,
}

impl TargetFigures {
    fn learn(&mut self, state: &TargetState) {
        state.state.name().clone_into(&mut self.state);
        self.failing_since = state.failing_since.map(rfc3339);
        self.last_success = state.last_success_at.map(rfc3339);
        self.last_error.clone_from(&state.last_error);
    }
}

impl Figures {
    /// The same without any order's id, and without texts in which others may have written one.
    #[must_use]
    pub fn without_ids(&self) -> Self {
        let mut figures = Self { read_only: true, ..self.clone() };
        for part in &mut figures.parts {
            part.says.clear();
        }
        for rule in &mut figures.rules {
            rule.recent.latest.clear();
            if let Some(pause) = &mut rule.pause {
                pause.reason.clear();
                pause.who.clear();
            }
        }
        for target in &mut figures.targets {
            target.last_error = None;
        }
        figures
    }
}
