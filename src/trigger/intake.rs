//! Takes timers from a Redis Stream, as a consumer group does: an entry is taken off when its timer is committed, and comes again
//! until then. What can't be registered for what it is goes to a stream beside it, with the reason: nothing is lost, and nothing in
//! the way of the next.

use std::{sync::Arc, time::Duration};

use serde_json::value::RawValue;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use crate::{
    close::{Registrar, Reminder},
    config::Live,
    metric,
    outbox::{Due, NewTimer},
    redis::{Commands, GONE, Group, RedisError, StreamEntry},
    store::StoreError,
};

/// The name of the group.
const GROUP: &str = "order-closer";

/// The most entries that one transaction takes.
const BATCH: usize = 1_000;

/// How long to wait for an entry; the stop waits for that.
const WAIT: Duration = Duration::from_millis(500);

/// The same where more are expected: whatever follows on that connection waits for this.
const AT_ONCE: Duration = Duration::from_millis(1);

/// How often to look for what others have had for so long without an end.
const IDLE: Duration = Duration::from_secs(5);

/// The pause after a failure.
const AGAIN: Duration = Duration::from_secs(1);

/// About how many entries are kept that could not be registered.
const REJECTED: u64 = 10_000;

/// Takes timers from a stream.
#[derive(Debug)]
pub struct Intake {
    /// A connection of its own, since it waits.
    pub commands: Commands,
    /// The stream.
    pub key: String,
    /// Who registers timers.
    pub registrar: Registrar,
    /// Who can be told.
    pub targets: Live<Arc<[String]>>,
    /// When to stop.
    pub stop: CancellationToken,
}

/// Who reads, and what is known of it.
#[derive(Debug)]
struct Reading {
    group: Group,
    /// Whether the group is there.
    is_made: bool,
    /// When no entries of others were found last.
    looked: Option<Instant>,
    /// When it was said that the database takes none.
    refused: Reminder,
}

impl Intake {
    /// Where what can't be registered goes.
    #[must_use]
    pub fn aside(key: &str) -> String {
        format!("{key}:rejected")
    }

    /// Takes entries until it is told to stop.
    pub async fn run(self) {
        let consumer = gethostname::gethostname().to_string_lossy().into_owned();
        let group = Group { key: self.key.clone(), group: GROUP.into(), consumer };
        let (mut reading, mut away) = (Reading { group, is_made: false, looked: None, refused: Reminder::default() }, false);
        while !self.stop.is_cancelled() {
            match self.once(&mut reading).await {
                Ok(()) if std::mem::take(&mut away) => info!(stream = self.key, "taking timers from the stream again"),
                Ok(()) => {}
                Err(error) => {
                    if !std::mem::replace(&mut away, true) {
                        warn!(stream = self.key, %error, "timers can't be taken from the stream; trying again");
                    }
                    reading.is_made = false;
                    self.stop.run_until_cancelled(tokio::time::sleep(AGAIN)).await;
                }
            }
        }
        if reading.is_made {
            self.forget(&reading.group, true).await;
        }
    }

    /// Takes consumers away that nobody needs; ours too, if that is so.
    async fn forget(&self, group: &Group, ours: bool) {
        if let Err(error) = self.commands.forget_consumers(group, GONE, ours).await {
            debug!(stream = self.key, %error, "consumers that are gone can't be taken away");
        }
    }

    async fn once(&self, reading: &mut Reading) -> Result<(), RedisError> {
        let Reading { group, is_made, looked, refused } = reading;
        if !*is_made {
            self.commands.create_group(group).await?;
            self.forget(group, false).await;
            *is_made = true;
        }
        let mut left = Vec::new();
        if looked.is_none_or(|at| at.elapsed() >= IDLE) {
            left = self.commands.claim(group, IDLE, "0-0", BATCH).await?.entries;
            if left.is_empty() {
                *looked = Some(Instant::now());
            }
        }
        let mut entries = if left.is_empty() { self.commands.read_group(group, BATCH, WAIT).await? } else { left };
        while !entries.is_empty() {
            // The next are read while these are registered; but those that others have left have their turn, too.
            let reads_on = !self.stop.is_cancelled() && looked.is_some_and(|at| at.elapsed() < IDLE);
            let next = async { if reads_on { self.commands.read_group(group, BATCH, AT_ONCE).await } else { Ok(Vec::new()) } };
            let read = entries.into_iter().filter_map(Entry::read).collect();
            let (registered, next) = tokio::join!(self.register(group, read, refused), next);
            registered?;
            entries = next?;
        }
        Ok(())
    }

    async fn register(&self, group: &Group, entries: Vec<Entry>, refused: &mut Reminder) -> Result<(), RedisError> {
        let (targets, oldest) = (self.targets.get(), self.registrar.sweep.get().oldest.get());
        let (mut ids, mut timers, mut rejected) = (Vec::new(), Vec::new(), Vec::new());
        for entry in entries {
            match timer(&entry, &targets, oldest) {
                Ok(timer) => {
                    timers.push(timer);
                    ids.push(entry);
                }
                Err(reason) => rejected.push((entry, reason)),
            }
        }
        match self.until_registered(&timers).await {
            Some(Ok(())) => self.commands.take_off(group, &ids.into_iter().map(|entry| entry.id).collect::<Vec<_>>()).await?,
            Some(Err(reason)) => {
                let (entries, apart) = (ids.len(), self.register_apart(group, ids, timers).await?);
                if apart.len() < entries {
                    rejected.extend(apart);
                } else if refused.is_due(Instant::now()) {
                    let fix = "see that the user may write order_closer_timers, and what its triggers do; order-closer check";
                    error!(
                        stream = self.key,
                        entries, reason, fix, "the database refuses every timer of the stream; they stay there, and are tried again"
                    );
                }
            }
            // They come again.
            None => {}
        }
        for (entry, reason) in rejected {
            self.reject(group, entry, reason).await?;
        }
        Ok(())
    }

    /// Registers each by itself, after the database has refused them together. Returns those that it refuses: if those are all, it
    /// is no entry's fault (a right, a column, a trigger).
    async fn register_apart(&self, group: &Group, entries: Vec<Entry>, timers: Vec<NewTimer>) -> Result<Vec<(Entry, String)>, RedisError> {
        let mut refused = Vec::new();
        for (entry, timer) in entries.into_iter().zip(timers) {
            match self.until_registered(std::slice::from_ref(&timer)).await {
                Some(Ok(())) => self.commands.take_off(group, &[entry.id]).await?,
                Some(Err(reason)) => refused.push((entry, reason)),
                // The daemon stops, and they come again.
                None => return Ok(Vec::new()),
            }
        }
        Ok(refused)
    }

    /// Registers timers, however long the database is away; nothing when the daemon stops before.
    async fn until_registered(&self, timers: &[NewTimer]) -> Option<Result<(), String>> {
        let mut said = false;
        loop {
            let error = match self.registrar.register(timers).await {
                Ok(registered) => {
                    debug!(timers = registered.len(), stream = self.key, "timers registered");
                    metric::TIMER_ENTRIES.add(registered.len() as u64, &["registered"]);
                    return Some(Ok(()));
                }
                Err(StoreError::Rejected(reason)) => return Some(Err(reason)),
                Err(error) => error,
            };
            if !std::mem::replace(&mut said, true) {
                warn!(stream = self.key, %error, "timers of the stream can't be registered; trying again");
            }
            self.stop.run_until_cancelled(tokio::time::sleep(AGAIN)).await?;
        }
    }

    /// Moves an entry aside.
    async fn reject(&self, group: &Group, Entry { id, fields }: Entry, reason: String) -> Result<(), RedisError> {
        let aside = Self::aside(&self.key);
        error!(stream = self.key, entry = id, reason, aside, "an entry is no timer and was moved aside; mend whoever adds such entries");
        let mut kept = vec![("rejected_id", id.clone()), ("rejected_for", reason)];
        kept.extend(fields.iter().map(|(name, value)| (name.as_str(), value.clone())));
        self.commands.append(&aside, REJECTED, kept).await?;
        metric::TIMER_ENTRIES.add(1, &["rejected"]);
        self.commands.take_off(group, &[id]).await
    }
}

/// An entry, as text.
#[derive(Debug)]
struct Entry {
    id: String,
    fields: Vec<(String, String)>,
}

impl Entry {
    /// Nothing of one that was deleted meanwhile.
    fn read(StreamEntry { id, fields }: StreamEntry) -> Option<Self> {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Some(Self { id, fields: fields?.into_iter().map(|(name, value)| (text(name), text(value))).collect() })
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// When it was added, in milliseconds since 1970 UTC; nothing where whoever added it gave it an id that is no time.
    fn added_at(&self) -> Option<i64> {
        self.id.split('-').next()?.parse().ok()
    }
}

/// The timer that an entry wants. `in` counts from when it was added, so that one that waits is not later for that.
fn timer(entry: &Entry, targets: &[String], oldest: Option<Duration>) -> Result<NewTimer, String> {
    if let Some((name, _)) = entry.fields.iter().find(|(name, _)| !FIELDS.contains(&name.as_str())) {
        return Err(format!("there is no field {name:?}; the fields are {}", FIELDS.join(", ")));
    }
    let needed = |name: &str| entry.field(name).ok_or_else(|| format!("the field {name} is missing"));
    let due = match Due::read(entry.field("due"), entry.field("in"))? {
        Due::In(span) => {
            let added = entry.added_at().ok_or("its id is no time, from which `in` could count; use `due`")?;
            let span = i64::try_from(span.as_micros()).unwrap_or(i64::MAX / 4);
            Due::At(added.saturating_mul(1_000).saturating_add(span))
        }
        at @ Due::At(_) => at,
    };
    let data = RawValue::from_string(entry.field("data").unwrap_or("{}").into()).map_err(|error| format!("data is no JSON: {error}"))?;
    let generation = entry.field("generation").map(str::parse).transpose().map_err(|_| "generation is no whole number")?;
    NewTimer {
        kind: needed("kind")?.into(),
        key: needed("key")?.into(),
        due,
        target: needed("target")?.into(),
        data,
        generation: generation.unwrap_or_default(),
    }
    .checked(targets, oldest)
}

const FIELDS: [&str; 7] = ["kind", "key", "due", "in", "target", "data", "generation"];
