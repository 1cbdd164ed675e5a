//! The audit log: reading events, and pruning old ones.

use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::{Closure, Result};
use crate::{
    config::RuleName,
    order::OrderId,
    store::{Fields, Link, Outbox, finish, listed, unexpected},
};

/// A closure, as it was recorded.
#[derive(Debug, Clone)]
pub struct Event {
    /// The event's id: the idempotency key of every delivery.
    pub id: Uuid,
    /// The rule that closed its order.
    pub rule: String,
    /// The shard that the order was in, where orders are in several places.
    pub shard: Option<String>,
    /// The order.
    pub order_id: String,
    /// Its deadline, in microseconds since 1970 UTC.
    pub deadline: i64,
    /// When it was closed, likewise, by the database's clock.
    pub closed_at: i64,
    /// The one minus the other, in microseconds.
    pub lateness: i64,
    /// What made the daemon look at it.
    pub trigger: String,
    /// Who closed it.
    pub instance: String,
    /// The order's columns that `events.include` names, as a JSON object.
    pub data: Box<RawValue>,
    /// The trace that it goes on with.
    pub traceparent: Option<String>,
    /// When somebody was asked whether it may be closed, likewise by the database's clock, where somebody was.
    pub asked_at: Option<i64>,
    /// What was answered, or why nothing was.
    pub answer: Option<String>,
}

impl Event {
    /// Whether it is a timer that has fired.
    #[must_use]
    pub fn is_of_timer(&self) -> bool {
        self.rule == RuleName::TIMERS
    }
}

/// The same as it is printed in JSON.
#[derive(Debug, Serialize)]
pub struct Recorded<'e> {
    id: String,
    rule: &'e str,
    #[serde(skip_serializing_if = "Option::is_none")]
    shard: Option<&'e str>,
    #[serde(flatten)]
    closure: Closure<'e>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'e str>,
}

impl<'e> From<&'e Event> for Recorded<'e> {
    fn from(event: &'e Event) -> Self {
        Self {
            id: event.id.to_string(),
            rule: &event.rule,
            shard: event.shard.as_deref(),
            closure: Closure::from(event),
            traceparent: event.traceparent.as_deref(),
        }
    }
}

/// Which events to read.
#[derive(Debug, Clone, Default)]
pub struct EventQuery {
    /// This event only.
    pub id: Option<Uuid>,
    /// Those of this rule only.
    pub rule: Option<RuleName>,
    /// Those of this order only.
    pub order: Option<OrderId>,
    /// Those that are no older than this.
    pub since: Option<Duration>,
    /// Those after this one.
    pub after: Option<Uuid>,
    /// At most so many.
    pub limit: u32,
}

/// What one step of pruning did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pruned {
    /// The events that were deleted.
    pub events: Vec<Uuid>,
    /// The last event that was looked at.
    pub last: Uuid,
    /// Whether there may be more after it.
    pub more: bool,
}

/// The columns of [`event`], of a table called e.
pub(super) fn columns(outbox: &Outbox) -> String {
    format!(
        "CAST(e.id AS CHAR(36)), {rule}, e.order_id, e.deadline, e.closed_at, e.lateness, e.triggered_by, e.instance, {data}, {traceparent}, {answer}, e.orders_table",
        rule = outbox.rule_of_event(),
        data = outbox.words.data_text,
        traceparent = outbox.traceparent(),
        answer = outbox.answer()
    )
}

pub(super) fn event(fields: &mut Fields, outbox: &Outbox) -> Result<Event> {
    let mut event = Event {
        id: uuid(&fields.text()?)?,
        rule: fields.text()?,
        shard: None,
        order_id: fields.text()?,
        deadline: fields.integer()?,
        closed_at: fields.integer()?,
        lateness: fields.integer()?,
        trigger: fields.text()?,
        instance: fields.text()?,
        data: RawValue::from_string(fields.text()?).map_err(|error| unexpected(&format!("no JSON ({error})")))?,
        traceparent: fields.optional_text()?,
        asked_at: fields.optional_integer()?,
        answer: fields.optional_text()?,
    };
    event.shard = outbox.shard_of(&fields.text()?);
    Ok(event)
}

pub(super) fn uuid(text: &str) -> Result<Uuid> {
    Uuid::try_parse(text).map_err(|_| unexpected("no UUID"))
}

/// The least id that an event of this time can have.
fn first_id(micros: i64) -> Uuid {
    let millis = u64::try_from(micros / 1_000).unwrap_or(0);
    uuid::Builder::from_unix_timestamp_millis(millis, &[0; 10]).into_uuid()
}

impl Outbox {
    /// Reads events of our orders, oldest first. Locks nothing.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn events(&self, query: &EventQuery) -> Result<Vec<Event>> {
        let mut link = self.backend.read().await?;
        let mut conditions = vec![self.words.ours("e.")];
        let mut values = vec![i64::from(query.limit).into()];
        if let Some(order) = &query.order {
            conditions.push("e.order_id = ?2".to_owned());
            values.push(order.as_str().into());
        }
        if let Some(rule) = &query.rule {
            conditions.push(format!("{} = '{rule}'", self.rule_of_event()));
        }
        if let Some(id) = query.id {
            conditions.push(format!("e.id = '{id}'"));
        }
        if let Some(since) = query.since {
            conditions.push(format!("e.id >= '{}'", first_id(self.ago(link.as_mut(), since).await?)));
        }
        if let Some(after) = query.after {
            conditions.push(format!("e.id > '{after}'"));
        }
        // In: ?1 how many, ?2 an order. Out: events in the order of time.
        let select = self.words.passing(&format!(
            "SELECT {} FROM {} e WHERE {} ORDER BY e.id LIMIT ?1",
            columns(self),
            self.words.events(),
            conditions.join(" AND ")
        ));
        link.fetch(&select, &values).await?.iter_mut().map(|fields| event(fields, self)).collect()
    }

    /// Looks at the `limit` events that come after the event `after` and are older than `keep`, and deletes those that have no
    /// delivery left.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn prune(&self, keep: Duration, after: Uuid, limit: u32) -> Result<Pruned> {
        let words = &self.words;
        let mut link = self.backend.read().await?;
        let oldest_kept = first_id(self.ago(link.as_mut(), keep).await?);
        // In: ?1 how many. Out: the ids of old events in their order, each with a number where it can go. By the primary keys, with
        // whatever statistics: asked for all that is old at once, PostgreSQL would sort it for each page where it believes that
        // it is little, and by NOT EXISTS read all deliveries.
        let select = words.passing(&format!(
            "SELECT CAST(e.id AS CHAR(36)), \
             CASE WHEN {} AND (SELECT d.event_id FROM {} d WHERE d.event_id = e.id LIMIT 1) IS NULL THEN e.closed_at END \
             FROM (SELECT id, orders_table, closed_at FROM {} WHERE id > '{after}' ORDER BY id LIMIT ?1) AS e \
             WHERE e.id < '{oldest_kept}' ORDER BY e.id",
            words.ours("e."),
            words.deliveries(),
            words.events()
        ));
        let (mut old, mut last) = (Vec::new(), after);
        let found = link.fetch(&select, &[i64::from(limit).into()]).await?;
        let more = found.len() >= limit as usize;
        for mut fields in found {
            last = uuid(&fields.text()?)?;
            old.extend(fields.optional_integer()?.map(|_| last));
        }
        drop(link);
        if !old.is_empty() {
            let mut work = self.backend.begin().await?;
            let delete = words.passing(&format!("DELETE FROM {} WHERE id IN ({})", words.events(), listed(old.iter())));
            let deleted = work.link().change(&delete, &[]).await;
            finish(work, deleted).await?;
        }
        Ok(Pruned { events: old, last, more })
    }

    /// The time so long ago by the database's clock, in microseconds since 1970.
    async fn ago(&self, link: &mut dyn Link, time: Duration) -> Result<i64> {
        let now = link.fetch(&self.words.statement(&format!("SELECT {}", self.words.now)), &[]).await?;
        let now = now.into_iter().next().map_or_else(|| Err(unexpected("no clock")), |mut fields| fields.integer())?;
        Ok(now.saturating_sub(i64::try_from(time.as_micros()).unwrap_or(i64::MAX)))
    }
}
