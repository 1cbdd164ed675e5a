//! Timers: rows of a table of ours, each of which is told to one target when it is due. They are one more rule.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Close, ColumnName, Config, DatabaseUrl, Deadline, Disputed, EpochUnit, Events, KeyPrefix, Orders, RuleName, Status, Statuses, Stream,
    TableName, Webhook, Which, optional::list, optional::optional, schema,
};

/// The table of the timers, beside the orders table.
const TABLE: &str = "order_closer_timers";

/// What an event of a timer carries: the timer.
const CARRIED: [&str; 5] = ["kind", "key", "target", "generation", "data"];

/// Whether there are timers, and who may be told of them.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Timers {
    /// Whether timers fire.
    pub enabled: bool,
    /// HTTP endpoints that a timer may name as its target.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "list")]
    #[schemars(schema_with = "schema::list::<Webhook>")]
    pub webhooks: Vec<Webhook>,
    /// The Redis Stream that a timer may name as its target, as `stream`.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "optional")]
    pub stream: Option<Stream>,
    /// The key of a Redis Stream from which timers are taken, in the database of `redis.url`.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "optional")]
    pub intake: Option<String>,
}

impl Timers {
    /// The rule by which timers fire, with whatever is not its own as these settings have it.
    pub(super) fn rule(&self, config: &Config) -> Option<Config> {
        if !self.enabled {
            return None;
        }
        let text = |text: &str| Status::Text(text.into());
        let beside = config.orders_of_rules().next().and_then(|orders| orders.table.schema.clone());
        let orders = Orders {
            table: TableName { schema: beside, ..TableName::new(TABLE) },
            id: ColumnName::new("id"),
            status: ColumnName::new("state"),
            unpaid: Statuses::from(vec![text("armed")]),
            closed: text("fired"),
            deadline: Deadline { column: ColumnName::new("due_at"), plus: None, unit: Some(EpochUnit::Microseconds) },
            filter: None,
            set: BTreeMap::new(),
            disputed: Disputed::default(),
        };
        let batch_size = if matches!(config.database.url, DatabaseUrl::Sqlite(_)) { 5_000 } else { 1_000 };
        let mut rule = Config {
            orders,
            close: Close { batch_size, ..Close::default() },
            events: Events {
                enabled: true,
                include: CARRIED.map(ColumnName::new).to_vec(),
                traceparent: None,
                webhooks: self.webhooks.clone(),
                stream: self.stream.clone(),
                ..config.events.clone()
            },
            rules: BTreeMap::new(),
            timers: self.clone(),
            which: Which { name: RuleName::timers(), ..Which::default() },
            ..config.clone()
        };
        rule.redis.key_prefix = KeyPrefix::none();
        Some(rule)
    }

    /// The names of the targets that a timer may have.
    pub fn targets(&self) -> impl Iterator<Item = &str> {
        self.webhooks.iter().map(|webhook| webhook.name.as_str()).chain(self.stream.iter().map(|_| Stream::name()))
    }
}
