//! Whoever is told of closures.

mod envelope;
mod signature;
mod stream;
mod webhook;

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;

pub use envelope::{CONTENT_TYPE, Closure, cloud_event};
pub use signature::signatures;
pub use stream::Entries;
pub use webhook::Endpoint;

use crate::{config::Config, outbox::Event};

/// What came of one delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It has arrived.
    Delivered,
    /// It has not, or nobody knows.
    Failed {
        /// Why.
        reason: String,
        /// For how long the target wants to be left alone, if it said so.
        rest: Option<Duration>,
    },
    /// The target was not there to take it: it is tried again, however often that has been.
    Away {
        /// What was there instead.
        reason: String,
    },
    /// The target wants no more events.
    Gone {
        /// What it said.
        reason: String,
    },
}

impl Answer {
    /// A failure without a wish for rest.
    pub fn failed(reason: impl Into<String>) -> Self {
        Self::Failed { reason: reason.into(), rest: None }
    }
}

/// Whoever is told of closures.
#[async_trait]
pub trait Target: fmt::Debug + Send + Sync {
    /// Its name in the tables and in the log.
    fn name(&self) -> &str;

    /// The most deliveries at the same time.
    fn concurrency(&self) -> usize;

    /// The longest that one delivery takes.
    fn timeout(&self) -> Duration;

    /// Delivers one event. It may have been delivered before.
    async fn deliver(&self, event: &Event) -> Answer;
}

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
