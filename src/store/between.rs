//! Proxies between the daemon and its database.

use std::collections::BTreeSet;

/// What a session has shown of a proxy between it and its database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Between {
    /// Its name, where it has told it.
    pub proxy: Option<&'static str>,
    /// The servers that have answered what was read outside of a transaction.
    pub reads: BTreeSet<String>,
    /// The servers that have answered within one.
    pub transaction: BTreeSet<String>,
    /// Whether what was set of the session was there each time.
    pub keeps_settings: bool,
}

impl Between {
    /// Whether there is anything to tell: a name, or more than one server.
    #[must_use]
    pub fn is_seen(&self) -> bool {
        self.proxy.is_some() || !self.keeps_settings || self.transaction.len() > 1 || self.reads != self.transaction
    }
}
