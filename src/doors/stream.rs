//! A Redis Stream, read as a consumer group.
//!
//! An entry is acknowledged after its look. One that nobody has acknowledged for the length of the lease is taken over by
//! whoever asks first: its daemon has died, or its look has not been taken yet, and a second one does no harm. Acknowledged
//! entries stay in the stream, also those that name no order: who writes them decides how long the stream is (`MAXLEN`).

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::{Door, Fault, Taken};
use crate::{
    config::{Redis, StreamDoor},
    redis::{Claimed, Commands, Group, RedisError, StreamEntry},
};

/// How long a read waits for an entry. The server answers nothing else on that connection meanwhile, and its audit comes each second.
const WAIT: Duration = Duration::from_millis(500);

/// A stream. It has connections of its own: one is blocked most of the time.
#[derive(Debug)]
pub(super) struct Stream {
    reading: Commands,
    settling: Commands,
    group: Group,
    field: String,
    lease: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Entries whose looks are under way here.
    in_hand: HashSet<String>,
    /// When it was begun to look for entries of others, and from where on there may be more.
    claimed: Option<Instant>,
    next: Option<String>,
}

impl Stream {
    /// # Errors
    /// Says what is wrong with the configuration of Redis.
    pub(super) fn new(redis: &Redis, StreamDoor { key, group, field, lease }: &StreamDoor) -> Result<Self, RedisError> {
        let consumer = gethostname::gethostname().to_string_lossy().into_owned();
        Ok(Self {
            reading: Commands::new(redis)?,
            settling: Commands::new(redis)?,
            group: Group { key: key.clone(), group: group.clone(), consumer },
            field: field.clone(),
            lease: lease.get(),
            state: Mutex::default(),
        })
    }

    /// Whether it can be read.
    pub(super) async fn examine(&self) -> Result<String, Fault> {
        let (missing, is_there) = self.reading.missing_rights_of_group(&self.group).await?;
        Fault::unless_granted(&missing)?;
        Ok(if is_there { String::new() } else { "it is not there yet, and the daemon makes it".into() })
    }

    /// Where to look for entries that somebody else has left, if it is time to.
    fn claims_from(&self) -> Option<String> {
        let mut state = self.lock();
        if state.next.is_none() && state.claimed.is_none_or(|at| at.elapsed() >= self.lease / 2) {
            state.claimed = Some(Instant::now());
            state.next = Some("0-0".into());
        }
        state.next.take()
    }

    fn taken(&self, StreamEntry { id, fields }: StreamEntry) -> Option<Taken<String>> {
        // Taken over from ourselves, which only means that its lease begins anew.
        if !self.lock().in_hand.insert(id.clone()) {
            return None;
        }
        let field = self.field.as_bytes();
        let value = match fields {
            None => Err("the entry was deleted before its look".to_owned()),
            Some(fields) => fields
                .into_iter()
                .find(|(name, _)| name == field)
                .map(|(_, value)| value)
                .ok_or_else(|| format!("the entry has no field {}", self.field)),
        };
        Some(Taken { receipt: id, id: value })
    }

    async fn acknowledge(&self, ids: Vec<String>) -> Result<(), Fault> {
        self.settling.acknowledge(&self.group, &ids).await?;
        let mut state = self.lock();
        ids.iter().for_each(|id| {
            state.in_hand.remove(id);
        });
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Door for Stream {
    type Receipt = String;

    async fn open(&mut self) -> Result<(), Fault> {
        *self.lock() = State::default();
        Ok(self.reading.create_group(&self.group).await?)
    }

    async fn take(&self, most: usize) -> Result<Vec<Taken<String>>, Fault> {
        let entries = match self.claims_from() {
            Some(from) => {
                let Claimed { next, entries } = self.reading.claim(&self.group, self.lease, &from, most).await?;
                self.lock().next = Some(next).filter(|next| next != "0-0");
                entries
            }
            None => self.reading.read_group(&self.group, most, WAIT).await?,
        };
        Ok(entries.into_iter().filter_map(|entry| self.taken(entry)).collect())
    }

    async fn settle(&self, seen: Vec<String>) -> Result<(), Fault> {
        self.acknowledge(seen).await
    }

    async fn set_aside(&self, malformed: Vec<String>) -> Result<(), Fault> {
        self.acknowledge(malformed).await
    }

    async fn close(&mut self) {}
}
