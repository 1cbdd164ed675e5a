//! Notifications that were lost, said once for a crowd of them: within half a second they are lost forty times and more.

use std::{future, pin::Pin, time::Duration};

use tokio::time::{Instant, Sleep};
use tracing::warn;

/// How long the losses of a crowd are summed up.
const CROWD: Duration = Duration::from_secs(1);

/// What goes on is said as often as this.
const EVERY: Duration = Duration::from_mins(1);

/// Losses of one session; those that were not said yet are when it ends.
#[derive(Debug)]
pub(super) struct Losses {
    unsaid: u64,
    due: Pin<Box<Sleep>>,
    said: Option<Instant>,
}

impl Losses {
    pub(super) fn new() -> Self {
        Self { unsaid: 0, due: Box::pin(tokio::time::sleep(Duration::ZERO)), said: None }
    }

    /// So many more.
    pub(super) fn add(&mut self, events: u64) {
        if self.unsaid == 0 {
            let crowd = Instant::now() + CROWD;
            self.due.as_mut().reset(self.said.map_or(crowd, |said| crowd.max(said + EVERY)));
        }
        self.unsaid += events;
    }

    /// Waits until some are to be said, however long that takes, and says them.
    pub(super) async fn say_when_due(&mut self) {
        if self.unsaid == 0 {
            future::pending::<()>().await;
        }
        self.due.as_mut().await;
        self.say();
    }

    fn say(&mut self) {
        let events = std::mem::take(&mut self.unsaid);
        self.said = Some(Instant::now());
        warn!(events, "notifications came faster than they could be read; sweeping for what was lost");
    }
}

impl Drop for Losses {
    fn drop(&mut self) {
        if self.unsaid > 0 {
            self.say();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Loses `events` every 10 ms for so long, and returns when how many were said, in seconds.
    async fn said(losses: &mut Losses, events: u64, lasting: Duration) -> Vec<(u64, u64)> {
        let (begin, mut said) = (Instant::now(), Vec::new());
        while begin.elapsed() < lasting {
            losses.add(events);
            let unsaid = losses.unsaid;
            if tokio::time::timeout(Duration::from_millis(10), losses.say_when_due()).await.is_ok() {
                said.push((begin.elapsed().as_secs(), unsaid));
            }
        }
        said
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_is_said_once_and_what_goes_on_each_minute() {
        let mut losses = Losses::new();
        assert_eq!(said(&mut losses, 7, Duration::from_millis(500)).await, []);
        losses.say_when_due().await;
        assert_eq!(losses.unsaid, 0);
        assert_eq!(said(&mut losses, 1, Duration::from_secs(150)).await, [(60, 6_000), (120, 6_000)]);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_said_of_none() {
        let mut losses = Losses::new();
        tokio::time::timeout(Duration::from_hours(1), losses.say_when_due()).await.expect_err("nothing was lost");
    }
}
