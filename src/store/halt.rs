//! A switch that stops closing while something other than the database itself forbids it.

use tokio::sync::watch;

use crate::store::StoreError;

/// Why nothing may be closed at the moment, if that is so.
#[derive(Debug)]
pub(super) struct Halt(watch::Sender<Option<String>>);

impl Default for Halt {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl Halt {
    pub(super) fn set(&self, reason: Option<String>) {
        self.0.send_if_modified(|before| std::mem::replace(before, reason.clone()) != reason);
    }

    pub(super) fn watch(&self) -> watch::Receiver<Option<String>> {
        self.0.subscribe()
    }

    /// Lets a transaction begin.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`], for which workers wait, while closing is stopped.
    pub(super) fn pass(&self) -> Result<(), StoreError> {
        self.0.borrow().clone().map_or(Ok(()), |reason| Err(StoreError::Unavailable(reason)))
    }
}
