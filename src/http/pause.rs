//! Pausing, resuming, and whether closing is paused.

use std::sync::Arc;

use axum::{Json, body::Bytes, extract::State, http::StatusCode};
use serde::Deserialize;

use super::{Desk, Refusal, orders::unavailable};
use crate::{
    config::{RuleName, Span},
    outbox::{PauseStatus, Wanted, check_reason, time_for},
    store::Window,
};

/// Who is noted for what is wanted over HTTP.
const WHO: &str = "http";

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

pub(super) async fn begin(State(desk): State<Desk>, body: Bytes) -> Result<Json<PauseStatus>, Refusal> {
    let Begin { rule, length, reason } = read(&body)?;
    let rule = known(desk.store.rule(), rule)?;
    check_reason(&reason).map_err(|what| Refusal::new(StatusCode::BAD_REQUEST, what))?;
    change(&desk, move |desk| async move {
        let wanted = Wanted { rule: &rule, reason: &reason, who: WHO };
        desk.store.outbox().pause(&wanted, length.map(Span::get), None).await.map_err(unavailable)
    })
    .await
}

pub(super) async fn end(State(desk): State<Desk>, body: Bytes) -> Result<Json<PauseStatus>, Refusal> {
    let End { rule, rate } = if body.is_empty() { End::default() } else { read(&body)? };
    let rule = known(desk.store.rule(), rule)?;
    change(&desk, move |desk| async move {
        let wanted = Wanted { rule: &rule, reason: "resumed", who: WHO };
        let outbox = desk.store.outbox();
        match rate {
            Some(0) => Err(Refusal::new(StatusCode::BAD_REQUEST, "a rate is a whole number of orders a second, above 0")),
            Some(rate) => {
                let overdue = desk.store.count(Window::overdue(desk.sweep.get().oldest.get())).await.map_err(unavailable)?.orders;
                outbox.pause(&wanted, Some(time_for(overdue, rate)), Some(rate)).await.map_err(unavailable)
            }
            None => outbox.unpause(&wanted).await.map(drop).map_err(unavailable),
        }
    })
    .await
}

pub(super) async fn status(State(desk): State<Desk>) -> Result<Json<PauseStatus>, Refusal> {
    let store = Arc::clone(&desk.store);
    let pause = desk.read(async move { store.outbox().pause_of_rule().await }).await?.map_err(unavailable)?;
    Ok(Json(PauseStatus::of(desk.store.rule(), pause)))
}

/// Changes something in our tables, and says how it is then.
async fn change<F: Future<Output = Result<(), Refusal>> + Send + 'static>(
    desk: &Desk,
    what: impl FnOnce(Desk) -> F,
) -> Result<Json<PauseStatus>, Refusal> {
    if !desk.store.outbox().has_pauses() {
        return Err(Refusal::new(StatusCode::CONFLICT, desk.store.outbox().missing()));
    }
    desk.read(what(desk.clone())).await??;
    status(State(desk.clone())).await
}

fn read<'b, T: Deserialize<'b>>(body: &'b [u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body)
        .map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, format!("the body is not what is taken here: {error}")))
}

fn known(known: &RuleName, rule: String) -> Result<String, Refusal> {
    if rule.is_empty() || rule == known.as_str() {
        return Ok(rule);
    }
    Err(Refusal::new(StatusCode::NOT_FOUND, format!("there is no rule {rule:?}; the only one is {known}")))
}
