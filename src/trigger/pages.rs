//! The pages of a window of the table, one after the other: what the sweep, the look-ahead and `reconcile` read.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    order::{Row, Shares},
    store::{DueQuery, Store, StoreError, Window},
};

/// What reading one row may cost.
const FAIR_COST: Duration = Duration::from_micros(20);

/// Reads page after page.
#[derive(Debug)]
pub struct Pages<'s> {
    store: &'s dyn Store,
    /// `None` when the last page has been read.
    query: Option<DueQuery>,
}

/// One page.
#[derive(Debug)]
pub struct PageRead {
    /// Its orders, unlocked: what they were, not what they are.
    pub rows: Vec<Row>,
    /// How many statements it took, one after the other.
    pub reads: u32,
    /// When the database was asked.
    pub asked: Instant,
    /// When all of the answer was there.
    pub answered: Instant,
}

impl PageRead {
    /// How much longer it took than its rows are worth.
    #[must_use]
    pub fn excess(&self) -> Duration {
        let fair = FAIR_COST * u32::try_from(self.rows.len()).unwrap_or(u32::MAX);
        (self.answered - self.asked).saturating_sub(fair)
    }
}

impl<'s> Pages<'s> {
    /// From the first page on.
    #[must_use]
    pub fn of(store: &'s dyn Store, window: Window, limit: u32) -> Self {
        Self { store, query: Some(DueQuery::of(window, limit)) }
    }

    /// The same of these shares' orders, as far as the database can tell them.
    #[must_use]
    pub fn of_shares(mut self, shares: Shares) -> Self {
        self.query.iter_mut().for_each(|query| query.shares = shares);
        self
    }

    /// Makes pages to come no longer than this.
    pub fn limit(&mut self, limit: u32) {
        if let Some(query) = &mut self.query {
            query.limit = limit;
        }
    }

    /// Whether the last page has been read.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.query.is_none()
    }

    /// The next page; `None` after the last.
    ///
    /// # Errors
    /// As the database says, sorted. The same page may be read again.
    pub async fn next(&mut self) -> Result<Option<PageRead>, StoreError> {
        let Some(query) = &mut self.query else { return Ok(None) };
        let asked = Instant::now();
        let page = self.store.due(query).await?;
        let answered = Instant::now();
        match page.next {
            Some(place) => query.after = Some(place),
            None => self.query = None,
        }
        Ok(Some(PageRead { rows: page.rows, reads: page.reads, asked: page.asked.unwrap_or(asked), answered }))
    }
}
