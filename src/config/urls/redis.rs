//! The URL of a Redis.

use std::{fmt, path::PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
    },
    /// Through a Unix socket.
    Unix(PathBuf),
}

/// The URL of a standalone Redis.
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

impl Default for RedisUrl {
    fn default() -> Self {
        Self {
            address: RedisAddress::Tcp { host: "127.0.0.1".into(), port: 6379, tls: false },
            username: None,
            password: None,
            database: 0,
            redacted: "redis://127.0.0.1:6379".into(),
        }
    }
}

impl TryFrom<String> for RedisUrl {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = |what: String| {
            format!(
                "this Redis URL can't be read: {what}; write redis://user:password@host:6379/0, with special characters percent-encoded"
            )
        };
        let url = parsed(&text).map_err(wrong)?;
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
                RedisAddress::Tcp {
                    host: match url.host() {
                        Some(url::Host::Ipv6(address)) => address.to_string(),
                        Some(host) => host.to_string(),
                        None => return Err("a Redis URL names a host: redis://127.0.0.1:6379".into()),
                    },
                    port: url.port().unwrap_or(6379),
                    tls: scheme.ends_with('s') && scheme != "redis",
                }
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
            _ => return Err("a Redis URL begins with redis://, rediss:// or redis+unix://".into()),
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
        Ok(Self { address, username, password, database, redacted: redacted(&text, is_shown) })
    }
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
