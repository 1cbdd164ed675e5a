//! Lock, judge, update: the one way in which an order is ever closed.

use std::{
    collections::{BTreeMap, HashMap},
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

/// How the three steps are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// By one statement as far as that goes, and one by one for what it left over.
    Fused,
    /// One by one, which waits for nobody's row lock.
    Stepwise,
}

/// Closes those of the orders that are unpaid and due, in one transaction.
///
/// On an error nothing has changed, save that a connection lost during the commit leaves it open
/// whether it did; asking again tells.
pub(super) async fn lock_judge_update(store: &dyn Store, batch: &[Pending], way: Way) -> Result<Vec<Judged>, StoreError> {
    // Everybody who changes several rows does so in this order.
    let triggers: BTreeMap<OrderId, Trigger> = batch.iter().map(|pending| (pending.id.clone(), pending.trigger)).collect();
    // Somebody has the whole database, and with it each of these orders.
    let all_locked = || Ok(batch.iter().map(|pending| Judged::locked(&pending.id)).collect());
    let mut transaction = match store.begin().await {
        Err(StoreError::Locked(_)) => return all_locked(),
        begun => begun?,
    };
    let began = Instant::now();
    let judged = match judge_and_update(transaction.as_mut(), store.unpaid(), &triggers, way).await {
        Ok(judged) => judged,
        Err(error) => {
            transaction.rollback().await;
            return Err(error);
        }
    };
    if judged.values().any(is_close) {
        match transaction.commit().await {
            // An SQLite file without WAL is written when nobody reads it.
            Err(StoreError::Locked(_)) => return all_locked(),
            committed => committed?,
        }
    } else {
        transaction.rollback().await;
    }
    // The rows were read after `began`, so no closure is reported earlier than it was.
    let since = began.elapsed();
    Ok(judged
        .into_iter()
        .map(|(id, verdict)| {
            let lateness = if let Verdict::Close { overdue } = verdict { overdue + since } else { Duration::ZERO };
            Judged { id, verdict, lateness }
        })
        .collect())
}

type Rows = HashMap<OrderId, Row>;
type Verdicts = BTreeMap<OrderId, Verdict>;

fn is_close(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Close { .. })
}

async fn judge_and_update(
    transaction: &mut dyn Transaction,
    unpaid: &[String],
    triggers: &BTreeMap<OrderId, Trigger>,
    way: Way,
) -> Result<Verdicts, StoreError> {
    let mut left: Vec<OrderId> = triggers.keys().cloned().collect();
    let mut rows = Rows::new();
    let mut judged = Verdicts::new();
    if way == Way::Fused {
        rows = by_id(transaction.close_due(&left).await?, &left)?;
        for (id, row) in &rows {
            let verdict = judge(unpaid, Some(row));
            if !is_close(&verdict) {
                return Err(StoreError::Conflict(format!("order {id} was changed while it was closed, and is now {verdict:?}")));
            }
            judged.insert(id.clone(), verdict);
        }
        left.retain(|id| !rows.contains_key(id));
    }
    if !left.is_empty() {
        judged.extend(step_by_step(transaction, unpaid, &left, &mut rows).await?);
    }
    let closed: Vec<OrderId> = judged.iter().filter(|(_, verdict)| is_close(verdict)).map(|(id, _)| id.clone()).collect();
    if !closed.is_empty() {
        // The user's statements may move these rows elsewhere.
        let mut included = transaction.included(&closed).await?;
        transaction.run_close_sql(&closed).await?;
        let event = |id: &OrderId| {
            let row = rows.get(id)?;
            let data = included.remove(id).unwrap_or_else(|| "{}".into());
            Some(NewEvent { order: id.clone(), deadline: row.deadline?, now: row.now, trigger: *triggers.get(id)?, data })
        };
        let events: Vec<NewEvent> = closed.iter().filter_map(event).collect();
        transaction.record(&events).await?;
    }
    Ok(judged)
}

/// Adds the rows that it reads to `rows`.
async fn step_by_step(
    transaction: &mut dyn Transaction,
    unpaid: &[String],
    ids: &[OrderId],
    rows: &mut Rows,
) -> Result<Verdicts, StoreError> {
    rows.extend(by_id(transaction.lock(ids).await?, ids)?);
    let unlocked: Vec<OrderId> = ids.iter().filter(|id| !rows.contains_key(id)).cloned().collect();
    if !unlocked.is_empty() {
        rows.extend(by_id(transaction.peek(&unlocked).await?, &unlocked)?);
    }
    let judged: Verdicts = ids.iter().map(|id| (id.clone(), judge(unpaid, rows.get(id)))).collect();
    let due: Vec<OrderId> = judged.iter().filter(|(_, verdict)| is_close(verdict)).map(|(id, _)| id.clone()).collect();
    if !due.is_empty() {
        update_all(transaction, unpaid, &due).await?;
    }
    Ok(judged)
}

/// Closes these orders, or fails.
async fn update_all(transaction: &mut dyn Transaction, unpaid: &[String], due: &[OrderId]) -> Result<(), StoreError> {
    let expected = due.len() as u64;
    let changed = transaction.update(due).await?;
    if changed > expected {
        return Err(StoreError::Rejected(format!("closing {expected} orders changed {changed} rows; an id is not unique")));
    }
    if changed < expected {
        // The update has asked the filter once more, by now with the row locked: a payment in another table may have come
        // in between. What passes it still, and is due, was left out by something else.
        let rows = by_id(transaction.lock(due).await?, due)?;
        if let Some(id) = due.iter().find(|id| is_close(&judge(unpaid, rows.get(id)))) {
            return Err(StoreError::Rejected(format!("order {id} was not updated; a trigger or rule on the table keeps it from that")));
        }
        return Err(StoreError::Conflict("an order that passed orders.filter no longer does".into()));
    }
    let closed = transaction.count_closed(due).await?;
    if closed < expected {
        return Err(StoreError::Rejected(format!(
            "closing {expected} orders left {closed} with the closed status; a trigger on the table sets another"
        )));
    }
    Ok(())
}

/// `asked` is sorted.
fn by_id(rows: Vec<Row>, asked: &[OrderId]) -> Result<Rows, StoreError> {
    let mut found = HashMap::with_capacity(rows.len());
    for row in rows {
        if asked.binary_search(&row.id).is_err() {
            return Err(StoreError::Rejected(format!("the database answered with order {}, for which nobody has asked", row.id)));
        }
        if let Some(twin) = found.insert(row.id.clone(), row) {
            return Err(StoreError::Rejected(format!(
                "two rows have the id {}; orders.id must name a column whose values are unique",
                twin.id
            )));
        }
    }
    Ok(found)
}
