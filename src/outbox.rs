//! The outbox: what is recorded of closures, and how others are told.
//!
//! An event is written in the transaction that closes its order, together with one delivery for each
//! configured target, so a crash can neither lose one nor invent one. A [`Relay`] for each target takes them from there: to
//! webhooks, signed, and to a Redis Stream. A delivery is claimed for a while by one relay, and due again when that time has
//! passed: what a crashed relay had in hand is taken over by itself. At least once: an event comes again until its target
//! has taken it, always with the same id, and after a day of failures it is a dead letter. Events are the audit log too.

mod audit;
mod breaker;
mod claims;
mod counts;
mod courier;
mod dead_letters;
mod migrations;
mod pauses;
mod pruner;
mod relay;
mod states;
mod targets;

use std::{io, sync::Arc, thread};

use futures::future::{BoxFuture, join_all};
use tokio::{
    sync::{oneshot, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

pub use audit::{Event, EventQuery, Pruned};
pub use claims::{Backlog, Claimed, Failed, Pick, Settled, Want};
pub use counts::Counts;
pub use courier::Courier;
pub use dead_letters::{Address, DeadLetter, DeadOrder, Death, Place};
pub use migrations::Migrated;
pub use pauses::{Pause, PauseStatus, Wanted, check_reason, is_about_pauses, time_for};
pub use pruner::Pruner;
pub use relay::{Pass, Relay};
pub use states::{Note, State, TargetState};
pub use targets::{Answer, CONTENT_TYPE, Closure, Endpoint, Entries, Rest, Target, cloud_event, couriers};

use crate::{
    config::Config,
    store::{Outbox, Store, StoreError},
};

type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Starts whoever works on our own tables, if they are there.
///
/// # Errors
/// As [`couriers`] says.
pub fn spawn(
    config: &Config,
    store: &Arc<dyn Store>,
    closed: &watch::Receiver<()>,
    stop: &CancellationToken,
    running: &mut JoinSet<()>,
) -> Result<(), String> {
    let settings = &config.events;
    let untold: Vec<&str> = settings.untold().collect();
    if !untold.is_empty() {
        warn!(targets = untold.join(", "), "events.enabled is false: nobody is told of further closures");
    }
    if !store.outbox().is_ready() {
        if store.outbox().version() > 0 {
            warn!(reason = store.outbox().missing(), "dead letters can't be used, and what was given up is tried again");
        }
        return Ok(());
    }
    if store.outbox().is_outdated() {
        error!(reason = store.outbox().missing(), "what needs the newer tables is left off");
    }
    running.spawn(Pruner::new(Arc::clone(store), settings.keep.get(), stop.clone()).run());
    // What was recorded while events were enabled is still told.
    let couriers = couriers(config)?;
    let outbox = Arc::new(store.outbox_apart(couriers.len() + 1));
    let named = settings.targets().map(str::to_owned).collect();
    let mut relays: Vec<BoxFuture<'static, ()>> = vec![Box::pin(strangers(Arc::clone(&outbox), named, stop.clone()))];
    for courier in couriers {
        let relay = Relay {
            outbox: Arc::clone(&outbox),
            courier,
            retry: settings.retry.clone(),
            closed: closed.clone(),
            stop: stop.clone(),
            grace: config.shutdown.timeout.get() / 2,
        };
        relays.push(Box::pin(relay.run()));
    }
    running.spawn(apart(relays)?);
    Ok(())
}

/// Runs these on a thread of their own, and ends with them.
fn apart(relays: Vec<BoxFuture<'static, ()>>) -> Result<impl Future<Output = ()>, String> {
    let unable = |error: io::Error| format!("the thread that relays events can't start: {error}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(unable)?;
    let (ended, end) = oneshot::channel::<()>();
    let run = move || {
        runtime.block_on(join_all(relays));
        // Threads that ask a silent name server are not waited for.
        runtime.shutdown_background();
        drop(ended);
    };
    thread::Builder::new().name("relays".into()).spawn(run).map_err(unable)?;
    Ok(async move {
        end.await.ok();
    })
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

impl Outbox {
    /// What waits for targets other than these.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn strangers(&self, named: &[String]) -> Result<Vec<Backlog>> {
        if self.addressed().await?.iter().all(|target| named.contains(target)) {
            return Ok(Vec::new());
        }
        Ok(self.backlog().await?.into_iter().filter(|backlog| !named.contains(&backlog.target)).collect())
    }
}
