//! Hears expired keys and offers their orders to the inbox.
//!
//! A session is one confirmed subscription. Whatever ends it, a new connection is made after a short
//! pause, and every confirmed subscription is followed by a sweep, since what expired in between was
//! told to nobody.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use backon::{BackoffBuilder, ExponentialBuilder};
use tokio::sync::{broadcast::error::RecvError, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use crate::{
    close::{Inbox, Offer, Reminder, Stats},
    config::{Listen, Redis},
    metric,
    order::Trigger,
    redis::{AUDIT, Commands, Events, RedisError, Said, Subscriber, address, missing_flags, redis_cli, with_flags},
    trigger::{
        key::{KeyReader, NotAnOrder},
        membership::Membership,
    },
};

/// A session that lasted this long was a good one, and the next begins at once.
const GOOD_SESSION: Duration = Duration::from_secs(5);

const NOTIFICATIONS: &str = "notify-keyspace-events";

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionEnd {
    /// The daemon stops.
    Shutdown,
    /// No subscription, or no longer; the reason.
    Disconnected(RedisError),
}

/// A rule that listens.
#[derive(Debug, Clone)]
pub struct Listening {
    /// How its keys are read.
    pub keys: KeyReader,
    /// Who takes the ids.
    pub inbox: Arc<Inbox>,
    /// Whose orders are not for us.
    pub peers: Arc<Membership>,
    /// What has been heard.
    pub stats: Arc<Stats>,
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
    /// Whether there is a confirmed subscription.
    pub subscribed: watch::Sender<bool>,
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

    /// Holds one session after the other.
    async fn hold_sessions(self) {
        let pauses = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(50))
            .with_max_delay(Duration::from_secs(2))
            .without_max_times()
            .with_jitter();
        let mut pause = pauses.build();
        let (mut known, mut reminder) = (BTreeSet::new(), Reminder::default());
        loop {
            let began = tokio::time::Instant::now();
            let end = self.session().await;
            let subscribed = self.subscribed.send_replace(false);
            let SessionEnd::Disconnected(error) = end else {
                return;
            };
            if subscribed {
                known.clear();
            }
            if began.elapsed() > GOOD_SESSION {
                pause = pauses.build();
            }
            let Said { reason, fix } = error.said();
            // Each reason is said once, however many attempts it takes; what nobody mends, each minute again.
            let (is_news, now) = (known.insert(reason.clone()), tokio::time::Instant::now());
            if error.needs_a_hand() && (is_news || reminder.is_due(now)) {
                reminder = Reminder::said(now);
                error!(
                    redis = address(&self.redis),
                    reason, fix, "no keyspace notifications; reconnecting, and closing orders by their rows alone meanwhile"
                );
            } else if is_news {
                warn!(
                    redis = address(&self.redis),
                    reason, fix, "no keyspace notifications; reconnecting, and closing orders by their rows alone meanwhile"
                );
            }
            tokio::select! {
                () = tokio::time::sleep(pause.next().unwrap_or_default()) => {}
                () = self.stop.cancelled() => return,
            }
        }
    }

    async fn session(&self) -> SessionEnd {
        tokio::select! {
            error = self.listen() => SessionEnd::Disconnected(error),
            () = self.stop.cancelled() => SessionEnd::Shutdown,
        }
    }

    /// Listens until something is wrong, and says what.
    async fn listen(&self) -> RedisError {
        let (subscriber, events) = match Subscriber::connect(&self.redis).await {
            Ok(connected) => connected,
            Err(error) => return error,
        };
        // Notifications are heard while an audit waits for its answers.
        tokio::select! {
            error = self.audit(subscriber) => error,
            error = self.hear(events) => error,
        }
    }

    /// Sees to it that the subscription stays, that the server still notifies, and that commands get through.
    async fn audit(&self, mut subscriber: Subscriber) -> RedisError {
        let mut setting = Setting::default();
        let mut troubles = Troubles::default();
        self.audit_notifications(&mut setting).await;
        self.subscribed.send_replace(true);
        metric::SUBSCRIPTIONS.add(1, &[]);
        info!(redis = address(&self.redis), "listening for expired keys");
        self.want_sweeps();

        let mut audit = tokio::time::interval_at(tokio::time::Instant::now() + AUDIT, AUDIT);
        audit.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                reason = subscriber.ended() => return reason,
                _ = audit.tick() => {}
            }
            if let Err(error) = subscriber.audit().await {
                return error;
            }
            self.audit_notifications(&mut setting).await;
            troubles.say(self.commands.troubles());
        }
    }

    /// Hears notifications, and never waits for anything but the next one.
    async fn hear(&self, mut events: Events) -> RedisError {
        let own = (self.redis.listen == Listen::Own).then_some(self.redis.url.database);
        loop {
            match events.recv().await {
                Ok(event) if event.operation != "expired" || own.is_some_and(|own| own != event.db) => {}
                Ok(event) => self.hand_on(event.key.as_bytes(), event.db),
                Err(RecvError::Lagged(events)) => {
                    self.rules.borrow().iter().for_each(|rule| rule.stats.lost(events));
                    warn!(events, "notifications came faster than they could be read; sweeping for what was lost");
                    self.want_sweeps();
                }
                // The audit says why.
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }

    /// Hands a key on to each rule whose prefix it has. What is no rule's is counted by all.
    fn hand_on(&self, key: &[u8], db: impl std::fmt::Display) {
        let rules = self.rules.borrow();
        let mut is_foreign = true;
        for Listening { keys, inbox, peers, stats } in rules.iter() {
            match keys.read(key) {
                Ok(id) => {
                    is_foreign = false;
                    stats.heard(true);
                    if peers.is_ours(&id) && inbox.offer_hint(&id, Trigger::Expired) == Offer::Full {
                        stats.dropped();
                    }
                }
                Err(NotAnOrder::ForeignPrefix) => {}
                Err(reason @ NotAnOrder::NotAnId(_)) => debug!(key = %key.escape_ascii(), %db, %reason, "expired key is no order"),
            }
        }
        if is_foreign {
            rules.iter().for_each(|rule| rule.stats.heard(false));
        }
    }

    /// What expired meanwhile was told to nobody.
    fn want_sweeps(&self) {
        self.rules.borrow().iter().for_each(|rule| rule.inbox.want_sweep());
    }

    /// Checks that the server notifies of expired keys, and sets it to if it is allowed and configured to.
    async fn audit_notifications(&self, seen: &mut Setting) {
        let now = match self.commands.config(NOTIFICATIONS).await {
            Ok(flags) if missing_flags(&flags).is_empty() => Setting::Complete,
            Ok(flags) => Setting::Incomplete(flags),
            Err(error @ (RedisError::Denied(_) | RedisError::Rejected(_))) => Setting::Hidden(error),
            // That says nothing about the setting.
            Err(_) => return,
        };
        if *seen == now {
            return;
        }
        match &now {
            Setting::Unseen | Setting::Complete => {}
            // A user without that right is a good choice.
            Setting::Hidden(RedisError::Denied(Said { reason, .. })) => {
                info!(reason, "Redis does not show notify-keyspace-events; `order-closer check` tells whether notifications arrive");
            }
            Setting::Hidden(error) => {
                warn!(reason = %error, "Redis does not show notify-keyspace-events; `order-closer check` tells whether notifications arrive");
            }
            Setting::Incomplete(flags) => {
                let wanted = with_flags(flags, self.commands.server().as_ref());
                let set = if self.redis.enable_notifications {
                    self.commands.set_config(NOTIFICATIONS, &wanted).await.map_err(|error| error.to_string())
                } else {
                    Err("redis.enable_notifications is false".into())
                };
                match set {
                    Ok(()) => {
                        info!(was = flags, now = wanted, "set notify-keyspace-events, so that Redis publishes expired keys");
                        self.want_sweeps();
                        *seen = Setting::Complete;
                        return;
                    }
                    Err(reason) => error!(
                        reason,
                        fix = redis_cli(&self.commands.whereabouts(&self.redis), &["CONFIG", "SET", NOTIFICATIONS, &wanted]),
                        "Redis does not publish expired keys, and orders are closed by their rows alone"
                    ),
                }
            }
        }
        *seen = now;
    }
}

/// What is known of the server's `notify-keyspace-events`.
#[derive(Debug, Default, PartialEq, Eq)]
enum Setting {
    #[default]
    Unseen,
    Complete,
    Incomplete(String),
    Hidden(RedisError),
}

/// What was wrong with the commands at the last audit.
#[derive(Debug, Default)]
struct Troubles {
    seen: BTreeMap<&'static str, RedisError>,
    said: BTreeSet<&'static str>,
}

impl Troubles {
    /// Says each trouble once, when two audits in a row have seen it, and its end.
    fn say(&mut self, now: BTreeMap<&'static str, RedisError>) {
        for (&command, error) in &now {
            if self.seen.contains_key(command) && self.said.insert(command) {
                let Said { reason, fix } = error.said();
                warn!(command, reason, fix, "Redis does not take commands; orders close by their rows all the same");
            }
        }
        for ended in self.said.extract_if(.., |command| !now.contains_key(command)) {
            info!(command = ended, "Redis takes commands again");
        }
        self.seen = now;
    }
}
