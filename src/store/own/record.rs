//! Recording events in the transaction that closes their orders.

use serde::Deserialize;
use uuid::{NoContext, Timestamp, Uuid};

use super::{
    Form, Link, Result, WITH_ANSWERS, WITH_RULES, WITH_TRACES, Words,
    rows::{Cell, Column, Kind, pieces},
};
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

/// What every event has; what some have; and what those of timers have.
const ALWAYS: [Column; 5] =
    [("id", Kind::Uuid), ("order_id", Kind::Text(700)), ("deadline", Kind::Number), ("triggered_by", Kind::Text(16)), ("data", Kind::Long)];
const AT_TIMES: [Column; 3] = [("traceparent", Kind::Text(255)), ("asked_at", Kind::Number), ("answer", Kind::Text(16))];
const WHOM: [Column; 2] = [("id", Kind::Uuid), ("target", Kind::Text(64))];

/// Whom events are for.
#[derive(Debug)]
enum Deliveries {
    /// Nobody.
    None,
    /// Each target of the configuration.
    ToAll(Statement),
    /// The target that each event names.
    ToItsOwn(Statement),
}

/// Writes events and their deliveries.
#[derive(Debug)]
pub(crate) struct Recorder {
    form: Form,
    /// Of what every event has, and of what some have as well.
    events: [Statement; 2],
    deliveries: Deliveries,
    instance: String,
}

impl Recorder {
    /// For tables of this version.
    pub(super) fn new(words: &Words, settings: &Events, rule: &RuleName, version: i64) -> Self {
        let Words { now, rows: form, .. } = words;
        let (table, of_timers) = (&words.orders_table, rule.is_timers());
        let events = [false, true].map(|whole| words.statement(&insert_events(words, rule, version, whole)));
        let targets: Vec<String> = settings.targets().map(|target| format!("SELECT '{target}' AS target")).collect();
        let insert =
            format!("INSERT INTO {} (event_id, orders_table, target, attempts, due_at) SELECT e.id, {table}, ", words.deliveries());
        let deliveries = if of_timers {
            // In: from ?1 on ids and targets. Out: one row for each; an event without a target is refused. Locks the new rows.
            Deliveries::ToItsOwn(words.statement(&format!("{insert}e.target, 0, {now} FROM {}", form.table(&WHOM))))
        } else if targets.is_empty() {
            Deliveries::None
        } else {
            // In: from ?1 on ids. Out: one row for each and each target. Locks the new rows.
            let (ids, targets) = (form.table(&WHOM[..1]), targets.join(" UNION ALL "));
            Deliveries::ToAll(words.statement(&format!("{insert}t.target, 0, {now} FROM {ids} CROSS JOIN ({targets}) AS t")))
        };
        Self { form: *form, events, deliveries, instance: instance() }
    }

    /// Writes these events.
    pub(crate) async fn record(&self, link: &mut dyn Link, events: &[NewEvent]) -> Result<()> {
        // In their order, so that they are written side by side.
        let mut ids: Vec<Uuid> = events.iter().map(NewEvent::new_id).collect();
        ids.sort_unstable();
        // A rehearsal, which has none, tries all columns.
        let whole = events.is_empty() || events.iter().any(|event| event.asked.is_some() || event.carried.traceparent.is_some());
        let columns = columns(whole).len();
        let rows = ids.iter().zip(events).map(|(id, event)| row(id, event, whole)).collect();
        for rows in pieces(rows, PIECE) {
            let mut values = self.form.bind(&rows, columns);
            values.push(self.instance.as_str().into());
            link.change(&self.events[usize::from(whole)], &values).await?;
            let (statement, columns) = match &self.deliveries {
                Deliveries::None => continue,
                Deliveries::ToAll(statement) => (statement, &WHOM[..1]),
                Deliveries::ToItsOwn(statement) => (statement, &WHOM[..]),
            };
            let whom: Vec<Vec<Cell>> = rows.iter().map(|row| whom(row, columns)).collect();
            link.change(statement, &self.form.bind(&whom, columns.len())).await?;
        }
        Ok(())
    }
}

fn columns(whole: bool) -> Vec<Column> {
    ALWAYS.iter().chain(AT_TIMES.iter().filter(|_| whole)).copied().collect()
}

/// In: from ?1 on events, and then the instance. Out: one row for each. Locks the new rows.
fn insert_events(words: &Words, rule: &RuleName, version: i64, whole: bool) -> String {
    let Words { now, rows: form, new_data, orders_table: table, .. } = words;
    let (traceparent, of_event) = if whole && version >= WITH_TRACES { (", traceparent", ", e.traceparent") } else { ("", "") };
    let (rule, of_rule) = if version >= WITH_RULES { (", rule", format!(", '{rule}'")) } else { ("", String::new()) };
    let (answer, of_answer) = if whole && version >= WITH_ANSWERS { (", asked_at, answer", ", e.asked_at, e.answer") } else { ("", "") };
    let columns = columns(whole);
    format!(
        "INSERT INTO {} (id, orders_table, order_id, deadline, closed_at, lateness, triggered_by, instance, data{traceparent}{rule}{answer}) \
         SELECT e.id, {table}, e.order_id, e.deadline, {now}, {now} - e.deadline, e.triggered_by, ?{}, {new_data}{of_event}{of_rule}{of_answer} \
         FROM {}",
        words.events(),
        form.parameters(&columns) + 1,
        form.table(&columns)
    )
}

/// An event in these columns.
fn row(id: &Uuid, event: &NewEvent, whole: bool) -> Vec<Cell> {
    let NewEvent { order, deadline, now, trigger, carried: Carried { data, traceparent }, asked, .. } = event;
    let mut row = vec![
        Cell::Text(id.to_string()),
        Cell::text(Some(order.as_str())),
        Cell::Number(*deadline),
        Cell::text(Some(trigger.name())),
        Cell::text(Some(data)),
    ];
    if whole {
        row.extend([
            Cell::text(traceparent.as_deref()),
            // Reckoned by this host from an earlier reading of that clock.
            Cell::number(asked.and_then(|asked| asked.at).map(|at| at.min(*now))),
            Cell::text(asked.map(|asked| asked.answer)),
        ]);
    }
    row
}

/// The id of an event, and the target that it names where there is a column for it.
fn whom(row: &[Cell], columns: &[Column]) -> Vec<Cell> {
    let [id, _, _, _, data, ..] = row else { return Vec::new() };
    let mut whom = vec![id.clone()];
    if let (Cell::Text(data), true) = (data, columns.len() > 1) {
        whom.push(Cell::text(target(data).as_deref()));
    }
    whom
}

/// The target that an event of a timer names. PostgreSQL would have to read all that the timer carries for that, and can't where
/// there is a `\u0000` in it.
fn target(data: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        target: String,
    }
    serde_json::from_str::<Named>(data).ok().map(|named| named.target)
}
