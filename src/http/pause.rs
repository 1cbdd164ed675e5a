//! Pausing, resuming, and whether closing is paused.

use std::{collections::HashSet, sync::Arc};

use axum::{Json, body::Bytes, extract::State, http::StatusCode};
use serde::Deserialize;

use super::{Desk, Desks, Named, Of, Refusal, orders::unavailable, read};
use crate::{
    config::Span,
    outbox::{PauseStatus, Wanted, check_reason, time_for},
    store::{StoreError, Window},
};

/// Who is noted for what is wanted over HTTP.
const WHO: &str = "http";

/// What is noted as the reason of an end.
const RESUMED: &str = "resumed";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Begin {
    #[serde(default)]
    rule: String,
    #[serde(default, rename = "for")]
    length: Option<Span>,
    reason: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct End {
    rule: String,
    /// Orders a second.
    rate: Option<u32>,
}

pub(super) async fn begin(State(desks): State<Desks>, body: Bytes) -> Result<Json<PauseStatus>, Refusal> {
    let Begin { rule, length, reason } = read(&body)?;
    check_reason(&reason).map_err(|what| Refusal::new(StatusCode::BAD_REQUEST, what))?;
    change(&desks, rule, Change::Pause(length, reason)).await
}

pub(super) async fn end(State(desks): State<Desks>, body: Bytes) -> Result<Json<PauseStatus>, Refusal> {
    let End { rule, rate } = if body.is_empty() { End::default() } else { read(&body)? };
    if rate == Some(0) {
        return Err(Refusal::bad("a rate is a whole number of orders a second, above 0"));
    }
    change(&desks, rule, Change::Resume(rate)).await
}

#[derive(Debug, Clone)]
enum Change {
    Pause(Option<Span>, String),
    Resume(Option<u32>),
}

impl Change {
    async fn make(self, desk: Desk, rule: String) -> Result<(), StoreError> {
        let outbox = desk.store.outbox();
        let wanted = |reason| Wanted { rule: &rule, reason, who: WHO };
        match self {
            Self::Pause(length, reason) => outbox.pause(&wanted(&reason), length.map(Span::get), None).await,
            Self::Resume(None) => outbox.unpause(&wanted(RESUMED)).await.map(drop),
            Self::Resume(Some(rate)) => {
                let overdue = desk.store.count(Window::overdue(desk.sweep.get().oldest.get())).await?.orders;
                outbox.pause(&wanted(RESUMED), Some(time_for(overdue, rate)), Some(rate)).await
            }
        }
    }
}

pub(super) async fn status(Of(desk): Of) -> Result<Json<PauseStatus>, Refusal> {
    status_of(&desk).await
}

async fn status_of(desk: &Desk) -> Result<Json<PauseStatus>, Refusal> {
    let store = Arc::clone(&desk.store);
    let pause = desk.read(async move { store.outbox().pause_of_rule().await }).await?.map_err(unavailable)?;
    Ok(Json(PauseStatus::of(desk.store.rule(), pause)))
}

/// Changes something for a rule, or without a name for all rules of each table, and says how it is then for the first of them.
async fn change(desks: &Desks, rule: String, change: Change) -> Result<Json<PauseStatus>, Refusal> {
    let mut wanted = if rule.is_empty() {
        desks.all()
    } else {
        let named = Named { rule: Some(rule.clone()), shard: None };
        desks.wanted(&named)?.iter().map(|name| desks.begun(name)).collect::<Result<Vec<_>, _>>()?
    };
    let mut tables = HashSet::new();
    wanted.retain(|desk| tables.insert((desk.store.rule().shard().map(str::to_owned), desk.store.outbox().orders_table())));
    let first = wanted.first().cloned().ok_or_else(|| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the daemon has just started"))?;
    for desk in wanted {
        if !desk.store.outbox().has_pauses() {
            return Err(Refusal::new(StatusCode::CONFLICT, desk.store.outbox().missing()));
        }
        desk.read(change.clone().make(desk.clone(), rule.clone())).await?.map_err(unavailable)?;
    }
    status_of(&first).await
}
