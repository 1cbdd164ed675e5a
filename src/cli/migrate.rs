//! `order-closer migrate`: our own tables.

use std::collections::HashSet;

use crate::{
    app::settings_of,
    cli::{CommandResult, Exit, Failure, each_table, left_out::LeftOut, print, store_of},
    config::Config,
    outbox::{Migrated, MigrationScript},
    store::{StoreError, tables_of_timers},
};

pub(super) async fn run(config: &Config) -> CommandResult {
    let (mut done, mut left_out): (Vec<Migrated>, _) = (Vec::new(), LeftOut::default());
    for config in each_table(beside_which(config)) {
        if left_out.skips(&config) {
            continue;
        }
        match migrate(&config).await {
            // Tables of orders that stand side by side share ours.
            Ok(migrated) if done.is_empty() || migrated.from < migrated.to => done.push(migrated),
            Ok(_) => {}
            Err(failure) => left_out.add(&config.which, failure)?,
        }
    }
    done.iter().for_each(say);
    left_out.end(Exit::Done)
}

/// Those beside one orders table.
async fn migrate(config: &Config) -> Result<Migrated, Failure> {
    if config.which.name.is_timers() {
        return tables_of_timers(&settings_of(config)).await?.migrate().await.map_err(with_the_other_way);
    }
    let store = store_of(config).await?;
    let migrated = store.outbox().migrate().await.map_err(with_the_other_way)?;
    store.close().await;
    Ok(migrated)
}

/// The rules beside whose tables ours stand: that of the timers, whose table is one of ours, only where there is no other.
fn beside_which(config: &Config) -> Vec<Config> {
    let mut rules = config.of_each_rule();
    if rules.len() > 1 {
        rules.retain(|rule| !rule.which.name.is_timers());
    }
    rules
}

/// A user of the database who may close orders need not be one who may create tables.
fn with_the_other_way(error: StoreError) -> Failure {
    let is_refused = matches!(error, StoreError::Rejected(_) | StoreError::Refused { .. });
    let Failure { exit, message, .. } = error.into();
    let other_way = if is_refused { "; `order-closer migrate --print-sql` prints the SQL for a user who may create tables" } else { "" };
    Failure::new(exit, format!("{message}{other_way}"))
}

fn say(Migrated { from, to }: &Migrated) {
    print(&match from {
        0 => format!("the tables order_closer_* are created, version {to}"),
        _ if from < to => format!("the tables order_closer_* are upgraded from version {from} to {to}"),
        _ => format!("the tables order_closer_* are up to date, version {to}"),
    });
}

/// What the owner of the tables would run in our place; the script alone is the result.
pub(super) async fn print_sql(config: &Config) -> CommandResult {
    let (mut schemas, mut left_out) = (HashSet::new(), LeftOut::default());
    for config in each_table(beside_which(config)) {
        if left_out.skips(&config) {
            continue;
        }
        let script = match script(&config).await {
            Ok(script) => script,
            Err(failure) => {
                left_out.add(&config.which, failure)?;
                continue;
            }
        };
        // Tables of orders that stand side by side share ours.
        if schemas.insert((config.which.database.clone(), script.schema.clone())) {
            if let Some(database) = &config.which.database {
                print(&format!("-- in the database {database}"));
            }
            print(script.sql.trim_end());
        }
    }
    left_out.end(Exit::Done)
}

async fn script(config: &Config) -> Result<MigrationScript, Failure> {
    if config.which.name.is_timers() {
        return Ok(tables_of_timers(&settings_of(config)).await?.migration_script().await?);
    }
    let store = store_of(config).await?;
    let script = store.outbox().migration_script().await?;
    store.close().await;
    Ok(script)
}
