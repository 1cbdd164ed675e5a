//! A circuit breaker for each target: how many deliveries at a time, and how soon the next.
//!
//! Closed, it lets through as many as the target takes at once. After some failures in a row it opens, and lets one
//! through after each of growing pauses, until one succeeds.

use std::time::{Duration, Instant};

use crate::config::{Retry, Span};

/// So many failures in a row are the target's, not an event's.
const TROUBLE: u32 = 8;

/// The longest pause between two questions whether the target is well again.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What a failure says of its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sign {
    /// Nothing: it may be the event's own.
    None,
    /// A time of trouble begins.
    Trouble,
    /// The target was asked again, and is still in trouble: this would have been any event's failure.
    StillInTrouble,
}

/// Lets deliveries to one target through, or not.
#[derive(Debug)]
pub(super) struct Breaker {
    /// Failures since the last success.
    failures: u32,
    /// How often it has failed since the time of trouble began, counted once for each pause.
    pauses: u32,
    /// Until when it is not asked, because it is in trouble.
    pause_until: Option<Instant>,
    /// Until when it wants to be left alone. Only time ends that.
    rest_until: Option<Instant>,
    gone: bool,
    retry: Retry,
}

impl Breaker {
    pub(super) fn new(retry: &Retry) -> Self {
        let longest = retry.max.get().min(LONGEST_PAUSE);
        let retry = Retry { attempts: u32::MAX, initial: retry.initial, max: Span::from(longest) };
        Self { failures: 0, pauses: 0, pause_until: None, rest_until: None, gone: false, retry }
    }

    /// How many deliveries may begin now.
    pub(super) fn room(&self, concurrency: usize, flying: usize) -> usize {
        let now = Instant::now();
        if self.gone || self.pause_until.max(self.rest_until).is_some_and(|until| now < until) {
            return 0;
        }
        let most = if self.is_troubled() { 1 } else { concurrency };
        most.saturating_sub(flying)
    }

    /// Whether that ends a time of trouble.
    pub(super) fn succeeded(&mut self) -> bool {
        let was_troubled = self.is_troubled();
        (self.failures, self.pauses, self.pause_until) = (0, 0, None);
        was_troubled
    }

    pub(super) fn failed(&mut self, now: Instant, rest: Option<Duration>) -> Sign {
        self.rest_until = self.rest_until.max(rest.and_then(|rest| now.checked_add(rest)));
        self.failures = self.failures.saturating_add(1);
        // What began before the pause says nothing new.
        if !self.is_troubled() || self.pause_until.is_some_and(|until| now < until) {
            return Sign::None;
        }
        // After so many they have long stopped growing.
        self.pauses = self.pauses.saturating_add(1).min(32);
        self.pause_until = self.retry.pause_after(self.pauses).and_then(|pause| now.checked_add(pause));
        if self.pauses == 1 { Sign::Trouble } else { Sign::StillInTrouble }
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

    fn closed() -> Breaker {
        Breaker::new(&Retry { attempts: 3, initial: Span::from_secs(5), max: Span::from_secs(7_200) })
    }

    fn troubled() -> Breaker {
        let mut breaker = closed();
        for _ in 1..TROUBLE {
            assert_eq!(breaker.failed(Instant::now(), None), Sign::None);
            assert_eq!(breaker.room(8, 0), 8);
        }
        assert_eq!(breaker.failed(Instant::now(), None), Sign::Trouble);
        breaker
    }

    #[test]
    fn a_target_that_fails_in_a_row_is_asked_less_often() {
        let mut breaker = troubled();
        assert_eq!(breaker.room(8, 0), 0, "not before a pause");
        breaker.pause_until = None;
        assert_eq!((breaker.room(8, 0), breaker.room(8, 1)), (1, 0), "one at a time");
        assert!(breaker.succeeded());
        assert_eq!((breaker.room(8, 0), breaker.room(8, 5)), (8, 3));
    }

    #[test]
    fn only_a_new_question_is_a_new_sign() {
        let mut breaker = troubled();
        let pause = breaker.pause_until;
        assert_eq!(breaker.failed(Instant::now(), None), Sign::None, "it began before");
        assert_eq!(breaker.pause_until, pause);
        breaker.pause_until = None;
        assert_eq!(breaker.failed(Instant::now(), None), Sign::StillInTrouble);
    }

    #[test]
    fn a_wish_for_rest_is_granted_whatever_succeeds_meanwhile() {
        let mut breaker = closed();
        let now = Instant::now();
        breaker.failed(now, Some(Duration::from_mins(1)));
        breaker.succeeded();
        breaker.failed(now, Some(Duration::from_secs(1)));
        assert_eq!(breaker.room(8, 0), 0);
        assert_eq!(breaker.rest_until, Some(now + Duration::from_mins(1)));
    }

    #[test]
    fn pauses_end_after_half_a_minute_even_after_a_year() {
        let mut breaker = closed();
        (breaker.failures, breaker.pauses) = (u32::MAX, u32::MAX);
        let now = Instant::now();
        breaker.failed(now, None);
        assert!(breaker.pause_until.is_some_and(|until| until <= now + LONGEST_PAUSE));
    }
}
