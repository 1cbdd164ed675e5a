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

pub use envelope::{CONTENT_TYPE, Closure, cloud_event};
pub use pruner::Pruner;
pub use relay::Relay;
pub use signature::signatures;
pub use stream::Entries;
pub use target::{Answer, Target};
pub use webhook::Endpoint;

use crate::config::Config;

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
