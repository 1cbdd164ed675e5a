//! Settings that may change while the daemon runs.

use tokio::sync::watch;

/// A setting as it is now. Clones see the same changes.
#[derive(Debug, Clone)]
pub struct Live<T>(watch::Receiver<T>);

impl<T: Clone> Live<T> {
    /// A setting, and the hand that changes it.
    #[must_use]
    pub fn new(value: T) -> (watch::Sender<T>, Self) {
        let (hand, live) = watch::channel(value);
        (hand, Self(live))
    }

    /// What it is now.
    #[must_use]
    pub fn get(&self) -> T {
        self.0.borrow().clone()
    }

    /// Waits until it has changed since the last call of this.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            // Nobody is left to change it.
            std::future::pending::<()>().await;
        }
    }
}
