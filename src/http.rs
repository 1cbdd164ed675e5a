//! What the daemon answers over HTTP: whether it lives and is ready, its metrics, and, with a token, questions about orders.
//!
//! The server has a thread of its own, and whatever needs the database runs where the rest of the daemon does, a few at a
//! time: nobody who asks can hold up a closure. A port that is in use is tried again, and never stops anything.

mod access;
mod coming;
mod dead_letters;
mod figures;
mod limits;
mod orders;
mod page;
mod pause;
mod server;
mod targets;
mod timers;

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use axum::{
    Json, Router,
    extract::{FromRequestParts, Path, Query, State, rejection::QueryRejection},
    handler::Handler,
    http::{HeaderValue, StatusCode, header, request::Parts},
    middleware,
    response::{IntoResponse, Response},
    routing::{MethodRouter, delete, get, post, put},
};
use futures::future::join_all;
use serde::{Deserialize, Serialize};
use tokio::{runtime::Handle, sync::Semaphore};
use tower_http::limit::RequestBodyLimitLayer;

pub use access::Access;
pub use figures::Figures;
pub use server::serve;

use crate::{
    close::{Inbox, Registrar, Requests},
    config::{Live, RuleName, Sweep},
    explain::Explainer,
    ops::{AllReady, Measured, NOT_BEGUN},
    store::{Outbox, Store},
};

/// What is served, in the words of OpenAPI 3.1.
pub const OPENAPI: &str = include_str!("http/openapi.json");

/// The longest body of a request that registers no timers: none needs one.
const LONGEST_BODY: usize = 16 * 1_024;

/// How many callers read the database at the same time.
pub const READERS: usize = 2;

/// What the answers are made of: of each rule, and what all have in common.
#[derive(Debug, Clone)]
pub struct Desks {
    runtime: Handle,
    readiness: AllReady,
    measured: Measured,
    figures: Figures,
    rules: Arc<RwLock<Vec<Desk>>>,
}

impl Desks {
    /// Without any rule yet.
    #[must_use]
    pub fn new(runtime: Handle, readiness: AllReady, measured: Measured, figures: Figures) -> Self {
        Self { runtime, readiness, measured, figures, rules: Arc::default() }
    }

    /// Adds a rule.
    pub fn add(&self, desk: Desk) {
        self.rules.write().unwrap_or_else(PoisonError::into_inner).push(desk);
    }

    fn all(&self) -> Vec<Desk> {
        self.rules.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The rule that is named, or without a name the only one that has orders; of its shards the one that is named, or all.
    fn wanted(&self, Named { rule, shard }: &Named) -> Result<Vec<RuleName>, Refusal> {
        let all = self.readiness.rules();
        let mut rules: Vec<&RuleName> = all.iter().collect();
        rules.dedup_by_key(|rule| rule.as_str());
        let names = || rules.iter().map(|rule| rule.as_str()).collect::<Vec<_>>().join(", ");
        let rule = match (rule.as_deref(), rules.as_slice()) {
            (Some(rule), rules) if rules.iter().any(|known| known.as_str() == rule) => rule,
            (Some(rule), _) => {
                return Err(Refusal::new(StatusCode::NOT_FOUND, format!("there is no rule {rule:?}, but {}", names())));
            }
            (None, [only]) => only.as_str(),
            (None, rules) if let [only] = rules.iter().filter(|name| !name.is_timers()).collect::<Vec<_>>().as_slice() => only.as_str(),
            (None, _) => return Err(Refusal::bad(format!("there are several rules; add ?rule= with one of {}", names()))),
        };
        let of_rule = all.iter().filter(|name| name.as_str() == rule);
        let wanted: Vec<RuleName> = of_rule.filter(|name| shard.is_none() || name.shard() == shard.as_deref()).cloned().collect();
        match (wanted.is_empty(), shard) {
            (true, Some(shard)) => Err(Refusal::new(StatusCode::NOT_FOUND, format!("the rule {rule} has no shard {shard:?}"))),
            _ => Ok(wanted),
        }
    }

    fn begun(&self, wanted: &RuleName) -> Result<Desk, Refusal> {
        let found = self.all().into_iter().find(|desk| desk.store.rule() == wanted);
        found.ok_or_else(|| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, format!("{}: {NOT_BEGUN}", wanted.in_full())))
    }

    /// The only one that is meant.
    fn of(&self, named: &Named) -> Result<Desk, Refusal> {
        match self.wanted(named)?.as_slice() {
            [only] => self.begun(only),
            several => Err(Refusal::bad(format!("there are several shards; add ?shard= with one of {}", shards(several.iter())))),
        }
    }

    /// The one that has an order: of several shards all are asked.
    async fn of_order(&self, named: &Named, id: &str) -> Result<Desk, Refusal> {
        let wanted = self.wanted(named)?;
        if let [only] = wanted.as_slice() {
            return self.begun(only);
        }
        let desks = wanted.iter().map(|name| self.begun(name)).collect::<Result<Vec<_>, _>>()?;
        let looked = join_all(desks.iter().map(|desk| desk.has(id))).await.into_iter().collect::<Result<Vec<_>, _>>()?;
        let mut having = desks.iter().zip(&looked).filter(|(_, has)| **has).map(|(desk, _)| desk);
        match (having.next(), having.next()) {
            (Some(only), None) => Ok(only.clone()),
            // Each says the same of it.
            (None, _) => desks.into_iter().next().ok_or_else(|| Refusal::bad("there is no rule")),
            (Some(_), Some(_)) => {
                let having = desks.iter().zip(looked).filter(|(_, has)| *has).map(|(desk, _)| desk.store.rule());
                let reason = format!("it is an order of several shards; add ?shard= with one of {}", shards(having));
                Err(Refusal::new(StatusCode::CONFLICT, reason))
            }
        }
    }
}

/// The names of shards, in words.
fn shards<'r>(rules: impl Iterator<Item = &'r RuleName>) -> String {
    rules.filter_map(|name| name.shard()).collect::<Vec<_>>().join(", ")
}

/// What stands behind the question mark of most requests.
#[derive(Debug, Deserialize)]
struct Named {
    rule: Option<String>,
    shard: Option<String>,
}

/// The rule that a request is about, as it says behind the question mark.
#[derive(Debug)]
struct Of(Desk);

impl FromRequestParts<Desks> for Of {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, desks: &Desks) -> Result<Self, Refusal> {
        desks.of(&asked(Query::try_from_uri(&parts.uri))?).map(Self)
    }
}

/// The rule, and the shard, that has the order that a request is about.
#[derive(Debug)]
struct OfOrder(Desk);

impl FromRequestParts<Desks> for OfOrder {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, desks: &Desks) -> Result<Self, Refusal> {
        let named = asked(Query::try_from_uri(&parts.uri))?;
        let Path(id) = Path::<String>::from_request_parts(parts, desks).await.map_err(|error| Refusal::bad(error.body_text()))?;
        desks.of_order(&named, &id).await.map(Self)
    }
}

/// What the answers about one rule's orders are made of.
#[derive(Debug, Clone)]
pub struct Desk {
    /// Where whatever needs the database runs.
    pub runtime: Handle,
    /// How many may read the database at the same time: look-ahead and sweep read over the same connections.
    pub readers: Arc<Semaphore>,
    /// What has been overdue for longer is left alone.
    pub sweep: Live<Sweep>,
    /// Who closes an order that is asked for.
    pub requests: Arc<Requests>,
    /// The orders.
    pub store: Arc<dyn Store>,
    /// What is known of them.
    pub inbox: Arc<Inbox>,
    /// Who explains single orders.
    pub explainer: Explainer,
    /// The names of the targets in the configuration.
    pub targets: Live<Arc<[String]>>,
    /// Who registers timers, where that is the rule.
    pub registrar: Registrar,
}

impl Desk {
    /// Reads the database, or changes our own tables, when it is its turn.
    async fn read<T: Send + 'static>(&self, answer: impl Future<Output = T> + Send + 'static) -> Result<T, Refusal> {
        let readers = Arc::clone(&self.readers);
        self.run(async move {
            // Never closed.
            let _turn = readers.acquire().await;
            answer.await
        })
        .await
    }

    /// Whether there is an order with this id.
    async fn has(&self, id: &str) -> Result<bool, Refusal> {
        let Ok(id) = self.explainer.read(id) else { return Ok(false) };
        let store = Arc::clone(&self.store);
        let looked = self.read(async move { store.look(&[id]).await }).await?;
        let away = |error| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, format!("{}: {error}", self.store.rule().in_full()));
        looked.map(|rows| !rows.is_empty()).map_err(away)
    }

    async fn run<T: Send + 'static>(&self, answer: impl Future<Output = T> + Send + 'static) -> Result<T, Refusal> {
        run(&self.runtime, answer).await
    }
}

/// Runs it with the rest of the daemon.
async fn run<T: Send + 'static>(runtime: &Handle, answer: impl Future<Output = T> + Send + 'static) -> Result<T, Refusal> {
    // It fails only when it panics, or when the daemon stops.
    runtime.spawn(answer).await.map_err(|_| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the daemon stops"))
}

/// An answer that is none.
#[derive(Debug)]
struct Refusal {
    status: StatusCode,
    reason: String,
    /// When it may be another one.
    after: Option<Duration>,
}

impl Refusal {
    fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        Self { status, reason: reason.into(), after: None }
    }

    fn bad(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, reason)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct Body {
            error: String,
        }
        let mut response = (self.status, Json(Body { error: self.reason })).into_response();
        if let Some(after) = self.after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(after.as_secs() + 1));
        }
        response
    }
}

/// Reads a body in JSON.
fn read<'b, T: Deserialize<'b>>(body: &'b [u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| Refusal::bad(format!("the body is not what is taken here: {error}")))
}

/// Reads what stands behind the question mark.
fn asked<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, Refusal> {
    query.map(|Query(asked)| asked).map_err(|error| Refusal::bad(error.body_text()))
}

/// Our own tables, which some answers need.
fn tables(desk: &Desk) -> Result<&Outbox, Refusal> {
    let outbox = desk.store.outbox();
    if outbox.is_ready() { Ok(outbox) } else { Err(Refusal::new(StatusCode::CONFLICT, outbox.missing())) }
}

/// One thing that is served.
#[derive(Debug)]
struct Route {
    method: &'static str,
    path: &'static str,
    answers: MethodRouter<Desks>,
}

impl Route {
    fn get<T: 'static>(path: &'static str, handler: impl Handler<T, Desks>) -> Self {
        Self { method: "get", path, answers: get(handler) }
    }

    fn put<T: 'static>(path: &'static str, handler: impl Handler<T, Desks>) -> Self {
        Self { method: "put", path, answers: put(handler) }
    }

    fn delete<T: 'static>(path: &'static str, handler: impl Handler<T, Desks>) -> Self {
        Self { method: "delete", path, answers: delete(handler) }
    }

    fn post<T: 'static>(path: &'static str, handler: impl Handler<T, Desks>) -> Self {
        Self { method: "post", path, answers: post(handler) }
    }
}

/// What is served to anybody: it names no order, and changes nothing.
fn open() -> Vec<Route> {
    vec![
        Route::get("/", figures::page),
        Route::get("/livez", || async { "ok\n" }),
        Route::get("/readyz", readyz),
        Route::get("/metrics", metrics),
    ]
}

/// What is served to whoever has the token, and, if that is wanted, to others without ids.
fn seen() -> Vec<Route> {
    vec![Route::get("/figures", figures::once), Route::get("/figures/stream", figures::stream)]
}

/// What is served to whoever has the token.
fn guarded() -> Vec<Route> {
    vec![
        Route::get("/orders", coming::list),
        Route::get("/orders/{id}", orders::show),
        Route::post("/orders/{id}/close", orders::close),
        Route::get("/dead-letters", dead_letters::list),
        Route::post("/dead-letters", dead_letters::retry_all),
        Route::get("/dead-letters/{id}", dead_letters::show),
        Route::post("/dead-letters/{id}/retry", dead_letters::retry),
        Route::post("/dead-letters/{id}/drop", dead_letters::discard),
        Route::get("/targets", targets::list),
        Route::post("/targets/{name}/resume", targets::resume),
        Route::post("/targets/{name}/drop", targets::discard),
        Route::get("/status", pause::status),
        Route::post("/pause", pause::begin),
        Route::post("/resume", pause::end),
        Route::get("/openapi.json", openapi),
    ]
}

/// What is served to whoever has the token, and takes longer bodies.
fn of_timers() -> Vec<Route> {
    vec![
        Route::get("/timers/{kind}/{key}", timers::show),
        Route::put("/timers/{kind}/{key}", timers::register),
        Route::delete("/timers/{kind}/{key}", timers::cancel),
        Route::post("/timers:batch", timers::register_all),
        Route::post("/timers:cancel", timers::cancel_all),
    ]
}

/// The method and the path of each thing that is served.
#[must_use]
pub fn served() -> Vec<(&'static str, &'static str)> {
    open().into_iter().chain(seen()).chain(guarded()).chain(of_timers()).map(|route| (route.method, route.path)).collect()
}

/// All routes.
fn routes(desks: Desks, access: Access) -> Router {
    let router = |routes: Vec<Route>| routes.into_iter().fold(Router::new(), |router, route| router.route(route.path, route.answers));
    let guard = middleware::from_fn_with_state(access.clone(), access::guard);
    let short = router(open())
        .merge(router(seen()).route_layer(middleware::from_fn_with_state(access, access::see)))
        .merge(router(guarded()).route_layer(guard.clone()))
        .layer(RequestBodyLimitLayer::new(LONGEST_BODY));
    let long = router(of_timers()).route_layer(guard).layer(RequestBodyLimitLayer::new(timers::LONGEST_BODY));
    short
        .merge(long)
        .fallback(|| async { Refusal::new(StatusCode::NOT_FOUND, "there is nothing here") })
        .method_not_allowed_fallback(|| async { Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "this is not asked that way") })
        .with_state(desks)
}

async fn openapi() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI)
}

async fn readyz(State(desks): State<Desks>) -> Result<Response, Refusal> {
    let readiness = desks.readiness.clone();
    let ready = run(&desks.runtime, async move { readiness.look().await }).await?;
    let status = if ready.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok((status, Json(ready)).into_response())
}

async fn metrics(State(desks): State<Desks>) -> impl IntoResponse {
    // The text format of Prometheus, version 0.0.4.
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], desks.measured.text())
}
