//! Takes the figures once a second while somebody watches, however many that are; while nobody does, nothing is read.
//!
//! What the tables are asked for costs them little: counts that end, by indexes, one after the other over one connection, once
//! in ten seconds or in nine times as long as they took, also when watchers come and go in between.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{Figures, MOST_DUE, MOST_PENDING, Part, PauseFigures, RuleFigures, STEP_S, STEPS, TargetFigures};
use crate::{
    close::{Gate, Inbox, Stats},
    config::Live,
    ops::{AllReady, LastOverdue, Overdue, Readiness, Ready},
    order::rfc3339,
    outbox::Pause,
    store::{Store, StoreError, Window, instance},
    trigger::Membership,
};

/// How often figures are taken.
const EVERY: Duration = Duration::from_secs(1);

/// How often it is looked at what works and whether closing is paused.
const STATE_EVERY: Duration = Duration::from_secs(2);

/// How often the tables are counted, and how long all of that may take.
const COUNT_EVERY: Duration = Duration::from_secs(10);
const COUNT_LIMIT: Duration = Duration::from_secs(5);

/// What comes from the tables is waited for so long before the first figures are shown without it.
const FIRST: Duration = Duration::from_secs(1);

/// The figures, written down once for all watchers.
#[derive(Debug)]
pub struct Sampled {
    /// All, as JSON.
    pub all: String,
    /// The same without ids.
    pub without_ids: String,
}

/// Whoever watches.
#[derive(Debug, Clone, Default)]
pub struct Watchers(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    latest: watch::Sender<Option<Arc<Sampled>>>,
    arrived: Notify,
}

impl Watchers {
    /// One more. It sees the next figures that are taken, and those that are there; nothing before the first.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Option<Arc<Sampled>>> {
        let mut receiver = self.0.latest.subscribe();
        receiver.mark_changed();
        self.0.arrived.notify_one();
        receiver
    }
}

/// Takes the figures.
#[derive(Debug)]
pub struct Sampler {
    /// For whom.
    pub watchers: Watchers,
    /// What works.
    pub readiness: AllReady,
    /// Which database and which Redis that are, without passwords.
    pub servers: [String; 2],
    /// Of whose orders.
    pub sources: Sources,
    /// When the daemon was started.
    pub began: Instant,
    /// When to stop.
    pub stop: CancellationToken,
}

/// The rules of whose orders there are figures; more may come at any time.
#[derive(Debug, Clone, Default)]
pub struct Sources(Arc<Mutex<Vec<Arc<Source>>>>);

impl Sources {
    /// Adds a rule.
    pub fn add(&self, source: Source) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(source));
    }

    /// The first rule of each table.
    #[must_use]
    pub fn of_each_table(&self) -> Vec<Arc<Source>> {
        let (mut sources, mut tables) = (self.all(), HashSet::new());
        sources.retain(|source| tables.insert(source.table.clone()));
        sources
    }

    fn all(&self) -> Vec<Arc<Source>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Where the figures of one rule's orders come from.
#[derive(Debug)]
pub struct Source {
    /// The rule.
    pub rule: String,
    /// Which table.
    pub table: String,
    /// The orders.
    pub store: Arc<dyn Store>,
    /// What waits.
    pub inbox: Arc<Inbox>,
    /// Whether closing is paused.
    pub gate: Arc<Gate>,
    /// What was done.
    pub stats: Arc<Stats>,
    /// What is overdue.
    pub overdue: Arc<LastOverdue>,
    /// Who else is there.
    pub peers: Arc<Membership>,
    /// The targets that the configuration names.
    pub targets: Live<Arc<[String]>>,
    /// What the tables have told.
    pub told: Told,
}

/// What is not known without asking the tables.
#[derive(Debug, Default)]
pub struct Told {
    pause: Mutex<Option<Pause>>,
    counted: Mutex<Option<(Instant, Counted)>>,
}

#[derive(Debug, Clone, Default)]
struct Counted {
    pending: u64,
    due: Vec<u64>,
    dead_letters: Option<u64>,
    targets: Vec<TargetFigures>,
}

/// What was asked for, however many rules there are.
#[derive(Debug, Default)]
struct Asked {
    ready: Option<Ready>,
    /// When the tables may be counted again.
    again: Option<Instant>,
}

impl Sampler {
    /// Takes figures whenever somebody watches.
    pub async fn run(self) {
        let (stop, asked) = (self.stop.clone(), Mutex::default());
        stop.run_until_cancelled(async {
            loop {
                self.watchers.0.arrived.notified().await;
                tokio::select! {
                    () = self.watchers.0.latest.closed() => {}
                    () = self.watched(&asked) => {}
                }
                // Old figures are shown to nobody.
                self.watchers.0.latest.send_replace(None);
            }
        })
        .await;
    }

    async fn watched(&self, asked: &Mutex<Asked>) {
        let first = Notify::new();
        let sample = async {
            tokio::time::timeout(FIRST, first.notified()).await.ok();
            loop {
                let figures = self.figures(&asked.lock().unwrap_or_else(PoisonError::into_inner));
                let written = serde_json::to_string(&figures).and_then(|all| Ok((all, serde_json::to_string(&figures.without_ids())?)));
                match written {
                    Ok((all, without_ids)) => drop(self.watchers.0.latest.send_replace(Some(Arc::new(Sampled { all, without_ids })))),
                    Err(error) => debug!(%error, "figures can't be written as JSON"),
                }
                tokio::time::sleep(EVERY).await;
            }
        };
        let look = async {
            loop {
                let ready = self.readiness.look().await;
                change(asked, |asked| asked.ready = Some(ready));
                for source in self.sources.all() {
                    // A pause that can't be read is as the gate shows it.
                    let pause = source.store.outbox().pause_of_rule().await.ok().flatten();
                    change(&source.told.pause, |told| *told = pause);
                }
                tokio::time::sleep(STATE_EVERY).await;
            }
        };
        tokio::join!(sample, look, self.count_again_and_again(asked, &first));
    }

    async fn count_again_and_again(&self, asked: &Mutex<Asked>, first: &Notify) {
        loop {
            let again = asked.lock().unwrap_or_else(PoisonError::into_inner).again;
            if let Some(again) = again.filter(|again| Instant::now() < *again) {
                first.notify_one();
                tokio::time::sleep_until(again).await;
            }
            let began = Instant::now();
            // Whoever leaves while they are counted, and comes back, does not have them counted sooner by that.
            change(asked, |asked| asked.again = Some(began + COUNT_EVERY));
            for source in self.sources.all() {
                match tokio::time::timeout(COUNT_LIMIT, source.count()).await {
                    Ok(Ok(counted)) => change(&source.told.counted, |told| *told = Some((Instant::now(), counted))),
                    Ok(Err(error)) => debug!(rule = source.rule, %error, "what falls due was not counted"),
                    Err(_) => debug!(rule = source.rule, limit_s = COUNT_LIMIT.as_secs(), "what falls due was not counted in time"),
                }
            }
            // A table that is slow is not made slower by being counted: a tenth of the time at the most.
            change(asked, |asked| asked.again = Some(Instant::now() + COUNT_EVERY.max(began.elapsed() * 9)));
            first.notify_one();
        }
    }

    fn figures(&self, asked: &Asked) -> Figures {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
        let ready = asked.ready.as_ref();
        let sources = self.sources.all();
        Figures {
            version: env!("CARGO_PKG_VERSION").into(),
            instance: instance().to_owned(),
            now: rfc3339(i64::try_from(now).unwrap_or(i64::MAX)),
            uptime_s: self.began.elapsed().as_secs(),
            ready: ready.map(|ready| ready.ready),
            missing: ready.map(|ready| ready.missing.clone()).unwrap_or_default(),
            degraded: ready.map(|ready| ready.degraded.clone()).unwrap_or_default(),
            parts: self.parts(),
            rules: sources.iter().map(|source| source.figures()).collect(),
            targets: targets(&self.sources.of_each_table()),
            read_only: false,
        }
    }

    fn parts(&self) -> Vec<Part> {
        // The database, Redis and the subscription are those of all rules.
        let all = self.readiness.all();
        let Some(readiness) = all.iter().find(|rule| rule.outage.lasts() || rule.store.halted().borrow().is_some()).or(all.first()) else {
            return Vec::new();
        };
        let Readiness { store, outage, commands, subscribed, .. } = &**readiness;
        let [database, redis] = &self.servers;
        let part = |name: &str, ok, state: &str, says| Part { name: name.into(), ok, state: state.into(), says };
        let halted = store.halted().borrow().clone();
        let troubles = commands.troubles();
        let trouble = troubles.iter().next().map(|(what, error)| format!("{what}: {error}"));
        let hearing = subscribed.borrow().clone();
        let of_all =
            if hearing.primaries() > 1 { format!("{} of {} primaries", hearing.subscribed(), hearing.primaries()) } else { String::new() };
        let is_absent = commands.is_absent();
        let server = commands.server().map_or_else(|| redis.clone(), |server| format!("{server} at {redis}"));
        let mut parts = vec![
            match (outage.lasts(), halted) {
                (false, None) => part("database", true, "works", database.clone()),
                (false, Some(reason)) => part("database", false, "stopped", reason),
                (true, _) => part("database", false, "away", database.clone()),
            },
            match trouble {
                None if is_absent => part("Redis", true, "none", "orders close by their rows alone".into()),
                None => part("Redis", true, "works", server),
                Some(trouble) => part("Redis", false, "in trouble", trouble),
            },
        ];
        if !is_absent {
            parts.push(part("notifications", hearing.all(), if hearing.any() { "subscribed" } else { "none" }, of_all));
        }
        parts
    }
}

impl Source {
    /// Counts, and ends.
    async fn count(&self) -> Result<Counted, StoreError> {
        let minutes = |step: u32| Duration::from_secs(u64::from(STEP_S * step));
        let mut due = Vec::new();
        for step in 0..STEPS {
            due.push(self.store.count_up_to(Window::between(minutes(step), minutes(step + 1)), MOST_DUE).await?);
        }
        let later = self.store.count_up_to(Window::between(minutes(STEPS), Duration::MAX), MOST_PENDING).await?;
        let pending = (due.iter().sum::<u64>() + later).min(u64::from(MOST_PENDING));
        let outbox = self.store.outbox();
        let counted = Counted { pending, due, ..Counted::default() };
        if !outbox.is_ready() {
            return Ok(counted);
        }
        let (states, addressed) = (outbox.target_states(None).await?, outbox.addressed().await?);
        let others = addressed.iter().chain(states.iter().map(|state| &state.target));
        let configured = self.targets.get();
        let mut names: Vec<&String> = configured.iter().collect();
        for other in others {
            if !names.contains(&other) {
                names.push(other);
            }
        }
        let mut figures = Vec::new();
        for name in names {
            let counts = outbox.count_for(name).await?;
            let mut target = TargetFigures {
                name: name.clone(),
                configured: configured.contains(name),
                state: "ok".into(),
                waiting: counts.waiting,
                dead: counts.dead,
                ..TargetFigures::default()
            };
            if let Some(state) = states.iter().find(|state| state.target == *name) {
                target.learn(state);
            }
            figures.push(target);
        }
        Ok(Counted { dead_letters: Some(outbox.count_dead_orders().await?), targets: figures, ..counted })
    }

    fn figures(&self) -> RuleFigures {
        let counted = self.told.counted.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (age, counted) = counted.map_or((0.0, None), |(at, counted)| (at.elapsed().as_secs_f64(), Some(counted)));
        let dead_letters = counted.as_ref().and_then(|counted| counted.dead_letters);
        // What is a dead letter is no longer found among what is overdue.
        let overdue = self.overdue.get().map(|overdue| Overdue { dead: overdue.dead.max(dead_letters.unwrap_or(0)), ..overdue });
        let (others, fit) = self.peers.seen();
        RuleFigures {
            name: self.rule.clone(),
            table: self.table.clone(),
            pause: self.pause(),
            pending: counted.as_ref().map(|counted| counted.pending),
            due: counted.map(|counted| counted.due),
            due_age_s: age,
            overdue,
            recent: self.stats.recent(),
            queued: self.inbox.queued() as u64,
            others: others as u64,
            fit,
            dead_letters,
        }
    }

    /// The gate knows it first.
    fn pause(&self) -> Option<PauseFigures> {
        if self.gate.is_open() {
            return None;
        }
        let told = self.told.pause.lock().unwrap_or_else(PoisonError::into_inner);
        told.as_ref().map(PauseFigures::from).or_else(|| self.gate.is_shut().then(PauseFigures::default))
    }
}

/// Those of all tables.
fn targets(tables: &[Arc<Source>]) -> Vec<TargetFigures> {
    let mut all = Vec::<TargetFigures>::new();
    for source in tables {
        let counted = source.told.counted.lock().unwrap_or_else(PoisonError::into_inner);
        for target in counted.iter().flat_map(|(_, counted)| &counted.targets) {
            match all.iter_mut().find(|known| known.name == target.name) {
                Some(known) => {
                    known.waiting += target.waiting;
                    known.dead += target.dead;
                }
                None => all.push(target.clone()),
            }
        }
    }
    all
}

fn change<T>(what: &Mutex<T>, change: impl FnOnce(&mut T)) {
    change(&mut what.lock().unwrap_or_else(PoisonError::into_inner));
}
