//! The user's statements in a closure: all orders at once, or one by one where their effects are counted.

use crate::{
    config::{Rows, Rule},
    order::OrderId,
    store::{Misfit, StoreError, template::Template},
};

/// A statement of `close.sql`, in the form in which a dialect runs it.
#[derive(Debug, Clone)]
pub(super) struct CloseStatement<S> {
    pub(super) sql: S,
    /// Its place in the list, from 1.
    number: usize,
    rows: Option<Rows>,
}

impl<S> CloseStatement<S> {
    fn new(sql: S, number: usize, rows: Option<Rows>) -> Self {
        Self { sql, number, rows }
    }

    /// The rule's statements as a dialect makes them of their templates; `escapes` as in [`Template::parse`].
    ///
    /// # Errors
    /// Names the statement that is none.
    pub(super) fn of(rule: &Rule, escapes: bool, make: impl Fn(&Template) -> S) -> Result<Vec<Self>, Misfit> {
        (1..)
            .zip(&rule.close_sql)
            .map(|(number, statement)| {
                let template =
                    Template::parse(&statement.sql, escapes).map_err(|what| Misfit(format!("close.sql: statement {number} {what}")))?;
                Ok(Self::new(make(&template), number, statement.rows))
            })
            .collect()
    }

    /// The lists of ids with which to run it. A total over several orders would let 2 + 0 pass for 1 + 1, so a
    /// statement that must change some number of rows runs for each order by itself. For no orders it runs
    /// once all the same, so that a rehearsal tries it.
    pub(super) fn runs<'a>(&self, ids: &'a [OrderId]) -> impl Iterator<Item = &'a [OrderId]> + use<'a, S> {
        let size = if self.rows.is_some() { 1 } else { ids.len().max(1) };
        ids.is_empty().then_some(ids).into_iter().chain(ids.chunks(size))
    }

    /// Judges one such run.
    ///
    /// # Errors
    /// [`StoreError::Rejected`] when it changed another number of rows than it must.
    pub(super) fn check(&self, ids: &[OrderId], changed: u64) -> Result<(), StoreError> {
        match (self.rows, ids) {
            (Some(rows), [id]) if !rows.allow(changed) => Err(StoreError::Rejected(format!(
                "statement {} of close.sql changed {changed} rows for order {id}, and must change {rows}",
                self.number
            ))),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(count: usize) -> Vec<OrderId> {
        (0..count).map(|number| OrderId::from_database(&number.to_string())).collect()
    }

    fn runs(rows: Option<Rows>, count: usize) -> Vec<usize> {
        CloseStatement::new((), 1, rows).runs(&ids(count)).map(<[_]>::len).collect()
    }

    #[test]
    fn a_statement_runs_once_for_all_or_once_for_each_and_never_not_at_all() {
        assert_eq!(runs(None, 0), [0]);
        assert_eq!(runs(None, 3), [3]);
        assert_eq!(runs(Some(Rows::Exactly(1)), 0), [0]);
        assert_eq!(runs(Some(Rows::AtLeast(1)), 3), [1, 1, 1]);
    }

    #[test]
    fn only_the_asked_number_of_rows_passes() {
        for (rows, good, bad) in [(Rows::Exactly(2), vec![2], vec![0, 1, 3]), (Rows::AtLeast(2), vec![2, 3], vec![0, 1])] {
            let statement = CloseStatement::new((), 7, Some(rows));
            assert!(good.iter().all(|changed| statement.check(&ids(1), *changed).is_ok()));
            for changed in bad {
                let Err(StoreError::Rejected(reason)) = statement.check(&ids(1), changed) else { panic!("{changed} rows passed") };
                assert!(reason.contains("statement 7") && reason.contains("order 0"), "{reason}");
            }
            assert_eq!(statement.check(&[], 0), Ok(()), "a rehearsal has no order");
        }
    }
}
