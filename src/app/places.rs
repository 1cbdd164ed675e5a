//! The databases in which orders are: what their rules and shards have in common. Each has a clock of its own, and trouble of its own.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::{OnceCell, mpsc};
use tracing::{Span, error_span};

use super::opening::Waiting;
use crate::{
    close::Bounds,
    config::{Config, RuleName},
    store::{OpenError, Sharing, Store},
    trigger::{Beat, Body, Membership, Pulse, compare_clocks},
};

/// What lines in one database have in common.
#[derive(Debug)]
pub(super) struct Place {
    /// Its name, where it has one.
    name: Option<String>,
    /// The way there.
    pub(super) sharing: Sharing,
    /// What its clock may show.
    pub(super) bounds: Arc<Bounds>,
    /// By which they look.
    pub(super) beat: Beat,
    /// Whether it answers.
    pub(super) pulse: Arc<Pulse>,
    compared: OnceCell<()>,
    waiting: Mutex<Option<Waiting>>,
    /// Who else closes the orders of the shards here, by their rules.
    members: Mutex<BTreeMap<RuleName, Joined>>,
}

/// Who else is there, and where a shard joins those that say so together.
type Joined = (Arc<Membership>, mpsc::UnboundedSender<Body>);

/// A heartbeat that the shards of a rule in one database have together.
#[derive(Debug)]
pub(super) struct Shared {
    /// Where each says what it is made of.
    pub(super) join: mpsc::UnboundedSender<Body>,
    /// Where the first of them hears that, for all.
    pub(super) first: Option<mpsc::UnboundedReceiver<Body>>,
}

/// By their names, where they have some.
#[derive(Debug, Clone)]
pub(super) struct Places(Arc<BTreeMap<Option<String>, Arc<Place>>>);

impl Places {
    /// Those of these rules and shards.
    pub(super) fn of(lines: &[Config]) -> Self {
        let mut all: BTreeMap<Option<String>, Vec<&Config>> = BTreeMap::new();
        for config in lines {
            all.entry(config.which.database.clone()).or_default().push(config);
        }
        let place = |name: Option<String>, lines: Vec<&Config>| {
            let is_sharded = lines.iter().any(|config| config.which.name.shard().is_some());
            Arc::new(Place {
                name,
                sharing: Sharing::of(lines.iter().map(|config| &config.which.name)),
                bounds: Arc::new(Bounds::new(lines[0].sweep.oldest.get())),
                beat: if is_sharded { Beat::now() } else { Beat::default() },
                pulse: Arc::default(),
                compared: OnceCell::new(),
                waiting: Mutex::default(),
                members: Mutex::default(),
            })
        };
        Self(Arc::new(all.into_iter().map(|(name, lines)| (name.clone(), place(name, lines))).collect()))
    }

    /// That of one of them.
    pub(super) fn place(&self, config: &Config) -> Arc<Place> {
        Arc::clone(&self.0[&config.which.database])
    }

    /// What the clocks of all may show.
    pub(super) fn all_bounds(&self) -> Vec<Arc<Bounds>> {
        self.0.values().map(|place| Arc::clone(&place.bounds)).collect()
    }
}

impl Place {
    /// What lines of the log about the whole database say of it: nothing where there is no other.
    pub(super) fn span(&self) -> Span {
        self.name.as_ref().map_or_else(Span::none, |name| error_span!(parent: None, "database", database = name))
    }

    /// Who else closes a rule's orders here. Its shards know that together, and have one heartbeat.
    pub(super) fn membership(&self, rule: &RuleName) -> (Arc<Membership>, Option<Shared>) {
        if rule.shard().is_none() {
            return (Arc::default(), None);
        }
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((membership, join)) = members.get(&rule.everywhere()) {
            return (Arc::clone(membership), Some(Shared { join: join.clone(), first: None }));
        }
        let (membership, (join, first)) = (Arc::<Membership>::default(), mpsc::unbounded_channel());
        members.insert(rule.everywhere(), (Arc::clone(&membership), join.clone()));
        (membership, Some(Shared { join, first: Some(first) }))
    }

    /// Says that it is away, of all its shards once.
    pub(super) fn say_away(&self, error: &OpenError, cure: &str) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        self.span().in_scope(|| waiting.get_or_insert_with(Waiting::new).say_together(error, cure));
    }

    /// Compares its clock with others, once.
    pub(super) async fn compare_clocks(&self, config: &Config, store: &dyn Store) {
        let compare = async || {
            compare_clocks(store, &config.redis, &self.bounds).await;
        };
        self.compared.get_or_init(compare).await;
    }
}
