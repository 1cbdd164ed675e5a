//! Recording events in the transaction that closes their orders.

use std::collections::HashMap;

use uuid::{NoContext, Timestamp, Uuid};

use super::{
    Link, Result,
    link::Value,
    words::{Statement, Words},
};
use crate::{
    config::Events,
    order::{OrderId, Trigger},
};

/// A closure that is to be recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// The order.
    pub order: OrderId,
    /// Its deadline, in microseconds since 1970 UTC.
    pub deadline: i64,
    /// The database's clock when the order was judged, likewise.
    pub now: i64,
    /// What made us look at it.
    pub trigger: Trigger,
}

impl NewEvent {
    /// A new id for the event, a UUIDv7: later ones are greater, to the millisecond.
    fn new_id(&self) -> Uuid {
        let now = self.now.unsigned_abs();
        let nanos = u32::try_from(now % 1_000_000 * 1_000).unwrap_or(0);
        Uuid::new_v7(Timestamp::from_unix(NoContext, now / 1_000_000, nanos))
    }
}

/// The name of this process in events and claims: its host's name, and its number there.
#[must_use]
pub fn instance() -> String {
    format!("{}/{}", gethostname::gethostname().to_string_lossy(), std::process::id())
}

/// Writes events and their deliveries.
#[derive(Debug)]
pub(in crate::store) struct Recorder {
    events: Statement,
    deliveries: Option<Statement>,
    instance: String,
}

impl Recorder {
    pub(super) fn new(words: &Words, settings: &Events) -> Self {
        let Words { now, new_events, new_data, .. } = words;
        // In: ?1 events, ?2 the instance. Out: one row for each. Locks the new rows.
        let events = words.statement(&format!(
            "INSERT INTO {} (id, order_id, deadline, closed_at, lateness, triggered_by, instance, data) \
             SELECT e.id, e.order_id, e.deadline, {now}, {now} - e.deadline, e.triggered_by, ?2, {new_data} FROM {new_events}",
            words.events()
        ));
        // In: ?1 events. Out: one row for each and each target. Locks the new rows.
        let targets: Vec<String> = settings.targets().map(|target| format!("SELECT '{target}' AS target")).collect();
        let deliveries = (!targets.is_empty()).then(|| {
            words.statement(&format!(
                "INSERT INTO {} (event_id, target, attempts, due_at) SELECT e.id, t.target, 0, {now} FROM {new_events} CROSS JOIN ({}) AS t",
                words.deliveries(),
                targets.join(" UNION ALL ")
            ))
        });
        Self { events, deliveries, instance: instance() }
    }

    /// Writes these events; `data` has the columns that they carry, as a JSON object for each order.
    pub(in crate::store) async fn record(&self, link: &mut dyn Link, events: &[NewEvent], data: &HashMap<OrderId, String>) -> Result<()> {
        let object = |event: &NewEvent| {
            serde_json::json!({
                "id": event.new_id().to_string(),
                "order_id": event.order.as_str(),
                "deadline": event.deadline,
                "triggered_by": event.trigger.name(),
                "data": data.get(&event.order).map_or("{}", String::as_str),
            })
        };
        let list = serde_json::Value::Array(events.iter().map(object).collect()).to_string();
        link.change(&self.events, &[list.as_str().into(), self.instance.as_str().into()]).await?;
        if let Some(deliveries) = &self.deliveries {
            link.change(deliveries, &[Value::from(list)]).await?;
        }
        Ok(())
    }
}
