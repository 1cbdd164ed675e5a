//! `order-closer migrate`: our own tables.

use std::collections::HashSet;

use crate::{
    cli::{CommandResult, Exit, Failure, each_table, print, store_of},
    config::Config,
    outbox::Migrated,
    store::{StoreError, tables_of_timers},
};

pub(super) async fn run(config: &Config) -> CommandResult {
    let mut done: Vec<Migrated> = Vec::new();
    for config in each_table(beside_which(config)) {
        let migrated = if config.which.name.is_timers() {
            tables_of_timers(&config).await?.migrate().await.map_err(with_the_other_way)?
        } else {
            let store = store_of(&config).await?;
            let migrated = store.outbox().migrate().await.map_err(with_the_other_way)?;
            store.close().await;
            migrated
        };
        // Tables of orders that stand side by side share ours.
        if done.is_empty() || migrated.from < migrated.to {
            done.push(migrated);
        }
    }
    done.iter().for_each(say);
    Ok(Exit::Done)
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
    let Failure { exit, message } = error.into();
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
    let mut schemas = HashSet::new();
    for config in each_table(beside_which(config)) {
        let script = if config.which.name.is_timers() {
            tables_of_timers(&config).await?.migration_script().await?
        } else {
            let store = store_of(&config).await?;
            let script = store.outbox().migration_script().await?;
            store.close().await;
            script
        };
        // Tables of orders that stand side by side share ours.
        if schemas.insert(script.schema.clone()) {
            print(script.sql.trim_end());
        }
    }
    Ok(Exit::Done)
}
