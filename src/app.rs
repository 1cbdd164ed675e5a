//! The daemon put together: connect, rehearse, start every room, wait for a signal, drain.
//!
//! The only room that knows all the others.

mod opening;
mod serving;

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

pub use opening::open_and_rehearse;

use crate::{
    ask::{Ahead, Ask, Parts},
    close::{Bounds, Clearance, Clearances, Closer, Follow, Inbox, Outage, Requests, Share, Stats, Worker},
    config::Config,
    ops::{Signals, Summaries},
    outbox,
    redis::Commands,
    store::{self, Obstacle, Rehearsed, Store},
    trigger::{
        ClockWatch, Heart, KeyReader, Listener, LookAhead, Membership, Pacer, Passes, PauseWatch, Sweep, Turns, Witness, ZoneWatch,
        compare_clocks,
    },
};
use opening::wait_for_store;
use serving::Serving;

/// How many pages of the look-ahead, or orders to be looked at again, may wait for the pacer.
const PAGES: usize = 8;
const LATER: usize = 65_536;

/// How often the server's time zone is asked for.
const ZONE_EVERY: Duration = Duration::from_mins(1);

/// Why the daemon stopped, other than because it was asked to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The configuration does not fit the database, or Redis can't be reached that way at all.
    #[error("{0}")]
    Configuration(String),
    /// The operating system refused.
    #[error("{0}")]
    System(String),
    /// A part of the daemon ended by itself, which none does.
    #[error("a bug: {0}; please report it with the log before this line")]
    Bug(String),
    /// A second signal came before everything was finished.
    #[error("stopped at once by a second signal")]
    Interrupted,
}

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// Says why it can't begin, or that it was interrupted.
pub async fn run(config: &Config) -> Result<(), RunError> {
    let mut signals = Signals::new().map_err(|error| RunError::System(format!("signals can't be received: {error}")))?;
    info!(
        version = env!("CARGO_PKG_VERSION"), redis = %config.redis.url, database = %config.database.url, table = %config.orders.table,
        "order-closer starts"
    );
    let serving = Serving::of(config)?;
    let store = tokio::select! {
        store = wait_for_store(config) => store?,
        () = signals.next() => return Ok(()),
    };
    info!(database = %config.database.url, table = %config.orders.table, "orders table fits");
    for Obstacle { what, fix, .. } in store.obstacles() {
        warn!(reason = what, fix, "orders may never close");
    }
    match store::rehearse_on_an_order(store.as_ref()).await {
        Rehearsed::Closable(order) => debug!(%order, "a closure was tried on it and rolled back"),
        Rehearsed::NotTried(reason) => debug!(reason, "no closure was tried on an order"),
        Rehearsed::Refused { id, reason, lacking: true } => {
            let fix = store::lacking_rights(config).await.ok().map(|grants| grants.join(" ")).filter(|grants| !grants.is_empty());
            error!(order = %id, reason, fix, "a closure was tried on this order, and what it lacks every order will lack");
        }
        Rehearsed::Refused { id, reason, lacking: false } => {
            warn!(order = %id, reason, "a closure was tried on this order and refused; others may be refused, too");
        }
    }
    let bounds = Arc::new(Bounds::new(config.sweep.oldest.get()));
    compare_clocks(store.as_ref(), &config.redis, &bounds).await;
    let mut daemon = Daemon::start(config, serving, store, bounds)?;
    tokio::select! {
        () = signals.next() => {}
        // Half a daemon would look alive to its service manager.
        bug = daemon.broken() => return Err(bug),
    }
    daemon.stop(config.shutdown.timeout.get(), &mut signals).await
}

/// Everything that runs.
struct Daemon {
    store: Arc<dyn Store>,
    inbox: Arc<Inbox>,
    summaries: Summaries,
    stop: CancellationToken,
    workers: JoinSet<()>,
    others: JoinSet<()>,
}

impl Daemon {
    fn start(config: &Config, serving: Option<Serving>, store: Arc<dyn Store>, bounds: Arc<Bounds>) -> Result<Self, RunError> {
        let commands = Commands::new(&config.redis).map_err(|error| RunError::Configuration(error.to_string()))?;
        let inbox = Arc::new(Inbox::new(config.close.inbox, config.close.retry.clone()));
        let stats = Arc::new(Stats::default());
        let stop = CancellationToken::new();
        let keys = KeyReader::new(&config.redis.key_prefix, Arc::clone(&store));
        let peers = Arc::new(Membership::default());
        let outage = Arc::new(Outage::new(Arc::clone(&store)));
        let witness = Witness::of(config, &store, &commands);
        if let Some(witness) = &witness {
            witness.greet();
        }
        let (upcoming, upcoming_rx) = mpsc::channel(PAGES);
        let (later, later_rx) = mpsc::channel(LATER);
        let (subscribed, subscribed_rx) = watch::channel(false);
        let (closed, closed_rx) = watch::channel(());

        let closer = Closer::within(Arc::clone(&store), Arc::clone(&bounds));
        let pauses = PauseWatch::of(&store, &stop);
        let gate = Arc::clone(&pauses.gate);
        let passed = Clearances::default().and(witness.clone());
        let asked = Parts {
            store: Arc::clone(&store),
            inbox: Arc::clone(&inbox),
            bounds: Arc::clone(&bounds),
            gate: Arc::clone(&gate),
            stats: Arc::clone(&stats),
            share: Arc::clone(&peers) as Arc<dyn Share>,
            before: Arc::new(passed.clone()),
        };
        let ask = config.close.ask.as_ref().map(|settings| Ask::new(settings, asked)).transpose().map_err(RunError::Configuration)?;
        let clearance: Arc<dyn Clearance> = Arc::new(passed.and(ask.clone()));
        let requests = Requests::new(Arc::clone(&gate), closer.clone(), Arc::clone(&clearance), Arc::clone(&stats), closed.clone());
        let worker = Worker {
            inbox: Arc::clone(&inbox),
            gate: Arc::clone(&gate),
            clearance,
            closer,
            batch_size: config.close.batch_size,
            later,
            closed,
            stats: Arc::clone(&stats),
            outage: Arc::clone(&outage),
            rejections: Arc::default(),
            follow: Follow::Daemon,
            stop: stop.clone(),
        };
        let turns = Arc::new(Turns::default());
        let passes = Arc::new(Passes::default());
        let look_ahead = LookAhead {
            store: Arc::clone(&store),
            inbox: Arc::clone(&inbox),
            witness,
            upcoming,
            settings: config.sweep.clone(),
            passes: Arc::clone(&passes),
            turns: Arc::clone(&turns),
            stop: stop.clone(),
        };
        let sweep = Sweep {
            store: Arc::clone(&store),
            inbox: Arc::clone(&inbox),
            peers: Arc::clone(&peers),
            bounds: Arc::clone(&bounds),
            settings: config.sweep.clone(),
            passes: Arc::clone(&passes),
            turns,
            stop: stop.clone(),
        };
        let pacer = Pacer::new(
            (upcoming_rx, later_rx),
            Arc::clone(&inbox),
            Arc::clone(&peers),
            (keys.clone(), commands.clone(), subscribed_rx.clone()),
            stop.clone(),
        )
        .with_foresight(ask.clone().map(|ask| Arc::new(Ahead(ask)) as _));
        let listener = Listener {
            redis: config.redis.clone(),
            keys,
            inbox: Arc::clone(&inbox),
            peers: Arc::clone(&peers),
            stats: Arc::clone(&stats),
            commands: commands.clone(),
            subscribed,
            stop: stop.clone(),
        };

        let clock =
            ClockWatch { store: Arc::clone(&store), bounds, inbox: Arc::clone(&inbox), commands: commands.clone(), stop: stop.clone() };

        let workers = worker.spawn(config.close.workers);
        let mut others = JoinSet::new();
        others.spawn(pauses.run());
        others.spawn(pacer.run());
        if let Some(ask) = ask {
            others.spawn(ask.run(stop.clone()));
        }
        others.spawn(look_ahead.run());
        others.spawn(sweep.run());
        others.spawn(clock.run());
        others.spawn(listener.run());
        if let Some(serving) = serving {
            let parts = serving::Parts {
                store: Arc::clone(&store),
                inbox: Arc::clone(&inbox),
                outage: Arc::clone(&outage),
                gate: Arc::clone(&gate),
                passes,
                commands: commands.clone(),
                peers: Arc::clone(&peers),
                subscribed: subscribed_rx.clone(),
                requests,
            };
            serving.start(config, parts, &stop, &mut others);
        }
        others.spawn(peers.run(Heart {
            config: config.clone(),
            commands,
            store: Arc::clone(&store),
            inbox: Arc::clone(&inbox),
            stats: Arc::clone(&stats),
            outage,
            gate: Arc::clone(&gate),
            stop: stop.clone(),
        }));
        others.spawn(ZoneWatch { store: Arc::clone(&store), every: ZONE_EVERY, stop: stop.clone() }.run());
        outbox::spawn(config, &store, &closed_rx, &stop, &mut others).map_err(RunError::Configuration)?;
        let summaries = Summaries { gate, stats, inbox: Arc::clone(&inbox), store: Arc::clone(&store), subscribed: subscribed_rx };
        others.spawn(summaries.clone().run(config.log.summary.get(), stop.clone()));
        Ok(Self { store, inbox, summaries, stop, workers, others })
    }

    /// Waits for a part of the daemon to end, as none does unless it panics.
    async fn broken(&mut self) -> RunError {
        let ended = tokio::select! {
            Some(ended) = self.workers.join_next() => ended,
            Some(ended) = self.others.join_next() => ended,
        };
        RunError::Bug(ended.map_or_else(|error| error.to_string(), |()| "a part of the daemon ended".into()))
    }

    /// Stops intake, lets batches in flight finish, and leaves.
    async fn stop(mut self, limit: Duration, signals: &mut Signals) -> Result<(), RunError> {
        info!("stopping; finishing what is in hand");
        self.stop.cancel();
        self.inbox.close();
        let drained = async {
            while self.workers.join_next().await.is_some() {}
            while self.others.join_next().await.is_some() {}
            self.store.close().await;
        };
        let ended = tokio::select! {
            () = drained => Ok(()),
            () = tokio::time::sleep(limit) => {
                warn!(limit_s = limit.as_secs_f64(), "batches in hand did not finish in time (shutdown.timeout); they roll back");
                Ok(())
            }
            () = signals.next() => Err(RunError::Interrupted),
        };
        self.summaries.at_the_end();
        ended
    }
}
