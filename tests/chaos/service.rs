//! The order service: does what the plan says, each thing at its moment, and waits for nothing.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex as Cell, PoisonError},
    time::Duration,
};

use tokio::{task::JoinSet, time::timeout};

use super::{
    plan::{Action, Callback, Key, Rule, Step},
    scene::{Scene, now},
    shop,
};
use crate::histories::history::Event;

/// In a note about a statement that may have been run or not.
const UNKNOWN: &str = ": unknown, ";

/// A shop's patience with its database.
const PATIENCE: Duration = Duration::from_secs(3);

/// What the service knows of its orders.
#[derive(Debug, Default)]
pub struct Account {
    /// Payments at the provider, and keys.
    pub events: BTreeMap<i64, Vec<(i64, Event)>>,
    /// What it did, in words, with what came of it.
    pub notes: BTreeMap<i64, Vec<(i64, String)>>,
}

impl Account {
    /// How many statements had no answer, or none in time: of a database in trouble, or one that is asked for more than it can do.
    pub fn unanswered(&self) -> usize {
        self.notes.values().flatten().filter(|(_, note)| note.contains(UNKNOWN)).count()
    }
}

/// The service at work.
#[derive(Debug)]
pub struct Service {
    scene: Arc<Scene>,
    account: Cell<Account>,
    rules: BTreeMap<i64, Rule>,
}

/// What became of a statement.
enum Answer {
    Done,
    TooLate,
    Unknown(String),
}

/// Works through the steps, and returns its account.
pub async fn work(scene: Arc<Scene>, steps: Vec<Step>) -> Account {
    let created = |step: &Step| match step.action {
        Action::Create { rule, .. } => Some((step.order, rule)),
        _ => None,
    };
    let rules = steps.iter().filter_map(created).collect();
    let service = Arc::new(Service { scene, account: Cell::default(), rules });
    let mut under_way = JoinSet::new();
    for step in steps {
        service.scene.until(step.at).await;
        under_way.spawn(Arc::clone(&service).step(step));
        while under_way.try_join_next().is_some_and(|done| done.is_ok()) {}
    }
    under_way.join_all().await;
    Arc::into_inner(service).expect("all has been done").account.into_inner().unwrap_or_else(PoisonError::into_inner)
}

impl Service {
    async fn step(self: Arc<Self>, step: Step) {
        let (order, began, rule) = (step.order, self.scene.began, self.rules[&step.order]);
        let absolute = |action: Action| match action {
            Action::Create { rule, deadline, key } => Action::Create { rule, deadline: deadline + began, key },
            Action::Extend { deadline } => Action::Extend { deadline: deadline + began },
            Action::Reopen { deadline } => Action::Reopen { deadline: deadline + began },
            Action::Pay(..) | Action::Cancel => action,
        };
        match absolute(step.action) {
            // The key first: the daemon is to see it when it sees the row.
            action @ Action::Create { deadline, key: Key::Outlives(by), .. } => {
                self.write_key(rule, order, deadline + by).await;
                self.change(order, &action).await;
            }
            action @ Action::Create { deadline, key, .. } => {
                if matches!(self.change(order, &action).await, Answer::Done) && key == Key::AtDeadline {
                    self.write_key(rule, order, deadline).await;
                }
            }
            action @ Action::Extend { deadline } => {
                if matches!(self.change(order, &action).await, Answer::Done) {
                    self.scene.till.renew(order);
                    self.write_key(rule, order, deadline).await;
                }
            }
            action @ Action::Reopen { deadline } => {
                // Whoever has paid needs no other session.
                if !self.scene.till.has_paid(order) && matches!(self.change(order, &action).await, Answer::Done) {
                    self.scene.till.renew(order);
                    self.write_key(rule, order, deadline).await;
                }
            }
            action @ Action::Pay(Rule::Card, callback) => self.pay(order, &action, callback).await,
            action @ (Action::Pay(Rule::Transfer, _) | Action::Cancel) => {
                self.change(order, &action).await;
            }
        }
    }

    /// The customer pays at the provider, who calls back, or does not.
    async fn pay(&self, order: i64, action: &Action, callback: Callback) {
        let at = now();
        if !self.scene.till.pay(order) {
            return self.note(at, order, "pays at the provider: the session has expired".into());
        }
        self.add(at, order, Event::PaidAtProvider);
        if let Callback::After(pause) = callback {
            tokio::time::sleep(Duration::from_millis(pause)).await;
            self.change(order, action).await;
        }
    }

    /// Runs the action's statement. One without an answer may have been run or not; its row knows.
    async fn change(&self, order: i64, action: &Action) -> Answer {
        let at = now();
        let sql = shop::statement(self.scene.options.kind, order, action);
        let answer = match timeout(PATIENCE, self.scene.shop.database.try_execute(&sql)).await {
            Ok(Ok(0)) => Answer::TooLate,
            Ok(Ok(_)) => Answer::Done,
            Ok(Err(error)) => Answer::Unknown(error.to_string()),
            Err(_) => Answer::Unknown(format!("no answer in {PATIENCE:?}")),
        };
        let came_of_it = match &answer {
            Answer::Done => ": done".into(),
            Answer::TooLate => ": too late".into(),
            Answer::Unknown(why) => format!("{UNKNOWN}{why}"),
        };
        self.note(at, order, format!("{action:?}{came_of_it} after {} ms", now() - at));
        answer
    }

    /// A Redis that is away gets no key, as in any shop.
    async fn write_key(&self, rule: Rule, order: i64, expires: i64) {
        let at = now();
        let sure = self.scene.keys.write(&shop::key(rule, order), expires).await;
        self.add(if sure { now() } else { at }, order, Event::Key { expires, sure });
    }

    fn add(&self, at: i64, order: i64, event: Event) {
        self.account.lock().unwrap_or_else(PoisonError::into_inner).events.entry(order).or_default().push((at, event));
    }

    fn note(&self, at: i64, order: i64, what: String) {
        self.account.lock().unwrap_or_else(PoisonError::into_inner).notes.entry(order).or_default().push((at, what));
    }
}
