//! The page for people: one file without anything from elsewhere, and the figures that it shows, live.

use std::{
    convert::Infallible,
    sync::{Arc, LazyLock},
    time::Duration,
};

use axum::{
    Extension,
    extract::State,
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{
        Html, IntoResponse, Response,
        sse::{Event, Sse},
    },
};
use base64::{Engine, prelude::BASE64_STANDARD};
use futures::{StreamExt, stream};
use sha2::{Digest, Sha256};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::{Desks, Refusal, access::View};
use crate::ops::{Sampled, Watchers};

/// How many may watch at the same time: others are still to be answered.
const WATCHERS: usize = 16;

/// After which one more may have a place.
const AGAIN: Duration = Duration::from_secs(5);

const PAGE: &str = include_str!("page.html");

/// What a browser may do with it: run this script, use this style, ask this daemon, and nothing else. Texts never become
/// elements, nor does the page ever stand in another's frame.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let of = |name: &str| {
        let text = PAGE.split_once(&format!("<{name}>")).and_then(|(_, rest)| rest.split_once(&format!("</{name}>")));
        text.map_or_else(|| "'none'".to_owned(), |(text, _)| format!("'sha256-{}'", BASE64_STANDARD.encode(Sha256::digest(text))))
    };
    format!(
        "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
        of("script"),
        of("style")
    )
});

/// Where the figures come from.
#[derive(Debug, Clone)]
pub struct Figures {
    watchers: Watchers,
    page: Arc<str>,
    places: Arc<Semaphore>,
    stop: CancellationToken,
}

impl Figures {
    /// Those that these watchers see, on a page that is told what it may ask for without the token.
    #[must_use]
    pub fn new(watchers: Watchers, access: &str, stop: CancellationToken) -> Self {
        let page = PAGE.replacen("data-access=\"ACCESS\"", &format!("data-access=\"{access}\""), 1).into();
        Self { watchers, page, places: Arc::new(Semaphore::new(WATCHERS)), stop }
    }

    /// What somebody sees.
    fn watch(&self, view: View) -> Result<Watching, Refusal> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        let place = place.map_err(|_| Refusal {
            after: Some(AGAIN),
            ..Refusal::new(StatusCode::SERVICE_UNAVAILABLE, format!("{WATCHERS} watch already"))
        })?;
        Ok(Watching { figures: self.watchers.watch(), view, _place: place })
    }
}

/// Somebody who watches.
struct Watching {
    figures: watch::Receiver<Option<Arc<Sampled>>>,
    view: View,
    _place: OwnedSemaphorePermit,
}

impl Watching {
    /// The next figures, as JSON; `None` when there are no more.
    async fn next(&mut self) -> Option<String> {
        loop {
            self.figures.changed().await.ok()?;
            let sampled = self.figures.borrow_and_update().clone();
            if let Some(sampled) = sampled {
                let Sampled { all, without_ids } = &*sampled;
                return Some(match self.view {
                    View::All => all.clone(),
                    View::WithoutIds => without_ids.clone(),
                });
            }
        }
    }
}

/// The page, which is for everybody: it has no figures in itself.
pub(super) async fn page(State(desks): State<Desks>) -> Response {
    const HEADERS: [(HeaderName, &str); 6] = [
        (header::CACHE_CONTROL, "no-cache"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    let mut response = (HEADERS, Html(desks.figures.page.to_string())).into_response();
    // ASCII, as are names and base64.
    if let Ok(policy) = HeaderValue::from_str(&POLICY) {
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    response
}

/// The figures, once.
pub(super) async fn once(State(desks): State<Desks>, Extension(view): Extension<View>) -> Result<Response, Refusal> {
    let figures = desks.figures.watch(view)?.next().await;
    let figures = figures.ok_or_else(|| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the daemon stops"))?;
    Ok(([(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")], figures).into_response())
}

/// The figures, once a second, as server-sent events.
pub(super) async fn stream(State(desks): State<Desks>, Extension(view): Extension<View>) -> Result<Response, Refusal> {
    let events = stream::unfold(desks.figures.watch(view)?, |mut watching| async move {
        let figures = watching.next().await?;
        Some((Ok::<_, Infallible>(Event::default().data(figures)), watching))
    });
    let events = events.take_until(desks.figures.stop.cancelled_owned());
    // A proxy that collects answers would show old figures.
    let headers = [(header::CACHE_CONTROL, "no-store"), (HeaderName::from_static("x-accel-buffering"), "no")];
    Ok((headers, Sse::new(events)).into_response())
}
