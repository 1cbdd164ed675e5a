//! Whether notifications come as a crowd: of several instances one hears it for all.
//!
//! To hear a notification costs a sixth of what it costs to close an order, whosever it is; and of a crowd an instance knows its own
//! orders from its look ahead. Those that were written too late for that are found by a sweep.

use std::time::Duration;

use tokio::time::Instant;

/// So many within this time are a crowd.
const MANY: u64 = 2_500;
const WITHIN: Duration = Duration::from_millis(250);

/// Counts notifications.
#[derive(Debug)]
pub(super) struct Crowd {
    since: Instant,
    heard: u64,
}

impl Crowd {
    pub(super) fn new() -> Self {
        Self { since: Instant::now(), heard: 0 }
    }

    /// So many more came; whether it is a crowd that comes.
    pub(super) fn comes(&mut self, events: u64) -> bool {
        self.heard += events;
        if self.heard < MANY {
            return false;
        }
        let is_crowd = self.since.elapsed() < WITHIN;
        *self = Self::new();
        is_crowd
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn comes(crowd: &mut Crowd, events: u64, pause: Duration) -> bool {
        tokio::time::sleep(pause).await;
        crowd.comes(events)
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_is_told_from_what_comes_all_the_time() {
        let mut crowd = Crowd::new();
        for _ in 0..100_000 {
            assert!(!comes(&mut crowd, 1, Duration::from_micros(500)).await, "2,000 a second");
        }
        let mut heard = 0;
        while !comes(&mut crowd, 1, Duration::ZERO).await {
            heard += 1;
        }
        assert!(heard < 2 * MANY, "{heard}");
        assert!(comes(&mut crowd, 100_000, Duration::from_millis(10)).await, "those that were lost count, too");
    }
}
