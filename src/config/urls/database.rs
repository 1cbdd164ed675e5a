//! The database's URL.

use std::{fmt, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::{Position, Url, form_urlencoded};

use super::{hosts, is_shown, only, parsed, redacted};
use crate::config::{Secret, TimeZone};

/// Refuses a mode of TLS that there is not.
fn tls_mode(url: &Url) -> Result<(), String> {
    let modes =
        ["disable", "disabled", "allow", "prefer", "preferred", "require", "required", "verify-ca", "verify-full", "verify-identity"];
    let is_mode = |name: &str| name == "sslmode" || name == "ssl-mode";
    let is_known = |mode: &str| modes.contains(&mode.to_ascii_lowercase().replace('_', "-").as_str());
    if url.query_pairs().all(|(name, mode)| !is_mode(&name) || is_known(&mode)) {
        return Ok(());
    }
    Err("its sslmode is none such as require or verify-full (PostgreSQL), REQUIRED or VERIFY_IDENTITY (MySQL and MariaDB)".into())
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
    "statement-cache-capacity",
];

/// The database's URL; its scheme chooses the dialect.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub enum DatabaseUrl {
    /// `postgres://` or `postgresql://`.
    Postgres(Secret),
    /// `mysql://` or `mariadb://`.
    MySql(Secret),
    /// `sqlite://`.
    Sqlite(String),
}

impl DatabaseUrl {
    /// The whole URL, with its password.
    #[must_use]
    pub fn secret(&self) -> &str {
        match self {
            Self::Postgres(url) | Self::MySql(url) => url.reveal(),
            Self::Sqlite(url) => url,
        }
    }

    /// A URL for each host that this one names, in their order, as the drivers know them.
    #[must_use]
    pub fn each_host(&self) -> Vec<Self> {
        let each = |url: &Secret| hosts::split(url.reveal()).map_or_else(|_| vec![url.reveal().to_owned()], |hosts| hosts.each);
        match self {
            Self::Postgres(url) => each(url).into_iter().map(|one| Self::Postgres(one.into())).collect(),
            Self::MySql(url) => each(url).into_iter().map(|one| Self::MySql(one.into())).collect(),
            Self::Sqlite(_) => vec![self.clone()],
        }
    }

    /// How long one host is waited for, if the URL says so.
    #[must_use]
    pub fn connect_timeout(&self) -> Option<Duration> {
        match self {
            Self::Postgres(url) | Self::MySql(url) => hosts::split(url.reveal()).ok()?.connect_timeout,
            Self::Sqlite(_) => None,
        }
    }

    /// Where the server of a URL of one host is, such as `db1:5432`, without any login.
    #[must_use]
    pub fn place(&self) -> String {
        let (Self::Postgres(url) | Self::MySql(url)) = self else { return self.to_string() };
        let Ok(url) = Url::parse(url.reveal()) else { return "(not a URL)".into() };
        let place = &url[Position::BeforeHost..Position::AfterPort];
        let socket = url.query_pairs().find(|(name, _)| name == "host" || name == "hostaddr" || name == "socket");
        socket.map_or_else(|| place.to_owned(), |(_, host)| host.into_owned())
    }

    /// The name of the database in the URL.
    #[must_use]
    pub fn database(&self) -> Option<String> {
        let name = Url::parse(self.each_host().first()?.secret()).ok()?.path().trim_start_matches('/').to_owned();
        (!name.is_empty()).then_some(name)
    }

    /// The URL as the first edition showed it, by which its daemons are known.
    pub(crate) fn in_first_edition(&self) -> String {
        let secret = |name: &str| ["password", "passwd", "pwd", "secret"].iter().any(|word| name.to_ascii_lowercase().contains(word));
        match self {
            Self::Postgres(url) | Self::MySql(url) => redacted(url.reveal(), |name| !secret(name)),
            Self::Sqlite(url) => url.clone(),
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
            "sqlite" => return sqlite(text),
            "postgres" | "postgresql" => (Self::Postgres(text.into()), POSTGRES),
            "mysql" | "mariadb" => (Self::MySql(text.into()), MYSQL),
            _ => return Err(format!("a database URL begins with sqlite://, postgres:// or mysql://{}", translated(&text))),
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
        for one in hosts::split(url.secret()).map_err(|what| wrong(&what))?.each {
            let parsed = parsed(&one).map_err(|what| wrong(&what))?;
            no_zone(parameters, &parsed)?;
            no_others(parameters, &parsed)?;
            no_other_charset(&parsed)?;
            only(parameters, &parsed).and_then(|()| tls_mode(&parsed)).map_err(|what| wrong(&what))?;
        }
        Ok(url)
    }
}

/// What to write in place of another program's prefix; nothing is said of one that is not known, which may be a part of a login.
fn translated(text: &str) -> String {
    let (is_jdbc, rest) = text.strip_prefix("jdbc:").map_or((false, text), |rest| (true, rest));
    let scheme = rest.split_once(':').map_or("", |(scheme, _)| scheme);
    let (product, driver) = scheme.split_once('+').unwrap_or((scheme, ""));
    let ours = match product {
        "postgres" | "postgresql" | "pgsql" | "postgis" => "postgres://",
        "mysql" | "mysql2" | "mariadb" => "mysql://",
        "sqlite" | "sqlite3" => "sqlite://",
        _ => return String::new(),
    };
    match (is_jdbc, ours) {
        (true, "sqlite://") => format!("; write {ours} and the file in place of jdbc:{product}:"),
        (true, _) => format!(
            "; write {ours}user:password@host:port/database in place of jdbc:{product}://, without JDBC's parameters{}",
            zone_of(rest)
        ),
        (false, _) if driver.is_empty() => format!("; write {ours} in place of {product}:"),
        (false, _) => format!("; write {ours} in place of {product} with a driver's name"),
    }
}

/// Whether other clients are told a zone by a parameter of this name.
fn is_zone(name: &str) -> bool {
    let zones = ["serverTimezone", "connectionTimeZone", "TimeZone", "time-zone", "time_zone", "loc"];
    zones.into_iter().any(|zone| zone.eq_ignore_ascii_case(name))
}

/// What to write for the zone that a URL of JDBC has; only a zone is quoted.
fn zone_of(jdbc: &str) -> String {
    let (_, parameters) = jdbc.split_once('?').unwrap_or_default();
    match form_urlencoded::parse(parameters.as_bytes()).find(|(name, _)| is_zone(name)) {
        Some((_, zone)) => match TimeZone::try_from(zone.into_owned()) {
            Ok(zone) => format!(", and database.time_zone = \"{zone}\" for its zone"),
            Err(_) => ", and its zone as database.time_zone".into(),
        },
        None => String::new(),
    }
}

/// Refuses the parameters by which other clients are told a zone.
fn no_zone(known: &[&str], url: &Url) -> Result<(), String> {
    let mut named = url.query_pairs().filter(|(name, _)| !known.contains(&name.as_ref()));
    match named.find_map(|(name, _)| is_zone(&name).then_some(name)) {
        Some(zone) => Err(format!(
            "this URL has {zone}, which is a setting of its own here: take it out of the URL, and write the zone as database.time_zone"
        )),
        None => Ok(()),
    }
}

/// What other clients are told by parameters. Each may be named in an error: a part of a password is hardly called so.
const OTHERS: &[&str] = &[
    "allowPublicKeyRetrieval",
    "channel_binding",
    "characterEncoding",
    "conn_max_age",
    "connect_timeout",
    "connection_limit",
    "encoding",
    "parseTime",
    "pgbouncer",
    "pool",
    "pool_timeout",
    "reconnect",
    "useSSL",
    "useUnicode",
];

/// Refuses the parameters of other clients by their names.
fn no_others(known: &[&str], url: &Url) -> Result<(), String> {
    let has = |other: &str| url.query_pairs().any(|(name, _)| name == other && !known.contains(&other));
    if has("schema") {
        return Err(
            "this URL has schema, as Prisma writes it: take it out of the URL, and write orders.table with its schema, as shop.orders"
                .into(),
        );
    }
    match OTHERS.iter().find(|other| has(other)) {
        Some(other) => Err(format!("this URL has {other}, which means something to another client: take it out of the URL")),
        None => Ok(()),
    }
}

/// Ids are compared byte by byte with what is bound, as UTF-8: any other character set would be passed over.
fn no_other_charset(url: &Url) -> Result<(), String> {
    if url.query_pairs().all(|(name, value)| name != "charset" || value.eq_ignore_ascii_case("utf8mb4")) {
        return Ok(());
    }
    Err("this URL has charset, which is always utf8mb4 here, whatever that of the tables is: take it out of the URL".into())
}

/// SQLite's URLs name a file, and have their parameters.
fn sqlite(text: String) -> Result<DatabaseUrl, String> {
    let (file, parameters) = text.split_once('?').unwrap_or((&text, ""));
    // Whoever changes the scheme alone leaves a login behind, which would be shown as a part of the file's name.
    if file.split_once('@').is_some_and(|(login, _)| login.trim_start_matches("sqlite:").contains(':')) {
        return Err("this sqlite URL can't be read: it names a file, and has neither user nor password; a : in its name is %3A".into());
    }
    let known = ["mode", "cache", "immutable", "vfs"];
    if !parameters.is_empty() && parameters.split('&').any(|one| !known.contains(&one.split('=').next().unwrap_or_default())) {
        return Err(format!("this sqlite URL can't be read: it has a parameter other than {}; in a name ? is %3F", known.join(", ")));
    }
    Ok(DatabaseUrl::Sqlite(text))
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
            Self::Postgres(url) | Self::MySql(url) => match self.each_host().as_slice() {
                [] | [_] => f.write_str(&redacted(url.reveal(), is_shown)),
                several @ [first, ..] => {
                    let places: Vec<String> = several.iter().map(Self::place).collect();
                    match Url::parse(&redacted(first.secret(), is_shown)) {
                        Ok(shown) => write!(f, "{}{}{}", &shown[..Position::BeforeHost], places.join(","), &shown[Position::AfterPort..]),
                        Err(_) => f.write_str(&places.join(",")),
                    }
                }
            },
        }
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
