//! What is read once a second: what waits, who else is there, what works.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::{
    close::{Inbox, Outage, Why},
    metric,
    ops::Measured,
    outbox::Counts,
    store::{Pool, Store, StoreError},
    trigger::{Membership, Passes},
};

const EVERY: Duration = Duration::from_secs(1);

/// What waits for targets is counted so often, and for so long at the most.
const EVENTS_EVERY: Duration = Duration::from_secs(15);
const EVENTS_LIMIT: Duration = Duration::from_secs(5);

/// Reads.
#[derive(Debug)]
pub struct Gauges {
    /// Where it goes.
    pub measured: Measured,
    /// What waits.
    pub inbox: Arc<Inbox>,
    /// Who else is there.
    pub peers: Arc<Membership>,
    /// Whether the database can be used.
    pub outage: Arc<Outage>,
    /// Whether look-ahead and sweep find it.
    pub passes: Arc<Passes>,
    /// What waits for targets.
    pub store: Arc<dyn Store>,
    /// Whether there is a confirmed subscription.
    pub subscribed: watch::Receiver<bool>,
    /// When to stop.
    pub stop: CancellationToken,
}

impl Gauges {
    /// Reads again and again.
    pub async fn run(self) {
        let reading = async { tokio::join!(self.read_again_and_again(), self.count_events()) };
        self.stop.run_until_cancelled(reading).await;
    }

    async fn read_again_and_again(&self) {
        loop {
            self.read();
            self.measured.tidy_up();
            tokio::time::sleep(EVERY).await;
        }
    }

    fn read(&self) {
        let held = self.inbox.held().map_or(0, |(orders, _)| orders);
        let (waiting, queued) = (self.inbox.waiting(), self.inbox.queued());
        let states = [
            ("queued", queued),
            ("held", held),
            ("resting", waiting.saturating_sub(queued).saturating_sub(held)),
            ("disputed", self.inbox.waits(Why::Disputed)),
            ("asked", Why::ASKED.iter().map(|why| self.inbox.waits(*why)).sum()),
        ];
        for (state, orders) in states {
            metric::WAITING.set(orders as f64, &[self.store.rule().as_str(), state]);
        }
        for (lane, orders) in self.inbox.lanes() {
            metric::LANES.set(orders as f64, &[self.store.rule().as_str(), lane]);
        }
        for Pool { name, open, idle, limit } in self.store.pools() {
            metric::CONNECTIONS.set(idle as f64, &[name, "idle"]);
            metric::CONNECTIONS.set(open.saturating_sub(idle) as f64, &[name, "in_use"]);
            metric::CONNECTIONS_LIMIT.set(limit as f64, &[name]);
        }
        let (others, fit) = self.peers.seen();
        metric::PEERS.set(others as f64, &[self.store.rule().as_str()]);
        metric::FIT.set(f64::from(u8::from(fit)), &[self.store.rule().as_str()]);
        metric::SUBSCRIBED.set(f64::from(u8::from(*self.subscribed.borrow())), &[]);
        metric::DATABASE_UP.set(f64::from(u8::from(!self.outage.lasts() && !self.passes.are_unreachable())), &[]);
    }

    /// `known` are the targets for which there was something before.
    async fn count_events_once(&self, known: &mut BTreeSet<String>) -> Result<(), StoreError> {
        let outbox = self.store.outbox();
        // For whom nothing waits any more, nothing is found.
        known.extend(outbox.addressed().await?);
        for target in known.iter() {
            let Counts { waiting, oldest, dead } = outbox.count_for(target).await?;
            metric::EVENTS_WAITING.set(waiting as f64, &[target]);
            metric::EVENTS_OLDEST.set(oldest.unwrap_or_default().as_secs_f64(), &[target]);
            metric::EVENTS_DEAD.set(dead as f64, &[target]);
        }
        Ok(())
    }

    async fn count_events(&self) {
        if !self.store.outbox().is_ready() {
            return;
        }
        let mut known = BTreeSet::new();
        loop {
            if let Ok(Err(error)) = tokio::time::timeout(EVENTS_LIMIT, self.count_events_once(&mut known)).await {
                debug!(%error, "events were not counted");
            }
            tokio::time::sleep(EVENTS_EVERY).await;
        }
    }
}
