//! The server's time zone may change while we run, and with it the meaning of every deadline that has none.
//!
//! It is asked for again and again, over a connection that sets no zone, and before the first closure over each new connection.
//! While it means something else than before, nothing closes. Whoever changed it may mean it, so nothing is read anew by itself:
//! rows from before and after stand side by side in the table, and only the shop knows which is which.

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
        self.stop.run_until_cancelled(async { tokio::join!(self.ask(), self.say()) }).await;
    }

    async fn ask(&self) {
        loop {
            tokio::time::sleep(self.every).await;
            if let Err(error) = self.store.zone_changed().await {
                // Nothing is known, so nothing changes; whoever closes orders says that the database is away.
                debug!(%error, "the server's time zone could not be asked for");
            }
        }
    }

    async fn say(&self) {
        let mut halted = self.store.halted();
        loop {
            if halted.changed().await.is_err() {
                return;
            }
            match halted.borrow_and_update().as_deref() {
                Some(reason) => error!(
                    reason,
                    "closing is stopped, for deadlines without a zone would be read wrongly; set database.time_zone to the zone in which \
                     the shop writes them and start again, or set the server's time zone back"
                ),
                None => info!("the database server's time zone is what it was; closing goes on"),
            }
        }
    }
}
