//! Whoever is told of closures.

mod envelope;
mod firing;
mod stream;
mod webhook;

use std::{fmt, time::Duration};

use async_trait::async_trait;

pub use envelope::{CONTENT_TYPE, Closure, cloud_event};
pub use firing::Firing;
pub use stream::Entries;
pub use webhook::Endpoint;

use super::{Courier, Due, Event};
use crate::config::{Events, Redis, RuleName};

/// What came of one delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It has arrived.
    Delivered,
    /// It has arrived, and its timer is to be told once more.
    Again {
        /// When.
        due: Due,
    },
    /// It is not wanted: this one, and not all that the target could be told.
    Unwanted,
    /// It has not, or nobody knows.
    Failed {
        /// Why.
        reason: String,
        /// For how long it wants to be left alone, if it said so.
        rest: Option<Rest>,
    },
    /// There was no way to the target: a failure that no event is the reason of.
    Unreachable {
        /// Why.
        reason: String,
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

/// What a target's wish to be left alone means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rest {
    /// For the event that was sent.
    pub event: Duration,
    /// For all others: what one event was answered with must not put them off for long.
    pub target: Duration,
}

impl Answer {
    /// Its name in metrics.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Again { .. } => "again",
            Self::Unwanted => "unwanted",
            Self::Failed { .. } | Self::Unreachable { .. } => "failed",
            Self::Away { .. } => "away",
            Self::Gone { .. } => "gone",
        }
    }

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

/// Who is told of a rule's closures, as the configuration has it.
#[derive(Debug, Clone, Copy)]
pub struct Settings<'c> {
    /// The rule.
    pub rule: &'c RuleName,
    /// What is recorded and reported.
    pub events: &'c Events,
    /// Where a stream is.
    pub redis: &'c Redis,
}

/// The setting that has the webhooks of a rule.
#[must_use]
pub fn webhooks_of(rule: &RuleName) -> &'static str {
    if rule.is_timers() { "timers.webhooks" } else { "events.webhooks" }
}

/// All targets.
///
/// # Errors
/// Says which file of which target can't be used.
pub fn couriers(Settings { rule, events, redis }: Settings<'_>) -> Result<Vec<Courier>, String> {
    let mut couriers = Vec::new();
    let list = webhooks_of(rule);
    for webhook in &events.webhooks {
        couriers.push(Courier::of(|| Endpoint::new(list, webhook, &events.source))?);
    }
    if let Some(stream) = &events.stream {
        couriers.push(Courier::of(|| Entries::new(redis, stream, &events.source))?);
    }
    Ok(couriers)
}
