//! The outbox: what is recorded of closures, and how others are told.
//!
//! An event is written in the transaction that closes its order, together with one delivery for each
//! configured target (those of a crowd in one piece, of which rows are made later), so a crash can neither lose one nor invent one. A [`Relay`] for each target takes them from there: to
//! webhooks, signed, and to a Redis Stream. A delivery is claimed for a while by one relay, and due again when that time has
//! passed: what a crashed relay had in hand is taken over by itself. At least once: an event comes again until its target
//! has taken it, always with the same id, and after a day of failures it is a dead letter. Events are the audit log too.

mod audit;
mod breaker;
mod claims;
mod counts;
mod courier;
mod dead_letters;
mod deliveries;
mod letters;
mod members;
mod migrations;
mod overview;
mod pauses;
mod pruner;
mod relay;
mod relays;
mod states;
mod targets;
mod timers;
mod unpacker;

use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

pub use audit::{Event, EventQuery, Pruned, Recorded};
pub use claims::{Backlog, Claimed, Failed, Pick, Settled, Want};
pub use counts::Counts;
pub use courier::Courier;
pub use dead_letters::{Address, DeadLetter, DeadOrder, Death, Place, UNDONE};
pub use deliveries::Deliveries;
pub use letters::{Letter, PutBack};
pub use migrations::{Migrated, MigrationScript};
pub use overview::{Dropped, TargetStatus};
pub use pauses::{LatestPauses, Pause, PauseStatus, Wanted, check_reason, is_about_pauses, time_for};
pub use pruner::Pruner;
pub use relay::{Pass, Relay};
pub use relays::{Plan, Relays};
pub use states::{Note, State, TargetState};
pub use targets::{Answer, CONTENT_TYPE, Closure, Endpoint, Entries, Firing, Rest, Settings, Target, cloud_event, couriers, webhooks_of};
pub use timers::{Cancelled, Due, NewTimer, Rearmed, Registered, Timer, TimerName, TimerState};

use crate::{
    config::Events,
    store::{Neighbours, Outbox, Store, StoreError},
};

use relays::Common;

type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Starts whoever works on our own tables, if they are there: for this orders table, and for those that become its neighbours.
/// Who stops has `grace` for what relays have in hand.
///
/// # Errors
/// As [`couriers`] says.
pub fn spawn(
    settings: Settings<'_>,
    grace: Duration,
    store: &Arc<dyn Store>,
    neighbours: &Neighbours,
    closed: &watch::Receiver<()>,
    stop: &CancellationToken,
    running: &mut JoinSet<()>,
) -> Result<Option<Relays>, String> {
    say_untold(settings.events);
    if !store.outbox().is_ready() {
        if store.outbox().version() > 0 {
            warn!(reason = store.outbox().missing(), "dead letters can't be used, and what was given up is tried again");
        }
        return Ok(None);
    }
    if store.outbox().is_outdated() {
        error!(reason = store.outbox().missing(), "what needs the newer tables is left off");
    }
    neighbours.add(store.outbox());
    let all = store.outbox().clone().with_neighbours(neighbours);
    running.spawn(Pruner::new(Arc::clone(store), settings.events.keep.get(), stop.clone()).pruning(Some(all)).run());
    // What was recorded while events were enabled is still told.
    let common = Common { store: Arc::clone(store), neighbours: neighbours.clone(), closed: closed.clone(), stop: stop.clone(), grace };
    let (relays, ended) = Relays::start(Plan::of(settings)?, common)?;
    running.spawn(ended);
    Ok(Some(relays))
}

/// Starts what a further orders table needs beside one that has all: its events are told and pruned with those of the others.
pub fn join(settings: &Events, store: &Arc<dyn Store>, neighbours: &Neighbours, stop: &CancellationToken, running: &mut JoinSet<()>) {
    if store.outbox().is_ready() {
        neighbours.add(store.outbox());
        running.spawn(Pruner::new(Arc::clone(store), settings.keep.get(), stop.clone()).pruning(None).run());
    }
}

/// Says whom nobody tells of closures, though the configuration names them.
pub fn say_untold(settings: &Events) {
    let untold: Vec<&str> = settings.untold().collect();
    if !untold.is_empty() {
        warn!(targets = untold.join(", "), "events.enabled is false: nobody is told of further closures");
    }
}

impl Outbox {
    /// What waits for targets other than these.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn strangers(&self, named: &[String]) -> Result<Vec<Backlog>> {
        if self.addressed().await?.iter().all(|target| named.contains(target)) {
            return Ok(Vec::new());
        }
        Ok(self.backlog().await?.into_iter().filter(|backlog| !named.contains(&backlog.target)).collect())
    }
}
