//! What keeps every order from being closed, said once and not by each worker about each batch.

use std::sync::{Mutex, PoisonError};

use tracing::{error, info, warn};

use crate::store::StoreError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It passes by itself.
    Away,
    /// Somebody has to mend something.
    Refused,
}

/// The trouble that all workers are in.
#[derive(Debug, Default)]
pub struct Trouble(Mutex<Option<Kind>>);

impl Trouble {
    /// Nothing can be closed, `orders` among it, because of this.
    pub(super) fn begin(&self, orders: usize, fault: &StoreError) {
        let kind = if matches!(fault, StoreError::Rejected(_)) { Kind::Refused } else { Kind::Away };
        if self.replace(Some(kind)) == Some(kind) {
            return;
        }
        match kind {
            Kind::Away => warn!(orders, reason = %fault, "database unavailable; waiting for it"),
            Kind::Refused => error!(
                orders, reason = %fault,
                "no order can be closed, and all are tried again until that is mended: a table, a column, a right, a trigger, or close.sql"
            ),
        }
    }

    /// Orders can be closed.
    pub(super) fn end(&self) {
        if self.replace(None).is_some() {
            info!("database available again");
        }
    }

    fn replace(&self, kind: Option<Kind>) -> Option<Kind> {
        std::mem::replace(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner), kind)
    }
}
