//! Several rules, each with orders of its own: in the file a list, `[[rules]]`, and below it by their names, so that a
//! variable finds the rule that it is about.

use std::{collections::BTreeMap, fmt, sync::Arc};

use figment::{
    Figment,
    value::{Dict, Value},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Close, ColumnName, Config, KeyPrefix, Orders, Pattern, TableName, optional, rule::Rival, schema};
use crate::metric::BESIDE;

/// The list in the file.
pub(super) const RULES: &str = "rules";

/// What says the only rule, and has no meaning beside several.
const OF_THE_ONLY_ONE: [&str; 4] = ["orders", "close", "redis.key_prefix", "events.include"];

/// The name of a rule, as logs, metrics, events and commands have it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct RuleName {
    /// Its name, and behind it, where there are shards, [`BESIDE`] and the shard's.
    text: Arc<str>,
    named: usize,
}

impl RuleName {
    /// The name of the only rule, which needs none in the configuration.
    pub const ONLY: &str = "orders";

    /// The name of the rule by which timers fire, which no other may have.
    pub const TIMERS: &str = "timers";

    pub(super) fn timers() -> Self {
        Self { text: Self::TIMERS.into(), named: Self::TIMERS.len() }
    }

    /// Whether timers fire by it.
    #[must_use]
    pub fn is_timers(&self) -> bool {
        self.as_str() == Self::TIMERS
    }

    /// The name itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text[..self.named]
    }

    /// The shard, where orders are in several places.
    #[must_use]
    pub fn shard(&self) -> Option<&str> {
        self.text.get(self.named + BESIDE.len_utf8()..)
    }

    /// What metrics take for the label `rule`: with the shard, of which they make a label of its own.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.text
    }

    /// The same rule in this shard.
    pub(super) fn at(&self, shard: &str) -> Self {
        Self { text: format!("{}{BESIDE}{shard}", self.as_str()).into(), named: self.named }
    }

    /// The rule, wherever its orders are.
    #[must_use]
    pub fn everywhere(&self) -> Self {
        Self { text: self.as_str().into(), named: self.named }
    }

    /// As a person is told which orders are meant.
    #[must_use]
    pub fn in_full(&self) -> String {
        match self.shard() {
            Some(shard) => format!("{} ({shard})", self.as_str()),
            None => self.as_str().to_owned(),
        }
    }
}

impl Default for RuleName {
    fn default() -> Self {
        Self { text: Self::ONLY.into(), named: Self::ONLY.len() }
    }
}

impl TryFrom<String> for RuleName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<RuleName> for String {
    fn from(name: RuleName) -> Self {
        name.as_str().to_owned()
    }
}

impl std::str::FromStr for RuleName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        // As long as our tables' columns have it.
        if (1..=64).contains(&text.len()) && text.bytes().all(fits) {
            Ok(Self { text: text.into(), named: text.len() })
        } else {
            Err("is no name of a rule: 1 to 64 small letters of a to z, digits and -".into())
        }
    }
}

impl fmt::Display for RuleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for RuleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One of several rules; what stands in it means what it means for the only one.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RuleSettings {
    /// What stands before the id in an order's key.
    pub key_prefix: KeyPrefix,
    /// How the table is laid out.
    pub orders: Orders,
    /// How orders are closed.
    pub close: Close,
    /// Columns that the event of a closure carries.
    #[serde(deserialize_with = "optional::list")]
    #[schemars(schema_with = "schema::list::<ColumnName>")]
    pub include: Vec<ColumnName>,
}

/// Which rule some settings are of.
#[derive(Debug, Clone, Default)]
pub struct Which {
    /// Its name.
    pub name: RuleName,
    /// The name of the database, where databases have names.
    pub database: Option<String>,
    /// By which pattern its table is found. Where the table's name is the pattern itself, none is known yet.
    pub pattern: Option<Pattern>,
    /// The others that close orders of the same table.
    pub(super) rivals: Vec<Rival>,
    /// After which rules its indexes are called.
    pub(super) indexed: Indexed,
    /// Whether there are others, or other shards.
    pub is_one_of_several: bool,
}

/// The rules after which the indexes of one of several rules are called: each after the first that needs the very same index.
#[derive(Debug, Clone, Default)]
pub(super) struct Indexed {
    /// That for the sweep.
    pub(super) due: Option<RuleName>,
    /// That on the id.
    pub(super) id: Option<RuleName>,
}

impl Config {
    /// The settings as each rule has them: with its own orders, close, key prefix and include in the place of the only one's.
    /// Where its orders are in several shards, as it has them for each. That of the timers comes last.
    #[must_use]
    pub fn of_each_rule(&self) -> Vec<Self> {
        let mut all: Vec<Self> = self.of_rules().into_iter().flat_map(Self::of_each_shard).collect();
        if let Some(only) = &self.only_shard {
            all.retain(|config| config.which.name.shard() == Some(only));
        }
        if self.rules.len() > 1 {
            let rivals: Vec<_> = all.iter().map(|config| self.rivals_of(config)).collect();
            all.iter_mut().zip(rivals).for_each(|(config, rivals)| config.which.rivals = rivals);
        }
        all.extend(self.timers.rule(self));
        let are_several = all.len() > 1;
        for rule in &mut all {
            rule.timers.enabled = false;
            rule.which.is_one_of_several |= are_several;
        }
        all
    }

    /// How the tables are laid out of all rules but that of the timers.
    pub(super) fn orders_of_rules(&self) -> impl Iterator<Item = &Orders> {
        let only = (self.rules.is_empty() && !self.orders.table.is_none()).then_some(&self.orders);
        only.into_iter().chain(self.rules.values().map(|rule| &rule.orders))
    }

    /// The same of each rule, wherever its orders are.
    pub(super) fn of_rules(&self) -> Vec<Self> {
        if self.rules.is_empty() {
            return self.orders_of_rules().map(|_| self.clone()).collect();
        }
        let of_rule = |(name, rule): (&RuleName, &RuleSettings)| {
            let mut config = Self { orders: rule.orders.clone(), close: rule.close.clone(), rules: BTreeMap::new(), ..self.clone() };
            config.redis.key_prefix = rule.key_prefix.clone();
            config.events.include = rule.include.clone();
            config.which = Which { name: name.clone(), indexed: self.indexed(&rule.orders), ..Which::default() };
            config
        };
        self.rules.iter().map(of_rule).collect()
    }

    /// After which of several rules the indexes are called that this one needs.
    fn indexed(&self, orders: &Orders) -> Indexed {
        let first = |needs_the_same: &dyn Fn(&Orders) -> bool| {
            let alike = self.rules.iter().filter(|(_, other)| is_same(&orders.table, &other.orders.table) && needs_the_same(&other.orders));
            let first = alike.map(|(name, _)| name).min_by_key(|name| name.as_str() != RuleName::ONLY)?;
            (self.rules.len() > 1 && first.as_str() != RuleName::ONLY).then(|| first.clone())
        };
        let has_id = |other: &Orders| other.id == orders.id;
        let is_due = |other: &Orders| has_id(other) && other.status == orders.status && other.deadline.column == orders.deadline.column;
        Indexed { due: first(&is_due), id: first(&has_id) }
    }

    /// The names of all rules, each with its shards where it has some.
    #[must_use]
    pub fn rule_names(&self) -> Vec<RuleName> {
        self.of_each_rule().into_iter().map(|rule| rule.which.name).collect()
    }

    /// The other rules that close orders in the same place.
    fn rivals_of(&self, config: &Self) -> Vec<Rival> {
        let is_there = |other: &RuleSettings| {
            // What was loaded has been found right.
            let shards = self.shards_of(&other.orders.table).unwrap_or_default();
            shards.iter().any(|shard| shard.database == config.which.database && is_same(&shard.table, &config.orders.table))
        };
        let others = self.rules.iter().filter(|(name, other)| **name != config.which.name.everywhere() && is_there(other));
        others.filter_map(|(name, other)| Rival::new(name, &config.orders, &other.orders)).collect()
    }

    /// Refuses rules of one table of which one takes whatever the other takes: says which one lacks a filter, and why it needs one.
    pub(super) fn refuse_overlaps(&self) -> Result<(), (RuleName, String)> {
        for config in self.of_each_rule() {
            let name = &config.which.name.everywhere();
            for rival in &config.which.rivals {
                let lacking = [(name, &config.orders.filter), (&rival.name, &rival.filter)];
                if let Some((lacking, _)) = lacking.into_iter().find(|(_, filter)| filter.is_none()) {
                    let other = if lacking == name { &rival.name } else { name };
                    let what = format!(
                        "is missing, and so this rule takes orders of the rule {other}, which stand in the same table with the same \
                         statuses; give each rule a filter, and see that no row passes both"
                    );
                    return Err((lacking.clone(), what));
                }
            }
        }
        Ok(())
    }
}

/// Whether two names may be those of one table: where names are quoted some databases tell them apart by case.
fn is_same(one: &TableName, other: &TableName) -> bool {
    one.name.eq_ignore_ascii_case(&other.name)
        && match (&one.schema, &other.schema) {
            (Some(one), Some(other)) => one.eq_ignore_ascii_case(other),
            (None, _) | (_, None) => true,
        }
}

/// Puts the rules of a file, which are a list, below their names.
pub(super) fn by_name(settings: &mut Dict) -> Result<(), String> {
    let Some(rules) = settings.remove(RULES) else { return Ok(()) };
    let Value::Array(tag, list) = rules else {
        return Err("rules must be a list of tables, each under its own [[rules]]".into());
    };
    if list.is_empty() {
        return Err("rules is empty; write a [[rules]] for each, or leave it out".into());
    }
    let mut named = Dict::new();
    for (at, rule) in (1..).zip(list) {
        let Value::Dict(tag, mut rule) = rule else {
            return Err(format!("rules, entry {at} is no table; write each rule under its own [[rules]]"));
        };
        let name = match rule.remove("name") {
            Some(Value::String(_, name)) => name,
            Some(_) => return Err(format!("rules, entry {at}: name takes a text in quotes")),
            None => return Err(format!("rules, entry {at}: name is missing; write name = \"...\" first")),
        };
        if name == RuleName::TIMERS {
            return Err(format!("rules, entry {at}: the name {name} is that of the rule by which timers fire; choose another"));
        }
        if let Err(what) = name.parse::<RuleName>() {
            return Err(format!("rules, entry {at}: name {} {what}", super::quoted("name", &name)));
        }
        if !rule.contains_key("key_prefix") {
            return Err(format!(
                "rules, entry {at} ({name}): key_prefix is missing; write what stands before the id in this rule's keys, or \"none\" \
                 where it has no keys"
            ));
        }
        if named.insert(name.clone(), Value::Dict(tag, rule)).is_some() {
            return Err(format!("rules, entry {at}: the name {name} is another rule's, too"));
        }
    }
    settings.insert(RULES.into(), Value::Dict(tag, named));
    Ok(())
}

/// Whether a setting says something of the only rule.
pub(super) fn is_of_the_only_one(key: &str) -> bool {
    OF_THE_ONLY_ONE.iter().any(|outer| key.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
}

/// A dotted key as a variable spells it, with the rule's own name in it.
pub(super) fn with_name(key: String) -> String {
    match key.strip_prefix("rules.") {
        Some(rest) => {
            let (name, rest) = rest.split_once('.').map_or((rest, None), |(name, rest)| (name, Some(rest)));
            let name = name.replace('_', "-");
            rest.map_or_else(|| format!("rules.{name}"), |rest| format!("rules.{name}.{rest}"))
        }
        None => key,
    }
}

/// What a key of a rule is called where there is one rule alone.
pub(super) fn within_rule(key: &str) -> &str {
    match key.strip_prefix("rules.").and_then(|rest| rest.split_once('.')) {
        Some((_, "key_prefix")) => "redis.key_prefix",
        Some((_, "include")) => "events.include",
        Some((_, rest)) => rest,
        None => key,
    }
}

/// The names that rules have in what was set, whatever they are.
pub(super) fn names_in(set: &Figment) -> Vec<String> {
    match set.find_value(RULES) {
        Ok(Value::Dict(_, rules)) => rules.into_keys().collect(),
        Ok(_) | Err(_) => Vec::new(),
    }
}

/// The names of the rules in what was set, where it has any.
///
/// # Errors
/// Names what can't stand beside them, or what is about a rule that there is not, and says what is wrong with that.
pub(super) fn named(set: &Figment, in_file: &[String]) -> Result<Vec<RuleName>, (String, String)> {
    let Ok(Value::Dict(_, rules)) = set.find_value(RULES) else { return Ok(Vec::new()) };
    if let Some(stranger) = rules.keys().find(|name| !in_file.contains(name)) {
        let known = if in_file.is_empty() { "the file has none".into() } else { format!("the file has {}", in_file.join(", ")) };
        return Err((format!("{RULES}.{stranger}"), format!("is no rule that a variable could change: {known}")));
    }
    if let Some(key) = OF_THE_ONLY_ONE.into_iter().find(|key| set.find_value(key).is_ok()) {
        return Err((key.into(), "says something of the only rule, and there are [[rules]]; write it in each of them".into()));
    }
    rules.keys().map(|name| name.parse().map_err(|what| (format!("{RULES}.{name}"), what))).collect()
}

/// The rule of a setting that stands in one.
pub(super) fn of(key: &str) -> Option<&str> {
    key.strip_prefix("rules.")?.split_once('.').map(|(rule, _)| rule)
}

/// Whether a setting is a rule, or all of them.
pub(super) fn is_whole(key: &str) -> bool {
    key == RULES || key.strip_prefix("rules.").is_some_and(|name| !name.contains('.'))
}

/// What else stands in a rule, in the file alone, beside this setting: its name.
pub(super) fn name_beside(key: &str) -> Option<&'static str> {
    let (_, setting) = key.strip_prefix("rules.")?.split_once('.')?;
    (setting != "name" && !setting.contains('.')).then_some("name")
}
