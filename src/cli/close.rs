//! `order-closer close`: these orders, now, if they are due.

use crate::{
    app::open_and_rehearse,
    cli::{Exit, Failure, Outcome, order_id, print},
    close::{Closed, Closer, Looked, Outcome as Ended, Pending},
    config::Config,
    order::{OrderId, Trigger},
};

pub(super) async fn run(config: &Config, ids: &[String]) -> Outcome {
    let store = open_and_rehearse(config).await?;
    let pending = |id: &String| order_id(config, store.as_ref(), id).map(|id| Pending { id, trigger: Trigger::Request, rejections: 0 });
    let batch = ids.iter().map(pending).collect::<Result<Vec<_>, Failure>>()?;
    let closer = Closer::new(store.clone());
    let mut looked = Vec::new();
    let unfinished = closer.close(batch, &mut looked).await.err();
    for one in &looked {
        print(&describe(one));
    }
    // A dead letter that is closed is none any more. If that can't be noted now, the daemon does it.
    let closed: Vec<OrderId> =
        looked.iter().filter(|one| matches!(one.outcome, Ended::Closed(_))).map(|one| one.pending.id.clone()).collect();
    if store.outbox().is_ready() && !closed.is_empty() {
        store.outbox().forget_dead_orders(&closed).await.ok();
    }
    store.close().await;
    if let Some(unfinished) = unfinished {
        let Failure { exit, message } = unfinished.fault.into();
        return Err(Failure::new(exit, format!("{} orders were not looked at: {message}", unfinished.left.len())));
    }
    let stuck = looked.iter().any(|one| matches!(one.outcome, Ended::Locked | Ended::Rejected { .. }));
    Ok(if stuck { Exit::Unfinished } else { Exit::Done })
}

fn describe(Looked { pending, outcome }: &Looked) -> String {
    let id = &pending.id;
    match outcome {
        Ended::Closed(Closed { lateness }) => format!("{id}: closed, {:.3} s after its deadline", lateness.as_secs_f64()),
        Ended::Settled { status: Some(status) } => format!("{id}: left as it is, its status is {status}"),
        Ended::Settled { status: None } => format!("{id}: left as it is, its status is NULL"),
        Ended::NotDue { remaining: Some(remaining) } => format!("{id}: not due for another {:.3} s", remaining.as_secs_f64()),
        Ended::NotDue { remaining: None } => format!("{id}: has no deadline, and so is never due"),
        Ended::NotFound => format!("{id}: no such order"),
        Ended::Locked => format!("{id}: due, but locked by somebody; try again"),
        Ended::Rejected { reason, .. } => format!("{id}: due, but its database rejects the closure: {reason}"),
    }
}
