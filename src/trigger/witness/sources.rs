//! Where the witness looks: keys in Redis, rows in the database.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use uuid::Uuid;

use crate::{
    order::{OrderId, Row},
    redis::{Commands, Expiries, Life, RedisError},
    store::{Store, StoreError},
};

/// For how long after it was last asked for the mark stays: commands leave theirs behind.
const MARK_LASTS: Duration = Duration::from_hours(24);

/// Why nothing is known of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unanswered {
    /// Redis has not answered, or can't at the moment.
    Away(String),
    /// We have no right to ask.
    Denied(String),
}

/// Who knows when keys expire.
#[async_trait]
pub trait Keys: fmt::Debug + Send + Sync {
    /// When these keys are to expire; the answer comes within `limit` or not at all.
    async fn expiries(&self, keys: &[String], limit: Duration) -> Result<Expiries, Unanswered>;

    /// What names this life of the keys, if that can be known: another begins when the server is restarted, or flushed.
    async fn life(&self) -> Option<String>;
}

/// Redis has them.
#[derive(Debug)]
pub(super) struct KeysInRedis {
    commands: Commands,
    /// A hash of our own, which goes when all keys are removed.
    mark: String,
}

impl KeysInRedis {
    pub(super) fn new(commands: &Commands) -> Self {
        Self { commands: commands.clone(), mark: format!("order-closer:mark:{}", Uuid::new_v4()) }
    }
}

#[async_trait]
impl Keys for KeysInRedis {
    async fn expiries(&self, keys: &[String], limit: Duration) -> Result<Expiries, Unanswered> {
        let unanswered = |error: RedisError| {
            // A renamed command is as good as one that is forbidden.
            let is_denied = error.lacks_a_right() || matches!(error, RedisError::Rejected(_));
            if is_denied { Unanswered::Denied(error.to_string()) } else { Unanswered::Away(error.to_string()) }
        };
        self.commands.expiries(keys, limit).await.map_err(unanswered)
    }

    async fn life(&self) -> Option<String> {
        let lives = self.commands.lives(&self.mark, MARK_LASTS).await.ok()?;
        let each: Vec<String> = lives.into_iter().map(|Life { run, mark }| format!("{run}/{mark}")).collect();
        Some(each.join("+"))
    }
}

/// Who knows the rows of orders.
#[async_trait]
pub trait Rows: fmt::Debug + Send + Sync {
    /// The deadlines of those of these orders that are unpaid. Those that are not due yet, too: one may fall due before its
    /// transaction begins.
    ///
    /// # Errors
    /// As the database says.
    async fn deadlines(&self, ids: &[OrderId]) -> Result<HashMap<OrderId, i64>, StoreError>;
}

#[async_trait]
impl Rows for Arc<dyn Store> {
    async fn deadlines(&self, ids: &[OrderId]) -> Result<HashMap<OrderId, i64>, StoreError> {
        let unpaid = |row: &Row| row.status.as_ref().is_some_and(|status| self.unpaid().contains(status));
        let rows = self.look(ids).await?.into_iter().filter(unpaid);
        Ok(rows.filter_map(|row| Some((row.id, row.deadline?))).collect())
    }
}
