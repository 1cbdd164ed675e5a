//! What lasts is said again each minute, so that whoever reads the end of a log finds it there.

use std::time::Duration;

use tokio::time::Instant;

const EVERY: Duration = Duration::from_mins(1);

/// When something was said last.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reminder(Option<Instant>);

impl Reminder {
    /// It has just been said.
    #[must_use]
    pub fn said(now: Instant) -> Self {
        Self(Some(now))
    }

    /// Whether it is to be said: at first, and when a minute has passed; it then counts as said.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.0.is_none_or(|last| now - last >= EVERY);
        if is_due {
            self.0 = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_first_and_each_minute() {
        let (mut reminder, begin) = (Reminder::default(), Instant::now());
        let said: Vec<u64> = (0..200).filter(|second| reminder.is_due(begin + Duration::from_secs(*second))).collect();
        assert_eq!(said, [0, 60, 120, 180]);
        let mut reminder = Reminder::said(begin);
        assert!(!reminder.is_due(begin + Duration::from_secs(59)));
        assert!(reminder.is_due(begin + Duration::from_secs(60)));
    }
}
