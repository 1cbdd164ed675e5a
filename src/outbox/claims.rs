//! Claims: deliveries are claimed by one relay at a time, then done, put off, or dead.
//!
//! Events of one order go to a target in their order: one whose earlier event still waits for the same target is passed
//! over, and looked at again a moment later. While a batch of its table is not unpacked, whatever was recorded after it waits: its order may
//! have an event in there.

use std::time::Duration;

use uuid::Uuid;

use super::{
    Event, Note, Rearmed, Result,
    audit::{columns, event, uuid},
};
use crate::store::{Fields, Link, Outbox, Value, finish, listed};

/// After which time an event is looked at again whose order has an earlier one on its way.
pub(super) const AFTER_ANOTHER: Duration = Duration::from_millis(250);

/// The target of deliveries that are found by their events, in a form that no index serves: with hundreds of events, and statistics of
/// an hour ago, PostgreSQL would read all that waits for the target, and compare each with all of them.
const TARGET: &str = "COALESCE(target, '')";

/// Which deliveries to claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pick {
    /// Those that have never been tried, the longest due first.
    Oldest,
    /// Those that have never been tried, the latest first.
    Newest,
    /// Those that have been tried and are due again.
    Again,
}

/// A delivery that is ours for a while.
#[derive(Debug, Clone)]
pub struct Claimed {
    /// What to deliver.
    pub event: Event,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// For how long it has been failing; `None` also where our tables can't tell.
    pub failing_for: Option<Duration>,
    /// The end of the claim, which tells it from any other.
    pub(crate) until: i64,
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
    /// Whether this was an attempt: the target was there, and did not take it.
    pub counts: bool,
    /// The end of the claim.
    pub(crate) until: i64,
}

/// What came of deliveries.
#[derive(Debug, Clone, Default)]
pub struct Settled {
    /// They have arrived.
    pub delivered: Vec<Uuid>,
    /// They have not.
    pub failed: Vec<Failed>,
    /// The timers of which delivered events were, that are to fire once more.
    pub again: Vec<Rearmed>,
    /// What that says of the target.
    pub notes: Vec<Note>,
}

impl Settled {
    /// Whether there is nothing to be noted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.delivered.is_empty() && self.failed.is_empty() && self.notes.is_empty()
    }
}

/// Deliveries to be claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    /// Which.
    pub pick: Pick,
    /// How many in all, with those of the wants before.
    pub total: usize,
}

impl Claimed {
    /// What to tell the outbox when it could not be delivered.
    #[must_use]
    pub fn failed(&self, error: impl Into<String>, retry_in: Option<Duration>) -> Failed {
        Failed { event: self.event.id, error: error.into(), retry_in, counts: true, until: self.until }
    }

    /// The same when the target was not there, or wants nothing: no attempt.
    #[must_use]
    pub fn not_tried(&self, error: impl Into<String>, retry_in: Duration) -> Failed {
        Failed { counts: false, ..self.failed(error, Some(retry_in)) }
    }
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
    /// When the oldest event that waits was recorded, in microseconds since 1970 UTC.
    pub oldest: Option<i64>,
}

pub(super) fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX / 4).min(i64::MAX / 4)
}

impl Outbox {
    /// Ends claims as [`Outbox::settle`] does, then claims deliveries that are due, for as long as `lease`, want by want; all
    /// in one transaction. Nobody else gets them until then. Returns what came of each want.
    ///
    /// # Errors
    /// As the database says, sorted: then nothing is settled, and nothing claimed.
    pub async fn exchange(
        &self,
        target: &str,
        claimant: &str,
        lease: Duration,
        settled: &Settled,
        wants: &[Want],
    ) -> Result<Vec<Vec<Claimed>>> {
        // Most of the time there is nothing to do, and that is seen without a transaction.
        if settled.is_empty() && !self.any_due(target, wants).await? {
            return Ok(wants.iter().map(|_| Vec::new()).collect());
        }
        let mut work = self.backend.begin().await?;
        let link = work.link();
        let exchanged = async {
            self.settle_in(link, target, settled).await?;
            let (mut claimed, mut total) = (Vec::new(), 0);
            for Want { pick, total: wanted } in wants {
                let limit = i64::try_from(wanted.saturating_sub(total)).unwrap_or(i64::MAX);
                let found = if limit > 0 { self.claim_in(link, target, claimant, lease, *pick, limit).await? } else { Vec::new() };
                total += found.len();
                claimed.push(found);
            }
            Ok(claimed)
        };
        let exchanged = exchanged.await;
        finish(work, exchanged).await
    }

    async fn any_due(&self, target: &str, wants: &[Want]) -> Result<bool> {
        let mut link = self.backend.read().await?;
        for tried in [false, true] {
            let Some(want) = wants.iter().find(|want| want.total > 0 && (want.pick == Pick::Again) == tried) else { continue };
            let due = self.words.statement(&self.due(want.pick, ""));
            if !link.fetch(&due, &[target.into(), 1.into()]).await?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// In: ?1 target, ?2 how many. Out: events. Locks as `lock` has it.
    fn due(&self, pick: Pick, lock: &str) -> String {
        let (tried, order) = match pick {
            Pick::Oldest => ("= 0", ""),
            Pick::Newest => ("= 0", " DESC"),
            Pick::Again => ("> 0", ""),
        };
        let (deliveries, now, ours, by_due) = (self.words.deliveries(), self.words.now, self.words.ours("d."), self.words.by_due);
        let before = self.before_all_batches("d.");
        format!(
            "SELECT CAST(d.event_id AS CHAR(36)) FROM {deliveries} d{by_due} \
             WHERE {ours} AND d.target = ?1 AND d.due_at <= {now} AND d.attempts {tried}{before} ORDER BY d.due_at{order} LIMIT ?2{lock}"
        )
    }

    async fn claim_in(
        &self,
        link: &mut dyn Link,
        target: &str,
        claimant: &str,
        lease: Duration,
        pick: Pick,
        limit: i64,
    ) -> Result<Vec<Claimed>> {
        let words = &self.words;
        // Locks the deliveries, skips locked ones.
        let due = words.statement(&self.due(pick, words.skip_locked));
        let due = link.fetch(&due, &[target.into(), limit.into()]).await?;
        let due = due.into_iter().map(|mut fields| uuid(&fields.text()?)).collect::<Result<Vec<_>>>()?;
        if due.is_empty() {
            return Ok(Vec::new());
        }
        let (mut claimed, mut behind) = (Vec::new(), Vec::new());
        for candidate in self.candidates(link, target, lease, &due).await? {
            match candidate {
                Candidate::Free(free) => claimed.push(*free),
                Candidate::Behind { event, until } => behind.push((event, until)),
            }
        }
        // In: ?1 target, ?2 until when, ?3 who, from ?4 on events. Locked above.
        if let Some(Claimed { until, .. }) = claimed.first() {
            let events: Vec<Uuid> = claimed.iter().map(|claimed| claimed.event.id).collect();
            let (list, ids) = words.event_ids(4, &events);
            let claim = words.statement(&format!(
                "UPDATE {}{} SET attempts = attempts + 1, due_at = ?2, claimed_by = ?3 WHERE {TARGET} = ?1 AND event_id IN ({list})",
                words.deliveries(),
                words.by_event
            ));
            link.change(&claim, &[vec![target.into(), (*until).into(), claimant.into()], ids].concat()).await?;
        }
        for (event, until) in behind {
            let (event, id) = words.event_ids(3, &[event]);
            let put_off =
                words.statement(&format!("UPDATE {} SET due_at = ?2 WHERE {TARGET} = ?1 AND event_id = {event}", words.deliveries()));
            link.change(&put_off, &[vec![target.into(), until.into()], id].concat()).await?;
        }
        Ok(claimed)
    }

    /// These events with their deliveries, in the order of time, as a claim for as long as `lease` would make them.
    async fn candidates(&self, link: &mut dyn Link, target: &str, lease: Duration, due: &[Uuid]) -> Result<Vec<Candidate>> {
        let (words, deliveries, events) = (&self.words, self.words.deliveries(), self.words.events());
        let (by_event, by_order) = (words.by_event, words.by_order);
        let failing_since = if self.knows_targets() { "d.failing_since" } else { "NULL" };
        let (due, ids) = words.event_ids(2, due);
        // In: ?1 target, from ?2 on events. Out: events with their deliveries, the clock, and when the earlier ones of their orders that wait for
        // the same target will be tried: 0 for those that somebody has in hand. Locks nothing. The earlier ones are found by their orders, and
        // each one's delivery by its event: of a join, or of ids that an index may serve, MariaDB would read the whole table for each event.
        let select = words.statement(&format!(
            "SELECT {columns}, d.attempts, {failing_since}, {now}, \
             (SELECT MAX((SELECT CASE WHEN q.claimed_by IS NULL THEN q.due_at ELSE 0 END FROM {deliveries} q{by_event} \
                          WHERE q.event_id = p.id AND COALESCE(q.target, '') = ?1 AND q.due_at IS NOT NULL)) \
              FROM {events} p{by_order} WHERE p.order_id = e.order_id AND COALESCE(p.id, e.id) < e.id AND p.orders_table = e.orders_table) \
             FROM {deliveries} d{by_event} JOIN {events} e ON e.id = d.event_id \
             WHERE COALESCE(d.target, '') = ?1 AND d.event_id IN ({due}) ORDER BY e.id",
            columns = columns(self),
            now = words.now
        ));
        let candidate = |mut fields: Fields| {
            let event = event(&mut fields, self)?;
            let attempt = u32::try_from(fields.integer()? + 1).unwrap_or(u32::MAX);
            let (failing_since, now, earlier) = (fields.optional_integer()?, fields.integer()?, fields.optional_integer()?);
            let ago = |since: i64| Duration::from_micros(u64::try_from(now - since).unwrap_or(0));
            Ok(match earlier {
                Some(earlier) => Candidate::Behind { event: event.id, until: earlier.max(now + micros(AFTER_ANOTHER)) },
                None => {
                    Candidate::Free(Box::new(Claimed { event, attempt, failing_for: failing_since.map(ago), until: now + micros(lease) }))
                }
            })
        };
        link.fetch(&select, &[vec![target.into()], ids].concat()).await?.into_iter().map(candidate).collect()
    }

    /// Ends claims: these are delivered, and those failed. A claim that has run out meanwhile and is
    /// somebody else's ends too if the event was delivered, and stays theirs if not. Notes what the target said.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn settle(&self, target: &str, settled: &Settled) -> Result<()> {
        self.exchange(target, "", Duration::ZERO, settled, &[]).await.map(drop)
    }

    async fn settle_in(&self, link: &mut dyn Link, target: &str, settled: &Settled) -> Result<()> {
        let (words, deliveries, now) = (&self.words, self.words.deliveries(), self.words.now);
        let Settled { delivered, failed, again, notes } = settled;
        self.rearm_in(link, again).await?;
        for note in notes {
            self.note_in(link, target, note).await?;
        }
        if !delivered.is_empty() {
            let (list, ids) = words.event_ids(2, delivered);
            // In: ?1 target, from ?2 on events. Locks their deliveries.
            let delete = words.statement(&format!("{} WHERE {TARGET} = ?1 AND event_id IN ({list})", (words.delete_by_event)(&deliveries)));
            link.change(&delete, &[vec![target.into()], ids].concat()).await?;
        }
        let failing = if self.knows_targets() {
            ", failing_since = CASE WHEN ?5 = 1 THEN COALESCE(failing_since, {now}) ELSE failing_since END"
        } else {
            ""
        };
        let failing = failing.replace("{now}", now);
        for Failed { event, error, retry_in, counts, until } in failed {
            let (event, id) = words.event_ids(6, &[*event]);
            // In: ?1 target, ?2 the pause or NULL, ?3 the error, ?4 the claim, ?5 1 where it counts, ?6 the event.
            let update = words.statement(&format!(
                "UPDATE {deliveries} SET due_at = {now} + ?2, claimed_by = NULL, failed_at = {now}, error = ?3, \
                 attempts = attempts - 1 + ?5{failing} WHERE {TARGET} = ?1 AND event_id = {event} AND due_at + 0 = ?4"
            ));
            let pause = Value::Integer(retry_in.map(micros));
            let values = vec![target.into(), pause, error.as_str().into(), (*until).into(), i64::from(*counts).into()];
            link.change(&update, &[values, id].concat()).await?;
        }
        Ok(())
    }

    /// Makes due what failed no longer ago than `ago` and would be tried again within `within`, a piece of it; returns how much.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn bring_forward(&self, target: &str, ago: Duration, within: Duration, limit: u32) -> Result<u64> {
        let (words, now) = (&self.words, self.words.now);
        let mut work = self.backend.begin().await?;
        let link = work.link();
        let brought = async {
            // In: ?1 target, ?2 since when, ?3 until when, both from now, ?4 how many. Out: events. Locks them, skips locked ones.
            let put_off = words.statement(&format!(
                "SELECT CAST(event_id AS CHAR(36)) FROM {}{} WHERE {} AND target = ?1 AND due_at > {now} AND due_at <= {now} + ?3 \
                 AND claimed_by IS NULL AND attempts > 0 AND failed_at >= {now} - ?2 ORDER BY due_at LIMIT ?4{}",
                words.deliveries(),
                words.by_due,
                words.ours(""),
                words.skip_locked
            ));
            let values = [target.into(), micros(ago).into(), micros(within).into(), i64::from(limit).into()];
            let put_off = link.fetch(&put_off, &values).await?;
            let put_off = put_off.into_iter().map(|mut fields| uuid(&fields.text()?)).collect::<Result<Vec<_>>>()?;
            if put_off.is_empty() {
                return Ok(0);
            }
            let (list, ids) = words.event_ids(2, &put_off);
            let update = words.statement(&format!(
                "UPDATE {}{} SET due_at = {now} WHERE {TARGET} = ?1 AND event_id IN ({list})",
                words.deliveries(),
                words.by_event
            ));
            link.change(&update, &[vec![target.into()], ids].concat()).await
        };
        let brought = brought.await;
        finish(work, brought).await
    }

    /// Makes due all that was put off, a piece of it; returns how much.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn make_due(&self, target: &str, limit: u32) -> Result<u64> {
        self.bring_forward(target, Duration::MAX, Duration::MAX, limit).await
    }

    /// What waits for each target that has anything waiting. Reads all our deliveries; locks nothing.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn backlog(&self) -> Result<Vec<Backlog>> {
        // Ids are in the order of time, and as texts have a least one everywhere.
        let select = self.words.statement(&format!(
            "SELECT target, COUNT(due_at), COUNT(*) - COUNT(due_at), MIN(CASE WHEN due_at IS NOT NULL THEN CAST(event_id AS CHAR(36)) END) \
             FROM {} WHERE {} GROUP BY target ORDER BY target",
            self.words.deliveries(),
            self.words.ours("")
        ));
        let rows = self.backend.read().await?.fetch(&select, &[]).await?;
        let backlog = |mut fields: Fields| {
            Ok(Backlog {
                target: fields.text()?,
                waiting: fields.integer()?.unsigned_abs(),
                dead: fields.integer()?.unsigned_abs(),
                oldest: fields.optional_text()?.map(|id| uuid(&id)).transpose()?.as_ref().map(recorded_at),
            })
        };
        rows.into_iter().map(backlog).collect()
    }

    /// The targets for which anything waits or is dead, without counting it. Locks nothing.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn addressed(&self) -> Result<Vec<String>> {
        let mut targets: Vec<String> = Vec::new();
        while let Some(next) = self.addressed_after(targets.last().map_or("", String::as_str)).await? {
            targets.push(next);
        }
        Ok(targets)
    }

    /// The first of them that comes after this name.
    pub(super) async fn addressed_after(&self, name: &str) -> Result<Option<String>> {
        let words = &self.words;
        // In: ?1 a target. Out: the next one, by the index. Locks nothing.
        let next = words.statement(&format!("SELECT MIN(target) FROM {} WHERE {} AND target > ?1", words.deliveries(), words.ours("")));
        let found = self.backend.read().await?.fetch(&next, &[name.into()]).await?;
        found.into_iter().next().map_or(Ok(None), |mut fields| fields.optional_text())
    }

    /// The events of a piece of this target's deliveries, with one more condition on them. Locks nothing.
    pub(super) async fn some_deliveries(&self, target: &str, and: &str, limit: u32) -> Result<Vec<Uuid>> {
        let words = &self.words;
        // In: ?1 target, ?2 how many. Out: events.
        let some = words.statement(&format!(
            "SELECT CAST(event_id AS CHAR(36)) FROM {} WHERE {} AND target = ?1{and} LIMIT ?2",
            words.deliveries(),
            words.ours("")
        ));
        let some = self.backend.read().await?.fetch(&some, &[target.into(), i64::from(limit).into()]).await?;
        some.into_iter().map(|mut fields| uuid(&fields.text()?)).collect()
    }

    /// Gives up a piece of what this target is to be told, what is dead included; returns how much.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn give_up(&self, target: &str, limit: u32) -> Result<u64> {
        let words = &self.words;
        let some = self.some_deliveries(target, "", limit).await?;
        if some.is_empty() {
            return Ok(0);
        }
        let mut work = self.backend.begin().await?;
        let delete = words.passing(&format!(
            "{} WHERE {TARGET} = ?1 AND event_id IN ({})",
            (words.delete_by_event)(&words.deliveries()),
            listed(some.iter())
        ));
        let deleted = work.link().change(&delete, &[target.into()]).await;
        finish(work, deleted).await
    }
}

/// A delivery that is due.
enum Candidate {
    /// It can be claimed.
    Free(Box<Claimed>),
    /// An earlier event of its order comes first.
    Behind {
        event: Uuid,
        /// When to look again.
        until: i64,
    },
}

/// When an event was recorded, in microseconds since 1970 UTC, as its id tells.
pub(super) fn recorded_at(id: &Uuid) -> i64 {
    let (seconds, nanos) = id.get_timestamp().map_or((0, 0), |time| time.to_unix());
    i64::try_from(seconds).unwrap_or(0) * 1_000_000 + i64::from(nanos / 1_000)
}
