//! Trying out what a closure does, before the first order is due: nothing of it stays.
//!
//! First with no order, which shows that every statement is understood and allowed; then with one real order, which shows what
//! only a row can: a trigger, a sequence, a missing partition, a deferred constraint.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::{
    order::{OrderId, Row, Trigger},
    store::{DueQuery, Limits, LockWait, NewEvent, Store, StoreError, Transaction, Window},
};

/// How long a statement of a rehearsal on an order waits for a lock, and may take where the database counts both as one.
const LOCK: Duration = Duration::from_millis(20);

/// How long a statement may take, and the whole of it.
const STATEMENT: Duration = Duration::from_millis(1_500);
const LIMIT: Duration = Duration::from_secs(2);

/// How many orders it may choose from.
const CHOICE: u32 = 10;

/// The pause after which it is tried again when somebody holds what it needs.
const PAUSE: Duration = Duration::from_millis(50);

/// Orders due within this time are good enough for it.
const AHEAD: Duration = Duration::from_secs(3_650 * 86_400);

/// Runs every statement of a closure with no orders and rolls it back, so that a wrong column, a syntax
/// error in the user's SQL or a missing right shows before the first order is due.
///
/// # Errors
/// As the database says, sorted.
pub async fn rehearse(store: &dyn Store) -> Result<(), StoreError> {
    let mut transaction = store.begin(Limits::BRIEF).await?;
    let rehearsed = run_all(transaction.as_mut()).await;
    transaction.rollback().await;
    rehearsed.map_err(|error| error.about(&store.columns()))
}

async fn run_all(transaction: &mut dyn Transaction) -> Result<(), StoreError> {
    transaction.close_due(&[]).await?;
    transaction.lock(&[]).await?;
    transaction.peek(&[]).await?;
    transaction.update(&[]).await?;
    transaction.included(&[]).await?;
    transaction.record(&[]).await?;
    match transaction.run_close_sql(&[]).await {
        // What reads a whole table, as some statements do for no orders, meets rows that others hold: it was understood.
        Err(StoreError::Locked(_)) => Ok(()),
        ran => ran,
    }
}

/// How a rehearsal on a real order ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rehearsed {
    /// This order could be closed; it was not.
    Closable(OrderId),
    /// This order's closure is refused.
    Refused {
        /// The order.
        id: OrderId,
        /// What the database said.
        reason: String,
        /// Whether it names something that is missing, a right or a table: then every order's closure is refused.
        lacking: bool,
    },
    /// There was none to try, or none that could be tried; why.
    NotTried(String),
}

/// Takes one unpaid order, an overdue one first, through all statements of a closure, and rolls back. Whatever holds its row,
/// or another that it needs, is not waited for; after two seconds it is given up.
///
/// Not where a closure may write a table without transactions: that could not be undone.
pub async fn rehearse_on_an_order(store: &dyn Store) -> Rehearsed {
    let began = Instant::now();
    let rehearsed = timeout(LIMIT, async {
        loop {
            match try_an_order(store).await {
                Err(StoreError::Locked(_) | StoreError::Conflict(_)) if began.elapsed() < LIMIT / 2 => sleep(PAUSE).await,
                tried => return tried,
            }
        }
    });
    match rehearsed.await {
        Ok(Ok(rehearsed)) => rehearsed,
        Ok(Err(error)) => Rehearsed::NotTried(error.to_string()),
        Err(_) => Rehearsed::NotTried(format!("it took longer than {}", humantime::format_duration(LIMIT))),
    }
}

async fn try_an_order(store: &dyn Store) -> Result<Rehearsed, StoreError> {
    if let Some(table) = store.without_transactions().await? {
        return Ok(Rehearsed::NotTried(format!("{table} has no transactions, and what a trigger writes there could not be undone")));
    }
    let rows = store.due(&DueQuery::of(Window::until(AHEAD), CHOICE)).await?.rows;
    if rows.is_empty() {
        return Ok(Rehearsed::NotTried("there is no unpaid order with a deadline".into()));
    }
    let limits = Limits { wait: LockWait::Never, lock: LOCK, statement: LOCK };
    for Row { id, .. } in rows {
        let mut transaction = store.begin(limits).await?;
        // Whoever gives a statement up leaves it to its server, with all that it has locked.
        transaction.limit_statements(STATEMENT).await?;
        let tried = close(transaction.as_mut(), store.unpaid(), &id).await;
        transaction.rollback().await;
        match tried {
            Ok(true) => return Ok(Rehearsed::Closable(id)),
            // Another transaction has it, or has changed it: the next one.
            Ok(false) => {}
            Err(error @ StoreError::Rejected(_)) => {
                return Ok(Rehearsed::Refused { id, reason: error.to_string(), lacking: error.names_what_is_missing() });
            }
            Err(error) => return Err(error),
        }
    }
    Err(StoreError::Locked(format!("each of {CHOICE} orders is held or was settled meanwhile")))
}

/// Closes this order as far as that goes before the commit; `false` if its row can't be had, or is not unpaid.
async fn close(transaction: &mut dyn Transaction, unpaid: &[String], id: &OrderId) -> Result<bool, StoreError> {
    let ids = std::slice::from_ref(id);
    let rows = transaction.lock(ids).await?;
    let Some(row) = rows.iter().find(|row| row.status.as_ref().is_some_and(|status| unpaid.contains(status))) else {
        return Ok(false);
    };
    let updated = transaction.update_early(ids).await?;
    if updated.changed == 0 {
        return Err(StoreError::Rejected("the update changed no row; a trigger or rule on the table keeps it from that".into()));
    }
    let mut included = transaction.included(ids).await?;
    transaction.run_close_sql(ids).await?;
    let carried = included.remove(id).unwrap_or_default();
    let event = NewEvent {
        order: id.clone(),
        deadline: row.deadline.unwrap_or(row.now),
        now: row.now,
        trigger: Trigger::Request,
        carried,
        asked: None,
    };
    transaction.record(&[event]).await?;
    // Before what was deferred: close.sql may move the row elsewhere, and a trigger may set another status at the end.
    let closed = transaction.count_closed(ids).await?;
    transaction.check_deferred().await?;
    if updated.closed == 0 || transaction.count_closed(ids).await? < closed {
        return Err(StoreError::Rejected(
            "after the update it does not have the closed status; a trigger on the table sets another".into(),
        ));
    }
    Ok(true)
}
