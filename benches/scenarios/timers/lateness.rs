//! How late targets are told of timers that fall due one by one, among so many that are pending.

use std::{
    collections::HashMap,
    fmt,
    time::{Instant, SystemTime},
};

use serde::{Deserialize, Serialize};

use crate::{
    lateness::{Due, Lateness},
    orders::{self, Millis},
    timer_table::{STREAM, TimerTable, WEBHOOK, entries},
};

/// How many fall due in a second; every other one is told to the webhook.
const PER_SECOND: i64 = 100;

/// How long the daemon runs before the first falls due, and is waited for after the last. What was not told then counts with the time
/// since it was due.
const AHEAD: Millis = 4_000;
const LAST: Millis = 3_000;

/// The kind of these timers.
const KIND: &str = "window";

/// Of both targets, until they were told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Told {
    pub(super) webhook: Lateness,
    pub(super) stream: Lateness,
    /// The daemon's, after the last.
    pub(super) resident_mib: f64,
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = |lateness: &Lateness| lateness.to_string().replace("closed", "told");
        write!(f, "webhook: {}; stream: {}; {:.1} MiB", words(&self.webhook), words(&self.stream), self.resident_mib)
    }
}

/// Some seconds of it.
pub(super) async fn measure(table: &TimerTable, seconds: u32) -> Told {
    let daemon = table.daemon().await;
    let (count, from) = (i64::from(seconds) * PER_SECOND, (orders::now() + AHEAD) * 1_000);
    // Not at whole milliseconds.
    let due = |number: i64| from + number * (1_000_000 / PER_SECOND) + number * 7_919 % 10_000;
    let (spread, odd) = (format!("{from} + n * {} + n * 7919 % 10000", 1_000_000 / PER_SECOND), "CASE n % 2 WHEN 0 THEN");
    table.insert(KIND, (0, count - 1), &spread, &format!("{odd} '{WEBHOOK}' ELSE '{STREAM}' END")).await;
    assert!(orders::now() + 2_500 < from / 1_000, "they were written in time to be seen ahead");
    orders::sleep_until(due(count) / 1_000 + LAST).await;
    let resident_mib = daemon.resident_kib() as f64 / 1_024.0;
    let (webhook, stream) = (requests(table), appended(table));
    let of = |parity: i64, told: &HashMap<i64, i64>| {
        let numbers = (0..count).filter(|number| number % 2 == parity);
        let due: Vec<Due> = numbers.map(|number| Due { deadline: due(number), committed: told.get(&number).copied() }).collect();
        Lateness::of(&due)
    };
    let told = Told { webhook: of(0, &webhook), stream: of(1, &stream), resident_mib };
    daemon.stop().await;
    told
}

/// When the first request about each timer came, in microseconds since 1970.
fn requests(table: &TimerTable) -> HashMap<i64, i64> {
    let (now, clock) = (Instant::now(), SystemTime::now());
    let micros = |at: Instant| {
        let since = (clock - (now - at)).duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        i64::try_from(since.as_micros()).expect("before the year 292 million")
    };
    let mut told = HashMap::new();
    for request in table.receiver.received() {
        told.entry(request.order()).or_insert_with(|| micros(request.at));
    }
    told
}

/// When the first entry about each timer was added.
fn appended(table: &TimerTable) -> HashMap<i64, i64> {
    let mut told = HashMap::new();
    for (fields, at) in entries(&table.redis) {
        let field = |name: &str| fields.chunks(2).find(|pair| pair[0] == name).map(|pair| pair[1].as_str());
        if let (Some(KIND), Some(number)) = (field("kind"), field("key").and_then(|key| key.parse().ok())) {
            told.entry(number).or_insert(at);
        }
    }
    told
}
