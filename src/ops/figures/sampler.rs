//! Takes the figures once a second while somebody watches, however many that are; while nobody does, nothing is read.
//!
//! What the tables are asked for costs them little: counts that end, by indexes, one after the other over one connection, once
//! in ten seconds or in nine times as long as they took, also when watchers come and go in between.

use std::{
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
    config::RULE,
    ops::{LastOverdue, Overdue, Readiness, Ready},
    order::rfc3339,
    outbox::Pause,
    store::{Store, StoreError, Window, instance},
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
    pub readiness: Arc<Readiness>,
    /// The orders.
    pub store: Arc<dyn Store>,
    /// Which database and which Redis that are, without passwords.
    pub servers: [String; 2],
    /// Which table.
    pub table: String,
    /// What waits.
    pub inbox: Arc<Inbox>,
    /// Whether closing is paused.
    pub gate: Arc<Gate>,
    /// What was done.
    pub stats: Arc<Stats>,
    /// What is overdue.
    pub overdue: Arc<LastOverdue>,
    /// The targets that the configuration names.
    pub targets: Vec<String>,
    /// When the daemon was started.
    pub began: Instant,
    /// When to stop.
    pub stop: CancellationToken,
}

/// What is not known without asking the database.
#[derive(Debug, Default)]
struct Asked {
    state: Option<(Ready, Option<Pause>)>,
    counted: Option<(Instant, Counted)>,
    /// When they may be counted again.
    again: Option<Instant>,
}

#[derive(Debug, Default)]
struct Counted {
    pending: u64,
    due: Vec<u64>,
    dead_letters: Option<u64>,
    targets: Vec<TargetFigures>,
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
                let (ready, pause) = tokio::join!(self.readiness.look(), self.store.outbox().pause_of_rule());
                // A pause that can't be read is as the gate shows it.
                change(asked, |asked| asked.state = Some((ready, pause.ok().flatten())));
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
            match tokio::time::timeout(COUNT_LIMIT, self.count()).await {
                Ok(Ok(counted)) => change(asked, |asked| asked.counted = Some((Instant::now(), counted))),
                Ok(Err(error)) => debug!(%error, "what falls due was not counted"),
                Err(_) => debug!(limit_s = COUNT_LIMIT.as_secs(), "what falls due was not counted in time"),
            }
            // A table that is slow is not made slower by being counted: a tenth of the time at the most.
            change(asked, |asked| asked.again = Some(Instant::now() + COUNT_EVERY.max(began.elapsed() * 9)));
            first.notify_one();
        }
    }

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
        let mut names: Vec<&String> = self.targets.iter().collect();
        for other in others {
            if !names.contains(&other) {
                names.push(other);
            }
        }
        let mut targets = Vec::new();
        for name in names {
            let counts = outbox.count_for(name).await?;
            let mut target = TargetFigures {
                name: name.clone(),
                configured: self.targets.contains(name),
                state: "ok".into(),
                waiting: counts.waiting,
                dead: counts.dead,
                ..TargetFigures::default()
            };
            if let Some(state) = states.iter().find(|state| state.target == *name) {
                target.learn(state);
            }
            targets.push(target);
        }
        Ok(Counted { dead_letters: Some(outbox.count_dead_orders().await?), targets, ..counted })
    }

    fn figures(&self, asked: &Asked) -> Figures {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
        let ready = asked.state.as_ref().map(|state| &state.0);
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        Figures {
            version: env!("CARGO_PKG_VERSION").into(),
            instance: instance(),
            now: rfc3339(i64::try_from(now).unwrap_or(i64::MAX)),
            uptime_s: self.began.elapsed().as_secs(),
            ready: ready.map(|ready| ready.ready),
            missing: ready.map(|ready| texts(&ready.missing)).unwrap_or_default(),
            degraded: ready.map(|ready| texts(&ready.degraded)).unwrap_or_default(),
            parts: self.parts(),
            rules: vec![self.rule(asked)],
            targets: asked.counted.as_ref().map(|(_, counted)| counted.targets.clone()).unwrap_or_default(),
            read_only: false,
        }
    }

    fn parts(&self) -> Vec<Part> {
        let Readiness { outage, commands, subscribed, .. } = &*self.readiness;
        let [database, redis] = &self.servers;
        let part = |name: &str, ok, state: &str, says| Part { name: name.into(), ok, state: state.into(), says };
        let halted = self.store.halted().borrow().clone();
        let troubles = commands.troubles();
        let trouble = troubles.iter().next().map(|(what, error)| format!("{what}: {error}"));
        let subscribed = *subscribed.borrow();
        let server = commands.server().map_or_else(|| redis.clone(), |server| format!("{server} at {redis}"));
        vec![
            match (outage.lasts(), halted) {
                (false, None) => part("database", true, "works", database.clone()),
                (false, Some(reason)) => part("database", false, "stopped", reason),
                (true, _) => part("database", false, "away", database.clone()),
            },
            match trouble {
                None => part("Redis", true, "works", server),
                Some(trouble) => part("Redis", false, "in trouble", trouble),
            },
            part("notifications", subscribed, if subscribed { "subscribed" } else { "none" }, String::new()),
        ]
    }

    fn rule(&self, asked: &Asked) -> RuleFigures {
        let counted = asked.counted.as_ref();
        let dead_letters = counted.and_then(|(_, counted)| counted.dead_letters);
        // What is a dead letter is no longer found among what is overdue.
        let overdue = self.overdue.get().map(|overdue| Overdue { dead: overdue.dead.max(dead_letters.unwrap_or(0)), ..overdue });
        let pause = asked.state.as_ref().and_then(|(_, pause)| pause.as_ref());
        let (others, fit) = self.readiness.peers.seen();
        RuleFigures {
            name: RULE.into(),
            table: self.table.clone(),
            // The gate knows it first.
            pause: match (self.gate.is_open(), pause) {
                (true, _) => None,
                (false, Some(pause)) => Some(pause.into()),
                (false, None) => self.gate.is_shut().then(PauseFigures::default),
            },
            pending: counted.map(|(_, counted)| counted.pending),
            due: counted.map(|(_, counted)| counted.due.clone()),
            due_age_s: counted.map_or(0.0, |(at, _)| at.elapsed().as_secs_f64()),
            overdue,
            recent: self.stats.recent(),
            queued: self.inbox.queued() as u64,
            others: others as u64,
            fit,
            dead_letters,
        }
    }
}

fn change(asked: &Mutex<Asked>, change: impl FnOnce(&mut Asked)) {
    change(&mut asked.lock().unwrap_or_else(PoisonError::into_inner));
}
