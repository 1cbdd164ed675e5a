//! Filling a page, status after status: one read for each status lets an index on (status, deadline)
//! return its rows in order.

use crate::{
    order::Row,
    store::{Cursor, DueQuery, Page},
};

/// A page being filled.
#[derive(Debug)]
pub(super) struct Paging {
    limit: usize,
    statuses: usize,
    status: usize,
    after: Option<Cursor>,
    page: Page,
}

/// The next read that a page needs.
#[derive(Debug)]
pub(super) struct Read {
    /// Which of the unpaid statuses.
    pub(super) status: usize,
    /// The place to continue after.
    pub(super) after: Option<Cursor>,
    /// The most rows.
    pub(super) limit: i64,
}

impl Paging {
    pub(super) fn new(query: &DueQuery, statuses: usize) -> Self {
        let status = query.after.as_ref().map_or(0, |cursor| cursor.status);
        Self { limit: query.limit as usize, statuses, status, after: query.after.clone(), page: Page::default() }
    }

    /// What to read next; `None` when the page is full or nothing is left.
    pub(super) fn next_read(&self) -> Option<Read> {
        let missing = self.limit - self.page.rows.len();
        (missing > 0 && self.status < self.statuses).then(|| Read {
            status: self.status,
            after: self.after.clone(),
            limit: i64::try_from(missing).unwrap_or(i64::MAX),
        })
    }

    /// Takes the rows of the last [`Read`], and the deadline column's own text of the last of them.
    pub(super) fn add(&mut self, rows: Vec<Row>, last: Option<String>) {
        self.page.reads += 1;
        let missing = self.limit - self.page.rows.len();
        if rows.len() < missing {
            self.status += 1;
            self.after = None;
        } else {
            let cursor = |(row, deadline): (&Row, String)| Cursor { status: self.status, deadline, id: row.id.clone() };
            self.after = rows.last().zip(last).map(cursor);
        }
        self.page.rows.extend(rows);
    }

    pub(super) fn finish(mut self) -> Page {
        self.page.next = self.after;
        self.page
    }
}
