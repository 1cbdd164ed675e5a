//! A thread of its own for whatever talks to one server, which may do anything.
//!
//! What a server sends may keep the thread that reads it busy for ever: `103 Early Hints` without end, say, which the
//! HTTP client passes over. That thread is nobody else's, yields the processor to those that close orders, and what takes
//! longer than it may is given up from outside.

use std::{fmt, future::Future, time::Duration};

use tokio::runtime::{Builder, Runtime};

/// How much longer than its own time limit something is waited for.
const GRACE: Duration = Duration::from_secs(1);

/// Why nothing came of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// The thread has stopped.
    #[error("stopped")]
    Stopped,
    /// It has panicked.
    #[error("a bug: {0}")]
    Bug(String),
    /// It took longer than it may.
    #[error("no whole answer within {}", humantime::format_duration(*.0))]
    Late(Duration),
}

/// The thread.
pub struct Apart {
    /// Always there, but while it is dropped.
    runtime: Option<Runtime>,
}

impl fmt::Debug for Apart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Apart").finish_non_exhaustive()
    }
}

impl Apart {
    /// A thread of this name.
    ///
    /// # Errors
    /// Says why there can be none.
    pub fn new(name: &str) -> Result<Self, String> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name(name)
            .on_thread_start(yield_to_others)
            .enable_all()
            .build()
            .map_err(|error| format!("the thread {name} can't start: {error}"))?;
        Ok(Self { runtime: Some(runtime) })
    }

    /// Makes something there, so that its connections belong there.
    pub fn make<T>(&self, make: impl FnOnce() -> T) -> T {
        let _its_own = self.runtime.as_ref().map(Runtime::enter);
        make()
    }

    /// Runs it there, and waits hardly longer for it than `limit`, which it should keep by itself.
    pub fn run<T: Send + 'static, W: Future<Output = T> + Send + 'static>(
        &self,
        limit: Duration,
        work: W,
    ) -> impl Future<Output = Result<T, NoAnswer>> + Send + 'static + use<T, W> {
        let running = self.runtime.as_ref().map(|runtime| runtime.spawn(work));
        let limit = limit.saturating_add(GRACE);
        async move {
            let Some(mut running) = running else { return Err(NoAnswer::Stopped) };
            match tokio::time::timeout(limit, &mut running).await {
                Ok(Ok(done)) => Ok(done),
                Ok(Err(error)) => Err(NoAnswer::Bug(error.to_string())),
                Err(_) => {
                    running.abort();
                    Err(NoAnswer::Late(limit))
                }
            }
        }
    }
}

impl Drop for Apart {
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
