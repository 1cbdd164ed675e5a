//! The server: its thread, its limits, its end.
//!
//! Nobody keeps others from being answered for long, most of all not whoever watches the daemon: a request is waited for as long as
//! [`HEAD`], and whoever takes no answer is given up. None of the connections that are kept for later is closed before, since a request
//! may be on its way.

mod prompt;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, extract::DefaultBodyLimit, http::StatusCode};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tower::ServiceBuilder;
use tower_http::timeout::TimeoutLayer;
use tracing::{debug, error, info};

use super::{Access, Desks, routes};
use crate::close::Reminder;
use prompt::Prompt;

/// Connections at the same time; more wait to be taken.
const CONNECTIONS: usize = 64;

/// How long a request's head may take to come, and whoever has asked to take what is written; how long an answer may take to be
/// made.
const HEAD: Duration = Duration::from_secs(5);
const TAKEN: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(15);

/// How long answers may take when the daemon stops.
const DRAIN: Duration = Duration::from_secs(2);

/// How often a port is tried that can't be had.
const AGAIN: Duration = Duration::from_secs(5);

/// Serves until it is told to stop, on a thread of its own.
pub async fn serve(address: SocketAddr, desks: Desks, access: Access, stop: CancellationToken) {
    let (ending, ended) = oneshot::channel::<()>();
    let spawned = std::thread::Builder::new().name("http".into()).spawn(move || {
        match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(listen(address, routes(desks, access), stop)),
            Err(error) => error!(%error, "the thread for HTTP can't run; nothing is served"),
        }
        drop(ending);
    });
    match spawned {
        Ok(_) => ended.await.unwrap_or_default(),
        Err(error) => error!(%error, "the thread for HTTP can't start; nothing is served"),
    }
}

async fn listen(address: SocketAddr, routes: Router, stop: CancellationToken) {
    let Some(listener) = stop.run_until_cancelled(bind(address)).await else { return };
    let limits = ServiceBuilder::new()
        .layer(TimeoutLayer::with_status_code(StatusCode::SERVICE_UNAVAILABLE, ANSWER))
        .layer(DefaultBodyLimit::disable());
    let routes = routes.layer(limits);
    let (places, graceful) = (Arc::new(Semaphore::new(CONNECTIONS)), GracefulShutdown::new());
    while let Some(Ok(place)) = stop.run_until_cancelled(Arc::clone(&places).acquire_owned()).await {
        match stop.run_until_cancelled(listener.accept()).await {
            None => break,
            Some(Ok((stream, _))) => answer(stream, routes.clone(), place, &graceful),
            // Too many open files, or a caller that has gone: neither lasts.
            Some(Err(error)) => {
                debug!(%error, "no connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    timeout(DRAIN, graceful.shutdown()).await.ok();
}

/// Waits for the port.
async fn bind(address: SocketAddr) -> TcpListener {
    let mut said = Reminder::default();
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => {
                info!(%address, "answering over HTTP");
                return listener;
            }
            Err(error) => {
                if said.is_due(tokio::time::Instant::now()) {
                    error!(%address, %error, "nothing is served over HTTP: this address can't be had (http.listen); trying again");
                }
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

/// Answers one connection's requests.
fn answer(stream: TcpStream, routes: Router, place: OwnedSemaphorePermit, graceful: &GracefulShutdown) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .serve_connection(TokioIo::new(Prompt::new(stream, TAKEN)), TowerToHyperService::new(routes));
    let connection = graceful.watch(connection);
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            debug!(%error, "a connection ended early");
        }
        drop(place);
    });
}
