//! What falls due soon: from the table, by the index of the sweep.

use std::{collections::HashSet, sync::Arc, time::Duration};

use axum::{
    Json,
    extract::{Query, rejection::QueryRejection},
};
use serde::{Deserialize, Serialize};

use super::{Desk, Of, Refusal, asked, orders::unavailable, page};
use crate::{
    config::Span,
    order::{Row, rfc3339},
    store::{Counted, Cursor, DueQuery, Store, StoreError, Window},
};

/// How far ahead is looked, unless somebody asks for something else.
const USUAL: Duration = Duration::from_hours(1);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    #[serde(default, rename = "rule")]
    _rule: Option<String>,
    #[serde(default, rename = "shard")]
    _shard: Option<String>,
    due: Option<Span>,
    limit: Option<u32>,
    after: Option<String>,
}

/// Orders that fall due within some time: by their status, then by their deadline.
#[derive(Debug, Serialize)]
pub(super) struct Coming {
    due_within_s: f64,
    /// How many there are in all; nothing where counting takes too long.
    coming: Option<u64>,
    /// How many are overdue, those left out that are left alone.
    overdue: Option<u64>,
    orders: Vec<Shown>,
    /// Where the next page begins.
    next: Option<String>,
}

#[derive(Debug, Serialize)]
struct Shown {
    id: String,
    status: Option<String>,
    deadline: Option<String>,
    seconds_left: Option<f64>,
    /// What keeps it from closing, as this daemon knows.
    waits: Option<&'static str>,
}

pub(super) async fn list(Of(desk): Of, query: Result<Query<Asked>, QueryRejection>) -> Result<Json<Coming>, Refusal> {
    let Asked { due, limit, after, .. } = asked(query)?;
    let (within, limit) = (due.map_or(USUAL, Span::get), page::limit(limit)?);
    let after = after.as_deref().map(|text| place(&desk, text)).transpose()?;
    let (store, inbox, oldest) = (Arc::clone(&desk.store), Arc::clone(&desk.inbox), desk.sweep.get().oldest.get());
    desk.read(async move {
        let window = Window::ahead(within);
        let is_first = after.is_none();
        let page = store.due(&DueQuery { after, ..DueQuery::of(window, limit) }).await.map_err(|error| {
            // A place that was never one of this table can't be read as one.
            if !is_first && matches!(error, StoreError::Rejected(_)) { page::unknown() } else { unavailable(error) }
        })?;
        let kept = inbox.kept(&page.rows.iter().map(|row| &row.id).collect::<HashSet<_>>());
        let shown = |row: &Row| Shown {
            id: row.id.as_str().to_owned(),
            status: row.status.clone(),
            deadline: row.deadline.map(rfc3339),
            seconds_left: row.remaining().map(|micros| micros as f64 / 1e6),
            waits: kept.get(&row.id).map(|kept| kept.text()),
        };
        Ok(Json(Coming {
            due_within_s: within.as_secs_f64(),
            coming: count(store.as_ref(), window).await?,
            overdue: count(store.as_ref(), Window::overdue(oldest)).await?,
            orders: page.rows.iter().map(shown).collect(),
            next: page.next.as_ref().map(|next| page::written(&next.parts())),
        }))
    })
    .await?
}

/// A count, if it can be had in time.
async fn count(store: &dyn Store, window: Window) -> Result<Option<u64>, Refusal> {
    match store.count(window).await {
        Ok(Counted { orders, .. }) => Ok(Some(orders)),
        Err(StoreError::TimedOut(_)) => Ok(None),
        Err(error) => Err(unavailable(error)),
    }
}

fn place(desk: &Desk, text: &str) -> Result<Cursor, Refusal> {
    let (status, deadline, id): (usize, String, String) = page::read(text)?;
    let id = desk.store.id_kind().parse(id.as_bytes()).map_err(|_| page::unknown())?;
    Ok(Cursor::from_parts(status, deadline, id))
}
