//! How much a target is trusted: how many deliveries at a time, and how soon the next.

use std::time::{Duration, Instant};

use crate::config::{Retry, Span};

/// So many failures in a row are the target's, not an event's.
const TROUBLE: u32 = 8;

/// The longest pause between two questions whether the target is well again.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What is known of a target.
#[derive(Debug)]
pub(super) struct Health {
    /// Failures since the last success.
    failures: u32,
    /// No delivery begins before.
    rest_until: Option<Instant>,
    gone: bool,
    pauses: Retry,
}

impl Health {
    pub(super) fn new(retry: &Retry) -> Self {
        let longest = retry.max.get().min(LONGEST_PAUSE);
        let pauses = Retry { attempts: u32::MAX, initial: retry.initial, max: Span::from(longest) };
        Self { failures: 0, rest_until: None, gone: false, pauses }
    }

    /// How many deliveries may begin now.
    pub(super) fn room(&self, concurrency: usize, flying: usize) -> usize {
        if self.gone || self.rest_until.is_some_and(|until| Instant::now() < until) {
            return 0;
        }
        let most = if self.is_troubled() { 1 } else { concurrency };
        most.saturating_sub(flying)
    }

    /// Whether that ends a time of trouble.
    pub(super) fn succeeded(&mut self) -> bool {
        let was_troubled = self.is_troubled();
        self.failures = 0;
        self.rest_until = None;
        was_troubled
    }

    /// Whether that begins a time of trouble.
    pub(super) fn failed(&mut self, now: Instant, rest: Option<Duration>) -> bool {
        self.failures = self.failures.saturating_add(1);
        // After so many the pauses have long stopped growing.
        let in_trouble = self.failures.saturating_sub(TROUBLE - 1).min(32);
        let pause = if in_trouble > 0 { self.pauses.pause_after(in_trouble) } else { None };
        let rest = rest.max(pause).and_then(|rest| now.checked_add(rest));
        self.rest_until = self.rest_until.max(rest);
        self.failures == TROUBLE
    }

    /// Whether that is news.
    pub(super) fn gone(&mut self) -> bool {
        !std::mem::replace(&mut self.gone, true)
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    fn is_troubled(&self) -> bool {
        self.failures >= TROUBLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health() -> Health {
        Health::new(&Retry { attempts: 3, initial: Span::from_secs(5), max: Span::from_secs(7_200) })
    }

    #[test]
    fn a_target_that_fails_in_a_row_is_asked_less_often() {
        let mut health = health();
        for _ in 1..TROUBLE {
            assert!(!health.failed(Instant::now(), None));
            assert_eq!(health.room(8, 0), 8);
        }
        assert!(health.failed(Instant::now(), None));
        assert_eq!(health.room(8, 0), 0, "not before a pause");
        health.rest_until = None;
        assert_eq!((health.room(8, 0), health.room(8, 1)), (1, 0), "one at a time");
        assert!(health.succeeded());
        assert_eq!((health.room(8, 0), health.room(8, 5)), (8, 3));
    }

    #[test]
    fn a_wish_for_rest_is_granted_at_once() {
        let mut health = health();
        health.failed(Instant::now(), Some(Duration::from_mins(1)));
        assert_eq!(health.room(8, 0), 0);
    }

    #[test]
    fn pauses_end_after_half_a_minute_even_after_a_year() {
        let mut health = health();
        health.failures = u32::MAX - 1;
        let now = Instant::now();
        health.failed(now, None);
        assert!(health.rest_until.is_some_and(|until| until <= now + 2 * LONGEST_PAUSE));
    }
}
