//! What an instance says of itself twice a second, as text.
//!
//! ```text
//! order-closer:3:5f3a9c0d1e2b4a68              a hash: one for each group of instances; 3 is the format
//!   0b8f6c1e-…-9d2c  ->  beat=17 fit=yes busy=no sign=8c1d0a7b3e5f9624
//! ```
//!
//! The field is the instance's name, drawn anew at each start. `beat` counts up; `fit` says that it closes what is its own;
//! `busy` that it has more than that to do and gets on with it. Fields of other names are passed over, so later versions may
//! add some; they stand before `sign`. A text without one of these four is no heartbeat.
//!
//! `sign` is the beginning of an HMAC-SHA-256 of the name, a blank and all that stands before ` sign=`. Its key is what the
//! group has in common, the database's own identity among it: nobody who can only write to Redis makes anybody wait.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::config::{Rule, Status, TimeZone};

/// What the hash is called before its group's own part; the number goes up when readers of the format before could not
/// read it any more, or divide the orders otherwise.
const KEY: &str = "order-closer:3:";

/// How much of a keyed hash is written, in bytes.
const SHORT: usize = 8;

/// What instances have in common that close the same orders.
#[derive(Debug, Clone)]
pub(super) struct Group {
    /// Has taken in all that decides which orders these are, and when they are due.
    mac: Hmac<Sha256>,
    /// The key of its hash in Redis.
    key: String,
}

impl Group {
    /// The group of those who have this rule, and read times in this zone, in the database with this identity.
    pub(super) fn of(rule: &Rule, zone: Option<&TimeZone>, identity: &str) -> Self {
        let mut unpaid: Vec<String> = rule.unpaid.iter().map(Status::text).collect();
        unpaid.sort_unstable();
        let text = serde_json::json!([
            identity,
            zone.map(ToString::to_string),
            // The shards of a rule in one database are closed together.
            rule.name.shard().map_or_else(|| rule.table.to_string(), |_| format!("{} in shards", rule.name)),
            rule.id.as_str(),
            rule.status.as_str(),
            unpaid,
            rule.deadline.column.as_str(),
            rule.deadline.plus.map(|plus| plus.get().as_micros().to_string()),
            rule.deadline.unit.map(|unit| unit.micros()),
            rule.filter,
            String::from(rule.key_prefix.clone()),
        ]);
        Self::with_text(&text.to_string())
    }

    fn with_text(text: &str) -> Self {
        // Fails for no length of key.
        let mac = Hmac::new_from_slice(text.as_bytes()).unwrap_or_else(|error| unreachable!("{error}"));
        let group = Self { mac, key: String::new() };
        Self { key: format!("{KEY}{}", group.keyed_hash("key")), ..group }
    }

    /// The key of its hash in Redis.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    fn keyed_hash(&self, text: &str) -> String {
        let hash = self.mac.clone().chain_update(text).finalize().into_bytes();
        let short = hash.iter().take(SHORT).fold(0_u64, |short, byte| (short << 8) | u64::from(*byte));
        format!("{short:016x}")
    }
}

/// One heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Heartbeat {
    /// Which one since the start.
    pub(super) beat: u64,
    /// Whether its instance closes what is its own.
    pub(super) fit: bool,
    /// Whether its instance has more to do than that, and gets on with it.
    pub(super) busy: bool,
}

impl Heartbeat {
    /// Its text, signed.
    pub(super) fn written(self, name: &str, group: &Group) -> String {
        let word = |so| if so { "yes" } else { "no" };
        let said = format!("beat={} fit={} busy={}", self.beat, word(self.fit), word(self.busy));
        let sign = group.keyed_hash(&format!("{name} {said}"));
        format!("{said} sign={sign}")
    }

    /// Reads it, if somebody of the group has written it.
    pub(super) fn read(text: &str, name: &str, group: &Group) -> Option<Self> {
        let (said, sign) = text.rsplit_once(" sign=")?;
        if sign != group.keyed_hash(&format!("{name} {said}")) {
            return None;
        }
        let value =
            |wanted| said.split(' ').filter_map(|field| field.split_once('=')).find(|(name, _)| *name == wanted).map(|(_, value)| value);
        Some(Self { beat: value("beat")?.parse().ok()?, fit: value("fit")? == "yes", busy: value("busy")? == "yes" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn group(identity: &str) -> Group {
        Group::of(&Rule::of(&Config::default()), None, identity)
    }

    /// Other versions read it as it stands here.
    #[test]
    fn the_format_stays() {
        let group = Group::with_text("[\"a group\"]");
        let said = Heartbeat { beat: 17, fit: true, busy: false };
        assert_eq!(group.key(), "order-closer:3:2b1323447c5a1c90");
        assert_eq!(said.written("a-name", &group), "beat=17 fit=yes busy=no sign=094473a7608a884f");
    }

    #[test]
    fn what_is_written_is_read() {
        let group = group("a database");
        for (beat, fit, busy) in [(0, true, false), (u64::MAX, false, true), (7, true, true), (8, false, false)] {
            let said = Heartbeat { beat, fit, busy };
            assert_eq!(Heartbeat::read(&said.written("a-name", &group), "a-name", &group), Some(said));
        }
    }

    #[test]
    fn fields_of_later_versions_are_passed_over() {
        let group = group("a database");
        let said = "version=9.1 beat=3 fit=yes paused=no busy=yes load=0.4";
        let text = format!("{said} sign={}", group.keyed_hash(&format!("a-name {said}")));
        assert_eq!(Heartbeat::read(&text, "a-name", &group), Some(Heartbeat { beat: 3, fit: true, busy: true }));
    }

    #[test]
    fn what_the_group_has_not_written_is_no_heartbeat() {
        let (group, other) = (group("a database"), group("another"));
        let text = Heartbeat { beat: 3, fit: true, busy: true }.written("a-name", &group);
        assert_eq!(Heartbeat::read(&text, "another-name", &group), None);
        assert_eq!(Heartbeat::read(&text, "a-name", &other), None);
        assert_eq!(Heartbeat::read(&text.replace("beat=3", "beat=4"), "a-name", &group), None);
        for forged in ["", "busy", "3 busy", "beat=3 fit=yes busy=yes", "beat=3 fit=yes busy=yes sign=", "sign=sign= sign="] {
            assert_eq!(Heartbeat::read(forged, "a-name", &group), None, "{forged:?}");
        }
        let said = "beat=many fit=yes busy=yes";
        let text = format!("{said} sign={}", group.keyed_hash(&format!("a-name {said}")));
        assert_eq!(Heartbeat::read(&text, "a-name", &group), None, "no count");
    }
}
