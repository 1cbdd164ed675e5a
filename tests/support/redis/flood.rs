//! Notifications by the thousand that Redis itself has never sent.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use super::client::Connection;

/// So often in a second some are published.
const TICKS: u32 = 100;

/// A flood of forged notifications, over a connection of its own; dropping it ends it.
#[derive(Debug)]
pub struct Flood {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<usize>>,
}

impl Flood {
    /// Publishes that the keys of these orders have expired, one after the other and again, so many a second.
    pub(super) fn begin(port: u16, numbers: Range<usize>, per_second: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut connection = Connection::open(port).expect("Redis can be reached");
            let mut keys = numbers.cycle().map(|number| format!("order_{number}"));
            let (mut published, mut due) = (0, Instant::now());
            while !told.load(Ordering::SeqCst) {
                let some: Vec<String> = keys.by_ref().take((per_second / TICKS) as usize).collect();
                let commands: Vec<Vec<&[u8]>> =
                    some.iter().map(|key| vec![b"PUBLISH".as_slice(), b"__keyevent@0__:expired", key.as_bytes()]).collect();
                connection.run(&commands).expect("Redis takes them");
                published += some.len();
                due += Duration::from_secs(1) / TICKS;
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            published
        });
        Self { stop, thread: Some(thread) }
    }

    /// Ends it; returns how many there were.
    pub fn end(mut self) -> usize {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.take().map_or(0, |thread| thread.join().expect("the flood ends"))
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}
