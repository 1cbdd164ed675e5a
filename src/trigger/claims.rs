//! Says when two rules claim an order, which then neither closes.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info};

use crate::store::{Claim, Store, StoreError};

/// How often such an order is looked for, and for how long at the most.
const EVERY: Duration = Duration::from_secs(30);
const LIMIT: Duration = Duration::from_secs(2);

/// Looks for orders that another rule claims, too.
#[derive(Debug)]
pub struct Claims {
    /// The orders of one rule.
    pub store: Arc<dyn Store>,
    /// When to stop.
    pub stop: CancellationToken,
}

/// Looks once, within a limit: nothing also where that did not suffice.
///
/// # Errors
/// As the database says, sorted.
pub async fn claimed_twice(store: &dyn Store) -> Result<Option<Claim>, StoreError> {
    timeout(LIMIT, store.claimed_twice()).await.unwrap_or(Ok(None))
}

impl Claims {
    /// Looks again and again.
    pub async fn run(self) {
        let mut said = false;
        let looking = async {
            loop {
                let began = Instant::now();
                match claimed_twice(self.store.as_ref()).await {
                    Ok(Some(Claim { id, rule })) => {
                        said = true;
                        error!(
                            order = %id, also = %rule,
                            "two rules claim an order, and neither closes it: see that no row passes the filters of both"
                        );
                    }
                    Ok(None) if std::mem::take(&mut said) => info!("no order is claimed by two rules any more"),
                    Ok(None) => {}
                    Err(error) => debug!(%error, "whether two rules claim an order could not be asked"),
                }
                tokio::time::sleep(EVERY.max(began.elapsed() * 9)).await;
            }
        };
        self.stop.run_until_cancelled(looking).await;
    }
}
