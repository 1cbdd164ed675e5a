//! The way to a store: what it is opened with, and for which database.

use std::{
    any::Any,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::Mutex;

use crate::{
    config::{ColumnName, Database, DatabaseUrl, Events, Rule, RuleName},
    store::{Misfit, OpenError, Outbox, Store, mysql, postgres, sqlite, table},
};

/// The connections that the stores of several rules have in common: the first that is opened connects.
#[derive(Debug, Clone)]
pub struct Sharing {
    pub(super) rules: usize,
    /// Whether they are shards of rules: too many for each to have connections of its own.
    pub(super) is_of_shards: bool,
    pub(super) found: Arc<Mutex<Found>>,
}

/// What the first of several stores has found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) way: Option<Box<dyn Any + Send + Sync>>,
    /// What was wrong when it was last looked for, and when that was.
    pub(super) failed: Option<(Instant, OpenError)>,
}

impl Sharing {
    /// For so many rules.
    #[must_use]
    pub fn between(rules: usize) -> Self {
        Self { rules: rules.max(1), is_of_shards: false, found: Arc::default() }
    }

    /// For these rules, or shards of rules, all in one database. Where there are shards none has a connection of its own, and
    /// what they read of what falls due they read together.
    #[must_use]
    pub fn of<'n>(lines: impl Iterator<Item = &'n RuleName>) -> Self {
        let (count, is_of_shards) = lines.fold((0, false), |(count, any), line| (count + 1, any || line.shard().is_some()));
        Self { is_of_shards, ..Self::between(count) }
    }
}

impl Default for Sharing {
    /// With no other rule.
    fn default() -> Self {
        Self::between(1)
    }
}

/// What a store is to be opened with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Which orders it closes.
    pub rule: Arc<Rule>,
    /// Where they are.
    pub database: Database,
    /// What is recorded of closures.
    pub events: Events,
    /// What it has in common with the stores of other rules.
    pub sharing: Sharing,
    /// How long a statement may take that only reads.
    pub reading: Duration,
    /// Whether nothing may be written: sessions are read-only, and our own tables left out.
    pub(super) read_only: bool,
}

impl Settings {
    /// For closing a rule's orders.
    #[must_use]
    pub fn of(mut rule: Rule, database: &Database, events: &Events) -> Self {
        if rule.name.is_timers() {
            let now = match database.url {
                DatabaseUrl::Postgres(_) => postgres::NOW,
                DatabaseUrl::MySql(_) => mysql::NOW,
                DatabaseUrl::Sqlite(_) => sqlite::NOW,
            };
            rule.set.insert(ColumnName::fired_at(), now.into());
        }
        Self {
            rule: Arc::new(rule),
            database: database.clone(),
            events: events.clone(),
            sharing: Sharing::default(),
            reading: database.timeout.get(),
            read_only: false,
        }
    }

    /// The same of other orders.
    #[must_use]
    pub fn about(self, rule: Rule) -> Self {
        Self { rule: Arc::new(rule), ..self }
    }

    /// The same with these connections.
    #[must_use]
    pub fn sharing(self, sharing: &Sharing) -> Self {
        Self { sharing: sharing.clone(), ..self }
    }

    /// The same with statements that only read ended sooner, where that is sooner.
    #[must_use]
    pub fn reading_within(self, limit: Duration) -> Self {
        Self { reading: self.reading.min(limit), ..self }
    }

    /// How long to wait for a connection.
    pub(super) fn acquire_timeout(&self) -> Duration {
        self.database.timeout.get().min(Duration::from_secs(5))
    }
}

/// Connects to the database of these settings and reads its catalogue.
///
/// # Errors
/// [`OpenError::Misfit`] when the table does not fit the rule, [`OpenError::Store`] when the database can't be reached.
pub async fn open(settings: Settings) -> Result<Arc<dyn Store>, OpenError> {
    let (url, of_timers) = (settings.database.url.clone(), settings.rule.name.is_timers());
    let opened: Result<Arc<dyn Store>, OpenError> = match url {
        DatabaseUrl::Postgres(_) => table::Table::<postgres::Postgres>::open(settings).await.map(|table| Arc::new(table) as _),
        DatabaseUrl::MySql(_) => table::Table::<mysql::MySql>::open(settings).await.map(|table| Arc::new(table) as _),
        DatabaseUrl::Sqlite(_) => table::Table::<sqlite::Sqlite>::open(settings).await.map(|table| Arc::new(table) as _),
    };
    opened.map_err(|error| match error {
        OpenError::Store(error) => error.of(&url).into(),
        OpenError::Missing(Misfit(found)) if of_timers => OpenError::Missing(Misfit(format!(
            "timers.enabled is true, and their table is not there; run `order-closer migrate`, which makes it ({found})"
        ))),
        OpenError::Misfit(_) | OpenError::Missing(_) | OpenError::Zone(_) => error,
    })
}

/// The GRANTs, each a statement, of all rights to tables that this user lacks for closing. The table need not fit the
/// configuration, nor this user see it.
///
/// # Errors
/// As [`open`] says.
pub async fn lacking_rights(settings: &Settings) -> Result<Vec<String>, OpenError> {
    match settings.database.url {
        DatabaseUrl::Postgres(_) => table::lacking_rights::<postgres::Postgres>(settings).await,
        DatabaseUrl::MySql(_) => table::lacking_rights::<mysql::MySql>(settings).await,
        DatabaseUrl::Sqlite(_) => Ok(Vec::new()),
    }
}

/// Our own tables as the timers need them, which may be there without any orders, and may be missing.
///
/// # Errors
/// As [`open`] says.
pub async fn tables_of_timers(settings: &Settings) -> Result<Outbox, OpenError> {
    match settings.database.url {
        DatabaseUrl::Postgres(_) => table::own_tables::<postgres::Postgres>(settings).await,
        DatabaseUrl::MySql(_) => table::own_tables::<mysql::MySql>(settings).await,
        DatabaseUrl::Sqlite(_) => table::own_tables::<sqlite::Sqlite>(settings).await,
    }
}

/// Refuses to close orders without recording it when that is what the configuration asks for.
///
/// # Errors
/// Says that our tables are missing, or older than this program.
pub fn tables_for(events: &Events, store: &dyn Store) -> Result<(), OpenError> {
    let outbox = store.outbox();
    if !events.enabled || outbox.is_ready() {
        return Ok(());
    }
    Err(OpenError::Missing(Misfit(format!("events.enabled is true, but {}", outbox.missing()))))
}

/// What is wrong with a URL that the driver can't use. Its own words quote values of parameters, and nothing of a URL is quoted.
pub(super) fn unusable_url(_: sqlx::Error) -> Misfit {
    Misfit("database.url can't be used: the driver refuses the value of one of its parameters".into())
}
