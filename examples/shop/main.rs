//! An order service beside order-closer: it takes orders, is paid for them, and lets go of them.
//!
//! Orders are in one database; what they reserve, and how they are paid, is in others, which no transaction of the first
//! can reach. So these are told of closures by the webhook, and let go of what an order had: once, however often they are
//! told, and also when they had not heard of the order yet. How to run it: docs/try.md.

mod orders;
mod payments;
mod warehouse;

use std::sync::Arc;

use axum::{
    Json, Router,
    body::Bytes,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use orders::{Cancelled, Orders, Paid};
use payments::Payments;
use serde::Deserialize;
use serde_json::{Value, json};
use standardwebhooks::Webhook;
use warehouse::Warehouse;

struct Shop {
    orders: Orders,
    payments: Payments,
    warehouse: Warehouse,
    webhook: Webhook,
}

impl Shop {
    /// Lets go of what an order that is not to be paid any more has elsewhere. This can be repeated.
    async fn let_go(&self, order_no: i64) -> orders::Result<()> {
        self.payments.let_go(order_no).await?;
        self.warehouse.release(order_no).await
    }

    /// The rest of a cancellation that has begun.
    async fn finish_cancelling(&self, order_no: i64) -> orders::Result<()> {
        self.let_go(order_no).await?;
        self.orders.cancelled(order_no).await
    }
}

/// What goes wrong without anybody's fault is a 500 whose reason is in the log.
struct Failure(orders::Error);

impl From<orders::Error> for Failure {
    fn from(error: orders::Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        eprintln!("shop: {}", self.0);
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}

type Answer = Result<Response, Failure>;

fn setting(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.into())
}

#[tokio::main]
async fn main() -> Result<(), orders::Error> {
    let shop = Shop {
        orders: Orders::open("shop.db", &setting("SHOP_REDIS", "redis://127.0.0.1:6379"), setting("SHOP_PAY_WITHIN_MS", "30000").parse()?)
            .await?,
        payments: Payments::open("payments.db").await?,
        warehouse: Warehouse::open("warehouse.db").await?,
        webhook: Webhook::new(&setting("SHOP_SECRET", "whsec_c2hvcC1hbmQtb3JkZXItY2xvc2VyLWRlbW8="))?,
    };
    for order_no in shop.orders.cancelling().await? {
        shop.finish_cancelling(order_no).await?;
    }
    let router = Router::new()
        .route("/stock/{sku}", get(stock))
        .route("/orders", post(place))
        .route("/orders/{order_no}", get(order))
        .route("/orders/{order_no}/pay", post(pay))
        .route("/orders/{order_no}/cancel", post(cancel))
        .route("/provider/sessions/{order_no}/pay", post(pay_at_provider))
        .route("/provider/sessions/{order_no}/pay-without-callback", post(pay_without_callback))
        .route("/hooks/order-closed", post(order_closed))
        .route("/hooks/before-close", post(before_close))
        .route("/hooks/remind", post(remind))
        .with_state(Arc::new(shop));
    let listener = tokio::net::TcpListener::bind(setting("SHOP_LISTEN", "127.0.0.1:8080")).await?;
    eprintln!("shop: listening on {}", listener.local_addr()?);
    axum::serve(listener, router).await?;
    Ok(())
}

#[derive(Deserialize)]
struct Wish {
    sku: String,
    quantity: i64,
}

async fn stock(State(shop): State<Arc<Shop>>, Path(sku): Path<String>) -> Answer {
    Ok(Json(json!({ "sku": sku, "available": shop.warehouse.available(&sku).await? })).into_response())
}

async fn place(State(shop): State<Arc<Shop>>, Json(Wish { sku, quantity }): Json<Wish>) -> Answer {
    if quantity < 1 {
        return Ok((StatusCode::UNPROCESSABLE_ENTITY, "quantity must be positive").into_response());
    }
    // The order first: should the shop die before it has reserved anything, the order closes, and nothing is left over.
    let (order_no, expires_at) = shop.orders.place(&sku, quantity).await?;
    if !shop.warehouse.reserve(order_no, &sku, quantity).await? {
        let reason = match shop.orders.cancel(order_no).await? {
            Cancelled::Yes => {
                shop.finish_cancelling(order_no).await?;
                "sold out"
            }
            // The shop had stalled for longer than there was to pay.
            Cancelled::TooLate(_) | Cancelled::NoSuchOrder => "too late",
        };
        return Ok((StatusCode::CONFLICT, reason).into_response());
    }
    shop.payments.begin(order_no).await?;
    Ok((StatusCode::CREATED, Json(json!({ "order_no": order_no, "expires_at": expires_at }))).into_response())
}

async fn order(State(shop): State<Arc<Shop>>, Path(order_no): Path<i64>) -> Answer {
    Ok(match shop.orders.status(order_no).await? {
        Some(status) => {
            Json(json!({ "order_no": order_no, "status": status, "payment": shop.payments.state(order_no).await? })).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    })
}

/// A payment provider calls this, perhaps twice, perhaps too late.
async fn pay(State(shop): State<Arc<Shop>>, Path(order_no): Path<i64>) -> Answer {
    if shop.orders.status(order_no).await?.is_none() {
        return Ok(StatusCode::NOT_FOUND.into_response());
    }
    // What the provider has done comes first. Should the shop die now, it is the closure's event, if that is still to come, that
    // refunds the money of an order that closed; if it has come, the session had expired, and the money has gone back already.
    shop.payments.capture(order_no).await?;
    Ok(match shop.orders.pay(order_no).await? {
        Paid::Yes => Json(json!({ "paid": true })).into_response(),
        // The money has come, and the goods are gone.
        Paid::TooLate(status) => {
            shop.payments.let_go(order_no).await?;
            (StatusCode::CONFLICT, Json(json!({ "paid": false, "refund": true, "status": status }))).into_response()
        }
    })
}

/// The customer calls this: it stands for the provider's own page, which takes money until the session has expired, and then
/// calls the shop back.
async fn pay_at_provider(State(shop): State<Arc<Shop>>, Path(order_no): Path<i64>) -> Answer {
    if !shop.payments.take(order_no).await? {
        return Ok((StatusCode::CONFLICT, Json(json!({ "taken": false }))).into_response());
    }
    pay(State(shop), Path(order_no)).await?;
    Ok(Json(json!({ "taken": true })).into_response())
}

/// The same with a callback that is lost.
async fn pay_without_callback(State(shop): State<Arc<Shop>>, Path(order_no): Path<i64>) -> Answer {
    let taken = shop.payments.take(order_no).await?;
    Ok((if taken { StatusCode::OK } else { StatusCode::CONFLICT }, Json(json!({ "taken": taken }))).into_response())
}

async fn cancel(State(shop): State<Arc<Shop>>, Path(order_no): Path<i64>) -> Answer {
    Ok(match shop.orders.cancel(order_no).await? {
        Cancelled::Yes => {
            shop.finish_cancelling(order_no).await?;
            Json(json!({ "cancelled": true })).into_response()
        }
        Cancelled::TooLate(status) => (StatusCode::CONFLICT, Json(json!({ "cancelled": false, "status": status }))).into_response(),
        Cancelled::NoSuchOrder => StatusCode::NOT_FOUND.into_response(),
    })
}

/// order-closer calls this, at least once for each closure.
async fn order_closed(State(shop): State<Arc<Shop>>, headers: HeaderMap, body: Bytes) -> Answer {
    if shop.webhook.verify(&body, &headers).is_err() {
        return Ok(StatusCode::UNAUTHORIZED.into_response());
    }
    let event: Value = serde_json::from_slice(&body).unwrap_or_default();
    let order_no = event["data"]["order_id"].as_str().and_then(|id| id.parse().ok());
    let Some(order_no) = order_no else {
        return Ok(StatusCode::BAD_REQUEST.into_response());
    };
    shop.let_go(order_no).await?;
    // Anything but a 2xx, and it would come again.
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// order-closer calls this when the timer of an order is due, at least once.
async fn remind(State(shop): State<Arc<Shop>>, headers: HeaderMap, body: Bytes) -> Answer {
    if shop.webhook.verify(&body, &headers).is_err() {
        return Ok(StatusCode::UNAUTHORIZED.into_response());
    }
    let event: Value = serde_json::from_slice(&body).unwrap_or_default();
    let (id, order_no) = (event["id"].as_str(), event["data"]["key"].as_str().and_then(|key| key.parse().ok()));
    let Some((id, order_no)) = id.zip(order_no) else {
        return Ok(StatusCode::BAD_REQUEST.into_response());
    };
    if shop.orders.remind(id, order_no).await? {
        eprintln!("shop: reminding the customer of order {order_no}");
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// order-closer asks this before it closes an order. The session is expired first: from then on nobody can pay, and what the
/// provider says of it stays so.
async fn before_close(State(shop): State<Arc<Shop>>, headers: HeaderMap, body: Bytes) -> Answer {
    if shop.webhook.verify(&body, &headers).is_err() {
        return Ok(StatusCode::UNAUTHORIZED.into_response());
    }
    let question: Value = serde_json::from_slice(&body).unwrap_or_default();
    let mut answers = serde_json::Map::new();
    for id in question["orders"].as_array().into_iter().flatten().filter_map(|order| order["id"].as_str()) {
        // What is no number is none of ours, and has no answer.
        let Ok(order_no) = id.parse() else { continue };
        let paid = shop.payments.expire(order_no).await?;
        if paid {
            // Its callback is late or lost: the order is paid all the same.
            shop.orders.pay(order_no).await?;
        }
        answers.insert(id.to_owned(), if paid { "paid" } else { "close" }.into());
    }
    Ok(Json(json!({ "orders": answers })).into_response())
}
