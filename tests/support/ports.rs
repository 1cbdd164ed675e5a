//! Ports that nobody uses.

use std::{
    collections::BTreeSet,
    net::TcpListener,
    ops::Range,
    sync::{Mutex, PoisonError},
};

use rand::Rng;

/// Below the ports that the kernel gives to outgoing connections. A client that keeps dialling a stopped
/// server on one of *those* is sooner or later connected to itself, and a restarted server finds its
/// port taken.
const RANGE: Range<u16> = 12_000..32_000;

static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A port of the loopback interface on which nothing listens, and that this process gives out only once.
pub fn free() -> u16 {
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let port = rand::rng().random_range(RANGE);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() && given.insert(port) {
            return port;
        }
    }
}

/// Starts a server on a free port; tries others when somebody else was faster.
pub fn with_free<T>(what: &str, mut start: impl FnMut(u16) -> Result<T, String>) -> T {
    let mut failures = Vec::new();
    for _ in 0..5 {
        let port = free();
        match start(port) {
            Ok(server) => return server,
            Err(failure) => failures.push(format!("on port {port}: {failure}")),
        }
    }
    panic!("{what} does not start:\n{}", failures.join("\n"));
}
