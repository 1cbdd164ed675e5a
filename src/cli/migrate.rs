//! `order-closer migrate`: our own tables.

use crate::{
    cli::{CommandResult, Exit, each_table, print, store_of},
    config::Config,
    outbox::Migrated,
};

pub(super) async fn run(config: &Config) -> CommandResult {
    let mut done: Vec<Migrated> = Vec::new();
    for config in each_table(config.of_each_rule()) {
        let store = store_of(&config).await?;
        let migrated = store.outbox().migrate().await?;
        store.close().await;
        // Tables of orders that stand side by side share ours.
        if done.is_empty() || migrated.from < migrated.to {
            done.push(migrated);
        }
    }
    done.iter().for_each(say);
    Ok(Exit::Done)
}

fn say(Migrated { from, to }: &Migrated) {
    print(&match from {
        0 => format!("the tables order_closer_* are created, version {to}"),
        _ if from < to => format!("the tables order_closer_* are upgraded from version {from} to {to}"),
        _ => format!("the tables order_closer_* are up to date, version {to}"),
    });
}
