//! Timers: registering, cancelling and showing them, arming one again that has fired, and forgetting old ones. They fire like
//! orders close: each is an unpaid order to its rule, and the event of its closure is what its target is told.
//!
//! A registration with an older generation than the one before changes nothing. The same one again changes nothing either
//! where the timer has fired or was cancelled since: whoever did not hear the answer may ask again.

mod timer;

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use backon::{BackoffBuilder, ExponentialBuilder};
use serde_json::{json, value::RawValue};
use uuid::Uuid;

pub use timer::{Cancelled, Due, NewTimer, Rearmed, Registered, Timer, TimerName, TimerState};

use super::{Result, audit::uuid, claims::micros};
use crate::store::{Fields, Link, Outbox, StoreError, Value, finish, unexpected};

/// The pauses between attempts of what conflicts with other transactions, and how many there are.
const AGAIN: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));
const ATTEMPTS: usize = 8;

/// So many timers are cancelled by one statement.
const PIECE: usize = 512;

impl Outbox {
    /// Registers timers, all or none; returns what came of each, in their order.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn register(&self, timers: &[NewTimer]) -> Result<Vec<Registered>> {
        let mut pauses = pauses();
        loop {
            match (self.try_to_register(timers).await, pauses.next()) {
                (Err(StoreError::Conflict(_)), Some(pause)) => tokio::time::sleep(pause).await,
                (ended, _) => return ended,
            }
        }
    }

    async fn try_to_register(&self, timers: &[NewTimer]) -> Result<Vec<Registered>> {
        let mut work = self.backend.begin().await?;
        let link = work.link();
        let registering = async {
            let mut registered = Vec::with_capacity(timers.len());
            let mut rest = timers;
            while !rest.is_empty() {
                // One statement takes no timer twice.
                let mut seen = HashSet::new();
                let length = rest.iter().take_while(|timer| seen.insert((&timer.kind, &timer.key))).count();
                let (first, others) = rest.split_at(length);
                registered.append(&mut self.register_in(link, first).await?);
                rest = others;
            }
            Ok(registered)
        };
        let registered = registering.await;
        finish(work, registered).await
    }

    async fn register_in(&self, link: &mut dyn Link, timers: &[NewTimer]) -> Result<Vec<Registered>> {
        let (words, table) = (&self.words, self.words.timers());
        // One after the other, so that a table of millions is written in one place; and by its id a row tells that it is new.
        let ids: Vec<String> = timers.iter().map(|_| Uuid::now_v7().to_string()).collect();
        let list: Vec<_> = (0..).zip(&ids).zip(timers).map(|((place, id), timer)| object(place, id, timer)).collect();
        let list = [Value::Text(serde_json::Value::from(list).to_string())];
        // In: ?1 timers. Out: the number of rows. Locks them, in their order.
        let register = words.statement(&format!(
            "INSERT INTO {table} (id, kind, {}, due_at, target, data, generation) \
             SELECT e.new_id, e.new_kind, e.new_key, COALESCE(e.new_due, {} + e.delay), e.new_target, {}, e.new_generation FROM {} WHERE 1 = 1 \
             ORDER BY e.new_kind, e.new_key {}",
            words.key, words.now, words.new_timer_data, words.new_timers, words.renew
        ));
        link.change(&register, &list).await?;
        let registered = |((_, timer), (id, new)): ((i64, Timer), (&String, &NewTimer))| Registered {
            is_new: timer.id == *id,
            is_older: timer.generation > new.generation,
            timer,
        };
        Ok(self.listed(link, &list, "n.place").await?.into_iter().zip(ids.iter().zip(timers)).map(registered).collect())
    }

    /// Those of a list of timers that are there, with their places in it, in this order.
    async fn listed(&self, link: &mut dyn Link, list: &[Value], order: &str) -> Result<Vec<(i64, Timer)>> {
        // In: ?1 timers. Out: their rows. Locks them where `order` says so.
        let select = self.words.statement(&format!(
            "SELECT n.place, {} FROM (SELECT e.* FROM {}) AS n JOIN {} e ON e.kind = n.new_kind AND e.{} = n.new_key ORDER BY {order}",
            self.columns(),
            self.words.new_timers,
            self.words.timers(),
            self.words.key
        ));
        let rows = link.fetch(&select, list).await?;
        rows.into_iter().map(|mut fields| Ok((fields.integer()?, timer(&mut fields)?))).collect()
    }

    /// Keeps timers from firing, all or none; returns what came of each, in their order.
    ///
    /// # Errors
    /// As the database says, sorted; [`crate::store::StoreError::Locked`] while one of them is firing and that takes long.
    pub async fn cancel(&self, names: &[TimerName]) -> Result<Vec<Cancelled>> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let mut pauses = pauses();
        loop {
            let mut work = self.backend.begin().await?;
            let cancelled = self.cancel_in(work.link(), names).await;
            match (finish(work, cancelled).await, pauses.next()) {
                (Err(StoreError::Conflict(_)), Some(pause)) => tokio::time::sleep(pause).await,
                (ended, _) => return ended,
            }
        }
    }

    async fn cancel_in(&self, link: &mut dyn Link, names: &[TimerName]) -> Result<Vec<Cancelled>> {
        let words = &self.words;
        let list: Vec<_> =
            names.iter().enumerate().map(|(place, TimerName { kind, key })| json!({ "place": place, "kind": kind, "key": key })).collect();
        let list = [Value::Text(serde_json::Value::from(list).to_string())];
        // In the order in which firing locks them, and waiting for whatever fires just now: it is armed no more then.
        let found = self.listed(link, &list, &format!("e.id{}", words.locking)).await?;
        let armed = found.iter().filter(|(_, timer)| timer.state == TimerState::Armed);
        let armed = armed.map(|(_, timer)| uuid(&timer.id)).collect::<Result<Vec<Uuid>>>()?;
        for some in armed.chunks(PIECE) {
            let (ids, values) = words.event_ids(1, some);
            // In: from ?1 on ids. Out: the number of rows. Locked above.
            let cancel = format!("UPDATE {} SET state = 'cancelled' WHERE id IN ({ids}) AND state = 'armed'", words.timers());
            link.change(&words.statement(&cancel), &values).await?;
        }
        let found: HashMap<i64, Timer> = found.into_iter().collect();
        let cancelled = |place| match found.get(&place) {
            None => Cancelled::Unknown,
            Some(Timer { state: TimerState::Fired, fired_at, .. }) => Cancelled::Fired(fired_at.unwrap_or_default()),
            Some(Timer { state: TimerState::Armed | TimerState::Cancelled, .. }) => Cancelled::Yes,
        };
        Ok((0..).take(names.len()).map(cancelled).collect())
    }

    /// The timer of this kind and key, if there is one. Locks nothing.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn timer(&self, kind: &str, key: &str) -> Result<Option<Timer>> {
        let (table, column, columns) = (self.words.timers(), self.words.key, self.columns());
        // In: ?1 kind, ?2 key. Out: the row. Locks nothing.
        let select = self.words.statement(&format!("SELECT {columns} FROM {table} e WHERE e.kind = ?1 AND e.{column} = ?2"));
        let found = self.backend.read().await?.fetch(&select, &[kind.into(), key.into()]).await?;
        found.into_iter().next().map(|mut fields| timer(&mut fields)).transpose()
    }

    /// The columns of [`timer`], of a table called e.
    fn columns(&self) -> String {
        let words = &self.words;
        format!(
            "CAST(e.id AS CHAR(36)), e.kind, e.{}, e.state, e.due_at, e.fired_at, e.target, {}, e.generation, {}",
            words.key, words.data_text, words.now
        )
    }

    /// Arms timers again that have fired, unless somebody has registered them anew since.
    pub(super) async fn rearm_in(&self, link: &mut dyn Link, timers: &[Rearmed]) -> Result<()> {
        let words = &self.words;
        for Rearmed { timer, fired_for, due } in timers {
            let (base, time) = match due {
                Due::At(time) => ("0", *time),
                Due::In(span) => (words.now, micros(*span)),
            };
            // In: ?1 the timer, ?2 the time for which it has fired, ?3 the new one. Out: the number of rows. Locks the row.
            let rearm = words.statement(&format!(
                "UPDATE {} SET state = 'armed', due_at = {base} + ?3 WHERE id = {} AND state = 'fired' AND due_at = ?2",
                words.timers(),
                (words.event_id)("?1")
            ));
            link.change(&rearm, &[timer.as_str().into(), (*fired_for).into(), time.into()]).await?;
        }
        Ok(())
    }

    /// Whom the timers name that are due next, of a piece of them. Locks nothing.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn next_targets(&self, limit: u32) -> Result<Vec<String>> {
        // In: ?1 how many. Out: names of targets, by the index of what is armed. Locks nothing.
        let select = self.words.statement(&format!(
            "SELECT DISTINCT target FROM (SELECT target FROM {} WHERE state = 'armed' ORDER BY due_at LIMIT ?1) AS next_ones ORDER BY target",
            self.words.timers()
        ));
        let found = self.backend.read().await?.fetch(&select, &[i64::from(limit).into()]).await?;
        found.into_iter().map(|mut fields| fields.text()).collect()
    }

    /// Forgets a piece of the timers that were due longer ago than `keep` and are over; returns how many.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn prune_timers(&self, keep: Duration, limit: u32) -> Result<u64> {
        let (words, table) = (&self.words, self.words.timers());
        let mut pruned = 0;
        for state in [TimerState::Fired, TimerState::Cancelled] {
            let over = format!("state = '{}' AND state <> 'armed'", state.name());
            // By when it was due, which has an index, and by when it fired: what fired late is still to be known as fired to a
            // registration that comes twice.
            // In: ?1 for how long they are kept, ?2 how many. Out: ids, by the index of what is over. Locks nothing.
            let select = words.statement(&format!(
                "SELECT CAST(id AS CHAR(36)) FROM {table} WHERE {over} AND due_at < {now} - ?1 \
                 AND COALESCE(fired_at, due_at) < {now} - ?1 ORDER BY due_at LIMIT ?2",
                now = words.now
            ));
            let old = self.backend.read().await?.fetch(&select, &[micros(keep).into(), i64::from(limit).into()]).await?;
            let old = old.into_iter().map(|mut fields| uuid(&fields.text()?)).collect::<Result<Vec<Uuid>>>()?;
            if old.is_empty() {
                continue;
            }
            let (list, ids) = words.event_ids(1, &old);
            let mut work = self.backend.begin().await?;
            // In: from ?1 on ids. Out: the number of rows. Locks them; what was armed again since stays.
            let delete = words.statement(&format!("DELETE FROM {table} WHERE id IN ({list}) AND {over}"));
            let deleted = work.link().change(&delete, &ids).await;
            pruned += finish(work, deleted).await?;
        }
        Ok(pruned)
    }
}

/// The pauses between attempts of what gets into others' way: timers fire in the order of their ids, and are registered in that of
/// their names.
fn pauses() -> impl Iterator<Item = Duration> {
    ExponentialBuilder::default().with_min_delay(AGAIN.0).with_max_delay(AGAIN.1).with_max_times(ATTEMPTS).with_jitter().build()
}

fn object(place: i64, id: &str, timer: &NewTimer) -> serde_json::Value {
    let NewTimer { kind, key, due, target, data, generation } = timer;
    let (at, delay) = match due {
        Due::At(time) => (Some(*time), None),
        Due::In(span) => (None, Some(micros(*span))),
    };
    json!({
        "place": place, "id": id, "kind": kind, "key": key, "due": at, "delay": delay, "target": target, "data": data.get(), "generation": generation,
    })
}

fn timer(fields: &mut Fields) -> Result<Timer> {
    Ok(Timer {
        id: fields.text()?,
        kind: fields.text()?,
        key: fields.text()?,
        state: state(&fields.text()?)?,
        due: fields.integer()?,
        fired_at: fields.optional_integer()?,
        target: fields.text()?,
        data: RawValue::from_string(fields.text()?).map_err(|error| unexpected(&format!("no JSON ({error})")))?,
        generation: fields.integer()?,
        now: fields.integer()?,
    })
}

fn state(text: &str) -> Result<TimerState> {
    let all = [TimerState::Armed, TimerState::Fired, TimerState::Cancelled];
    all.into_iter().find(|state| state.name() == text).ok_or_else(|| unexpected("no state of a timer"))
}
