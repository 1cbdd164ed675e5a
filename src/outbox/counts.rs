//! How much waits, as far as that can be told at once.

use std::time::Duration;

use super::{Result, audit::uuid, claims::recorded_at};
use crate::store::Outbox;

/// Counts end here.
const MOST: i64 = 10_000;

/// What waits for one target, and what was given up; each count ends at 10,000.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Deliveries that are due, claimed or put off.
    pub waiting: u64,
    /// For how long the oldest of them has waited.
    pub oldest: Option<Duration>,
    /// Deliveries that are given up.
    pub dead: u64,
}

impl Counts {
    /// Together with those of another table.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { waiting: self.waiting + other.waiting, oldest: self.oldest.max(other.oldest), dead: self.dead + other.dead }
    }
}

impl Outbox {
    /// Counts what there is for a target. Reads 20,000 entries of an index at the most; locks nothing.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn count_for(&self, target: &str) -> Result<Counts> {
        let (waiting, oldest) = self.count_some(target, "IS NOT NULL").await?;
        let (dead, _) = self.count_some(target, "IS NULL").await?;
        Ok(Counts { waiting, oldest, dead })
    }

    /// Counts the orders that are dead letters, dropped ones not among them; ends at 10,000. Locks nothing.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn count_dead_orders(&self) -> Result<u64> {
        let words = &self.words;
        // In: ?1 the most. Out: how many, at most so many.
        let count = words.statement(&format!(
            "SELECT COUNT(*) FROM (SELECT 1 FROM {} WHERE {} AND dropped = 0 LIMIT ?1) some_of_them",
            words.dead_letters(),
            self.ours_by_rule("")
        ));
        let mut counted = self.backend.read().await?.fetch(&count, &[MOST.into()]).await?.into_iter();
        Ok(counted.next().map_or(Ok(0), |mut fields| fields.integer())?.unsigned_abs())
    }

    async fn count_some(&self, target: &str, is: &str) -> Result<(u64, Option<Duration>)> {
        let words = &self.words;
        // In: ?1 target, ?2 the most. Out: how many, at most so many; the least of their ids, which are in the order of time; now.
        let count = words.statement(&format!(
            "SELECT COUNT(*), MIN(some_of_them.id), {} FROM (SELECT CAST(event_id AS CHAR(36)) AS id FROM {} WHERE {} AND target = ?1 \
             AND due_at {is} LIMIT ?2) some_of_them",
            words.now,
            words.deliveries(),
            words.ours("")
        ));
        let mut counted = self.backend.read().await?.fetch(&count, &[target.into(), MOST.into()]).await?.into_iter();
        let Some(mut fields) = counted.next() else { return Ok((0, None)) };
        let (count, oldest, now) = (fields.integer()?, fields.optional_text()?, fields.integer()?);
        let recorded = oldest.map(|id| uuid(&id)).transpose()?.as_ref().map(recorded_at);
        let age = recorded.map(|at| Duration::from_micros(u64::try_from(now - at).unwrap_or_default()));
        Ok((count.unsigned_abs(), age))
    }
}
