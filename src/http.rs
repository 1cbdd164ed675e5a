//! What the daemon answers over HTTP: whether it lives and is ready, its metrics, and, with a token, questions about orders.
//!
//! The server has a thread of its own, and whatever needs the database runs where the rest of the daemon does, a few at a
//! time: nobody who asks can hold up a closure. A port that is in use is tried again, and never stops anything.

mod access;
mod orders;
mod pause;
mod server;

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header},
    middleware,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde::Serialize;
use tokio::{runtime::Handle, sync::Semaphore};

pub use access::Access;
pub use server::serve;

use crate::{
    close::{Inbox, Requests},
    config::{Live, Sweep},
    ops::{Measured, Readiness},
    store::Store,
};

/// How many callers read the database at the same time.
pub const READERS: usize = 2;

/// What the answers are made of.
#[derive(Debug, Clone)]
pub struct Desk {
    /// Where whatever needs the database runs.
    pub runtime: Handle,
    /// How many may read the database at the same time: look-ahead and sweep read over the same connections.
    pub readers: Arc<Semaphore>,
    /// What has been overdue for longer is left alone.
    pub sweep: Live<Sweep>,
    /// What works.
    pub readiness: Arc<Readiness>,
    /// What has been measured.
    pub measured: Measured,
    /// Who closes an order that is asked for.
    pub requests: Arc<Requests>,
    /// The orders.
    pub store: Arc<dyn Store>,
    /// What is known of them.
    pub inbox: Arc<Inbox>,
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

    /// Runs it with the rest of the daemon.
    async fn run<T: Send + 'static>(&self, answer: impl Future<Output = T> + Send + 'static) -> Result<T, Refusal> {
        // It fails only when it panics, or when the daemon stops.
        self.runtime.spawn(answer).await.map_err(|_| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the daemon stops"))
    }
}

/// An answer that is none.
#[derive(Debug)]
struct Refusal {
    status: StatusCode,
    reason: String,
}

impl Refusal {
    fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        Self { status, reason: reason.into() }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct Body {
            error: String,
        }
        (self.status, Json(Body { error: self.reason })).into_response()
    }
}

/// All routes.
fn routes(desk: Desk, access: Access) -> Router {
    let guarded = Router::new()
        .route("/orders/{id}", get(orders::show))
        .route("/orders/{id}/close", post(orders::close))
        .route("/status", get(pause::status))
        .route("/pause", post(pause::begin))
        .route("/resume", post(pause::end))
        .route_layer(middleware::from_fn_with_state(access, access::guard));
    Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .merge(guarded)
        .fallback(|| async { Refusal::new(StatusCode::NOT_FOUND, "there is nothing here") })
        .with_state(desk)
}

async fn readyz(State(desk): State<Desk>) -> Result<Response, Refusal> {
    let readiness = Arc::clone(&desk.readiness);
    let ready = desk.run(async move { readiness.look().await }).await?;
    let status = if ready.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok((status, Json(ready)).into_response())
}

async fn metrics(State(desk): State<Desk>) -> impl IntoResponse {
    // The text format of Prometheus, version 0.0.4.
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], desk.measured.text())
}
