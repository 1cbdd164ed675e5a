//! Shops whose tables are known: each file of `config/examples` knows its system by the tables that its own SQL names.

use crate::{
    config::{Config, DatabaseUrl, Rule, load_text},
    store::{SurveyedTable, grants},
};

/// The examples, by the names of their files.
const EXAMPLES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/examples.rs"));

/// Patterns for shops of one's own; their tables are called like anybody's.
const PATTERN: &str = "plain-";

/// What WordPress puts before the names of its tables unless it is told otherwise; likewise of PrestaShop.
const PREFIXES: [&str; 2] = ["wp_", "ps_"];

/// A shop system whose tables are there.
#[derive(Debug)]
pub(super) struct Shop {
    /// The name of its example.
    pub(super) name: &'static str,
    /// The first line of the example, without what every such line begins with.
    pub(super) about: String,
    /// Its orders table, as it is called here.
    pub(super) table: String,
    /// The example, with the tables' prefix as it is here.
    pub(super) text: String,
}

/// The systems whose tables are all here, those with fewer rules first; each as often as its tables are here, with one prefix or another.
pub(super) fn known(database: &DatabaseUrl, tables: &[SurveyedTable]) -> Vec<Shop> {
    let mut shops: Vec<Shop> = EXAMPLES.iter().flat_map(|(name, text)| recognised(name, text, database, tables)).collect();
    shops.sort_by(|one, other| (one.name.len(), one.name, &one.table).cmp(&(other.name.len(), other.name, &other.table)));
    shops
}

/// The names of all.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    EXAMPLES.iter().map(|(name, _)| *name).filter(|name| !name.starts_with(PATTERN))
}

fn recognised(name: &'static str, text: &str, database: &DatabaseUrl, tables: &[SurveyedTable]) -> Vec<Shop> {
    if name.starts_with(PATTERN) {
        return Vec::new();
    }
    let Some(orders) = rules(name, text, database).and_then(|rules| Some(rules.first()?.orders.table.name.clone())) else {
        return Vec::new();
    };
    let first = text.lines().next().unwrap_or_default().trim_start_matches("# order-closer for ");
    // Of a sentence that goes on in the next line, what can stand alone.
    let about = match first.strip_suffix('.') {
        Some(whole) => whole,
        None => first.rsplit_once(". ").or_else(|| first.rsplit_once(", ")).map_or(first, |(about, _)| about),
    };
    let with = |(ours, theirs): (&str, String)| Shop {
        name,
        about: about.to_owned(),
        table: with_prefix(&orders, ours, &theirs),
        text: with_prefix(text, ours, &theirs),
    };
    prefixes(&orders, tables).into_iter().map(with).filter(|shop| fits(name, &shop.text, database, tables)).collect()
}

/// The example's rules, if it is for this kind of database.
fn rules(name: &str, text: &str, database: &DatabaseUrl) -> Option<Vec<Config>> {
    let config = load_text(name.as_ref(), Some(text.into())).ok()?.config;
    let own = toml::from_str::<toml::Table>(text).ok()?;
    let url = own.get("database")?.get("url")?.as_str()?.to_owned();
    let is_for = std::mem::discriminant(&DatabaseUrl::try_from(url).ok()?) == std::mem::discriminant(database);
    is_for.then(|| config.of_each_rule())
}

/// The prefixes with which its orders table could be here: as it is written, and what stands in that place.
fn prefixes(orders: &str, tables: &[SurveyedTable]) -> Vec<(&'static str, String)> {
    let Some((prefix, bare)) = PREFIXES.iter().find_map(|prefix| Some((*prefix, orders.strip_prefix(prefix)?))) else {
        return vec![("", String::new())];
    };
    tables.iter().filter_map(|table| Some((prefix, table.name.name.strip_suffix(bare)?.to_owned()))).collect()
}

/// The text with another prefix wherever a name begins with the first.
fn with_prefix(text: &str, ours: &str, theirs: &str) -> String {
    if ours == theirs {
        return text.into();
    }
    let mut pieces = text.split(ours);
    let mut result = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let begins_a_name = !result.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        result.push_str(if begins_a_name { theirs } else { ours });
        result.push_str(piece);
    }
    result
}

/// Whether every table that the example names is here, and the columns of its orders.
fn fits(name: &str, text: &str, database: &DatabaseUrl, tables: &[SurveyedTable]) -> bool {
    let Some(rules) = rules(name, text, database) else { return false };
    let find = |name: &str| tables.iter().find(|table| table.name.schema.is_none() && table.name.name.eq_ignore_ascii_case(name));
    rules.iter().all(|config| {
        let orders = &config.orders;
        let columns = [&orders.id, &orders.status, &orders.deadline.column];
        let has = |table: &SurveyedTable, name: &str| table.columns.iter().any(|column| column.name == name);
        find(&orders.table.name).is_some_and(|table| columns.iter().all(|column| has(table, column.as_str())))
            && grants(&Rule::of(config), database, None).tables.iter().all(|table| find(&table.name).is_some())
    })
}

#[cfg(test)]
mod tests {
    use super::with_prefix;

    #[test]
    fn a_prefix_is_replaced_where_a_name_begins_with_it() {
        let text = "UPDATE wp_posts p SET p.x = '\\_wp_y' -- wp-config, kwp_z, wp_";
        assert_eq!(with_prefix(text, "wp_", "shop1_"), "UPDATE shop1_posts p SET p.x = '\\_wp_y' -- wp-config, kwp_z, shop1_");
        assert_eq!(with_prefix(text, "wp_", "wp_"), text);
    }
}
