//! When look-ahead and sweep ended well the last time, and whether the last ones did.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::{config::RuleName, metric, store::StoreError};

/// What goes over the table again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// What falls due soon.
    LookAhead,
    /// What is overdue.
    Sweep,
}

impl Pass {
    /// Its name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LookAhead => "look-ahead",
            Self::Sweep => "sweep",
        }
    }
}

/// How passes ended.
#[derive(Debug, Default)]
pub struct Passes {
    rule: RuleName,
    known: Mutex<[Known; 2]>,
}

/// What is known of one kind.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    /// When one ended well the last time.
    well: Option<Instant>,
    last: Last,
}

/// How the last one ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Last {
    #[default]
    None,
    Well,
    /// The database was there, and it took too long, or somebody held what was to be read.
    Failed,
    /// The database was there, and did not let the table be read.
    Rejected,
    /// There was no database.
    Unreachable,
}

impl Passes {
    /// Those of a rule.
    #[must_use]
    pub fn of(rule: &RuleName) -> Self {
        Self { rule: rule.clone(), known: Mutex::default() }
    }

    /// One has ended well.
    pub fn ended(&self, pass: Pass) {
        metric::PASSES.add(1, &[self.rule.label(), pass.name()]);
        metric::LAST_PASS.now(&[self.rule.label(), pass.name()]);
        self.known()[pass as usize] = Known { well: Some(Instant::now()), last: Last::Well };
    }

    /// One has failed.
    pub fn failed(&self, pass: Pass, error: &StoreError) {
        self.known()[pass as usize].last = match error {
            StoreError::Unavailable(_) | StoreError::Refused { .. } => Last::Unreachable,
            StoreError::Rejected(_) => Last::Rejected,
            StoreError::Conflict(_) | StoreError::Locked(_) | StoreError::TimedOut(_) => Last::Failed,
        };
    }

    /// There are none of this kind any more, for a while.
    pub fn rest(&self, pass: Pass) {
        self.known()[pass as usize].last = Last::None;
    }

    /// Whether the last one of each kind found no database.
    #[must_use]
    pub fn are_unreachable(&self) -> bool {
        self.all(|last| last == Last::Unreachable)
    }

    /// Whether the last one of each kind was not allowed to read the table.
    #[must_use]
    pub fn are_rejected(&self) -> bool {
        self.all(|last| last == Last::Rejected)
    }

    /// Whether the last one of each kind failed.
    #[must_use]
    pub fn fail(&self) -> bool {
        self.all(|last| last != Last::Well)
    }

    fn all(&self, is_so: impl Fn(Last) -> bool) -> bool {
        let known = self.known();
        let mut ended = known.iter().map(|known| known.last).filter(|last| *last != Last::None).peekable();
        ended.peek().is_some() && ended.all(is_so)
    }

    fn known(&self) -> MutexGuard<'_, [Known; 2]> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When it did so the last time; `None` before the first.
    #[must_use]
    pub fn last(&self, pass: Pass) -> Option<Instant> {
        self.known()[pass as usize].well
    }
}
