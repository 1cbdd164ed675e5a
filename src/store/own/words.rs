//! SQL that is written once, in the words of each dialect.

use uuid::Uuid;

use super::{Neighbours, rows::Form};
use crate::store::{
    driver::Value,
    statement::{Parameters, Statement, Writer},
};

/// What the dialects say differently.
#[derive(Debug, Clone)]
pub(crate) struct Words {
    /// The schema of our tables, quoted and with its dot.
    pub(crate) schema: String,
    /// The same, quoted once more: a literal to be put before the name of a table by SQL that writes SQL.
    pub(crate) schema_prefix: String,
    /// Its name as a literal.
    pub(crate) schema_name: String,
    /// The name of the orders table, as a literal: whose rows of our tables are ours.
    pub(crate) orders_table: String,
    /// The same name as our tables hold it.
    pub(crate) orders_table_name: String,
    /// The tables whose rows are ours, too, where we look after those of several shards.
    pub(crate) neighbours: Option<Neighbours>,
    /// Counts the tables of that schema that are called `order_closer_migrations`.
    pub(crate) find_tables: String,
    /// The beginning of the statement in microseconds since 1970.
    pub(crate) now: &'static str,
    pub(crate) parameters: Parameters,
    /// How new rows reach a statement.
    pub(crate) rows: Form,
    /// `e.data`, a JSON text, as the column of events holds it.
    pub(crate) new_data: &'static str,
    /// A table `e(place, new_id, new_kind, new_key, new_due, delay, new_target, new_data, new_generation)` from the parameter ?1, a JSON
    /// array of timers.
    pub(crate) new_timers: &'static str,
    /// `e.new_data`, a JSON text, as the column of timers holds it.
    pub(crate) new_timer_data: &'static str,
    /// The column of timers whose name is a reserved word.
    pub(crate) key: &'static str,
    /// What makes an INSERT of new timers change those that are there already, where it is no older registration and no
    /// repetition of what is over.
    pub(crate) renew: &'static str,
    /// `e.data`, likewise, as text.
    pub(crate) data_text: &'static str,
    /// An event's id from a parameter that is its text.
    pub(crate) event_id: fn(&str) -> String,
    /// The id of a dead order as text.
    pub(crate) dead_id: &'static str,
    /// The id of an order, given as text, as dead letters hold it.
    pub(crate) dead_key: fn(&str) -> String,
    /// What makes an INSERT change the dead letter that is there already.
    pub(crate) or_update: &'static str,
    /// What makes a statement find rows of the table that it follows, whatever the statistics say: deliveries by their events;
    pub(crate) by_event: &'static str,
    /// events by their orders;
    pub(crate) by_order: &'static str,
    /// deliveries by when they are due.
    pub(crate) by_due: &'static str,
    /// The beginning of a DELETE from a table of deliveries, up to WHERE, that finds them by their events.
    pub(crate) delete_by_event: fn(&str) -> String,
    /// What makes a SELECT lock its rows of a table called e.
    pub(crate) locking: &'static str,
    /// What makes a SELECT lock its rows and skip those that are locked.
    pub(crate) skip_locked: &'static str,
    /// Asks for the right to migrate, which one at a time has, and answers 1 if we have it; gives it back.
    pub(crate) lock_migrations: String,
    pub(crate) unlock_migrations: Option<String>,
    /// How a script of the migrations begins and ends, for the database's own client.
    pub(crate) script: (String, String),
    /// The same moment as `now` in words that the oldest such client knows.
    pub(crate) script_now: &'static str,
    /// Asks for this user as GRANT names it, where there are rights.
    pub(crate) user: Option<&'static str>,
    /// The migrations, the first of which leads to version 1.
    pub(crate) migrations: &'static [&'static str],
}

impl Words {
    pub(crate) fn events(&self) -> String {
        format!("{}order_closer_events", self.schema)
    }

    pub(crate) fn deliveries(&self) -> String {
        format!("{}order_closer_deliveries", self.schema)
    }

    pub(crate) fn batches(&self) -> String {
        format!("{}order_closer_batches", self.schema)
    }

    pub(crate) fn dead_letters(&self) -> String {
        format!("{}order_closer_dead_letters", self.schema)
    }

    pub(crate) fn targets(&self) -> String {
        format!("{}order_closer_targets", self.schema)
    }

    pub(crate) fn facts(&self) -> String {
        format!("{}order_closer_facts", self.schema)
    }

    pub(crate) fn pauses(&self) -> String {
        format!("{}order_closer_pauses", self.schema)
    }

    pub(crate) fn members(&self) -> String {
        format!("{}order_closer_members", self.schema)
    }

    pub(crate) fn timers(&self) -> String {
        format!("{}order_closer_timers", self.schema)
    }

    pub(crate) fn migrations_table(&self) -> String {
        format!("{}order_closer_migrations", self.schema)
    }

    /// The condition that a row of our tables belongs to our orders; `row` is the table's alias with its dot.
    pub(crate) fn ours(&self, row: &str) -> String {
        match self.neighbours.as_ref().map(Neighbours::literals) {
            Some(all) if all.len() > 1 => format!("{row}orders_table IN ({})", all.join(", ")),
            Some(_) | None => format!("{row}orders_table = {}", self.orders_table),
        }
    }

    /// The condition, with its leading AND, that an order is none of these dead letters, of a table called dead; `id` is its
    /// id as text.
    pub(crate) fn not_dead(&self, dead: &str, id: &str) -> String {
        let (table, id) = (self.dead_letters(), (self.dead_key)(id));
        format!(" AND NOT EXISTS (SELECT 1 FROM {table} dead WHERE {dead} AND dead.order_id = {id})")
    }

    /// A statement whose parameters are written `?1`, `?2`, and so on.
    pub(crate) fn statement(&self, sql: &str) -> Statement {
        Writer::new(self.parameters).with_parameters(sql).finish()
    }

    /// The inside of an IN list of at least one event id, as parameters from `?first` on, and their values. There are a few
    /// lengths of such lists, filled up with the last id, so that the statements are kept: on MySQL one that is not costs
    /// 40 ms, since the driver leaves Nagle's algorithm on, and nobody answers to the closing of a statement.
    pub(crate) fn event_ids(&self, first: usize, ids: &[Uuid]) -> (String, Vec<Value>) {
        const LENGTHS: [usize; 4] = [1, 8, 64, 512];
        let length = LENGTHS.into_iter().find(|length| ids.len() <= *length).unwrap_or(ids.len());
        let values = ids.iter().chain(std::iter::repeat_n(&ids[ids.len() - 1], length - ids.len()));
        let list = (first..first + length).map(|number| (self.event_id)(&format!("?{number}"))).collect::<Vec<_>>().join(", ");
        (list, values.map(|id| Value::Text(id.to_string())).collect())
    }

    /// A statement that is different each time, because a list of event ids stands in it.
    pub(crate) fn passing(&self, sql: &str) -> Statement {
        self.statement(sql).once()
    }
}

/// The inside of an IN list; at least one id.
pub(crate) fn listed<'i>(ids: impl Iterator<Item = &'i Uuid>) -> String {
    ids.map(|id| format!("'{id}'")).collect::<Vec<_>>().join(", ")
}
