//! Lock, judge, update: the one way in which an order is ever closed.

use std::time::{Duration, Instant};

use crate::{
    close::inbox::Pending,
    order::{OrderId, Row, Verdict, judge},
    store::{LockWait, NewEvent, Store, StoreError, Transaction, Updated},
};

/// The verdict on an order; `Close` has been carried out and committed.
#[derive(Debug)]
pub(super) struct Judged {
    pub(super) verdict: Verdict,
    /// For an order that was closed, the commit's time minus the deadline.
    pub(super) lateness: Duration,
}

impl Judged {
    fn locked() -> Self {
        Self { verdict: Verdict::Locked, lateness: Duration::ZERO }
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

/// Closes those of the orders that are unpaid and due, in one transaction. The batch is in the order of its ids, none of
/// them twice, and so are the verdicts.
///
/// On an error nothing has changed, save that a connection lost during the commit leaves it open
/// whether it did; asking again tells.
pub(super) async fn lock_judge_update(store: &dyn Store, batch: &[Pending], way: Way) -> Result<Vec<Judged>, StoreError> {
    // Somebody has the whole database, and with it each of these orders.
    let all_locked = || Ok(batch.iter().map(|_| Judged::locked()).collect());
    let mut transaction = match store.begin(LockWait::Briefly).await {
        Err(StoreError::Locked(_)) => return all_locked(),
        begun => begun?,
    };
    let began = Instant::now();
    let verdicts = match judge_and_update(transaction.as_mut(), store.unpaid(), batch, way).await {
        Ok(verdicts) => verdicts,
        Err(error) => {
            transaction.rollback().await;
            return Err(error);
        }
    };
    if verdicts.iter().any(is_close) {
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
    Ok(verdicts
        .into_iter()
        .map(|verdict| {
            let lateness = if let Verdict::Close { overdue } = verdict { overdue + since } else { Duration::ZERO };
            Judged { verdict, lateness }
        })
        .collect())
}

/// The rows of a list of orders, each in its order's place, where one was read.
type Rows = Vec<Option<Row>>;

fn is_close(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Close { .. })
}

async fn judge_and_update(
    transaction: &mut dyn Transaction,
    unpaid: &[String],
    batch: &[Pending],
    way: Way,
) -> Result<Vec<Verdict>, StoreError> {
    let ids: Vec<OrderId> = batch.iter().map(|pending| pending.id.clone()).collect();
    let fused = match way {
        Way::Fused => fused(transaction, unpaid, &ids).await?,
        Way::Stepwise => None,
    };
    let rows = match fused {
        Some(mut rows) => {
            let left = missing(&ids, &rows);
            if !left.is_empty() {
                fill(&mut rows, step_by_step(transaction, unpaid, &left).await?);
            }
            rows
        }
        None => step_by_step(transaction, unpaid, &ids).await?,
    };
    let verdicts: Vec<Verdict> = rows.iter().map(|row| judge(unpaid, row.as_ref())).collect();
    let closed = to_close(&ids, &verdicts);
    if !closed.is_empty() {
        // The user's statements may move these rows elsewhere.
        let included = if transaction.records() { Some(transaction.included(&closed).await?) } else { None };
        transaction.run_close_sql(&closed).await?;
        if let Some(mut included) = included {
            let event = |((pending, row), verdict): ((&Pending, &Option<Row>), &Verdict)| {
                let row = row.as_ref().filter(|_| is_close(verdict))?;
                let data = included.remove(&pending.id).map_or("{}".into(), Into::into);
                Some(NewEvent { order: pending.id.clone(), deadline: row.deadline?, now: row.now, trigger: pending.trigger, data })
            };
            let events: Vec<NewEvent> = batch.iter().zip(&rows).zip(&verdicts).filter_map(event).collect();
            transaction.record(&events).await?;
        }
    }
    Ok(verdicts)
}

/// Closes as many of these orders as one statement can, and returns their rows; `None` where that is none at all.
async fn fused(transaction: &mut dyn Transaction, unpaid: &[String], ids: &[OrderId]) -> Result<Option<Rows>, StoreError> {
    let rows = transaction.close_due(ids).await?;
    if rows.is_empty() {
        return Ok(None);
    }
    let rows = in_places(rows, ids)?;
    for row in rows.iter().flatten() {
        let verdict = judge(unpaid, Some(row));
        if !is_close(&verdict) {
            return Err(StoreError::Conflict(format!("order {} was changed while it was closed, and is now {verdict:?}", row.id)));
        }
    }
    Ok(Some(rows))
}

/// Reads the rows of these orders, and closes those that are unpaid, due and locked.
async fn step_by_step(transaction: &mut dyn Transaction, unpaid: &[String], ids: &[OrderId]) -> Result<Rows, StoreError> {
    let mut rows = in_places(transaction.lock(ids).await?, ids)?;
    let unlocked = missing(ids, &rows);
    if !unlocked.is_empty() {
        fill(&mut rows, in_places(transaction.peek(&unlocked).await?, &unlocked)?);
    }
    let verdicts: Vec<Verdict> = rows.iter().map(|row| judge(unpaid, row.as_ref())).collect();
    let due = to_close(ids, &verdicts);
    if !due.is_empty() {
        update_all(transaction, unpaid, &due).await?;
    }
    Ok(rows)
}

/// Closes these orders, or fails.
async fn update_all(transaction: &mut dyn Transaction, unpaid: &[String], due: &[OrderId]) -> Result<(), StoreError> {
    let expected = due.len() as u64;
    let Updated { changed, closed } = transaction.update(due).await?;
    if changed > expected {
        return Err(StoreError::Rejected(format!("closing {expected} orders changed {changed} rows; an id is not unique")));
    }
    if changed < expected {
        // The update has asked the filter once more, by now with the row locked: a payment in another table may have come
        // in between. What passes it still, and is due, was left out by something else.
        let rows = in_places(transaction.lock(due).await?, due)?;
        if let Some(row) = rows.iter().flatten().find(|row| is_close(&judge(unpaid, Some(row)))) {
            return Err(StoreError::Rejected(format!(
                "order {} was not updated; a trigger or rule on the table keeps it from that",
                row.id
            )));
        }
        return Err(StoreError::Conflict("an order that passed orders.filter no longer does".into()));
    }
    if closed < expected {
        return Err(StoreError::Rejected(format!(
            "closing {expected} orders left {closed} with the closed status; a trigger on the table sets another"
        )));
    }
    Ok(())
}

fn to_close(ids: &[OrderId], verdicts: &[Verdict]) -> Vec<OrderId> {
    ids.iter().zip(verdicts).filter(|(_, verdict)| is_close(verdict)).map(|(id, _)| id.clone()).collect()
}

/// The orders of which no row was read.
fn missing(ids: &[OrderId], rows: &[Option<Row>]) -> Vec<OrderId> {
    ids.iter().zip(rows).filter(|(_, row)| row.is_none()).map(|(id, _)| id.clone()).collect()
}

/// Adds the rows of the orders that were missing.
fn fill(rows: &mut Rows, missing: Rows) {
    for (place, row) in rows.iter_mut().filter(|place| place.is_none()).zip(missing) {
        *place = row;
    }
}

/// Puts each row in the place of its order; `asked` is sorted.
fn in_places(rows: Vec<Row>, asked: &[OrderId]) -> Result<Rows, StoreError> {
    let mut places: Rows = vec![None; asked.len()];
    let mut next = 0;
    for row in rows {
        // Mostly they come in that order.
        let found = if asked.get(next) == Some(&row.id) { Ok(next) } else { asked.binary_search(&row.id) };
        let Ok(at) = found else {
            return Err(StoreError::Rejected(format!("the database answered with order {}, for which nobody has asked", row.id)));
        };
        if let Some(twin) = places[at].replace(row) {
            return Err(StoreError::Rejected(format!(
                "two rows have the id {}; orders.id must name a column whose values are unique",
                twin.id
            )));
        }
        next = at + 1;
    }
    Ok(places)
}
