//! A circuit breaker for each target: how many deliveries may begin now.
//!
//! ```text
//!     8 or more failures in a row, and no success for 2 s; or 8 times in a row it was away
//!   closed ───────────────────────────────────────────────> open: eight events at a time, after pauses of 0.1 to 1 s
//!     ^  <───────────────── any success ────────────────────  │ ^
//!     │                                                       │ │ the rest is over
//!     └── (somebody resumes it) ── gone <── 410 ──┐           v │
//!                                                 └──────── resting: nobody is asked
//! ```
//!
//! It opens by time, not by the number of failures alone: where some events fail whatever happens, the others still
//! pass. Where most of them do, eight in a row are nothing new: then it opens after as many as would be improbable by what the
//! target has taken lately. Of a target that is away no event is the reason: asking on would only take from closures what they
//! need. A rest that the target has asked for ends by time alone.

use std::time::Duration;

use tokio::time::Instant;

/// So many failures in a row, over such a time without a success, are the target's and not the events', where it took all before.
const TROUBLE: u32 = 8;
const SILENCE: Duration = Duration::from_secs(2);

/// Where it took only a part of them: as many as come in a row by chance once in e^7, some thousand, times.
const IMPROBABLE: f64 = 7.0;

/// About so many deliveries are what it has taken, or not, lately; and a smaller part is not believed.
const LATELY: f64 = 32.0;
const LEAST: f64 = 0.01;

/// The first and the longest pause between two questions whether the target is well again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// How many events are asked with at a time: the latest, the oldest, and one that has failed before. Of many that fail one that
/// passes is soon among them.
const QUESTIONS: usize = 8;

/// Lets deliveries to one target through, or not.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    /// Failures since the last success, and when the first of them was.
    failures: u32,
    failing_since: Option<Instant>,
    /// How many of them, the last ones, because it was away.
    away: u32,
    /// Which part of what was delivered lately it has not taken; and the same before the first of these failures.
    refuses: f64,
    refused: f64,
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
        (self.failures, self.failing_since, self.away) = (0, None, 0);
        self.refuses -= self.refuses / LATELY;
        // What was on its way when it asked for a rest says nothing new.
        if self.is_resting(now) {
            return Recovery::None;
        }
        self.next = None;
        self.open_since.take().map_or(Recovery::None, |since| Recovery::From(now - since))
    }

    /// Whether that opens it. A target that is away, or can't be reached (`away`), refuses no event.
    pub(super) fn failed(&mut self, now: Instant, away: bool) -> bool {
        if self.failures == 0 {
            self.refused = self.refuses;
        }
        self.failures = self.failures.saturating_add(1);
        let since = *self.failing_since.get_or_insert(now);
        if away {
            self.away = self.away.saturating_add(1);
        } else {
            self.away = 0;
            self.refuses += (1.0 - self.refuses) / LATELY;
        }
        let enough = f64::from(TROUBLE).max(IMPROBABLE / (1.0 - self.refused).max(LEAST));
        let fails = f64::from(self.failures) >= enough && now - since >= SILENCE;
        let opens = !self.is_open() && (fails || self.away >= TROUBLE);
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
            assert!(!breaker.failed(now - SILENCE + Duration::from_millis(failure), false));
        }
        assert!(breaker.failed(now, false));
        breaker
    }

    #[test]
    fn events_that_fail_beside_others_that_pass_open_nothing() {
        let (mut breaker, start) = (Breaker::default(), Instant::now());
        for second in 0..60 {
            let now = start + Duration::from_secs(second);
            (0..100).for_each(|_| assert!(!breaker.failed(now, false)));
            assert_eq!((breaker.room(now, 8, 0), breaker.succeeded(now)), (8, Recovery::None));
        }
        (0..100).for_each(|_| assert!(!breaker.failed(start + Duration::from_mins(2), false)));
    }

    /// Ten events a second, of which one in ten passes, and not in turn.
    #[test]
    fn where_most_events_fail_a_pause_between_those_that_pass_is_nothing_new() {
        let (mut breaker, mut now) = (Breaker::default(), Instant::now());
        for round in 0..20 {
            let opened = (0..27).filter(|_| {
                now += Duration::from_millis(100);
                breaker.failed(now, false)
            });
            assert!(opened.count() == 0 || round < 4, "in round {round}");
            for _ in 0..3 {
                breaker.succeeded(now);
            }
        }
        // That it takes nothing at all any more is found out all the same, and soon where it is away.
        let failures = |breaker: &mut Breaker, away| {
            let (mut now, mut failures) = (now, 1);
            while !breaker.failed(now, away) {
                (now, failures) = (now + Duration::from_millis(100), failures + 1);
            }
            breaker.succeeded(now);
            failures
        };
        assert!((21..200).contains(&failures(&mut breaker, false)));
        assert_eq!(failures(&mut breaker, true), 8);
        // And what has taken all for a while is known for that.
        (0..200).for_each(|_| assert_eq!(breaker.succeeded(now), Recovery::None));
        assert_eq!(failures(&mut breaker, false), 21);
    }

    #[test]
    fn a_target_that_is_away_is_not_asked_with_one_event_after_another() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        assert!((0..7).all(|_| !breaker.failed(now, true)) && !breaker.failed(now, false), "it was there");
        assert!((0..7).all(|_| !breaker.failed(now, true)) && breaker.failed(now, true));
        assert_eq!((breaker.room(now, 12, 0), breaker.next_room(now)), (0, Some(now + PAUSES.0)));
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
            assert_eq!((breaker.room(now, 12, 0), breaker.room(now, 8, 7), breaker.room(now, 8, 8)), (8, 1, 0), "while others hang, too");
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
        assert_eq!(breaker.room(end, 12, 0), 8);
        assert_eq!(breaker.succeeded(end), Recovery::From(Duration::from_mins(1)));
        assert_eq!(breaker.room(end, 12, 0), 12);
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
