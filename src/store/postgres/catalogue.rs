//! What the server's catalogue says of the table: its columns, its indexes, and what they can hold.

use sqlx::Postgres as Driver;

use crate::{
    config::Config,
    order::{Charset, IdKind},
    store::{
        Misfit, OpenError, StoreError,
        catalogue::Index,
        mapping::{Names, StatusKind},
        session::Session,
    },
};

/// A column of the catalogue; a domain counts as the type beneath it.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct Column {
    pub(super) name: String,
    /// The type's short name: `int8`, `varchar`, `timestamptz`.
    pub(super) base: String,
    /// As SQL would declare it.
    pub(super) declared: String,
    /// Its schema-qualified name, for casts.
    pub(super) cast: String,
    pub(super) type_modifier: i32,
    pub(super) labels: Vec<String>,
}

pub(super) async fn table_oid(session: &mut Session<Driver>, config: &Config, names: &Names) -> Result<i64, OpenError> {
    let select = sqlx::query_scalar::<_, Option<i64>>("SELECT to_regclass($1)::oid::bigint").bind(&names.table);
    if let Some(oid) = session.run(|connection| select.fetch_one(connection)).await? {
        return Ok(oid);
    }
    let table = &config.orders.table;
    // Somebody who wrote Orders or forgot the schema is told the name that would do.
    let select = sqlx::query_scalar::<_, String>(
        "SELECT schemaname || '.' || tablename FROM pg_tables WHERE lower(tablename) = lower($1) ORDER BY 1 LIMIT 5",
    )
    .bind(&table.name);
    let similar = session.run(|connection| select.fetch_all(connection)).await?;
    let hint = if similar.is_empty() { String::new() } else { format!("; there is {}", similar.join(", ")) };
    Err(Misfit(format!(
        "orders.table is {table}, but this database has no such table on its search_path{hint} (names are taken as written, not folded)"
    ))
    .into())
}

pub(super) async fn columns(session: &mut Session<Driver>, oid: i64) -> Result<Vec<Column>, StoreError> {
    let select = sqlx::query_as::<_, Column>(
        "SELECT a.attname::text AS name, b.typname::text AS base, format_type(a.atttypid, a.atttypmod) AS declared,
                quote_ident(n.nspname) || '.' || quote_ident(b.typname) AS cast,
                CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END AS type_modifier,
                ARRAY(SELECT enumlabel::text FROM pg_enum WHERE enumtypid = b.oid ORDER BY enumsortorder) AS labels
         FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
              JOIN pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
              JOIN pg_namespace n ON n.oid = b.typnamespace
         WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
    )
    .bind(oid);
    session.run(|connection| select.fetch_all(connection)).await
}

pub(super) async fn server_encoding(session: &mut Session<Driver>) -> Result<String, StoreError> {
    session.run(|connection| sqlx::query_scalar::<_, String>("SHOW server_encoding").fetch_one(connection)).await
}

pub(super) async fn indexes(session: &mut Session<Driver>, oid: i64) -> Result<Vec<Index>, StoreError> {
    let select = sqlx::query_as::<_, (String, Vec<String>, bool, bool)>(
        "SELECT c.relname::text,
                ARRAY(SELECT pg_get_indexdef(i.indexrelid, k, true) FROM generate_series(1, i.indnkeyatts) k),
                i.indisunique, i.indpred IS NOT NULL
         FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = $1::oid AND i.indisvalid ORDER BY c.relname",
    )
    .bind(oid);
    let rows = session.run(|connection| select.fetch_all(connection)).await?;
    let unquoted = |column: String| column.trim_matches('"').to_owned();
    Ok(rows
        .into_iter()
        .map(|(name, columns, unique, partial)| Index { name, columns: columns.into_iter().map(unquoted).collect(), unique, partial })
        .collect())
}

pub(super) fn status_kind(column: &Column) -> Result<StatusKind, Misfit> {
    match column.base.as_str() {
        "int2" | "int4" | "int8" | "numeric" => Ok(StatusKind::Integer),
        "text" | "varchar" | "bpchar" | "citext" => Ok(StatusKind::Text),
        _ if !column.labels.is_empty() => Ok(StatusKind::Enumeration(column.labels.clone())),
        _ => Err(Misfit(format!(
            "orders.status: the column {} is {}; a status is a whole number, text or an enumeration",
            column.name, column.declared
        ))),
    }
}

/// The type to which id texts are cast: without a length, which would cut them.
pub(super) fn id_cast(column: &Column) -> &str {
    match column.base.as_str() {
        "varchar" => "text",
        _ => &column.cast,
    }
}

pub(super) fn id_kind(column: &Column, unicode: bool) -> Result<IdKind, Misfit> {
    let integer = |min: i64, max: i64| Ok(IdKind::Integer { min: min.into(), max: max.into() });
    match column.base.as_str() {
        "int2" => integer(i16::MIN.into(), i16::MAX.into()),
        "int4" => integer(i32::MIN.into(), i32::MAX.into()),
        "int8" => integer(i64::MIN, i64::MAX),
        "numeric" if numeric_scale(column.type_modifier) == Some(0) => {
            let largest = 10_i128.pow(numeric_precision(column.type_modifier).min(38)) - 1;
            Ok(IdKind::Integer { min: -largest, max: largest })
        }
        "uuid" => Ok(IdKind::Uuid),
        "text" | "varchar" | "bpchar" | "citext" => Ok(IdKind::Text {
            // The length is stored with the four bytes of its header.
            max_chars: usize::try_from(column.type_modifier - 4).ok(),
            charset: if unicode { Charset::Unicode } else { Charset::Ascii },
        }),
        _ => Err(Misfit(format!("orders.id: the column {} is {}; an id is a whole number, text or a UUID", column.name, column.declared))),
    }
}

/// A numeric's type modifier packs precision and scale, plus the header's four bytes.
fn numeric_precision(type_modifier: i32) -> u32 {
    u32::try_from((type_modifier - 4) >> 16).unwrap_or(0)
}

fn numeric_scale(type_modifier: i32) -> Option<i32> {
    (type_modifier >= 4).then_some((type_modifier - 4) & 0x7ff)
}
