//! Why an order was closed, or is not: all that is known of one order, and one sentence that says it.
//!
//! Nothing here changes anything, or takes a lock. The row comes from the table; everything else may be missing (Redis, our own
//! tables, a daemon's memory), and then it is said what is unknown and why. Whether the order is due is judged by the judge
//! that closes orders.

mod facts;
mod key;
mod sentence;
mod story;
mod words;

use std::{sync::Arc, time::Duration};

use serde::{Serialize, Serializer};
use tokio::time::Instant;
use uuid::Uuid;

pub use key::{Key, KeyState};

use crate::{
    close::{Bounds, Inbox},
    config::{Rule, RuleName, Span},
    order::OrderId,
    outbox::{Event, Letter, PauseStatus, Recorded},
    redis::Commands,
    store::{Store, StoreError},
    trigger::Mapping,
};
use facts::Facts;

/// How the matter of an order stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// There is no row of it.
    NotFound,
    /// Several rows have its id.
    SeveralRows,
    /// The filter hides it.
    Hidden,
    /// Another rule takes it, too.
    ClaimedTwice,
    /// Closed, as the audit log has it.
    Closed,
    /// Not unpaid.
    Settled,
    /// Unpaid, without a deadline.
    NeverDue,
    /// Unpaid, and its deadline is to come.
    NotDue,
    /// Due only by a jump of the database's clock.
    ClockAhead,
    /// A dead letter, or given up by this daemon.
    GivenUp,
    /// Closed before for the same deadline, and unpaid again.
    Undone,
    /// Overdue for longer than `sweep.oldest`.
    Old,
    /// Unpaid, while all closing is stopped: deadlines may not mean what they did.
    Halted,
    /// Due, while closing is paused.
    Paused,
    /// Due by its row, before its key expires.
    Disputed,
    /// Due, and somebody is asked about it, or has not said that it may be closed.
    Asked,
    /// Due, and held by another transaction.
    Held,
    /// Due, and refused by the database until its next try.
    Refused,
    /// Due, and nothing known is in the way.
    Due,
}

/// What would close an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Next {
    /// What makes the daemon look at it.
    pub trigger: &'static str,
    /// When, in RFC 3339, where that is known.
    pub at: Option<String>,
}

/// Something that is not known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unknown {
    /// What.
    pub what: &'static str,
    /// Why.
    pub why: String,
}

/// All that is known of one order. Times are in RFC 3339, UTC.
#[derive(Debug, Serialize)]
pub struct Explanation {
    /// The order's id.
    pub id: String,
    /// All of it in one sentence.
    pub sentence: String,
    /// How the matter stands.
    pub state: State,
    /// The rule that looks after it.
    pub rule: String,
    /// The rule's table.
    pub table: String,
    /// The rule's filter.
    pub filter: Option<String>,
    /// Whether the filter lets the row through.
    pub passes_filter: Option<bool>,
    /// How many rows have its id.
    pub rows: usize,
    /// The status, as its column prints it.
    pub status: Option<String>,
    /// Whether that is one of an unpaid order.
    pub unpaid: bool,
    /// The column with the deadline, and what is added to it.
    pub deadline_column: String,
    /// What stands in it.
    pub deadline_stored: Option<String>,
    /// The zone in which that was read, where it has none of its own.
    pub deadline_zone: Option<String>,
    /// What it means.
    pub deadline: Option<String>,
    /// The database's time.
    pub now: Option<String>,
    /// Until the deadline, by the database's clock; negative once it has passed.
    pub seconds_left: Option<f64>,
    /// What the judge says, if nobody holds the row.
    pub verdict: Option<&'static str>,
    /// What keeps it from closing, as this daemon knows.
    pub waits: Option<&'static str>,
    /// What its last try said.
    pub last_error: Option<String>,
    /// Its key in Redis.
    pub key: Key,
    /// Whether closing is paused, where that can be known.
    pub pause: Option<PauseStatus>,
    /// Its dead letter.
    pub dead_letter: Option<Letter>,
    /// Its events that a target does not take.
    pub undelivered: Vec<Letter>,
    /// What the audit log has of it, oldest first.
    #[serde(serialize_with = "recorded")]
    pub events: Vec<Event>,
    /// What would close it.
    pub next: Option<Next>,
    /// What somebody can do about it.
    pub to_do: Option<String>,
    /// What else is worth a word.
    pub notes: Vec<String>,
    /// What is not known.
    pub unknown: Vec<Unknown>,
}

fn recorded<S: Serializer>(events: &[Event], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(events.iter().map(Recorded::from))
}

impl Explanation {
    /// All of it in one sentence.
    #[must_use]
    pub fn sentence(&self) -> &str {
        &self.sentence
    }

    /// Whether it is about a timer.
    #[must_use]
    pub fn is_of_timer(&self) -> bool {
        self.rule == RuleName::TIMERS
    }
}

/// Explains orders of one rule.
#[derive(Debug, Clone)]
pub struct Explainer {
    store: Arc<dyn Store>,
    rule: Arc<Rule>,
    /// Whether orders are read ahead of their deadlines.
    looks_ahead: bool,
    mapping: Mapping,
    bounds: Arc<Bounds>,
    /// The way to Redis, and how long it may take.
    redis: Result<(Commands, Duration), String>,
    /// What the daemon remembers, if this is in one.
    inbox: Option<Arc<Inbox>>,
}

impl Explainer {
    /// Who explains this rule's orders, which are read ahead of their deadlines unless `ahead` is zero, in this store; Redis is asked
    /// within `limit`.
    #[must_use]
    pub fn of(
        rule: Rule,
        ahead: Duration,
        store: &Arc<dyn Store>,
        bounds: Arc<Bounds>,
        (redis, limit): (Result<Commands, String>, Duration),
    ) -> Self {
        let plus = rule.deadline.plus.map(Span::get);
        Self {
            rule: Arc::new(rule),
            looks_ahead: !ahead.is_zero(),
            mapping: Mapping { zone_matters: store.zone_matters(), plus },
            store: Arc::clone(store),
            bounds,
            redis: redis.map(|commands| (commands, limit)),
            inbox: None,
        }
    }

    /// The same with what a daemon remembers.
    #[must_use]
    pub fn remembering(self, inbox: Arc<Inbox>) -> Self {
        Self { inbox: Some(inbox), ..self }
    }

    /// Explains an order.
    ///
    /// # Errors
    /// What the database says when its row can't be read. What else can't be read is among the unknown.
    pub async fn explain(&self, id: &OrderId) -> Result<Explanation, StoreError> {
        let asked = Instant::now();
        let (rows, (key, key_unknown)) = tokio::join!(self.store.inspect(id), self.key(id));
        let (rows, mut story) = (rows?, self.story(id).await);
        story.unknown.extend(key_unknown);
        let is_standby = self.store.takes_writes().await.map(|takes| !takes).unwrap_or_else(|error| {
            story.miss("whether the server takes writes", error.to_string());
            false
        });
        let kept = self.inbox.as_ref().and_then(|inbox| inbox.kept_by(id));
        let halted = match &self.inbox {
            Some(_) => self.store.halted().borrow().clone(),
            None => self.store.zone_differs().await.unwrap_or_else(|error| {
                story.miss("whether the server's time zone has changed", error.to_string());
                None
            }),
        };
        Ok(Facts::new(self, id, rows, (key, story), (kept, halted), is_standby, asked).explanation())
    }

    /// The id of the order of which somebody speaks so; of a timer he may give the kind and the key instead, as `reminder/1001`.
    ///
    /// # Errors
    /// As the database says; or what is wrong with it, and what the column takes.
    pub async fn find(&self, text: &str) -> Result<Result<OrderId, String>, StoreError> {
        let timer = timer_named(self.store.as_ref(), text).await?;
        Ok(timer.map_or_else(|| self.read(text), Ok))
    }

    /// Reads an id as somebody has written it.
    ///
    /// # Errors
    /// Says what is wrong with it, and what the column takes.
    pub fn read(&self, text: &str) -> Result<OrderId, String> {
        read_id(self.store.as_ref(), &self.rule, text)
    }
}

/// The timer that a text names by its kind and key, as `reminder/1001`, where timers are what this store has.
///
/// # Errors
/// As the database says.
pub async fn timer_named(store: &dyn Store, text: &str) -> Result<Option<OrderId>, StoreError> {
    let Some((kind, key)) = text.split_once('/').filter(|_| store.rule().is_timers()) else { return Ok(None) };
    Ok(store.outbox().timer(kind, key).await?.map(|timer| OrderId::from_database(&timer.id)))
}

/// Reads the id of an order as somebody has written it.
///
/// # Errors
/// Says what is wrong with it, and what the column takes.
pub fn read_id(store: &dyn Store, rule: &Rule, text: &str) -> Result<OrderId, String> {
    // Where their column is a text it takes every text, and nothing else is the id of one.
    if rule.name.is_timers() && Uuid::try_parse(text).is_err() {
        return Err(match text.contains('/') {
            true => format!("there is no timer {text:?}"),
            false => format!("{text:?} can't be a timer: that is named by its kind and key, as reminder/1001, or by its id, a UUID"),
        });
    }
    let kind = store.id_kind();
    kind.parse(text.as_bytes()).map_err(|reason| {
        let [column, ..] = store.mapped();
        let without = rule.key_prefix.get().and_then(|prefix| text.strip_prefix(prefix));
        let without = without.filter(|rest| kind.parse(rest.as_bytes()).is_ok());
        let hint = without.map_or_else(String::new, |rest| format!("; {text:?} is its key, and {rest} its id"));
        format!("{text:?} can't be an order of {}: it {reason}; {} is {}{hint}", rule.table, column.name, column.type_name)
    })
}
