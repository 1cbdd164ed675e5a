//! What a server is, by its own account (INFO), and whether it is one for us.

use std::{collections::HashMap, fmt};

use super::error::{RedisError, Result};
use crate::config::{Endpoint, Redis, RedisAddress};

/// The fields of INFO.
pub(super) type Info = HashMap<String, String>;

/// Reads the text of INFO.
pub(super) fn fields(text: &str) -> Info {
    text.lines().filter_map(|line| line.trim().split_once(':')).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The product and its version, as far as the server tells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Server {
    name: String,
    version: String,
    /// Where it is, if somebody else than the configuration has said so.
    at: Option<Endpoint>,
}

impl Server {
    pub(super) fn new(info: &Info) -> Self {
        let field = |name: &str| info.get(name).cloned().unwrap_or_default();
        // Valkey says in redis_version which Redis it is compatible with.
        if let Some(version) = info.get("valkey_version") {
            return Self { name: "Valkey".into(), version: version.clone(), at: None };
        }
        let name = match field("server_name").as_str() {
            "" | "redis" => "Redis".into(),
            other => other.to_owned(),
        };
        Self { name, version: field("redis_version"), at: None }
    }

    /// The same, where somebody else than the configuration has said that it is.
    pub(super) fn at(self, at: Endpoint) -> Self {
        Self { at: Some(at), ..self }
    }

    /// Where it is, if somebody else than the configuration has said so.
    pub(super) fn endpoint(&self) -> Option<&Endpoint> {
        self.at.as_ref()
    }

    /// Fails if this server lacks what we need: CLIENT INFO on a subscribed connection, and PXAT.
    pub(super) fn check_age(&self) -> Result<()> {
        let mut numbers = self.version.split('.').map_while(|number| number.parse::<u32>().ok());
        let version = (numbers.next(), numbers.next());
        if self.name == "Redis" && version.0.is_some() && version < (Some(6), Some(2)) {
            return Err(RedisError::too_old(format!("it is {self}")));
        }
        Ok(())
    }

    /// Whether `notify-keyspace-events` has the flag `n`.
    #[must_use]
    pub fn announces_new_keys(&self) -> bool {
        let major = self.version.split('.').next().and_then(|number| number.parse::<u32>().ok());
        major.is_some_and(|major| major >= 7)
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name.as_str(), self.version.as_str()) {
            ("", _) => f.write_str("a server that does not tell what it is"),
            (name, "") => f.write_str(name),
            (name, version) => write!(f, "{name} {version}"),
        }?;
        self.at.as_ref().map_or(Ok(()), |at| write!(f, " at {at}"))
    }
}

/// Fails unless this is a primary, of a cluster or without one as the settings say, where keys expire and are announced. Takes INFO's sections `server` and
/// `replication`, or one of them, and the settings by which it was found.
pub(super) fn check_role(info: &Info, redis: &Redis) -> Result<()> {
    let field = |name: &str| info.get(name).map_or("", String::as_str);
    let in_cluster = matches!(redis.url.address, RedisAddress::Tcp { in_cluster: true, .. });
    // Valkey has a name of its own for it.
    match [field("redis_mode"), field("server_mode")] {
        ["sentinel", _] | [_, "sentinel"] => return Err(RedisError::sentinel(redis)),
        ["cluster", _] | [_, "cluster"] if in_cluster => {}
        ["cluster", _] | [_, "cluster"] => return Err(RedisError::cluster_node(redis)),
        ["", ""] => {}
        _ if in_cluster => return Err(RedisError::no_cluster(redis)),
        _ => {}
    }
    match field("role") {
        "slave" | "replica" => {
            Err(RedisError::not_primary(format!("it is a replica of {}:{}", field("master_host"), field("master_port"))))
        }
        "sentinel" => Err(RedisError::sentinel(redis)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(text: &str) -> Server {
        Server::new(&fields(text))
    }

    #[test]
    fn a_server_has_its_own_name_and_version() {
        assert_eq!(server("# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n").to_string(), "Redis 7.0.15");
        assert_eq!(server("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.0\r\n").to_string(), "Valkey 8.1.0");
        assert_eq!(server("redis_version:6.2.11\r\nserver_name:keydb").to_string(), "keydb 6.2.11");
        assert_eq!(Server::default().to_string(), "a server that does not tell what it is");
    }

    #[test]
    fn before_six_point_two_it_is_too_old() {
        for version in ["2.8.24", "5.0.14", "6.0.20", "6"] {
            let error = server(&format!("redis_version:{version}")).check_age().expect_err(version);
            assert!(error.to_string().contains(version) && error.fix().contains("6.2"), "{error:?}");
        }
        for text in ["redis_version:6.2.0", "redis_version:10.0.1", "redis_version:255.255.255", "redis_version:unstable", ""] {
            assert_eq!(server(text).check_age(), Ok(()), "{text}");
        }
    }

    #[test]
    fn only_a_primary_is_ours() {
        let redis = Redis::default();
        assert_eq!(check_role(&fields("redis_mode:standalone\r\nrole:master"), &redis), Ok(()));
        assert_eq!(check_role(&fields(""), &redis), Ok(()), "a service that does not tell");
        for (text, word) in [
            ("role:slave\r\nmaster_host:10.0.0.2\r\nmaster_port:6380", "replica of 10.0.0.2:6380"),
            ("redis_mode:sentinel", "sentinel"),
            ("redis_mode:cluster\r\nrole:master", "node of a cluster"),
            ("server_mode:cluster\r\nrole:master", "node of a cluster"),
        ] {
            let error = check_role(&fields(text), &redis).expect_err(text);
            assert!(matches!(error, RedisError::NotOurs(_)) && error.to_string().contains(word), "{error:?}");
        }
    }
}
