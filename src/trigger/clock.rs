//! What the database's clock shows, on this host's steady one.

use std::time::Duration;

use tokio::time::Instant;

/// Clocks drift; what is older than this tells nothing.
const MEMORY: Duration = Duration::from_secs(10);

/// An answer that came as quickly as this is as good as any.
const QUICK: Duration = Duration::from_millis(1);

/// Learns from each answer where the database's clock stands. A page of rows takes a while to arrive, so its
/// own arrival is a poor mark: the best one of late is kept.
#[derive(Debug, Default)]
pub(super) struct DatabaseClock {
    best: Option<Mark>,
}

/// At this instant the database's clock showed at least so many microseconds since 1970 UTC.
#[derive(Debug, Clone, Copy)]
struct Mark {
    at: Instant,
    micros: i64,
}

impl Mark {
    /// The instant by which the clock shows this at the latest.
    fn instant_of(self, micros: i64) -> Instant {
        let offset = Duration::from_micros(micros.abs_diff(self.micros));
        let instant = if micros < self.micros { self.at.checked_sub(offset) } else { self.at.checked_add(offset) };
        instant.unwrap_or(self.at)
    }
}

impl DatabaseClock {
    /// Takes in that the clock showed `micros` at some instant between `asked` and `answered`. Returns whether
    /// that is all we have and rather rough, so that the question for nothing but the clock pays.
    pub(super) fn learn(&mut self, micros: i64, asked: Instant, answered: Instant) -> bool {
        let fits = |mark: Mark| mark.at.elapsed() < MEMORY && (asked..=answered).contains(&mark.instant_of(micros));
        if self.best.is_some_and(fits) {
            return false;
        }
        self.best = Some(Mark { at: answered, micros });
        answered - asked > QUICK
    }

    /// The instant by which the clock shows this at the latest, once something has been learned.
    pub(super) fn instant_of(&self, micros: i64) -> Option<Instant> {
        self.best.map(|mark| mark.instant_of(micros))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    /// How much later than true a moment 1 s ahead is expected, when the database's clock shows 0 at `start`.
    fn error(clock: &DatabaseClock, start: Instant) -> Duration {
        let expected = clock.instant_of(SECOND).expect("something was learned");
        expected.checked_duration_since(start + Duration::from_secs(1)).expect("never too early")
    }

    #[test]
    fn the_quickest_answer_counts() {
        let start = Instant::now();
        let after = |millis| start + Duration::from_millis(millis);
        let mut clock = DatabaseClock::default();
        assert_eq!(clock.instant_of(0), None);
        assert!(clock.learn(0, start, after(30)), "rough");
        assert_eq!(error(&clock, start), Duration::from_millis(30));
        assert!(!clock.learn(40_000, after(40), after(41)));
        assert_eq!(error(&clock, start), Duration::from_millis(1));
        assert!(!clock.learn(50_000, after(50), after(90)), "nothing new");
        assert_eq!(error(&clock, start), Duration::from_millis(1));
    }

    #[test]
    fn a_clock_that_was_set_is_learned_anew() {
        let start = Instant::now();
        let after = |millis| start + Duration::from_millis(millis);
        let mut clock = DatabaseClock::default();
        clock.learn(0, start, after(1));
        for set_to in [-3_600 * SECOND, 7_200 * SECOND] {
            clock.learn(set_to, after(10), after(12));
            assert_eq!(clock.instant_of(set_to), Some(after(12)));
        }
    }
}
