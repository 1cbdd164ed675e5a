//! The relays of all targets, on a thread of their own: those of the configuration as it is, and those of one before it, until
//! what they have in hand has landed.

use std::{io, sync::Arc, thread, time::Duration};

use futures::{
    StreamExt,
    future::{BoxFuture, join_all},
    stream::FuturesUnordered,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::{Backlog, Courier, Relay, Settings, couriers, unpacker::Unpacker};
use crate::{
    config::Retry,
    store::{Neighbours, Outbox, Store},
};

/// Who is told, with all files read.
#[derive(Debug)]
pub struct Plan {
    couriers: Vec<Courier>,
    /// The names of all targets.
    named: Vec<String>,
    retry: Retry,
}

impl Plan {
    /// As the configuration says.
    ///
    /// # Errors
    /// As [`couriers`] says.
    pub fn of(settings: Settings<'_>) -> Result<Self, String> {
        let named = settings.events.targets().map(str::to_owned).collect();
        Ok(Self { couriers: couriers(settings)?, named, retry: settings.events.retry.clone() })
    }
}

/// The relays, which can be changed while they run.
#[derive(Debug, Clone)]
pub struct Relays(mpsc::UnboundedSender<Plan>);

/// What all relays have in common.
pub(super) struct Common {
    pub(super) store: Arc<dyn Store>,
    /// The tables whose events are told with those of the store's own.
    pub(super) neighbours: Neighbours,
    pub(super) closed: watch::Receiver<()>,
    pub(super) stop: CancellationToken,
    pub(super) grace: Duration,
}

impl Relays {
    /// Starts them; the future ends when all have.
    pub(super) fn start(first: Plan, common: Common) -> Result<(Self, impl Future<Output = ()>), String> {
        let unable = |error: io::Error| format!("the thread that relays events can't start: {error}");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(unable)?;
        let (ended, end) = oneshot::channel::<()>();
        let (plans, to_come) = mpsc::unbounded_channel();
        let run = move || {
            runtime.block_on(common.relay(first, to_come));
            // Threads that ask a silent name server are not waited for.
            runtime.shutdown_background();
            drop(ended);
        };
        thread::Builder::new().name("relays".into()).spawn(run).map_err(unable)?;
        let ended = async move {
            end.await.ok();
        };
        Ok((Self(plans), ended))
    }

    /// From now on these targets are told, and others no more.
    pub fn change(&self, plan: Plan) {
        // Nobody takes it when the daemon stops.
        self.0.send(plan).ok();
    }
}

impl Common {
    async fn relay(self, first: Plan, mut to_come: mpsc::UnboundedReceiver<Plan>) {
        let mut running = FuturesUnordered::new();
        let mut current = self.stop.child_token();
        running.push(self.follow(first, &current));
        while !self.stop.is_cancelled() {
            tokio::select! {
                Some(plan) = to_come.recv() => {
                    current.cancel();
                    current = self.stop.child_token();
                    running.push(self.follow(plan, &current));
                }
                Some(()) = running.next() => {}
                () = self.stop.cancelled() => {}
            }
        }
        while running.next().await.is_some() {}
    }

    /// Follows a plan until it is told to stop.
    fn follow(&self, plan: Plan, stop: &CancellationToken) -> BoxFuture<'static, ()> {
        let Plan { couriers, named, retry } = plan;
        let outbox = Arc::new(self.store.outbox_apart(couriers.len() + 2).with_neighbours(&self.neighbours));
        let recorded = watch::Sender::default();
        let unpacker =
            Unpacker { outbox: Arc::clone(&outbox), closed: self.closed.clone(), recorded: recorded.clone(), stop: stop.clone() };
        let mut relays: Vec<BoxFuture<'static, ()>> =
            vec![Box::pin(unpacker.run()), Box::pin(strangers(Arc::clone(&outbox), named, stop.clone()))];
        for courier in couriers {
            let relay = Relay {
                outbox: Arc::clone(&outbox) as _,
                courier,
                retry: retry.clone(),
                recorded: recorded.subscribe(),
                stop: stop.clone(),
                grace: self.grace,
            };
            relays.push(Box::pin(relay.run()));
        }
        Box::pin(async move {
            join_all(relays).await;
        })
    }
}

/// Says for whom events wait that the configuration does not name, and waits for the stop.
async fn strangers(outbox: Arc<Outbox>, named: Vec<String>, stop: CancellationToken) {
    match outbox.strangers(&named).await {
        Ok(strangers) => {
            for Backlog { target, waiting, dead, .. } in strangers {
                warn!(
                    to = target,
                    waiting,
                    dead,
                    "events wait for a target that the configuration does not name; put it back, or run `order-closer targets drop` with its name"
                );
            }
        }
        Err(error) => debug!(%error, "what waits for targets that the configuration does not name can't be read"),
    }
    stop.cancelled().await;
}
