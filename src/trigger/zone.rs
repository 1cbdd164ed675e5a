//! The server's time zone may change while we run, and with it the meaning of every deadline that has none.
//!
//! It is asked for again and again, over a connection that sets no zone. While it means something else than when the daemon
//! started, nothing closes. Whoever changed it may mean it, so nothing is read anew by itself: rows from before and after
//! stand side by side in the table, and only the shop knows which is which.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info};

use crate::store::Store;

/// Asks for the server's zone.
#[derive(Debug)]
pub struct ZoneWatch {
    /// The orders, whose closing is stopped.
    pub store: Arc<dyn Store>,
    /// How often to ask.
    pub every: Duration,
    /// Ends it.
    pub stop: CancellationToken,
}

impl ZoneWatch {
    /// Asks until it is stopped.
    pub async fn run(self) {
        let mut known = None;
        while self.stop.run_until_cancelled(tokio::time::sleep(self.every)).await.is_some() {
            match self.store.zone_changed().await {
                Ok(changed) if changed == known => {}
                Ok(changed) => {
                    match &changed {
                        Some(reason) => error!(
                            reason,
                            "closing is stopped, for deadlines without a zone would be read wrongly; set database.time_zone to the zone in which \
                             the shop writes them and start again, or set the server's time zone back"
                        ),
                        None => info!("the database server's time zone is what it was; closing goes on"),
                    }
                    self.store.halt(changed.as_ref().map(|reason| format!("{reason}: set database.time_zone")));
                    known = changed;
                }
                // Nothing is known, so nothing changes; whoever closes orders says that the database is away.
                Err(error) => debug!(%error, "the server's time zone could not be asked for"),
            }
        }
    }
}
