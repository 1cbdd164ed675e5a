//! Timers: registering, cancelling, looking at one. The rows are those that anybody may insert; what is taken here is checked before.

use std::{borrow::Cow, sync::Arc, time::Duration};

use axum::{
    Json,
    body::Bytes,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Desk, Desks, Named, Refusal, orders::unavailable, read};
use crate::{
    config::RuleName,
    order::rfc3339,
    outbox::{Cancelled, Due, NewTimer, Registered, Timer, TimerName, TimerState},
    store::StoreError,
};

/// The longest body: of a thousand timers whose data is short, or of a few with much.
pub(super) const LONGEST_BODY: usize = 4 << 20;

/// The most timers that one request registers, or cancels.
const BATCH: usize = 1_000;

const FIRED: &str = "it has fired";
const UNKNOWN: &str = "there is no such timer";

/// A timer as somebody wants it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted<'b> {
    /// With the key, in a list; those of a single one stand in its path.
    kind: Option<Cow<'b, str>>,
    key: Option<Cow<'b, str>>,
    due: Option<Cow<'b, str>>,
    r#in: Option<Cow<'b, str>>,
    target: Cow<'b, str>,
    #[serde(borrow)]
    data: Option<&'b RawValue>,
    #[serde(default)]
    generation: i64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Batch<'b> {
    #[serde(borrow)]
    timers: Vec<Wanted<'b>>,
}

/// A timer.
#[derive(Debug, Serialize)]
struct Shown {
    kind: String,
    key: String,
    state: &'static str,
    due: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fired_at: Option<String>,
    target: String,
    generation: i64,
    data: Box<RawValue>,
    /// By the database's clock.
    now: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds_left: Option<f64>,
}

impl From<Timer> for Shown {
    fn from(timer: Timer) -> Self {
        let Timer { kind, key, state, due, fired_at, target, data, generation, now, .. } = timer;
        let left = Duration::from_micros(u64::try_from(due.saturating_sub(now)).unwrap_or(0));
        Self {
            kind,
            key,
            state: state.name(),
            due: rfc3339(due),
            fired_at: fired_at.map(rfc3339),
            target,
            generation,
            data,
            now: rfc3339(now),
            seconds_left: (state == TimerState::Armed).then_some(left.as_secs_f64()),
        }
    }
}

/// What came of one timer of a list.
#[derive(Debug, Serialize)]
struct Outcome {
    /// As if it had been registered alone.
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timer: Option<Shown>,
}

impl Outcome {
    fn refused(reason: String) -> Self {
        Self { status: StatusCode::BAD_REQUEST.as_u16(), error: Some(reason), timer: None }
    }
}

impl From<Registered> for Outcome {
    fn from(Registered { timer, is_new, is_older }: Registered) -> Self {
        let (status, error) = match (is_older, is_new) {
            (true, _) => (StatusCode::CONFLICT, Some(format!("generation {} has been registered before", timer.generation))),
            (false, true) => (StatusCode::CREATED, None),
            (false, false) => (StatusCode::OK, None),
        };
        Self { status: status.as_u16(), error, timer: Some(timer.into()) }
    }
}

#[derive(Debug, Serialize)]
struct Outcomes {
    timers: Vec<Outcome>,
}

pub(super) async fn register(
    State(desks): State<Desks>,
    Path((kind, key)): Path<(String, String)>,
    body: Bytes,
) -> Result<Response, Refusal> {
    let desk = desk(&desks)?;
    let wanted: Wanted<'_> = read(&body)?;
    if wanted.kind.is_some() || wanted.key.is_some() {
        return Err(Refusal::bad("kind and key stand in the path, and not in the body"));
    }
    let wanted = Wanted { kind: Some(kind.into()), key: Some(key.into()), ..wanted };
    let timer = checked(&desk.targets.get(), oldest(&desk), wanted).map_err(Refusal::bad)?;
    let registered = write(&desk, vec![timer]).await?.into_iter().next();
    let outcome = Outcome::from(registered.ok_or_else(|| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "it was deleted meanwhile"))?);
    let status = StatusCode::from_u16(outcome.status).unwrap_or_default();
    Ok(match outcome {
        Outcome { error: None, timer: Some(timer), .. } => (status, Json(timer)).into_response(),
        outcome => (status, Json(outcome)).into_response(),
    })
}

pub(super) async fn register_all(State(desks): State<Desks>, body: Bytes) -> Result<Response, Refusal> {
    let desk = desk(&desks)?;
    let Batch { timers } = read(&body)?;
    few_enough(timers.len())?;
    let (targets, oldest) = (desk.targets.get(), oldest(&desk));
    let (mut outcomes, mut places, mut good) = (Vec::with_capacity(timers.len()), Vec::new(), Vec::new());
    for (place, wanted) in timers.into_iter().enumerate() {
        match checked(&targets, oldest, wanted) {
            Ok(timer) => {
                places.push(place);
                good.push(timer);
                outcomes.push(Outcome::refused("it was deleted meanwhile".into()));
            }
            Err(reason) => outcomes.push(Outcome::refused(reason)),
        }
    }
    for (place, registered) in places.into_iter().zip(write(&desk, good).await?) {
        outcomes[place] = registered.into();
    }
    Ok(Json(Outcomes { timers: outcomes }).into_response())
}

/// What came of one cancellation.
#[derive(Debug, Serialize)]
struct Ended {
    /// As if it had been cancelled alone.
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fired_at: Option<String>,
}

impl From<Cancelled> for Ended {
    fn from(cancelled: Cancelled) -> Self {
        let (status, error, fired_at) = match cancelled {
            Cancelled::Yes => (StatusCode::NO_CONTENT, None, None),
            Cancelled::Fired(at) => (StatusCode::CONFLICT, Some(FIRED), Some(rfc3339(at))),
            Cancelled::Unknown => (StatusCode::NOT_FOUND, Some(UNKNOWN), None),
        };
        Self { status: status.as_u16(), error, fired_at }
    }
}

pub(super) async fn cancel(State(desks): State<Desks>, Path((kind, key)): Path<(String, String)>) -> Result<Response, Refusal> {
    /// Why it was too late.
    #[derive(Serialize)]
    struct Fired {
        error: &'static str,
        fired_at: String,
    }
    let cancelled = cancelled(&desk(&desks)?, vec![TimerName { kind, key }]).await?;
    Ok(match cancelled.first() {
        Some(Cancelled::Yes) => StatusCode::NO_CONTENT.into_response(),
        Some(Cancelled::Fired(at)) => (StatusCode::CONFLICT, Json(Fired { error: FIRED, fired_at: rfc3339(*at) })).into_response(),
        Some(Cancelled::Unknown) | None => unknown().into_response(),
    })
}

pub(super) async fn cancel_all(State(desks): State<Desks>, body: Bytes) -> Result<Response, Refusal> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Named {
        kind: String,
        key: String,
    }
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Batch {
        timers: Vec<Named>,
    }
    #[derive(Serialize)]
    struct Outcomes {
        timers: Vec<Ended>,
    }
    let desk = desk(&desks)?;
    let Batch { timers } = read(&body)?;
    few_enough(timers.len())?;
    let names = timers.into_iter().map(|Named { kind, key }| TimerName { kind, key }).collect();
    let timers = cancelled(&desk, names).await?.into_iter().map(Ended::from).collect();
    Ok(Json(Outcomes { timers }).into_response())
}

async fn cancelled(desk: &Desk, names: Vec<TimerName>) -> Result<Vec<Cancelled>, Refusal> {
    let store = Arc::clone(&desk.store);
    desk.read(async move { store.outbox().cancel(&names).await }).await?.map_err(refused)
}

fn few_enough(timers: usize) -> Result<(), Refusal> {
    if timers > BATCH { Err(Refusal::bad(format!("{timers} timers are more than the {BATCH} that are taken at once"))) } else { Ok(()) }
}

pub(super) async fn show(State(desks): State<Desks>, Path((kind, key)): Path<(String, String)>) -> Result<Response, Refusal> {
    let desk = desk(&desks)?;
    let store = Arc::clone(&desk.store);
    let timer = desk.read(async move { store.outbox().timer(&kind, &key).await }).await?.map_err(refused)?;
    timer.map(|timer| Json(Shown::from(timer)).into_response()).ok_or_else(unknown)
}

fn unknown() -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, UNKNOWN)
}

/// The rule of the timers.
fn desk(desks: &Desks) -> Result<Desk, Refusal> {
    if !desks.readiness.rules().iter().any(RuleName::is_timers) {
        return Err(Refusal::new(StatusCode::NOT_FOUND, "there are no timers: timers.enabled is false"));
    }
    desks.of(&Named { rule: Some(RuleName::TIMERS.into()), shard: None })
}

fn refused(error: StoreError) -> Refusal {
    if let StoreError::Rejected(reason) = error { Refusal::bad(reason) } else { unavailable(error) }
}

fn checked(targets: &[String], oldest: Option<Duration>, wanted: Wanted<'_>) -> Result<NewTimer, String> {
    let Wanted { kind, key, due, r#in, target, data, generation } = wanted;
    let needed = |name: &str, text: Option<Cow<'_, str>>| text.map(Cow::into_owned).ok_or_else(|| format!("{name} is missing"));
    NewTimer {
        kind: needed("kind", kind)?,
        key: needed("key", key)?,
        due: Due::read(due.as_deref(), r#in.as_deref())?,
        target: target.into_owned(),
        data: RawValue::from_string(data.map_or("{}", RawValue::get).into()).map_err(|error| error.to_string())?,
        generation,
    }
    .checked(targets, oldest)
}

/// How long ago a timer may be due that fires.
fn oldest(desk: &Desk) -> Option<Duration> {
    desk.sweep.get().oldest.get()
}

async fn write(desk: &Desk, timers: Vec<NewTimer>) -> Result<Vec<Registered>, Refusal> {
    let registrar = desk.registrar.clone();
    desk.read(async move { registrar.register(&timers).await }).await?.map_err(refused)
}
