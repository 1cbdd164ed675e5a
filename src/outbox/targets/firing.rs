//! A timer that has fired, as others read it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::envelope::millis;
use crate::{order::rfc3339, outbox::Event};

/// A timer that has fired, in the words of all that tell of it.
#[derive(Debug, Serialize)]
pub struct Firing<'e> {
    /// The timer's kind.
    pub kind: Cow<'e, str>,
    /// Its key, of which there is one of each kind.
    pub key: Cow<'e, str>,
    /// Which registration of it this was.
    pub generation: i64,
    /// When it was due, in RFC 3339.
    pub due: String,
    /// When it fired, likewise, by the database's clock.
    pub fired_at: String,
    /// The one minus the other, in milliseconds.
    pub lateness_ms: f64,
    /// What made the daemon look at it.
    pub trigger: &'e str,
    /// Who fired it: host and process.
    pub instance: &'e str,
    /// What was given along when it was registered: a JSON object.
    pub data: Box<RawValue>,
}

/// What the event of a timer carries.
#[derive(Deserialize)]
struct Carried<'e> {
    #[serde(borrow)]
    kind: Cow<'e, str>,
    #[serde(borrow)]
    key: Cow<'e, str>,
    generation: i64,
    data: Box<RawValue>,
}

impl<'e> TryFrom<&'e Event> for Firing<'e> {
    type Error = serde_json::Error;

    fn try_from(event: &'e Event) -> Result<Self, serde_json::Error> {
        let Carried { kind, key, generation, data } = serde_json::from_str(event.data.get())?;
        // Databases without a type for JSON give the object's text.
        let data = if data.get().starts_with('"') { RawValue::from_string(serde_json::from_str(data.get())?)? } else { data };
        Ok(Self {
            kind,
            key,
            generation,
            due: rfc3339(event.deadline),
            fired_at: rfc3339(event.closed_at),
            lateness_ms: millis(event.lateness),
            trigger: &event.trigger,
            instance: &event.instance,
            data,
        })
    }
}

impl Firing<'_> {
    /// The timer's name: its kind and its key.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}/{}", self.kind, self.key)
    }
}
