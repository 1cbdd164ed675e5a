//! `order-closer close`: these orders, now, if they are due.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    app::open_and_rehearse,
    cli::{CommandResult, Exit, Failure, complain, order_id, print, reconcile::clock_is_ahead, witness},
    close::{Bounds, Clearances, Closed, Closer, Looked, Outcome, Requested, Requests, UNDONE},
    config::Config,
    order::{OrderId, Printable},
    trigger::{PauseWatch, compare_clocks},
};

pub(super) async fn run(config: &Config, ids: &[String]) -> CommandResult {
    let store = open_and_rehearse(config).await?;
    let ids = ids.iter().map(|id| order_id(config, store.as_ref(), id)).collect::<Result<BTreeSet<_>, Failure>>()?;
    let bounds = Arc::new(Bounds::new(config.sweep.oldest.get()));
    if let Some(ahead) = compare_clocks(store.as_ref(), &config.redis, &bounds).await {
        complain(&clock_is_ahead(ahead));
    }
    let closer = Closer::within(store.clone(), bounds);
    let clearance = Arc::new(Clearances::default().and(witness(config, &store).await));
    let pauses = PauseWatch::of(&store, &CancellationToken::new());
    pauses.read().await?;
    let requests = Requests::new(pauses.gate, closer, clearance, Arc::default(), watch::Sender::new(()));
    let (mut looked, mut disputed, mut paused, mut unavailable) = (Vec::new(), 0, false, None);
    for id in &ids {
        match requests.close(id).await {
            Ok(Requested::Disputed(left)) => {
                disputed += 1;
                print(&waits(id, left));
            }
            Ok(Requested::Paused) => {
                paused = true;
                print("closing is paused, and nothing was looked at; `order-closer status` says why, `order-closer resume` ends that");
                break;
            }
            Ok(Requested::Looked(one)) => {
                print(&describe(&one));
                looked.push(one);
            }
            Err(error) => {
                unavailable = Some(error);
                break;
            }
        }
    }
    store.close().await;
    if let Some(error) = unavailable {
        let Failure { exit, message } = error.into();
        return Err(Failure::new(exit, format!("{} orders were not looked at: {message}", ids.len() - looked.len() - disputed)));
    }
    let stuck = paused
        || disputed > 0
        || looked.iter().any(|one| matches!(one.outcome, Outcome::Locked { .. } | Outcome::Rejected { .. } | Outcome::Undone));
    Ok(if stuck { Exit::Unfinished } else { Exit::Done })
}

/// What to say of an order whose key contradicts its row.
fn waits(id: &OrderId, time: Duration) -> String {
    let time = humantime::format_duration(Duration::from_secs(time.as_secs()));
    format!("{id}: due by its row, but its key is to expire in {time}, and it waits for that (orders.disputed)")
}

fn describe(Looked { pending, outcome }: &Looked) -> String {
    let id = &pending.id;
    match outcome {
        Outcome::Closed(Closed { lateness, .. }) => format!("{id}: closed, {:.3} s after its deadline", lateness.as_secs_f64()),
        Outcome::Settled { status: Some(status) } => format!("{id}: left as it is, its status is {}", Printable(status)),
        Outcome::Settled { status: None } => format!("{id}: left as it is, its status is NULL"),
        Outcome::NotDue { remaining: Some(remaining) } => format!("{id}: not due for another {:.3} s", remaining.as_secs_f64()),
        Outcome::NotDue { remaining: None } => format!("{id}: has no deadline, and so is never due"),
        Outcome::NotFound => format!("{id}: no such order"),
        Outcome::Locked { reason } => format!("{id}: due, but {reason}; try again"),
        // A command remembers no closure.
        Outcome::Undone => format!("{id}: {UNDONE}"),
        Outcome::Rejected { reason, .. } => format!("{id}: due, but its database rejects the closure: {reason}"),
    }
}
