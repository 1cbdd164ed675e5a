//! Lock, judge, update: the one way in which an order is ever closed.

use tokio::time::Instant;

use crate::{
    close::{
        Pending,
        bounds::Bounds,
        closures::Closures,
        outcome::{Closed, Looked, Outcome, ROW_HELD},
    },
    order::{OrderId, Row, Verdict, judge},
    store::{Limits, NewEvent, Store, StoreError, Transaction, Updated},
};

/// How the three steps are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// By one statement as far as that goes, and one by one for what it left over.
    Fused,
    /// One by one, which waits for nobody's row lock.
    Stepwise,
}

/// Why a transaction has changed nothing.
#[derive(Debug)]
pub(super) enum Failure {
    /// It did not begin, or the whole table is locked: no order has to do with it.
    Database(StoreError),
    /// Step by step it is known why: another transaction holds an order's row, a trigger has changed it, it must not be
    /// closed again, or not yet, or somebody has to be asked about it once more.
    Fused(String),
    /// A statement failed.
    Statement(StoreError),
}

impl Failure {
    /// Its name in metrics.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Database(error) | Self::Statement(error) => error.name(),
            Self::Fused(_) => "locked",
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Statement(error)
    }
}

/// An order of the batch on its way through the three steps.
#[derive(Debug)]
struct Candidate {
    pending: Pending,
    /// As it was before this transaction changed it, where one was read.
    row: Option<Row>,
    verdict: Verdict,
    /// It was closed for this very deadline before.
    undone: bool,
}

impl Candidate {
    fn is_to_close(&self) -> bool {
        self.verdict.is_close() && !self.undone
    }
}

/// Closes those of the orders that are unpaid and due, in one transaction. The batch is in the order of its ids, none of
/// them twice.
///
/// On an error nothing has changed, save that a connection lost during the commit leaves it open whether it did; asking
/// again tells.
pub(super) async fn lock_judge_update(
    store: &dyn Store,
    (closures, bounds): (&Closures, &Bounds),
    batch: &[Pending],
    way: Way,
    limits: Limits,
) -> Result<Vec<Looked>, Failure> {
    let mut transaction = store.begin(limits).await.map_err(Failure::Database)?;
    let began = Instant::now();
    let candidates = match judge_and_update(transaction.as_mut(), store.unpaid(), (closures, bounds), batch, way).await {
        Ok(candidates) => candidates,
        Err(error) => {
            transaction.rollback().await;
            return Err(error);
        }
    };
    if candidates.iter().any(Candidate::is_to_close) {
        // An SQLite file without WAL is written when nobody reads it.
        transaction
            .commit()
            .await
            .map_err(|error| if matches!(error, StoreError::Locked(_)) { Failure::Database(error) } else { Failure::Statement(error) })?;
    } else {
        transaction.rollback().await;
    }
    // The rows were read after `began`, so no closure is reported earlier than it was.
    let since = began.elapsed();
    let looked = candidates.into_iter().map(|Candidate { mut pending, row, verdict, undone }| {
        let outcome = match verdict {
            Verdict::Close { .. } if undone => {
                pending.deadline = row.and_then(|row| row.deadline);
                Outcome::Undone
            }
            Verdict::Close { overdue } => {
                Outcome::Closed(Closed { lateness: overdue + since, deadline: row.and_then(|row| row.deadline).unwrap_or_default() })
            }
            Verdict::Settled { status } => Outcome::Settled { status },
            Verdict::NotDue { remaining } => {
                // It may be another one than whoever brought it has seen.
                pending.deadline = row.and_then(|row| row.deadline);
                Outcome::NotDue { remaining }
            }
            Verdict::NotFound => Outcome::NotFound,
            Verdict::Locked => {
                pending.deadline = row.and_then(|row| row.deadline);
                Outcome::Locked { reason: ROW_HELD.into() }
            }
            Verdict::Unasked => {
                // So that the answer for another deadline is taken for none.
                pending.deadline = row.and_then(|row| row.deadline);
                Outcome::Unasked
            }
        };
        Looked { pending, outcome }
    });
    Ok(looked.collect())
}

async fn judge_and_update(
    transaction: &mut dyn Transaction,
    unpaid: &[String],
    (closures, bounds): (&Closures, &Bounds),
    batch: &[Pending],
    way: Way,
) -> Result<Vec<Candidate>, Failure> {
    let asked = Instant::now();
    let verdict = |pending: &Pending, row: Option<&Row>| bounds.judge(unpaid, pending, row, asked);
    let ids: Vec<OrderId> = batch.iter().map(|pending| pending.id.clone()).collect();
    let mut rows: Rows = match way {
        Way::Fused => fused(transaction, closures, batch, &ids, verdict).await?,
        Way::Stepwise => vec![None; ids.len()],
    };
    let left = missing(&ids, &rows);
    let stepwise = !left.is_empty();
    if stepwise {
        fill(&mut rows, read(transaction, &left).await?);
    }
    let candidate = |(pending, row): (&Pending, Option<Row>)| {
        let verdict = verdict(pending, row.as_ref());
        Candidate { pending: pending.clone(), row, verdict, undone: false }
    };
    let mut candidates: Vec<Candidate> = batch.iter().zip(rows).map(candidate).collect();
    if stepwise {
        mark_undone(&mut candidates, closures);
        let due: Vec<OrderId> = candidates.iter().filter(|one| one.is_to_close()).map(|one| one.pending.id.clone()).collect();
        // What one statement has closed is none of these.
        let due: Vec<OrderId> = due.into_iter().filter(|id| left.binary_search(id).is_ok()).collect();
        if !due.is_empty() {
            update_all(transaction, unpaid, &due).await?;
        }
    }
    run_user_sql(transaction, &candidates).await?;
    Ok(candidates)
}

fn mark_undone(candidates: &mut [Candidate], closures: &Closures) {
    let to_close = candidates.iter().filter(|one| one.verdict.is_close());
    let undone = closures.undone(to_close.filter_map(|one| Some((&one.pending.id, one.row.as_ref()?.deadline?))));
    if !undone.is_empty() {
        for one in candidates {
            one.undone = one.verdict.is_close() && undone.contains(&one.pending.id);
        }
    }
}

/// The user's statements and the events, for the orders that this transaction has closed.
async fn run_user_sql(transaction: &mut dyn Transaction, candidates: &[Candidate]) -> Result<(), StoreError> {
    let closed: Vec<OrderId> = candidates.iter().filter(|one| one.is_to_close()).map(|one| one.pending.id.clone()).collect();
    if closed.is_empty() {
        return Ok(());
    }
    // The user's statements may move these rows elsewhere.
    let included = if transaction.records() { Some(transaction.included(&closed).await?) } else { None };
    transaction.run_close_sql(&closed).await?;
    let Some(mut included) = included else { return Ok(()) };
    let event = |one: &Candidate| {
        let row = one.row.as_ref().filter(|_| one.is_to_close())?;
        let carried = included.remove(&row.id).unwrap_or_default();
        Some(NewEvent {
            order: one.pending.id.clone(),
            deadline: row.deadline?,
            now: row.now,
            trigger: one.pending.trigger,
            carried,
            asked: one.pending.may.asked(),
        })
    };
    let events: Vec<NewEvent> = candidates.iter().filter_map(event).collect();
    transaction.record(&events).await
}

/// The rows of a list of orders, each in its order's place, where one was read.
type Rows = Vec<Option<Row>>;

/// Closes as many of these orders as one statement can, and returns their rows.
async fn fused(
    transaction: &mut dyn Transaction,
    closures: &Closures,
    batch: &[Pending],
    ids: &[OrderId],
    verdict: impl Fn(&Pending, Option<&Row>) -> Verdict,
) -> Result<Rows, Failure> {
    let rows = transaction
        .close_due(ids)
        .await
        .map_err(|error| if let StoreError::Locked(reason) = error { Failure::Fused(reason) } else { Failure::Statement(error) })?;
    let rows = in_places(rows, ids)?;
    for (pending, row) in batch.iter().zip(&rows) {
        let Some(row) = row else { continue };
        let verdict = verdict(pending, Some(row));
        if !verdict.is_close() {
            // It was changed while it was closed, or is not to be closed by this statement's clock.
            return Err(Failure::Fused(format!("order {} is {verdict:?}", row.id)));
        }
    }
    if let [id, ..] = closures.undone(rows.iter().flatten().filter_map(|row| Some((&row.id, row.deadline?)))).as_slice() {
        return Err(Failure::Fused(format!("order {id} was closed before")));
    }
    Ok(rows)
}

/// Locks and reads the rows of these orders, and reads those that can't be locked.
async fn read(transaction: &mut dyn Transaction, ids: &[OrderId]) -> Result<Rows, Failure> {
    let rows = transaction.lock(ids).await.map_err(|error| {
        // Rows are skipped, so it is the table.
        if matches!(error, StoreError::Locked(_)) { Failure::Database(error) } else { Failure::Statement(error) }
    })?;
    let mut rows = in_places(rows, ids)?;
    let unlocked = missing(ids, &rows);
    if !unlocked.is_empty() {
        fill(&mut rows, in_places(transaction.peek(&unlocked).await?, &unlocked)?);
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
        if let Some(row) = rows.iter().flatten().find(|row| judge(unpaid, Some(row)).is_close()) {
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
