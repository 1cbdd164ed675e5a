//! `order-closer migrate`: our own tables.

use crate::{
    cli::{CommandResult, Exit, print},
    config::Config,
    outbox::Migrated,
    store,
};

pub(super) async fn run(config: &Config) -> CommandResult {
    let store = store::open(config).await?;
    let Migrated { from, to } = store.outbox().migrate().await?;
    store.close().await;
    print(&match from {
        0 => format!("the tables order_closer_* are created, version {to}"),
        _ if from < to => format!("the tables order_closer_* are upgraded from version {from} to {to}"),
        _ => format!("the tables order_closer_* are up to date, version {to}"),
    });
    Ok(Exit::Done)
}
