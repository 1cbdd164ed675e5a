//! Orders that somebody asks for by their ids: on the command line, or over HTTP.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{Semaphore, watch},
    time::Instant,
};

use crate::{
    close::{Clearance, Closer, Gate, Looked, Pending, Sorted, Stats, worker::REQUESTED},
    order::{OrderId, Trigger},
    store::StoreError,
};

/// What came of a request.
#[derive(Debug)]
pub enum Requested {
    /// The order was looked at, and is closed if it was to be.
    Looked(Looked),
    /// It is due by its row, and waits for its key so long.
    Disputed(Duration),
    /// Nothing was looked at: closing is paused.
    Paused,
}

/// Looks at orders one by one, and closes those that are unpaid and due.
#[derive(Debug)]
pub struct Requests {
    gate: Arc<Gate>,
    closer: Closer,
    clearance: Arc<dyn Clearance>,
    stats: Arc<Stats>,
    closed: watch::Sender<()>,
    places: Semaphore,
}

impl Requests {
    /// Requests that this closer answers; `closed` changes when an order was closed.
    #[must_use]
    pub fn new(gate: Arc<Gate>, closer: Closer, clearance: Arc<dyn Clearance>, stats: Arc<Stats>, closed: watch::Sender<()>) -> Self {
        Self { gate, closer, clearance, stats, closed, places: Semaphore::new(REQUESTED) }
    }

    /// Looks at one order, and closes it if it is unpaid and due.
    ///
    /// # Errors
    /// What the database says when it can't be used.
    pub async fn close(&self, id: &OrderId) -> Result<Requested, StoreError> {
        if self.gate.is_shut() {
            return Ok(Requested::Paused);
        }
        // Never closed.
        let _place = self.places.acquire().await;
        let sorted = Sorted::wholly(self.clearance.as_ref(), vec![Pending::new(id.clone(), Trigger::Request)]).await;
        if let Some(put_off) = sorted.wait.first() {
            return Ok(Requested::Disputed(put_off.until.saturating_duration_since(Instant::now())));
        }
        let looked = self.closer.one(sorted.go).await?;
        self.stats.looked(&looked);
        let Some(looked) = looked.into_iter().next() else {
            return Err(StoreError::Rejected(format!("nothing is known of order {id} after a look at it")));
        };
        if looked.is_closed() {
            self.closed.send_replace(());
            let outbox = self.closer.store().outbox();
            // A dead letter that is closed is none any more. If that can't be noted now, the daemon does it.
            if outbox.is_ready() {
                outbox.forget_dead_orders(std::slice::from_ref(id)).await.ok();
            }
        }
        Ok(Requested::Looked(looked))
    }
}
