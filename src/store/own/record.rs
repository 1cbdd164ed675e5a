//! Recording events in the transaction that closes their orders.

use uuid::{NoContext, Timestamp, Uuid};

use super::{Link, Result, WITH_ANSWERS, WITH_RULES, WITH_TRACES, Words};
use crate::{
    config::{Events, RuleName},
    order::{OrderId, Trigger},
    store::{Carried, statement::Statement},
};

/// The most bytes of events that one statement writes, save where a single event has more: well within what the
/// servers take at once (MySQL's `max_allowed_packet`).
const PIECE: usize = 256 * 1_024;

/// What somebody has answered who was asked before a closure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// When, in microseconds since 1970 UTC; nothing where there was no answer.
    pub at: Option<i64>,
    /// What; or why there was no answer.
    pub answer: &'static str,
}

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
    /// What the event carries.
    pub carried: Carried,
    /// What was answered before, where somebody is asked.
    pub asked: Option<Asked>,
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

/// Whom events are for.
#[derive(Debug)]
enum Deliveries {
    /// Nobody.
    None,
    /// Each target of the configuration, by a statement on the events' ids.
    ToAll(Statement),
    /// The target that each event names, by a statement on the events.
    ToItsOwn(Statement),
}

/// Writes events and their deliveries.
#[derive(Debug)]
pub(crate) struct Recorder {
    events: Statement,
    deliveries: Deliveries,
    instance: String,
}

impl Recorder {
    /// For tables of this version.
    pub(super) fn new(words: &Words, settings: &Events, rule: &RuleName, version: i64) -> Self {
        let Words { now, new_events, new_ids, new_data, .. } = words;
        let (table, of_timers) = (&words.orders_table, rule.is_timers());
        let (traceparent, of_event) = if version >= WITH_TRACES { (", traceparent", ", e.traceparent") } else { ("", "") };
        let (rule, of_rule) = if version >= WITH_RULES { (", rule", format!(", '{rule}'")) } else { ("", String::new()) };
        let (answer, of_answer) = if version >= WITH_ANSWERS { (", asked_at, answer", ", e.asked_at, e.answer") } else { ("", "") };
        // In: ?1 events, ?2 the instance. Out: one row for each. Locks the new rows.
        let events = words.statement(&format!(
            "INSERT INTO {} (id, orders_table, order_id, deadline, closed_at, lateness, triggered_by, instance, data{traceparent}{rule}{answer}) \
             SELECT e.id, {table}, e.order_id, e.deadline, {now}, {now} - e.deadline, e.triggered_by, ?2, {new_data}{of_event}{of_rule}{of_answer} FROM {new_events}",
            words.events()
        ));
        let targets: Vec<String> = settings.targets().map(|target| format!("SELECT '{target}' AS target")).collect();
        let insert =
            format!("INSERT INTO {} (event_id, orders_table, target, attempts, due_at) SELECT e.id, {table}, ", words.deliveries());
        let deliveries = if of_timers {
            // In: ?1 events. Out: one row for each; an event without a target is refused. Locks the new rows.
            let target = words.new_target;
            Deliveries::ToItsOwn(words.statement(&format!("{insert}{target}, 0, {now} FROM {new_events}")))
        } else if targets.is_empty() {
            Deliveries::None
        } else {
            // In: ?1 their ids. Out: one row for each and each target. Locks the new rows.
            let targets = targets.join(" UNION ALL ");
            Deliveries::ToAll(words.statement(&format!("{insert}t.target, 0, {now} FROM {new_ids} CROSS JOIN ({targets}) AS t")))
        };
        Self { events, deliveries, instance: instance() }
    }

    /// Writes these events.
    pub(crate) async fn record(&self, link: &mut dyn Link, events: &[NewEvent]) -> Result<()> {
        // In their order, so that they are written side by side.
        let mut ids: Vec<Uuid> = events.iter().map(NewEvent::new_id).collect();
        ids.sort_unstable();
        for (list, ids) in lists(ids.iter().zip(events).map(|(id, event)| (format!("\"{id}\""), object(id, event)))) {
            link.change(&self.events, &[list.as_str().into(), self.instance.as_str().into()]).await?;
            match &self.deliveries {
                Deliveries::None => {}
                Deliveries::ToAll(deliveries) => drop(link.change(deliveries, &[ids.into()]).await?),
                Deliveries::ToItsOwn(deliveries) => drop(link.change(deliveries, &[list.into()]).await?),
            }
        }
        Ok(())
    }
}

fn object(id: &Uuid, event: &NewEvent) -> String {
    let NewEvent { order, deadline, now, trigger, carried: Carried { data, traceparent }, asked, .. } = event;
    serde_json::json!({
        "id": id.to_string(),
        "order_id": order.as_str(),
        "deadline": deadline,
        "triggered_by": trigger.name(),
        "data": data,
        "traceparent": traceparent,
        // Reckoned by this host from an earlier reading of that clock.
        "asked_at": asked.and_then(|asked| asked.at).map(|at| at.min(*now)),
        "answer": asked.map(|asked| asked.answer),
    })
    .to_string()
}

/// JSON arrays of these objects, each of at most [`PIECE`] bytes or of one object, with those of their ids; for no objects one
/// empty array, so that a rehearsal tries the statements.
fn lists(objects: impl Iterator<Item = (String, String)>) -> Vec<(String, String)> {
    let mut lists = vec![(String::from("["), String::from("["))];
    for (id, object) in objects {
        match lists.last_mut() {
            Some((list, ids)) if list.len() == 1 => {
                list.push_str(&object);
                ids.push_str(&id);
            }
            Some((list, ids)) if list.len() + object.len() < PIECE => {
                list.extend([",", &object]);
                ids.extend([",", &id]);
            }
            _ => lists.push((format!("[{object}"), format!("[{id}"))),
        }
    }
    for (list, ids) in &mut lists {
        list.push(']');
        ids.push(']');
    }
    lists
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_list_is_longer_than_a_piece_unless_a_single_event_is() {
        let objects: Vec<String> =
            [10, 90, 400, 90, 200, 70, 10].into_iter().map(|kib| format!("\"{}\"", "x".repeat(kib * 1_024))).collect();
        let lists = lists(objects.iter().enumerate().map(|(number, object)| (number.to_string(), object.clone())));
        let lengths: Vec<usize> = lists.iter().map(|(list, _)| list.len() / 1_024).collect();
        assert_eq!(lengths, [100, 400, 90, 200, 80]);
        let together: Vec<String> =
            lists.iter().flat_map(|(list, _)| serde_json::from_str::<Vec<String>>(list).unwrap_or_default()).collect();
        assert_eq!(together.len(), objects.len());
        let ids: Vec<&str> = lists.iter().map(|(_, ids)| ids.as_str()).collect();
        assert_eq!(ids, ["[0,1]", "[2]", "[3]", "[4]", "[5,6]"]);
    }

    #[test]
    fn no_events_are_one_empty_list() {
        assert_eq!(lists(std::iter::empty()), [("[]".into(), "[]".into())]);
    }
}
