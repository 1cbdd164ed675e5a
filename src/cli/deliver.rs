//! `order-closer deliver`: what is due to be told, once; for cron, where no daemon runs.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    app::told_of,
    cli::{CommandResult, Exit, Failure, complain, each_table, events::tables, print, store_of, worst},
    config::Config,
    outbox::{Pass, Relay, couriers},
};

pub(super) async fn run(config: &Config) -> CommandResult {
    let mut exit = Exit::Done;
    for config in each_table(config.of_each_rule()) {
        let ended = deliver(&config).await?;
        exit = worst(exit, ended);
    }
    Ok(exit)
}

/// What is due of one orders table.
async fn deliver(config: &Config) -> CommandResult {
    let store = store_of(config).await?;
    tables(store.as_ref())?;
    let couriers = couriers(told_of(config)).map_err(|error| Failure::new(Exit::Configuration, error))?;
    let outbox = Arc::new(store.outbox_apart(couriers.len() + 1));
    if let Err(error) = outbox.unpack_all(Duration::MAX).await {
        complain(&format!("what was recorded of closures in batches can't be told yet: {error}"));
    }
    let (_recorded, recorded) = watch::channel(());
    let passes = couriers.into_iter().map(|courier| {
        let name = courier.target().name().to_owned();
        let relay = Relay {
            outbox: Arc::clone(&outbox) as _,
            courier,
            retry: config.events.retry.clone(),
            recorded: recorded.clone(),
            stop: CancellationToken::new(),
            grace: Duration::ZERO,
        };
        async move { (name, relay.run_once().await) }
    });
    let mut exit = Exit::Done;
    for (name, pass) in join_all(passes).await {
        match pass {
            Ok(Pass { delivered, failed, cut_short }) => {
                print(&format!("{name}: {delivered} delivered, {failed} failed"));
                if failed > 0 || cut_short {
                    exit = Exit::Unfinished;
                }
            }
            Err(error) => {
                complain(&format!("{name}: {error}"));
                exit = Exit::Unavailable;
            }
        }
    }
    store.close().await;
    Ok(exit)
}
