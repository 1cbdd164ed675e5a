//! The configuration: what each key means and its default.
//!
//! Values arrive in the order default < file < environment ([`load()`]). Each is parsed into its meaning
//! as it is read, by the types in `values` and `urls`, so an error names the key, what it found, what
//! would be right and where the value was set. Unknown keys are errors.

mod ask;
mod changes;
mod databases;
mod events;
mod explain;
mod found;
mod hints;
mod http;
mod key_prefix;
mod lines;
mod live;
mod load;
mod optional;
mod ranges;
mod rule;
mod rules;
mod schema;
mod secret;
mod shards;
mod span;
mod statement;
mod status;
mod timers;
mod url_files;
mod urls;
mod validate;
mod values;
mod variables;
mod verb;

pub use ask::{Ask, Unanswered};
pub use changes::{Changes, LIVE};
pub use databases::{DatabaseUrls, Databases};
pub use events::{EventSource, Events, Stream, TargetName, Webhook, WebhookSecret};
pub(crate) use explain::quoted;
pub use found::{Found, Pattern};
pub use hints::{AmqpDoor, Broker, Door, DoorName, Hints, IdIn, Kind, SortedSetDoor, StreamDoor};
pub use http::{Http, HttpListen, Token};
pub use key_prefix::KeyPrefix;
pub use live::Live;
pub use load::{DEFAULT_FILE, INIT_FILE, Loaded, Setting, load, load_or, load_text};
pub use rule::{Names, Rival, Rule};
pub use rules::{RuleName, RuleSettings, Which};
pub use secret::Secret;
pub use span::{Oldest, Span};
pub use statement::{Rows, Statement};
pub use status::{Status, Statuses};
pub use timers::Timers;
pub use urls::{AmqpUrl, DatabaseUrl, Endpoint, RedisAddress, RedisUrl, Sentinels, WebhookUrl, without_password};
pub use values::{ColumnName, TableName, TimeZone};

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use backon::{BackoffBuilder, ExponentialBuilder};
use optional::optional;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// All settings.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where keys expire.
    pub redis: Redis,
    /// Where orders live.
    pub database: Database,
    /// Where the orders of several shards live; nothing where they live in one database.
    #[serde(skip_serializing_if = "Databases::are_none")]
    #[schemars(schema_with = "schema::databases")]
    pub databases: Databases,
    /// How the orders table is laid out.
    pub orders: Orders,
    /// How orders are closed.
    pub close: Close,
    /// How lost notifications are made up for.
    pub sweep: Sweep,
    /// What is recorded and reported of each closure.
    pub events: Events,
    /// Timers, which are told when they are due.
    pub timers: Timers,
    /// Where the daemon answers questions, and who may ask.
    pub http: Http,
    /// How the daemon stops.
    pub shutdown: Shutdown,
    /// What the daemon says.
    pub log: Log,
    /// Doors through which hints come in, beside keyspace notifications.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "optional::list")]
    #[schemars(schema_with = "schema::list::<Hints>")]
    pub hints: Vec<Hints>,
    /// Several rules; none where the settings above say the only one.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::rules")]
    pub rules: BTreeMap<RuleName, RuleSettings>,
    /// Of which rule these settings are.
    #[serde(skip)]
    pub which: Which,
    /// The only shard that somebody wants to know of.
    #[serde(skip)]
    pub only_shard: Option<String>,
    /// The tables that patterns stand for.
    #[serde(skip)]
    pub found: Found,
}

/// Where keys expire.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Redis {
    /// `redis://`, `rediss://` (TLS), `redis-cluster://`, `redis-sentinel://` or `redis+unix://`, with user, password and
    /// database number.
    pub url: RedisUrl,
    /// A file with that URL.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "optional")]
    pub url_file: Option<PathBuf>,
    /// A PEM file of certificate authorities to trust instead of the system's, for `rediss://`.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "optional")]
    pub ca_file: Option<PathBuf>,
    /// What stands before the id in an order's key.
    pub key_prefix: KeyPrefix,
    /// Which databases' notifications count.
    pub listen: Listen,
    /// Whether to add the missing flags to `notify-keyspace-events` when Redis lacks them.
    pub enable_notifications: bool,
}

/// Which databases' notifications count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Listen {
    /// Those of every database: a foreign one costs only a look.
    All,
    /// Only those of the database in the URL.
    Own,
}

impl Default for Redis {
    fn default() -> Self {
        Self {
            url: RedisUrl::default(),
            url_file: None,
            ca_file: None,
            key_prefix: KeyPrefix::default(),
            listen: Listen::All,
            enable_notifications: true,
        }
    }
}

/// Where orders live.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Database {
    /// `sqlite://`, `postgres://` or `mysql://` (MySQL 8, MariaDB 10.6 and later).
    pub url: DatabaseUrl,
    /// A file with that URL.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "optional")]
    pub url_file: Option<PathBuf>,
    /// How columns without a zone are to be read; the server's own zone when absent.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "optional")]
    pub time_zone: Option<TimeZone>,
    /// How long one statement, or the wait for a connection, may take.
    pub timeout: Span,
    /// How many connections close orders; one of them for each rule that no other rule may use.
    pub connections: usize,
}

impl Default for Database {
    fn default() -> Self {
        Self { url: DatabaseUrl::default(), url_file: None, time_zone: None, timeout: Span::from_secs(10), connections: 10 }
    }
}

/// How the orders table is laid out.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Orders {
    /// The table, schema-qualified if need be; or several, with a range such as `{0..15}` for a number, and the name of their
    /// database before the first dot where databases have names.
    pub table: TableName,
    /// The column whose value follows the prefix in the key.
    pub id: ColumnName,
    /// The status column.
    pub status: ColumnName,
    /// The statuses of an order that still can be paid.
    pub unpaid: Statuses,
    /// The status that closing sets.
    pub closed: Status,
    /// When an unpaid order is to be closed.
    pub deadline: Deadline,
    /// One more SQL condition on a row; rows that fail it are no orders.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "optional")]
    pub filter: Option<String>,
    /// Further columns that closing sets, each to an SQL expression.
    pub set: BTreeMap<ColumnName, String>,
    /// What becomes of an order that its row calls due before its key expires.
    pub disputed: Disputed,
}

/// What becomes of an order that its row calls due more than a minute before its key expires.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Disputed {
    /// It waits for its key.
    #[default]
    Wait,
    /// The row decides alone.
    Close,
}

impl Default for Orders {
    fn default() -> Self {
        Self {
            table: TableName::new("orders"),
            id: ColumnName::new("order_no"),
            status: ColumnName::new("status"),
            unpaid: Statuses::from(vec![Status::Integer(0)]),
            closed: Status::Integer(4),
            deadline: Deadline { column: default_column(), plus: None, unit: None },
            filter: None,
            set: BTreeMap::new(),
            disputed: Disputed::default(),
        }
    }
}

/// When an unpaid order is to be closed: at a column's time, or a while after it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Deadline {
    /// A column with a point in time.
    // In a file it may be left out as any other setting.
    #[schemars(default = "default_column")]
    pub column: ColumnName,
    /// What to add to it, when the column holds the time of creation.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "optional")]
    pub plus: Option<Span>,
    /// What an integer column counts.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "optional")]
    pub unit: Option<EpochUnit>,
}

fn default_column() -> ColumnName {
    ColumnName::new("expires_at")
}

/// What an integer column with a point in time counts since 1970 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum EpochUnit {
    /// Seconds.
    #[serde(rename = "s")]
    Seconds,
    /// Milliseconds.
    #[serde(rename = "ms")]
    Milliseconds,
    /// Microseconds, as our own tables count.
    #[serde(skip)]
    Microseconds,
}

impl EpochUnit {
    /// How many microseconds one unit is.
    #[must_use]
    pub const fn micros(self) -> i64 {
        match self {
            Self::Seconds => 1_000_000,
            Self::Milliseconds => 1_000,
            Self::Microseconds => 1,
        }
    }
}

/// How orders are closed.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Close {
    /// The most orders that one transaction closes. By default fewer where other transactions share the database.
    pub batch_size: usize,
    /// How many transactions run at the same time; those of full batches over all instances together, at least one in each.
    pub workers: usize,
    /// How many order ids may wait for a worker; beyond that the sweep finds them again.
    pub inbox: usize,
    /// When an order that its database rejects is tried again.
    pub retry: Retry,
    /// Statements in the same transaction, each with the number of rows that it must change, if that matters.
    pub sql: Vec<Statement>,
    /// Who is asked before.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "optional")]
    pub ask: Option<Ask>,
}

impl Default for Close {
    fn default() -> Self {
        Self { batch_size: 5_000, workers: 2, inbox: 200_000, retry: Retry::default(), sql: Vec::new(), ask: None }
    }
}

/// When something that failed is tried again: exponential backoff, with up to as much again as jitter, and never more than
/// the longest wait.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Retry {
    /// How often in all.
    pub attempts: u32,
    /// How long to wait after the first try, at least.
    pub initial: Span,
    /// The longest wait.
    pub max: Span,
}

impl Retry {
    /// How long to wait after so many failures, from 1; `None` when that was the last attempt.
    #[must_use]
    pub fn pause_after(&self, failures: u32) -> Option<Duration> {
        ExponentialBuilder::default()
            .with_min_delay(self.initial.get())
            .with_max_delay(self.max.get())
            .with_max_times(self.attempts.saturating_sub(1) as usize)
            .with_jitter()
            .build()
            .nth(failures.saturating_sub(1) as usize)
            // The jitter comes on top of the greatest delay.
            .map(|pause| pause.min(self.max.get()))
    }

    /// How long all attempts take at least, from the first failure to the last.
    #[must_use]
    pub fn length(&self) -> Duration {
        let (mut length, mut pause, max) = (Duration::ZERO, self.initial.get(), self.max.get());
        for failures in 1..self.attempts {
            if pause >= max {
                return length.saturating_add(max.saturating_mul(self.attempts - failures));
            }
            length = length.saturating_add(pause);
            pause = pause.saturating_mul(2);
        }
        length
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self { attempts: 8, initial: Span::from_secs(1), max: Span::from_secs(300) }
    }
}

/// How lost notifications are made up for.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Sweep {
    /// How often the table is read.
    pub every: Span,
    /// How far ahead of their deadlines orders are read.
    pub ahead: Span,
    /// The most orders that one query reads.
    pub page: u32,
    /// What has been overdue for longer is left alone.
    pub oldest: Oldest,
}

impl Default for Sweep {
    fn default() -> Self {
        Self { every: Span::from_secs(1), ahead: Span::from_secs(2), page: 2_000, oldest: Oldest::default() }
    }
}

/// How the daemon stops.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Shutdown {
    /// How long batches in flight may take to finish; what is cut off then rolls back.
    pub timeout: Span,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self { timeout: Span::from_secs(10) }
    }
}

/// What the daemon says, and how.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// How a line looks.
    pub format: LogFormat,
    /// What is logged, as a `tracing` filter: `info`, `order_closer=debug`, ...
    pub level: String,
    /// How often a summary is logged.
    pub summary: Span,
}

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl Default for Log {
    fn default() -> Self {
        Self { format: LogFormat::Text, level: "info".into(), summary: Span::from_secs(60) }
    }
}
