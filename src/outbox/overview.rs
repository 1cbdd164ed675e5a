//! All targets as commands and HTTP show them: those of the configuration, and those that our tables know besides.

use std::collections::BTreeSet;

use serde::Serialize;

use super::{Backlog, Result, State, TargetState};
use crate::{order::rfc3339, store::Outbox};

/// How much is given up, or made due, by one transaction.
const PIECE: u32 = 1_000;

/// A target as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TargetStatus {
    /// Its name.
    pub name: String,
    /// Whether the configuration names it.
    pub configured: bool,
    /// How telling it goes.
    pub state: &'static str,
    /// Until when it rests, in RFC 3339 as all times here.
    pub resting_until: Option<String>,
    /// How many events wait for it.
    pub waiting: u64,
    /// How many were given up.
    pub dead: u64,
    /// Since when the oldest waits.
    pub oldest_waiting: Option<String>,
    /// Since when it has been failing.
    pub failing_since: Option<String>,
    /// When it took an event last.
    pub last_success: Option<String>,
    /// What it said when it took none.
    pub last_error: Option<String>,
}

impl TargetStatus {
    fn new(name: &str, configured: bool, backlog: Option<&Backlog>, state: Option<&TargetState>) -> Self {
        let time = |time: Option<i64>| time.map(rfc3339);
        Self {
            name: name.to_owned(),
            configured,
            state: state.map_or(State::Ok, |state| state.state).name(),
            resting_until: time(state.and_then(|state| state.resting_until)),
            waiting: backlog.map_or(0, |backlog| backlog.waiting),
            dead: backlog.map_or(0, |backlog| backlog.dead),
            oldest_waiting: time(backlog.and_then(|backlog| backlog.oldest)),
            failing_since: time(state.and_then(|state| state.failing_since)),
            last_success: time(state.and_then(|state| state.last_success_at)),
            last_error: state.and_then(|state| state.last_error.clone()),
        }
    }
}

/// What became of a wish to give up what waits for a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dropped {
    /// So many events were.
    Events(u64),
    /// Nobody knows such a target.
    Unknown,
    /// It is in the configuration, and would be told of what comes next.
    Configured,
}

impl Outbox {
    /// All targets: those that are `named` first, then those that our tables know besides. Reads all our deliveries; locks
    /// nothing.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn targets(&self, named: &[String]) -> Result<Vec<TargetStatus>> {
        let (backlog, states) = (self.backlog().await?, self.target_states(None).await?);
        let known = backlog.iter().map(|backlog| &backlog.target).chain(states.iter().map(|state| &state.target));
        let others: BTreeSet<&String> = known.filter(|name| !named.contains(name)).collect();
        let status = |name: &String, configured| {
            let backlog = backlog.iter().find(|backlog| backlog.target == *name);
            TargetStatus::new(name, configured, backlog, states.iter().find(|state| state.target == *name))
        };
        Ok(named.iter().map(|name| status(name, true)).chain(others.into_iter().map(|name| status(name, false))).collect())
    }

    /// Asks a target again that wants no more events, or rests; whether anybody knows it.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn resume(&self, name: &str, named: &[String]) -> Result<bool> {
        if !self.resume_target(name).await? && !named.iter().any(|target| target == name) {
            return Ok(false);
        }
        while self.make_due(name, PIECE).await? >= u64::from(PIECE) {}
        Ok(true)
    }

    /// Gives up what waits for a target that is not in the configuration any more, and forgets it.
    ///
    /// # Errors
    /// As the database says, sorted; what was given up before stays so.
    pub async fn drop_target(&self, name: &str, named: &[String]) -> Result<Dropped> {
        if named.iter().any(|target| target == name) {
            return Ok(Dropped::Configured);
        }
        let is_known = self.target_states(None).await?.iter().any(|state| state.target == name);
        let mut dropped = 0;
        loop {
            let piece = self.give_up(name, PIECE).await?;
            dropped += piece;
            if piece == 0 {
                break;
            }
        }
        if dropped == 0 && !is_known {
            return Ok(Dropped::Unknown);
        }
        self.forget_target(name).await?;
        Ok(Dropped::Events(dropped))
    }
}
