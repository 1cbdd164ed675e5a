//! The part of the daemon that answers over HTTP, where that is wanted: what is measured, what works, who may ask.

use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::{Mutex, Semaphore, watch},
    task::JoinSet,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    app::RunError,
    close::{Bounds, Gate, Inbox, Outage, Registrar, Requests, Stats},
    config::{Config, Live, Rule, RuleName, Sweep},
    explain::Explainer,
    http::{self, Access, Desk, Desks, Figures},
    metric,
    ops::{AllReady, Backlogs, Gauges, Measured, Overdues, Readiness, Sampler, Source, Sources, Told, Watchers},
    redis::Commands,
    store::Store,
    trigger::{Hearing, Membership, Passes},
};

/// How long Redis may take to say when the key of an order expires that somebody asks about.
const KEY_LIMIT: Duration = Duration::from_millis(300);

/// What is ready to serve before there is anything to serve.
#[derive(Debug)]
pub(super) struct Serving {
    address: SocketAddr,
    access: Access,
    measured: Measured,
    readiness: AllReady,
    sources: Sources,
    /// What is answered with, once the first rule is there.
    desks: OnceLock<Desks>,
}

/// What there is to tell of.
pub(super) struct Parts {
    pub(super) store: Arc<dyn Store>,
    pub(super) inbox: Arc<Inbox>,
    pub(super) bounds: Arc<Bounds>,
    pub(super) outage: Arc<Outage>,
    pub(super) gate: Arc<Gate>,
    pub(super) passes: Arc<Passes>,
    pub(super) commands: Commands,
    pub(super) peers: Arc<Membership>,
    pub(super) subscribed: watch::Receiver<Hearing>,
    pub(super) requests: Requests,
    pub(super) sweep: Live<Sweep>,
    pub(super) stats: Arc<Stats>,
    pub(super) registrar: Registrar,
    /// The names of the targets in the configuration.
    pub(super) targets: Live<Arc<[String]>>,
    pub(super) is_shadow: bool,
}

impl Serving {
    /// As the configuration says; nothing where nobody is to be answered.
    ///
    /// # Errors
    /// Says which file can't be used, and why.
    pub(super) fn of(config: &Config, is_shadow: bool) -> Result<Option<Self>, RunError> {
        let Some(address) = config.http.listen.get() else { return Ok(None) };
        let access = Access::new(&config.http).map_err(RunError::Configuration)?;
        let access = if is_shadow { access.reading_only() } else { access };
        let measured = Measured::begin().map_err(RunError::System)?;
        metric::SHADOW.set(f64::from(u8::from(is_shadow)), &[]);
        let readiness = AllReady::of(config.rule_names());
        Ok(Some(Self { address, access, measured, readiness, sources: Sources::default(), desks: OnceLock::new() }))
    }

    /// Who may ask.
    pub(super) fn access(&self) -> Access {
        self.access.clone()
    }

    /// These are all rules by now.
    pub(super) fn expect(&self, rules: Vec<RuleName>) {
        self.readiness.expect(rules);
    }

    /// Tells of one more rule.
    pub(super) fn add(&self, config: &Config, parts: Parts, stop: &CancellationToken, running: &mut JoinSet<()>) {
        let Parts {
            store,
            inbox,
            bounds,
            outage,
            gate,
            passes,
            commands,
            peers,
            subscribed,
            requests,
            stats,
            sweep,
            registrar,
            targets,
            is_shadow,
        } = parts;
        let gauges = Gauges {
            measured: self.measured.clone(),
            inbox: Arc::clone(&inbox),
            peers: Arc::clone(&peers),
            readiness: self.readiness.clone(),
            store: Arc::clone(&store),
            subscribed: subscribed.clone(),
            has_redis: !commands.is_absent(),
            stop: stop.clone(),
        };
        let overdues = Overdues {
            store: Arc::clone(&store),
            inbox: Arc::clone(&inbox),
            gate: Arc::clone(&gate),
            sweep: sweep.clone(),
            last: Arc::default(),
            stop: stop.clone(),
        };
        let last = Arc::clone(&overdues.last);
        running.spawn(gauges.run());
        running.spawn(overdues.run());
        let explainer = Explainer::of(Rule::of(config), config.sweep.ahead.get(), &store, bounds, (Ok(commands.clone()), KEY_LIMIT))
            .remembering(Arc::clone(&inbox));
        let readiness = Readiness {
            store: Arc::clone(&store),
            inbox: Arc::clone(&inbox),
            outage,
            gate: Arc::clone(&gate),
            passes,
            sweep: sweep.clone(),
            commands,
            peers,
            subscribed,
            reached: Mutex::default(),
            is_shadow,
        };
        let readiness = Arc::new(readiness);
        self.readiness.add(Arc::clone(&readiness));
        self.sources.add(Source {
            rule: store.rule().to_string(),
            table: store.rule().shard().map_or_else(|| config.orders.table.to_string(), str::to_owned),
            store: Arc::clone(&store),
            inbox: Arc::clone(&inbox),
            gate,
            stats,
            overdue: last,
            peers: Arc::clone(&readiness.peers),
            targets: targets.clone(),
            told: Told::default(),
        });
        let desks = self.desks.get_or_init(|| self.serve(config, stop, running));
        desks.add(Desk {
            runtime: Handle::current(),
            readers: Arc::new(Semaphore::new(http::READERS)),
            sweep,
            requests: Arc::new(requests),
            store,
            inbox,
            explainer,
            targets,
            registrar,
        });
    }

    /// Begins to serve.
    fn serve(&self, config: &Config, stop: &CancellationToken, running: &mut JoinSet<()>) -> Desks {
        let sampler = Sampler {
            watchers: Watchers::default(),
            readiness: self.readiness.clone(),
            servers: [config.database.url.to_string(), config.redis.url.to_string()],
            sources: self.sources.clone(),
            began: Instant::now(),
            stop: stop.clone(),
        };
        let figures = Figures::new(sampler.watchers.clone(), self.access.name(), stop.clone());
        let desks = Desks::new(Handle::current(), self.readiness.clone(), self.measured.clone(), figures);
        running.spawn(sampler.run());
        running.spawn(Backlogs { sources: self.sources.clone(), stop: stop.clone() }.run());
        running.spawn(http::serve(self.address, desks.clone(), self.access.clone(), stop.clone()));
        desks
    }
}
