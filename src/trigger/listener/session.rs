//! A primary that is heard: one confirmed subscription after the other.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use backon::{BackoffBuilder, ExponentialBuilder};
use tokio::sync::broadcast::error::RecvError;
use tracing::{error, info, warn};

use super::{Listener, crowd::Crowd, losses::Losses};
use crate::{
    close::Reminder,
    config::Listen,
    metric,
    redis::{AUDIT, Events, Primary, RedisError, Said, Subscriber, address, missing_flags, redis_cli, with_flags},
};

/// The pauses between sessions.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// A session that lasted this long was a good one, and the next begins at once.
const GOOD_SESSION: Duration = Duration::from_secs(5);

const NOTIFICATIONS: &str = "notify-keyspace-events";

/// For how long a crowd is left to another instance.
const CROWD: Duration = Duration::from_secs(5);

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum SessionEnd {
    /// The daemon stops.
    Shutdown,
    /// A crowd comes, which another instance hears.
    LeftToOthers,
    /// No subscription, or no longer; the reason.
    Disconnected(RedisError),
}

/// Hears one primary.
#[derive(Debug)]
pub(super) struct Session {
    listener: Arc<Listener>,
    primary: Primary,
}

impl Session {
    pub(super) fn new(listener: Arc<Listener>, primary: Primary) -> Self {
        Self { listener, primary }
    }

    /// Holds one session after the other.
    pub(super) async fn hold(self) {
        let pauses = ExponentialBuilder::default().with_min_delay(PAUSES.0).with_max_delay(PAUSES.1).without_max_times().with_jitter();
        let mut pause = pauses.build();
        let (mut known, mut reminder) = (BTreeSet::new(), Reminder::default());
        loop {
            let began = tokio::time::Instant::now();
            let end = self.one().await;
            if end == SessionEnd::LeftToOthers {
                let again_in_s = CROWD.as_secs();
                info!(redis = address(&self.primary.redis), again_in_s, "another instance hears a crowd of expired keys");
                if self.listener.stop.run_until_cancelled(tokio::time::sleep(CROWD)).await.is_some() {
                    continue;
                }
            }
            let subscribed = self.tell(false);
            let SessionEnd::Disconnected(error) = end else {
                return;
            };
            if subscribed {
                known.clear();
            }
            self.listener.commands.look_again();
            if began.elapsed() > GOOD_SESSION {
                pause = pauses.build();
            }
            let Said { reason, fix } = error.said();
            // Each reason is said once, however many attempts it takes; what nobody mends, each minute again.
            let (is_news, now) = (known.insert(reason.clone()), tokio::time::Instant::now());
            if error.needs_a_hand() && (is_news || reminder.is_due(now)) {
                reminder = Reminder::said(now);
                error!(
                    redis = address(&self.primary.redis),
                    reason, fix, "no keyspace notifications; reconnecting, and closing orders by their rows alone meanwhile"
                );
            } else if is_news {
                warn!(
                    redis = address(&self.primary.redis),
                    reason, fix, "no keyspace notifications; reconnecting, and closing orders by their rows alone meanwhile"
                );
            }
            tokio::select! {
                () = tokio::time::sleep(pause.next().unwrap_or_default()) => {}
                () = self.listener.stop.cancelled() => return,
            }
        }
    }

    /// Tells whether there is a confirmed subscription; whether there was one before.
    fn tell(&self, is_subscribed: bool) -> bool {
        let name = self.primary.name();
        let mut before = false;
        self.listener.subscribed.send_modify(|hearing| {
            before = if is_subscribed { !hearing.subscribed.insert(name) } else { hearing.subscribed.remove(&name) };
        });
        before
    }

    async fn one(&self) -> SessionEnd {
        tokio::select! {
            end = self.listen() => end,
            () = self.listener.stop.cancelled() => SessionEnd::Shutdown,
        }
    }

    /// Listens until something is wrong, or a crowd is left to another instance.
    async fn listen(&self) -> SessionEnd {
        let (subscriber, events) = match Subscriber::connect(&self.primary.redis).await {
            Ok(connected) => connected,
            Err(error) => return SessionEnd::Disconnected(error),
        };
        // Notifications are heard while an audit waits for its answers.
        tokio::select! {
            error = self.audit(subscriber) => SessionEnd::Disconnected(error),
            () = self.hear(events) => SessionEnd::LeftToOthers,
        }
    }

    /// Sees to it that the subscription stays, that the server still notifies, and that commands get through.
    async fn audit(&self, mut subscriber: Subscriber) -> RedisError {
        let mut setting = Setting::default();
        let mut troubles = Troubles::default();
        self.audit_notifications(&mut setting).await;
        self.tell(true);
        metric::SUBSCRIPTIONS.add(1, &[]);
        info!(redis = address(&self.primary.redis), "listening for expired keys");
        self.listener.want_sweeps();

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
            troubles.say(self.primary.commands.troubles());
        }
    }

    /// Hears notifications, and never waits for anything but the next one, until a crowd comes that another instance hears, too.
    async fn hear(&self, mut events: Events) {
        let own = (self.primary.redis.listen == Listen::Own).then_some(self.primary.redis.url.database);
        let (mut losses, mut crowd) = (Losses::new(), Crowd::new());
        loop {
            let event = tokio::select! {
                event = events.recv() => event,
                () = losses.say_when_due() => continue,
            };
            let came = event.as_ref().map_or_else(|error| if let RecvError::Lagged(events) = error { *events } else { 0 }, |_| 1);
            match event {
                Ok(event) if event.operation != "expired" || own.is_some_and(|own| own != event.db) => {}
                Ok(event) => self.listener.hand_on(event.key.as_bytes(), event.db),
                Err(RecvError::Lagged(events)) => {
                    self.listener.rules.borrow().iter().for_each(|rule| rule.takers.first(|taker| taker.stats.lost(events)));
                    self.listener.want_sweeps();
                    losses.add(events);
                }
                // The audit says why.
                Err(RecvError::Closed) => std::future::pending().await,
            }
            if crowd.comes(came) && self.listener.others_hear() {
                return;
            }
        }
    }

    /// Checks that the server notifies of expired keys, and sets it to if it is allowed and configured to.
    async fn audit_notifications(&self, seen: &mut Setting) {
        let now = match self.primary.commands.config(NOTIFICATIONS).await {
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
                let wanted = with_flags(flags, self.primary.commands.server().as_ref());
                let set = if self.primary.redis.enable_notifications {
                    self.primary.commands.set_config(NOTIFICATIONS, &wanted).await.map_err(|error| error.to_string())
                } else {
                    Err("redis.enable_notifications is false".into())
                };
                match set {
                    Ok(()) => {
                        info!(was = flags, now = wanted, "set notify-keyspace-events, so that Redis publishes expired keys");
                        self.listener.want_sweeps();
                        *seen = Setting::Complete;
                        return;
                    }
                    Err(reason) => error!(
                        reason,
                        fix =
                            redis_cli(&self.primary.commands.whereabouts(&self.primary.redis), &["CONFIG", "SET", NOTIFICATIONS, &wanted]),
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
