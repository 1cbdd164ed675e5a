//! Who is told of closures, and how that goes: what `order-closer targets` does.

use std::sync::Arc;

use axum::{Json, extract::Path, http::StatusCode};
use serde::Serialize;

use super::{Desk, Of, Refusal, orders::unavailable, tables};
use crate::{
    outbox::{Dropped, TargetStatus},
    store::Outbox,
};

/// All targets.
#[derive(Debug, Serialize)]
pub(super) struct Listed {
    targets: Vec<TargetStatus>,
}

/// What became of one.
#[derive(Debug, Serialize)]
pub(super) struct Done {
    name: String,
    outcome: &'static str,
    /// How many events were given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    given_up: Option<u64>,
}

pub(super) async fn list(Of(desk): Of) -> Result<Json<Listed>, Refusal> {
    of_one_table(&desk)?;
    let (store, named) = (Arc::clone(&desk.store), desk.targets.get());
    let targets = desk.read(async move { store.outbox().targets(&named).await }).await?.map_err(unavailable)?;
    Ok(Json(Listed { targets }))
}

pub(super) async fn resume(Of(desk): Of, Path(name): Path<String>) -> Result<Json<Done>, Refusal> {
    let outbox = of_one_table(&desk)?;
    if outbox.is_outdated() {
        return Err(Refusal::new(StatusCode::CONFLICT, outbox.missing()));
    }
    let (store, named, target) = (Arc::clone(&desk.store), desk.targets.get(), name.clone());
    let is_known = desk.read(async move { store.outbox().resume(&target, &named).await }).await?.map_err(unavailable)?;
    if is_known { Ok(Json(Done { name, outcome: "resumed", given_up: None })) } else { Err(unknown(&name)) }
}

pub(super) async fn discard(Of(desk): Of, Path(name): Path<String>) -> Result<Json<Done>, Refusal> {
    of_one_table(&desk)?;
    let (store, named, target) = (Arc::clone(&desk.store), desk.targets.get(), name.clone());
    match desk.read(async move { store.outbox().drop_target(&target, &named).await }).await?.map_err(unavailable)? {
        Dropped::Events(count) => Ok(Json(Done { name, outcome: "dropped", given_up: Some(count) })),
        Dropped::Unknown => Err(unknown(&name)),
        Dropped::Configured => Err(Refusal::new(StatusCode::CONFLICT, format!("{name:?} is in the configuration; remove it there first"))),
    }
}

/// Our own tables, where they are those of one orders table: what is known of a target is not kept for each of several.
fn of_one_table(desk: &Desk) -> Result<&Outbox, Refusal> {
    match desk.store.rule().shard() {
        None => tables(desk),
        Some(_) => Err(Refusal::new(StatusCode::CONFLICT, "targets are not shown, resumed or dropped where orders are in several tables")),
    }
}

fn unknown(name: &str) -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, format!("no target is called {name:?}, and no event waits for one"))
}
