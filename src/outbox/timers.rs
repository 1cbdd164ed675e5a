//! Timers: registering, cancelling and showing them, arming one again that has fired, and forgetting old ones. They fire like
//! orders close: each is an unpaid order to its rule, and the event of its closure is what its target is told.
//!
//! A registration with an older generation than the one before changes nothing. The same one again changes nothing either
//! where the timer has fired or was cancelled since: whoever did not hear the answer may ask again.

use std::{
    collections::HashSet,
    time::{Duration, UNIX_EPOCH},
};

use serde::Deserialize;
use serde_json::{json, value::RawValue};
use uuid::Uuid;

use super::{Result, claims::micros};
use crate::{
    config::Span,
    store::{Fields, Link, Outbox, Value, finish, unexpected},
};

/// When a timer is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// In microseconds since 1970 UTC.
    At(i64),
    /// So long after the database's clock when it is written.
    In(Duration),
}

impl Due {
    /// What these two members of a JSON object say together, of which there must be one; a text is quoted nowhere, since it may be
    /// anything.
    ///
    /// # Errors
    /// Says what would be right.
    pub fn read(due: Option<&str>, after: Option<&str>) -> std::result::Result<Self, String> {
        match (due, after) {
            (Some(due), None) => {
                let time = humantime::parse_rfc3339(due).ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
                let micros = time.and_then(|since| i64::try_from(since.as_micros()).ok());
                micros.map(Self::At).ok_or_else(|| "due is no time in UTC from 1970 on, such as \"2030-01-31T12:00:00Z\"".into())
            }
            (None, Some(after)) => after.parse::<Span>().map(|span| Self::In(span.get())).map_err(|error| format!("in {error}")),
            (Some(_), Some(_)) => Err("due and in can't be given together".into()),
            (None, None) => Err("due is missing, such as \"2030-01-31T12:00:00Z\"; or in, such as \"30m\"".into()),
        }
    }

    /// When whoever has taken a timer wants to be told again, by the body of his answer; most say nothing of it.
    ///
    /// # Errors
    /// Says what would be right.
    pub fn answered(body: &[u8]) -> std::result::Result<Option<Self>, String> {
        #[derive(Deserialize)]
        struct Wish {
            due: Option<String>,
            r#in: Option<String>,
        }
        match serde_json::from_slice::<serde_json::Value>(body) {
            Ok(serde_json::Value::Object(wish)) if wish.contains_key("due") || wish.contains_key("in") => {
                let wish = serde_json::from_value::<Wish>(wish.into()).map_err(|_| "due and in take texts")?;
                Self::read(wish.due.as_deref(), wish.r#in.as_deref()).map(Some)
            }
            Ok(_) | Err(_) => Ok(None),
        }
    }
}

/// A timer that is to be registered.
#[derive(Debug, Clone)]
pub struct NewTimer {
    /// What it is about.
    pub kind: String,
    /// Which one of that kind.
    pub key: String,
    /// When it is due.
    pub due: Due,
    /// Who is told then.
    pub target: String,
    /// What is given along: a JSON object.
    pub data: Box<RawValue>,
    /// Which registration of this timer it is.
    pub generation: i64,
}

/// As the table has it: the longest kind, key and target, in characters, and data, in bytes.
const LONGEST: [(&str, usize); 3] = [("kind", 64), ("key", 255), ("target", 64)];
const LONGEST_DATA: usize = 65_536;

impl NewTimer {
    /// The same, if the table takes it.
    ///
    /// # Errors
    /// Says what would be right.
    pub fn checked(self) -> std::result::Result<Self, String> {
        for ((name, longest), text) in LONGEST.into_iter().zip([&self.kind, &self.key, &self.target]) {
            if text.is_empty() || text.chars().count() > longest || text.contains(char::is_control) {
                return Err(format!("{name} is no text of 1 to {longest} characters without control characters"));
            }
        }
        if !self.data.get().starts_with('{') || self.data.get().len() > LONGEST_DATA {
            return Err(format!("data is no JSON object of {LONGEST_DATA} bytes at the most"));
        }
        Ok(self)
    }
}

/// What a timer waits for, or has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimerState {
    /// It fires when it is due.
    Armed,
    /// It has fired; its target is told, or will be.
    Fired,
    /// It does not fire.
    Cancelled,
}

impl TimerState {
    /// As the table has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Armed => "armed",
            Self::Fired => "fired",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A timer. Times are in microseconds since 1970 UTC.
#[derive(Debug, Clone)]
pub struct Timer {
    /// The id of its row.
    pub id: String,
    /// What it is about.
    pub kind: String,
    /// Which one of that kind.
    pub key: String,
    /// What has become of it.
    pub state: TimerState,
    /// When it is due, or was.
    pub due: i64,
    /// When it fired last.
    pub fired_at: Option<i64>,
    /// Who is told.
    pub target: String,
    /// What is given along.
    pub data: Box<RawValue>,
    /// Which registration of it this is.
    pub generation: i64,
    /// The database's clock when it was read.
    pub now: i64,
}

/// What came of a registration.
#[derive(Debug, Clone)]
pub struct Registered {
    /// The timer as it is now.
    pub timer: Timer,
    /// Whether there was none of this kind and key before.
    pub is_new: bool,
    /// Whether a later generation was registered before, and nothing has changed.
    pub is_older: bool,
}

/// What came of a cancellation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// It will not fire.
    Yes,
    /// It has fired, at this time in microseconds since 1970 UTC.
    Fired(i64),
    /// There is no such timer.
    Unknown,
}

/// A timer that has fired and is to be armed again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rearmed {
    /// Its id.
    pub timer: String,
    /// The time for which it has fired: if it is another by now, it was registered anew, and stays as that says.
    pub fired_for: i64,
    /// When it is due now.
    pub due: Due,
}

impl Outbox {
    /// Registers timers, all or none; returns what came of each, in their order.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn register(&self, timers: &[NewTimer]) -> Result<Vec<Registered>> {
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
        let list: Vec<_> = (0..).zip(timers).map(|(place, timer)| object(place, timer)).collect();
        let list = [Value::Text(serde_json::Value::from(list).to_string())];
        let known: HashSet<i64> = self.listed(link, &list).await?.into_iter().map(|(place, _)| place).collect();
        // In: ?1 timers. Out: the number of rows. Locks them, in their order.
        let register = words.statement(&format!(
            "INSERT INTO {table} (kind, {}, due_at, target, data, generation) \
             SELECT e.new_kind, e.new_key, COALESCE(e.new_due, {} + e.delay), e.new_target, {}, e.new_generation FROM {} WHERE 1 = 1 \
             ORDER BY e.new_kind, e.new_key {}",
            words.key, words.now, words.new_timer_data, words.new_timers, words.renew
        ));
        link.change(&register, &list).await?;
        let registered = |((place, timer), new): ((i64, Timer), &NewTimer)| Registered {
            is_new: !known.contains(&place),
            is_older: timer.generation > new.generation,
            timer,
        };
        Ok(self.listed(link, &list).await?.into_iter().zip(timers).map(registered).collect())
    }

    /// Those of a list of new timers that are there, with their places in it.
    async fn listed(&self, link: &mut dyn Link, list: &[Value]) -> Result<Vec<(i64, Timer)>> {
        // In: ?1 timers. Out: their rows, in the order of the list. Locks nothing.
        let select = self.words.statement(&format!(
            "SELECT n.place, {} FROM (SELECT e.* FROM {}) AS n JOIN {} e ON e.kind = n.new_kind AND e.{} = n.new_key ORDER BY n.place",
            self.columns(),
            self.words.new_timers,
            self.words.timers(),
            self.words.key
        ));
        let rows = link.fetch(&select, list).await?;
        rows.into_iter().map(|mut fields| Ok((fields.integer()?, timer(&mut fields)?))).collect()
    }

    /// Keeps a timer from firing.
    ///
    /// # Errors
    /// As the database says, sorted; [`crate::store::StoreError::Locked`] while it is firing and that takes long.
    pub async fn cancel(&self, kind: &str, key: &str) -> Result<Cancelled> {
        let (table, column) = (self.words.timers(), self.words.key);
        // In: ?1 kind, ?2 key. Out: the number of rows. Locks the row, and waits for whoever has: a timer that fires meanwhile is
        // armed no more then.
        let cancel =
            self.words.statement(&format!("UPDATE {table} SET state = 'cancelled' WHERE kind = ?1 AND {column} = ?2 AND state = 'armed'"));
        // Likewise. Out: state, and when it fired. Locks nothing.
        let select = self.words.statement(&format!("SELECT state, fired_at FROM {table} WHERE kind = ?1 AND {column} = ?2"));
        let values = [kind.into(), key.into()];
        let mut work = self.backend.begin().await?;
        let link = work.link();
        let cancelling = async {
            if link.change(&cancel, &values).await? > 0 {
                return Ok(Cancelled::Yes);
            }
            let Some(mut fields) = link.fetch(&select, &values).await?.pop() else { return Ok(Cancelled::Unknown) };
            Ok(match state(&fields.text()?)? {
                TimerState::Fired => Cancelled::Fired(fields.optional_integer()?.unwrap_or_default()),
                TimerState::Armed | TimerState::Cancelled => Cancelled::Yes,
            })
        };
        let cancelled = cancelling.await;
        finish(work, cancelled).await
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
            let old = old.into_iter().map(|mut fields| super::audit::uuid(&fields.text()?)).collect::<Result<Vec<Uuid>>>()?;
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

fn object(place: i64, timer: &NewTimer) -> serde_json::Value {
    let NewTimer { kind, key, due, target, data, generation } = timer;
    let (at, delay) = match due {
        Due::At(time) => (Some(*time), None),
        Due::In(span) => (None, Some(micros(*span))),
    };
    json!({
        "place": place, "kind": kind, "key": key, "due": at, "delay": delay, "target": target, "data": data.get(), "generation": generation,
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
