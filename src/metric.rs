//! What the daemon measures: each metric's name, type, labels and meaning, said once.
//!
//! Recording costs a look-up, and where nobody measures next to nothing. No label ever holds an order's id.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use metrics::{Key, KeyName, Label, Level, Metadata, Recorder, SharedString, with_recorder};

/// How a metric moves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Is as it is at the moment.
    Gauge,
    /// Counts values by their size; the upper bounds of its buckets.
    Histogram(&'static [f64]),
}

/// A metric. Names follow Prometheus' conventions: base units, counters end in `_total`. A value of the label `rule` that names a
/// shard makes one more label, `shard`.
#[derive(Debug)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// How it moves.
    pub kind: Kind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What it means, with its unit.
    pub help: &'static str,
}

/// What separates a rule's name and its shard's in a value of the label `rule`; less than whatever a name has.
pub(crate) const BESIDE: char = '\u{1f}';

/// Lateness, from a millisecond to half an hour.
const LATENESS_BUCKETS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0];

/// The length of a transaction or a statement.
const DURATION_BUCKETS: &[f64] = &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Orders in a batch.
const SIZE_BUCKETS: &[f64] = &[1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1_000.0];

macro_rules! metrics {
    ($($(#[doc = $help:literal])+ $id:ident = $name:literal, $kind:expr, [$($label:literal),*];)+) => {
        $($(#[doc = $help])+ pub static $id: Metric =
            Metric { name: $name, kind: $kind, labels: &[$($label),*], help: concat!($($help),+) };)+

        /// All metrics, in the order of the documentation.
        pub static ALL: &[&Metric] = &[$(&$id),+];
    };
}

metrics! {
    /// The time of the commit less the deadline, of closed orders, in seconds.
    LATENESS = "order_closer_lateness_seconds", Kind::Histogram(LATENESS_BUCKETS), ["rule", "trigger"];
    /// Looks at orders, by what brought them and how they ended: closed, settled (paid or closed already), not_due, not_found,
    /// locked, rejected, undone, unasked (somebody has to be asked once more).
    LOOKS = "order_closer_looks_total", Kind::Counter, ["rule", "trigger", "outcome"];
    /// Orders past their deadline and not closed, by why not: open (nothing known is in the way), held (by another
    /// transaction), resting (rejected, and waiting for their next try), paused, disputed (their key contradicts their row), asked
    /// (somebody is asked about them, or has not said close), dead (dead letters), old (for longer than sweep.oldest). Each count ends at 10,000.
    OVERDUE = "order_closer_overdue_orders", Kind::Gauge, ["rule", "state"];
    /// For how long the oldest of the overdue orders in the state open has been overdue, in seconds; 0 without any.
    OLDEST_OVERDUE = "order_closer_oldest_overdue_seconds", Kind::Gauge, ["rule"];
    /// When the counts of overdue orders were taken last, in seconds since 1970 UTC.
    SAMPLED = "order_closer_overdue_sampled_timestamp_seconds", Kind::Gauge, ["rule"];
    /// Orders about which somebody was asked, by the answer: close, paid, later, none.
    ASKS = "order_closer_asks_total", Kind::Counter, ["rule", "answer"];
    /// How long a question took that was answered, in seconds.
    ASK_SECONDS = "order_closer_ask_seconds", Kind::Histogram(DURATION_BUCKETS), ["rule"];
    /// Orders about which somebody is asked: unanswered, later, paid, paid_long (for a quarter of an hour, and their rows say
    /// that they are not).
    ASKED = "order_closer_asked_orders", Kind::Gauge, ["rule", "state"];
    /// For how long an order has been waiting whose question was not answered, the longest, in seconds; 0 without any.
    OLDEST_UNANSWERED = "order_closer_oldest_unanswered_seconds", Kind::Gauge, ["rule"];
    /// Notifications of expired keys, by what they were: order, foreign (the key names no order), lost (on the way, as far as
    /// that can be known), dropped (came faster than their orders could be looked at).
    NOTIFICATIONS = "order_closer_notifications_total", Kind::Counter, ["rule", "kind"];
    /// How long after its deadline the notification of a closed order came, in seconds. One that came while its order was just being
    /// closed is not counted.
    NOTIFICATION_LAG = "order_closer_notification_lag_seconds", Kind::Histogram(LATENESS_BUCKETS), ["rule"];
    /// 1 while there is a confirmed subscription to expired keys, in a cluster with each primary, else 0.
    SUBSCRIBED = "order_closer_subscribed", Kind::Gauge, [];
    /// Primaries of the Redis: all (one without a cluster), subscribed (with a confirmed subscription).
    PRIMARIES = "order_closer_redis_primaries", Kind::Gauge, ["state"];
    /// Confirmed subscriptions; each after the first is a resubscription.
    SUBSCRIPTIONS = "order_closer_subscriptions_total", Kind::Counter, [];
    /// Hints that came in through a door and whose looks have been taken, by what that has shown: closed, settled (paid or closed
    /// already), not_due, not_found, waits (due, and can't be closed now); and malformed (names no order).
    HINTS = "order_closer_hints_total", Kind::Counter, ["door", "result"];
    /// 1 while hints are taken from a door, else 0.
    DOOR_OPEN = "order_closer_door_open", Kind::Gauge, ["door"];
    /// Entries of the stream `timers.intake`, by what became of them: registered, rejected (moved aside).
    TIMER_ENTRIES = "order_closer_timer_entries_total", Kind::Counter, ["result"];
    /// Orders that wait in the inbox: queued for a worker, held, resting, disputed, asked.
    WAITING = "order_closer_inbox_orders", Kind::Gauge, ["rule", "state"];
    /// The same by lane: due (falls due now), backlog, hints (nobody has read the row yet), asked (somebody is asked about them
    /// first), alone (failed, and tried by themselves).
    LANES = "order_closer_inbox_lane_orders", Kind::Gauge, ["rule", "lane"];
    /// Orders whose deadline is near and which wait for it in the wheel.
    WHEEL = "order_closer_wheel_orders", Kind::Gauge, ["rule"];
    /// Orders of a transaction, also of one that failed.
    BATCH_ORDERS = "order_closer_batch_orders", Kind::Histogram(SIZE_BUCKETS), ["rule"];
    /// How long a transaction took, also one that failed, in seconds.
    BATCH_SECONDS = "order_closer_batch_seconds", Kind::Histogram(DURATION_BUCKETS), ["rule"];
    /// Transactions that failed, by why: conflict (a deadlock), locked (a wait for a lock ended), timed_out, rejected, refused (a login),
    /// unavailable (the database is away).
    BATCH_FAILURES = "order_closer_batch_failures_total", Kind::Counter, ["rule", "kind"];
    /// Orders that were tried again, apart from others, after they were held, rejected, or failed together.
    RETRIES = "order_closer_retries_total", Kind::Counter, ["rule"];
    /// Passes that ended well, of look-ahead and sweep.
    PASSES = "order_closer_passes_total", Kind::Counter, ["rule", "pass"];
    /// When a pass ended well the last time, in seconds since 1970 UTC.
    LAST_PASS = "order_closer_last_pass_timestamp_seconds", Kind::Gauge, ["rule", "pass"];
    /// 1 while closing is paused, else 0.
    PAUSED = "order_closer_paused", Kind::Gauge, ["rule"];
    /// Other instances that share the work.
    PEERS = "order_closer_peers", Kind::Gauge, ["rule"];
    /// 1 while this instance tells the others that it closes what is its, else 0.
    FIT = "order_closer_fit", Kind::Gauge, ["rule"];
    /// 1 while the database can be used, else 0.
    DATABASE_UP = "order_closer_database_up", Kind::Gauge, [];
    /// Events that wait for a target, with those that are put off.
    EVENTS_WAITING = "order_closer_events_waiting", Kind::Gauge, ["target"];
    /// For how long the oldest of them has waited, in seconds; 0 without any.
    EVENTS_OLDEST = "order_closer_events_oldest_seconds", Kind::Gauge, ["target"];
    /// Events that were given up.
    EVENTS_DEAD = "order_closer_events_dead", Kind::Gauge, ["target"];
    /// Deliveries that have ended, by how: delivered, failed, away (the target was not there), gone (it wants no more events).
    DELIVERIES = "order_closer_deliveries_total", Kind::Counter, ["target", "result"];
    /// Connections to the database, of the pool closing (transactions) and the pool reading (look-ahead, sweep, our own tables), by
    /// state: idle, in_use. Those that tell targets have a pool of their own, which is not counted.
    CONNECTIONS = "order_closer_connections", Kind::Gauge, ["pool", "state"];
    /// The most connections of such a pool.
    CONNECTIONS_LIMIT = "order_closer_connections_limit", Kind::Gauge, ["pool"];
    /// 1 while the daemon runs with an older configuration, since it has refused the one that it was to take over, else 0.
    CONFIG_REFUSED = "order_closer_config_refused", Kind::Gauge, [];
    /// 1 in a shadow, which closes nothing and counts what it would have closed, else 0.
    SHADOW = "order_closer_shadow", Kind::Gauge, [];
    /// Lines of the log that were dropped, since nobody read them.
    LOG_DROPPED = "order_closer_log_lines_dropped_total", Kind::Counter, [];
    /// 1, with the version of the program.
    BUILD = "order_closer_build_info", Kind::Gauge, ["version"];
}

static MEASURING: AtomicBool = AtomicBool::new(false);

/// From now on somebody measures.
pub fn begin() {
    MEASURING.store(true, Ordering::Relaxed);
}

impl Metric {
    /// Adds to a counter.
    pub fn add(&self, more: u64, values: &[&str]) {
        self.with(values, |recorder, key| recorder.register_counter(key, &METADATA).increment(more));
    }

    /// Sets a gauge.
    pub fn set(&self, value: f64, values: &[&str]) {
        self.with(values, |recorder, key| recorder.register_gauge(key, &METADATA).set(value));
    }

    /// Sets a gauge to this host's time, in seconds since 1970 UTC.
    pub fn now(&self, values: &[&str]) {
        self.set(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64()), values);
    }

    /// Adds a value to a histogram.
    pub fn record(&self, value: f64, values: &[&str]) {
        self.with(values, |recorder, key| recorder.register_histogram(key, &METADATA).record(value));
    }

    fn with(&self, values: &[&str], record: impl FnOnce(&dyn Recorder, &Key)) {
        if MEASURING.load(Ordering::Relaxed) {
            with_recorder(|recorder| record(recorder, &self.key(values)));
        }
    }

    fn key(&self, values: &[&str]) -> Key {
        debug_assert_eq!(self.labels.len(), values.len(), "labels of {}", self.name);
        let label = |name: &'static str, value: &str| Label::new(name, SharedString::from(value.to_owned()));
        let mut labels = Vec::with_capacity(self.labels.len() + 1);
        for (name, value) in self.labels.iter().zip(values) {
            let (value, shard) = value.split_once(BESIDE).map_or((*value, None), |(rule, shard)| (rule, Some(shard)));
            labels.push(label(name, value));
            labels.extend(shard.map(|shard| label("shard", shard)));
        }
        Key::from_parts(KeyName::from_const_str(self.name), labels)
    }
}

static METADATA: Metadata<'static> = Metadata::new(env!("CARGO_PKG_NAME"), Level::INFO, None);
