//! Says before the first sweep what it will close, and what it leaves alone.

use std::time::Duration;

use tracing::{debug, info, warn};

use crate::{
    order::rfc3339,
    store::{Counted, Store, StoreError, Window},
};

/// What has been overdue for so long that it is left alone. Nothing if whatever is overdue closes.
///
/// # Errors
/// As the database says, sorted.
pub async fn left_alone(store: &dyn Store, oldest: Option<Duration>) -> Result<Counted, StoreError> {
    match oldest {
        Some(oldest) => store.count(Window::older(oldest)).await,
        None => Ok(Counted::default()),
    }
}

/// Since when, for people.
#[must_use]
pub fn since(counted: &Counted) -> String {
    counted.since.map_or_else(String::new, rfc3339)
}

/// Says it in the log.
pub(super) async fn say(store: &dyn Store, oldest: Option<Duration>) {
    let counted = async { Ok::<_, StoreError>((store.count(Window::overdue(oldest)).await?, left_alone(store, oldest).await?)) };
    match counted.await {
        Ok((overdue, older)) => {
            if overdue.orders > 0 {
                info!(orders = overdue.orders, since = since(&overdue), "orders are overdue, and will be closed now");
            }
            if older.orders > 0 {
                warn!(
                    orders = older.orders,
                    since = since(&older),
                    fix = "order-closer reconcile --oldest none",
                    "orders have been overdue for longer than sweep.oldest, and are left alone; reconcile closes them"
                );
            }
        }
        Err(error) => debug!(%error, "what is overdue could not be counted"),
    }
}
