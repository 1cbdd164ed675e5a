//! What a database says about the orders table, as `check` reports it.

use std::time::Duration;

use serde::Serialize;

use crate::store::{
    driver::{Columns, Driver},
    mapping::{Column, Mapped},
    obstacles::Obstacle,
};

/// Everything that `check` asks a database.
#[derive(Debug, Clone, Serialize)]
pub struct Catalogue {
    /// Product and version.
    pub product: String,
    /// The database's clock.
    pub clock: ClockReading,
    /// The mapped columns: what each is for, its name and its type.
    pub columns: Vec<MappedColumn>,
    /// The zone in which this session reads times without a zone.
    pub time_zone: String,
    /// Whether the deadline column has no zone of its own, so that `time_zone` decides what it means.
    pub zone_matters: bool,
    /// What the orders table is.
    pub table: TableKind,
    /// Whether policies of the table decide which of its rows this user sees.
    pub row_security: bool,
    /// The index that serves the sweep.
    pub sweep_index: IndexAdvice,
    /// The index that serves the look-up by id.
    pub id_index: IndexAdvice,
    /// Whether that index is unique.
    pub id_is_unique: bool,
    /// Deadlines of unpaid orders, a few; first those that are understood as one.
    pub samples: Vec<SampleDeadline>,
    /// An unpaid order that the sweep comes across after its deadline only, for its text has a zone further east
    /// than the one by which the sweep goes.
    pub swept_late: Option<SampleDeadline>,
    /// Unpaid orders whose deadline is written in a way that deserves a word.
    pub odd_deadlines: Vec<OddDeadlines>,
}

/// How many orders there are of each kind; of a large table, among the last.
#[derive(Debug, Clone, Serialize)]
pub struct Census {
    /// The statuses, as the column prints them, each with its number of orders, the most frequent first.
    pub statuses: Vec<(Option<String>, i64)>,
    /// How many orders have an unpaid status, whether or not they pass `orders.filter`; no more than [`Census::COUNTED`].
    pub unpaid: i64,
    /// How many of these have a deadline that is not NULL.
    pub with_deadline: i64,
    /// Whether any of them passes the filter.
    pub passes_filter: bool,
}

impl Census {
    /// How many orders are counted at the most.
    pub const COUNTED: i64 = 10_000;
}

/// What the orders table is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TableKind {
    /// A table.
    Plain,
    /// A table in partitions, in which a unique index must have the columns by which it is partitioned.
    Partitioned,
    /// A view, whose indexes are those of the table beneath it.
    View,
}

/// A clock, read over a connection.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct ClockReading {
    /// What it said, in microseconds since 1970 UTC.
    pub micros: i64,
    /// How long the answer took; the reading is uncertain by that much.
    #[serde(skip)]
    pub round_trip: Duration,
}

/// One mapped column.
#[derive(Debug, Clone, Serialize)]
pub struct MappedColumn {
    /// The configuration key that names it.
    pub key: &'static str,
    /// Its name.
    pub name: String,
    /// Its type, as the database calls it.
    pub type_name: String,
}

/// An index that is there, or how to make one.
#[derive(Debug, Clone, Serialize)]
pub struct IndexAdvice {
    /// The name of the index that serves, if there is one.
    pub found: Option<String>,
    /// The statement that creates one; for a view, what the table beneath it needs.
    pub create: String,
}

/// One deadline of the table, as stored and as understood.
#[derive(Debug, Clone, Serialize)]
pub struct SampleDeadline {
    /// The order.
    pub id: String,
    /// The column's text.
    pub stored: String,
    /// The deadline in microseconds since 1970 UTC, with `deadline.plus` added; `None` if it is never due.
    pub deadline: Option<i64>,
}

/// Unpaid orders whose deadline, a text, is not written as it should be.
#[derive(Debug, Clone, Serialize)]
pub struct OddDeadlines {
    /// What is odd about it.
    pub oddity: Oddity,
    /// How many orders.
    pub count: u64,
    /// One of them.
    pub id: String,
    /// That one's text.
    pub stored: String,
}

/// What is odd about the text of a deadline.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Oddity {
    /// It means no time: such an order is never due.
    Unreadable,
    /// White space stands after it, and is passed over.
    Untrimmed {
        /// The statement that takes it away.
        trim: String,
    },
}

/// What a schema knows of its table without asking again.
#[derive(Debug, Clone)]
pub(super) struct Described {
    /// Id, status and deadline.
    pub(super) columns: [MappedColumn; 3],
    /// The names of all columns of the table.
    pub(super) names: Vec<String>,
    pub(super) time_zone: String,
    pub(super) zone_matters: bool,
    pub(super) obstacles: Vec<Obstacle>,
}

/// What a dialect asks its database for a [`Catalogue`].
#[derive(Debug)]
pub(super) struct Findings {
    pub(super) product: String,
    pub(super) table: TableKind,
    pub(super) row_security: bool,
    /// An order that the sweep comes across too late.
    pub(super) swept_late: Option<SampleDeadline>,
    pub(super) odd_deadlines: Vec<OddDeadlines>,
    pub(super) indexes: Vec<Index>,
    /// Whether a condition that a partial index implies is left out, and with it what its first column was for.
    pub(super) drops_implied: bool,
    /// The statement that creates an index for the sweep.
    pub(super) create_sweep_index: String,
    /// The statement that creates one on the id, unique where the table can have such a one.
    pub(super) create_id_index: String,
}

impl Described {
    pub(super) fn new<C: Column>(mapped: &Mapped<C>, time_zone: String, zone_matters: bool, obstacles: Vec<Obstacle>) -> Self {
        let column = |key, column: &C| MappedColumn { key, name: column.name().to_owned(), type_name: column.declared() };
        let Mapped { id, status, deadline, .. } = mapped;
        let columns = [column("orders.id", id), column("orders.status", status), column("orders.deadline.column", deadline)];
        Self { columns, names: mapped.names.clone(), time_zone, zone_matters, obstacles }
    }

    pub(super) fn catalogue(&self, clock: ClockReading, samples: Vec<SampleDeadline>, findings: Findings) -> Catalogue {
        let Findings {
            product,
            table,
            row_security,
            swept_late,
            odd_deadlines,
            indexes,
            drops_implied,
            create_sweep_index,
            create_id_index,
        } = findings;
        let [id, status, deadline] = self.columns.each_ref().map(|column| column.name.as_str());
        let name_of = |serves: &dyn Fn(&Index) -> bool| indexes.iter().find(|index| serves(index)).map(|index| index.name.clone());
        let create = |statement, columns: &[&str]| match table {
            TableKind::Plain | TableKind::Partitioned => statement,
            TableKind::View => format!("see that the table beneath the view has an index on ({})", columns.join(", ")),
        };
        Catalogue {
            product,
            clock,
            table,
            row_security,
            sweep_index: IndexAdvice {
                found: name_of(&|index| index.serves_sweep(status, deadline, drops_implied)),
                create: create(create_sweep_index, &[status, deadline, id]),
            },
            id_index: IndexAdvice { found: name_of(&|index| index.serves_id(id)), create: create(create_id_index, &[id]) },
            id_is_unique: indexes.iter().any(|index| index.makes_unique(id)),
            columns: self.columns.to_vec(),
            time_zone: self.time_zone.clone(),
            zone_matters: self.zone_matters,
            samples,
            swept_late,
            odd_deadlines,
        }
    }
}

impl SampleDeadline {
    /// Reads the statement [`super::statements::sample`].
    pub(super) fn read<D: Driver>(row: &D::Row) -> Result<Self, sqlx::Error> {
        let mut columns = Columns::<D>::of(row);
        Ok(Self { id: columns.text()?, stored: columns.text()?, deadline: columns.optional_number()? })
    }
}

/// An index of the table, as far as advice needs it.
#[derive(Debug, Clone)]
pub(super) struct Index {
    pub(super) name: String,
    pub(super) columns: Vec<String>,
    pub(super) unique: bool,
    /// Whether it covers only some rows.
    pub(super) partial: bool,
}

impl Index {
    /// Whether the sweep can read just what is due: unpaid orders in the order of their deadlines.
    pub(super) fn serves_sweep(&self, status: &str, deadline: &str, drops_implied: bool) -> bool {
        let columns: Vec<&str> = self.columns.iter().map(String::as_str).collect();
        let by_status = columns.starts_with(&[status, deadline]) && !(self.partial && drops_implied);
        by_status || (self.partial && columns.starts_with(&[deadline]))
    }

    /// Whether an order is found by its id.
    pub(super) fn serves_id(&self, id: &str) -> bool {
        self.columns.first().is_some_and(|first| first == id) && !self.partial
    }

    /// Whether it allows each id only once.
    pub(super) fn makes_unique(&self, id: &str) -> bool {
        self.unique && !self.partial && self.columns.len() == 1 && self.serves_id(id)
    }

    /// Whether it allows each id only once with each deadline.
    pub(super) fn makes_unique_with(&self, id: &str, deadline: &str) -> bool {
        let has = |name: &str| self.columns.iter().any(|column| column == name);
        self.unique && !self.partial && self.columns.len() == 2 && has(id) && has(deadline)
    }
}
