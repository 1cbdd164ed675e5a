//! The beat by which the shards of a database look at their tables: what is asked at the same time is read by one statement.

use std::time::Duration;

use tokio::time::Instant;

/// In which steps what shards have measured is rounded up.
const STEP: Duration = Duration::from_millis(250);

/// When the first beat was; nobody keeps one where there is none.
#[derive(Debug, Clone, Copy, Default)]
pub struct Beat(Option<Instant>);

impl Beat {
    /// One that begins now.
    #[must_use]
    pub fn now() -> Self {
        Self(Some(Instant::now()))
    }

    /// The moment of the beat that is nearest to this one, where they come so often; after `now`.
    pub(super) fn near(self, at: Instant, every: Duration, now: Instant) -> Instant {
        let Some(first) = self.0 else { return at };
        let every = every.max(Duration::from_millis(1));
        let beats = ((at.saturating_duration_since(first) + every / 2).as_micros() / every.as_micros()).try_into().unwrap_or(u32::MAX);
        let near = first + every.saturating_mul(beats);
        if near > now { near } else { near + every }
    }

    /// A length of time that is to be the same for all, though each has measured its own: a little longer.
    pub(super) fn whole(self, time: Duration) -> Duration {
        if self.0.is_none() {
            return time;
        }
        STEP.saturating_mul(u32::try_from(time.as_micros().div_ceil(STEP.as_micros())).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn whoever_begins_later_falls_into_step() {
        let (beat, second, now) = (Beat::now(), Duration::from_secs(1), Instant::now());
        let ms = Duration::from_millis;
        for (at, beats) in [(1_000, 1), (1_002, 1), (1_400, 1), (1_600, 2), (1_999, 2), (3_001, 3)] {
            assert_eq!(beat.near(now + ms(at), second, now), now + second * beats, "{at}");
        }
        assert_eq!(beat.near(now + ms(300), second, now), now + second, "not at once");
        for (took, whole) in [(0, 0), (1, 250), (250, 250), (260, 500)] {
            assert_eq!(beat.whole(ms(took)), ms(whole), "{took}");
        }
        assert_eq!(Beat::default().whole(ms(7)), ms(7), "without a beat");
        assert_eq!(Beat::default().near(now + ms(300), second, now), now + ms(300), "without a beat");
    }
}
