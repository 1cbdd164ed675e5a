//! What was given up, and what is to become of it: what `order-closer dead-letters` does.

use std::sync::Arc;

use axum::{
    Json,
    body::Bytes,
    extract::{Path, Query, rejection::QueryRejection},
    http::StatusCode,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Desk, Of, Refusal, asked, orders::unavailable, page, read, tables};
use crate::{
    order::OrderId,
    outbox::{Address, Letter, Place, PutBack},
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    #[serde(default, rename = "rule")]
    _rule: Option<String>,
    #[serde(default, rename = "shard")]
    _shard: Option<String>,
    limit: Option<u32>,
    after: Option<String>,
}

/// A page of dead letters; what was dropped is not listed.
#[derive(Debug, Serialize)]
pub(super) struct Listed {
    dead_letters: Vec<Letter>,
    /// Where the next page begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Whose retry is wanted.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Which {
    /// Of an event only what this target was to be told.
    target: Option<String>,
}

/// A wish about all of them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct All {
    /// Always `all`.
    retry: Everything,
    #[serde(default)]
    target: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Everything {
    All,
}

/// What became of one.
#[derive(Debug, Serialize)]
pub(super) struct Done {
    id: String,
    outcome: &'static str,
}

/// What became of all.
#[derive(Debug, Serialize)]
pub(super) struct AllDone {
    put_back: u64,
    /// What is left, for targets that the configuration does not name.
    left: Vec<Left>,
}

#[derive(Debug, Serialize)]
struct Left {
    target: String,
    dead: u64,
}

pub(super) async fn list(Of(desk): Of, query: Result<Query<Asked>, QueryRejection>) -> Result<Json<Listed>, Refusal> {
    let Asked { limit, after, .. } = asked(query)?;
    let (limit, place) = (page::limit(limit)?, after.map_or(Ok(Place::FIRST), |text| place(&text))?);
    tables(&desk)?;
    let store = Arc::clone(&desk.store);
    let (letters, next) = desk.read(async move { store.outbox().dead_letters(&place, limit).await }).await?.map_err(unavailable)?;
    let dead_letters = letters.into_iter().map(|letter| Letter::of(letter, desk.store.outbox())).filter(|letter| !letter.dropped).collect();
    Ok(Json(Listed { dead_letters, next: next.as_ref().map(written) }))
}

pub(super) async fn show(Of(desk): Of, Path(id): Path<String>) -> Result<Json<Listed>, Refusal> {
    tables(&desk)?;
    let (store, address) = (Arc::clone(&desk.store), address(&desk, &id));
    let letters = desk.read(async move { store.outbox().dead_letters_of(&address).await }).await?.map_err(unavailable)?;
    if letters.is_empty() {
        return Err(unknown(&id));
    }
    Ok(Json(Listed { dead_letters: letters.into_iter().map(|letter| Letter::of(letter, desk.store.outbox())).collect(), next: None }))
}

pub(super) async fn retry(Of(desk): Of, Path(id): Path<String>, body: Bytes) -> Result<Json<Done>, Refusal> {
    let Which { target } = if body.is_empty() { Which::default() } else { read(&body)? };
    tables(&desk)?;
    let (store, address) = (Arc::clone(&desk.store), address(&desk, &id));
    let found = desk.read(async move { store.outbox().revive(&address, target.as_deref()).await }).await?;
    done(id, found.map_err(unavailable)?, "put_back")
}

pub(super) async fn discard(Of(desk): Of, Path(id): Path<String>) -> Result<Json<Done>, Refusal> {
    tables(&desk)?;
    let (store, address) = (Arc::clone(&desk.store), address(&desk, &id));
    let found = desk.read(async move { store.outbox().discard(&address).await }).await?;
    done(id, found.map_err(unavailable)?, "dropped")
}

pub(super) async fn retry_all(Of(desk): Of, body: Bytes) -> Result<Json<AllDone>, Refusal> {
    let All { retry: Everything::All, target } = read(&body)?;
    tables(&desk)?;
    let (store, named) = (Arc::clone(&desk.store), desk.targets.get());
    let put_back = desk.read(async move { store.outbox().revive_all(&named, target.as_deref()).await }).await?;
    let PutBack { count, left } = put_back.map_err(unavailable)?;
    let left = left.into_iter().map(|left| Left { target: left.target, dead: left.dead }).collect();
    Ok(Json(AllDone { put_back: count, left }))
}

fn address(desk: &Desk, id: &str) -> Address {
    Address::of(id, &desk.store.id_kind())
}

fn done(id: String, found: bool, outcome: &'static str) -> Result<Json<Done>, Refusal> {
    if found { Ok(Json(Done { id, outcome })) } else { Err(unknown(&id)) }
}

fn unknown(id: &str) -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, format!("no dead letter has the id {id:?}"))
}

/// A place as whoever pages keeps it.
#[derive(Debug, Serialize, Deserialize)]
enum Kept {
    Orders(Option<String>),
    Events(String, String),
}

fn written(place: &Place) -> String {
    page::written(&match place {
        Place::Orders { after } => Kept::Orders(after.as_ref().map(|id| id.as_str().to_owned())),
        Place::Events { target, after } => Kept::Events(target.clone(), after.to_string()),
    })
}

fn place(text: &str) -> Result<Place, Refusal> {
    Ok(match page::read(text)? {
        Kept::Orders(after) => Place::Orders { after: after.map(|id| OrderId::from_database(&id)) },
        Kept::Events(target, after) => Place::Events { target, after: Uuid::try_parse(&after).map_err(|_| page::unknown())? },
    })
}
