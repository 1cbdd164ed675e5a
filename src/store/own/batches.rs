//! Batches: the events of crowds, each in one row, until rows of events and deliveries are made of it.

use std::time::Duration;

use tokio::time::{Instant, timeout};
use tracing::debug;

use super::{
    Outbox, Result, VERSION, finish,
    record::{Given, WHOM, columns, insert_deliveries, insert_events},
    rows::Cell,
    unexpected,
};
use crate::store::{Fields, Link, driver::Value};

/// How long reading commands unpack at the most, and a daemon that stops.
const PATIENCE: Duration = Duration::from_secs(1);

/// Later than all times in our tables.
const NEVER: i64 = i64::MAX;

/// What came of unpacking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unpacked {
    /// There is no batch.
    Nothing,
    /// The oldest is younger than that.
    Waits,
    /// There are rows of so many events now; of none where somebody else was faster.
    Events(usize),
}

/// A batch, as it was written.
struct Batch {
    table: String,
    rule: String,
    recorded_at: i64,
    instance: String,
    targets: Vec<String>,
    events: Vec<Vec<Cell>>,
}

impl Batch {
    fn of(id: &str, mut fields: Fields) -> Result<Self> {
        let (table, rule, recorded_at, instance) = (fields.text()?, fields.text()?, fields.integer()?, fields.text()?);
        let (targets, events) = (fields.text()?, fields.text()?);
        let unreadable = |error: serde_json::Error| unexpected(&format!("a batch of events ({id}) that can't be read ({error})"));
        let targets = serde_json::from_str(&targets).map_err(unreadable)?;
        let events = serde_json::from_str(&events).map_err(unreadable)?;
        Ok(Self { table, rule, recorded_at, instance, targets, events })
    }

    /// An event and a target for each delivery.
    fn deliveries(&self) -> Vec<Vec<Cell>> {
        let delivery = |event: &Vec<Cell>, target: &String| event.first().map(|id| vec![id.clone(), Cell::text(Some(target))]);
        self.events.iter().flat_map(|event| self.targets.iter().filter_map(move |target| delivery(event, target))).collect()
    }
}

impl Outbox {
    /// Makes rows of the oldest batch of events, if it is no younger than `age`.
    ///
    /// One after the other, in the order in which they were written, so that events of one order stay in theirs: whoever comes
    /// while another makes rows waits for that.
    ///
    /// # Errors
    /// As the database says, sorted: then the batch waits as before.
    pub async fn unpack(&self, age: Duration) -> Result<Unpacked> {
        if !self.batches {
            return Ok(Unpacked::Nothing);
        }
        let words = &self.words;
        // Out: the oldest batch, and its age. Locks nothing.
        let oldest = words.statement(&format!(
            "SELECT CAST(e.id AS CHAR(36)), {} - e.recorded_at FROM {} e WHERE {} ORDER BY e.id LIMIT 1",
            words.now,
            words.batches(),
            words.ours("e.")
        ));
        let Some(mut oldest) = self.backend.read().await?.fetch(&oldest, &[]).await?.into_iter().next() else {
            return Ok(Unpacked::Nothing);
        };
        let (id, aged) = (oldest.text()?, oldest.integer()?);
        if u128::try_from(aged).unwrap_or(0) < age.as_micros() {
            return Ok(Unpacked::Waits);
        }
        let mut work = self.backend.begin().await?;
        let unpacked = self.unpack_in(work.link(), &id).await;
        finish(work, unpacked).await.map(Unpacked::Events)
    }

    async fn unpack_in(&self, link: &mut dyn Link, id: &str) -> Result<usize> {
        let (words, form) = (&self.words, self.words.rows);
        let this = format!("FROM {} WHERE id = {}", words.batches(), (words.event_id)("?1"));
        // In: ?1 the batch. Out: the batch. Locks nothing.
        let select = words.statement(&format!("SELECT orders_table, rule, recorded_at, instance, targets, events {this}"));
        let Some(batch) = link.fetch(&select, &[id.into()]).await?.into_iter().next() else { return Ok(0) };
        let batch = Batch::of(id, batch)?;
        // In: ?1 the batch. Out: 0 where somebody else has unpacked it meanwhile. Locks it.
        if link.change(&words.statement(&format!("DELETE {this}")), &[id.into()]).await? == 0 {
            return Ok(0);
        }
        let columns = columns(true);
        let given = |place: usize| format!("?{}", form.parameters(&columns) + place);
        let [table, rule, closed_at, instance] = [1, 2, 3, 4].map(given);
        let given = Given { table: &table, rule: Some(&rule), closed_at: &closed_at, instance: &instance };
        // In: from ?1 on events, then the table, the rule, the time, and the instance. Out: one row for each. Locks the new rows.
        let insert = words.statement(&insert_events(words, &columns, VERSION, &given));
        let Batch { table, rule, recorded_at, instance, events, .. } = &batch;
        let given: [Value; 4] = [table.as_str().into(), rule.as_str().into(), (*recorded_at).into(), instance.as_str().into()];
        link.change(&insert, &[form.bind(events, columns.len()), given.to_vec()].concat()).await?;
        let deliveries = batch.deliveries();
        if !deliveries.is_empty() {
            let [table, due_at] = [1, 2].map(|place| format!("?{}", form.parameters(&WHOM) + place));
            // In: from ?1 on events and targets, then the table, and the time. Out: one row for each. Locks the new rows.
            let insert = words.statement(&insert_deliveries(words, &table, &due_at, "e.target", &form.table(&WHOM)));
            let given: [Value; 2] = [batch.table.as_str().into(), (*recorded_at).into()];
            link.change(&insert, &[form.bind(&deliveries, WHOM.len()), given.to_vec()].concat()).await?;
        }
        Ok(events.len())
    }

    /// The condition, with its leading AND, that a delivery is older than all batches of its table; `row` is its table's alias with its dot.
    pub(crate) fn before_all_batches(&self, row: &str) -> String {
        if !self.batches {
            return String::new();
        }
        let batches = self.words.batches();
        format!(
            " AND {row}due_at < COALESCE((SELECT MIN(b.recorded_at) FROM {batches} b WHERE b.orders_table = {row}orders_table), {NEVER})"
        )
    }

    /// The same with all batches, as far as that comes in this time.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn unpack_all(&self, within: Duration) -> Result<()> {
        let began = Instant::now();
        while began.elapsed() < within && self.unpack(Duration::ZERO).await? != Unpacked::Nothing {}
        Ok(())
    }

    /// The same for whoever reads events, where somebody was killed before it could; as far as this user may.
    pub async fn unpack_what_is_left(&self) {
        match timeout(PATIENCE, self.unpack_all(PATIENCE)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => debug!(%error, "batches of events are left as they are"),
            Err(_) => debug!("batches of events are left as they are: the database takes too long"),
        }
    }

    /// Since when the oldest batch waits, in microseconds since 1970 UTC, where it does for longer than this.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn batches_wait_since(&self, longer: Duration) -> Result<Option<i64>> {
        if !self.batches {
            return Ok(None);
        }
        let words = &self.words;
        // In: ?1 how long. Out: one time, or NULL. Locks nothing.
        let select = words.statement(&format!(
            "SELECT MIN(recorded_at) FROM {} WHERE {} AND recorded_at < {} - ?1",
            words.batches(),
            words.ours(""),
            words.now
        ));
        let longer = i64::try_from(longer.as_micros()).unwrap_or(i64::MAX);
        let found = self.backend.read().await?.fetch(&select, &[longer.into()]).await?;
        found.into_iter().next().map_or(Ok(None), |mut fields| fields.optional_integer())
    }
}
