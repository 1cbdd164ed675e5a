//! Who carries events to one target: on a thread of its own, since a target may do anything to the thread that reads its
//! answers.

use std::{fmt, sync::Arc};

use futures::future::BoxFuture;

use super::{Answer, Target, audit::Event};
use crate::webhook::Apart;

/// A target, and the thread that talks to it.
#[derive(Debug)]
pub struct Courier {
    target: Arc<dyn Target>,
    /// None where whoever asks is on a thread on which time may stand still.
    thread: Option<Apart>,
}

impl Courier {
    /// Makes the target on a thread of its own, so that its connections belong there.
    ///
    /// # Errors
    /// Says why there can be no thread, or what the target says.
    pub fn of<T: Target + 'static, E: fmt::Display>(make: impl FnOnce() -> Result<T, E>) -> Result<Self, String> {
        let thread = Apart::new("courier")?;
        let target = Arc::new(thread.make(make).map_err(|error| error.to_string())?);
        Ok(Self { target, thread: Some(thread) })
    }

    /// One on the thread of whoever asks.
    #[cfg(test)]
    pub(crate) fn here(target: Arc<dyn Target>) -> Self {
        Self { target, thread: None }
    }

    /// The target.
    #[must_use]
    pub fn target(&self) -> &dyn Target {
        self.target.as_ref()
    }

    /// Delivers an event, on the target's own thread.
    pub(super) fn deliver(&self, event: Arc<Event>) -> BoxFuture<'static, Answer> {
        let target = Arc::clone(&self.target);
        let delivery = async move { target.deliver(&event).await };
        let Some(thread) = &self.thread else { return Box::pin(delivery) };
        let delivery = thread.run(self.target.timeout(), delivery);
        Box::pin(async move { delivery.await.unwrap_or_else(|why| Answer::failed(why.to_string())) })
    }
}
