//! The orders database, behind one trait.
//!
//! A [`Store`] reads what is due and opens transactions; a [`Transaction`] locks, reads and updates
//! rows. What to do with a row is decided elsewhere ([`crate::order::judge`]); the dialects only
//! speak SQL. All three sit the same exam: `tests/conformance`.
//!
//! Failures are sorted once, in [`StoreError`], by what to do next.

mod between;
mod catalogue;
mod close_sql;
mod connections;
mod cut_off;
mod dialect;
mod driver;
mod error;
mod halt;
mod hosts;
mod mapping;
mod mysql;
mod obstacles;
mod opening;
mod own;
mod paging;
mod payload;
mod postgres;
mod query;
mod rehearsal;
mod rights;
mod session;
mod shadow;
mod sqlite;
mod statement;
mod statements;
mod survey;
mod table;
mod tables;
mod template;
mod together;
mod zone;

pub use between::Between;
pub use catalogue::{Catalogue, Census, ClockReading, IndexAdvice, MappedColumn, OddDeadlines, Oddity, SampleDeadline, TableKind};
pub use error::{Misfit, OpenError, StoreError};
pub use hosts::HostSeen;
pub use obstacles::Obstacle;
pub use opening::{Settings, Sharing, lacking_rights, open, tables_for, tables_of_timers};
pub use own::{Asked, Neighbours, NewEvent, Outbox, Unpacked, VERSION as TABLES_VERSION, instance};
pub use payload::Carried;
pub use query::{Counted, Cursor, DueQuery, Inspected, Page, Window};
pub use rehearsal::{Rehearsed, rehearse, rehearse_on_an_order};
pub use rights::{Grants, grants};
pub use shadow::{Decision, Shadow};
pub use survey::{COUNTED, ColumnKind, Survey, SurveyedColumn, SurveyedTable};
pub use tables::find_tables;

pub(crate) use driver::Value;
#[cfg(test)]
pub(crate) use own::{Backend, Work};
pub(crate) use own::{Fields, Link, WITH_BATCHES, WITH_PAUSES, Words, applied, finish, listed, unexpected};
pub(crate) use rights::own_rights;
pub(crate) use statement::Statement;

use opening::unusable_url;

use std::{collections::HashMap, fmt, time::Duration};

use async_trait::async_trait;
use tokio::sync::watch;

use crate::{
    config::{Events, RuleName},
    order::{IdKind, OrderId, Row},
};

/// An orders table in some database.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync {
    /// The rule whose orders they are.
    fn rule(&self) -> &RuleName;

    /// The type of the id column.
    fn id_kind(&self) -> IdKind;

    /// The statuses of an unpaid order, as the status column prints them.
    fn unpaid(&self) -> &[String];

    /// Reads the table's catalogue again, and makes the statements of transactions to come from that: an index may have
    /// been renamed, a column widened.
    ///
    /// # Errors
    /// As [`open`].
    async fn refresh(&self) -> Result<(), OpenError>;

    /// What tells this database from every other one, over whatever connection and by whatever name it is reached. It changes
    /// when another takes its place.
    ///
    /// # Errors
    /// As the database says, sorted.
    async fn identity(&self) -> Result<String, StoreError>;

    /// Whether it is another database than when this was asked last, or when the store was opened: a restored backup, or
    /// a standby that took over.
    ///
    /// # Errors
    /// As the database says, sorted.
    async fn is_another(&self) -> Result<bool, StoreError>;

    /// For how long the database's server has been running, or a little longer; `None` where there is no server. A copy of its files
    /// that was put in their place is no other database, and began with a start.
    ///
    /// # Errors
    /// As the database says, sorted.
    async fn running_for(&self) -> Result<Option<Duration>, StoreError>;

    /// Which turn of hosts it is, where the URL names several: another number since another host is used.
    fn turn(&self) -> u64;

    /// Asks each host of the URL what it is now; nothing where there is only one.
    async fn look_at_hosts(&self) -> Vec<HostSeen>;

    /// The names of the table's columns.
    fn columns(&self) -> Vec<String>;

    /// What the catalogue, when it was last read, told of the table that may keep orders from closing.
    fn obstacles(&self) -> Vec<Obstacle>;

    /// Makes one connection, beside those that are in use, and shows that the database takes writes; within a second.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] with what keeps it from that.
    async fn reach(&self) -> Result<(), StoreError>;

    /// Begins a transaction, READ COMMITTED where the database has a choice, whose statements end within these limits.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when no connection can be had, [`StoreError::Locked`] when another transaction holds the
    /// whole database.
    async fn begin(&self, limits: Limits) -> Result<Box<dyn Transaction>, StoreError>;

    /// Reads one page of unpaid orders whose deadlines are in a window. Locks nothing.
    ///
    /// # Errors
    /// As the database says, sorted.
    async fn due(&self, query: &DueQuery) -> Result<Page, StoreError>;

    /// Counts the unpaid orders whose deadlines are in a window. Locks nothing.
    ///
    /// # Errors
    /// As the database says, sorted.
    async fn count(&self, window: Window) -> Result<Counted, StoreError>;

    /// Counts them in the order of their deadlines, and ends at `most`: an index gives no more than those. Locks nothing.
    ///
    /// # Errors
    /// As the database says, sorted.
    async fn count_up_to(&self, window: Window, most: u32) -> Result<u64, StoreError>;

    /// The same as [`Store::count`] of whatever is overdue now.
    ///
    /// # Errors
    /// As the database says, sorted.
    async fn count_overdue(&self) -> Result<u64, StoreError> {
        Ok(self.count(Window::overdue(None)).await?.orders)
    }

    /// An order that this rule and another one take, if there is one; of two rules the first by name asks. Locks nothing.
    ///
    /// # Errors
    /// As the database says, sorted.
    async fn claimed_twice(&self) -> Result<Option<Claim>, StoreError>;

    /// How many orders have an unpaid status of this rule, and are taken neither by it nor by another rule of the table; no more
    /// than [`Census::COUNTED`]. Locks nothing.
    ///
    /// # Errors
    /// As the database says, sorted.
    async fn count_untaken(&self) -> Result<u64, StoreError>;

    /// Reads the database's clock.
    ///
    /// # Errors
    /// As the database says, sorted.
    async fn clock(&self) -> Result<ClockReading, StoreError>;

    /// Whether the server takes writes from everybody who may write: no standby does, and none that was made read-only. Locks nothing.
    ///
    /// # Errors
    /// As the database says, sorted.
    async fn takes_writes(&self) -> Result<bool, StoreError>;

    /// Reads what `check` reports: version, clock, columns, indexes, rights, a sample deadline.
    ///
    /// # Errors
    /// As the database says, sorted.
    async fn catalogue(&self) -> Result<Catalogue, StoreError>;

    /// What stands between the daemon and its database, where anything is seen of it.
    ///
    /// # Errors
    /// As the database says, sorted.
    async fn between(&self) -> Result<Option<Between>, StoreError> {
        Ok(None)
    }

    /// Counts orders of each kind: all of a small table, some of a large one. Locks nothing.
    ///
    /// # Errors
    /// As the database says, sorted; a table without indexes may be too large to be counted in time.
    async fn census(&self) -> Result<Census, StoreError>;

    /// Reads the rows of these orders as last committed, outside of any transaction, those included that `orders.filter`
    /// hides. Locks nothing.
    ///
    /// # Errors
    /// As the database says, sorted.
    async fn look(&self, ids: &[OrderId]) -> Result<Vec<Row>, StoreError>;

    /// Reads every row of this order as [`Store::look`] does, with what only people want to know. Locks nothing.
    ///
    /// # Errors
    /// As the database says, sorted.
    async fn inspect(&self, id: &OrderId) -> Result<Vec<Inspected>, StoreError>;

    /// The columns with the id, the status and the deadline.
    fn mapped(&self) -> [MappedColumn; 3];

    /// The zone in which times without one are read.
    fn time_zone(&self) -> String;

    /// Reads as [`Store::look`] does, of orders alone, and what the question before closing carries of each: the columns that the
    /// configuration names, as a JSON object.
    ///
    /// # Errors
    /// As the database says, sorted.
    async fn asked_about(&self, ids: &[OrderId]) -> Result<Vec<(Row, String)>, StoreError>;

    /// Whether the deadline column has no zone of its own, so that it depends on the session's what a deadline means.
    fn zone_matters(&self) -> bool;

    /// Asks the server, over a connection that sets no zone, whether it reads times without a zone otherwise than when the
    /// store was opened, or than our tables remember, and says how. While it does, closing is stopped: [`Store::begin`] and
    /// [`Store::reach`] say that the store is unavailable, and why. `None` also where no deadline depends on it.
    ///
    /// # Errors
    /// As the database says, sorted: nothing is known then, and nothing changes.
    async fn zone_changed(&self) -> Result<Option<String>, StoreError>;

    /// What [`Store::zone_changed`] would say, for whoever only wants to know: nothing is noted, and nothing stopped.
    ///
    /// # Errors
    /// As the database says, sorted.
    async fn zone_differs(&self) -> Result<Option<String>, StoreError>;

    /// Why closing is stopped, while it is.
    fn halted(&self) -> watch::Receiver<Option<String>>;

    /// A table that a closure may write and that has no transactions, if there is one: what is written there is never undone.
    ///
    /// # Errors
    /// As the database says, sorted.
    async fn without_transactions(&self) -> Result<Option<String>, StoreError>;

    /// Our own tables: events, deliveries, dead letters.
    fn outbox(&self) -> &Outbox;

    /// The same over as many connections of their own: for whoever must not keep closures waiting, nor wait for them. They
    /// belong to the runtime that uses them first, and are closed when they are dropped.
    fn outbox_apart(&self, connections: usize) -> Outbox;

    /// The pools of connections, as they are now.
    fn pools(&self) -> Vec<Pool>;

    /// Records further closures for the targets of these settings; what is recorded stays as it is.
    fn set_targets(&self, events: &Events);

    /// Closes all connections.
    async fn close(&self);
}

/// An order that two rules take, and so neither closes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The order.
    pub id: OrderId,
    /// The other rule.
    pub rule: RuleName,
}

/// How a transaction waits for a lock that another transaction holds, before it gives up with [`StoreError::Locked`]. Rows
/// of orders are never waited for, but by [`Transaction::close_due`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockWait {
    /// As long as a transaction of ours may take.
    Briefly,
    /// Hardly at all.
    Never,
    /// A second: for an order that was held again and again, perhaps each time by another transaction.
    Patiently,
}

/// How long the statements of a transaction may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How each waits for a lock.
    pub wait: LockWait,
    /// How long, unless it waits patiently, where the database counts so finely.
    pub lock: Duration,
    /// How long each may take at all before that counts as a lock, unless it waits patiently: for MariaDB and MySQL, which wait
    /// for locks by whole seconds.
    pub statement: Duration,
}

impl Limits {
    /// For a statement of which nothing is known.
    pub const BRIEF: Self = Self { wait: LockWait::Briefly, lock: Duration::from_millis(20), statement: Duration::from_secs(1) };
}

/// What an update of orders has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Updated {
    /// How many rows it changed.
    pub changed: u64,
    /// How many of the orders' rows have the closed status after it: a trigger may have set another.
    pub closed: u64,
}

/// An open transaction. Dropping it without [`Transaction::commit`] rolls it back.
#[async_trait]
pub trait Transaction: Send {
    /// Locks the rows of these orders and reads them, skipping rows that somebody else has locked.
    ///
    /// # Errors
    /// As the database says, sorted.
    async fn lock(&mut self, ids: &[OrderId]) -> Result<Vec<Row>, StoreError>;

    /// Reads the rows of these orders as last committed, without a lock.
    ///
    /// # Errors
    /// As the database says, sorted.
    async fn peek(&mut self, ids: &[OrderId]) -> Result<Vec<Row>, StoreError>;

    /// Locks, judges and updates by one statement, where the database and the table allow that: sets those
    /// of these orders that are unpaid and due to the closed status, and returns their rows, whose status
    /// and lock the statement itself has asked for. What it leaves out is for the three steps one by one.
    ///
    /// # Errors
    /// As the database says, sorted; [`StoreError::Locked`] when somebody holds one of the rows.
    async fn close_due(&mut self, ids: &[OrderId]) -> Result<Vec<Row>, StoreError>;

    /// Sets these orders, which must be locked and unpaid, to the closed status.
    ///
    /// # Errors
    /// As the database says, sorted.
    async fn update(&mut self, ids: &[OrderId]) -> Result<Updated, StoreError>;

    /// The same for orders that may not be due yet; for a rehearsal, which rolls back.
    ///
    /// # Errors
    /// As the database says, sorted.
    async fn update_early(&mut self, ids: &[OrderId]) -> Result<Updated, StoreError>;

    /// Lets the server end each further statement that takes longer, where it can and does not yet.
    ///
    /// # Errors
    /// As the database says, sorted.
    async fn limit_statements(&mut self, limit: Duration) -> Result<(), StoreError>;

    /// Checks at once what would be checked at the commit, where that can be: deferred constraints and triggers.
    ///
    /// # Errors
    /// As the database says, sorted.
    async fn check_deferred(&mut self) -> Result<(), StoreError>;

    /// How many of these orders have the closed status.
    ///
    /// # Errors
    /// As the database says, sorted.
    async fn count_closed(&mut self, ids: &[OrderId]) -> Result<u64, StoreError>;

    /// Whether closures are recorded as events: `events.enabled` is set, and our tables are there.
    fn records(&self) -> bool;

    /// Reads what the events of these orders are to carry: the columns that the configuration names, of orders that this transaction has closed. Nothing for an order that carries nothing.
    ///
    /// # Errors
    /// As the database says, sorted.
    async fn included(&mut self, ids: &[OrderId]) -> Result<HashMap<OrderId, Carried>, StoreError>;

    /// Runs the user's statements for these orders, which this transaction has closed.
    ///
    /// # Errors
    /// As the database says, sorted; [`StoreError::Rejected`] also when a statement changed another number of rows
    /// for an order than the configuration demands.
    async fn run_close_sql(&mut self, ids: &[OrderId]) -> Result<(), StoreError>;

    /// Records these closures, which must have been made in this transaction, as events with their
    /// deliveries. Does nothing unless [`Transaction::records`].
    ///
    /// # Errors
    /// As the database says, sorted.
    async fn record(&mut self, events: &[NewEvent]) -> Result<(), StoreError>;

    /// Commits.
    ///
    /// # Errors
    /// As the database says, sorted. After [`StoreError::Unavailable`] it may have committed.
    async fn commit(self: Box<Self>) -> Result<(), StoreError>;

    /// Rolls back, leaving the connection fit for further use.
    async fn rollback(self: Box<Self>);
}

/// A pool of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    /// What it is for.
    pub name: &'static str,
    /// How many connections there are.
    pub open: usize,
    /// How many of them nobody uses.
    pub idle: usize,
    /// How many there may be.
    pub limit: usize,
}
