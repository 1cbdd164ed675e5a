//! Who carries events to one target: a thread of its own.
//!
//! What an endpoint sends may keep the thread that reads it busy for ever: `103 Early Hints` without end, say, which the
//! HTTP client passes over. That thread is nobody else's, yields the processor to those that close orders, and what takes
//! longer than it may is given up from outside.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use tokio::runtime::{Builder, Runtime};

use super::{Answer, Target, audit::Event};

/// How much longer than a target's own time limit a delivery is waited for.
const GRACE: Duration = Duration::from_secs(1);

/// A target, and the thread that talks to it.
pub struct Courier {
    target: Arc<dyn Target>,
    /// Always there, but while it is dropped.
    runtime: Option<Runtime>,
}

impl fmt::Debug for Courier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Courier").field(&self.target).finish()
    }
}

impl Courier {
    /// Makes the target on a thread of its own, so that its connections belong there.
    ///
    /// # Errors
    /// Says why there can be no thread, or what the target says.
    pub fn of<T: Target + 'static, E: fmt::Display>(make: impl FnOnce() -> Result<T, E>) -> Result<Self, String> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("courier")
            .on_thread_start(yield_to_others)
            .enable_all()
            .build()
            .map_err(|error| format!("a thread for events can't start: {error}"))?;
        let target = {
            let _its_own = runtime.enter();
            Arc::new(make().map_err(|error| error.to_string())?)
        };
        Ok(Self { target, runtime: Some(runtime) })
    }

    /// The target.
    #[must_use]
    pub fn target(&self) -> &dyn Target {
        self.target.as_ref()
    }

    /// Delivers an event, on the target's own thread.
    pub(super) fn deliver(&self, event: Arc<Event>) -> impl Future<Output = Answer> + Send + 'static + use<> {
        let (target, limit) = (Arc::clone(&self.target), self.target.timeout() + GRACE);
        let delivery = self.runtime.as_ref().map(|runtime| runtime.spawn(async move { target.deliver(&event).await }));
        async move {
            let Some(mut delivery) = delivery else { return Answer::failed("stopped") };
            match tokio::time::timeout(limit, &mut delivery).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(error)) => Answer::failed(format!("a bug: {error}")),
                Err(_) => {
                    delivery.abort();
                    Answer::failed(format!("no whole answer within {}", humantime::format_duration(limit)))
                }
            }
        }
    }
}

impl Drop for Courier {
    fn drop(&mut self) {
        // It may be busy with what it will never finish.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Gives this thread less of a busy processor than others have.
fn yield_to_others() {
    // Elsewhere it would be the whole process.
    #[cfg(target_os = "linux")]
    rustix::process::setpriority_process(None, 10).ok();
}
