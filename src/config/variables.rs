//! The environment, as a source of settings: `ORDER_CLOSER_` before a setting's name, two underscores for each dot.
//!
//! An empty variable counts as one that is not set.

use std::{convert::Infallible, env, ffi::OsStr, fmt};

use figment::{
    Metadata, Profile, Provider,
    util::nest,
    value::{Dict, Map, Value},
};

use super::{rules, schema};

const PREFIX: &str = "ORDER_CLOSER_";

/// Text settings, and all below `orders.set`: their variables are taken as they are, so that a prefix `007` keeps its zeros.
const TEXT: [&str; 24] = [
    "redis.url",
    "redis.url_file",
    "redis.ca_file",
    "redis.key_prefix",
    "database.url",
    "database.url_file",
    "database.time_zone",
    "orders.table",
    "orders.id",
    "orders.status",
    "orders.deadline.column",
    "orders.filter",
    "close.ask.url",
    "close.ask.url_file",
    "close.ask.ca_file",
    "events.source",
    "events.traceparent",
    "events.stream.key",
    "http.listen",
    "http.token",
    "http.token_file",
    "log.level",
    "timers.intake",
    "timers.stream.key",
];

/// Whether Kubernetes sets a variable of this name for a Service `order-closer`, or `order-closer-redis`: its host, its
/// ports, and what Docker's links were called.
fn is_service_link(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_link = |port: &str| {
        let (number, protocol) = port.split_once('_').unwrap_or((port, ""));
        let (protocol, field) = protocol.split_once('_').unwrap_or((protocol, "PORT"));
        is_number(number) && ["TCP", "UDP", "SCTP"].contains(&protocol) && ["PROTO", "PORT", "ADDR"].contains(&field)
    };
    let ends_so = |infix: &str, is_end: &dyn Fn(&str) -> bool| {
        let mut tails = name.char_indices().map(|(at, _)| &name[at..]);
        tails.any(|tail| tail.strip_prefix(infix).is_some_and(is_end))
    };
    !name.contains("__")
        && (name.ends_with("_SERVICE_HOST")
            || name.ends_with("_PORT")
            || ends_so("_SERVICE_PORT_", &|port_name| !port_name.is_empty())
            || ends_so("_PORT_", &is_link))
}

/// The environment.
pub(super) struct Variables;

impl Variables {
    pub(super) const NAME: &str = "environment";

    /// Keys and texts of what is set for us, sorted.
    fn set() -> Result<Vec<(String, String)>, String> {
        let mut set = Vec::new();
        for (name, text) in env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            let is_ours = name.get(..PREFIX.len()).is_some_and(|prefix| prefix.eq_ignore_ascii_case(PREFIX));
            if !is_ours || text.is_empty() || is_service_link(&name) {
                continue;
            }
            let key = rules::with_name(name[PREFIX.len()..].to_ascii_lowercase().replace("__", "."));
            if key != "config" {
                let text = text.into_string().map_err(|_| format!("the environment variable {name} is not UTF-8"))?;
                set.push((key, text));
            }
        }
        // A table comes before those of its keys that have variables of their own.
        set.sort();
        Ok(set)
    }

    /// Whether one of them is about these settings.
    pub(super) fn name_any_of(tables: &[&str]) -> bool {
        Self::set().is_ok_and(|set| set.iter().any(|(key, _)| tables.contains(&key.split('.').next().unwrap_or_default())))
    }

    /// What to say of one that has a single underscore where its setting's name has a dot.
    pub(super) fn meant(key: &str, rules: &[String]) -> Option<String> {
        let flat = |name: &str| name.replace(['.', '-'], "_");
        let meant = schema::names_of_all(rules).into_iter().find(|name| name.contains('.') && flat(name) == flat(key))?;
        Some(format!("did you mean {}, with two underscores for each dot of {meant}?", Self::name(&meant)))
    }

    fn name(key: &str) -> String {
        format!("{PREFIX}{}", key.replace('.', "__").replace('-', "_").to_uppercase())
    }

    /// The one that has a setting: its own, that of a table it stands in, or the first of those that stand in it.
    pub(super) fn with(key: &str) -> String {
        std::iter::successors(Some(key), |key| key.rsplit_once('.').map(|(parent, _)| parent))
            .map(Self::name)
            .find(|name| env::var_os(name).is_some_and(|text| text != OsStr::new("")))
            .or_else(|| {
                let within = format!("{key}.");
                Self::set().ok()?.into_iter().map(|(set, _)| set).find(|set| set.starts_with(&within)).map(|set| Self::name(&set))
            })
            .unwrap_or_else(|| Self::name(key))
    }
}

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::NAME)
    }
}

impl Provider for Variables {
    fn metadata(&self) -> Metadata {
        Metadata::named(Self::NAME)
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        let mut settings = Dict::new();
        for (key, text) in Self::set()? {
            let meaning = rules::within_rule(&key);
            let value: Value = if TEXT.contains(&meaning) || meaning.starts_with("orders.set.") || is_of_a_database(meaning) {
                text.into()
            } else {
                text.parse().unwrap_or_else(|never: Infallible| match never {})
            };
            insert(&mut settings, &key, value);
        }
        Ok(Profile::Default.collect(settings))
    }
}

/// Whether a setting is the URL of one of several databases, or what they have in common as a text.
fn is_of_a_database(key: &str) -> bool {
    key.strip_prefix("databases.").is_some_and(|name| name != "connections")
}

/// Puts a value where its dotted key leads.
fn insert(dict: &mut Dict, key: &str, value: Value) {
    let Some((first, rest)) = key.split_once('.') else {
        dict.insert(key.into(), value);
        return;
    };
    let inner = dict.entry(first.into()).or_insert_with(|| Dict::new().into());
    if let Value::Dict(_, inner) = inner {
        insert(inner, rest, value);
    } else {
        *inner = nest(rest, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kubernetes_sets_is_known_to_the_letter() {
        for name in [
            "ORDER_CLOSER_SERVICE_HOST",
            "ORDER_CLOSER_SERVICE_PORT",
            "ORDER_CLOSER_SERVICE_PORT_HTTP",
            "ORDER_CLOSER_PORT",
            "ORDER_CLOSER_PORT_6379_TCP",
            "ORDER_CLOSER_REDIS_SERVICE_HOST",
            "ORDER_CLOSER_REDIS_SERVICE_PORT_REDIS_TLS",
            "ORDER_CLOSER_REDIS_PORT",
            "ORDER_CLOSER_REDIS_PORT_6379_TCP_PROTO",
            "ORDER_CLOSER_REDIS_PORT_53_UDP_PORT",
            "ORDER_CLOSER_REDIS_PORT_9_SCTP_ADDR",
            "ORDER_CLOSER_PORT_PORT_80_TCP",
        ] {
            assert!(is_service_link(name), "{name}");
        }
        for name in [
            "ORDER_CLOSER_REDIS__PORT",
            "ORDER_CLOSER_REDIS__URL_SERVICE_HOST",
            "ORDER_CLOSER_SERVICE",
            "ORDER_CLOSER_SERVICE_PORT_",
            "ORDER_CLOSER_SERVICE_HOSTS",
            "ORDER_CLOSER_PORTS",
            "ORDER_CLOSER_PORT_6379",
            "ORDER_CLOSER_PORT_TCP",
            "ORDER_CLOSER_PORT_6379_HTTP",
            "ORDER_CLOSER_PORT_6379_TCP_HOST",
            "ORDER_CLOSER_PORT_6379_TCP_ADDR_X",
            "ORDER_CLOSER_REDIS",
        ] {
            assert!(!is_service_link(name), "{name}");
        }
    }
}
