//! The states of targets, shared by all daemons: each looks at them before it asks a target anything, also after a restart.

use std::time::Duration;

use super::{Result, claims::micros};
use crate::store::{Fields, Link, Outbox, Statement, Value, finish};

/// How telling a target goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It takes events, or has not been asked yet.
    Ok,
    /// It fails, and is asked with one event at a time.
    Troubled,
    /// It has asked for a rest.
    Resting,
    /// It wants no more events, and is asked no more until somebody resumes it.
    Gone,
}

impl State {
    const ALL: [Self; 4] = [Self::Ok, Self::Troubled, Self::Resting, Self::Gone];

    /// Its name in our tables and for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Troubled => "troubled",
            Self::Resting => "resting",
            Self::Gone => "gone",
        }
    }

    /// What a newer version may have named otherwise is trouble.
    fn parse(name: &str) -> Self {
        Self::ALL.into_iter().find(|state| state.name() == name).unwrap_or(Self::Troubled)
    }
}

/// What is known of a target. Times are in microseconds since 1970 UTC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetState {
    /// Its name.
    pub target: String,
    /// How telling it goes. A rest that is over is trouble until the first success.
    pub state: State,
    /// Until when it rests.
    pub resting_until: Option<i64>,
    /// How long that is from now.
    pub rests_for: Option<Duration>,
    /// Since when it has been failing.
    pub failing_since: Option<i64>,
    /// When it took an event last.
    pub last_success_at: Option<i64>,
    /// What it said when it took none.
    pub last_error: Option<String>,
}

/// What is to be noted of a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// It took an event; whether that ends a trouble.
    Took {
        /// Whether it was in trouble.
        recovered: bool,
    },
    /// It did not take an event, and may be well.
    Refused(String),
    /// It fails.
    Troubled(String),
    /// It wants to be left alone for so long.
    Resting(String, Duration),
    /// It wants no more events.
    Gone(String),
}

impl Outbox {
    /// What is known of targets, of all or of this one; nothing where our tables can't hold it. Locks nothing.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn target_states(&self, target: Option<&str>) -> Result<Vec<TargetState>> {
        if !self.knows_targets() {
            return Ok(Vec::new());
        }
        let words = &self.words;
        // In: ?1 a target. Out: the states of targets. Locks nothing.
        let select = words.statement(&format!(
            "SELECT target, state, resting_until, resting_until - {now}, failing_since, last_success_at, last_error \
             FROM {} WHERE {}{} ORDER BY target",
            words.targets(),
            words.ours(""),
            if target.is_some() { " AND target = ?1" } else { "" },
            now = words.now
        ));
        let values: Vec<Value> = target.into_iter().map(Value::from).collect();
        let state = |mut fields: Fields| {
            let (target, state) = (fields.text()?, State::parse(&fields.text()?));
            let (resting_until, rests_for) = (fields.optional_integer()?, fields.optional_integer()?);
            let rests_for = rests_for.and_then(|left| u64::try_from(left).ok()).filter(|left| *left > 0).map(Duration::from_micros);
            Ok(TargetState {
                target,
                state: if state == State::Resting && rests_for.is_none() { State::Troubled } else { state },
                resting_until: resting_until.filter(|_| rests_for.is_some()),
                rests_for,
                failing_since: fields.optional_integer()?,
                last_success_at: fields.optional_integer()?,
                last_error: fields.optional_text()?,
            })
        };
        self.backend.read().await?.fetch(&select, &values).await?.into_iter().map(state).collect()
    }

    /// Notes how telling a target goes. Nothing but [`Outbox::resume_target`] brings one back that is gone, and no success ends a
    /// rest before its time.
    pub(super) async fn note_in(&self, link: &mut dyn Link, target: &str, note: &Note) -> Result<()> {
        if !self.knows_targets() {
            return Ok(());
        }
        let now = self.words.now;
        let (set, error, rest) = match note {
            Note::Took { recovered: false } => (format!("last_success_at = {now}"), None, None),
            Note::Took { recovered: true } => (
                format!(
                    "last_success_at = {now}, failing_since = NULL, changed_at = {now}, \
                     state = CASE WHEN resting_until > {now} THEN state ELSE 'ok' END"
                ),
                None,
                None,
            ),
            Note::Refused(error) => ("last_error = ?2".into(), Some(error), None),
            Note::Troubled(error) => (
                format!(
                    "last_error = ?2, failing_since = COALESCE(failing_since, {now}), changed_at = {now}, \
                     state = CASE WHEN resting_until > {now} THEN state ELSE 'troubled' END"
                ),
                Some(error),
                None,
            ),
            Note::Resting(error, rest) => (
                format!(
                    "last_error = ?2, failing_since = COALESCE(failing_since, {now}), resting_until = {now} + ?3, changed_at = {now}, \
                     state = 'resting'"
                ),
                Some(error),
                Some(*rest),
            ),
            Note::Gone(error) => (
                format!("last_error = ?2, failing_since = COALESCE(failing_since, {now}), changed_at = {now}, state = 'gone'"),
                Some(error),
                None,
            ),
        };
        let words = &self.words;
        // In: ?1 the target, ?2 what it said, ?3 how long it rests. Locks its row.
        let update =
            words.statement(&format!("UPDATE {} SET {set} WHERE {} AND target = ?1 AND state <> 'gone'", words.targets(), words.ours("")));
        let mut values = vec![target.into()];
        values.extend(error.map(|error| error.as_str().into()));
        values.extend(rest.map(|rest| micros(rest).into()));
        link.change(&update, &values).await.map(drop)
    }

    /// Makes a target be asked again that is gone or rests; returns whether anything is known of it.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn resume_target(&self, target: &str) -> Result<bool> {
        let words = &self.words;
        let update = words.statement(&format!(
            "UPDATE {} SET state = 'ok', resting_until = NULL, failing_since = NULL, changed_at = {} WHERE {} AND target = ?1",
            words.targets(),
            words.now,
            words.ours("")
        ));
        self.write_target(&update, &[target.into()]).await.map(|changed| changed > 0)
    }

    /// Forgets what is known of a target.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn forget_target(&self, target: &str) -> Result<()> {
        let words = &self.words;
        let delete = words.statement(&format!("DELETE FROM {} WHERE {} AND target = ?1", words.targets(), words.ours("")));
        self.write_target(&delete, &[target.into()]).await.map(drop)
    }

    /// Notes that there is such a target, unless that is known.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn introduce(&self, target: &str) -> Result<()> {
        let words = &self.words;
        // In: ?1 the target. Locks the new row.
        let insert = words.statement(&format!(
            "INSERT INTO {targets} (orders_table, target, state, changed_at) SELECT {}, ?1, 'ok', {} \
             WHERE NOT EXISTS (SELECT 1 FROM {targets} known WHERE {} AND known.target = ?1)",
            words.orders_table,
            words.now,
            words.ours("known."),
            targets = words.targets()
        ));
        self.write_target(&insert, &[target.into()]).await.map(drop)
    }

    async fn write_target(&self, statement: &Statement, values: &[Value]) -> Result<u64> {
        if !self.knows_targets() {
            return Ok(0);
        }
        let mut work = self.backend.begin().await?;
        let changed = work.link().change(statement, values).await;
        finish(work, changed).await
    }
}
