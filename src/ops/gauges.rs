//! What is read once a second: what waits, who else is there, what works.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::{
    close::{Inbox, Why},
    metric,
    ops::{AllReady, Measured, figures::Sources},
    outbox::Counts,
    store::{Pool, Store, StoreError},
    trigger::{Hearing, Membership},
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
    pub readiness: AllReady,
    /// The orders.
    pub store: Arc<dyn Store>,
    /// From whom there are confirmed subscriptions.
    pub subscribed: watch::Receiver<Hearing>,
    /// Whether there is a Redis to subscribe to.
    pub has_redis: bool,
    /// When to stop.
    pub stop: CancellationToken,
}

impl Gauges {
    /// Reads again and again.
    pub async fn run(self) {
        self.stop.run_until_cancelled(self.read_again_and_again()).await;
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
            metric::WAITING.set(orders as f64, &[self.store.rule().label(), state]);
        }
        for (lane, orders) in self.inbox.lanes() {
            metric::LANES.set(orders as f64, &[self.store.rule().label(), lane]);
        }
        for Pool { name, open, idle, limit } in self.store.pools() {
            metric::CONNECTIONS.set(idle as f64, &[name, "idle"]);
            metric::CONNECTIONS.set(open.saturating_sub(idle) as f64, &[name, "in_use"]);
            metric::CONNECTIONS_LIMIT.set(limit as f64, &[name]);
        }
        let (others, fit) = self.peers.seen();
        metric::PEERS.set(others as f64, &[self.store.rule().label()]);
        metric::FIT.set(f64::from(u8::from(fit)), &[self.store.rule().label()]);
        if self.has_redis {
            let hearing = self.subscribed.borrow().clone();
            metric::SUBSCRIBED.set(f64::from(u8::from(hearing.all())), &[]);
            metric::PRIMARIES.set(hearing.primaries() as f64, &["all"]);
            metric::PRIMARIES.set(hearing.subscribed() as f64, &["subscribed"]);
        }
        // All rules say the same of the database that they share.
        let is_up = self.readiness.all().iter().all(|rule| !rule.outage.lasts() && !rule.passes.are_unreachable());
        metric::DATABASE_UP.set(f64::from(u8::from(is_up)), &[]);
    }
}

/// Counts what waits for targets, of all orders tables together.
#[derive(Debug)]
pub struct Backlogs {
    /// Of whose orders.
    pub sources: Sources,
    /// When to stop.
    pub stop: CancellationToken,
}

impl Backlogs {
    /// Counts again and again.
    pub async fn run(self) {
        let counting = async {
            let mut known = BTreeSet::new();
            loop {
                match tokio::time::timeout(EVENTS_LIMIT, self.count(&mut known)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => debug!(%error, "events were not counted"),
                    Err(_) => debug!(limit_s = EVENTS_LIMIT.as_secs(), "events were not counted in time"),
                }
                tokio::time::sleep(EVENTS_EVERY).await;
            }
        };
        self.stop.run_until_cancelled(counting).await;
    }

    /// `known` are the targets for which there was something before.
    async fn count(&self, known: &mut BTreeSet<String>) -> Result<(), StoreError> {
        let mut tables = self.sources.of_each_table();
        tables.retain(|source| source.store.outbox().is_ready());
        for source in &tables {
            // For whom nothing waits any more, nothing is found.
            known.extend(source.store.outbox().addressed().await?);
        }
        for target in known.iter() {
            let mut all = Counts::default();
            for source in &tables {
                all = all.and(source.store.outbox().count_for(target).await?);
            }
            metric::EVENTS_WAITING.set(all.waiting as f64, &[target]);
            metric::EVENTS_OLDEST.set(all.oldest.unwrap_or_default().as_secs_f64(), &[target]);
            metric::EVENTS_DEAD.set(all.dead as f64, &[target]);
        }
        Ok(())
    }
}
