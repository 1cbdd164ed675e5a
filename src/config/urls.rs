//! Connection URLs. They carry passwords, so neither `Debug` nor `Display` prints one.

use std::{fmt, path::PathBuf};

use serde::{Deserialize, Serialize};
use url::{Position, Url};

/// Parses a URL. What is wrong with it is said without quoting any of it.
fn parsed(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    // Left as they are, these characters end the host within the password, whose rest then stands where it would be shown.
    if url[Position::AfterPort..].contains(['@', '#']) {
        return Err("an @ or # follows the host; in a password @ is %40, / is %2F, ? is %3F and # is %23".into());
    }
    Ok(url)
}

/// Refuses parameters that nobody would heed. Their names are not quoted: after an & in a password, that is its rest.
fn only(known: &[&str], url: &Url) -> Result<(), String> {
    // PostgreSQL's are options[name].
    if url.query_pairs().all(|(name, _)| known.contains(&name.split('[').next().unwrap_or_default())) {
        return Ok(());
    }
    Err(match known {
        [] => "it takes no parameters".into(),
        _ => format!("it has a parameter other than {}; in a value & is %26", known.join(", ")),
    })
}

/// The parameters that the client of PostgreSQL knows.
const POSTGRES: &[&str] = &[
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
    "statement-cache-capacity",
];

/// Those that the client of MySQL and MariaDB knows.
const MYSQL: &[&str] = &[
    "ssl-mode",
    "sslmode",
    "ssl-ca",
    "sslca",
    "ssl-cert",
    "sslcert",
    "ssl-key",
    "sslkey",
    "charset",
    "collation",
    "socket",
    "time-zone",
    "timezone",
    "statement-cache-capacity",
];

/// A URL without its password, for logs and errors.
fn redacted(url: &str) -> String {
    let Ok(mut parsed) = Url::parse(url) else {
        return "(not a URL)".into();
    };
    if parsed.password().is_some() {
        // Fails only for URLs that can't have a password, and this one has.
        parsed.set_password(Some("***")).ok();
    }
    let secret = |name: &str| ["password", "passwd", "pwd", "secret"].iter().any(|word| name.to_ascii_lowercase().contains(word));
    if parsed.query_pairs().any(|(name, _)| secret(&name)) {
        let kept: Vec<(String, String)> = parsed
            .query_pairs()
            .map(|(name, value)| {
                let value = if secret(&name) { "***".into() } else { value.into_owned() };
                (name.into_owned(), value)
            })
            .collect();
        parsed.query_pairs_mut().clear().extend_pairs(kept);
    }
    parsed.to_string()
}

/// The database's URL; its scheme chooses the dialect.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum DatabaseUrl {
    /// `postgres://` or `postgresql://`.
    Postgres(String),
    /// `mysql://` or `mariadb://`.
    MySql(String),
    /// `sqlite://`.
    Sqlite(String),
}

impl DatabaseUrl {
    /// The whole URL, with its password.
    #[must_use]
    pub fn secret(&self) -> &str {
        match self {
            Self::Postgres(url) | Self::MySql(url) | Self::Sqlite(url) => url,
        }
    }
}

impl Default for DatabaseUrl {
    fn default() -> Self {
        Self::Sqlite("sqlite://order-closer.db".into())
    }
}

impl TryFrom<String> for DatabaseUrl {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let scheme = text.split_once(':').map_or("", |(scheme, _)| scheme).to_owned();
        let (url, parameters) = match scheme.as_str() {
            "sqlite" => return Ok(Self::Sqlite(text)),
            "postgres" | "postgresql" => (Self::Postgres(text), POSTGRES),
            "mysql" | "mariadb" => (Self::MySql(text), MYSQL),
            _ => return Err("a database URL begins with sqlite://, postgres:// or mysql://".into()),
        };
        let wrong = |what: &str| {
            format!(
                "this {scheme} URL can't be read: {what}; write {scheme}://user:password@host:port/database, with special characters percent-encoded"
            )
        };
        // Without the slashes all that follows would be a path, and shown with the password in it.
        if !url.secret()[scheme.len()..].starts_with("://") {
            return Err(wrong("two slashes are missing"));
        }
        parsed(url.secret()).and_then(|url| only(parameters, &url)).map_err(|what| wrong(&what))?;
        Ok(url)
    }
}

impl From<DatabaseUrl> for String {
    fn from(url: DatabaseUrl) -> Self {
        url.to_string()
    }
}

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(url) => f.write_str(url),
            Self::Postgres(url) | Self::MySql(url) => f.write_str(&redacted(url)),
        }
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

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
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RedisUrl {
    /// Where it is.
    pub address: RedisAddress,
    /// The ACL user, if one is named.
    pub username: Option<String>,
    /// The password, if there is one.
    pub(crate) password: Option<String>,
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
        let mut password = url.password().map(decoded).transpose()?;
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
                    let value = Some(value.into_owned());
                    match name.as_ref() {
                        "db" => database = value,
                        "user" => username = value,
                        _ => password = value,
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
            Some(number) => number.parse().map_err(|_| format!("{number:?} is not a Redis database number from 0 to 255"))?,
        };
        let username = username.filter(|name| !name.is_empty());
        // A user alone is more likely a password whose colon was forgotten, and would be shown.
        if username.is_some() && password.is_none() {
            return Err("a Redis URL has a user and no password; write redis://:password@host or redis://user:password@host".into());
        }
        Ok(Self { address, username, password, database, redacted: redacted(&text) })
    }
}

fn decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|b| char::from(b).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err("a % in a URL is followed by two hexadecimal digits".into());
        };
        bytes.push(u8::try_from(high * 16 + low).unwrap_or(u8::MAX));
    }
    String::from_utf8(bytes).map_err(|_| "percent-encoded text in a URL must be UTF-8".into())
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

/// The URL of a webhook. Whatever may be a secret in it is hidden: all but scheme, host and port.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WebhookUrl(Url);

impl WebhookUrl {
    /// The whole URL.
    #[must_use]
    pub fn secret(&self) -> &Url {
        &self.0
    }

    /// Whether what is sent can be read on its way: neither TLS, nor this host alone.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        let local = match self.0.host() {
            Some(url::Host::Domain(name)) => name == "localhost",
            Some(url::Host::Ipv4(address)) => address.is_loopback(),
            Some(url::Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        };
        self.0.scheme() == "http" && !local
    }
}

impl TryFrom<String> for WebhookUrl {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let url = parsed(&text).map_err(|what| format!("this webhook URL can't be read: {what}; write https://host/path"))?;
        match url.scheme() {
            "http" | "https" => Ok(Self(url)),
            _ => Err("a webhook URL begins with https:// or http://".into()),
        }
    }
}

impl From<WebhookUrl> for String {
    fn from(url: WebhookUrl) -> Self {
        url.to_string()
    }
}

impl fmt::Display for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(url) = self;
        write!(f, "{}://{}", url.scheme(), url.host_str().unwrap_or_default())?;
        if let Some(port) = url.port() {
            write!(f, ":{port}")?;
        }
        f.write_str(if url.path() == "/" && url.query().is_none() { "/" } else { "/***" })
    }
}

impl fmt::Debug for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
