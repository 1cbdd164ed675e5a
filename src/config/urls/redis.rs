//! The URL of a Redis.

use std::{fmt, path::PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::{Position, Url};

use super::{decoded, is_shown, only, parsed, redacted};
use crate::config::Secret;

/// How Redis is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisAddress {
    /// Over TCP.
    Tcp {
        /// Name or address.
        host: String,
        /// Port.
        port: u16,
        /// Whether TLS is spoken.
        tls: bool,
        /// Whether it is a node of a cluster, as only the cluster itself names one.
        in_cluster: bool,
    },
    /// Through a Unix socket.
    Unix(PathBuf),
    /// Over TCP, at the primary that sentinels name.
    Sentinels(Sentinels),
    /// Over TCP, at the primaries of a cluster.
    Cluster {
        /// Some of its nodes: one that answers is enough.
        seeds: Vec<Endpoint>,
        /// Whether TLS is spoken.
        tls: bool,
    },
    /// Not at all: there is none.
    Nowhere,
}

/// Sentinels, and which of the services that they watch is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sentinels {
    /// Where they are: one that answers is enough.
    pub hosts: Vec<Endpoint>,
    /// What they call the service.
    pub service: String,
    /// The ACL user for the sentinels themselves, if one is named.
    pub username: Option<String>,
    /// The password for the sentinels themselves, if they want one.
    pub(crate) password: Option<Secret>,
    /// Whether TLS is spoken, to them and to the primary.
    pub tls: bool,
}

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// The URL of a Redis, or `none`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct RedisUrl {
    /// Where it is.
    pub address: RedisAddress,
    /// The ACL user, if one is named.
    pub username: Option<String>,
    /// The password, if there is one.
    pub(crate) password: Option<Secret>,
    /// The database number in which keys are written and touched.
    pub database: u8,
    redacted: String,
}

impl RedisUrl {
    /// Whether there is no Redis: orders close by their rows alone.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.address == RedisAddress::Nowhere
    }
}

impl Default for RedisUrl {
    fn default() -> Self {
        Self {
            address: RedisAddress::Tcp { host: "127.0.0.1".into(), port: 6379, tls: false, in_cluster: false },
            username: None,
            password: None,
            database: 0,
            redacted: "redis://127.0.0.1:6379".into(),
        }
    }
}

impl RedisUrl {
    /// Whether TLS is spoken.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        match &self.address {
            RedisAddress::Tcp { tls, .. } | RedisAddress::Cluster { tls, .. } => *tls,
            RedisAddress::Sentinels(sentinels) => sentinels.tls,
            RedisAddress::Unix(_) | RedisAddress::Nowhere => false,
        }
    }

    /// The same, at one server that somebody else has named.
    #[must_use]
    pub fn at(&self, server: &Endpoint) -> Self {
        let Endpoint { host, port } = server.clone();
        let (tls, in_cluster) = (self.is_encrypted(), matches!(self.address, RedisAddress::Cluster { .. }));
        let redacted = format!("{}://{server}", if tls { "rediss" } else { "redis" });
        Self { address: RedisAddress::Tcp { host, port, tls, in_cluster }, redacted, ..self.clone() }
    }

    /// What the URL would be with another scheme and these parameters, without its password.
    #[must_use]
    pub fn as_other(&self, kind: &str, parameters: &str) -> String {
        let (scheme, rest) = self.redacted.split_once("://").unwrap_or(("redis", &self.redacted));
        let base = scheme.split(['-', '+']).next().unwrap_or_default();
        let rest = rest.split('?').next().unwrap_or_default().trim_end_matches('/');
        format!("{base}{kind}://{rest}{parameters}")
    }
}

impl TryFrom<String> for RedisUrl {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self { address: RedisAddress::Nowhere, username: None, password: None, database: 0, redacted: text });
        }
        let wrong = |what: String| {
            format!(
                "this Redis URL can't be read: {what}; write redis://user:password@host:6379/0, with special characters percent-encoded"
            )
        };
        let (first, others) = hosts(&text);
        let url = parsed(&first).map_err(wrong)?;
        let mut database = None;
        let mut username = Some(decoded(url.username())?);
        let mut password = url.password().map(decoded).transpose()?.map(Secret::from);
        let address = match url.scheme() {
            scheme @ ("redis" | "rediss" | "valkey" | "valkeys") => {
                only(&[], &url).map_err(wrong)?;
                let path = url.path().trim_matches('/');
                if !path.is_empty() {
                    database = Some(path.to_owned());
                }
                if !others.is_empty() {
                    return Err("a Redis URL with several hosts begins with redis-cluster:// or redis-sentinel://".into());
                }
                let Endpoint { host, port } = endpoint(&url, 6379)?;
                RedisAddress::Tcp { host, port, tls: is_tls(scheme), in_cluster: false }
            }
            scheme @ ("redis-cluster" | "rediss-cluster" | "valkey-cluster" | "valkeys-cluster") => {
                only(&[], &url).map_err(wrong)?;
                let path = url.path().trim_matches('/');
                if !path.is_empty() {
                    database = Some(path.to_owned());
                }
                RedisAddress::Cluster { seeds: all_hosts(&url, &others, 6379)?, tls: is_tls(scheme) }
            }
            scheme @ ("redis-sentinel" | "rediss-sentinel" | "valkey-sentinel" | "valkeys-sentinel") => {
                only(&[SERVICE, SENTINEL_USER, SENTINEL_PASSWORD], &url).map_err(wrong)?;
                let path = url.path().trim_matches('/');
                if !path.is_empty() {
                    database = Some(path.to_owned());
                }
                let value = |wanted: &str| {
                    let found = url.query_pairs().find(|(name, _)| name == wanted).map(|(_, value)| value.into_owned());
                    found.filter(|value| !value.is_empty())
                };
                let (username, password) = (value(SENTINEL_USER), value(SENTINEL_PASSWORD).map(Secret::from));
                if username.is_some() && password.is_none() {
                    return Err(format!("a Redis URL has {SENTINEL_USER} and no {SENTINEL_PASSWORD}"));
                }
                RedisAddress::Sentinels(Sentinels {
                    hosts: all_hosts(&url, &others, 26379)?,
                    service: value(SERVICE).ok_or_else(|| {
                        format!("the URL of sentinels names the service that they watch: redis-sentinel://host:26379,host:26379?{SERVICE}=mymaster")
                    })?,
                    username,
                    password,
                    tls: is_tls(scheme),
                })
            }
            "redis+unix" | "unix" => {
                // A URL without a host has no place for a user before it.
                only(&["db", "user", "password"], &url).map_err(wrong)?;
                for (name, value) in url.query_pairs() {
                    let value = value.into_owned();
                    match name.as_ref() {
                        "db" => database = Some(value),
                        "user" => username = Some(value),
                        _ => password = Some(value.into()),
                    }
                }
                if url.host().is_some_and(|host| !host.to_string().is_empty()) {
                    return Err("a Redis socket URL has three slashes: redis+unix:///run/redis/redis.sock?db=0".into());
                }
                RedisAddress::Unix(decoded(url.path())?.into())
            }
            _ => {
                return Err("a Redis URL begins with redis://, rediss://, redis-cluster://, redis-sentinel:// or redis+unix://; where there is no Redis, it is \"none\"".into());
            }
        };
        let database = match database {
            None => 0,
            Some(number) => {
                number.parse().map_err(|_| "what follows the host of a Redis URL, or ?db=, is a database number from 0 to 255")?
            }
        };
        let username = username.filter(|name| !name.is_empty());
        // A user alone is more likely a password whose colon was forgotten, and would be shown.
        if username.is_some() && password.is_none() {
            return Err("a Redis URL has a user and no password; write redis://:password@host or redis://user:password@host".into());
        }
        Ok(Self { address, username, password, database, redacted: with_hosts(&redacted(&first, is_shown), &others) })
    }
}

/// The parameters of the URL of sentinels, as other clients call them.
const SERVICE: &str = "sentinelServiceName";
const SENTINEL_USER: &str = "sentinelUsername";
const SENTINEL_PASSWORD: &str = "sentinelPassword";

fn is_tls(scheme: &str) -> bool {
    scheme.starts_with("rediss") || scheme.starts_with("valkeys")
}

/// Takes all hosts but the first out of a URL: the URL of one host, and the others.
fn hosts(text: &str) -> (String, Vec<&str>) {
    let Some((scheme, rest)) = text.split_once("://") else { return (text.to_owned(), Vec::new()) };
    let (authority, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (login, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
    let mut hosts = hosts.split(',');
    let first = hosts.next().unwrap_or_default();
    (format!("{scheme}://{login}{first}{rest}"), hosts.collect())
}

/// Puts them back.
fn with_hosts(url: &str, others: &[&str]) -> String {
    let at = Url::parse(url).map_or(url.len(), |parsed| parsed[..Position::AfterPort].len());
    let (before, after) = url.split_at_checked(at).unwrap_or((url, ""));
    let others: String = others.iter().map(|other| format!(",{other}")).collect();
    format!("{before}{others}{after}")
}

fn all_hosts(first: &Url, others: &[&str], port: u16) -> Result<Vec<Endpoint>, String> {
    let mut all = vec![endpoint(first, port)?];
    for other in others {
        // What is wrong with it is said without quoting it.
        let url = Url::parse(&format!("redis://{other}")).map_err(|error| format!("a host of this Redis URL can't be read: {error}"))?;
        if !matches!(url.path(), "" | "/") || url.username() != "" || url.query().is_some() || url.fragment().is_some() {
            return Err("the hosts of a Redis URL are host:port, with commas between".into());
        }
        all.push(endpoint(&url, port)?);
    }
    Ok(all)
}

fn endpoint(url: &Url, port: u16) -> Result<Endpoint, String> {
    let host = match url.host() {
        Some(url::Host::Ipv6(address)) => address.to_string(),
        Some(host) if !host.to_string().is_empty() => host.to_string(),
        Some(_) | None => return Err("a Redis URL names a host: redis://127.0.0.1:6379".into()),
    };
    Ok(Endpoint { host, port: url.port().unwrap_or(port) })
}

impl From<RedisUrl> for String {
    fn from(url: RedisUrl) -> Self {
        url.redacted
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.redacted)
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
