//! What SQLite's catalogue says of the table: its columns, its indexes, and what they can hold.

use super::{Sqlite, affinity::Affinity};
use crate::{
    config::{DatabaseUrl, Rule, Status, TableName},
    order::{Charset, IdKind},
    store::{
        Misfit, StoreError,
        catalogue::{Index, TableKind},
        mapping::{self, StatusKind},
        session::Session,
    },
};

/// A column of the catalogue.
#[derive(Debug, Clone)]
pub(super) struct Column {
    name: String,
    /// As the table declares it; often enough not at all.
    declared: String,
    /// Its place in the primary key, from 1.
    key_part: i64,
}

impl mapping::Column for Column {
    fn name(&self) -> &str {
        &self.name
    }

    fn declared(&self) -> String {
        if self.declared.is_empty() { "of no declared type".into() } else { self.declared.clone() }
    }
}

pub(super) async fn columns(session: &mut Session<Sqlite>, schema: &str, table: &str) -> Result<Vec<Column>, StoreError> {
    // Not the hidden columns of virtual tables, but generated ones.
    let select =
        sqlx::query_as::<_, (String, String, i64)>("SELECT name, type, pk FROM pragma_table_xinfo(?1, ?2) WHERE hidden <> 1 ORDER BY cid")
            .bind(table)
            .bind(schema);
    let column = |(name, declared, key_part)| Column { name, declared, key_part };
    Ok(session.run(|connection| select.fetch_all(connection)).await?.into_iter().map(column).collect())
}

pub(super) async fn indexes(
    session: &mut Session<Sqlite>,
    schema: &str,
    table: &str,
    rowid_alias: Option<&str>,
) -> Result<Vec<Index>, StoreError> {
    let select = sqlx::query_as::<_, (String, String, bool, bool)>(
        "SELECT l.name, COALESCE(i.name, ''), l.\"unique\", l.partial
         FROM pragma_index_list(?1, ?2) l JOIN pragma_index_info(l.name, ?2) i ORDER BY l.seq, i.seqno",
    )
    .bind(table)
    .bind(schema);
    // A table is its own index on the row id, and lists none.
    let row_id =
        rowid_alias.map(|column| Index { name: "INTEGER PRIMARY KEY".into(), columns: vec![column.into()], unique: true, partial: false });
    let mut indexes = Vec::from_iter(row_id);
    for (name, column, unique, partial) in session.run(|connection| select.fetch_all(connection)).await? {
        match indexes.last_mut() {
            Some(last) if last.name == name => last.columns.push(column),
            _ => indexes.push(Index { name, columns: vec![column], unique, partial }),
        }
    }
    Ok(indexes)
}

/// What the table is, by its name in its schema.
pub(super) async fn table_kind(session: &mut Session<Sqlite>, schema: &str, table: &str) -> Result<TableKind, StoreError> {
    let select = sqlx::query_scalar::<_, bool>(
        "SELECT type = 'view' FROM pragma_table_list WHERE schema = ?1 COLLATE NOCASE AND name = ?2 COLLATE NOCASE",
    )
    .bind(schema)
    .bind(table);
    let view = session.run(|connection| select.fetch_one(connection)).await?;
    Ok(if view { TableKind::View } else { TableKind::Plain })
}

pub(super) async fn no_such_table(session: &mut Session<Sqlite>, table: &TableName, url: &DatabaseUrl) -> Result<Misfit, StoreError> {
    let select = sqlx::query_scalar::<_, String>(
        "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name LIMIT 20",
    );
    let tables = session.run(|connection| select.fetch_all(connection)).await?;
    let hint = if tables.is_empty() { "it has none".into() } else { format!("it has {}", tables.join(", ")) };
    Ok(Misfit(format!("orders.table is {table}, but {url} has no such table; {hint}")))
}

/// The column that is another name of the row id, if there is one.
pub(super) fn rowid_alias(columns: &[Column]) -> Option<String> {
    let mut key = columns.iter().filter(|column| column.key_part > 0);
    match (key.next(), key.next()) {
        (Some(column), None) if column.declared.eq_ignore_ascii_case("INTEGER") => Some(column.name.clone()),
        _ => None,
    }
}

/// Where the declaration does not say, the configured statuses do.
pub(super) fn status_kind(column: &Column, rule: &Rule) -> Result<StatusKind, Misfit> {
    match (Affinity::of(&column.declared), &rule.closed) {
        (Affinity::Integer, _) | (Affinity::Blob | Affinity::Numeric, Status::Integer(_)) => Ok(StatusKind::Integer),
        (Affinity::Numeric, Status::Text(_)) => match rule.unpaid.iter().chain([&rule.closed]).find(|status| is_number(status)) {
            Some(number) => Err(Misfit(format!(
                "orders.status: the column {} is {}, where SQLite keeps the text {:?} as a number; write all statuses as numbers, \
                 without quotes, or declare the column as TEXT",
                column.name,
                mapping::Column::declared(column),
                number.text(),
            ))),
            None => Ok(StatusKind::Text),
        },
        (Affinity::Text, _) | (Affinity::Blob | Affinity::Numeric, Status::Bytes(_)) | (Affinity::Blob, Status::Text(_)) => {
            Ok(StatusKind::Text)
        }
        // It makes 0.0 of 0.
        (Affinity::Real, _) => Err(Misfit(format!(
            "orders.status: the column {} is {}; a status is a whole number or text",
            column.name,
            mapping::Column::declared(column)
        ))),
    }
}

/// Whether this status is a text that a NUMERIC column makes a number of.
fn is_number(status: &Status) -> bool {
    matches!(status, Status::Text(text) if text.trim().parse::<f64>().is_ok_and(f64::is_finite))
}

pub(super) fn id_kind(column: &Column) -> Result<IdKind, Misfit> {
    match Affinity::of(&column.declared) {
        _ if column.declared.to_ascii_uppercase().contains("UUID") => Ok(IdKind::Uuid),
        Affinity::Integer => Ok(IdKind::Integer { min: i64::MIN.into(), max: i64::MAX.into() }),
        // SQLite enforces no length. Numbers in a NUMERIC column are found by their digits.
        Affinity::Text | Affinity::Numeric => Ok(IdKind::Text { max_chars: None, charset: Charset::Unicode }),
        Affinity::Blob | Affinity::Real => Err(Misfit(format!(
            "orders.id: the column {} is {}; an id is declared as INTEGER, TEXT or, with UUIDs in lower-case text, UUID",
            column.name,
            mapping::Column::declared(column)
        ))),
    }
}
