//! Watches the database's clock, and says when it has jumped.
//!
//! What is due only by the jump waits ([`Bounds`]), until one of these:
//!
//! - the clock is back;
//! - Redis' clock agrees with it;
//! - somebody has run `order-closer reconcile --accept-clock`, which notes in Redis by how much the two clocks may differ.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::{
    close::{Bounds, JUMP},
    config::Redis,
    redis::{Commands, RedisError},
    store::Store,
    trigger::Listening,
};

/// How often the clock is read.
const EVERY: Duration = Duration::from_secs(1);

/// How often a jump that lasts is said again.
const SAY_AGAIN: Duration = Duration::from_mins(1);

/// How long another clock may take to answer.
const ANSWER: Duration = Duration::from_millis(500);

/// Where `--accept-clock` notes what is accepted, as a hash with one field, and for how long.
const ACCEPTED: &str = "order-closer:clock";
const FIELD: &str = "ahead_of_redis_by_micros";
const ACCEPTED_FOR: Duration = Duration::from_hours(24);

/// Watches the database's clock until it is told to stop.
#[derive(Debug)]
pub struct ClockWatch {
    /// Whose clock it is.
    pub store: Arc<dyn Store>,
    /// Who knows what it may show.
    pub bounds: Arc<Bounds>,
    /// Whom to ask for a sweep when what has waited may close.
    pub rules: watch::Receiver<Vec<Listening>>,
    /// The way to another clock.
    pub commands: Commands,
    /// When to stop.
    pub stop: CancellationToken,
}

impl ClockWatch {
    /// Reads the clock again and again.
    pub async fn run(self) {
        let mut said: Option<Instant> = None;
        while self.stop.run_until_cancelled(tokio::time::sleep(EVERY)).await.is_some() {
            // Who has no answer, knows nothing; that the database is away is said elsewhere.
            let Ok(reading) = self.store.clock().await else { continue };
            self.bounds.counted(reading.micros, Instant::now() - reading.round_trip);
            let Some(jumped) = self.bounds.jumped() else {
                if said.take().is_some() {
                    info!("the database's clock is back; orders close again");
                    self.rules.borrow().iter().for_each(Listening::want_sweeps);
                }
                continue;
            };
            if let Some(reason) = self.accepted().await {
                info!(reason, ahead_s = jumped.as_secs_f64(), "the database's clock is taken as it is; orders close by it");
                self.bounds.accept_clock();
                self.rules.borrow().iter().for_each(Listening::want_sweeps);
                said = None;
            } else if said.is_none_or(|said| said.elapsed() >= SAY_AGAIN) {
                said = Some(Instant::now());
                error!(
                    ahead_s = jumped.as_secs_f64(),
                    // A note for all daemons stands in Redis.
                    fix = if self.commands.is_absent() { "start order-closer anew" } else { "order-closer reconcile --accept-clock" },
                    "the database's clock has jumped ahead, and orders that are due only by that wait: set it right, or, if it is right, \
                     accept it"
                );
            }
        }
    }

    /// Why the clock is right, if it is.
    async fn accepted(&self) -> Option<&'static str> {
        if self.commands.is_absent() {
            let reading = self.store.clock().await.ok()?;
            let host = i64::try_from(std::time::UNIX_EPOCH.elapsed().ok()?.as_micros()).ok()?;
            return is_close(reading.micros, host).then_some("this host's clock agrees with it");
        }
        let ahead = ahead_of_redis(self.store.as_ref(), &self.commands).await?;
        if is_close(ahead, 0) {
            return Some("Redis' clock agrees with it");
        }
        let fields = timeout(ANSWER, self.commands.fields(ACCEPTED)).await.ok()?.ok()?;
        let accepted: i64 = fields.get(FIELD)?.parse().ok()?;
        is_close(ahead, accepted).then_some("it was accepted by hand")
    }
}

/// By how many microseconds the database's clock is ahead of Redis'. Nothing while either does not say.
async fn ahead_of_redis(store: &dyn Store, commands: &Commands) -> Option<i64> {
    let redis = timeout(ANSWER, commands.time()).await.ok()?.ok()?;
    let asked = Instant::now();
    let reading = store.clock().await.ok()?;
    let passed = asked.elapsed() - reading.round_trip / 2;
    Some(reading.micros - redis - i64::try_from(passed.as_micros()).unwrap_or_default())
}

fn is_close(one: i64, other: i64) -> bool {
    u128::from(one.abs_diff(other)) <= JUMP.as_micros()
}

/// Lets daemons take the database's clock as it is, though Redis' differs.
///
/// # Errors
/// Says why Redis does not take the note.
pub async fn accept_clock(store: &dyn Store, redis: &Redis) -> Result<(), RedisError> {
    let commands = Commands::connect(redis).await?;
    let Some(ahead) = ahead_of_redis(store, &commands).await else { return Ok(()) };
    commands.exchange_fields(ACCEPTED, FIELD, &ahead.to_string(), ACCEPTED_FOR).await.map(drop)
}

/// Reads the database's clock for the first time, and compares it with this host's and Redis': what is ahead of both has
/// jumped before. Returns by how much, and makes orders that are due only by that wait.
pub async fn compare_clocks(store: &dyn Store, redis: &Redis, bounds: &Bounds) -> Option<Duration> {
    let asked = Instant::now();
    let reading = store.clock().await.ok()?;
    bounds.counted(reading.micros, asked);
    let host = std::time::UNIX_EPOCH.elapsed().ok()?;
    let ahead_of_host = reading.micros - i64::try_from(host.as_micros()).ok()?;
    if ahead_of_host <= 0 || is_close(ahead_of_host, 0) {
        return None;
    }
    let commands = timeout(ANSWER, Commands::connect(redis)).await.ok()?.ok()?;
    let least = ahead_of_redis(store, &commands).await?.min(ahead_of_host);
    if least <= 0 || is_close(least, 0) {
        return None;
    }
    let at = Instant::now();
    let reading = store.clock().await.ok()?;
    bounds.distrust_clock(reading.micros - least, at);
    Some(Duration::from_micros(least.unsigned_abs()))
}
