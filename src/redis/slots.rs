//! Which primary of a cluster has which slots, as `CLUSTER SLOTS` says.
//!
//! Every version has that command, and it gives the port for TLS to whoever asks over TLS. (`CLUSTER SHARDS`, which came with
//! Redis 7.0, tells more and nothing that is needed here.)

use std::collections::BTreeSet;

use fred::{types::Value, util::redis_keyslot};

use crate::config::Endpoint;

/// The slots of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Slots(Vec<(u16, u16, Endpoint)>);

impl Slots {
    /// Reads what the server `asked` has answered; nothing if that is no answer to CLUSTER SLOTS.
    pub(super) fn read(answer: &Value, asked: &Endpoint) -> Option<Self> {
        let Value::Array(ranges) = answer else { return None };
        let mut slots: Vec<_> = ranges.iter().map(|range| read_range(range, asked)).collect::<Option<_>>()?;
        slots.sort_unstable();
        Some(Self(slots))
    }

    /// Who has this key, if anybody has its slot.
    pub(super) fn owner(&self, key: &str) -> Option<&Endpoint> {
        let slot = redis_keyslot(key.as_bytes());
        let range = self.0.partition_point(|(_, last, _)| *last < slot);
        self.0.get(range).filter(|(first, ..)| *first <= slot).map(|(.., owner)| owner)
    }

    /// All primaries that have slots.
    pub(super) fn primaries(&self) -> BTreeSet<&Endpoint> {
        self.0.iter().map(|(.., owner)| owner).collect()
    }
}

/// First slot, last slot, the primary, its replicas.
fn read_range(range: &Value, asked: &Endpoint) -> Option<(u16, u16, Endpoint)> {
    let Value::Array(range) = range else { return None };
    let [first, last, primary, ..] = range.as_slice() else { return None };
    let Value::Array(primary) = primary else { return None };
    let [host, port, ..] = primary.as_slice() else { return None };
    let named = |text: &Value| text.as_str().map(|text| text.to_string()).filter(|text| !matches!(text.as_str(), "" | "?"));
    // A node that is to be named by a name and has none says "?", and its address beside that.
    let beside = || if host.as_str().is_some_and(|host| host == "?") { primary.get(3).and_then(address) } else { None };
    // One that names nobody means the host where it was reached.
    let host = named(host).or_else(beside).unwrap_or_else(|| asked.host.clone());
    Some((number(first)?, number(last)?, Endpoint { host, port: number(port)? }))
}

fn number(value: &Value) -> Option<u16> {
    value.as_u64().and_then(|number| u16::try_from(number).ok())
}

/// The address among what a node says beside its preferred endpoint: a map, or its names and values in turn.
fn address(beside: &Value) -> Option<String> {
    let ip = if let Value::Map(map) = beside {
        map.iter().find(|(name, _)| name.as_str() == Some("ip")).and_then(|(_, ip)| ip.as_string())
    } else if let Value::Array(words) = beside {
        let is_ip = |pair: &&[Value]| pair[0].as_str().is_some_and(|name| name == "ip");
        words.chunks_exact(2).find(is_ip).and_then(|pair| pair[1].as_string())
    } else {
        None
    };
    ip.filter(|ip| !ip.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str, port: u16) -> Endpoint {
        Endpoint { host: host.into(), port }
    }

    fn node(host: Value, port: i64, beside: Vec<Value>) -> Value {
        Value::Array(vec![host, port.into(), "the id".into(), Value::Array(beside)])
    }

    fn slots(ranges: Vec<(i64, i64, Value)>) -> Slots {
        let replica = node("10.0.0.9".into(), 6379, vec![]);
        let range = |(first, last, primary): (i64, i64, Value)| Value::Array(vec![first.into(), last.into(), primary, replica.clone()]);
        Slots::read(&Value::Array(ranges.into_iter().map(range).collect()), &at("seed", 7000)).expect("an answer")
    }

    #[test]
    fn each_key_has_the_primary_of_its_slot() {
        let slots = slots(vec![
            (8_192, 16_383, node("10.0.0.2".into(), 7001, vec![])),
            (0, 4_095, node("10.0.0.1".into(), 7000, vec![])),
            (5_000, 8_191, node("10.0.0.1".into(), 7000, vec![])),
        ]);
        // CLUSTER KEYSLOT says 12182, 5061, 5061 and 4813 of these.
        assert_eq!(slots.owner("foo"), Some(&at("10.0.0.2", 7001)));
        assert_eq!(slots.owner("bar"), Some(&at("10.0.0.1", 7000)));
        assert_eq!(slots.owner("order_{bar}7"), Some(&at("10.0.0.1", 7000)), "a hash tag");
        assert_eq!(slots.owner("key:{nobody}4"), slots.owner("nobody"));
        assert_eq!(slots.primaries(), BTreeSet::from([&at("10.0.0.1", 7000), &at("10.0.0.2", 7001)]));
        assert_eq!(Slots::default().owner("foo"), None);
    }

    #[test]
    fn a_node_that_does_not_say_where_it_is() {
        let ip = |ip: &str| vec!["ip".into(), ip.into()];
        for (primary, host) in [
            (node("".into(), 7001, vec![]), "seed"),
            (node(Value::Null, 7001, ip("10.0.0.1")), "seed"),
            (node("?".into(), 7001, ip("10.0.0.1")), "10.0.0.1"),
            (node("?".into(), 7001, vec![]), "seed"),
            (node("redis-1.shop.test".into(), 7001, ip("10.0.0.1")), "redis-1.shop.test"),
            (node("::1".into(), 7001, vec![]), "::1"),
        ] {
            assert_eq!(slots(vec![(0, 16_383, primary)]).owner("foo"), Some(&at(host, 7001)));
        }
    }

    #[test]
    fn what_is_no_answer() {
        for answer in [Value::Null, "OK".into(), Value::Array(vec![Value::Array(vec![0.into(), 5.into()])])] {
            assert_eq!(Slots::read(&answer, &at("seed", 7000)), None);
        }
        assert_eq!(Slots::read(&Value::Array(vec![]), &at("seed", 7000)), Some(Slots::default()), "nobody has slots yet");
    }
}
