//! An event as others read it.

use serde::Serialize;
use serde_json::value::RawValue;

use super::Firing;
use crate::{config::EventSource, order::rfc3339, outbox::Event};

/// The media type of [`cloud_event`].
pub const CONTENT_TYPE: &str = "application/cloudevents+json";

/// The types of our events, as CloudEvents wants them: of a closure, and of a timer that has fired.
const CLOSED: &str = "order-closer.order.closed";
const FIRED: &str = "order-closer.timer.fired";

/// A closure, in the words of all that tell of it.
#[derive(Debug, Serialize)]
pub struct Closure<'e> {
    /// The order.
    pub order_id: &'e str,
    /// Its deadline, in RFC 3339.
    pub deadline: String,
    /// When it was closed, likewise, by the database's clock.
    pub closed_at: String,
    /// The one minus the other, in milliseconds.
    pub lateness_ms: f64,
    /// What made the daemon look at it.
    pub trigger: &'e str,
    /// Who closed it: host and process.
    pub instance: &'e str,
    /// The order's columns that `events.include` names.
    pub order: &'e RawValue,
    /// When somebody was asked whether it may be closed, where somebody was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked_at: Option<String>,
    /// What was answered, or why nothing was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<&'e str>,
}

impl<'e> From<&'e Event> for Closure<'e> {
    fn from(event: &'e Event) -> Self {
        Self {
            order_id: &event.order_id,
            deadline: rfc3339(event.deadline),
            closed_at: rfc3339(event.closed_at),
            lateness_ms: millis(event.lateness),
            trigger: &event.trigger,
            instance: &event.instance,
            order: &event.data,
            asked_at: event.asked_at.map(rfc3339),
            answer: event.answer.as_deref(),
        }
    }
}

/// Exact up to a century.
#[expect(clippy::cast_precision_loss, reason = "fifty-three bits of microseconds are 285 years")]
pub(super) fn millis(micros: i64) -> f64 {
    micros as f64 / 1_000.0
}

/// An event in CloudEvents 1.0's structured JSON, the same bytes each time:
/// <https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md>.
///
/// # Errors
/// None that can happen: every part can be written as JSON, and what a timer carries was written by its table.
pub fn cloud_event(event: &Event, source: &EventSource) -> Result<String, serde_json::Error> {
    if event.is_of_timer() {
        let firing = Firing::try_from(event)?;
        return written(event, source, FIRED, &firing.name(), &firing);
    }
    written(event, source, CLOSED, &event.order_id, &Closure::from(event))
}

fn written(event: &Event, source: &EventSource, r#type: &str, subject: &str, data: &impl Serialize) -> Result<String, serde_json::Error> {
    #[derive(Serialize)]
    struct Envelope<'e, D> {
        specversion: &'static str,
        id: String,
        source: &'e str,
        r#type: &'e str,
        /// Never empty; an order's id may be.
        #[serde(skip_serializing_if = "str::is_empty")]
        subject: &'e str,
        rule: &'e str,
        #[serde(skip_serializing_if = "Option::is_none")]
        shard: Option<&'e str>,
        time: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        traceparent: Option<&'e str>,
        datacontenttype: &'static str,
        data: D,
    }
    serde_json::to_string(&Envelope {
        specversion: "1.0",
        id: event.id.to_string(),
        source: source.as_str(),
        r#type,
        subject,
        rule: &event.rule,
        shard: event.shard.as_deref(),
        time: rfc3339(event.closed_at),
        traceparent: event.traceparent.as_deref(),
        datacontenttype: "application/json",
        data,
    })
}
