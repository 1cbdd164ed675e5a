//! Creating and upgrading our own tables. Two that do it at the same time wait for each other; whoever
//! comes second finds nothing left to do. Busy tables are asked for again and again, so that closures, which need them
//! too, wait for a migration only briefly.
//!
//! A migration only adds, so that daemons of the version before go on working beside it.

use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, SqlSafeStr};

use super::Result;
use crate::store::{Link, Outbox, StoreError, Words, applied, finish};

/// For how long to ask for tables, or for the right to migrate, that somebody else has; and how often.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(100);

/// What a migration did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migrated {
    /// The version before; 0 if there were no tables.
    pub from: i64,
    /// The version now.
    pub to: i64,
}

impl Outbox {
    /// Creates our tables, or upgrades them; does nothing when they are up to date.
    ///
    /// # Errors
    /// As the database says, sorted; [`StoreError::Conflict`] or [`StoreError::Locked`] when somebody else migrates, or is
    /// in the way, for too long. What was done before stays done where a database can't take back the change of a table,
    /// and is passed over the next time.
    pub async fn migrate(&self) -> Result<Migrated> {
        let began = Instant::now();
        loop {
            match self.try_to_migrate().await {
                Err(StoreError::Conflict(_) | StoreError::Locked(_)) if began.elapsed() < PATIENCE => tokio::time::sleep(PAUSE).await,
                ended => return ended,
            }
        }
    }

    async fn try_to_migrate(&self) -> Result<Migrated> {
        let mut work = self.backend.begin().await?;
        let migrated = self.migrate_in(work.link()).await;
        finish(work, migrated).await
    }

    async fn migrate_in(&self, link: &mut dyn Link) -> Result<Migrated> {
        let lock = link.fetch(&self.words.statement(&self.words.lock_migrations), &[]).await?;
        let locked = lock.into_iter().next().map_or(Ok(None), |mut fields| fields.optional_integer())?;
        if locked != Some(1) {
            return Err(StoreError::Conflict("somebody else is creating or upgrading the tables order_closer_*".into()));
        }
        let migrated = self.apply(link).await;
        let unlocked = match self.words.unlock_migrations.clone() {
            Some(sql) => link.script(AssertSqlSafe(sql).into_sql_str()).await,
            None => Ok(()),
        };
        migrated.and_then(|migrated| unlocked.map(|()| migrated))
    }

    async fn apply(&self, link: &mut dyn Link) -> Result<Migrated> {
        let words = &self.words;
        let table = words.migrations_table();
        let create = format!("CREATE TABLE IF NOT EXISTS {table} (version BIGINT NOT NULL PRIMARY KEY, applied_at BIGINT NOT NULL)");
        link.script(AssertSqlSafe(create).into_sql_str()).await?;
        let from = applied(link, words).await?;
        let mut to = from;
        for (version, script) in (1..).zip(words.migrations).filter(|(version, _)| *version > from) {
            link.script(AssertSqlSafe(filled_in(script, words)).into_sql_str()).await?;
            let note = words.statement(&format!("INSERT INTO {table} (version, applied_at) VALUES (?1, {})", words.now));
            link.change(&note, &[version.into()]).await?;
            to = version;
        }
        Ok(Migrated { from, to })
    }
}

/// A migration with the names of one database. Each stands where its form fits: in a literal a quoted name would not.
fn filled_in(script: &str, words: &Words) -> String {
    let places = [
        ("{schema}", &words.schema),
        ("{schema_prefix}", &words.schema_prefix),
        ("{schema_name}", &words.schema_name),
        ("{orders_table}", &words.orders_table),
    ];
    places.into_iter().fold(script.to_owned(), |script, (place, name)| script.replace(place, name))
}
