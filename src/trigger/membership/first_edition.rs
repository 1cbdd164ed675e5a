//! Daemons of the first edition, which see no others than their own kind.
//!
//! They keep their heartbeats in a hash of another name. It is only read, to say that one of them runs: it tries every order,
//! and so does each of ours what is its own, and row locks keep them apart.

use std::collections::HashMap;

use tracing::warn;
use xxhash_rust::xxh3::xxh3_64;

use crate::config::{Config, Database, DatabaseUrl, Orders, Status};

/// Daemons of the first edition that close the same orders.
#[derive(Debug)]
pub(super) struct FirstEdition {
    pub(super) key: String,
    seen: Option<HashMap<String, String>>,
    said: bool,
}

impl FirstEdition {
    pub(super) fn new(config: &Config) -> Self {
        Self { key: format!("order-closer:{}", group(config)), seen: None, said: false }
    }

    /// Takes in what their hash has, at least a heartbeat after the last time, and says once that one of them lives.
    pub(super) fn learn(&mut self, fields: HashMap<String, String>) {
        let lives = self.lives(fields);
        if lives && !self.said {
            warn!(
                key = self.key,
                "an older version of order-closer closes orders of this table, too: it shares no work with this one, and knows nothing of what \
                 this one waits for; upgrade it, or stop it"
            );
        }
        self.said = lives;
    }

    /// Whether a field has changed.
    fn lives(&mut self, fields: HashMap<String, String>) -> bool {
        let before = self.seen.replace(fields);
        let (Some(before), Some(now)) = (before, &self.seen) else { return false };
        now.iter().any(|(name, value)| before.get(name).is_some_and(|was| was != value))
    }
}

/// The name that the first edition gives to its group: the hash of a text as that edition's own parts were printed.
fn group(config: &Config) -> String {
    let Orders { table, id, status, unpaid, deadline, filter, closed: _, set: _, disputed: _ } = &config.orders;
    let Database { url, time_zone, timeout: _ } = &config.database;
    let text = url.in_first_edition();
    let local = matches!(url, DatabaseUrl::Sqlite(_)) || ["localhost", "127.", "[::1]", "host=/"].iter().any(|part| text.contains(part));
    let host = if local { gethostname::gethostname().to_string_lossy().into_owned() } else { String::new() };
    let mut unpaid: Vec<String> = unpaid.get().iter().map(Status::text).collect();
    unpaid.sort_unstable();
    let whole = format!("{:?}", (host, text, time_zone, table, id, status, unpaid, deadline, filter, &config.redis.key_prefix));
    format!("{:016x}", xxh3_64(whole.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(fields: &[(&str, &str)]) -> HashMap<String, String> {
        fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn one_lives_whose_field_changes() {
        let mut older = FirstEdition::new(&Config::default());
        assert!(!older.lives(fields(&[("a", "1 ")])), "it may be a dead one's");
        assert!(!older.lives(fields(&[("a", "1 ")])));
        assert!(!older.lives(fields(&[("a", "1 "), ("b", "7 ")])), "seen for the first time");
        assert!(older.lives(fields(&[("a", "1 "), ("b", "27 busy")])));
        assert!(!older.lives(fields(&[])));
        assert!(!older.lives(fields(&[("b", "8 ")])));
    }
}
