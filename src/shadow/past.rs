//! How late orders were closed before the shadow began: by the rows of the day before it, where a column has the time of their last
//! change.

use std::{collections::HashMap, sync::Arc, time::Duration};

use hdrhistogram::Histogram;
use serde::Serialize;
use tokio::time::Instant;

use crate::{
    close::Lateness,
    order::OrderId,
    store::{DueQuery, Store, StoreError, Window},
};

/// Orders are read whose deadlines are no longer ago, and so many at the most; so many at a time.
const LENGTH: Duration = Duration::from_hours(24);
const MOST: u64 = 100_000;
const AT_ONCE: u32 = 1_000;

/// After reading, so many times as long is rested.
const REST: u32 = 9;

/// The orders that were closed before.
#[derive(Debug, Clone)]
pub struct Past {
    /// The table with the status of closed orders in the place of the unpaid ones.
    pub closed: Arc<dyn Store>,
    /// The table by the column with the time of the last change, in the place of the deadline.
    pub changes: Arc<dyn Store>,
}

/// How late they were.
#[derive(Debug, Serialize)]
pub struct Before {
    /// Orders that were changed last after their deadlines.
    pub closed: u64,
    /// How long after that, in milliseconds.
    pub closed_ms: Option<Lateness>,
}

impl Past {
    /// Reads a page at a time, with rests between them.
    pub(super) async fn read(&self) -> Result<Before, StoreError> {
        let mut late = Histogram::<u64>::new(3).unwrap_or_else(|_| unreachable!("three digits are possible"));
        let mut query = DueQuery::of(Window::overdue(Some(LENGTH)), AT_ONCE);
        loop {
            let began = Instant::now();
            let page = self.closed.due(&query).await?;
            let deadlines: HashMap<OrderId, i64> = page.rows.into_iter().filter_map(|row| Some((row.id, row.deadline?))).collect();
            let ids: Vec<OrderId> = deadlines.keys().cloned().collect();
            for row in self.changes.look(&ids).await? {
                let Some((changed, deadline)) = row.deadline.zip(deadlines.get(&row.id)) else { continue };
                if let Ok(lateness) = u64::try_from(changed - deadline) {
                    late.record(lateness).unwrap_or_default();
                }
            }
            query.after = page.next;
            if query.after.is_none() || late.len() >= MOST {
                return Ok(Before { closed: late.len(), closed_ms: Lateness::of(&late) });
            }
            tokio::time::sleep(began.elapsed() * REST).await;
        }
    }
}
