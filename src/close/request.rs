//! Orders that somebody asks for by their ids: on the command line, or over HTTP.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, timeout_at},
};

use crate::{
    close::{Clearance, Closer, Gate, Looked, Outcome, Pending, PutOff, Sorted, Stats, Why, worker::REQUESTED},
    order::{OrderId, Trigger},
    store::StoreError,
};

/// For how long somebody is waited for who is asked about an order.
const PATIENCE: Duration = Duration::from_secs(10);

/// What came of a request.
#[derive(Debug)]
pub enum Requested {
    /// The order was looked at, and is closed if it was to be.
    Looked(Looked),
    /// It waits so long at the most.
    Waits(Why, Duration),
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
        let until = Instant::now() + PATIENCE;
        let mut pending = Pending::new(id.clone(), Trigger::Request);
        let looked = loop {
            let mut answers = self.clearance.answers();
            answers.iter_mut().for_each(watch::Receiver::mark_unchanged);
            let sorted = Sorted::wholly(self.clearance.as_ref(), vec![pending]).await;
            if let Some(PutOff { pending: order, until: time, why }) = sorted.wait.into_iter().next() {
                if let (Why::Asked, Some(answers)) = (why, &mut answers)
                    && matches!(timeout_at(until, answers.changed()).await, Ok(Ok(())))
                {
                    pending = order;
                    continue;
                }
                return Ok(Requested::Waits(why, time.saturating_duration_since(Instant::now())));
            }
            // Never closed.
            let _place = self.places.acquire().await;
            let looked = self.closer.one(sorted.go).await?;
            self.stats.looked(&looked);
            match looked.into_iter().next() {
                None => return Err(StoreError::Rejected(format!("nothing is known of order {id} after a look at it"))),
                // Its deadline has moved, and has passed again.
                Some(Looked { pending: order, outcome: Outcome::Unasked }) if Instant::now() < until => pending = order,
                Some(looked) => break looked,
            }
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
