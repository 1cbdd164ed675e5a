//! Creating and upgrading our own tables. Two that do it at the same time wait for each other; whoever
//! comes second finds nothing left to do. Busy tables are asked for again and again, so that closures, which need them
//! too, wait for a migration only briefly.
//!
//! A migration only adds, so that daemons of the version before go on working beside it.

use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, SqlSafeStr};

use super::Result;
use crate::store::{Link, Outbox, StoreError, TABLES_VERSION as VERSION, Words, applied, finish, own_rights, unexpected};

/// What a migration would do, for somebody else to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationScript {
    /// The version that it is for; 0 if there are no tables.
    pub from: i64,
    /// The version that it leads to.
    pub to: i64,
    /// Whose tables: those that stand in this schema.
    pub schema: String,
    /// SQL for the database's own client, to be run as the owner of the orders table.
    pub sql: String,
}

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
        // Whoever may not create tables may still hear that there is nothing to do.
        if self.version() >= VERSION {
            return Ok(Migrated { from: self.version(), to: self.version() });
        }
        let began = Instant::now();
        loop {
            match self.try_to_migrate().await {
                Err(StoreError::Conflict(_) | StoreError::Locked(_)) if began.elapsed() < PATIENCE => tokio::time::sleep(PAUSE).await,
                ended => return ended,
            }
        }
    }

    /// What [`Outbox::migrate`] would do, and the GRANTs that this user needs then, as a script; changes nothing.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn migration_script(&self) -> Result<MigrationScript> {
        let words = &self.words;
        let (first, last) = &words.script;
        let steps = (1..).zip(words.migrations).filter(|(version, _)| *version > self.version());
        let (from, to, schema) = (self.version(), VERSION, words.schema.clone());
        let mut sql = format!(
            "-- The tables order_closer_* in {}: from version {from} to {to}.\n{first}\n{};\n",
            schema.trim_end_matches('.'),
            create_migrations(words)
        );
        for (version, script) in steps {
            sql.extend([&filled_in(script, words), "\n", &note_migration(words, &version.to_string(), words.script_now), ";\n"]);
        }
        for grant in self.grants().await? {
            sql.extend([&grant, "\n"]);
        }
        sql.push_str(last);
        Ok(MigrationScript { from, to, schema, sql })
    }

    /// What this user needs of our tables; nothing where rights are those of files.
    async fn grants(&self) -> Result<Vec<String>> {
        let Some(user) = self.words.user else { return Ok(Vec::new()) };
        let mut link = self.backend.read().await?;
        let user = link.fetch(&self.words.statement(user), &[]).await?.into_iter().next();
        let user = user.map_or_else(|| Err(unexpected("no user")), |mut fields| fields.text())?;
        Ok(own_rights(&self.words.schema, &user))
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
        link.script(AssertSqlSafe(create_migrations(words)).into_sql_str()).await?;
        let from = applied(link, words).await?;
        let mut to = from;
        for (version, script) in (1..).zip(words.migrations).filter(|(version, _)| *version > from) {
            link.script(AssertSqlSafe(filled_in(script, words)).into_sql_str()).await?;
            link.change(&words.statement(&note_migration(words, "?1", words.now)), &[version.into()]).await?;
            to = version;
        }
        Ok(Migrated { from, to })
    }
}

fn create_migrations(words: &Words) -> String {
    format!("CREATE TABLE IF NOT EXISTS {} (version BIGINT NOT NULL PRIMARY KEY, applied_at BIGINT NOT NULL)", words.migrations_table())
}

/// Fails for a version that is there already.
fn note_migration(words: &Words, version: &str, now: &str) -> String {
    format!("INSERT INTO {} (version, applied_at) VALUES ({version}, {now})", words.migrations_table())
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
