//! A circuit breaker for each target: how many deliveries may begin now.
//!
//! ```text
//!            8 failures in a row, and no success for 2 s
//!   closed ───────────────────────────────────────────────> open: three events at a time, after pauses of 0.1 to 1 s
//!     ^  <───────────────── any success ────────────────────  │ ^
//!     │                                                       │ │ the rest is over
//!     └── (somebody resumes it) ── gone <── 410 ──┐           v │
//!                                                 └──────── resting: nobody is asked
//! ```
//!
//! It opens by time, not by the number of failures alone: where some events fail whatever happens, the others still
//! pass. A rest that the target has asked for ends by time alone.

use std::time::Duration;

use tokio::time::Instant;

/// So many failures in a row, over such a time without a success, are the target's and not the events'.
const TROUBLE: u32 = 8;
const SILENCE: Duration = Duration::from_secs(2);

/// The first and the longest pause between two questions whether the target is well again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// How many events are asked with at a time: the latest, the oldest, and one that has failed before.
const QUESTIONS: usize = 3;

/// Lets deliveries to one target through, or not.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    /// Failures since the last success, and when the first of them was.
    failures: u32,
    failing_since: Option<Instant>,
    /// Since when it is open.
    open_since: Option<Instant>,
    /// When the next question may be asked while it is open, and how long to wait after that.
    next: Option<Instant>,
    pause: Duration,
    rest_until: Option<Instant>,
    gone: bool,
}

/// What a success changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recovery {
    /// Nothing.
    None,
    /// Trouble is over that has lasted so long.
    From(Duration),
}

impl Breaker {
    /// How many deliveries may begin now.
    pub(super) fn room(&self, now: Instant, concurrency: usize, flying: usize) -> usize {
        if self.gone || self.is_resting(now) {
            return 0;
        }
        let free = concurrency.saturating_sub(flying);
        match self.next.filter(|_| self.is_open()) {
            Some(next) if now < next => 0,
            Some(_) => free.min(QUESTIONS),
            None => free,
        }
    }

    /// When there may be room again that there is not now, if that is known.
    pub(super) fn next_room(&self, now: Instant) -> Option<Instant> {
        self.next.filter(|_| self.is_open()).max(self.rest_until).filter(|at| *at > now && !self.gone)
    }

    /// Notes that a delivery begins.
    pub(super) fn begun(&mut self, now: Instant) {
        if self.is_open() {
            self.next = Some(now + self.pause);
            self.pause = (self.pause * 2).min(PAUSES.1);
        }
    }

    pub(super) fn succeeded(&mut self, now: Instant) -> Recovery {
        (self.failures, self.failing_since) = (0, None);
        // What was on its way when it asked for a rest says nothing new.
        if self.is_resting(now) {
            return Recovery::None;
        }
        self.next = None;
        self.open_since.take().map_or(Recovery::None, |since| Recovery::From(now - since))
    }

    /// Whether that opens it.
    pub(super) fn failed(&mut self, now: Instant) -> bool {
        self.failures = self.failures.saturating_add(1);
        let since = *self.failing_since.get_or_insert(now);
        let opens = !self.is_open() && self.failures >= TROUBLE && now - since >= SILENCE;
        if opens {
            self.open(now, now + PAUSES.0);
        }
        opens
    }

    /// Leaves the target alone for so long; whether that is news.
    pub(super) fn rest(&mut self, now: Instant, rest: Duration) -> bool {
        let until = now + rest;
        let is_news = !self.is_resting(now);
        self.rest_until = self.rest_until.max(Some(until));
        self.open(now, until);
        is_news
    }

    /// Whether that is news.
    pub(super) fn gone(&mut self) -> bool {
        !std::mem::replace(&mut self.gone, true)
    }

    /// Whether it was gone.
    pub(super) fn back(&mut self) -> bool {
        std::mem::take(self).gone
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    pub(super) fn is_open(&self) -> bool {
        self.open_since.is_some()
    }

    pub(super) fn is_resting(&self, now: Instant) -> bool {
        self.rest_until.is_some_and(|until| now < until)
    }

    /// Whether something has failed since the last success.
    pub(super) fn is_failing(&self) -> bool {
        self.failures > 0 || self.is_open()
    }

    fn open(&mut self, now: Instant, next: Instant) {
        self.open_since.get_or_insert(now);
        (self.next, self.pause) = (Some(next), PAUSES.0 * 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that has failed again and again for 2 s.
    fn open(now: Instant) -> Breaker {
        let mut breaker = Breaker::default();
        for failure in 0..20 {
            assert!(!breaker.failed(now - SILENCE + Duration::from_millis(failure)));
        }
        assert!(breaker.failed(now));
        breaker
    }

    #[test]
    fn events_that_fail_beside_others_that_pass_open_nothing() {
        let (mut breaker, start) = (Breaker::default(), Instant::now());
        for second in 0..60 {
            let now = start + Duration::from_secs(second);
            (0..100).for_each(|_| assert!(!breaker.failed(now)));
            assert_eq!((breaker.room(now, 8, 0), breaker.succeeded(now)), (8, Recovery::None));
        }
        (0..100).for_each(|_| assert!(!breaker.failed(start + Duration::from_mins(2))));
    }

    #[test]
    fn open_it_lets_few_through_and_those_at_least_once_a_second() {
        let start = Instant::now();
        let mut breaker = open(start);
        assert_eq!(breaker.room(start, 8, 0), 0, "not before a pause");
        let mut now = start;
        for pause in [100, 200, 400, 800, 1_000, 1_000] {
            let next = breaker.next_room(now).unwrap_or(now);
            assert_eq!(next - now, Duration::from_millis(pause));
            now = next;
            assert_eq!((breaker.room(now, 8, 0), breaker.room(now, 8, 7), breaker.room(now, 8, 8)), (3, 1, 0), "while others hang, too");
            breaker.begun(now);
        }
        assert_eq!(breaker.succeeded(now), Recovery::From(now - start));
        assert_eq!((breaker.room(now, 8, 0), breaker.room(now, 8, 5)), (8, 3));
    }

    #[test]
    fn a_rest_is_granted_whatever_succeeds_meanwhile_and_ends_with_few_events() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        assert!(breaker.rest(now, Duration::from_mins(1)));
        assert_eq!(breaker.succeeded(now), Recovery::None);
        assert!(!breaker.rest(now, Duration::from_secs(1)));
        let end = now + Duration::from_mins(1);
        assert_eq!((breaker.room(end - Duration::from_millis(1), 8, 0), breaker.next_room(now)), (0, Some(end)));
        assert_eq!(breaker.room(end, 8, 0), 3);
        assert_eq!(breaker.succeeded(end), Recovery::From(Duration::from_mins(1)));
        assert_eq!(breaker.room(end, 8, 0), 8);
    }

    #[test]
    fn gone_it_lets_nothing_through_until_it_is_back() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        assert!(breaker.gone() && !breaker.gone());
        breaker.succeeded(now);
        assert_eq!((breaker.room(now, 8, 0), breaker.next_room(now)), (0, None));
        assert!(breaker.back() && !breaker.back());
        assert_eq!(breaker.room(now, 8, 0), 8);
    }
}
