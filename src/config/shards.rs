//! Where the orders of one rule are: in one table, or in several, each of them a shard.
//!
//! No rule says which order is in which: whoever reads a shard knows what stands in it.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Config, Database, Databases, Found, Orders, Pattern, TableName,
    found::ANY,
    ranges::{Meant, Ranges},
};

/// What stands for the table's own part in the user's SQL.
const OWN_PART: &str = "{shard}";

/// A table with orders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shard {
    /// The name of its database, where databases have names.
    pub(super) database: Option<String>,
    /// The table in it.
    pub(super) table: TableName,
    /// What the ranges, or the asterisk, of the table's name stand for in its own.
    part: Option<String>,
    /// By which pattern it is found.
    pattern: Option<Pattern>,
}

impl Shard {
    /// As logs, metrics and events call it.
    fn name(&self) -> String {
        match &self.database {
            Some(database) => format!("{database}.{}", self.table),
            None => self.table.to_string(),
        }
    }
}

impl Config {
    /// Whether orders are in more places than one table.
    #[must_use]
    pub fn is_sharded(&self) -> bool {
        let is_pattern = |orders: &Orders| self.are_several(&orders.table);
        !self.databases.are_none()
            || if self.rules.is_empty() { is_pattern(&self.orders) } else { self.rules.values().any(|rule| is_pattern(&rule.orders)) }
    }

    fn are_several(&self, table: &TableName) -> bool {
        let has_ranges = |text: &str| !Ranges::parse(text).is_ok_and(|ranges| ranges.are_none());
        !self.databases.are_none() || table.name.contains(ANY) || has_ranges(&table.name) || table.schema.as_deref().is_some_and(has_ranges)
    }

    /// The shards of a table's name.
    ///
    /// # Errors
    /// Says what is wrong with the name.
    pub(super) fn shards_of(&self, table: &TableName) -> Result<Vec<Shard>, String> {
        let TableName { database, schema, name } = table;
        let (database, schema) = match (self.databases.are_none(), database, schema) {
            (true, Some(_), _) => return Err("is not a table name such as orders, shop.orders or shop.\"order\"".into()),
            (true, None, schema) => (None, schema.as_ref()),
            (false, None, None) => {
                return Err(format!("names no database; write one of [databases] before it, such as {}.{name}", self.some_database()));
            }
            (false, None, Some(database)) => (Some(database), None),
            (false, Some(database), schema) => (Some(database), schema.as_ref()),
        };
        for part in [database, schema, Some(name)].into_iter().flatten() {
            let left = Ranges::parse(part)?.multiplied()?;
            let strange = |c: char| matches!(c, '{' | '}');
            if self.are_several(table) && left.first().is_some_and(|meant| meant.text.contains(strange)) {
                return Err("has braces in it that are no range such as {0..15}; name tables that no range counts by a rule each".into());
            }
        }
        let asterisks = |part: Option<&String>| part.map_or(0, |part| part.matches(ANY).count());
        if self.are_several(table) && (asterisks(database) + asterisks(schema) > 0 || asterisks(Some(name)) > 1) {
            return Err("has an asterisk elsewhere than once in the name of the table".into());
        }
        let each = |text: Option<&String>| -> Result<Vec<Option<Meant>>, String> {
            text.map_or_else(|| Ok(vec![None]), |text| Ok(Ranges::parse(text)?.multiplied()?.into_iter().map(Some).collect()))
        };
        let (databases, schemas, names) = (each(database)?, each(schema)?, each(Some(name))?);
        let known: Vec<String> = self.databases.each().map(|(name, _)| name).collect();
        let mut shards = Vec::new();
        for database in databases.iter().map(|database| database.as_ref().map(|meant| meant.text.clone())) {
            if let Some(unknown) = database.as_ref().filter(|name| !known.contains(name)) {
                return Err(format!("names the database {unknown}, and [databases] has {}", known.join(", ")));
            }
            for schema in &schemas {
                for name in names.iter().flatten() {
                    let of_schema = schema.as_ref().and_then(|schema| schema.part().map(str::to_owned));
                    let schema = schema.as_ref().map(|meant| meant.text.clone());
                    for (name, part, pattern) in self.named(database.as_ref(), schema.as_ref(), name) {
                        let part = of_schema.iter().cloned().chain(part).reduce(|schema, name| format!("{schema}_{name}"));
                        shards.push(Shard { database: database.clone(), table: TableName::of(schema.clone(), name), part, pattern });
                    }
                }
            }
        }
        Ok(shards)
    }

    /// The tables that one name stands for, each with its own part; by a pattern, those that were found.
    fn named(&self, database: Option<&String>, schema: Option<&String>, meant: &Meant) -> Vec<(String, Option<String>, Option<Pattern>)> {
        if !meant.text.contains(ANY) {
            return vec![(meant.text.clone(), meant.part().map(str::to_owned), None)];
        }
        let pattern = Pattern { database: database.cloned(), schema: schema.cloned(), name: meant.text.clone() };
        // Without a catalogue the pattern itself stands for what it will be.
        let Some(names) = self.found.of(&pattern) else { return vec![(meant.text.clone(), Some(ANY.into()), Some(pattern))] };
        let named = |name: String| {
            let (from, to) = pattern.fit(&name)?;
            // From the first of what varies to the end of the last, which may be a range beside the asterisk.
            let after = name.len() - to;
            let (from, after) = meant.varies.map_or((from, after), |(first, last)| (first.min(from), after.min(meant.text.len() - last)));
            let part = name[from..name.len() - after].to_owned();
            Some((name, Some(part), Some(pattern.clone())))
        };
        names.into_iter().filter_map(named).collect()
    }

    /// A configuration for each pattern, as if the pattern itself were the table.
    #[must_use]
    pub fn patterns(&self) -> Vec<Self> {
        let blank = Self { found: Found::default(), ..self.clone() };
        let mut patterns: Vec<Self> = blank.of_each_rule();
        let mut seen = BTreeSet::new();
        patterns.retain(|config| config.which.pattern.as_ref().is_some_and(|pattern| seen.insert(pattern.clone())));
        patterns.iter_mut().for_each(|config| config.found = self.found.clone());
        patterns
    }

    /// Whether the table's name is a pattern still: its catalogue was never read.
    #[must_use]
    pub fn is_pattern(&self) -> bool {
        self.which.pattern.as_ref().is_some_and(|pattern| pattern.name == self.orders.table.name)
    }

    fn some_database(&self) -> String {
        self.databases.each().next().map_or_else(|| "ds_0".into(), |(name, _)| name)
    }

    /// The settings as each shard has them; as they are where there is one table.
    pub(super) fn of_each_shard(self) -> Vec<Self> {
        if !self.are_several(&self.orders.table) {
            return vec![self];
        }
        // What was loaded has been found right.
        let shards = self.shards_of(&self.orders.table).unwrap_or_default();
        let urls: BTreeMap<String, _> = self.databases.each().collect();
        let of_shard = |shard: &Shard| {
            let mut config = self.clone();
            config.databases = Databases::default();
            config.orders.table = shard.table.clone();
            if let Some(url) = shard.database.as_ref().and_then(|name| urls.get(name)) {
                config.database = Database { url: (*url).clone(), ..self.database.clone() };
            }
            if let Some(part) = &shard.part {
                config.close.sql.iter_mut().for_each(|statement| statement.sql = statement.sql.replace(OWN_PART, part));
            }
            config.which.name = self.which.name.at(&shard.name());
            config.which.database.clone_from(&shard.database);
            config.which.pattern.clone_from(&shard.pattern);
            config.which.is_one_of_several |= shards.len() > 1;
            config
        };
        shards.iter().map(of_shard).collect()
    }

    /// Refuses a statement with `{shard}` in it where no shard has a part of its own.
    pub(super) fn refuse_unknown_part(&self) -> Result<(), String> {
        let is_named = self.close.sql.iter().any(|statement| statement.sql.contains(OWN_PART));
        let has_part = !self.are_several(&self.orders.table)
            || self.shards_of(&self.orders.table).is_ok_and(|shards| shards.iter().all(|shard| shard.part.is_some()));
        if is_named && !has_part {
            return Err(format!(
                "has {OWN_PART}, which stands for what a range in the table's own name stands for, and orders.table has none"
            ));
        }
        Ok(())
    }
}
