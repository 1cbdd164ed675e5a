//! Whoever is told of closures.

use std::{fmt, time::Duration};

use async_trait::async_trait;

use crate::store::Event;

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
