//! When look-ahead and sweep ended well the last time.

use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use crate::{config::RuleName, metric};

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

/// The passes that ended well.
#[derive(Debug, Default)]
pub struct Passes {
    rule: RuleName,
    last: Mutex<[Option<Instant>; 2]>,
}

impl Passes {
    /// Those of a rule.
    #[must_use]
    pub fn of(rule: &RuleName) -> Self {
        Self { rule: rule.clone(), last: Mutex::default() }
    }

    /// One has ended well.
    pub fn ended(&self, pass: Pass) {
        metric::PASSES.add(1, &[self.rule.as_str(), pass.name()]);
        metric::LAST_PASS.now(&[self.rule.as_str(), pass.name()]);
        self.last.lock().unwrap_or_else(PoisonError::into_inner)[pass as usize] = Some(Instant::now());
    }

    /// When it did so the last time; `None` before the first.
    #[must_use]
    pub fn last(&self, pass: Pass) -> Option<Instant> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)[pass as usize]
    }
}
