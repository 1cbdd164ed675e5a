//! The configuration read anew while the daemon runs, on SIGHUP: all of it, or nothing.
//!
//! Whatever can fail comes first: reading, what can't change, files with tokens and secrets. Then all is taken over.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::watch;
use tracing::{error, info};

use super::opening::told_of;
use crate::{
    ask::{Receiver, Way},
    close::{Bounds, Inbox},
    config::{Changes, Config, Loaded, RuleName, Sweep},
    http::Access,
    metric,
    ops::{Hangups, ServiceManager},
    outbox::{self, Plan, Relays},
    store::Store,
};

/// The configuration as it was read from where the first one came from.
pub struct Reread {
    /// What it says.
    pub loaded: Loaded,
    /// Makes the log say as much as it wants.
    pub set_level: Box<dyn FnOnce() + Send>,
}

impl fmt::Debug for Reread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reread").field("loaded", &self.loaded).finish_non_exhaustive()
    }
}

/// Reads the configuration once more, or says what is wrong with it.
pub type Reader = Box<dyn Fn() -> Result<Reread, String> + Send + Sync>;

/// What of the daemon can change.
#[derive(Debug)]
pub(super) struct Live {
    /// The configuration as it was taken over last: a rule that starts later has that.
    pub(super) config: Config,
    pub(super) sweep: watch::Sender<Sweep>,
    /// Of each database.
    pub(super) bounds: Vec<Arc<Bounds>>,
    pub(super) rules: Vec<LiveRule>,
    /// Who may ask over HTTP, where that is answered.
    pub(super) access: Option<Access>,
    /// Who tells others, of each orders table, where there are tables for that; with one of its rules.
    pub(super) relays: Vec<(RuleName, Relays)>,
}

/// What of a rule can change.
#[derive(Debug)]
pub(super) struct LiveRule {
    pub(super) store: Arc<dyn Store>,
    pub(super) inbox: Arc<Inbox>,
    /// The names of its targets.
    pub(super) named: watch::Sender<Arc<[String]>>,
    /// Whoever is asked before its orders close.
    pub(super) receiver: Option<Receiver>,
}

/// Why nothing was taken over.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("{0}")]
    Broken(String),
    #[error("{} can't change while the daemon runs; restart it, or put back what was there", .0.join(", "))]
    Fixed(Vec<String>),
}

/// Reads the configuration anew whenever somebody asks for it.
pub(super) struct Reloading<'d> {
    pub(super) hangups: Hangups,
    pub(super) read: Reader,
    pub(super) manager: &'d ServiceManager,
    pub(super) live: Arc<Mutex<Live>>,
}

impl Reloading<'_> {
    /// Never ends.
    pub(super) async fn run(mut self, first: &Loaded) {
        let mut last: Option<Loaded> = None;
        metric::CONFIG_REFUSED.set(0.0, &[]);
        loop {
            self.hangups.next().await;
            self.manager.reloading();
            match self.reload(last.as_ref().unwrap_or(first)) {
                Ok((loaded, changed)) => {
                    metric::CONFIG_REFUSED.set(0.0, &[]);
                    info!(
                        changed = changed.join(", "),
                        "the configuration was read anew, and the files with tokens, secrets and certificates"
                    );
                    last = Some(loaded);
                }
                Err(refused) => {
                    metric::CONFIG_REFUSED.set(1.0, &[]);
                    error!(reason = %refused, "the configuration was read anew and refused as a whole; going on as before");
                }
            }
            self.manager.ready();
        }
    }

    fn reload(&self, before: &Loaded) -> Result<(Loaded, Vec<String>), Refused> {
        let Reread { mut loaded, set_level } = (self.read)().map_err(Refused::Broken)?;
        loaded.config.found = before.config.found.clone();
        let Changes { live: changed, fixed } = before.changes(&loaded);
        if !fixed.is_empty() {
            return Err(Refused::Fixed(fixed));
        }
        let config = &loaded.config;
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        let access = live.access.as_ref().map(|_| Access::new(&config.http)).transpose().map_err(Refused::Broken)?;
        let rules = config.of_each_rule();
        let rule = |name: &RuleName| rules.iter().find(|config| config.which.name == *name);
        let plans = live.relays.iter().filter_map(|(name, relays)| Some((relays.clone(), rule(name)?)));
        let plans: Vec<(Relays, Plan)> = plans
            .map(|(relays, config)| Plan::of(told_of(config)).map(|plan| (relays, plan)))
            .collect::<Result<_, _>>()
            .map_err(Refused::Broken)?;
        let asked = live.rules.iter().filter_map(|of| Some((of.receiver.clone()?, rule(of.store.rule())?.close.ask.as_ref()?)));
        let ways: Vec<(Receiver, Way)> =
            asked.map(|(receiver, ask)| receiver.way(ask).map(|way| (receiver, way))).collect::<Result<_, _>>().map_err(Refused::Broken)?;

        set_level();
        live.sweep.send_replace(config.sweep.clone());
        live.bounds.iter().for_each(|bounds| bounds.set_oldest(config.sweep.oldest.get()));
        for LiveRule { store, inbox, named, .. } in &live.rules {
            if let Some(rule) = rule(store.rule()) {
                inbox.set_retry(rule.close.retry.clone());
                store.set_targets(&rule.events);
                named.send_replace(rule.events.target_names().into());
            }
        }
        if let Some((before, now)) = live.access.as_ref().zip(access) {
            before.replace(&now);
        }
        for (relays, plan) in plans {
            relays.change(plan);
        }
        for (receiver, way) in ways {
            receiver.take(way);
        }
        live.config = config.clone();
        if changed.iter().any(|name| name.starts_with("events.")) {
            outbox::say_untold(&config.events);
        }
        Ok((loaded, changed))
    }
}
