//! Doors: whence hints come that are not keyspace notifications.

use std::{collections::HashSet, fmt, path::PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AmqpUrl, Config, EpochUnit, Loaded, RuleName, Span, optional::optional};

/// A door as it stands in the file: what belongs to one kind alone is optional. [`Hints::door`] says what it means.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Hints {
    /// What it is called in the log and in metrics.
    pub name: DoorName,
    /// What kind of door it is.
    pub from: Kind,
    /// For which rule hints are; for all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "optional")]
    pub rule: Option<RuleName>,
    /// How many hints it may have in hand whose looks have not been taken yet.
    #[serde(default = "five_hundred")]
    pub prefetch: usize,
    /// `redis-stream`, `redis-zset`: for how long a hint is a daemon's that has taken it; after that, another takes it again.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "optional")]
    pub lease: Option<Span>,
    /// `redis-stream`, `redis-zset`: the key, in the database of `redis.url`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "optional")]
    pub key: Option<String>,
    /// `redis-stream`: the consumer group.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "optional")]
    pub group: Option<String>,
    /// `redis-stream`: the field of an entry that holds the order's id.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "optional")]
    pub field: Option<String>,
    /// `redis-zset`: what scores count since 1970 UTC.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "optional")]
    pub unit: Option<EpochUnit>,
    /// `amqp`: the broker, `amqp://` or `amqps://`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "optional")]
    pub url: Option<AmqpUrl>,
    /// `amqp`: a file with that URL, which is read before each connection.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "optional")]
    pub url_file: Option<PathBuf>,
    /// `amqp`: a PEM file of certificate authorities to trust besides the system's.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "optional")]
    pub ca_file: Option<PathBuf>,
    /// `amqp`: the queue.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "optional")]
    pub queue: Option<String>,
    /// `amqp`: where a message has the order's id.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "optional")]
    pub id: Option<IdIn>,
}

fn five_hundred() -> usize {
    500
}

/// The kinds of doors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A Redis Stream, read as a consumer group.
    RedisStream,
    /// A sorted set in Redis: members are ids, scores the times at which they are due.
    RedisZset,
    /// A queue of an AMQP 0-9-1 broker, such as RabbitMQ.
    Amqp,
}

impl Kind {
    /// Its name in the file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RedisStream => "redis-stream",
            Self::RedisZset => "redis-zset",
            Self::Amqp => "amqp",
        }
    }
}

/// What a door is, with all that its kind needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Door {
    /// A Redis Stream.
    Stream(StreamDoor),
    /// A sorted set in Redis.
    SortedSet(SortedSetDoor),
    /// A queue.
    Amqp(AmqpDoor),
}

/// A Redis Stream, read as a consumer group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamDoor {
    /// Its key.
    pub key: String,
    /// The group.
    pub group: String,
    /// The field with the id.
    pub field: String,
    /// For how long an entry is a daemon's that has read it.
    pub lease: Span,
}

/// A sorted set in Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortedSetDoor {
    /// Its key.
    pub key: String,
    /// What its scores count.
    pub unit: EpochUnit,
    /// For how long a member is a daemon's that has taken it.
    pub lease: Span,
}

/// A queue of a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AmqpDoor {
    /// Where it is.
    pub broker: Broker,
    /// Whom to trust besides the system's authorities.
    pub ca_file: Option<PathBuf>,
    /// Its name.
    pub queue: String,
    /// Where a message has the order's id.
    pub id: IdIn,
}

/// Where a broker's URL stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Broker {
    /// In the configuration.
    Url(AmqpUrl),
    /// In a file.
    File(PathBuf),
}

impl Broker {
    /// The URL, as it is now.
    ///
    /// # Errors
    /// Says what is wrong with the file, never what stands in it.
    pub fn url(&self) -> Result<AmqpUrl, String> {
        match self {
            Self::Url(url) => Ok(url.clone()),
            Self::File(path) => {
                let unusable = |what: &str| format!("url_file can't be used: {} {what}", path.display());
                let text = std::fs::read_to_string(path).map_err(|error| unusable(&format!("can't be read: {error}")))?;
                AmqpUrl::try_from(text.trim().to_owned()).map_err(|what| unusable(&format!("has no URL of a broker: {what}")))
            }
        }
    }
}

impl fmt::Display for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => write!(f, "{url}"),
            Self::File(path) => write!(f, "the broker of {}", path.display()),
        }
    }
}

impl Hints {
    /// The rules that its hints are for: where it names none, all rules of orders.
    #[must_use]
    pub fn rules(&self, config: &Config) -> Vec<RuleName> {
        match &self.rule {
            Some(rule) => vec![rule.clone()],
            None => config.rule_names().into_iter().filter(|name| !name.is_timers()).collect(),
        }
    }

    /// What kind of door it is, with all that it needs.
    ///
    /// # Errors
    /// Says what is missing, or does not belong to this kind.
    pub fn door(&self) -> Result<Door, String> {
        let own: &[&str] = match self.from {
            Kind::RedisStream => &["key", "group", "field", "lease"],
            Kind::RedisZset => &["key", "unit", "lease"],
            Kind::Amqp => &["url", "url_file", "ca_file", "queue", "id"],
        };
        let set = [
            ("key", self.key.is_some()),
            ("group", self.group.is_some()),
            ("field", self.field.is_some()),
            ("unit", self.unit.is_some()),
            ("lease", self.lease.is_some()),
            ("url", self.url.is_some()),
            ("url_file", self.url_file.is_some()),
            ("ca_file", self.ca_file.is_some()),
            ("queue", self.queue.is_some()),
            ("id", self.id.is_some()),
        ];
        let (kind, few) = (self.from.name(), own.join(", "));
        if let Some((stranger, _)) = set.iter().find(|(name, is_set)| *is_set && !own.contains(name)) {
            return Err(format!("{stranger} does not belong to from = {kind:?}, which takes {few}"));
        }
        let text = |name: &str, value: &Option<String>, example: &str| match value.as_deref() {
            Some("") => Err(format!("{name} is empty; write one such as {example:?}")),
            Some(value) => Ok(value.to_owned()),
            None => Err(format!("{name} is missing; write {name} = {example:?}")),
        };
        let or = |value: &Option<String>, default: &str| value.clone().filter(|value| !value.is_empty()).unwrap_or_else(|| default.into());
        let lease = self.lease.unwrap_or(LEASE);
        Ok(match self.from {
            Kind::RedisStream => Door::Stream(StreamDoor {
                key: text("key", &self.key, "orders:due")?,
                group: or(&self.group, "order-closer"),
                field: or(&self.field, "order_id"),
                lease,
            }),
            Kind::RedisZset => Door::SortedSet(SortedSetDoor {
                key: text("key", &self.key, "orders:delayed")?,
                unit: self.unit.unwrap_or(EpochUnit::Milliseconds),
                lease,
            }),
            Kind::Amqp => Door::Amqp(AmqpDoor {
                broker: match (&self.url, &self.url_file) {
                    (Some(url), None) => Broker::Url(url.clone()),
                    (None, Some(path)) => Broker::File(path.clone()),
                    (Some(_), Some(_)) => return Err("url and url_file are both set; one of them is enough".into()),
                    (None, None) => return Err("url is missing; write url = \"amqp://user:password@host:5672/vhost\", or url_file".into()),
                },
                ca_file: self.ca_file.clone(),
                queue: text("queue", &self.queue, "orders.timeout")?,
                id: self.id.clone().unwrap_or_default(),
            }),
        })
    }
}

/// By default.
const LEASE: Span = Span::from_secs(30);

impl Door {
    /// From where it takes: two doors of one place would take each other's hints.
    #[must_use]
    pub fn place(&self) -> String {
        match self {
            Self::Stream(StreamDoor { key, group, .. }) => format!("the stream {key} in the group {group}"),
            Self::SortedSet(SortedSetDoor { key, .. }) => format!("the sorted set {key}"),
            Self::Amqp(AmqpDoor { broker, queue, .. }) => format!("the queue {queue} at {broker}"),
        }
    }

    /// Whether it is one of Redis.
    #[must_use]
    pub fn is_in_redis(&self) -> bool {
        matches!(self, Self::Stream(_) | Self::SortedSet(_))
    }

    /// For how long a hint is a daemon's that has taken it, where that has an end.
    #[must_use]
    pub fn lease(&self) -> Option<Span> {
        match self {
            Self::Stream(StreamDoor { lease, .. }) | Self::SortedSet(SortedSetDoor { lease, .. }) => Some(*lease),
            Self::Amqp(_) => None,
        }
    }
}

/// The name of a door: a word.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct DoorName(String);

impl DoorName {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for DoorName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if text.is_empty() || text.len() > 64 || !text.chars().all(plain) {
            return Err("is not a name of at most 64 letters, digits, hyphens, underscores and dots".into());
        }
        Ok(Self(text))
    }
}

impl From<DoorName> for String {
    fn from(name: DoorName) -> Self {
        name.0
    }
}

impl fmt::Display for DoorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a message has the order's id.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub enum IdIn {
    /// The body is the id.
    #[default]
    Body,
    /// The body is JSON, and this pointer (RFC 6901) leads to the id.
    Json(String),
    /// A header of this name has it.
    Header(String),
}

impl TryFrom<String> for IdIn {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let escapes_are_whole = || text.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
        match (text.as_str(), text.strip_prefix("header:")) {
            ("body", _) => Ok(Self::Body),
            (_, Some(name)) if !name.is_empty() => Ok(Self::Header(name.into())),
            (pointer, _) if pointer.starts_with('/') && escapes_are_whole() => Ok(Self::Json(text)),
            _ => Err("is not \"body\", a JSON pointer such as \"/order/id\", or a header such as \"header:order_id\"".into()),
        }
    }
}

impl From<IdIn> for String {
    fn from(id: IdIn) -> Self {
        match id {
            IdIn::Body => "body".into(),
            IdIn::Json(pointer) => pointer,
            IdIn::Header(name) => format!("header:{name}"),
        }
    }
}

impl Loaded {
    /// Each door has what its kind needs, and takes no other's hints.
    pub(super) fn validate_hints(&self) -> Result<(), String> {
        let (mut names, mut places) = (HashSet::new(), HashSet::new());
        for hints in &self.config.hints {
            let wrong = |what: &str| self.wrong("hints", &format!("has an entry {}, whose {what}", hints.name));
            let door = hints.door().map_err(|what| wrong(&what))?;
            if !names.insert(&hints.name) {
                return Err(wrong("name another one has, too"));
            }
            if !places.insert(door.place()) {
                return Err(wrong(&format!("hints another one takes, too: those of {}; let one door be for all rules", door.place())));
            }
            if let Some(rule) = hints.rule.as_ref().filter(|rule| !self.config.rule_names().contains(rule)) {
                let known: Vec<String> = self.config.rule_names().iter().map(ToString::to_string).collect();
                return Err(wrong(&format!("rule is {rule}, which there is not; write one of {}, or leave it out", known.join(", "))));
            }
            if hints.rules(&self.config).is_empty() {
                return Err(wrong("hints nobody is to look at: no orders table is named; name one, or write rule = \"timers\""));
            }
            if !(1..=10_000).contains(&hints.prefetch) {
                return Err(wrong("prefetch must be from 1 to 10000"));
            }
            if door.lease().is_some_and(|lease| lease < Span::from_secs(1)) {
                return Err(wrong("lease must be 1s at the least"));
            }
            if door.is_in_redis() && self.config.redis.url.is_none() {
                return Err(wrong(&format!("from is {:?}, and there is no Redis: redis.url is \"none\"", hints.from.name())));
            }
        }
        Ok(())
    }
}
