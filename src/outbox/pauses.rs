//! Pauses: for a while no order of a rule is closed, or only so many a second. They stand in our tables, so that every
//! daemon, `reconcile` and `close` honour them, and a restart does not end them.

use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};
use uuid::Uuid;

use super::Result;
use crate::{
    config::RuleName,
    order::rfc3339,
    store::{Fields, Link, Outbox, Value, WITH_PAUSES, finish, instance},
};

/// Orders are not closed, or slowly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    /// The rule whose orders wait; empty for all rules.
    pub rule: String,
    /// Since when, in microseconds since 1970 UTC, by the database's clock.
    pub since: i64,
    /// How long it still lasts; for good without.
    pub left: Option<Duration>,
    /// Why.
    pub reason: String,
    /// Who wanted it.
    pub who: String,
    /// How many orders a second are closed meanwhile; none without.
    pub rate: Option<u32>,
}

/// The pauses of the orders tables in one place as their rules have read them last, each for the others.
#[derive(Debug, Default)]
pub struct LatestPauses(Mutex<Option<(Instant, Vec<OfTable>)>>);

/// The name of an orders table, and a pause of its orders.
type OfTable = (String, Pause);

/// What was read within this is as good as new, and whoever reads just now is waited for so long.
const MOMENT: Duration = Duration::from_millis(200);
const AT_ONCE: Duration = Duration::from_millis(50);

/// Whether closing is paused, as commands and HTTP say it.
#[derive(Debug, Serialize)]
pub struct PauseStatus {
    /// The rule.
    pub rule: String,
    /// The shard, where orders are in several places.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<String>,
    /// Whether nothing is closed.
    pub paused: bool,
    /// Since when, in RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// How long it still lasts; for good without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds_left: Option<u64>,
    /// How many orders a second are closed meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who wanted it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
}

impl PauseStatus {
    /// Of a rule's orders.
    #[must_use]
    pub fn of(rule: &RuleName, pause: Option<Pause>) -> Self {
        Self {
            rule: rule.to_string(),
            shard: rule.shard().map(str::to_owned),
            paused: pause.as_ref().is_some_and(|pause| pause.rate.is_none()),
            since: pause.as_ref().map(|pause| rfc3339(pause.since)),
            seconds_left: pause.as_ref().and_then(|pause| pause.left).map(|left| left.as_secs()),
            rate: pause.as_ref().and_then(|pause| pause.rate),
            reason: pause.as_ref().map(|pause| pause.reason.clone()),
            who: pause.map(|pause| pause.who),
        }
    }
}

/// What somebody wants: a pause, or its end.
#[derive(Debug, Clone)]
pub struct Wanted<'w> {
    /// The rule; empty for all.
    pub rule: &'w str,
    /// Why.
    pub reason: &'w str,
    /// Who.
    pub who: &'w str,
}

/// What the audit log calls a pause, closing at a rate, and the end of both.
const PAUSE: &str = "pause";
const SLOW: &str = "slow";
const RESUME: &str = "resume";

/// Whether an entry of the audit log is none of a closure, but of a pause, by what triggered it.
#[must_use]
pub fn is_about_pauses(trigger: &str) -> bool {
    matches!(trigger, PAUSE | SLOW | RESUME)
}

/// Whether a reason can be kept, and is one.
///
/// # Errors
/// Says what it must be.
pub fn check_reason(text: &str) -> Result<(), String> {
    // As MySQL's column has it.
    let fits = (1..=255).contains(&text.trim().chars().count());
    if fits { Ok(()) } else { Err("a reason has 1 to 255 characters".into()) }
}

/// How long closing takes at a rate, when so many orders are overdue; what falls due meanwhile takes its share.
#[must_use]
pub fn time_for(overdue: u64, rate: u32) -> Duration {
    Duration::from_secs_f64(overdue as f64 / f64::from(rate.max(1)) * 1.2 + 1.0)
}

impl Outbox {
    /// Whether our tables hold pauses.
    #[must_use]
    pub fn has_pauses(&self) -> bool {
        self.version() >= WITH_PAUSES
    }

    /// The pauses that last, each with its orders table; none where our tables can't hold them.
    async fn pauses(&self) -> Result<Vec<OfTable>> {
        if !self.has_pauses() {
            return Ok(Vec::new());
        }
        let (words, now) = (&self.words, self.words.now);
        // Out: pauses. Locks nothing.
        let select = words.statement(&format!(
            "SELECT orders_table, rule, since, until - {now}, reason, who, rate FROM {} WHERE until IS NULL OR until > {now} ORDER BY rule",
            words.pauses()
        ));
        let rows = self.backend.read().await?.fetch(&select, &[]).await?;
        rows.into_iter().map(pause).collect()
    }

    /// What becomes of the rule's orders: whoever shuts the gate counts for more than whoever slows them down.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn pause_of_rule(&self) -> Result<Option<Pause>> {
        Ok(self.of_rule(self.pauses().await?))
    }

    /// The same as it was a moment ago, where another rule, or another shard, has read it then.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn latest_pause_of_rule(&self, latest: &LatestPauses) -> Result<Option<Pause>> {
        // A read that takes long may be in another rule's trouble, which is none of ours.
        let Ok(mut latest) = timeout(AT_ONCE, latest.0.lock()).await else { return self.pause_of_rule().await };
        let (read, pauses) = match latest.take().filter(|(read, _)| read.elapsed() < MOMENT) {
            Some(known) => known,
            None => (Instant::now(), self.pauses().await?),
        };
        let pause = self.of_rule(pauses.clone());
        *latest = Some((read, pauses));
        Ok(pause.map(|pause| Pause { left: pause.left.map(|left| left.saturating_sub(read.elapsed())), ..pause }))
    }

    fn of_rule(&self, pauses: Vec<OfTable>) -> Option<Pause> {
        let ours = pauses.into_iter().filter(|(table, _)| *table == self.words.orders_table_name).map(|(_, pause)| pause);
        ours.filter(|pause| pause.rule.is_empty() || pause.rule == self.rule().as_str()).min_by_key(|pause| (pause.rate, pause.since))
    }

    /// Begins a pause, or changes the one that lasts: for so long, or until it is ended; with a rate orders are closed, but only
    /// so many a second. It stands in the audit log.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn pause(&self, wanted: &Wanted<'_>, length: Option<Duration>, rate: Option<u32>) -> Result<()> {
        let mut work = self.backend.begin().await?;
        let began = self.begin_in(work.link(), wanted, length, rate).await;
        finish(work, began).await
    }

    async fn begin_in(&self, link: &mut dyn Link, wanted: &Wanted<'_>, length: Option<Duration>, rate: Option<u32>) -> Result<()> {
        let (words, now) = (&self.words, self.words.now);
        self.end_in(link, wanted.rule).await?;
        // In: ?1 the rule, ?2 its length or NULL, ?3 why, ?4 who, ?5 the rate or NULL. Locks the new row.
        let insert = words.statement(&format!(
            "INSERT INTO {} (orders_table, rule, since, until, reason, who, rate) VALUES ({}, ?1, {now}, {now} + ?2, ?3, ?4, ?5)",
            words.pauses(),
            words.orders_table
        ));
        let micros = length.map(|length| i64::try_from(length.as_micros()).unwrap_or(i64::MAX / 4).min(i64::MAX / 4));
        let values =
            [wanted.rule.into(), Value::Integer(micros), wanted.reason.into(), wanted.who.into(), Value::Integer(rate.map(i64::from))];
        link.change(&insert, &values).await?;
        let what = if rate.is_some() { SLOW } else { PAUSE };
        self.log_in(link, wanted, what, &json!({ "seconds": length.map(|length| length.as_secs()), "rate": rate })).await
    }

    /// Ends the pauses of a rule, or of all; says how many there were.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn unpause(&self, wanted: &Wanted<'_>) -> Result<u64> {
        let mut work = self.backend.begin().await?;
        let link = work.link();
        let ended = async {
            let ended = self.end_in(link, wanted.rule).await?;
            if ended > 0 {
                self.log_in(link, wanted, RESUME, &json!({})).await?;
            }
            Ok(ended)
        };
        let ended = ended.await;
        finish(work, ended).await
    }

    async fn end_in(&self, link: &mut dyn Link, rule: &str) -> Result<u64> {
        let words = &self.words;
        // In: ?1 the rule, or nothing. Out: how many pauses. Locks them.
        let delete = words.statement(&format!("DELETE FROM {} WHERE {} AND (?1 = '' OR rule = ?1)", words.pauses(), words.ours("")));
        link.change(&delete, &[rule.into()]).await
    }

    /// Writes down who wanted what, and why, among the closures.
    async fn log_in(&self, link: &mut dyn Link, wanted: &Wanted<'_>, what: &str, more: &serde_json::Value) -> Result<()> {
        let words = &self.words;
        let (now, id, new_data) = (words.now, (words.event_id)("?1"), words.new_data);
        // In: ?1 an id, ?2 what, ?3 the instance, ?4 data. Locks the new row.
        let insert = words.statement(&format!(
            "INSERT INTO {} (id, orders_table, order_id, deadline, closed_at, lateness, triggered_by, instance, data) \
             SELECT {id}, {}, '', {now}, {now}, 0, ?2, ?3, {new_data} FROM (SELECT ?4 AS data) AS e",
            words.events(),
            words.orders_table
        ));
        let mut data = json!({ "rule": wanted.rule, "reason": wanted.reason, "who": wanted.who });
        if let (Some(data), Some(more)) = (data.as_object_mut(), more.as_object()) {
            data.extend(more.clone());
        }
        let values = [Uuid::now_v7().to_string().into(), what.into(), instance().into(), data.to_string().into()];
        link.change(&insert, &values).await.map(drop)
    }
}

fn pause(mut fields: Fields) -> Result<OfTable> {
    let table = fields.text()?;
    let pause = Pause {
        rule: fields.text()?,
        since: fields.integer()?,
        left: fields.optional_integer()?.map(|micros| Duration::from_micros(u64::try_from(micros).unwrap_or(0))),
        reason: fields.text()?,
        who: fields.text()?,
        rate: fields.optional_integer()?.map(|rate| u32::try_from(rate).unwrap_or(1).max(1)),
    };
    Ok((table, pause))
}
