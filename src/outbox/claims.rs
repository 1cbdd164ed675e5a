//! Claims: deliveries are claimed by one relay at a time, then done, put off, or dead.

use std::{collections::BTreeMap, time::Duration};

use uuid::Uuid;

use super::{
    Event, Result,
    audit::{columns, event, uuid},
};
use crate::store::{Fields, Link, Outbox, Value, finish, listed};

/// A delivery that is ours for a while.
#[derive(Debug, Clone)]
pub struct Claimed {
    /// What to deliver.
    pub event: Event,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// The end of the claim, which tells it from any other.
    until: i64,
}

/// A delivery that failed.
#[derive(Debug, Clone)]
pub struct Failed {
    /// The event.
    pub event: Uuid,
    /// Why.
    pub error: String,
    /// How long to wait for the next attempt; `None` makes a dead letter of it.
    pub retry_in: Option<Duration>,
    until: i64,
}

impl Claimed {
    /// What to tell the outbox when it could not be delivered.
    #[must_use]
    pub fn failed(&self, error: impl Into<String>, retry_in: Option<Duration>) -> Failed {
        Failed { event: self.event.id, error: error.into(), retry_in, until: self.until }
    }
}

/// What came of a failure that counts for more deliveries than its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shared {
    /// For how many it counts.
    pub failed: u64,
    /// How many of them are dead letters now.
    pub dead: u64,
}

/// What waits for one target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backlog {
    /// The target's name.
    pub target: String,
    /// Deliveries that are due, claimed or put off.
    pub waiting: u64,
    /// Deliveries that are given up.
    pub dead: u64,
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX / 4).min(i64::MAX / 4)
}

impl Outbox {
    /// Claims deliveries that are due, those longest due first, for as long as `lease`. Nobody else gets them
    /// until then.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn claim(&self, target: &str, claimant: &str, lease: Duration, limit: u32) -> Result<Vec<Claimed>> {
        let mut work = self.backend.begin().await?;
        let claimed = self.claim_in(work.link(), target, claimant, lease, limit).await;
        finish(work, claimed).await
    }

    async fn claim_in(&self, link: &mut dyn Link, target: &str, claimant: &str, lease: Duration, limit: u32) -> Result<Vec<Claimed>> {
        let (words, deliveries, now) = (&self.words, self.words.deliveries(), self.words.now);
        // In: ?1 target, ?2 how many. Out: events. Locks the deliveries, skips locked ones.
        let due = words.statement(&format!(
            "SELECT CAST(event_id AS CHAR(36)) FROM {deliveries} WHERE {} AND target = ?1 AND due_at <= {now} ORDER BY due_at LIMIT ?2{}",
            words.ours(""),
            words.skip_locked
        ));
        let due = link.fetch(&due, &[target.into(), i64::from(limit).into()]).await?;
        let due = due.into_iter().map(|mut fields| uuid(&fields.text()?)).collect::<Result<Vec<_>>>()?;
        if due.is_empty() {
            return Ok(Vec::new());
        }
        let due = listed(due.iter());
        // In: ?1 target, ?2 the length of the claim, ?3 who. Locked above.
        let claim = words.passing(&format!(
            "UPDATE {deliveries} SET attempts = attempts + 1, due_at = {now} + ?2, claimed_by = ?3 WHERE target = ?1 AND event_id IN ({due})"
        ));
        link.change(&claim, &[target.into(), micros(lease).into(), claimant.into()]).await?;
        // In: ?1 target. Out: events with their deliveries.
        let select = words.passing(&format!(
            "SELECT {}, d.attempts, d.due_at FROM {deliveries} d JOIN {} e ON e.id = d.event_id \
             WHERE d.target = ?1 AND d.event_id IN ({due}) ORDER BY e.id",
            columns(words),
            words.events()
        ));
        let rows = link.fetch(&select, &[target.into()]).await?;
        let claimed = |mut fields: Fields| {
            let event = event(&mut fields)?;
            Ok(Claimed { event, attempt: u32::try_from(fields.integer()?).unwrap_or(u32::MAX), until: fields.integer()? })
        };
        rows.into_iter().map(claimed).collect()
    }

    /// Ends claims: these are delivered, and those failed. A claim that has run out meanwhile and is
    /// somebody else's ends too if the event was delivered, and stays theirs if not.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn settle(&self, target: &str, delivered: &[Uuid], failed: &[Failed]) -> Result<()> {
        let mut work = self.backend.begin().await?;
        let settled = self.settle_in(work.link(), target, delivered, failed).await;
        finish(work, settled).await
    }

    async fn settle_in(&self, link: &mut dyn Link, target: &str, delivered: &[Uuid], failed: &[Failed]) -> Result<()> {
        let (words, deliveries, now) = (&self.words, self.words.deliveries(), self.words.now);
        if !delivered.is_empty() {
            let list = listed(delivered.iter());
            let delete = words.passing(&format!("DELETE FROM {deliveries} WHERE target = ?1 AND event_id IN ({list})"));
            link.change(&delete, &[target.into()]).await?;
        }
        for Failed { event, error, retry_in, until } in failed {
            // In: ?1 target, ?2 the pause or NULL, ?3 the error, ?4 the claim.
            let update = words.passing(&format!(
                "UPDATE {deliveries} SET due_at = {now} + ?2, claimed_by = NULL, failed_at = {now}, error = ?3 \
                 WHERE target = ?1 AND event_id = '{event}' AND due_at = ?4"
            ));
            let values = [target.into(), Value::Integer(retry_in.map(micros)), error.as_str().into(), (*until).into()];
            link.change(&update, &values).await?;
        }
        Ok(())
    }

    /// Counts a failure of `ago` for deliveries that were due then and nobody has in hand, those longest due first: each
    /// has been tried once more, and waits as `pause_after` has it for so many attempts, or becomes a dead letter.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn share_failure(
        &self,
        target: &str,
        error: &str,
        ago: Duration,
        pause_after: &(dyn Fn(u32) -> Option<Duration> + Sync),
        limit: u32,
    ) -> Result<Shared> {
        let mut work = self.backend.begin().await?;
        let shared = async {
            let mut shared = Shared::default();
            for (attempts, due) in self.lock_due(work.link(), target, ago, limit).await? {
                let pause = pause_after(u32::try_from(attempts).unwrap_or(u32::MAX));
                let failed = self.fail_in(work.link(), target, error, &due, attempts, pause).await?;
                shared.failed += failed;
                shared.dead += if pause.is_none() { failed } else { 0 };
            }
            Ok(shared)
        };
        let shared = shared.await;
        finish(work, shared).await
    }

    /// What was due so long ago, by the number of attempts that each will have had.
    async fn lock_due(&self, link: &mut dyn Link, target: &str, ago: Duration, limit: u32) -> Result<BTreeMap<i64, Vec<Uuid>>> {
        let (words, now) = (&self.words, self.words.now);
        // In: ?1 target, ?2 how long ago, ?3 how many. Out: ids and attempts. Locks the deliveries, skips locked ones.
        let select = words.statement(&format!(
            "SELECT CAST(event_id AS CHAR(36)), attempts FROM {} WHERE {} AND target = ?1 AND due_at <= {now} - ?2 ORDER BY due_at LIMIT ?3{}",
            words.deliveries(),
            words.ours(""),
            words.skip_locked
        ));
        let rows = link.fetch(&select, &[target.into(), micros(ago).into(), i64::from(limit).into()]).await?;
        let mut due: BTreeMap<i64, Vec<Uuid>> = BTreeMap::new();
        for mut fields in rows {
            let event = uuid(&fields.text()?)?;
            due.entry(fields.integer()? + 1).or_default().push(event);
        }
        Ok(due)
    }

    async fn fail_in(
        &self,
        link: &mut dyn Link,
        target: &str,
        error: &str,
        events: &[Uuid],
        attempts: i64,
        pause: Option<Duration>,
    ) -> Result<u64> {
        let (words, now) = (&self.words, self.words.now);
        // In: ?1 target, ?2 attempts, ?3 the pause or NULL, ?4 the error. Locked above.
        let update = words.passing(&format!(
            "UPDATE {} SET attempts = ?2, due_at = {now} + ?3, claimed_by = NULL, failed_at = {now}, error = ?4 \
             WHERE target = ?1 AND event_id IN ({})",
            words.deliveries(),
            listed(events.iter())
        ));
        link.change(&update, &[target.into(), attempts.into(), Value::Integer(pause.map(micros)), error.into()]).await
    }

    /// The statement that gives up what waits for this target.
    #[must_use]
    pub fn give_up(&self, target: &str) -> String {
        format!("DELETE FROM {} WHERE {} AND target = '{target}';", self.words.deliveries(), self.words.ours(""))
    }

    /// What waits for each target that has anything waiting. Reads all our deliveries; locks nothing.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn backlog(&self) -> Result<Vec<Backlog>> {
        let select = self.words.statement(&format!(
            "SELECT target, COUNT(due_at), COUNT(*) - COUNT(due_at) FROM {} WHERE {} GROUP BY target ORDER BY target",
            self.words.deliveries(),
            self.words.ours("")
        ));
        let rows = self.backend.read().await?.fetch(&select, &[]).await?;
        let backlog = |mut fields: Fields| {
            Ok(Backlog { target: fields.text()?, waiting: fields.integer()?.unsigned_abs(), dead: fields.integer()?.unsigned_abs() })
        };
        rows.into_iter().map(backlog).collect()
    }
}
