//! The signals that end the daemon, and the one on which it reads its configuration anew.

use std::{
    io,
    time::{Duration, Instant},
};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// A signal that follows another so soon is its echo: `timeout`, for one, sends it to a process and to its whole group.
const ECHO: Duration = Duration::from_millis(200);

/// SIGTERM and SIGINT.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    last: Option<Instant>,
}

impl Signals {
    /// Begins to listen.
    ///
    /// # Errors
    /// As the operating system says.
    pub fn new() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())?, last: None })
    }

    /// Waits for a signal that is no echo of the one before.
    pub async fn next(&mut self) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => {}
                _ = self.interrupt.recv() => {}
            }
            if self.last.is_none_or(|last| last.elapsed() > ECHO) {
                self.last = Some(Instant::now());
                return;
            }
        }
    }
}

/// SIGHUP.
#[derive(Debug)]
pub struct Hangups(Signal);

impl Hangups {
    /// Begins to listen: from now on that signal ends nothing.
    ///
    /// # Errors
    /// As the operating system says.
    pub fn new() -> io::Result<Self> {
        Ok(Self(signal(SignalKind::hangup())?))
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}
