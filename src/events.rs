//! Telling others of closures.
//!
//! Events are recorded by the [`store`](crate::store), in the transaction that closes the order, with a delivery for
//! each target. A [`Relay`] for each target takes them from there: to webhooks, signed, and to a Redis Stream. At
//! least once: an event comes again until its target has taken it, always with the same id, and after a day of
//! failures it is a dead letter.

mod breaker;
mod envelope;
mod pruner;
mod relay;
mod signature;
mod stream;
mod target;
mod webhook;

use std::sync::Arc;

use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

pub use envelope::{CONTENT_TYPE, Closure, cloud_event};
pub use pruner::Pruner;
pub use relay::Relay;
pub use signature::signatures;
pub use stream::Entries;
pub use target::{Answer, Target};
pub use webhook::Endpoint;

use crate::{config::Config, store::Store};

/// All targets of the configuration.
///
/// # Errors
/// Says which file of which target can't be used.
pub fn targets(config: &Config) -> Result<Vec<Arc<dyn Target>>, String> {
    let mut targets: Vec<Arc<dyn Target>> = Vec::new();
    for webhook in &config.events.webhooks {
        targets.push(Arc::new(Endpoint::new(webhook)?));
    }
    if let Some(stream) = &config.events.stream {
        let entries = Entries::new(&config.redis, stream).map_err(|error| error.to_string())?;
        targets.push(Arc::new(entries));
    }
    Ok(targets)
}

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
