//! What the databases do differently. All that they do alike stands once, in [`super::table`].

use std::{fmt, time::Duration};

use async_trait::async_trait;
use sqlx::{Connection, Database, SqlStr, error::DatabaseError};

use crate::{
    config::{self, DatabaseUrl, Names, Rule},
    order::{IdKind, OrderId, Row, Shares},
    store::{
        Limits, OpenError, Settings, StoreError,
        between::Between,
        catalogue::{Described, Findings},
        connections::Plan,
        driver::{Columns, Driver},
        error::{Class, sort},
        hosts::Host,
        mapping::StatusLiterals,
        own::Words,
        session::Session,
        statement::Parameters,
        survey::SurveyWords,
        template::Template,
        zone::ServersZone,
    },
};

pub(super) type DriverOptions<D> = <<<D as Dialect>::Driver as Database>::Connection as Connection>::Options;
pub(super) type DriverRow<D> = <<D as Dialect>::Driver as Database>::Row;

/// One kind of database.
#[async_trait]
pub(super) trait Dialect: fmt::Debug + Send + Sync + Sized + 'static {
    /// Its driver.
    type Driver: Driver;
    /// A statement about a list of ids.
    type List: List<Self::Driver>;
    /// What its catalogue says of an orders table, beyond the [`Fragments`] made of it.
    type Table: fmt::Debug + Send + Sync;

    /// How parameters are spelled.
    const PARAMETERS: Parameters;

    /// Between what a branch of a UNION stands that has an ORDER BY and a LIMIT of its own.
    const BRACKETS: (&'static str, &'static str) = ("(", ")");

    /// Names of tables of the schema ?1 that are like ?2, where `!` escapes.
    const TABLES: &'static str;

    /// How it is asked what it holds.
    const SURVEY: &'static SurveyWords;

    /// Asks for the schema in which a bare name is looked for first.
    const HOME: &'static str;

    /// Begins a transaction on our own tables.
    const BEGIN: &'static str;
    /// The same of those who tell others: nobody waits until what they note is on the disk, where the server can leave that off for
    /// one transaction. What a server forgets in its end is told once more, under the same id.
    const BEGIN_OF_RELAYS: &'static str = Self::BEGIN;

    /// Commits a transaction.
    const COMMIT: &'static str = "COMMIT";

    /// Checks at once what would be checked at the commit, where there is such a thing.
    const CHECK_DEFERRED: Option<&'static str> = None;

    /// Makes a session refuse whatever would write.
    const READ_ONLY: &'static str;

    /// Whether a statement that fails leaves its transaction to a savepoint or to nothing.
    const FAILS_WHOLE: bool = false;

    /// Whether a statement that waits for a lock ends by its own time limit ([`Limits::statement`]).
    const LIMITED_BY_TIME: bool = false;

    /// Says what a host is: its last row has a number, 0 where it takes writes from everybody who may write, and the number of its
    /// timeline, NULL where it counts none.
    const STANDING: &'static str;

    /// The first of these alone, which any server of this kind answers. Locks nothing.
    const IS_STANDBY: &'static str;

    /// How to connect to the host of a URL.
    ///
    /// # Errors
    /// What in the URL the driver does not take.
    fn options(settings: &Settings, url: &DatabaseUrl) -> Result<DriverOptions<Self>, OpenError>;

    /// Reads the settings, asks the server what no pooled session can tell, and says how its sessions are set up.
    ///
    /// # Errors
    /// What in the settings, or about the server, rules it out.
    async fn plan(settings: &Settings, host: &Host<Self>) -> Result<(Self, Plan), OpenError>;

    /// What the error of the first connection means.
    fn refused(_database: &config::Database, error: sqlx::Error) -> OpenError {
        sorted::<Self>(error).into()
    }

    /// Makes connections to come read times without a zone as the first one did, where they do not anyway.
    fn keeping_zone(&self, options: DriverOptions<Self>) -> DriverOptions<Self> {
        options
    }

    /// The server's own zone as [`Self::plan`] found it, if it is what our sessions read times by.
    fn servers_zone(&self) -> Option<&ServersZone> {
        None
    }

    /// Asks this host for its own zone, over a connection that sets none.
    ///
    /// # Errors
    /// As the database says, sorted.
    async fn servers_zone_now(&self, _: &Host<Self>) -> Result<Option<ServersZone>, StoreError> {
        Ok(None)
    }

    /// The condition that an order is of one of these shares, where its id is a whole number of at most 64 bits.
    fn is_of(shares: Shares, id: &str) -> String {
        shares.condition(id, |number| number.to_string(), |share| format!("({share})"))
    }

    /// The beginning of a transaction that closes, and in the same trip its proof ([`Self::proof`]), where the server does
    /// not prove it by beginning.
    fn begin(limits: Limits, refused: bool) -> SqlStr;

    /// What another connection runs to end a statement of the session whose transaction has begun with these rows, where the server
    /// ends none that writes.
    fn kill(_begun: &[<Self::Driver as Database>::Row]) -> Option<SqlStr> {
        None
    }

    /// Makes the server end each further statement of a transaction that takes longer, where [`Self::begin`] has not.
    fn limit_statements(_: Duration) -> Option<SqlStr> {
        None
    }

    /// Statements whose last row, if there is one, has a number: 0 where the server can be written. `refused` says that it
    /// has lately refused that.
    fn proof(refused: bool) -> &'static str;

    /// Sorts an error by its code.
    fn classify(error: &dyn DatabaseError) -> Class;

    /// Whether an error says that the server takes no writes.
    fn refuses_to_write(error: &(dyn DatabaseError + 'static)) -> bool;

    /// What tells this database from another one that may have taken its place.
    ///
    /// # Errors
    /// As the database says, sorted; also where it may not be asked.
    async fn identity(&self, session: &mut Session<Self>) -> Result<String, StoreError>;

    /// For how long the server has been running, or a little longer; `None` where there is no server.
    ///
    /// # Errors
    /// As the database says, sorted.
    async fn running_for(&self, _: &mut Session<Self>) -> Result<Option<Duration>, StoreError> {
        Ok(None)
    }

    /// Reads the catalogue.
    ///
    /// # Errors
    /// [`crate::store::Misfit`] when the table does not fit the rule.
    async fn describe(&self, session: &mut Session<Self>, rule: &Rule) -> Result<(Self::Table, Fragments), OpenError>;

    /// The words for our own tables in this schema, beside this table.
    fn words(schema: &str, table: &str) -> Words;

    /// Reads what only `check` wants to know.
    ///
    /// # Errors
    /// As the database says, sorted.
    async fn findings(&self, session: &mut Session<Self>, table: &Self::Table, fragments: &Fragments) -> Result<Findings, StoreError>;

    /// What this session shows of a proxy that stands between, where that can be asked.
    ///
    /// # Errors
    /// As the database says, sorted.
    async fn between(_: Session<Self>) -> Result<Option<Between>, StoreError> {
        Ok(None)
    }

    /// A table that a closure may write and that has no transactions, if there is one.
    ///
    /// # Errors
    /// As the database says, sorted.
    async fn without_transactions(&self, _: &mut Session<Self>, _: &Self::Table, _: &Rule) -> Result<Option<String>, StoreError> {
        Ok(None)
    }

    /// The GRANTs, each a statement, of all rights to tables that this user lacks for closing; none where there are no rights.
    ///
    /// # Errors
    /// As the database says, sorted.
    async fn lacking_rights(_: &mut Session<Self>, _: &Rule, _: &config::Events) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }

    /// A statement of ours on a list of ids, as its fragments are written.
    ///
    /// # Errors
    /// [`crate::store::Misfit`] for a filter that can't stand in it.
    fn list(table: &Self::Table, sql: String) -> Result<Self::List, OpenError>;

    /// A statement of the user's.
    fn user_list(table: &Self::Table, template: &Template) -> Self::List;

    /// Decodes the rows of these ids; see [`Fragments::batch`].
    ///
    /// # Errors
    /// [`StoreError::Rejected`] for what is no row of ours.
    fn batch(found: &[DriverRow<Self>], _ids: &[OrderId], locked: bool) -> Result<Batch, StoreError> {
        let row = |row| order_row(&mut Columns::<Self::Driver>::of(row), locked);
        let rows = found.iter().map(row).collect::<Result<_, _>>().map_err(sorted::<Self>)?;
        Ok(Batch { rows, has_triggers: true })
    }
}

impl Fragments {
    /// The condition, with its leading AND, that an order is of one of these shares; nothing where the database can't tell.
    pub(super) fn is_of<D: Dialect>(&self, shares: Shares) -> Option<String> {
        let IdKind::Integer { min, max } = self.id_kind else { return None };
        let is_signed = min >= i64::MIN.into() && max <= i64::MAX.into();
        let is_unsigned = min == 0 && max <= u64::MAX.into();
        (!shares.are_all() && (is_signed || is_unsigned)).then(|| format!(" AND {}", D::is_of(shares, &self.names.id)))
    }
}

/// The rows of a list of orders.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) rows: Vec<Row>,
    /// Whether the table may have triggers: one could give an order another status than it was set to.
    pub(super) has_triggers: bool,
}

/// Reads an order from its id, status, deadline and the clock.
pub(super) fn order_row<D: Driver>(columns: &mut Columns<'_, D>, locked: bool) -> Result<Row, sqlx::Error> {
    Ok(Row {
        id: OrderId::from_database(&columns.text()?),
        status: columns.optional_text()?,
        deadline: columns.optional_number()?,
        now: columns.number()?,
        locked,
    })
}

/// The text that is all that a statement answers.
pub(super) fn text<D: Dialect>(rows: &[DriverRow<D>]) -> Result<String, StoreError> {
    let row = rows.first().ok_or(sqlx::Error::RowNotFound);
    row.and_then(|row| Columns::<D::Driver>::of(row).text()).map_err(sorted::<D>)
}

/// Sorts an error of the driver.
pub(super) fn sorted<D: Dialect>(error: sqlx::Error) -> StoreError {
    sort(&error, D::classify)
}

/// A statement about a list of ids.
pub(super) trait List<D: Database>: fmt::Debug + Send + Sync {
    /// The longest list that it takes.
    const LONGEST: usize = usize::MAX;

    /// The statement for these ids.
    ///
    /// # Errors
    /// What can't be encoded.
    fn bound(&self, ids: &[OrderId]) -> Result<(SqlStr, D::Arguments), sqlx::Error>;
}

/// The SQL in which a dialect speaks of one orders table, from its catalogue. Parameters of the sweep are written `?1` and
/// `?2` (the last and the first deadline, in microseconds from now), `?3` (how many), `?4` and `?5` (the deadline and the id to
/// continue after).
#[derive(Debug)]
pub(super) struct Fragments {
    /// The quoted names.
    pub(super) names: Names,
    /// Which ids the column can hold.
    pub(super) id_kind: IdKind,
    /// The statuses as literals.
    pub(super) literals: StatusLiterals,
    /// The words for our own tables, which stand beside this one.
    pub(super) words: Words,
    /// The columns, for `check`.
    pub(super) described: Described,
    /// Whether a backslash escapes a quote in a literal.
    pub(super) escapes: bool,
    /// The beginning of the statement in microseconds since 1970.
    pub(super) now: &'static str,
    /// Whether the catalogue says that each id is there once.
    pub(super) id_is_unique: bool,
    /// Whether it says that of an id together with a deadline.
    pub(super) id_is_unique_with_deadline: bool,
    /// Where the table is partitioned by the deadline, the condition, with its leading AND, that it has passed within the
    /// last day or so, in a form by which partitions are pruned.
    pub(super) recent: Option<String>,
    /// The id as what only itself equals.
    pub(super) id_bytes: String,
    /// The id as text, and the same with the table's name before the column's.
    pub(super) id_text: String,
    pub(super) qualified_id_text: String,
    /// The status as text.
    pub(super) status_text: String,
    /// The deadline in microseconds since 1970; NULL without one.
    pub(super) deadline: String,
    /// The select list of the orders in a list, for [`Dialect::batch`], where it is not id, status, deadline and clock.
    pub(super) batch: Option<String>,
    /// What makes a statement on a list of ids use their index.
    pub(super) hint: String,
    /// The condition that an id is one of the list's, and not merely equal to one.
    pub(super) listed: String,
    /// What stands before a SELECT that locks its rows and skips locked ones; `None` where the transaction has locked
    /// everything.
    pub(super) locking: Option<&'static str>,
    /// For each unpaid status the condition that an order has it, in just that spelling: a collation takes 'PENDING' for
    /// 'pending', the judge does not, and the sweep would find such an order for ever. An index on the status serves.
    pub(super) swept: Vec<String>,
    /// The condition that an order has one of them; an index serves.
    pub(super) any_swept: String,
    /// The same in a form that no index serves and that proves no partial index's condition: by old statistics few orders
    /// are unpaid, and a planner would read all that are rather than find those of a list.
    pub(super) is_unpaid: String,
    /// The condition that the order has the closed status, likewise.
    pub(super) is_closed: String,
    /// The condition that its deadline has passed, likewise, with its leading AND; empty where nobody else can have written
    /// since its row was read.
    pub(super) is_due: String,
    /// The statement that closes what of a list is unpaid and due, and returns its rows, where there can be one.
    pub(super) close_due: Option<String>,
    /// Conditions that together find the rows whose deadline is real and in the window, none of them twice. An index
    /// on the deadline serves.
    pub(super) within: Vec<String>,
    /// The same for a further page.
    pub(super) still_within: Vec<String>,
    /// The condition that a row comes after the place to continue after.
    pub(super) after: String,
    /// The deadline's text for a [`crate::store::Cursor`].
    pub(super) cursor: String,
    /// The deadline's text for people.
    pub(super) stored: String,
    /// The condition that what stands in the id column is an id at all.
    pub(super) valid: String,
    /// By what the sweep is ordered.
    pub(super) order: String,
    /// The JSON object, as text, of the columns that events carry.
    pub(super) included: Option<String>,
    /// The same of what the question before closing carries.
    pub(super) asked: Option<String>,
    /// The trace that they go on with, as text.
    pub(super) traceparent: Option<String>,
}
