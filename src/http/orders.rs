//! Single orders: what is known of one, and closing one that somebody knows to be due.

use std::{collections::HashSet, sync::Arc, time::Duration};

use axum::{
    Json,
    extract::{Path, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;

use super::{Desk, Refusal};
use crate::{
    close::{Closed, Kept, Looked, Outcome, Requested, UNDONE, Why},
    order::{OrderId, rfc3339},
    store::StoreError,
};

/// What the row of an order says, and what is known of it besides.
#[derive(Debug, Serialize)]
pub(super) struct Shown {
    id: String,
    /// As the status column prints it.
    status: Option<String>,
    unpaid: bool,
    deadline: Option<String>,
    /// The database's time.
    now: String,
    /// Until the deadline, by the database's clock; negative once it has passed.
    seconds_left: Option<f64>,
    /// What keeps it from closing, if something does.
    waits: Option<&'static str>,
}

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

pub(super) async fn show(State(desk): State<Desk>, Path(id): Path<String>) -> Result<Json<Shown>, Refusal> {
    let id = parsed(&desk, &id)?;
    let (store, inbox) = (Arc::clone(&desk.store), Arc::clone(&desk.inbox));
    desk.read(async move {
        let rows = store.look(std::slice::from_ref(&id)).await.map_err(unavailable)?;
        let [row] = &rows[..] else {
            return Err(match rows.len() {
                0 => Refusal::new(StatusCode::NOT_FOUND, format!("there is no order {id}")),
                several => Refusal::new(StatusCode::CONFLICT, format!("{several} rows have the id {id}, and none of them closes")),
            });
        };
        let kept = inbox.kept(&HashSet::from([&row.id]));
        Ok(Json(Shown {
            id: row.id.as_str().to_owned(),
            status: row.status.clone(),
            unpaid: row.status.as_ref().is_some_and(|status| store.unpaid().contains(status)),
            deadline: row.deadline.map(rfc3339),
            now: rfc3339(row.now),
            seconds_left: row.remaining().map(|micros| micros as f64 / 1e6),
            waits: kept.get(&row.id).map(|kept| match kept {
                Kept::Held => "another transaction holds it, or a row that its closure needs",
                Kept::Resting => "the database has refused its closure, which is tried again",
                Kept::Waits(why) => waits(*why),
                Kept::GivenUp => "it was given up",
            }),
        }))
    })
    .await?
}

pub(super) async fn close(State(desk): State<Desk>, Path(id): Path<String>) -> Result<Response, Refusal> {
    let id = parsed(&desk, &id)?;
    let requests = Arc::clone(&desk.requests);
    let requested = desk.run(async move { requests.close(&id).await.map(|requested| (id, requested)) }).await?;
    let (id, requested) = requested.map_err(unavailable)?;
    Ok(answer(&id, requested))
}

/// What an order waits for.
const fn waits(why: Why) -> &'static str {
    match why {
        Why::Disputed => "its key contradicts its row, and it waits for its key",
        Why::Asked => "somebody is being asked whether it may be closed",
        Why::Paid => "it is paid, says whoever was asked, and its row does not say so yet",
        Why::Later => "whoever was asked whether it may be closed wants to be asked again",
        Why::Unanswered => "whoever was asked whether it may be closed has not answered",
        Why::Elsewhere => "another daemon asks whether it may be closed",
    }
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
                Answer { seconds_left: Some(left.as_secs_f64()), reason: Some(waits(why).into()), ..plain(outcome) },
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
    let parsed = desk.store.id_kind().parse(id.as_bytes());
    parsed.map_err(|reason| Refusal::new(StatusCode::BAD_REQUEST, format!("{id:?} can't be the id of an order: it {reason}")))
}

pub(super) fn unavailable(error: StoreError) -> Refusal {
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
}
