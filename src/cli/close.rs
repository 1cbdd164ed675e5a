//! `order-closer close`: these orders, now, if they are due.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    app::open_and_rehearse,
    cli::{CommandResult, Exit, Failure, complain, order_id, print, reconcile::clock_is_ahead, witness},
    close::{Bounds, Clearances, Closed, Closer, Looked, Outcome, Pending, PutOff, Sorted, UNDONE},
    config::Config,
    order::{OrderId, Trigger},
    trigger::compare_clocks,
};

pub(super) async fn run(config: &Config, ids: &[String]) -> CommandResult {
    let store = open_and_rehearse(config).await?;
    let ids = ids.iter().map(|id| order_id(config, store.as_ref(), id)).collect::<Result<BTreeSet<_>, Failure>>()?;
    let bounds = Arc::new(Bounds::new(config.sweep.oldest.get()));
    if let Some(ahead) = compare_clocks(store.as_ref(), &config.redis, &bounds).await {
        complain(&clock_is_ahead(ahead));
    }
    let closer = Closer::within(store.clone(), bounds);
    let clearance = Clearances::default().and(witness(config, &store).await);
    let (mut looked, mut disputed, mut unavailable) = (Vec::new(), 0, None);
    for id in &ids {
        let sorted = Sorted::wholly(&clearance, vec![Pending::new(id.clone(), Trigger::Request)]).await;
        for PutOff { pending, until, .. } in &sorted.wait {
            disputed += 1;
            print(&waits(&pending.id, until.saturating_duration_since(Instant::now())));
        }
        if sorted.go.is_empty() {
            continue;
        }
        match closer.one(sorted.go).await {
            Ok(one) => {
                one.iter().for_each(|one| print(&describe(one)));
                looked.extend(one);
            }
            Err(error) => {
                unavailable = Some(error);
                break;
            }
        }
    }
    // A dead letter that is closed is none any more. If that can't be noted now, the daemon does it.
    let closed: Vec<OrderId> = looked.iter().filter(|one| one.is_closed()).map(|one| one.pending.id.clone()).collect();
    if store.outbox().is_ready() && !closed.is_empty() {
        store.outbox().forget_dead_orders(&closed).await.ok();
    }
    store.close().await;
    if let Some(error) = unavailable {
        let Failure { exit, message } = error.into();
        return Err(Failure::new(exit, format!("{} orders were not looked at: {message}", ids.len() - looked.len() - disputed)));
    }
    let stuck =
        disputed > 0 || looked.iter().any(|one| matches!(one.outcome, Outcome::Locked { .. } | Outcome::Rejected { .. } | Outcome::Undone));
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
        Outcome::Settled { status: Some(status) } => format!("{id}: left as it is, its status is {status}"),
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
