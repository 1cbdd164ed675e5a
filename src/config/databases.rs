//! Several databases, each with its name: where the shards of an orders table are.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, MapAccess},
};

use super::{Config, DatabaseUrl, Span, TimeZone, ranges::Ranges, url_files::FILE};

/// The settings that all databases have in common; no database may have such a name.
const COMMON: [&str; 3] = ["time_zone", "timeout", "connections"];

/// Where the orders of several shards live. Beside them there is no `[database]`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Databases {
    /// How columns without a zone are to be read; each server's own zone when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<TimeZone>,
    /// How long one statement, or the wait for a connection, may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// How many connections to each database close orders.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<usize>,
    /// By their names.
    #[serde(flatten)]
    pub urls: BTreeMap<String, DatabaseUrls>,
    /// The files from which some of these URLs were read, by their names with `_file` behind them.
    #[serde(flatten)]
    pub files: BTreeMap<String, PathBuf>,
}

impl Databases {
    /// Whether there are none, and `[database]` is meant.
    #[must_use]
    pub fn are_none(&self) -> bool {
        self.urls.is_empty() && self.time_zone.is_none() && self.timeout.is_none() && self.connections.is_none()
    }

    /// Each database by its name; in the order of their names, and of their numbers.
    pub fn each(&self) -> impl Iterator<Item = (String, &DatabaseUrl)> {
        self.urls.iter().flat_map(|(name, urls)| {
            urls.each.iter().map(move |(number, url)| match number {
                Some(number) => (format!("{name}_{number}"), url),
                None => (name.clone(), url),
            })
        })
    }
}

impl Config {
    /// Gives each database the settings that all have in common.
    ///
    /// # Errors
    /// Names the setting, and says what is wrong with it.
    pub(super) fn take_what_databases_have_in_common(&mut self) -> Result<(), (String, String)> {
        if self.databases.are_none() {
            return Ok(());
        }
        let Databases { time_zone, timeout, connections, .. } = &self.databases;
        self.database.time_zone.clone_from(time_zone);
        self.database.timeout = timeout.unwrap_or(self.database.timeout);
        self.database.connections = connections.unwrap_or(self.database.connections);
        let mut known = BTreeMap::new();
        for (written, urls) in &self.databases.urls {
            check_name(written).map_err(|what| (format!("databases.{written}"), what))?;
            for (number, _) in &urls.each {
                let name = number.as_ref().map_or_else(|| written.clone(), |number| format!("{written}_{number}"));
                if let Some(other) = known.insert(name.clone(), written) {
                    return Err((format!("databases.{written}"), format!("has a database {name}, and so has databases.{other}")));
                }
            }
        }
        match self.databases.each().next() {
            Some((_, url)) => self.database.url = url.clone(),
            None => return Err(("databases".into(), "names no database; write ds = \"mysql://closer@db-{0..3}/shop_{0..3}\"".into())),
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Databases {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Databases;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Databases, A::Error> {
                let mut databases = Databases::default();
                while let Some(name) = map.next_key::<String>()? {
                    match name.as_str() {
                        "time_zone" => databases.time_zone = Some(map.next_value()?),
                        "timeout" => databases.timeout = Some(map.next_value()?),
                        "connections" => databases.connections = Some(map.next_value()?),
                        _ if name.ends_with(FILE) => {
                            let file = map.next_value()?;
                            databases.files.insert(name, file);
                        }
                        _ => {
                            let urls = map.next_value()?;
                            databases.urls.insert(name, urls);
                        }
                    }
                }
                Ok(databases)
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

/// Whether a database may be called so: what stands before a dot in `orders.table`, and in metrics.
///
/// # Errors
/// Says what a name is.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if (1..=64).contains(&name.len()) && name.bytes().all(fits) {
        Ok(())
    } else {
        Err(format!(
            "is no name of a database: 1 to 64 letters, digits, _ and -, none of {}, and without {FILE} at the end",
            COMMON.join(", ")
        ))
    }
}

/// The URL of a database, or of several: with a range such as `{0..3}` in it, of one for each number.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct DatabaseUrls {
    each: Vec<(Option<String>, DatabaseUrl)>,
}

impl TryFrom<String> for DatabaseUrls {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let all = Ranges::parse(&text)?.together()?;
        let each = all.into_iter().map(|(number, url)| Ok((number, DatabaseUrl::try_from(url)?))).collect::<Result<_, String>>()?;
        Ok(Self { each })
    }
}

impl From<DatabaseUrls> for String {
    fn from(urls: DatabaseUrls) -> Self {
        urls.to_string()
    }
}

/// The first URL and the last, without their passwords.
impl fmt::Display for DatabaseUrls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.each.as_slice() {
            [] => Ok(()),
            [(_, only)] => write!(f, "{only}"),
            [(_, first), .., (_, last)] => write!(f, "{first} to {last}"),
        }
    }
}

impl fmt::Debug for DatabaseUrls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
