//! The Redis Stream: an event as an entry, with a field for each thing that there is to tell.
//!
//! The field `id` is the event's id. An entry whose delivery could not be noted comes twice under the same one, so
//! consumers pass over ids that they have seen.

use std::time::Duration;

use async_trait::async_trait;

use super::{Answer, Closure, Firing, Target};
use crate::{
    config::{EventSource, Redis, Stream},
    outbox::Event,
    redis::{Commands, PATIENCE, RedisError},
};

/// Entries under way at the same time; they share one connection.
const CONCURRENCY: usize = 128;

/// A stream, and a connection of its own to its Redis.
#[derive(Debug)]
pub struct Entries {
    commands: Commands,
    settings: Stream,
    source: EventSource,
}

impl Entries {
    /// Begins to connect, and does not wait for it.
    ///
    /// # Errors
    /// Says what is wrong with the configuration of Redis.
    pub fn new(redis: &Redis, stream: &Stream, source: &EventSource) -> Result<Self, RedisError> {
        Ok(Self { commands: Commands::new(redis)?, settings: stream.clone(), source: source.clone() })
    }
}

#[async_trait]
impl Target for Entries {
    fn name(&self) -> &str {
        Stream::name()
    }

    fn concurrency(&self) -> usize {
        CONCURRENCY
    }

    fn timeout(&self) -> Duration {
        PATIENCE
    }

    async fn deliver(&self, event: &Event) -> Answer {
        let fields = match self.fields(event) {
            Ok(fields) => fields,
            Err(error) => return Answer::failed(error.to_string()),
        };
        match self.commands.append(&self.settings.key, self.settings.max_len, fields).await {
            Ok(()) => Answer::Delivered,
            // What is refused for what it is: a key that is no stream, say.
            Err(error @ (RedisError::Rejected(_) | RedisError::Unusable(_))) => Answer::failed(error.to_string()),
            // It is not the event's fault, and not for the event to pay for.
            Err(error) => Answer::Away { reason: error.to_string() },
        }
    }
}

/// The fields of an entry.
type Fields = Vec<(&'static str, String)>;

impl Entries {
    fn fields(&self, event: &Event) -> Result<Fields, serde_json::Error> {
        let mut fields = vec![("id", event.id.to_string())];
        fields.extend(if event.is_of_timer() { of_timer(event)? } else { of_closure(event) });
        fields.extend([("rule", event.rule.clone()), ("source", self.source.as_str().to_owned())]);
        fields.extend(event.traceparent.clone().map(|traceparent| ("traceparent", traceparent)));
        Ok(fields)
    }
}

fn of_timer(event: &Event) -> Result<Fields, serde_json::Error> {
    let Firing { kind, key, generation, due, fired_at, lateness_ms, trigger, instance, data } = Firing::try_from(event)?;
    Ok(vec![
        ("kind", kind.into_owned()),
        ("key", key.into_owned()),
        ("generation", generation.to_string()),
        ("due", due),
        ("fired_at", fired_at),
        ("lateness_ms", lateness_ms.to_string()),
        ("trigger", trigger.into()),
        ("instance", instance.into()),
        ("data", data.get().into()),
    ])
}

fn of_closure(event: &Event) -> Fields {
    let Closure { order_id, deadline, closed_at, lateness_ms, trigger, instance, order, asked_at, answer } = Closure::from(event);
    let mut fields = vec![
        ("order_id", order_id.into()),
        ("deadline", deadline),
        ("closed_at", closed_at),
        ("lateness_ms", lateness_ms.to_string()),
        ("trigger", trigger.into()),
        ("instance", instance.into()),
        ("order", order.get().into()),
    ];
    fields.extend(asked_at.map(|asked_at| ("asked_at", asked_at)));
    fields.extend(answer.map(|answer| ("answer", answer.to_owned())));
    fields
}
