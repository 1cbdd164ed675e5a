//! A daemon: all parts of a rule's line, put together as `app` does, over the servers in memory.

use std::{
    sync::{
        Arc, LazyLock, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Notify, mpsc, watch},
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{database::Connections, outbox::Deliver, planted::Planted, provider::Provider, receiver::Receiver, redis::Redis, world::World};
use crate::{
    ask::{self, Ahead, Ask},
    close::{Bounds, Clearance, Clearances, Closer, Follow, Inbox, Outage, Share, Stats, Worker},
    config::{self, Config, Database, KeyPrefix, Live, Retry, Rule, RuleName, Span, Sweep as Settings},
    order::Trigger,
    outbox::{Courier, Relay},
    store::Store,
    trigger::{
        Beat, Board, Body, Hearing, Heart, KeyReader, LookAhead, Mapping, Membership, Pacer, Passes, PauseWatch, Sweep, Turns, Witness,
    },
    watchdog::Watchdog,
};

/// A daemon's process: whether it stands still, and what it hears.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) number: u32,
    pub(super) inbox: Arc<Inbox>,
    peers: Arc<Membership>,
    frozen: AtomicBool,
    thaws: Notify,
    subscribed: watch::Sender<Hearing>,
    gone: AtomicBool,
}

impl Node {
    /// It stands still, or goes on.
    pub(super) fn freeze(&self, so: bool) {
        self.frozen.store(so, Ordering::Relaxed);
        self.thaws.notify_waiters();
    }

    /// Waits while it stands still: nothing that it does reaches anybody, and no answer reaches it.
    pub(super) async fn thawed(&self) {
        while self.frozen.load(Ordering::Relaxed) {
            self.thaws.notified().await;
        }
    }

    /// Its subscription is there, or not. As the listener does, it asks for a sweep when there is a new one.
    pub(super) fn subscribe(&self, so: bool) {
        self.subscribed.send_replace(Hearing::of_one(so));
        if so {
            self.inbox.want_sweep();
        }
    }

    /// It hears that an order's key has expired, as the listener does.
    pub(super) fn hear(&self, order: u32) {
        let id = super::world::id(order);
        if self.subscribed.borrow().any() && !self.gone.load(Ordering::Relaxed) && self.peers.is_ours(&id) {
            self.inbox.offer_hint(&id, Trigger::Expired);
        }
    }
}

/// A daemon while it runs.
pub(super) struct Daemon {
    pub(super) node: Arc<Node>,
    pub(super) bounds: Arc<Bounds>,
    tasks: JoinSet<()>,
    stop: CancellationToken,
}

/// Reads the database's clock, as the daemon does before it begins.
async fn watch_clock(store: &dyn Store, bounds: &Bounds) {
    let asked = Instant::now();
    if let Ok(reading) = store.clock().await {
        bounds.counted(reading.micros, asked);
    }
}

/// And each second from then on; whoever has waited for a clock to be set back is looked for then.
async fn watch_clock_again_and_again(store: Arc<dyn Store>, bounds: Arc<Bounds>, inbox: Arc<Inbox>, stop: CancellationToken) {
    while stop.run_until_cancelled(sleep(Duration::from_secs(1))).await.is_some() {
        let before = bounds.jumped();
        watch_clock(store.as_ref(), &bounds).await;
        if before.is_some() && bounds.jumped().is_none() {
            inbox.want_sweep();
        }
    }
}

/// The rule of all daemons.
static RULE: LazyLock<Rule> = LazyLock::new(|| Rule::of(&Config::default()));

/// Who is asked, where somebody is: nothing but times.
static ASK: LazyLock<config::Ask> =
    LazyLock::new(|| toml::from_str("url = 'http://127.0.0.1:1/'\ntimeout = '1s'\nbatch = 4").expect("settings"));

impl Daemon {
    pub(super) async fn start(world: &Arc<World>, number: u32) -> Self {
        let rule = RuleName::default();
        let inbox = Arc::new(Inbox::new(10_000, Retry::default()));
        let peers = Arc::new(Membership::named(&format!("daemon-{number}")));
        let is_away = world.state().redis_away;
        let node = Arc::new(Node {
            number,
            inbox: Arc::clone(&inbox),
            peers: Arc::clone(&peers),
            frozen: AtomicBool::new(false),
            thaws: Notify::new(),
            subscribed: watch::Sender::new(Hearing::of_one(!is_away)),
            gone: AtomicBool::new(false),
        });
        let store: Arc<dyn Store> = Arc::new(Connections::new(world, &node));
        let redis = Arc::new(Redis::new(world, &node));
        let (stop, stats) = (CancellationToken::new(), Arc::new(Stats::of(&rule)));
        let pauses = PauseWatch::of(&store, &stop);
        let is_deaf = world.planted == Some(Planted::DeafToPauses);
        let gate = if is_deaf { Arc::default() } else { Arc::clone(&pauses.gate) };
        let (bounds, outage) = (Arc::new(Bounds::new(None)), Arc::new(Outage::new(Arc::clone(&store))));
        watch_clock(store.as_ref(), &bounds).await;
        let (_, settings) = Live::new(Settings { ahead: world.plan.ahead.into(), ..Settings::default() });
        let mapping = Mapping { zone_matters: false, plus: None };
        let prefix = KeyPrefix::default();
        let witness = Some(Arc::new(Witness::new(prefix.get().unwrap_or_default(), redis.clone(), Arc::new(Arc::clone(&store)), mapping)))
            .filter(|_| world.planted != Some(Planted::NoWitness));
        witness.iter().for_each(Witness::greet);
        let passed = Clearances::default().and(witness.clone());
        let ask = world.plan.ask.filter(|_| world.planted != Some(Planted::NobodyAsks)).map(|ahead| {
            let parts = ask::Parts {
                rule: rule.clone(),
                store: Arc::clone(&store),
                inbox: Arc::clone(&inbox),
                bounds: Arc::clone(&bounds),
                gate: Arc::clone(&gate),
                stats: Arc::clone(&stats),
                share: Arc::clone(&peers) as Arc<dyn Share>,
                before: Arc::new(passed.clone()),
            };
            Ask::of(&config::Ask { ahead: ahead.into(), ..ASK.clone() }, Box::new(Provider::new(world, &node)), parts)
        });
        let clearance: Arc<dyn Clearance> = Arc::new(passed.and(ask.clone()));
        let (upcoming, upcoming_rx) = mpsc::channel(8);
        let (later, later_rx) = mpsc::channel(1_000);
        let (turns, passes) = (Arc::new(Turns::default()), Arc::new(Passes::of(&rule)));
        let worker = Worker {
            inbox: Arc::clone(&inbox),
            gate: Arc::clone(&gate),
            clearance,
            closer: Closer::within(Arc::clone(&store), Arc::clone(&bounds)),
            batch_size: world.plan.batch,
            share: Arc::clone(&peers) as Arc<dyn Share>,
            later,
            closed: watch::Sender::new(()),
            stats: Arc::clone(&stats),
            outage: Arc::clone(&outage),
            rejections: Arc::default(),
            follow: Follow::Daemon,
            stop: stop.clone(),
        };
        let look_ahead = LookAhead {
            beat: Beat::default(),
            store: Arc::clone(&store),
            inbox: Arc::clone(&inbox),
            witness,
            peers: Arc::clone(&peers),
            upcoming,
            settings: settings.clone(),
            passes: Arc::clone(&passes),
            turns: Arc::clone(&turns),
            stop: stop.clone(),
        };
        let sweep = Sweep {
            beat: Beat::default(),
            store: Arc::clone(&store),
            inbox: Arc::clone(&inbox),
            peers: Arc::clone(&peers),
            bounds: Arc::clone(&bounds),
            settings,
            passes: Arc::clone(&passes),
            turns,
            stop: stop.clone(),
        };
        let keys = KeyReader::new(prefix, Arc::clone(&store));
        let pacer = Pacer::new(
            (upcoming_rx, later_rx),
            Arc::clone(&inbox),
            Arc::clone(&peers),
            (keys, redis.clone(), node.subscribed.subscribe()),
            stop.clone(),
        )
        .with_foresight(ask.clone().map(|ask| Arc::new(Ahead(ask)) as _));
        let relay = Relay {
            outbox: Arc::new(Deliver::new(world, &node)),
            courier: Courier::here(Arc::new(Receiver::new(world, &node))),
            retry: Retry { attempts: 1_000, initial: Duration::from_millis(300).into(), max: Span::from_secs(1) },
            recorded: worker.closed.subscribe(),
            stop: stop.clone(),
            grace: Duration::from_secs(2),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(relay.run());
        tasks.spawn(pauses.run());
        worker.spawn(world.plan.workers, &Watchdog::default(), &mut tasks);
        tasks.spawn(pacer.run());
        tasks.spawn(look_ahead.run());
        tasks.spawn(sweep.run());
        if let Some(ask) = ask {
            tasks.spawn(ask.run(stop.clone()));
        }
        tasks.spawn(watch_clock_again_and_again(Arc::clone(&store), Arc::clone(&bounds), Arc::clone(&inbox), stop.clone()));
        let body = Body { rule: RULE.clone(), database: Database::default(), store, inbox, stats, outage, gate, passes };
        tasks.spawn(peers.run(Heart::of(body, Board::Memory(redis), Arc::default(), stop.clone())));
        world.nodes.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&node));
        Self { node, bounds, tasks, stop }
    }

    /// Its process is killed.
    pub(super) async fn kill(mut self, world: &World) {
        self.leave(world);
        self.tasks.shutdown().await;
    }

    /// It is told to stop: takes nothing more in, and finishes what it has in hand.
    pub(super) async fn stop(mut self, world: &World) -> bool {
        self.leave(world);
        self.node.freeze(false);
        self.node.inbox.close();
        self.stop.cancel();
        let mut ended_well = true;
        while let Some(ended) = self.tasks.join_next().await {
            ended_well &= ended.is_ok();
        }
        ended_well
    }

    fn leave(&self, world: &World) {
        self.node.gone.store(true, Ordering::Relaxed);
        world.nodes.lock().unwrap_or_else(PoisonError::into_inner).retain(|node| node.number != self.node.number);
    }

    /// Whether a part of it has ended, which none does by itself.
    pub(super) fn has_panicked(&mut self) -> bool {
        self.tasks.try_join_next().is_some()
    }
}

/// The daemons that run.
#[derive(Default)]
pub(super) struct Crew {
    pub(super) daemons: Mutex<Vec<Daemon>>,
    pub(super) born: Mutex<u32>,
}

impl Crew {
    pub(super) async fn start(&self, world: &Arc<World>) {
        let number = {
            let mut born = self.born.lock().unwrap_or_else(PoisonError::into_inner);
            *born += 1;
            *born
        };
        let daemon = Daemon::start(world, number).await;
        self.lock().push(daemon);
    }

    pub(super) fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Daemon>> {
        self.daemons.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
