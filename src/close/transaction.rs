//! Lock, judge, update: the one way in which an order is ever closed.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use crate::{
    close::inbox::Pending,
    order::{OrderId, Row, Trigger, Verdict, judge},
    store::{NewEvent, Store, StoreError, Transaction},
};

/// An order and the verdict on it; `Close` has been carried out and committed.
#[derive(Debug)]
pub(super) struct Judged {
    pub(super) id: OrderId,
    pub(super) verdict: Verdict,
    /// For an order that was closed, the commit's time minus the deadline.
    pub(super) lateness: Duration,
}

impl Judged {
    fn locked(id: &OrderId) -> Self {
        Self { id: id.clone(), verdict: Verdict::Locked, lateness: Duration::ZERO }
    }
}

/// Closes those of the orders that are unpaid and due, in one transaction.
///
/// On an error nothing has changed, save that a connection lost during the commit leaves it open
/// whether it did; asking again tells.
pub(super) async fn lock_judge_update(store: &dyn Store, batch: &[Pending]) -> Result<Vec<Judged>, StoreError> {
    let mut transaction = match store.begin().await {
        Ok(transaction) => transaction,
        // Somebody has the whole database, and with it each of these orders.
        Err(StoreError::Conflict(_)) => return Ok(batch.iter().map(|pending| Judged::locked(&pending.id)).collect()),
        Err(error) => return Err(error),
    };
    let (judged, read_at) = match judge_and_update(transaction.as_mut(), store.unpaid(), batch).await {
        Ok(judged) => judged,
        Err(error) => {
            transaction.rollback().await;
            return Err(error);
        }
    };
    if judged.iter().any(|(_, verdict)| matches!(verdict, Verdict::Close { .. })) {
        transaction.commit().await?;
    } else {
        transaction.rollback().await;
    }
    let since = read_at.elapsed();
    Ok(judged
        .into_iter()
        .map(|(id, verdict)| {
            let lateness = if let Verdict::Close { overdue } = verdict { overdue + since } else { Duration::ZERO };
            Judged { id, verdict, lateness }
        })
        .collect())
}

type Verdicts = Vec<(OrderId, Verdict)>;

async fn judge_and_update(
    transaction: &mut dyn Transaction,
    unpaid: &[String],
    batch: &[Pending],
) -> Result<(Verdicts, Instant), StoreError> {
    // Everybody who locks several rows does so in this order.
    let mut ids: Vec<OrderId> = batch.iter().map(|pending| pending.id.clone()).collect();
    ids.sort_unstable();
    ids.dedup();

    let mut rows = by_id(transaction.lock(&ids).await?)?;
    let read_at = Instant::now();
    let unlocked: Vec<OrderId> = ids.iter().filter(|id| !rows.contains_key(id)).cloned().collect();
    if !unlocked.is_empty() {
        rows.extend(by_id(transaction.peek(&unlocked).await?)?);
    }

    let judged: Verdicts = ids
        .into_iter()
        .map(|id| {
            let verdict = judge(unpaid, rows.get(&id));
            (id, verdict)
        })
        .collect();
    let due: Vec<OrderId> =
        judged.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Close { .. })).map(|(id, _)| id.clone()).collect();
    if !due.is_empty() {
        let changed = transaction.close(&due).await?;
        if changed != due.len() as u64 {
            return Err(StoreError::Rejected(format!(
                "closing {} orders changed {changed} rows; a trigger or rule on the table interferes, or an id is not unique",
                due.len()
            )));
        }
        let triggers = batch.iter().map(|pending| (&pending.id, pending.trigger)).collect();
        transaction.record(&events(&due, &rows, &triggers)).await?;
    }
    Ok((judged, read_at))
}

/// What there is to tell of these closures.
fn events(closed: &[OrderId], rows: &HashMap<OrderId, Row>, triggers: &HashMap<&OrderId, Trigger>) -> Vec<NewEvent> {
    let event = |id: &OrderId| {
        let (row, trigger) = (rows.get(id)?, triggers.get(id)?);
        Some(NewEvent::new(id.clone(), row.deadline?, row.now, *trigger))
    };
    closed.iter().filter_map(event).collect()
}

fn by_id(rows: Vec<Row>) -> Result<HashMap<OrderId, Row>, StoreError> {
    let mut found = HashMap::with_capacity(rows.len());
    for row in rows {
        if let Some(twin) = found.insert(row.id.clone(), row) {
            return Err(StoreError::Rejected(format!(
                "two rows have the id {}; orders.id must name a column whose values are unique",
                twin.id
            )));
        }
    }
    Ok(found)
}
