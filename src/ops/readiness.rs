//! Whether orders are closed on time, and what is missing.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use futures::future::join_all;
use serde::Serialize;
use tokio::{
    sync::{Mutex, watch},
    time::Instant,
};

use crate::{
    close::{Gate, Inbox, Outage},
    config::{Live, RuleName, Sweep},
    redis::Commands,
    store::Store,
    trigger::{Hearing, Membership, Pass, Passes},
};

/// The database is asked at most so often.
const REACH_EVERY: Duration = Duration::from_secs(1);

/// A look-ahead that has not ended well for so long is none.
const STALE: Duration = Duration::from_mins(2);

/// What is said of a rule whose table is not there, can't be used, or does not fit it.
pub const NOT_BEGUN: &str = "its orders are not closed: its table is waited for, as the log says";

/// Knows what works.
#[derive(Debug)]
pub struct Readiness {
    /// The orders.
    pub store: Arc<dyn Store>,
    /// What is known of them.
    pub inbox: Arc<Inbox>,
    /// Whether the database can be used.
    pub outage: Arc<Outage>,
    /// Whether closing is paused.
    pub gate: Arc<Gate>,
    /// When look-ahead and sweep ended well.
    pub passes: Arc<Passes>,
    /// Whether there is a look-ahead.
    pub sweep: Live<Sweep>,
    /// What Redis refuses.
    pub commands: Commands,
    /// Who else is there.
    pub peers: Arc<Membership>,
    /// From whom there are confirmed subscriptions.
    pub subscribed: watch::Receiver<Hearing>,
    /// Whether the database could be written when it was asked last.
    pub reached: Mutex<Option<(Instant, bool)>>,
    /// Whether nothing is closed.
    pub is_shadow: bool,
}

/// What works, and what does not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ready {
    /// Whether orders are closed.
    pub ready: bool,
    /// What keeps them from that.
    pub missing: Vec<String>,
    /// What is wrong, and keeps none from closing on time.
    pub degraded: Vec<String>,
}

/// What works, of all rules, each of which comes when its table fits.
#[derive(Debug, Clone)]
pub struct AllReady {
    rules: Arc<std::sync::RwLock<Vec<RuleName>>>,
    begun: Arc<std::sync::Mutex<Vec<Arc<Readiness>>>>,
}

impl AllReady {
    /// Of rules with these names, none of which has begun.
    #[must_use]
    pub fn of(rules: Vec<RuleName>) -> Self {
        Self { rules: Arc::new(rules.into()), begun: Arc::default() }
    }

    /// These are all rules by now.
    pub fn expect(&self, rules: Vec<RuleName>) {
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = rules;
    }

    /// The names of all rules, also of those that have not begun.
    #[must_use]
    pub fn rules(&self) -> Vec<RuleName> {
        self.rules.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A rule begins.
    pub fn add(&self, readiness: Arc<Readiness>) {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner).push(readiness);
    }

    /// Those of all rules that have begun.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Readiness>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Looks at each. What is not said of all rules begins with the rule's name.
    pub async fn look(&self) -> Ready {
        let all = self.all();
        let looked = join_all(all.iter().map(|readiness| readiness.look())).await;
        let together = |part: fn(&Ready) -> &Vec<String>| {
            let mut said: Vec<String> = Vec::new();
            for (readiness, ready) in all.iter().zip(&looked) {
                for what in part(ready) {
                    let is_common = looked.iter().all(|other| part(other).contains(what));
                    let what = if is_common { what.clone() } else { format!("{}: {what}", readiness.store.rule().in_full()) };
                    if !said.contains(&what) {
                        said.push(what);
                    }
                }
            }
            said
        };
        let rules = self.rules();
        let waiting = rules.iter().filter(|rule| all.iter().all(|begun| begun.store.rule() != *rule));
        let mut missing: Vec<String> = waiting.map(|rule| format!("{}: {NOT_BEGUN}", rule.in_full())).collect();
        missing.extend(together(|ready| &ready.missing));
        Ready { ready: missing.is_empty(), missing, degraded: together(|ready| &ready.degraded) }
    }
}

impl Readiness {
    /// Looks, and asks the database for a second at the most.
    pub async fn look(&self) -> Ready {
        let mut missing = Vec::new();
        let mut degraded = Vec::new();
        let note = |list: &mut Vec<String>, is_so: bool, what: &str| list.extend(is_so.then(|| what.to_owned()));
        let reached = self.reached().await;
        note(&mut missing, !reached, "the database can't be written");
        note(&mut missing, self.store.halted().borrow().is_some(), "the server's time zone has changed, and closing is stopped");
        let last = |pass| self.passes.last(pass);
        // A sweep that has much to do ends when that is done.
        let has_begun = last(Pass::LookAhead).or(last(Pass::Sweep)).is_some();
        note(&mut missing, !has_begun, "the table has not been looked at yet");
        note(&mut missing, self.inbox.refuses_all(), "the database refuses every order");
        note(&mut degraded, self.is_shadow, "this is a shadow, which closes nothing: run --shadow");
        note(&mut degraded, self.gate.is_shut(), "closing is paused: order-closer status");
        let looks_ahead = !self.sweep.get().ahead.get().is_zero();
        let is_stale = looks_ahead && last(Pass::LookAhead).is_none_or(|last| last.elapsed() > STALE);
        note(&mut degraded, is_stale, "no look-ahead has ended well of late; orders are found when their keys expire, or overdue");
        let unheard = self.subscribed.borrow().missing().filter(|_| !self.commands.is_absent());
        degraded.extend(unheard.map(|missing| format!("{missing}; orders are closed by their rows alone")));
        note(&mut degraded, !self.commands.troubles().is_empty(), "Redis can't be used, or refuses commands");
        note(&mut degraded, !self.is_shadow && !self.peers.seen().1, "other instances are told that this one is unfit");
        note(&mut degraded, self.store.outbox().is_outdated(), "the tables order_closer_* are of an older version: order-closer migrate");
        Ready { ready: missing.is_empty(), missing, degraded }
    }

    async fn reached(&self) -> bool {
        let mut reached = self.reached.lock().await;
        match *reached {
            Some((at, answer)) if at.elapsed() < REACH_EVERY => answer,
            Some(_) | None => {
                let answer = !self.outage.lasts() && self.store.reach().await.is_ok();
                *reached = Some((Instant::now(), answer));
                answer
            }
        }
    }
}
