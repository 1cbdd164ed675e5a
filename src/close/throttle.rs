//! A line for each of a few, and a count for the many.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// So many lines of one kind are said in each [`WINDOW`].
const LINES: u32 = 10;

const WINDOW: Duration = Duration::from_secs(10);

/// Counts what is said of one kind.
#[derive(Debug, Default)]
pub struct Throttle(Mutex<Option<Window>>);

#[derive(Debug)]
struct Window {
    since: Instant,
    said: u32,
    withheld: u64,
}

/// Whether a line is to be said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    /// It is, with how many were not since the last one.
    Now {
        /// How many.
        withheld: u64,
    },
    /// It is not.
    Not,
}

impl Throttle {
    /// How many lines were not said since the last one, if one more is to be said.
    pub fn withheld(&self, now: Instant) -> Option<u64> {
        match self.say(now) {
            Said::Now { withheld } => Some(withheld),
            Said::Not => None,
        }
    }

    /// There is one more line to be said.
    pub(super) fn say(&self, now: Instant) -> Said {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let window = window.get_or_insert(Window { since: now, said: 0, withheld: 0 });
        if now - window.since >= WINDOW {
            (window.since, window.said) = (now, 0);
        }
        if window.said == LINES {
            window.withheld += 1;
            return Said::Not;
        }
        window.said += 1;
        Said::Now { withheld: std::mem::take(&mut window.withheld) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_are_said_and_the_rest_is_counted() {
        let (throttle, start) = (Throttle::default(), Instant::now());
        let said = |after: u64, times: u32| -> Vec<Said> {
            (0..times).map(|_| throttle.say(start + Duration::from_secs(after))).filter(|said| *said != Said::Not).collect()
        };
        assert_eq!(said(0, 1_000), [Said::Now { withheld: 0 }; LINES as usize]);
        assert_eq!(said(9, 5), []);
        assert_eq!(said(10, 2), [Said::Now { withheld: 995 }, Said::Now { withheld: 0 }]);
    }
}
