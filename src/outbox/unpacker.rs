//! The unpacker: makes rows of the batches in which crowds of closures are recorded, and wakes the relays when there is something for
//! them.
//!
//! Who waits to be closed comes first: while orders are being closed, a batch is left alone for up to a second, and then the unpacker
//! works a quarter of the time.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error};

use crate::store::{Outbox, StoreError, Unpacked};

/// How often to look for batches that others have left.
const POLL: Duration = Duration::from_secs(1);

/// How long after a closure to look for batches: for what comes with it.
const TOGETHER: Duration = Duration::from_millis(20);

/// How long to leave alone what is too young, or what somebody else has in hand.
const BUSY: Duration = Duration::from_millis(50);

/// For how long after a closure orders are being closed: SQLite takes 50 ms for 5,000 of a crowd.
const CLOSING: Duration = Duration::from_millis(200);

/// How old a batch has to be meanwhile.
const AGE: Duration = Duration::from_secs(1);

/// How long to rest after one then: so many times what the last batch took, and at most so long.
const REST: (u32, Duration) = (3, Duration::from_millis(250));

/// How often it says again what is in its way.
const REMINDER: Duration = Duration::from_mins(1);

pub(super) struct Unpacker {
    pub(super) outbox: Arc<Outbox>,
    /// Changes when orders were closed.
    pub(super) closed: watch::Receiver<()>,
    /// Told when there may be something to deliver.
    pub(super) recorded: watch::Sender<()>,
    pub(super) stop: CancellationToken,
}

impl Unpacker {
    pub(super) async fn run(self) {
        let Self { outbox, closed, recorded, stop } = self;
        let working = async {
            tokio::join!(pass_on(closed.clone(), &recorded), unpack(&outbox, Closing { closed, at: None }, &recorded));
        };
        stop.run_until_cancelled(working).await;
    }
}

/// Wakes the relays as soon as something was closed: most closures are no crowd.
async fn pass_on(mut closed: watch::Receiver<()>, recorded: &watch::Sender<()>) {
    while closed.changed().await.is_ok() {
        recorded.send_replace(());
    }
}

/// Whether orders are being closed.
struct Closing {
    closed: watch::Receiver<()>,
    /// When some were, as far as was looked.
    at: Option<Instant>,
}

impl Closing {
    fn goes_on(&mut self) -> bool {
        let now = Instant::now();
        if self.closed.has_changed().unwrap_or_default() {
            self.closed.mark_unchanged();
            self.at = Some(now);
        }
        self.at.is_some_and(|at| now - at < CLOSING)
    }

    /// Waits for the next closure, and no longer than [`POLL`].
    async fn next(&mut self) {
        if let Ok(Ok(())) = timeout(POLL, self.closed.changed()).await {
            self.at = Some(Instant::now());
        }
    }
}

async fn unpack(outbox: &Outbox, mut closing: Closing, recorded: &watch::Sender<()>) {
    let mut said: Option<Instant> = None;
    loop {
        let (is_closing, began) = (closing.goes_on(), Instant::now());
        match outbox.unpack(if is_closing { AGE } else { Duration::ZERO }).await {
            Ok(Unpacked::Events(events)) => {
                recorded.send_replace(());
                said = None;
                debug!(events, "a batch of events was unpacked");
                if is_closing {
                    sleep((began.elapsed() * REST.0).min(REST.1)).await;
                }
            }
            Ok(Unpacked::Nothing) => {
                closing.next().await;
                sleep(TOGETHER).await;
            }
            Ok(Unpacked::Waits) | Err(StoreError::Conflict(_) | StoreError::Locked(_)) => sleep(BUSY).await,
            // Whoever closes orders says that the database is away.
            Err(error @ StoreError::Unavailable(_)) => {
                debug!(%error, "batches of events can't be unpacked");
                sleep(POLL).await;
            }
            Err(error) => {
                if said.is_none_or(|at| at.elapsed() >= REMINDER) {
                    said = Some(began);
                    error!(
                        %error,
                        fix = "grant SELECT, INSERT and DELETE on order_closer_batches, order_closer_events and order_closer_deliveries, if it is that",
                        "crowds of events can't be made rows of, and nobody is told of them and of later ones; trying again"
                    );
                }
                sleep(POLL).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those who unpack while a crowd is closed take its writer away from it.
    #[tokio::test(start_paused = true)]
    async fn closing_goes_on_between_the_batches_of_a_crowd() {
        let (sender, closed) = watch::channel(());
        let mut closing = Closing { closed, at: None };
        assert!(!closing.goes_on());
        sender.send_replace(());
        closing.next().await;
        for _ in 0..2 {
            sleep(TOGETHER + BUSY).await;
            assert!(closing.goes_on(), "the next batch takes longer");
        }
        sender.send_replace(());
        assert!(closing.goes_on());
        sleep(CLOSING).await;
        assert!(!closing.goes_on());
    }
}
