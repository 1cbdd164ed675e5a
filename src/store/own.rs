//! The door to our own tables, which stand beside the orders: what a closure needs of them, and connections for all that
//! [`crate::outbox`] does with them.
//!
//! Statements on them are written once; what the dialects say differently they tell as [`words::Words`]. All times are the
//! database's, in microseconds since 1970 UTC.

mod batches;
mod facts;
mod link;
mod neighbours;
mod record;
mod rows;
mod words;

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use tracing::warn;

pub use batches::Unpacked;
pub use neighbours::Neighbours;
pub use record::{Asked, NewEvent, instance};

pub(crate) use link::{Fields, Link, Work, finish, unexpected};
pub(crate) use rows::Form;
pub(crate) use words::{Words, listed};

pub(super) use link::Open;
pub(super) use record::Recorder;

use crate::{
    config::{Events, RuleName},
    store::{Misfit, OpenError, StoreError},
};

type Result<T, E = StoreError> = std::result::Result<T, E>;

/// The newest version of our tables that this program knows.
pub const VERSION: i64 = 8;

/// The version from which on they hold what events and dead letters need.
const WITH_ORDERS_TABLE: i64 = 2;

/// The version from which on they hold facts.
const WITH_FACTS: i64 = 3;

/// The version from which on they hold pauses.
pub(crate) const WITH_PAUSES: i64 = 4;

/// The version from which on they say of which rule an event or a dead letter is.
const WITH_RULES: i64 = 4;

/// The version from which on events have traces.
const WITH_TRACES: i64 = 4;
/// The version from which on they hold the states of targets, and since when a delivery has been failing.
const WITH_TARGETS: i64 = 4;

/// The version from which on events have the answers of whoever was asked before.
const WITH_ANSWERS: i64 = 5;

/// The version from which on they hold the heartbeats of daemons that have no Redis.
const WITH_MEMBERS: i64 = 6;

/// The version from which on they hold batches of events.
pub(crate) const WITH_BATCHES: i64 = 8;

/// Where connections for our own tables come from.
#[async_trait]
pub(crate) trait Backend: fmt::Debug + Send + Sync {
    /// A connection that only reads.
    async fn read(&self) -> Result<Box<dyn Link>>;

    /// A transaction.
    async fn begin(&self) -> Result<Box<dyn Work>>;
}

/// What the store found of our own tables when it was opened.
#[derive(Debug, Clone)]
pub(super) struct OwnTables {
    words: Words,
    rule: RuleName,
    /// 0 without tables.
    version: i64,
    /// Whether events can be recorded in batches.
    batches: bool,
}

impl OwnTables {
    /// Fails when there are tables that this user may not even read: without the dead letters a sweep would bring
    /// what was given up, and none of the errors to come would say why.
    pub(super) async fn find(link: &mut dyn Link, words: Words, rule: &RuleName) -> Result<Self, OpenError> {
        let version = Self::readable_version(link, &words).await.map_err(|error| match error {
            StoreError::Rejected(reason) => OpenError::Missing(Misfit(format!(
                "there are tables order_closer_* in {}, but this user can't read them: {reason}; \
                 grant it SELECT, INSERT, UPDATE and DELETE on them",
                words.schema.trim_end_matches('.')
            ))),
            StoreError::Conflict(_)
            | StoreError::Locked(_)
            | StoreError::TimedOut(_)
            | StoreError::Unavailable(_)
            | StoreError::Refused { .. } => error.into(),
        })?;
        let batches = version >= WITH_BATCHES && Self::has_batches(link, &words).await?;
        Ok(Self { words, rule: rule.clone(), version, batches })
    }

    /// As if there were none.
    pub(super) fn left_out(words: Words, rule: &RuleName) -> Self {
        Self { words, rule: rule.clone(), version: 0, batches: false }
    }

    async fn readable_version(link: &mut dyn Link, words: &Words) -> Result<i64> {
        let version = version(link, words).await?;
        if version > 0 {
            for table in [words.events(), words.deliveries(), words.dead_letters()] {
                link.fetch(&words.statement(&format!("SELECT 1 FROM {table} WHERE 1 = 0")), &[]).await?;
            }
        }
        Ok(version)
    }

    async fn has_batches(link: &mut dyn Link, words: &Words) -> Result<bool, OpenError> {
        match link.fetch(&words.statement(&format!("SELECT 1 FROM {} WHERE 1 = 0", words.batches())), &[]).await {
            Ok(_) => Ok(true),
            // Events are recorded all the same.
            Err(StoreError::Rejected(reason)) => {
                warn!(
                    reason,
                    fix = "grant SELECT, INSERT and DELETE on order_closer_batches",
                    "crowds of events are recorded row by row, which takes longer"
                );
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Whether they have what events and dead letters need. A newer version has all that the older ones had.
    fn usable(&self) -> bool {
        self.version >= WITH_ORDERS_TABLE
    }

    /// The condition, with its leading AND, that an order, whose id as text is given, is no dead letter.
    pub(super) fn not_dead(&self, id: &str) -> String {
        if !self.usable() {
            return String::new();
        }
        let dead = format!("{}{}", self.words.ours("dead."), of_rule(&self.rule, self.version, "dead."));
        self.words.not_dead(&dead, id)
    }

    /// Who records events, if that is wanted and possible.
    pub(super) fn recorder(&self, settings: &Events) -> Option<Arc<Recorder>> {
        (settings.enabled && self.usable()).then(|| Arc::new(Recorder::new(self, settings)))
    }
}

/// The condition, with its leading AND, that a row is of this rule; `row` is the table's alias with its dot. All rows of
/// older tables are of the only rule there was.
fn of_rule(rule: &RuleName, version: i64, row: &str) -> String {
    match (version >= WITH_RULES, rule.as_str()) {
        // A rule's name has neither quotes nor backslashes.
        (true, rule) => format!(" AND {row}rule = '{rule}'"),
        (false, RuleName::ONLY) => String::new(),
        (false, _) => " AND 1 = 0".into(),
    }
}

/// The version of the tables; 0 without any.
async fn version(link: &mut dyn Link, words: &Words) -> Result<i64> {
    let found = link.fetch(&words.statement(&words.find_tables), &[]).await?;
    if found.into_iter().next().map_or(Ok(0), |mut fields| fields.integer())? == 0 {
        return Ok(0);
    }
    applied(link, words).await
}

/// Reads the table of migrations, which must be there.
pub(crate) async fn applied(link: &mut dyn Link, words: &Words) -> Result<i64> {
    let select = words.statement(&format!("SELECT MAX(version) FROM {}", words.migrations_table()));
    let newest = link.fetch(&select, &[]).await?.into_iter().next();
    Ok(newest.map_or(Ok(None), |mut fields| fields.optional_integer())?.unwrap_or(0))
}

/// Our own tables. What can be done with them stands in the room `outbox`.
#[derive(Debug, Clone)]
pub struct Outbox {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) words: Words,
    rule: RuleName,
    version: i64,
    batches: bool,
}

impl Outbox {
    pub(super) fn new(backend: impl Backend + 'static, tables: &OwnTables) -> Self {
        let OwnTables { words, rule, version, batches } = tables.clone();
        Self { backend: Arc::new(backend), words, rule, version, batches }
    }

    /// None, or one of this version, in a database of a test.
    #[cfg(test)]
    pub(crate) fn of_version(version: i64, backend: impl Backend + 'static, rule: &RuleName) -> Self {
        Self {
            backend: Arc::new(backend),
            words: super::sqlite::words("main", "orders"),
            rule: rule.clone(),
            version,
            batches: version >= WITH_BATCHES,
        }
    }

    /// The same tables, over other connections.
    pub(super) fn over(&self, backend: impl Backend + 'static) -> Self {
        Self { backend: Arc::new(backend), ..self.clone() }
    }

    /// The same, and the rows of these tables as well.
    #[must_use]
    pub fn with_neighbours(mut self, neighbours: &Neighbours) -> Self {
        self.words.neighbours = Some(neighbours.clone());
        self
    }

    /// The shard of an event of this table.
    pub(crate) fn shard_of(&self, table: &str) -> Option<String> {
        match &self.words.neighbours {
            Some(neighbours) => neighbours.shard_of(table),
            None => self.rule.shard().map(str::to_owned),
        }
    }

    /// Where our tables are: the same place for all orders tables beside which they stand.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.words.schema
    }

    /// The version of the tables when the store was opened; 0 when there were none.
    #[must_use]
    pub fn version(&self) -> i64 {
        self.version
    }

    /// The rule whose orders and dead letters these are; events and deliveries are those of all rules of the table.
    #[must_use]
    pub fn rule(&self) -> &RuleName {
        &self.rule
    }

    /// The same tables, for the orders and dead letters of another rule.
    #[must_use]
    pub fn of_another_rule(&self, rule: &RuleName) -> Self {
        Self { rule: rule.clone(), ..self.clone() }
    }

    /// The condition that a dead letter of a table with this alias is one of our orders.
    pub(crate) fn ours_by_rule(&self, row: &str) -> String {
        format!("{}{}", self.words.ours(row), of_rule(&self.rule, self.version, row))
    }

    /// The orders table, as whose our tables know their rows.
    #[must_use]
    pub fn orders_table(&self) -> String {
        format!("{}{}", self.words.schema, self.words.orders_table)
    }

    /// Whether our tables say of which rule a row is.
    pub(crate) fn has_rules(&self) -> bool {
        self.version >= WITH_RULES
    }

    /// The rule of an event of a table called e, as its tables have it.
    pub(crate) fn rule_of_event(&self) -> String {
        if self.has_rules() { "e.rule".into() } else { format!("'{}'", RuleName::ONLY) }
    }

    /// The trace of an event of a table called e, as its tables have it.
    pub(crate) fn traceparent(&self) -> &'static str {
        if self.version >= WITH_TRACES { "e.traceparent" } else { "NULL" }
    }

    /// What was answered before the closure of an event of a table called e, likewise.
    pub(crate) fn answer(&self) -> &'static str {
        if self.version >= WITH_ANSWERS { "e.asked_at, e.answer" } else { "NULL, NULL" }
    }

    /// What is wrong with the tables that are not ready, and what makes them so.
    #[must_use]
    pub fn missing(&self) -> String {
        let schema = self.words.schema.trim_end_matches('.');
        match self.version {
            0 => format!("there are no tables order_closer_* in {schema} that this user may see; create them with: order-closer migrate"),
            version => format!(
                "the tables order_closer_* in {schema} have version {version}, and this program needs {VERSION}; \
                 upgrade them with: order-closer migrate"
            ),
        }
    }

    /// Whether the tables were there when the store was opened, and lack something that this program would use.
    #[must_use]
    pub fn is_outdated(&self) -> bool {
        (1..VERSION).contains(&self.version)
    }

    /// Whether they have room for heartbeats.
    pub(crate) fn knows_members(&self) -> bool {
        self.version >= WITH_MEMBERS
    }

    /// Whether they have room for the states of targets, and for since when a delivery has been failing.
    pub(crate) fn knows_targets(&self) -> bool {
        self.version >= WITH_TARGETS
    }

    /// The tables as they are by now: they may have been made or upgraded since the store was opened.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub(crate) async fn by_now(&self) -> Result<Self> {
        let mut link = self.backend.read().await?;
        let version = version(link.as_mut(), &self.words).await?;
        Ok(Self { version, ..self.clone() })
    }

    /// Whether the tables were there when the store was opened, with all that events and dead letters need.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.version >= WITH_ORDERS_TABLE
    }
}
