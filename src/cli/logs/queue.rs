//! Lines on their way to standard error. Whoever logs never waits for whoever reads.
//!
//! A thread of its own writes what is queued. While it can't, because nobody reads the other end of a pipe, the queue grows to
//! its limit; what comes then is dropped and counted, and once there is room again the log itself says how many lines are
//! missing. At the end what is queued is written, as far as that is possible within a time limit.

use std::{
    collections::VecDeque,
    fmt,
    io::{self, Write},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tracing::warn;
use tracing_subscriber::fmt::MakeWriter;

use crate::metric;

/// How many bytes may wait.
const LIMIT: usize = 1 << 20;

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    dropped: u64,
    /// A line has been taken and is not yet written.
    writing: bool,
}

/// The lines that wait to be written.
#[derive(Debug, Clone, Default)]
pub(super) struct Queue {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    arrived: Condvar,
    written: Condvar,
}

impl Queue {
    /// A queue whose lines go to this writer, for as long as the process lives.
    ///
    /// # Errors
    /// The operating system has no thread for it.
    pub(super) fn before(writer: impl Write + Send + 'static) -> io::Result<Self> {
        let queue = Self::default();
        let writing = queue.clone();
        std::thread::Builder::new().name("log".into()).spawn(move || writing.write_to(writer))?;
        Ok(queue)
    }

    fn write_to(&self, mut writer: impl Write) {
        loop {
            let line = self.next();
            // That standard error takes nothing can be told to nobody.
            writer.write_all(&line).and_then(|()| writer.flush()).ok();
            let dropped = {
                let mut state = self.lock();
                state.writing = false;
                self.shared.written.notify_all();
                std::mem::take(&mut state.dropped)
            };
            if dropped > 0 {
                metric::LOG_DROPPED.add(dropped, &[]);
                warn!(lines = dropped, "lines of this log were dropped, for nobody read it");
            }
        }
    }

    fn next(&self) -> Vec<u8> {
        let mut state = self.lock();
        loop {
            if let Some(line) = state.lines.pop_front() {
                state.bytes -= line.len();
                state.writing = true;
                return line;
            }
            state = self.shared.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn push(&self, line: Vec<u8>) {
        let mut state = self.lock();
        if state.bytes + line.len() > LIMIT {
            state.dropped += 1;
            return;
        }
        state.bytes += line.len();
        state.lines.push_back(line);
        drop(state);
        self.shared.arrived.notify_one();
    }

    /// Waits until all is written, but no longer than this.
    pub(super) fn flush(&self, limit: Duration) {
        let unwritten = |state: &mut State| state.writing || !state.lines.is_empty();
        let waited = self.shared.written.wait_timeout_while(self.lock(), limit, unwritten);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One line while it is formatted.
pub(super) struct Line<'q> {
    queue: &'q Queue,
    text: Vec<u8>,
}

impl fmt::Debug for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("bytes", &self.text.len()).finish_non_exhaustive()
    }
}

impl Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        if !self.text.is_empty() {
            self.queue.push(std::mem::take(&mut self.text));
        }
    }
}

impl<'q> MakeWriter<'q> for Queue {
    type Writer = Line<'q>;

    fn make_writer(&'q self) -> Line<'q> {
        Line { queue: self, text: Vec::new() }
    }
}
