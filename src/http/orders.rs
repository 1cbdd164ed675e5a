//! Single orders: what is known of one, and closing one that somebody knows to be due.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    extract::Path,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;

use super::{Desk, OfOrder, Refusal};
use crate::{
    close::{Closed, Looked, Outcome, Requested, Why},
    order::OrderId,
    outbox::UNDONE,
    store::StoreError,
};

/// What came of a wish to close an order.
#[derive(Debug, Serialize)]
struct Answer {
    id: String,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lateness_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds_left: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

pub(super) async fn show(OfOrder(desk): OfOrder, Path(id): Path<String>) -> Result<Response, Refusal> {
    let id = parsed(&desk, &id)?;
    let explainer = desk.explainer.clone();
    let explanation = desk.read(async move { explainer.explain(&id).await }).await?.map_err(unavailable)?;
    let status = match explanation.rows {
        0 => StatusCode::NOT_FOUND,
        1 => StatusCode::OK,
        _ => StatusCode::CONFLICT,
    };
    Ok((status, Json(explanation)).into_response())
}

pub(super) async fn close(OfOrder(desk): OfOrder, Path(id): Path<String>) -> Result<Response, Refusal> {
    let id = parsed(&desk, &id)?;
    let requests = Arc::clone(&desk.requests);
    let requested = desk.run(async move { requests.close(&id).await.map(|requested| (id, requested)) }).await?;
    let (id, requested) = requested.map_err(unavailable)?;
    Ok(answer(&id, requested))
}

fn answer(id: &OrderId, requested: Requested) -> Response {
    let plain = |outcome| Answer { id: id.as_str().to_owned(), outcome, status: None, lateness_s: None, seconds_left: None, reason: None };
    let outcome = match requested {
        Requested::Waits(Why::Disputed, left) => {
            let reason = Some("due by its row, but its key is to expire later, and it waits for that (orders.disputed)".into());
            let answer = Answer { seconds_left: Some(left.as_secs_f64()), reason, ..plain("disputed") };
            return later(StatusCode::CONFLICT, left, answer);
        }
        Requested::Waits(why, left) => {
            let (status, outcome) = match why {
                Why::Paid => (StatusCode::CONFLICT, "paid"),
                Why::Later => (StatusCode::CONFLICT, "later"),
                Why::Disputed | Why::Asked | Why::Unanswered | Why::Elsewhere => (StatusCode::SERVICE_UNAVAILABLE, "unanswered"),
            };
            return later(
                status,
                left,
                Answer { seconds_left: Some(left.as_secs_f64()), reason: Some(why.text().into()), ..plain(outcome) },
            );
        }
        Requested::Paused => {
            let reason = Some("closing is paused (order-closer status)".into());
            return later(StatusCode::SERVICE_UNAVAILABLE, Duration::from_secs(10), Answer { reason, ..plain("paused") });
        }
        Requested::Looked(Looked { outcome, .. }) => outcome,
    };
    let name = outcome.name();
    match outcome {
        Outcome::Closed(Closed { lateness, .. }) => {
            Json(Answer { lateness_s: Some(lateness.as_secs_f64()), ..plain(name) }).into_response()
        }
        Outcome::Settled { status } => Json(Answer { status, ..plain(name) }).into_response(),
        Outcome::NotDue { remaining: Some(left) } => {
            later(StatusCode::CONFLICT, left, Answer { seconds_left: Some(left.as_secs_f64()), ..plain(name) })
        }
        Outcome::NotDue { remaining: None } => {
            let reason = Some("it has no deadline, and so is never due".into());
            (StatusCode::CONFLICT, Json(Answer { reason, ..plain(name) })).into_response()
        }
        Outcome::Unasked => {
            let reason = Some("its deadline has moved since somebody was asked about it".into());
            later(StatusCode::SERVICE_UNAVAILABLE, Duration::from_secs(1), Answer { reason, ..plain(name) })
        }
        Outcome::NotFound => (StatusCode::NOT_FOUND, Json(plain(name))).into_response(),
        Outcome::Locked { reason } => {
            later(StatusCode::SERVICE_UNAVAILABLE, Duration::from_secs(1), Answer { reason: Some(reason), ..plain(name) })
        }
        Outcome::Undone => (StatusCode::CONFLICT, Json(Answer { reason: Some(UNDONE.into()), ..plain(name) })).into_response(),
        Outcome::Rejected { reason } => (StatusCode::BAD_GATEWAY, Json(Answer { reason: Some(reason), ..plain(name) })).into_response(),
    }
}

/// An answer that may be another one so much later.
fn later(status: StatusCode, left: Duration, answer: Answer) -> Response {
    let mut response = (status, Json(answer)).into_response();
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(left.as_secs() + 1));
    response
}

fn parsed(desk: &Desk, id: &str) -> Result<OrderId, Refusal> {
    desk.explainer.read(id).map_err(Refusal::bad)
}

pub(super) fn unavailable(error: StoreError) -> Refusal {
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
}
