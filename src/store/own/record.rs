//! Recording events in the transaction that closes their orders.
//!
//! A few are written as rows. A crowd is written in one piece, a batch, of which rows are made later ([`Outbox::unpack`]): the rows and
//! their entries in four indexes took as long as the closures.
//!
//! [`Outbox::unpack`]: super::Outbox::unpack

use std::sync::LazyLock;

use serde::Deserialize;
use uuid::{NoContext, Timestamp, Uuid};

use super::{
    Form, Link, OwnTables, Result, WITH_ANSWERS, WITH_RULES, WITH_TRACES, Words,
    rows::{Cell, Column, Kind, json, pieces},
};
use crate::{
    config::Events,
    order::{OrderId, Trigger},
    store::{Carried, StoreError, statement::Statement},
};

/// The most bytes of events that one statement writes, save where a single event has more: well within what the
/// servers take at once (MySQL's `max_allowed_packet`).
const PIECE: usize = 256 * 1_024;

/// So many events of one transaction are a crowd.
const CROWD: usize = 32;

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
pub fn instance() -> &'static str {
    static NAME: LazyLock<String> = LazyLock::new(|| format!("{}/{}", gethostname::gethostname().to_string_lossy(), std::process::id()));
    &NAME
}

/// What every event has; what some have; and whom they are for.
const ALWAYS: [Column; 5] =
    [("id", Kind::Uuid), ("order_id", Kind::Text(700)), ("deadline", Kind::Number), ("triggered_by", Kind::Text(16)), ("data", Kind::Long)];
const AT_TIMES: [Column; 3] = [("traceparent", Kind::Text(255)), ("asked_at", Kind::Number), ("answer", Kind::Text(16))];
pub(super) const WHOM: [Column; 2] = [("id", Kind::Uuid), ("target", Kind::Text(64))];

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
    /// Of a batch, where our tables can hold one.
    batch: Option<Statement>,
    /// The targets of the configuration, as a JSON array.
    targets: String,
    instance: &'static str,
}

impl Recorder {
    pub(super) fn new(tables: &OwnTables, settings: &Events) -> Self {
        let OwnTables { words, rule, version, .. } = tables;
        let Words { now, rows: form, orders_table: table, .. } = words;
        // To tell is what timers are for: that waits for nothing.
        let batches = tables.batches && !rule.is_timers();
        let events = [false, true].map(|whole| {
            let columns = columns(whole);
            let instance = format!("?{}", form.parameters(&columns) + 1);
            let rule = (*version >= WITH_RULES).then(|| format!("'{rule}'"));
            let insert =
                insert_events(words, &columns, *version, &Given { table, rule: rule.as_deref(), closed_at: now, instance: &instance });
            words.statement(&insert)
        });
        let names: Vec<&str> = settings.targets().collect();
        let deliveries = if rule.is_timers() {
            // In: from ?1 on ids and targets. Out: one row for each; an event without a target is refused. Locks the new rows.
            Deliveries::ToItsOwn(words.statement(&insert_deliveries(words, table, now, "e.target", &form.table(&WHOM))))
        } else if names.is_empty() {
            Deliveries::None
        } else {
            // In: from ?1 on ids. Out: one row for each and each target. Locks the new rows.
            let (ids, targets) = (form.table(&WHOM[..1]), names.iter().map(|target| format!("SELECT '{target}' AS target")));
            let from = format!("{ids} CROSS JOIN ({}) AS t", targets.collect::<Vec<_>>().join(" UNION ALL "));
            Deliveries::ToAll(words.statement(&insert_deliveries(words, table, now, "t.target", &from)))
        };
        // In: ?1 an id, ?2 the instance, ?3 the targets, ?4 the events. Out: one row. Locks it.
        let batch = batches.then(|| {
            words.statement(&format!(
                "INSERT INTO {} (id, orders_table, rule, recorded_at, instance, targets, events) \
                 SELECT {}, {table}, '{rule}', {now}, ?2, ?3, ?4",
                words.batches(),
                (words.event_id)("?1")
            ))
        });
        let targets = serde_json::to_string(&names).unwrap_or_default();
        Self { form: *form, events, deliveries, batch, targets, instance: instance() }
    }

    /// Writes these events.
    pub(crate) async fn record(&self, link: &mut dyn Link, events: &[NewEvent]) -> Result<()> {
        // In their order, so that they are written side by side.
        let mut ids: Vec<Uuid> = events.iter().map(NewEvent::new_id).collect();
        ids.sort_unstable();
        let is_rehearsal = events.is_empty();
        let is_crowd = self.batch.is_some() && events.len() >= CROWD;
        // A rehearsal tries all columns.
        let whole = is_rehearsal || is_crowd || events.iter().any(|event| event.asked.is_some() || event.carried.traceparent.is_some());
        let rows = ids.iter().zip(events).map(|(id, event)| row(id, event, whole)).collect();
        for rows in pieces(rows, PIECE) {
            if !is_crowd {
                self.write_rows(link, &rows, whole).await?;
            }
            if is_crowd || is_rehearsal {
                self.write_batch(link, &rows).await?;
            }
        }
        Ok(())
    }

    async fn write_rows(&self, link: &mut dyn Link, rows: &[Vec<Cell>], whole: bool) -> Result<()> {
        let mut values = self.form.bind(rows, columns(whole).len());
        values.push(self.instance.into());
        link.change(&self.events[usize::from(whole)], &values).await?;
        let (statement, columns) = match &self.deliveries {
            Deliveries::None => return Ok(()),
            Deliveries::ToAll(statement) => (statement, &WHOM[..1]),
            Deliveries::ToItsOwn(statement) => (statement, &WHOM[..]),
        };
        let whom: Vec<Vec<Cell>> = rows.iter().map(|row| whom(row, columns)).collect();
        link.change(statement, &self.form.bind(&whom, columns.len())).await.map(drop)
    }

    async fn write_batch(&self, link: &mut dyn Link, rows: &[Vec<Cell>]) -> Result<()> {
        let Some(batch) = &self.batch else { return Ok(()) };
        // A row that the tables refuse would be found when its batch is unpacked, and hold up all others.
        if let Some(misfit) = rows.iter().find_map(|row| misfit(row)) {
            return Err(StoreError::Rejected(format!("its event can't be recorded: {misfit}")));
        }
        // Known by its first event; of a rehearsal nothing stays.
        let id = match rows.first().and_then(|row| row.first()) {
            Some(Cell::Text(id)) => id.clone(),
            Some(Cell::Null | Cell::Number(_)) | None => Uuid::now_v7().to_string(),
        };
        link.change(batch, &[id.into(), self.instance.into(), self.targets.as_str().into(), json(rows).into()]).await.map(drop)
    }
}

/// What keeps a row from being one of our tables.
fn misfit(row: &[Cell]) -> Option<String> {
    row.iter().zip(columns(true)).find_map(|(cell, (name, kind))| match (cell, kind) {
        (Cell::Text(text), Kind::Text(most)) if text.chars().count() > usize::from(most) => {
            Some(format!("{name} is longer than {most} characters"))
        }
        (Cell::Null | Cell::Number(_) | Cell::Text(_), _) => None,
    })
}

pub(super) fn columns(whole: bool) -> Vec<Column> {
    ALWAYS.iter().chain(AT_TIMES.iter().filter(|_| whole)).copied().collect()
}

/// What all events of a statement have in common, as SQL.
pub(super) struct Given<'s> {
    pub(super) table: &'s str,
    /// Where our tables know rules.
    pub(super) rule: Option<&'s str>,
    pub(super) closed_at: &'s str,
    pub(super) instance: &'s str,
}

/// In: from ?1 on events, and then whatever is given as parameters. Out: one row for each. Locks the new rows.
pub(super) fn insert_events(words: &Words, columns: &[Column], version: i64, given: &Given<'_>) -> String {
    let Words { rows: form, new_data, .. } = words;
    let Given { table, rule, closed_at, instance } = given;
    let whole = columns.len() > ALWAYS.len();
    let (traceparent, of_event) = if whole && version >= WITH_TRACES { (", traceparent", ", e.traceparent") } else { ("", "") };
    let (rule, of_rule) = rule.map_or_else(Default::default, |rule| (", rule", format!(", {rule}")));
    let (answer, of_answer) = if whole && version >= WITH_ANSWERS { (", asked_at, answer", ", e.asked_at, e.answer") } else { ("", "") };
    format!(
        "INSERT INTO {} (id, orders_table, order_id, deadline, closed_at, lateness, triggered_by, instance, data{traceparent}{rule}{answer}) \
         SELECT e.id, {table}, e.order_id, e.deadline, {closed_at}, {closed_at} - e.deadline, e.triggered_by, {instance}, {new_data}{of_event}{of_rule}{of_answer} \
         FROM {}",
        words.events(),
        form.table(columns)
    )
}

/// In: from ?1 on whatever `from` takes, which has ids in a table called e, and then whatever is given as parameters. Out: one row for each.
/// Locks the new rows.
pub(super) fn insert_deliveries(words: &Words, table: &str, due_at: &str, target: &str, from: &str) -> String {
    format!(
        "INSERT INTO {} (event_id, orders_table, target, attempts, due_at) SELECT e.id, {table}, {target}, 0, {due_at} FROM {from}",
        words.deliveries()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_tables_would_refuse_is_found_before_it_is_in_a_batch() {
        let row = |order: String| vec![Cell::text(Some("an id")), Cell::Text(order), Cell::Number(1), Cell::text(Some("sweep"))];
        assert_eq!(misfit(&row("界".repeat(700))), None);
        assert_eq!(misfit(&row("界".repeat(701))).as_deref(), Some("order_id is longer than 700 characters"));
    }
}
