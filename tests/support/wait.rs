//! Waiting until a condition holds, never for a length of time.

use std::{
    fmt::Debug,
    time::{Duration, Instant},
};

/// How long a condition may take on a machine that is busy with other things.
pub const LIMIT: Duration = Duration::from_secs(60);

const PAUSE: Duration = Duration::from_millis(5);

/// Waits until `condition` holds.
pub async fn until(what: &str, condition: impl AsyncFnMut() -> bool) {
    within(LIMIT, what, condition).await;
}

/// Waits until `condition` holds, at most `limit`.
pub async fn within(limit: Duration, what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !condition().await {
        assert!(started.elapsed() < limit, "waited {limit:?} in vain until {what}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Waits until `read` returns `expected`; a failure shows what it returned last.
pub async fn until_eq<T: PartialEq + Debug>(what: &str, expected: T, mut read: impl AsyncFnMut() -> T) {
    let started = Instant::now();
    loop {
        let found = read().await;
        if found == expected {
            return;
        }
        assert!(started.elapsed() < LIMIT, "waited {LIMIT:?} in vain until {what} is {expected:?}; it is {found:?}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Waits until `read` returns something.
pub async fn some<T>(what: &str, mut read: impl AsyncFnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = read().await {
            return found;
        }
        assert!(started.elapsed() < LIMIT, "waited {LIMIT:?} in vain until {what}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Waits until `condition` holds or has become impossible, blocking the thread: for servers that start.
pub fn blocking(what: &str, mut condition: impl FnMut() -> Result<bool, String>) -> Result<(), String> {
    let started = Instant::now();
    while !condition()? {
        if started.elapsed() > LIMIT {
            return Err(format!("waited {LIMIT:?} in vain until {what}"));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}
