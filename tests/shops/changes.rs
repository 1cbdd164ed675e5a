//! All tables of a database at two moments, and the difference in words.

use std::{collections::BTreeMap, ops::RangeInclusive};

use crate::support::{Database, Kind, database::Rows};

/// A row's columns and their texts.
type Row = BTreeMap<String, Option<String>>;

/// Every row of every table, by its table and its primary key.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Snapshot {
    rows: BTreeMap<(String, String), Row>,
    keys: BTreeMap<String, Vec<String>>,
}

impl Snapshot {
    pub(super) async fn take(database: &Database) -> Self {
        let (schema, quote) = if database.kind == Kind::Postgres { ("current_schema()", '"') } else { ("database()", '`') };
        let columns = database
            .rows(&format!(
                "SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = {schema}
                 ORDER BY table_name, ordinal_position"
            ))
            .await;
        let mut tables: BTreeMap<String, (Vec<String>, Vec<String>)> = BTreeMap::new();
        for row in columns {
            let [Some(table), Some(column), Some(kind)] = <[_; 3]>::try_from(row).expect("three columns") else { continue };
            let (columns, selected) = tables.entry(table).or_default();
            let name = format!("{quote}{column}{quote}");
            selected.push(if kind.ends_with("binary") { format!("LOWER(HEX({name}))") } else { name });
            columns.push(column);
        }
        let keys = pairs(
            database
                .rows(&format!(
                    "SELECT k.table_name, k.column_name FROM information_schema.key_column_usage k
                       JOIN information_schema.table_constraints c ON c.constraint_name = k.constraint_name
                            AND c.table_name = k.table_name AND c.table_schema = k.table_schema
                      WHERE c.constraint_type = 'PRIMARY KEY' AND k.table_schema = {schema}
                      ORDER BY k.table_name, k.ordinal_position"
                ))
                .await,
        );
        let mut rows = BTreeMap::new();
        for (table, (columns, selected)) in tables {
            for texts in database.rows(&format!("SELECT {} FROM {quote}{table}{quote}", selected.join(", "))).await {
                let row: Row = columns.iter().cloned().zip(texts).collect();
                let key: Vec<String> = keys[&table].iter().map(|column| row[column].clone().unwrap_or_default()).collect();
                rows.insert((table.clone(), key.join("/")), row);
            }
        }
        Self { rows, keys }
    }

    /// One line for each column that changed, each row that came and each that went. What became a time of `now`
    /// reads `now`.
    pub(super) fn changes(&self, after: &Self, now: &RangeInclusive<String>) -> Vec<String> {
        let mut lines = Vec::new();
        for (at @ (table, key), row) in &after.rows {
            match self.rows.get(at) {
                Some(before) => lines.extend(before.iter().zip(row).filter(|(old, new)| old != new).map(|((column, old), (_, new))| {
                    format!("{table} {key}: {column} {} -> {}", shown(old.as_ref(), now), shown(new.as_ref(), now))
                })),
                None => lines.push(format!("+ {table}: {}", contents(row, &self.keys[table], now))),
            }
        }
        lines.extend(self.rows.keys().filter(|at| !after.rows.contains_key(at)).map(|(table, key)| format!("- {table} {key}")));
        lines
    }
}

/// What a new row has: all but a key of one column, which is generated, and what is empty.
fn contents(row: &Row, key: &[String], now: &RangeInclusive<String>) -> String {
    let told = |column: &String, value: &str| !value.is_empty() && key != [column.clone()];
    let told = row.iter().filter(|(column, value)| value.as_deref().is_some_and(|value| told(column, value)));
    told.map(|(column, value)| format!("{column}={}", shown(value.as_ref(), now))).collect::<Vec<_>>().join(" ")
}

fn shown(value: Option<&String>, now: &RangeInclusive<String>) -> String {
    match value {
        None => "NULL".into(),
        Some(text) if text.get(..19).is_some_and(|to_the_second| now.contains(&to_the_second.to_owned())) => "now".into(),
        Some(text) => text.clone(),
    }
}

/// The second column of all rows with the same first.
fn pairs(rows: Rows) -> BTreeMap<String, Vec<String>> {
    let mut pairs: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in rows {
        if let [Some(first), Some(second)] = row.as_slice() {
            pairs.entry(first.clone()).or_default().push(second.clone());
        }
    }
    pairs
}
