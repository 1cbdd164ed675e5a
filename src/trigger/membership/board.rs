//! Where instances see each other's heartbeats: a hash in Redis, or a table of ours where there is no Redis.

use std::{collections::HashMap, sync::Arc, time::Duration};

use super::peers::FORGOTTEN;
use crate::{
    redis::{Commands, RedisError},
    store::{Store, StoreError},
};

/// How long the database may take for a heartbeat.
const ANSWER: Duration = Duration::from_secs(1);

/// Where heartbeats are written and read.
#[derive(Debug, Clone)]
pub enum Board {
    /// A hash for each group, whose fields are the instances.
    Redis(Commands),
    /// Rows of our own tables.
    Table(Arc<dyn Store>),
    /// What a test has in their place.
    #[cfg(test)]
    Memory(Arc<dyn Hash>),
}

/// A hash for each group, in memory.
#[cfg(test)]
#[async_trait::async_trait]
pub trait Hash: std::fmt::Debug + Send + Sync {
    /// Writes a field and reads all; nothing without an answer.
    async fn exchange(&self, group: &str, own: &str, said: &str) -> Option<HashMap<String, String>>;

    /// Removes fields.
    async fn remove(&self, group: &str, names: Vec<String>);
}

/// Why others can't be seen.
#[derive(Debug, thiserror::Error)]
pub(super) enum BoardError {
    #[error(transparent)]
    Redis(#[from] RedisError),
    #[error(transparent)]
    Database(#[from] StoreError),
    #[error("there is no Redis, and the tables order_closer_* that would have the heartbeats are missing, or of an older version")]
    NoTable,
    #[error("the heartbeats have {0} fields, which instances have not written")]
    Crowd(usize),
}

impl BoardError {
    /// Whether a hand is needed: it is refused, or there is nothing to write to.
    pub(super) fn is_refusal(&self) -> bool {
        match self {
            Self::Redis(error) => error.is_refusal(),
            Self::Database(StoreError::Rejected(_) | StoreError::Refused { .. }) | Self::NoTable | Self::Crowd(_) => true,
            Self::Database(_) => false,
        }
    }

    /// What mends it.
    pub(super) fn fix(&self) -> &str {
        match self {
            Self::Redis(error) => error.fix(),
            Self::Database(_) => "grant this user SELECT, INSERT, UPDATE and DELETE on order_closer_members",
            Self::NoTable => "order-closer migrate, and start the daemons anew",
            Self::Crowd(_) => "see who else writes to keys that begin with order-closer:, and keep him from it (ACL)",
        }
    }
}

impl Board {
    /// The one that there is.
    #[must_use]
    pub fn of(commands: &Commands, store: &Arc<dyn Store>) -> Self {
        if commands.is_absent() { Self::Table(Arc::clone(store)) } else { Self::Redis(commands.clone()) }
    }

    /// Writes this instance's heartbeat, and reads those of the group.
    pub(super) async fn exchange(&self, group: &str, own: &str, said: &str) -> Result<HashMap<String, String>, BoardError> {
        match self {
            Self::Redis(commands) => Ok(commands.exchange_fields(group, own, said, FORGOTTEN).await?),
            Self::Table(store) if !store.outbox().knows_members() => Err(BoardError::NoTable),
            Self::Table(store) => Ok(in_time(store.outbox().exchange_heartbeats(group, own, said)).await?),
            #[cfg(test)]
            Self::Memory(hash) => {
                let silent = || StoreError::Unavailable("no answer".into());
                Ok(hash.exchange(group, own, said).await.ok_or_else(silent)?)
            }
        }
    }

    /// Removes the heartbeats of these instances.
    pub(super) async fn remove(&self, group: &str, names: Vec<String>) -> Result<(), BoardError> {
        match self {
            Self::Redis(commands) => Ok(commands.remove_fields(group, names).await?),
            Self::Table(store) if !store.outbox().knows_members() => Ok(()),
            Self::Table(store) => Ok(in_time(store.outbox().remove_heartbeats(group, &names)).await?),
            #[cfg(test)]
            Self::Memory(hash) => {
                hash.remove(group, names).await;
                Ok(())
            }
        }
    }
}

async fn in_time<T>(work: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    let late = || StoreError::Unavailable(format!("no answer within {}", humantime::format_duration(ANSWER)));
    tokio::time::timeout(ANSWER, work).await.unwrap_or_else(|_| Err(late()))
}
