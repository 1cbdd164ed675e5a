//! Which tables and columns could be meant, by the catalogue and the words of [`super::guesses`].

use crate::{
    cli::init::{
        asker::Choice,
        guesses::{CREATED, DEADLINES, DELETED, IDS, STATUSES, labels, place, table},
    },
    store::{ColumnKind, SurveyedColumn, SurveyedTable},
};

/// A table whose name or whose columns are this much less likely than those of the first is no rival of it.
const CLEAR: usize = 10;

/// The tables that may have the orders, the likeliest first.
pub(super) fn tables(tables: &[SurveyedTable]) -> Vec<&SurveyedTable> {
    let mut scored: Vec<(usize, &SurveyedTable)> =
        tables.iter().map(|table| (score(table), table)).filter(|(score, _)| *score > 0).collect();
    scored.sort_by_key(|(score, table)| (usize::MAX - score, table.name.to_string()));
    scored.into_iter().map(|(_, table)| table).collect()
}

/// Whether the first of them is the likeliest by far.
pub(super) fn is_clear(candidates: &[&SurveyedTable]) -> bool {
    match candidates {
        [] => false,
        [_] => true,
        [first, second, ..] => score(first) >= score(second) + CLEAR,
    }
}

fn score(surveyed: &SurveyedTable) -> usize {
    let has_all = !ids(surveyed).is_empty() && !statuses(surveyed).is_empty() && !deadlines(surveyed).is_empty();
    if has_all { table(&surveyed.name.name, &surveyed.comment) } else { 0 }
}

/// A table as a choice.
pub(super) fn table_choice(table: &SurveyedTable) -> Choice {
    let rows = table.rows.map_or_else(String::new, |rows| format!("about {rows} rows"));
    let about = [rows, table.comment.clone()].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
    Choice::new(table.name.to_string(), about)
}

/// A column as a choice.
pub(super) fn column_choice(column: &SurveyedColumn) -> Choice {
    let comment = if column.comment.is_empty() { String::new() } else { format!(", {}", column.comment) };
    Choice::new(&column.name, format!("{}{comment}", column.declared))
}

/// The columns of a table that are in a list of names, in its order.
fn named<'t>(table: &'t SurveyedTable, list: &[&str], fits: impl Fn(&SurveyedColumn) -> bool) -> Vec<&'t SurveyedColumn> {
    let place = |column: &'t SurveyedColumn| Some((place(&column.name, list)?, column));
    let mut found: Vec<_> = table.columns.iter().filter(|column| fits(column)).filter_map(place).collect();
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, column)| column).collect()
}

/// Columns that may be the id: the primary key, and what is unique and called like one.
pub(super) fn ids(table: &SurveyedTable) -> Vec<&SurveyedColumn> {
    // Sixteen bytes are a UUID.
    const UUID: ColumnKind = ColumnKind::Bytes { length: 16, fixed: true };
    let can_be =
        |column: &SurveyedColumn| matches!(column.kind, ColumnKind::Integer | ColumnKind::Text | ColumnKind::Uuid) || column.kind == UUID;
    let primary = table.columns.iter().filter(|column| column.is_primary && can_be(column));
    let mut found: Vec<&SurveyedColumn> = primary.collect();
    let others = named(table, IDS, |column| can_be(column) && column.is_unique);
    // Without any key, as in a view, what is called like an id.
    let loose = named(table, &["id"], can_be).into_iter().chain(named(table, IDS, can_be));
    for column in others.into_iter().chain(loose.filter(|_| table.columns.iter().all(|column| !column.is_unique))) {
        if !found.iter().any(|known| known.name == column.name) {
            found.push(column);
        }
    }
    found
}

/// Columns that may be the status.
pub(super) fn statuses(table: &SurveyedTable) -> Vec<&SurveyedColumn> {
    let can_be = |column: &SurveyedColumn| {
        matches!(column.kind, ColumnKind::Integer | ColumnKind::Text | ColumnKind::Enumeration(_) | ColumnKind::Bytes { .. })
    };
    named(table, STATUSES, can_be)
}

/// Columns that may be the deadline, or the time of creation: the deadline first.
pub(super) fn deadlines(table: &SurveyedTable) -> Vec<&SurveyedColumn> {
    let can_be = |column: &SurveyedColumn| match column.kind {
        ColumnKind::Time { .. } | ColumnKind::Integer => true,
        // SQLite has no type for times.
        ColumnKind::Text => column.declared.to_uppercase().contains("TEXT"),
        ColumnKind::Enumeration(_) | ColumnKind::Uuid | ColumnKind::Bytes { .. } | ColumnKind::Boolean | ColumnKind::Other => false,
    };
    named(table, DEADLINES, can_be).into_iter().chain(named(table, CREATED, can_be)).collect()
}

/// Whether a column holds the time of creation by its name, so that a time limit is added to it.
pub(super) fn is_created(column: &SurveyedColumn) -> bool {
    place(&column.name, DEADLINES).is_none()
}

/// The condition that a row is not marked as deleted, where it can be.
pub(super) fn not_deleted(table: &SurveyedTable) -> Option<String> {
    named(table, DELETED, |_| true).into_iter().find_map(|column| {
        let is_plain = column.name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        match column.kind {
            _ if !is_plain => None,
            ColumnKind::Integer => Some(format!("{} = 0", column.name)),
            ColumnKind::Boolean if column.declared.starts_with("bit") => Some(format!("{} = 0", column.name)),
            ColumnKind::Boolean => Some(format!("NOT {}", column.name)),
            ColumnKind::Time { .. } => Some(format!("{} IS NULL", column.name)),
            ColumnKind::Text | ColumnKind::Enumeration(_) | ColumnKind::Uuid | ColumnKind::Bytes { .. } | ColumnKind::Other => None,
        }
    })
}

/// A status that the column holds, or may hold.
#[derive(Debug, Clone)]
pub(super) struct StatusValue {
    /// As the column prints it.
    pub(super) value: String,
    /// What the column's comment calls it.
    pub(super) label: String,
    /// How many of the newest orders have it.
    pub(super) orders: u64,
}

/// What stands in the column, what its type allows, and what its comment says of that.
pub(super) fn values(column: &SurveyedColumn, counts: &[(Option<String>, u64)]) -> Vec<StatusValue> {
    let said = labels(&column.comment);
    let label = |value: &str| said.iter().find(|(number, _)| number == value).map_or_else(String::new, |(_, label)| label.clone());
    let counted = counts.iter().filter_map(|(value, orders)| Some((value.clone()?, *orders)));
    let allowed: Vec<String> = match &column.kind {
        ColumnKind::Enumeration(labels) => labels.clone(),
        ColumnKind::Integer => said.iter().map(|(number, _)| number.clone()).collect(),
        ColumnKind::Text
        | ColumnKind::Uuid
        | ColumnKind::Bytes { .. }
        | ColumnKind::Time { .. }
        | ColumnKind::Boolean
        | ColumnKind::Other => Vec::new(),
    };
    let mut values: Vec<StatusValue> = counted.map(|(value, orders)| StatusValue { label: label(&value), value, orders }).collect();
    for value in allowed {
        if !values.iter().any(|known| known.value == value) {
            values.push(StatusValue { label: label(&value), value, orders: 0 });
        }
    }
    values
}
