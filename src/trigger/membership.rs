//! Which instance tries an order first, when several close the orders of one table.
//!
//! Every instance keeps a beat: a field of one hash in Redis, whose value it changes twice a second. Whoever
//! sees a field change knows that its instance lives; no clocks are compared. Among the living, an order
//! belongs to the one whose hash with it is the highest ([rendezvous hashing]), so all agree without a word,
//! and an instance that joins or dies moves no orders but its own.
//!
//! Correctness never depends on it, only the amount of work: the others step in when an order stays open, and
//! without Redis each instance tries them all.
//!
//! [rendezvous hashing]: https://www.microsoft.com/en-us/research/wp-content/uploads/2017/02/HRW98.pdf

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};
use uuid::Uuid;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::{
    close::{Inbox, Stats},
    config::{Config, Database, DatabaseUrl, Orders, Status},
    order::OrderId,
    redis::{Commands, RedisError},
};

/// How often an instance changes its field.
const BEAT: Duration = Duration::from_millis(500);

/// An instance whose field has not changed for so long is gone.
const GONE: Duration = Duration::from_millis(1_500);

/// A field that nobody has changed for so long is swept out; the whole hash lives as long after the last beat.
const FORGOTTEN: Duration = Duration::from_mins(1);

/// How long after its deadline an order of somebody else's may still be open.
const PATIENCE: Duration = Duration::from_millis(700);

/// The same, if that instance has more to do than one batch and gets on with it.
const PATIENCE_WITH_A_BUSY_ONE: Duration = Duration::from_secs(3);

/// How long saying goodbye may take.
const FAREWELL: Duration = Duration::from_millis(300);

/// The instances that close the orders of our table, as far as we know.
#[derive(Debug)]
pub struct Membership {
    /// The hash in Redis.
    key: String,
    own: Instance,
    others: RwLock<HashMap<String, Peer>>,
}

#[derive(Debug, Clone)]
struct Instance {
    name: String,
    seed: u64,
}

impl Instance {
    fn new(name: &str) -> Self {
        Self { name: name.to_owned(), seed: xxh3_64(name.as_bytes()) }
    }

    fn claim(&self, id: &OrderId) -> u64 {
        xxh3_64_with_seed(id.as_str().as_bytes(), self.seed)
    }
}

/// Another instance's field.
#[derive(Debug)]
struct Peer {
    instance: Instance,
    value: String,
    /// When we last saw it change. A field that was there before us may be a dead one's.
    changed: Option<Instant>,
    seen: Instant,
}

impl Peer {
    fn lives(&self) -> bool {
        self.changed.is_some_and(|at| at.elapsed() < GONE)
    }

    fn patience(&self) -> Duration {
        if self.value.ends_with(BUSY) { PATIENCE_WITH_A_BUSY_ONE } else { PATIENCE }
    }
}

const BUSY: &str = "busy";

impl Membership {
    /// Nobody else is known yet.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self { key: format!("order-closer:{}", group(config)), own: Instance::new(&Uuid::new_v4().to_string()), others: RwLock::default() }
    }

    /// How long after its deadline it is for us to try an order: zero if we are the first.
    #[must_use]
    pub fn patience(&self, id: &OrderId) -> Duration {
        let others = self.others.read().unwrap_or_else(PoisonError::into_inner);
        let first = others.values().filter(|peer| peer.lives()).max_by_key(|peer| peer.instance.claim(id));
        match first {
            Some(peer) if peer.instance.claim(id) > self.own.claim(id) => peer.patience(),
            Some(_) | None => Duration::ZERO,
        }
    }

    /// Whether we are the first to try an order.
    #[must_use]
    pub fn is_ours(&self, id: &OrderId) -> bool {
        self.patience(id).is_zero()
    }

    /// How many other instances live.
    #[must_use]
    pub fn others(&self) -> usize {
        self.others.read().unwrap_or_else(PoisonError::into_inner).values().filter(|peer| peer.lives()).count()
    }

    /// Keeps the beat until it is told to stop, and then says goodbye.
    pub async fn run(self: Arc<Self>, commands: Commands, inbox: Arc<Inbox>, stats: Arc<Stats>, stop: CancellationToken) {
        let mut alone = false;
        let (mut beats, mut closed, mut known) = (0_u64, 0, 0);
        loop {
            let closed_now = stats.closed();
            // Whoever waits and gets nothing done needs help.
            let busy = inbox.waiting() > 0 && closed_now > closed;
            (beats, closed) = (beats + 1, closed_now);
            let value = format!("{beats} {}", if busy { BUSY } else { "" });
            let ended = tokio::select! {
                beat = self.beat(&commands, &value) => beat,
                () = stop.cancelled() => break,
            };
            match ended {
                Ok(()) => alone = false,
                // Without a connection nobody is seen either; the listener says so.
                Err(error) if error.is_refusal() && !std::mem::replace(&mut alone, true) => warn!(
                    %error, key = self.key,
                    "other instances can't be seen, and each tries every order; the key must be ours alone, and an ACL user needs +hset +hgetall +hdel +pexpire on ~order-closer:*"
                ),
                Err(error) => debug!(%error, key = self.key, "no beat"),
            }
            let known_now = self.others();
            if known_now != known {
                info!(others = known_now, was = known, "other instances close orders of this table");
                // Somebody's orders may be ours now.
                inbox.want_sweep();
            }
            known = known_now;
            tokio::select! {
                () = tokio::time::sleep(BEAT) => {}
                () = stop.cancelled() => break,
            }
        }
        // Whoever is missed without a goodbye is given up a moment later.
        tokio::time::timeout(FAREWELL, commands.remove_fields(&self.key, vec![self.own.name.clone()])).await.ok();
    }

    async fn beat(&self, commands: &Commands, value: &str) -> Result<(), RedisError> {
        let fields = commands.exchange_fields(&self.key, &self.own.name, value, FORGOTTEN).await?;
        let forgotten = self.learn(fields);
        if !forgotten.is_empty() {
            commands.remove_fields(&self.key, forgotten).await?;
        }
        Ok(())
    }

    /// Takes in what the hash has; returns the fields that nobody has changed for long.
    fn learn(&self, fields: HashMap<String, String>) -> Vec<String> {
        let now = Instant::now();
        let mut others = self.others.write().unwrap_or_else(PoisonError::into_inner);
        others.retain(|name, _| fields.contains_key(name));
        for (name, value) in fields {
            if name == self.own.name {
                continue;
            }
            match others.get_mut(&name) {
                Some(peer) if peer.value == value => {}
                Some(peer) => (peer.value, peer.changed, peer.seen) = (value, Some(now), now),
                None => {
                    others.insert(name.clone(), Peer { instance: Instance::new(&name), value, changed: None, seen: now });
                }
            }
        }
        others.values().filter(|peer| peer.seen.elapsed() > FORGOTTEN).map(|peer| peer.instance.name.clone()).collect()
    }
}

/// What instances have in common that close the same orders: all that decides which these are, and when. What
/// means another database on every host is told apart by the host's name.
fn group(config: &Config) -> String {
    let Orders { table, id, status, unpaid, deadline, filter, closed: _, set: _, disputed: _ } = &config.orders;
    let Database { url, time_zone, timeout: _ } = &config.database;
    let text = url.to_string();
    let local = matches!(url, DatabaseUrl::Sqlite(_)) || ["localhost", "127.", "[::1]", "host=/"].iter().any(|part| text.contains(part));
    let host = if local { gethostname::gethostname().to_string_lossy().into_owned() } else { String::new() };
    let mut unpaid: Vec<String> = unpaid.get().iter().map(Status::text).collect();
    unpaid.sort_unstable();
    let whole = format!("{:?}", (host, text, time_zone, table, id, status, unpaid, deadline, filter, &config.redis.key_prefix));
    format!("{:016x}", xxh3_64(whole.as_bytes()))
}
