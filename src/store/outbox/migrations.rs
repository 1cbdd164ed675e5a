//! Creating and upgrading our own tables. Two that do it at the same time wait for each other; whoever
//! comes second finds nothing left to do.
//!
//! A migration only adds, so that daemons of the version before go on working beside it.

use sqlx::{AssertSqlSafe, SqlSafeStr};

use super::{Link, Outbox, Result, link::finish, words::Words};

/// The version of the tables that this program needs.
pub const VERSION: i64 = 1;

/// What a migration did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migrated {
    /// The version before; 0 if there were no tables.
    pub from: i64,
    /// The version now.
    pub to: i64,
}

/// The version of the tables; 0 without any.
pub(super) async fn version(link: &mut dyn Link, words: &Words) -> Result<i64> {
    let found = link.fetch(&words.statement(&words.find_tables), &[]).await?;
    if found.into_iter().next().map_or(Ok(0), |mut fields| fields.integer())? == 0 {
        return Ok(0);
    }
    applied(link, words).await
}

/// Reads the table of migrations, which must be there.
async fn applied(link: &mut dyn Link, words: &Words) -> Result<i64> {
    let select = words.statement(&format!("SELECT MAX(version) FROM {}", words.migrations_table()));
    let newest = link.fetch(&select, &[]).await?.into_iter().next();
    Ok(newest.map_or(Ok(None), |mut fields| fields.optional_integer())?.unwrap_or(0))
}

impl Outbox {
    /// Creates our tables, or upgrades them; does nothing when they are up to date.
    ///
    /// # Errors
    /// As the database says, sorted. What was done before stays done where a database can't take back the
    /// creation of a table, and is passed over the next time.
    pub async fn migrate(&self) -> Result<Migrated> {
        let mut work = self.backend.begin().await?;
        let result = self.migrate_in(work.link()).await;
        finish(work, result).await
    }

    async fn migrate_in(&self, link: &mut dyn Link) -> Result<Migrated> {
        for sql in self.words.lock_migrations {
            link.script((*sql).into_sql_str()).await?;
        }
        let migrated = self.apply(link).await;
        for sql in self.words.unlock_migrations {
            link.script((*sql).into_sql_str()).await?;
        }
        migrated
    }

    async fn apply(&self, link: &mut dyn Link) -> Result<Migrated> {
        let words = &self.words;
        let table = words.migrations_table();
        let create = format!("CREATE TABLE IF NOT EXISTS {table} (version BIGINT NOT NULL PRIMARY KEY, applied_at BIGINT NOT NULL)");
        link.script(AssertSqlSafe(create).into_sql_str()).await?;
        let from = applied(link, words).await?;
        let mut to = from;
        for (version, script) in (1..).zip(words.migrations).filter(|(version, _)| *version > from) {
            link.script(AssertSqlSafe(script.replace("{schema}", &words.schema)).into_sql_str()).await?;
            let note = words.statement(&format!("INSERT INTO {table} (version, applied_at) VALUES (?1, {})", words.now));
            link.change(&note, &[version.into()]).await?;
            to = version;
        }
        Ok(Migrated { from, to })
    }
}
