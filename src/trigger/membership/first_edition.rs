//! Daemons of the first edition, which see no others than their own kind.
//!
//! They keep their heartbeats in a hash of another name. It is only read, to say that one of them runs: it tries every order,
//! and so does each of ours what is its own, and row locks keep them apart.

use std::{collections::HashMap, time::Duration};

use tokio::time::sleep;
use tracing::warn;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    config::{Database, DatabaseUrl, Rule, Status},
    redis::{Commands, RedisError},
};

/// Longer than it takes between two of their heartbeats.
const BEAT: Duration = Duration::from_millis(800);

/// Whether a daemon of the first edition closes a rule's orders in this database: looks at two moments between which it would have
/// changed its heartbeat.
///
/// # Errors
/// As Redis says.
pub async fn first_edition_lives(rule: &Rule, database: &Database, commands: &Commands) -> Result<bool, RedisError> {
    let mut older = FirstEdition::new(rule, database);
    let fields = commands.fields(&older.key).await?;
    if fields.is_empty() {
        return Ok(false);
    }
    older.lives(fields);
    sleep(BEAT).await;
    Ok(older.lives(commands.fields(&older.key).await?))
}

/// Daemons of the first edition that close the same orders.
#[derive(Debug)]
pub(super) struct FirstEdition {
    pub(super) key: String,
    seen: Option<HashMap<String, String>>,
    said: bool,
    /// How often nothing had changed since.
    silent: u32,
}

impl FirstEdition {
    pub(super) fn new(rule: &Rule, database: &Database) -> Self {
        Self { key: format!("order-closer:{}", group(rule, database)), seen: None, said: false, silent: 0 }
    }

    /// Whether there are heartbeats of which it is not known yet whether they are of the living.
    pub(super) fn is_suspect(&self) -> bool {
        !self.said && self.seen.as_ref().is_some_and(|fields| !fields.is_empty())
    }

    /// Takes in what their hash has, and says once that one of them lives.
    pub(super) fn learn(&mut self, fields: HashMap<String, String>) {
        if self.lives(fields) {
            self.silent = 0;
            if !std::mem::replace(&mut self.said, true) {
                warn!(
                    key = self.key,
                    "a daemon of the first edition closes orders of this table, too: it asks nobody before that, honours neither pause nor \
                     dispute, and shares no work with this one; upgrade it, or stop it"
                );
            }
        } else {
            // Two looks may fall between two heartbeats.
            self.silent += 1;
            self.said &= self.silent < 2;
        }
    }

    /// Whether a field has changed.
    fn lives(&mut self, fields: HashMap<String, String>) -> bool {
        let before = self.seen.replace(fields);
        let (Some(before), Some(now)) = (before, &self.seen) else { return false };
        now.iter().any(|(name, value)| before.get(name).is_some_and(|was| was != value))
    }
}

/// The name that the first edition gives to its group: the hash of a text as that edition's own parts were printed.
fn group(rule: &Rule, database: &Database) -> String {
    let Rule { table, id, status, deadline, filter, .. } = rule;
    let Database { url, url_file: _, time_zone, timeout: _, connections: _ } = database;
    let prefix = String::from(rule.key_prefix.clone());
    let text = url.in_first_edition();
    let local = matches!(url, DatabaseUrl::Sqlite(_)) || ["localhost", "127.", "[::1]", "host=/"].iter().any(|part| text.contains(part));
    let host = if local { gethostname::gethostname().to_string_lossy().into_owned() } else { String::new() };
    let mut unpaid: Vec<String> = rule.unpaid.iter().map(Status::text).collect();
    unpaid.sort_unstable();
    let whole = format!("{:?}", (host, text, time_zone, table, id, status, unpaid, deadline, filter, &prefix));
    format!("{:016x}", xxh3_64(whole.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn older(config: &Config) -> FirstEdition {
        FirstEdition::new(&Rule::of(config), &config.database)
    }

    fn fields(fields: &[(&str, &str)]) -> HashMap<String, String> {
        fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    /// As a daemon of that edition with these settings has called its hash.
    #[test]
    fn the_name_of_their_hash_stays() {
        let config = toml::from_str(
            "[redis]\nkey_prefix = 'pay:'\n\
             [database]\nurl = 'postgres://postgres@0x7f000001:39999/postgres'\ntime_zone = '+08:00'\n\
             [orders]\ntable = 'public.orders'\nunpaid = [0, 3]\nfilter = 'order_no > 0'\n\
             deadline = { column = 'expires_at', plus = '30m' }",
        );
        let config: Config = config.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(older(&config).key, "order-closer:4bc1f3a4faa2ac42");
    }

    #[test]
    fn one_lives_whose_field_changes() {
        let mut older = older(&Config::default());
        assert!(!older.lives(fields(&[("a", "1 ")])), "it may be a dead one's");
        assert!(!older.lives(fields(&[("a", "1 ")])));
        assert!(!older.lives(fields(&[("a", "1 "), ("b", "7 ")])), "seen for the first time");
        assert!(older.lives(fields(&[("a", "1 "), ("b", "27 busy")])));
        assert!(!older.lives(fields(&[])));
        assert!(!older.lives(fields(&[("b", "8 ")])));
    }
}
