//! The service's way to its keys: a client that asks whoever had a slot last, and follows where a cluster leads.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use redis::{AsyncConnectionConfig, Client, ErrorKind, RedisError, RedisResult, ServerErrorKind, aio::MultiplexedConnection, cmd, pipe};
use tokio::time::timeout;

use crate::support::redis::slot;

/// A shop's patience with Redis.
const PATIENCE: Duration = Duration::from_millis(300);

/// How often a key is written, at the most, before the shop goes on without.
const ATTEMPTS: usize = 5;

/// The servers, by their URLs.
#[derive(Debug)]
pub struct Keys {
    seeds: Vec<String>,
    next: AtomicUsize,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    connections: BTreeMap<String, MultiplexedConnection>,
    owners: BTreeMap<u16, String>,
}

impl Keys {
    /// At these servers, of which each knows where a key belongs.
    pub fn new(seeds: Vec<String>) -> Self {
        Self { seeds, next: AtomicUsize::default(), known: Mutex::default() }
    }

    /// Writes a key; whether Redis has confirmed it.
    pub async fn write(&self, key: &str, expires: i64) -> bool {
        let slot = slot(key);
        let mut url = self.known().owners.get(&slot).cloned().unwrap_or_else(|| self.any());
        let written = timeout(PATIENCE, self.follow(&mut url, slot, key, expires)).await.unwrap_or(false);
        if !written {
            // Whoever says nothing may be somebody else's replica by now.
            let mut known = self.known();
            known.connections.remove(&url);
            known.owners.remove(&slot);
        }
        written
    }

    async fn follow(&self, url: &mut String, slot: u16, key: &str, expires: i64) -> bool {
        let mut asking = false;
        for _ in 0..ATTEMPTS {
            let error = match self.set(url, key, expires, asking).await {
                Ok(()) => return true,
                Err(error) => error,
            };
            asking = error.kind() == ErrorKind::Server(ServerErrorKind::Ask);
            let leads_to = error.redirect_node().map(|(address, _)| format!("redis://{address}"));
            if leads_to.is_none() {
                self.known().connections.remove(url);
            } else if !asking {
                self.known().owners.extend(leads_to.clone().map(|to| (slot, to)));
            }
            *url = leads_to.unwrap_or_else(|| self.any());
        }
        false
    }

    async fn set(&self, url: &str, key: &str, expires: i64, asking: bool) -> RedisResult<()> {
        let mut connection = self.connection(url).await?;
        let mut set = cmd("SET");
        set.arg(key).arg("1").arg("PXAT").arg(expires);
        if asking {
            pipe().cmd("ASKING").ignore().add_command(set).ignore().query_async(&mut connection).await
        } else {
            set.query_async(&mut connection).await
        }
    }

    async fn connection(&self, url: &str) -> Result<MultiplexedConnection, RedisError> {
        if let Some(connection) = self.known().connections.get(url) {
            return Ok(connection.clone());
        }
        let patience = AsyncConnectionConfig::new().set_connection_timeout(Some(PATIENCE)).set_response_timeout(Some(PATIENCE));
        let connection = Client::open(url)?.get_multiplexed_async_connection_with_config(&patience).await?;
        self.known().connections.insert(url.into(), connection.clone());
        Ok(connection)
    }

    /// One after the other.
    fn any(&self) -> String {
        self.seeds[self.next.fetch_add(1, Ordering::Relaxed) % self.seeds.len()].clone()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
