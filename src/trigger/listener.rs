//! Hears expired keys and offers their orders to the inbox.
//!
//! A session is one confirmed subscription. Whatever ends it, a new connection is made after a short
//! pause, and every confirmed subscription is followed by a sweep, since what expired in between was
//! told to nobody. The nodes of a cluster announce their own keys and no others, so each of its primaries has sessions of its
//! own, for as long as it is one.

mod crowd;
mod losses;
mod session;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use tokio::{
    sync::{oneshot, watch},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::{debug, error, warn};

use crate::{
    close::{Inbox, Offer, Reminder},
    config::Redis,
    order::Trigger,
    redis::{Commands, Primary, RedisError, Said as RedisSaid, address},
    trigger::{
        key::{KeyReader, NotAnOrder},
        routes::{Taker, Takers},
    },
};
use session::Session;

/// From how many primaries expired keys are heard.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hearing {
    primaries: usize,
    subscribed: BTreeSet<String>,
}

impl Hearing {
    /// One primary, heard or not.
    #[cfg(test)]
    pub(crate) fn of_one(is_heard: bool) -> Self {
        Self { primaries: 1, subscribed: is_heard.then(|| "one".to_owned()).into_iter().collect() }
    }

    /// How many primaries there are, as far as that is known: one without a cluster.
    #[must_use]
    pub fn primaries(&self) -> usize {
        self.primaries
    }

    /// With how many of them there is a confirmed subscription; also while a crowd is left to another instance, which takes seconds.
    #[must_use]
    pub fn subscribed(&self) -> usize {
        self.subscribed.len()
    }

    /// Whether there is one with any.
    #[must_use]
    pub fn any(&self) -> bool {
        !self.subscribed.is_empty()
    }

    /// Whether there is one with each.
    #[must_use]
    pub fn all(&self) -> bool {
        self.any() && self.subscribed.len() == self.primaries
    }

    /// What is missing, in a few words.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        match (self.all(), self.any()) {
            (true, _) => None,
            (false, false) => Some("no keyspace notifications".into()),
            (false, true) => Some(format!("keyspace notifications from {} of {} primaries", self.subscribed(), self.primaries)),
        }
    }
}

/// A rule that listens.
#[derive(Debug, Clone)]
pub struct Listening {
    /// How its keys are read.
    pub keys: KeyReader,
    /// Who takes its orders.
    pub takers: Takers,
}

impl Listening {
    /// Who takes the orders of its table, where there is one.
    pub(crate) fn inbox(&self) -> Option<&Arc<Inbox>> {
        match &self.takers {
            Takers::Table(taker) => Some(&taker.inbox),
            Takers::Shards(_) => None,
        }
    }

    /// Asks for a sweep of each of its tables.
    pub(super) fn want_sweeps(&self) {
        self.takers.each(|taker| taker.inbox.want_sweep());
    }
}

/// Listens for expired keys until it is told to stop.
#[derive(Debug)]
pub struct Listener {
    /// Which Redis.
    pub redis: Redis,
    /// For which rules; several may have keys alike.
    pub rules: watch::Receiver<Vec<Listening>>,
    /// For the server's settings.
    pub commands: Commands,
    /// From whom there are confirmed subscriptions.
    pub subscribed: watch::Sender<Hearing>,
    /// When to stop.
    pub stop: CancellationToken,
}

impl Listener {
    /// Listens on a thread of its own: a task that shares its thread with others falls behind in a burst, and
    /// keeps those others waiting.
    pub async fn run(self) {
        let (ending, ended) = oneshot::channel::<()>();
        let spawned = std::thread::Builder::new().name("listener".into()).spawn(move || {
            match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => {
                    runtime.block_on(self.hold_sessions());
                    // A thread that asks a silent name server is not waited for.
                    runtime.shutdown_background();
                }
                Err(error) => error!(%error, "the listener's thread can't run; orders are closed by their rows alone"),
            }
            drop(ending);
        });
        match spawned {
            Ok(_) => ended.await.unwrap_or_default(),
            Err(error) => error!(%error, "the listener's thread can't start; orders are closed by their rows alone"),
        }
    }

    /// Sees to it that each primary has sessions, and nobody else.
    async fn hold_sessions(self) {
        let mut primaries = self.commands.primaries(&self.redis);
        let listener = Arc::new(self);
        let mut sessions: BTreeMap<String, AbortOnDropHandle<()>> = BTreeMap::new();
        let mut said = Said::default();
        loop {
            let (now, failure) = primaries.now();
            let names: BTreeSet<String> = now.iter().map(Primary::name).collect();
            sessions.retain(|name, _| names.contains(name));
            for primary in now {
                let session = || Session::new(Arc::clone(&listener), primary.clone());
                sessions.entry(primary.name()).or_insert_with(|| AbortOnDropHandle::new(tokio::spawn(session().hold())));
            }
            listener.subscribed.send_if_modified(|hearing| {
                let before = hearing.clone();
                hearing.subscribed.retain(|name| names.contains(name));
                hearing.primaries = names.len();
                *hearing != before
            });
            match failure {
                Some(error) => said.say(&listener.redis, &error, names.is_empty()),
                None => said = Said::default(),
            }
            tokio::select! {
                () = primaries.changed() => {}
                () = listener.stop.cancelled() => return,
            }
        }
    }

    /// Hands a key on to each rule whose prefix it has. What is no rule's, or what no shard of a rule expects, is counted by all.
    fn hand_on(&self, key: &[u8], db: impl std::fmt::Display) {
        let rules = self.rules.borrow();
        let mut is_foreign = true;
        for Listening { keys, takers } in rules.iter() {
            match keys.read(key) {
                Ok(id) => {
                    takers.each_of(&id, |Taker { inbox, peers, stats }| {
                        is_foreign = false;
                        stats.heard(true);
                        if peers.is_ours(&id) && inbox.offer_hint(&id, Trigger::Expired) == Offer::Full {
                            stats.dropped();
                        }
                    });
                }
                Err(NotAnOrder::ForeignPrefix) => {}
                Err(reason @ NotAnOrder::NotAnId(_)) => debug!(key = %key.escape_ascii(), %db, %reason, "expired key is no order"),
            }
        }
        if is_foreign {
            rules.iter().for_each(|rule| rule.takers.first(|taker| taker.stats.heard(false)));
        }
    }

    /// Whether another instance hears for each of our tables what this one does, and is before it.
    fn others_hear(&self) -> bool {
        let (rules, mut all) = (self.rules.borrow(), true);
        rules.iter().for_each(|rule| rule.takers.each(|taker| all &= taker.peers.other_hears()));
        all && !rules.is_empty()
    }

    /// What expired meanwhile was told to nobody.
    fn want_sweeps(&self) {
        self.rules.borrow().iter().for_each(Listening::want_sweeps);
    }
}

/// Why it is not known which primaries there are, as far as that was said.
#[derive(Debug, Default)]
struct Said {
    reasons: BTreeSet<String>,
    reminder: Reminder,
}

impl Said {
    /// Says each reason once, however often it comes back; what nobody mends, each minute again.
    fn say(&mut self, redis: &Redis, error: &RedisError, is_deaf: bool) {
        let (RedisSaid { reason, fix }, now) = (error.said(), Instant::now());
        let is_news = self.reasons.insert(reason.clone());
        let (redis, needs_a_hand) = (address(redis), error.needs_a_hand());
        let is_due = is_news || (needs_a_hand && self.reminder.is_due(now));
        if is_due {
            self.reminder = Reminder::said(now);
        }
        match (is_due, is_deaf, needs_a_hand) {
            (false, ..) => {}
            (true, true, true) => {
                error!(redis, reason, fix, "no keyspace notifications; reconnecting, and closing orders by their rows alone meanwhile");
            }
            (true, true, false) => {
                warn!(redis, reason, fix, "no keyspace notifications; reconnecting, and closing orders by their rows alone meanwhile");
            }
            (true, false, _) => {
                warn!(redis, reason, fix, "the cluster does not say which primaries it has; staying with those that are known");
            }
        }
    }
}
