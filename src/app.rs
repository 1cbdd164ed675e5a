//! The daemon put together: connect, rehearse, start every room, wait for a signal, drain.
//!
//! The only room that knows all the others. Each rule has a [`line`] of its own, which starts as soon as its table fits:
//! what is missing for one rule keeps none of the others waiting.

mod line;
mod lookout;
mod opening;
mod places;
mod reload;
mod serving;

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::join_all;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, error, info, warn};

pub use opening::{open_and_rehearse, settings_of, told_of};
pub use reload::{Reader, Reread};

use crate::{
    config::{Config, Live, Loaded, RuleName},
    doors,
    ops::{Hangups, ServiceManager, Signals, Summaries},
    outbox::{self, LatestPauses},
    redis::Commands,
    shadow::Plan,
    store::Neighbours,
    trigger::{ClockWatch, Hearing, Listener, Listening, Routes},
    watchdog,
};
use line::{Around, Common, Line, span_of};
use lookout::Lookout;
use opening::{Opened, Unfit, Way, wait_for_store};
use places::Places;
use reload::{LiveRule, Reloading};
use serving::Serving;

/// How often the server's time zone is asked for.
const ZONE_EVERY: Duration = Duration::from_mins(1);

/// For how long a daemon that starts waits for all rules: one that does not fit its table is a mistake to be seen at once.
const AT_START: Duration = Duration::from_secs(3);

/// How often a rule that did not fit its table is tried again while others close orders.
const UNFIT_AGAIN: Duration = Duration::from_mins(1);

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

/// Runs until SIGTERM or SIGINT. On SIGHUP it reads its configuration anew. As a shadow it closes nothing, and ends by itself
/// when its time is over or what it tells is read no more.
///
/// # Errors
/// Says why it can't begin, or that it was interrupted.
pub async fn run(loaded: &Loaded, read: Reader, shadow: Option<Plan>) -> Result<(), RunError> {
    let config = &loaded.config;
    let deaf = |error| RunError::System(format!("signals can't be received: {error}"));
    let (mut signals, hangups) = (Signals::new().map_err(deaf)?, Hangups::new().map_err(deaf)?);
    let rules = config.of_each_rule();
    for config in &rules {
        let _rule = span_of(config).entered();
        info!(
            version = env!("CARGO_PKG_VERSION"), redis = %config.redis.url, database = %config.database.url, table = %config.orders.table,
            "order-closer starts"
        );
    }
    let serving = Serving::of(config, shadow.is_some())?;
    let manager = ServiceManager::of_environment(config.database.timeout.get());
    if shadow.is_some() {
        warn!("this is a shadow: it closes nothing and writes nothing, and reports what it would have closed");
    }
    let until = shadow.as_ref().and_then(|plan| Some(Instant::now() + plan.length?));
    let unread = shadow.as_ref().map_or_else(CancellationToken::new, |plan| plan.unread.clone());
    let way = Way { places: Places::of(&rules), manager: manager.clone(), shadow };
    let lookout = Lookout::of(config, &way.places);
    let mut lines = Lines::default();
    let mut opening = JoinSet::new();
    let first = tokio::select! {
        first = async {
            manager.watchdog().watch("start", lookout.begin(&manager)).await?;
            lines.open_new(config, &way, &mut opening);
            opened_at_start(&mut opening).await
        } => first?,
        () = signals.next() => return Ok(()),
    };
    let mut daemon = Daemon::start(config, serving, first, &way)?;
    let mut news = daemon.keep_looking(lookout);
    manager.ready();
    let again = |unfit, opening: &mut JoinSet<_>| {
        opening.spawn(manager.watchdog().watch("start", try_again(unfit, way.clone())));
    };
    let mut reloading = pin!(Reloading { hangups, read, manager: &manager, live: Arc::clone(&daemon.live) }.run(loaded));
    loop {
        tokio::select! {
            () = signals.next() => break,
            () = over(until) => break,
            () = unread.cancelled() => {
                info!("what the shadow tells is read no more, so it ends");
                break;
            }
            () = &mut reloading => {}
            // Half a daemon would look alive to its service manager.
            bug = daemon.broken() => return Err(bug),
            Some(()) = news.recv() => {
                lines.open_new(config, &way, &mut opening);
                daemon.expect(config.rule_names());
            }
            Some(opened) = opening.join_next() => match opened.map_err(|error| RunError::Bug(error.to_string()))? {
                // Others close orders, and go on.
                Ok(opened) => {
                    let config = opened.config.clone();
                    if let Err(RunError::Configuration(reason)) = daemon.add(opened) {
                        again(Unfit { config, reason }, &mut opening);
                    }
                }
                Err(unfit) => again(unfit, &mut opening),
            },
        }
    }
    manager.stopping().await;
    daemon.stop(config.shutdown.timeout.get(), &mut signals).await
}

/// The lines that were opened, or are being opened.
#[derive(Debug, Default)]
struct Lines(BTreeSet<RuleName>);

impl Lines {
    /// Opens those of which nobody knew. A pattern is none while its tables are not known.
    fn open_new(&mut self, config: &Config, way: &Way, opening: &mut JoinSet<Result<Opened, Unfit>>) {
        for line in config.of_each_rule() {
            if !line.is_pattern() && self.0.insert(line.which.name.clone()) {
                let span = span_of(&line);
                opening.spawn(way.manager.watchdog().watch("start", wait_for_store(line, way.clone()).instrument(span)));
            }
        }
    }
}

/// Waits until then; without, for ever.
async fn over(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}

/// Waits for the first rule, and a moment for all others.
async fn opened_at_start(opening: &mut JoinSet<Result<Opened, Unfit>>) -> Result<Vec<Opened>, RunError> {
    let mut all = Vec::new();
    let mut until = Instant::now() + AT_START;
    while !opening.is_empty() {
        let next = if all.is_empty() { Ok(opening.join_next().await) } else { timeout_at(until, opening.join_next()).await };
        let Ok(Some(opened)) = next else { break };
        let opened = opened.map_err(|error| RunError::Bug(error.to_string()))?;
        all.push(opened.map_err(|Unfit { config, reason }| {
            let name = config.which.name.in_full();
            RunError::Configuration(if config.which.is_one_of_several { format!("rule {name}: {reason}") } else { reason })
        })?);
        until = until.max(Instant::now() + AT_START / 10);
    }
    Ok(all)
}

/// Says that a rule does not fit its table, and tries it again after a while: others close orders meanwhile.
async fn try_again(Unfit { config, reason }: Unfit, way: Way) -> Result<Opened, Unfit> {
    let span = span_of(&config);
    span.in_scope(|| error!(reason, again_in_s = UNFIT_AGAIN.as_secs(), "no order of this rule is closed; it is tried again"));
    watchdog::waiting(tokio::time::sleep(UNFIT_AGAIN)).await;
    wait_for_store(config, way).instrument(span).await
}

/// Where our tables are beside some orders tables: what these have in common.
#[derive(Debug, Default)]
struct Schema {
    /// What rules and shards read for each other.
    paused: Arc<LatestPauses>,
    neighbours: Neighbours,
}

/// A place in a database, which may have a name.
type InDatabase = (Option<String>, String);

/// Everything that runs.
#[derive(Debug)]
struct Daemon {
    common: Common,
    serving: Option<Serving>,
    /// The names that the configuration has for orders tables, by the places of these.
    tables: BTreeMap<InDatabase, String>,
    /// By the places of our own tables.
    schemas: BTreeMap<InDatabase, Schema>,
    /// Databases whose clocks are watched.
    clocks: BTreeSet<Option<String>>,
    /// The shards of each rule that has some.
    routes: BTreeMap<RuleName, Arc<Routes>>,
    lines: Vec<Line>,
    listening: watch::Sender<Vec<Listening>>,
    summaries: watch::Sender<Vec<Summaries>>,
    live: Arc<Mutex<reload::Live>>,
    workers: JoinSet<()>,
    others: JoinSet<()>,
}

impl Daemon {
    fn start(config: &Config, serving: Option<Serving>, first: Vec<Opened>, way: &Way) -> Result<Self, RunError> {
        let commands = Commands::new(&config.redis).map_err(|error| RunError::Configuration(error.to_string()))?;
        let commands = if way.shadow.is_some() { commands.reading_only() } else { commands };
        let stop = CancellationToken::new();
        let (subscribed, subscribed_rx) = watch::channel(Hearing::default());
        let (listening, rules) = watch::channel(Vec::new());
        let (closed, _) = watch::channel(());
        let (summaries, told) = watch::channel(Vec::new());
        let (sweep, settings) = Live::new(config.sweep.clone());
        let live = reload::Live {
            config: config.clone(),
            sweep,
            bounds: way.places.all_bounds(),
            rules: Vec::new(),
            access: serving.as_ref().map(Serving::access),
            relays: Vec::new(),
        };
        let mut others = JoinSet::new();
        if config.redis.url.is_none() {
            info!("there is no Redis (redis.url is none): orders close by their rows alone, found by the look-ahead and the sweep");
        } else {
            let listener = Listener { redis: config.redis.clone(), rules, commands: commands.clone(), subscribed, stop: stop.clone() };
            others.spawn(listener.run());
        }
        others.spawn(way.manager.clone().renew_status(told, stop.clone()));
        if let Some(plan) = &way.shadow {
            others.spawn(plan.report.clone().run(stop.clone()));
        }
        // A shadow takes nothing from anybody.
        if way.shadow.is_none() {
            let doors = config.hints.iter().map(|hints| (hints, hints.rules(config)));
            doors::spawn(doors, &config.redis, &listening.subscribe(), &stop, &mut others).map_err(RunError::Configuration)?;
        } else if !config.hints.is_empty() {
            info!("doors ([[hints]]) stay shut: a shadow takes no hints, which others are to have");
        }
        let common = Common {
            commands,
            sweep: settings,
            subscribed: subscribed_rx,
            closed,
            watchdog: way.manager.watchdog().clone(),
            stop,
            report: way.shadow.as_ref().map(|plan| plan.report.clone()),
        };
        let mut daemon = Self {
            common,
            serving,
            tables: BTreeMap::new(),
            schemas: BTreeMap::new(),
            clocks: BTreeSet::new(),
            routes: BTreeMap::new(),
            lines: Vec::new(),
            listening,
            summaries,
            live: Arc::new(Mutex::new(live)),
            workers: JoinSet::new(),
            others,
        };
        first.into_iter().try_for_each(|opened| daemon.add(opened))?;
        Ok(daemon)
    }

    /// Starts a rule's line, and with the first rule of a table whoever tells of its closures.
    fn add(&mut self, mut opened: Opened) -> Result<(), RunError> {
        // What was read anew while its table was missing holds from its first order on.
        let current = self.live().config.clone();
        let name = &opened.config.which.name;
        if let Some(config) = current.of_each_rule().into_iter().find(|config| config.which.name == *name) {
            opened.config = config;
        }
        opened.store.set_targets(&opened.config.events);
        let paused = self.look_after(&opened)?;
        let name = &opened.config.which.name;
        let routes = name.shard().map(|_| Arc::clone(self.routes.entry(name.everywhere()).or_default()));
        let around = Around { common: &self.common, paused: &paused, routes: routes.as_ref(), serving: self.serving.as_ref() };
        let line = Line::start(opened, &around, (&mut self.workers, &mut self.others)).map_err(RunError::Configuration)?;
        self.live().rules.push(LiveRule {
            store: Arc::clone(&line.store),
            inbox: Arc::clone(&line.inbox),
            named: line.named.clone(),
            receiver: line.receiver.clone(),
        });
        self.listening.send_modify(|rules| rules.extend(line.listening.clone()));
        self.summaries.send_modify(|summaries| summaries.push(line.summaries.clone()));
        self.lines.push(line);
        Ok(())
    }

    /// Looks on for tables that patterns stand for; says when there are more.
    fn keep_looking(&mut self, lookout: Lookout) -> mpsc::Receiver<()> {
        let (news, heard) = mpsc::channel(1);
        self.expect(self.live().config.rule_names());
        self.others.spawn(lookout.run(news, self.common.stop.clone()));
        heard
    }

    /// Whoever asks is told of these, too.
    fn expect(&self, rules: Vec<RuleName>) {
        if let Some(serving) = &self.serving {
            serving.expect(rules);
        }
    }

    /// Sees to it that somebody tells of the closures in a table, and watches the clock of its database.
    fn look_after(&mut self, opened: &Opened) -> Result<Arc<LatestPauses>, RunError> {
        let Opened { config, store, place, shadow } = opened;
        let (in_database, outbox) = (|what: String| (config.which.database.clone(), what), store.outbox());
        let name = config.orders.table.to_string();
        let before = self.tables.insert(in_database(outbox.orders_table()), name.clone());
        if let Some(other) = before.as_ref().filter(|other| **other != name) {
            return Err(RunError::Configuration(format!(
                "rule {}: orders.table is {name}, the same table that another rule calls {other}; write it alike in both, so that they \
                 can be told apart",
                config.which.name
            )));
        }
        let Common { closed, stop, .. } = &self.common;
        if self.clocks.insert(config.which.database.clone()) {
            let clock = ClockWatch {
                store: Arc::clone(store),
                bounds: Arc::clone(&place.bounds),
                rules: self.listening.subscribe(),
                commands: self.common.commands.clone(),
                stop: stop.clone(),
            };
            self.others.spawn(clock.run().instrument(place.span()));
        }
        // The events of shards are told together, those of other tables each to their own targets.
        let is_shard = config.which.name.shard().is_some();
        let schema = in_database(if is_shard { outbox.place().to_owned() } else { outbox.orders_table() });
        let is_first = !self.schemas.contains_key(&schema);
        let Schema { paused, neighbours } = self.schemas.entry(schema).or_default();
        let paused = Arc::clone(paused);
        // A shadow tells nobody, and prunes nothing.
        if before.is_none() && shadow.is_none() {
            if is_first {
                let relays = outbox::spawn(
                    told_of(config),
                    config.shutdown.timeout.get() / 2,
                    store,
                    neighbours,
                    &closed.subscribe(),
                    stop,
                    &mut self.others,
                );
                let relays = relays.map_err(RunError::Configuration)?.map(|relays| (config.which.name.clone(), relays));
                self.live().relays.extend(relays);
            } else {
                outbox::join(&config.events, store, neighbours, stop, &mut self.others);
            }
        }
        Ok(paused)
    }

    fn live(&self) -> MutexGuard<'_, reload::Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
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
        self.common.stop.cancel();
        self.lines.iter().for_each(Line::stop);
        let is_telling = !self.live().relays.is_empty();
        let drained = async {
            while self.workers.join_next().await.is_some() {}
            while self.others.join_next().await.is_some() {}
            if is_telling {
                join_all(self.lines.iter().map(|line| line.store.outbox().unpack_what_is_left())).await;
            }
            for line in &self.lines {
                line.store.close().await;
            }
        };
        let ended = tokio::select! {
            () = drained => Ok(()),
            () = tokio::time::sleep(limit) => {
                warn!(limit_s = limit.as_secs_f64(), "batches in hand did not finish in time (shutdown.timeout); they roll back");
                Ok(())
            }
            () = signals.next() => Err(RunError::Interrupted),
        };
        self.lines.iter().for_each(Line::sum_up);
        ended
    }
}
