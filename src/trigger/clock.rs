//! What the database's clock shows, on this host's steady one.

use std::time::Duration;

use tokio::time::Instant;

/// Steady clocks differ by no more than one part in so many.
const DRIFT: i64 = 10_000;

/// An answer that came as quickly as this is as good as any.
const QUICK: i64 = 1_000;

/// Learns from each answer where the database's clock stands.
///
/// An answer says that the clock showed something between the question and the answer, and no more. What a slow one leaves
/// open is narrowed down by those before it; in the end the middle counts. A moment may then be expected a little early,
/// which costs a second look: a row that is not due says by how much.
#[derive(Debug, Default)]
pub(super) struct DatabaseClock {
    known: Option<Known>,
}

/// By how much the database's clock is ahead of this host's, which began with `start`: from and to so many microseconds.
#[derive(Debug, Clone, Copy)]
struct Known {
    start: Instant,
    at: Instant,
    from: i64,
    to: i64,
}

impl DatabaseClock {
    /// Takes in that the clock showed `micros` at some instant between `asked` and `answered`. Returns whether
    /// that is all we have and rather rough, so that the question for nothing but the clock pays.
    pub(super) fn learn(&mut self, micros: i64, asked: Instant, answered: Instant) -> bool {
        let start = self.known.map_or(asked, |known| known.start);
        let (from, to) = (micros - since(start, answered), micros - since(start, asked));
        let narrowed = self.known.and_then(|known| {
            let drift = since(known.at, answered).abs() / DRIFT;
            let (from, to) = (from.max(known.from - drift), to.min(known.to + drift));
            (from <= to).then_some(Known { start, at: answered, from, to })
        });
        // What fits nothing that was known: the clock was set.
        self.known = Some(narrowed.unwrap_or(Known { start, at: answered, from, to }));
        narrowed.is_none() && to - from > QUICK
    }

    /// The instant at which the clock shows this, as far as is known, once something has been learned.
    pub(super) fn instant_of(&self, micros: i64) -> Option<Instant> {
        let Known { start, from, to, .. } = self.known?;
        let away = micros.saturating_sub(from.midpoint(to));
        let distance = Duration::from_micros(away.unsigned_abs());
        if away < 0 { start.checked_sub(distance) } else { start.checked_add(distance) }
    }
}

/// Microseconds from one instant to another.
fn since(start: Instant, end: Instant) -> i64 {
    let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
    match end.checked_duration_since(start) {
        Some(after) => micros(after),
        None => -micros(start - end),
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng, rngs::StdRng};

    use super::*;

    const SECOND: i64 = 1_000_000;

    /// How much later than true a moment 1 s ahead is expected, in microseconds, when the database's clock shows 0 at `start`.
    fn error(clock: &DatabaseClock, start: Instant) -> i64 {
        since(start + Duration::from_secs(1), clock.instant_of(SECOND).expect("something was learned"))
    }

    #[test]
    fn the_middle_of_the_quickest_answer_counts() {
        let start = Instant::now();
        let after = |millis| start + Duration::from_millis(millis);
        let mut clock = DatabaseClock::default();
        assert_eq!(clock.instant_of(0), None);
        assert!(clock.learn(15_000, start, after(30)), "rough");
        assert_eq!(error(&clock, start), 0);
        assert!(!clock.learn(40_500, after(40), after(41)));
        assert!(error(&clock, start).abs() <= 500);
        // Slow answers, before or after the clock was read.
        for (asked, answered, read) in [(50, 1_200, 50), (1_300, 2_300, 2_300), (2_400, 32_400, 2_400)] {
            assert!(!clock.learn(read * 1_000, after(asked), after(answered)), "nothing new");
            assert!(error(&clock, start).abs() <= 2_000, "{} µs", error(&clock, start));
        }
    }

    #[test]
    fn a_clock_that_was_set_is_learned_anew() {
        let start = Instant::now();
        let after = |millis| start + Duration::from_millis(millis);
        let mut clock = DatabaseClock::default();
        clock.learn(0, start, after(1));
        for set_to in [-3_600 * SECOND, 7_200 * SECOND] {
            assert!(clock.learn(set_to, after(10), after(12)));
            assert_eq!(clock.instant_of(set_to), Some(after(11)));
        }
    }

    /// Clocks of different speed, answers that are slow either way, for minutes: never further off than the quickest answer
    /// of late leaves open.
    #[test]
    fn slow_answers_change_nothing() {
        for seed in 0..500 {
            let mut random = StdRng::seed_from_u64(seed);
            let start = Instant::now();
            let speed = 1_000_000 + random.random_range(-50..=50);
            let shown = |at: Instant| since(start, at) / 1_000 * speed / 1_000;
            let mut clock = DatabaseClock::default();
            let mut now = start;
            for _ in 0..100 {
                now += Duration::from_millis(random.random_range(100..1_000));
                let longest = if random.random_bool(0.3) { 900 } else { 2 };
                let way = |random: &mut StdRng| Duration::from_millis(random.random_range(0..=longest));
                let (asked, read) = (now, now + way(&mut random));
                let answered = read + way(&mut random);
                clock.learn(shown(read), asked, answered);
                now = answered;
            }
            let ahead = shown(now) + 2 * SECOND;
            let expected = clock.instant_of(ahead).expect("something was learned");
            let off = (shown(expected) - ahead).abs();
            assert!(off <= 5_000, "seed {seed}: {off} µs");
        }
    }
}
