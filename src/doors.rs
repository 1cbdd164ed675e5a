//! Hints from elsewhere than keyspace notifications, that must not get lost on their way: `[[hints]]`.
//!
//! A [`Door`] takes hints from a stream, a sorted set or a queue; an [`Intake`] offers them to the inbox of each rule that they
//! are for, and settles each with its door when the look has been taken.
//!
//! ```text
//!  door ──take──> hint ──offer──> inbox ── lock, judge, update ──> seen
//!    ^                                                              │
//!    └──────────────────────── settle ──────────────────────────────┘
//! ```
//!
//! Guarantees:
//!
//! - A hint is settled only after its look: its order was closed, was paid or closed already, is not there, is not due, or is due
//!   and can't be closed now. What is unpaid then is in the table, where the look-ahead sees its deadline coming and the sweep
//!   finds it overdue: the door need not keep it.
//! - Whatever ends before that, the daemon or the connection, leaves the hint with the door, which hands it out again: to whoever
//!   asks for it, once its lease is over. So a look may be taken twice, which costs a look.
//! - While the database is away, closing is paused, or the inbox has no space for hints, a door has no more than `prefetch` hints
//!   in hand, and takes no more.
//! - What names no order's id is set aside where its door keeps it, counted, and told of in the log.
//! - A rule whose table is not there yet has its hints waiting: a door begins when all its rules have begun.

#[cfg(feature = "amqp")]
mod amqp;
mod intake;
mod stream;
mod zset;

use std::fmt;

use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    config::{Door as Kind, Hints, Redis, RuleName},
    redis::RedisError,
    trigger::Listening,
};
use intake::Intake;

/// Why a door can't be used at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What went wrong, without any password.
    pub reason: String,
    /// What mends it.
    pub fix: String,
    /// Whether nothing but a hand helps: a login, a right, a setting.
    pub needs_a_hand: bool,
}

impl From<RedisError> for Fault {
    fn from(error: RedisError) -> Self {
        // A key that holds something else is no stream until somebody sees to it.
        let needs_a_hand = error.needs_a_hand() || matches!(error, RedisError::Rejected(_));
        Self { reason: error.to_string(), fix: error.fix().into(), needs_a_hand }
    }
}

impl Fault {
    /// Fails if the ACL user of Redis lacks rights.
    fn unless_granted(missing: &[String]) -> Result<(), Self> {
        if missing.is_empty() {
            return Ok(());
        }
        let missing = missing.join(" ");
        Err(Self {
            reason: format!("the ACL user lacks {missing}"),
            fix: format!("let an administrator of Redis run: ACL SETUSER USER {missing}"),
            needs_a_hand: true,
        })
    }
}

/// A hint that was taken.
#[derive(Debug)]
struct Taken<R> {
    /// By what its door knows it.
    receipt: R,
    /// The order's id as it was written, or what is wrong with the hint.
    id: Result<Vec<u8>, String>,
}

/// Where hints come from.
trait Door: fmt::Debug + Send + Sync + 'static {
    /// By what it knows a hint that is in hand.
    type Receipt: fmt::Display + Send + Sync;

    /// Gets ready, also after a fault. What was in hand before is not settled any more.
    fn open(&mut self) -> impl Future<Output = Result<(), Fault>> + Send;

    /// Takes up to so many hints; waits a moment for the first, and may return with none.
    fn take(&self, most: usize) -> impl Future<Output = Result<Vec<Taken<Self::Receipt>>, Fault>> + Send;

    /// The looks at these have been taken.
    fn settle(&self, seen: Vec<Self::Receipt>) -> impl Future<Output = Result<(), Fault>> + Send;

    /// Sets aside what names no order.
    fn set_aside(&self, malformed: Vec<Self::Receipt>) -> impl Future<Output = Result<(), Fault>> + Send;

    /// The daemon stops: what is in hand is for others.
    fn close(&mut self) -> impl Future<Output = ()> + Send;
}

/// What is said of a queue where nothing can be taken from one.
#[cfg(not(feature = "amqp"))]
const WITHOUT_AMQP: &str = "from is \"amqp\", and this order-closer was built without that; take the released package or binary, or build \
    it with `cargo build --release --features amqp`";

/// Starts these doors, each of which has hints for these rules; those of Redis are this one's.
///
/// # Errors
/// Says which of them can't be used at all, and why.
pub fn spawn<'c>(
    doors: impl Iterator<Item = (&'c Hints, Vec<RuleName>)>,
    redis: &Redis,
    rules: &watch::Receiver<Vec<Listening>>,
    stop: &CancellationToken,
    running: &mut JoinSet<()>,
) -> Result<(), String> {
    for (hints, wanted) in doors {
        let unfit = |what: &dyn fmt::Display| format!("hints, entry {}: {what}", hints.name);
        let intake = Intake::new(hints, wanted, rules.clone(), stop.clone());
        match hints.door().map_err(|what| unfit(&what))? {
            Kind::Stream(settings) => {
                let door = stream::Stream::new(redis, &settings).map_err(|error| unfit(&error))?;
                running.spawn(intake.run(door));
            }
            Kind::SortedSet(settings) => {
                let door = zset::SortedSet::new(redis, &settings).map_err(|error| unfit(&error))?;
                running.spawn(intake.run(door));
            }
            #[cfg(feature = "amqp")]
            Kind::Amqp(settings) => drop(running.spawn(intake.run(amqp::Queue::new(&settings, hints.prefetch)))),
            #[cfg(not(feature = "amqp"))]
            Kind::Amqp(_) => return Err(unfit(&WITHOUT_AMQP)),
        }
    }
    Ok(())
}

/// Looks whether hints can be taken from a door, and takes none; says what there is to say of it.
///
/// # Errors
/// Says why not.
pub async fn examine(hints: &Hints, redis: &Redis) -> Result<String, Fault> {
    let unusable = |reason: String| Fault { reason, fix: "see the door's entry among hints".into(), needs_a_hand: true };
    match hints.door().map_err(unusable)? {
        Kind::Stream(settings) => stream::Stream::new(redis, &settings)?.examine().await,
        Kind::SortedSet(settings) => zset::SortedSet::new(redis, &settings)?.examine().await,
        #[cfg(feature = "amqp")]
        Kind::Amqp(settings) => amqp::Queue::new(&settings, hints.prefetch).examine().await,
        #[cfg(not(feature = "amqp"))]
        Kind::Amqp(_) => Err(unusable(WITHOUT_AMQP.into())),
    }
}
