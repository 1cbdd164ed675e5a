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
mod dead_letters;
mod migrations;
mod pruner;
mod relay;
mod targets;

use std::sync::Arc;

use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

pub use audit::{Event, EventQuery};
pub use claims::{Backlog, Claimed, Failed, Shared};
pub use dead_letters::{Address, DeadLetter, DeadOrder, Death};
pub use migrations::Migrated;
pub use pruner::Pruner;
pub use relay::Relay;
pub use targets::{Answer, CONTENT_TYPE, Closure, Endpoint, Entries, Target, cloud_event, signatures, targets};

use crate::{
    config::Config,
    store::{Store, StoreError},
};

type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Starts whoever works on our own tables, if they are there.
///
/// # Errors
/// As [`targets`] says.
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
    running.spawn(Pruner { store: Arc::clone(store), keep: settings.keep.get(), stop: stop.clone() }.run());
    // What was recorded while events were enabled is still told.
    for target in targets(config)? {
        let relay = Relay {
            store: Arc::clone(store),
            target,
            retry: settings.retry.clone(),
            closed: closed.clone(),
            stop: stop.clone(),
            grace: config.shutdown.timeout.get() / 2,
        };
        running.spawn(relay.run());
    }
    Ok(())
}
