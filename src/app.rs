//! The daemon put together: connect, rehearse, start every room, wait for a signal, drain.
//!
//! The only room that knows all the others.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use backon::{BackoffBuilder, ExponentialBuilder};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::{mpsc, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use crate::{
    close::{Clearances, Closer, Follow, Inbox, Outage, Stats, Summary, Why, Worker},
    config::Config,
    events::{self, Pruner, Relay},
    redis::Commands,
    store::{self, Obstacle, OpenError, Rehearsed, Store, StoreError},
    trigger::{Heart, KeyReader, Listener, LookAhead, Membership, Pacer, Sweep, Turns, Witness, ZoneWatch},
};

/// How many pages of the look-ahead, or orders to be looked at again, may wait for the pacer.
const PAGES: usize = 8;
const LATER: usize = 65_536;

/// For how long a rehearsal is tried again that meets locks, and after which pause.
const REHEARSAL_PATIENCE: Duration = Duration::from_secs(1);
const REHEARSAL_PAUSE: Duration = Duration::from_millis(50);

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
    let mut signals = Signals::new()?;
    info!(
        version = env!("CARGO_PKG_VERSION"), redis = %config.redis.url, database = %config.database.url, table = %config.orders.table,
        "order-closer starts"
    );
    let store = tokio::select! {
        store = open_store(config) => store?,
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
            error!(order = %id, reason, "a closure was tried on this order, and what it lacks every order will lack");
        }
        Rehearsed::Refused { id, reason, lacking: false } => {
            warn!(order = %id, reason, "a closure was tried on this order and refused; others may be refused, too");
        }
    }
    let mut daemon = Daemon::start(config, store)?;
    tokio::select! {
        () = signals.next() => {}
        // Half a daemon would look alive to its service manager.
        bug = daemon.broken() => return Err(bug),
    }
    daemon.stop(config.shutdown.timeout.get(), &mut signals).await
}

/// Opens the store, however long its database is away.
async fn open_store(config: &Config) -> Result<Arc<dyn Store>, RunError> {
    let mut pauses = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(200))
        .with_max_delay(Duration::from_secs(2))
        .without_max_times()
        .with_jitter()
        .build();
    let mut known = None;
    loop {
        let reason = match open_and_rehearse(config).await {
            Ok(store) => return Ok(store),
            Err(OpenError::Misfit(misfit)) => return Err(RunError::Configuration(misfit.to_string())),
            Err(OpenError::Store(StoreError::Rejected(reason))) => {
                return Err(RunError::Configuration(format!(
                    "the database refuses what orders and close.sql in the configuration make of its tables: {reason}"
                )));
            }
            Err(error @ (OpenError::Zone(_) | OpenError::Store(_))) => error.to_string(),
        };
        if known.as_ref() != Some(&reason) {
            warn!(reason, "waiting for the database");
        }
        known = Some(reason);
        tokio::time::sleep(pauses.next().unwrap_or_default()).await;
    }
}

/// Opens the store and shows that every statement of a closure is accepted.
///
/// # Errors
/// As [`store::open`], [`store::tables_for`] and [`store::rehearse`] say.
pub async fn open_and_rehearse(config: &Config) -> Result<Arc<dyn Store>, OpenError> {
    let store = store::open(config).await?;
    if let Some(reason) = store.zone_changed().await? {
        return Err(OpenError::Zone(reason));
    }
    store::tables_for(&config.events, store.as_ref())?;
    let began = Instant::now();
    loop {
        match store::rehearse(store.as_ref()).await {
            // It meets those who close orders just now; a lock that lasts is another matter.
            Err(StoreError::Locked(_) | StoreError::Conflict(_)) if began.elapsed() < REHEARSAL_PATIENCE => {}
            rehearsed => return Ok(rehearsed.map(|()| store)?),
        }
        tokio::time::sleep(REHEARSAL_PAUSE).await;
    }
}

/// Everything that runs.
struct Daemon {
    store: Arc<dyn Store>,
    inbox: Arc<Inbox>,
    stats: Arc<Stats>,
    stop: CancellationToken,
    workers: JoinSet<()>,
    others: JoinSet<()>,
}

impl Daemon {
    fn start(config: &Config, store: Arc<dyn Store>) -> Result<Self, RunError> {
        let commands = Commands::new(&config.redis).map_err(|error| RunError::Configuration(error.to_string()))?;
        let inbox = Arc::new(Inbox::new(config.close.inbox, config.close.retry.clone()));
        let stats = Arc::new(Stats::default());
        let stop = CancellationToken::new();
        let keys = KeyReader::new(&config.redis.key_prefix, Arc::clone(&store));
        let peers = Arc::new(Membership::default());
        let outage = Arc::new(Outage::new(Arc::clone(&store)));
        let witness = Witness::of(config, &store, &commands);
        let (upcoming, upcoming_rx) = mpsc::channel(PAGES);
        let (later, later_rx) = mpsc::channel(LATER);
        let (subscribed, subscribed_rx) = watch::channel(false);
        let (closed, closed_rx) = watch::channel(());

        let worker = Worker {
            inbox: Arc::clone(&inbox),
            clearance: Arc::new(Clearances::default().and(witness.clone())),
            closer: Closer::new(Arc::clone(&store)),
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
        let look_ahead = LookAhead {
            store: Arc::clone(&store),
            inbox: Arc::clone(&inbox),
            witness,
            upcoming,
            settings: config.sweep.clone(),
            turns: Arc::clone(&turns),
            stop: stop.clone(),
        };
        let sweep = Sweep {
            store: Arc::clone(&store),
            inbox: Arc::clone(&inbox),
            peers: Arc::clone(&peers),
            settings: config.sweep.clone(),
            turns,
            stop: stop.clone(),
        };
        let pacer = Pacer::new(
            (upcoming_rx, later_rx),
            Arc::clone(&inbox),
            Arc::clone(&peers),
            (keys.clone(), commands.clone(), subscribed_rx),
            stop.clone(),
        );
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

        let workers = worker.spawn(config.close.workers);
        let mut others = JoinSet::new();
        others.spawn(pacer.run());
        others.spawn(look_ahead.run());
        others.spawn(sweep.run());
        others.spawn(listener.run());
        others.spawn(peers.run(Heart {
            config: config.clone(),
            commands,
            store: Arc::clone(&store),
            inbox: Arc::clone(&inbox),
            stats: Arc::clone(&stats),
            outage,
            stop: stop.clone(),
        }));
        others.spawn(ZoneWatch { store: Arc::clone(&store), every: ZONE_EVERY, stop: stop.clone() }.run());
        spawn_events(config, &store, &closed_rx, &stop, &mut others)?;
        others.spawn(summaries(Arc::clone(&stats), Arc::clone(&inbox), config.log.summary.get(), stop.clone()));
        Ok(Self { store, inbox, stats, stop, workers, others })
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
        log_summary(&self.stats.total(), &self.inbox, "order-closer stopped");
        ended
    }
}

/// Starts whoever works on our own tables, if they are there.
fn spawn_events(
    config: &Config,
    store: &Arc<dyn Store>,
    closed: &watch::Receiver<()>,
    stop: &CancellationToken,
    others: &mut JoinSet<()>,
) -> Result<(), RunError> {
    let settings = &config.events;
    let untold: Vec<&str> = settings.untold().collect();
    if !untold.is_empty() {
        warn!(targets = untold.join(", "), "events.enabled is false: nobody is told of further closures");
    }
    if !store.outbox().is_ready() {
        if store.outbox().version() > 0 {
            warn!(reason = store.outbox().missing(), "dead letters can't be used, and what was given up is tried again");
        }
        return Ok(());
    }
    if store.outbox().is_outdated() {
        error!(reason = store.outbox().missing(), "what needs the newer tables is left off");
    }
    others.spawn(Pruner { store: Arc::clone(store), keep: settings.keep.get(), stop: stop.clone() }.run());
    // What was recorded while events were enabled is still told.
    for target in events::targets(config).map_err(RunError::Configuration)? {
        let relay = Relay {
            store: Arc::clone(store),
            target,
            retry: settings.retry.clone(),
            closed: closed.clone(),
            stop: stop.clone(),
            grace: config.shutdown.timeout.get() / 2,
        };
        others.spawn(relay.run());
    }
    Ok(())
}

async fn summaries(stats: Arc<Stats>, inbox: Arc<Inbox>, every: Duration, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(every) => log_summary(&stats.interval(), &inbox, "summary"),
            () = stop.cancelled() => return,
        }
    }
}

fn log_summary(summary: &Summary, inbox: &Inbox, message: &'static str) {
    use crate::order::Trigger::{Expired, Pacer, Sweep};
    info!(
        closed = summary.closed,
        expired = summary.by(Expired),
        pacer = summary.by(Pacer),
        sweep = summary.by(Sweep),
        lateness_p50_ms = summary.lateness_ms.p50,
        lateness_p99_ms = summary.lateness_ms.p99,
        lateness_max_ms = summary.lateness_ms.max,
        settled = summary.settled,
        not_due = summary.not_due,
        not_found = summary.not_found,
        locked = summary.locked,
        rejected = summary.rejected,
        heard = summary.heard,
        ignored = summary.ignored,
        lost = summary.lost,
        dropped = summary.dropped,
        waiting = inbox.waiting(),
        disputed = inbox.waits(Why::Disputed),
        "{message}"
    );
}

/// A signal that follows another so soon is its echo: `timeout`, for one, sends it to a process and to its whole group.
const ECHO: Duration = Duration::from_millis(200);

/// The signals that end the daemon.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    last: Option<Instant>,
}

impl Signals {
    fn new() -> Result<Self, RunError> {
        let listen = |kind| signal(kind).map_err(|error| RunError::System(format!("signals can't be received: {error}")));
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())?, last: None })
    }

    /// Waits for a signal that is no echo of the one before.
    async fn next(&mut self) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => {}
                _ = self.interrupt.recv() => {}
            }
            if self.last.is_none_or(|last| last.elapsed() > ECHO) {
                self.last = Some(Instant::now());
                return;
            }
        }
    }
}
