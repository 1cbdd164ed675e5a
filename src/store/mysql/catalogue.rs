//! What the server's catalogue says of the table: its columns, its indexes, and what they can hold.

use sqlx::MySql as Driver;

use super::ids::IdColumn;
use crate::{
    config::Config,
    order::{Charset, IdKind},
    store::{Misfit, OpenError, StoreError, catalogue::Index, mapping::StatusKind, session::Session},
};

/// The server.
#[derive(Debug)]
pub(super) struct Server {
    /// Product and version.
    pub(super) product: String,
    mariadb: bool,
    /// Whether a backslash escapes a quote in a literal.
    pub(super) escapes: bool,
}

impl Server {
    pub(super) async fn read(session: &mut Session<Driver>) -> Result<Self, OpenError> {
        let select = sqlx::query_as::<_, (String, String)>("SELECT CAST(VERSION() AS CHAR), CAST(@@sql_mode AS CHAR)");
        let (version, modes) = session.run(|connection| select.fetch_one(connection)).await?;
        let (product, mariadb) = product(&version)?;
        Ok(Self { product, mariadb, escapes: !modes.contains("NO_BACKSLASH_ESCAPES") })
    }
}

/// Refuses a server that can't skip locked rows.
fn product(version: &str) -> Result<(String, bool), Misfit> {
    let mariadb = version.contains("MariaDB");
    // MariaDB may put this before its version, for clients that know no two digits.
    let number = version.strip_prefix("5.5.5-").unwrap_or(version);
    let mut parts = number.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse::<u32>().unwrap_or(0));
    let parts = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    let (name, oldest) = if mariadb { ("MariaDB", (10, 6)) } else { ("MySQL", (8, 0)) };
    if parts < oldest {
        return Err(Misfit(format!(
            "database.url leads to {name} {number}, which has no FOR UPDATE SKIP LOCKED; {name} {}.{} or later is needed",
            oldest.0, oldest.1
        )));
    }
    Ok((format!("{name} {}", number.split("-MariaDB").next().unwrap_or(number)), mariadb))
}

/// The table, as the catalogue spells it.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) schema: String,
    pub(super) name: String,
}

pub(super) async fn table(session: &mut Session<Driver>, config: &Config) -> Result<Table, OpenError> {
    let wanted = &config.orders.table;
    let select = sqlx::query_scalar::<_, Option<String>>("SELECT CAST(COALESCE(?, DATABASE()) AS CHAR)").bind(&wanted.schema);
    let Some(schema) = session.run(|connection| select.fetch_one(connection)).await? else {
        return Err(Misfit(format!(
            "orders.table is {wanted}, and database.url names no database to find it in; append one to the URL, or write database.{wanted}"
        ))
        .into());
    };
    // Names differing in case are different tables, except where the server folds them.
    let select = sqlx::query_as::<_, (String, String, bool)>(
        "SELECT CAST(table_schema AS CHAR), CAST(table_name AS CHAR),
                LOWER(table_schema) = LOWER(?) AND LOWER(table_name) = LOWER(?)
                AND (@@lower_case_table_names > 0 OR CAST(table_name AS BINARY) = CAST(? AS BINARY)) AS is_it
         FROM information_schema.tables WHERE LOWER(table_name) = LOWER(?)
         ORDER BY is_it DESC, table_schema = DATABASE() DESC, table_schema, table_name LIMIT 5",
    )
    .bind(&schema)
    .bind(&wanted.name)
    .bind(&wanted.name)
    .bind(&wanted.name);
    let found = session.run(|connection| select.fetch_all(connection)).await?;
    if let Some((schema, name, true)) = found.first() {
        return Ok(Table { schema: schema.clone(), name: name.clone() });
    }
    let similar: Vec<String> = found.into_iter().map(|(schema, name, _)| format!("{schema}.{name}")).collect();
    let hint = if similar.is_empty() { String::new() } else { format!("; there is {}", similar.join(", ")) };
    Err(Misfit(format!("orders.table is {wanted}, but the database {schema} has no such table that this user may see{hint} (names are taken as written, not folded)")).into())
}

/// A column of the table.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct Column {
    pub(super) name: String,
    /// The type's name alone: `bigint`, `varchar`, `datetime`.
    pub(super) base: String,
    /// As SQL would declare it.
    pub(super) declared: String,
    length: Option<i64>,
    charset: Option<String>,
    precision: Option<i64>,
    scale: Option<i64>,
}

impl Column {
    /// Whether it holds bytes rather than text.
    pub(super) fn is_binary(&self) -> bool {
        matches!(self.base.as_str(), "binary" | "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" | "bit")
    }

    fn is_unsigned(&self) -> bool {
        self.declared.contains("unsigned")
    }
}

pub(super) async fn columns(session: &mut Session<Driver>, table: &Table) -> Result<Vec<Column>, StoreError> {
    let select = sqlx::query_as::<_, Column>(
        "SELECT CAST(column_name AS CHAR) AS `name`, CAST(LOWER(data_type) AS CHAR) AS `base`, CAST(column_type AS CHAR) AS `declared`,
                CAST(character_maximum_length AS SIGNED) AS `length`, CAST(LOWER(character_set_name) AS CHAR) AS `charset`,
                CAST(numeric_precision AS SIGNED) AS `precision`, CAST(numeric_scale AS SIGNED) AS `scale`
         FROM information_schema.columns WHERE table_schema = ? AND table_name = ? AND CAST(table_name AS BINARY) = CAST(? AS BINARY)
         ORDER BY ordinal_position",
    )
    .bind(&table.schema)
    .bind(&table.name)
    .bind(&table.name);
    session.run(|connection| select.fetch_all(connection)).await
}

pub(super) async fn indexes(session: &mut Session<Driver>, server: &Server, table: &Table) -> Result<Vec<Index>, StoreError> {
    // An index that the optimizer must not use can't be named in a hint.
    let usable = if server.mariadb { "ignored = 'NO'" } else { "is_visible = 'YES'" };
    let select = sqlx::query_as::<_, (String, String, bool)>(sqlx::AssertSqlSafe(format!(
        "SELECT CAST(index_name AS CHAR), CAST(COALESCE(column_name, '') AS CHAR), non_unique = 0
         FROM information_schema.statistics
         WHERE table_schema = ? AND table_name = ? AND CAST(table_name AS BINARY) = CAST(? AS BINARY) AND index_type IN ('BTREE', 'HASH') AND {usable}
         ORDER BY index_name, seq_in_index"
    )))
    .bind(&table.schema)
    .bind(&table.name)
    .bind(&table.name);
    let mut indexes: Vec<Index> = Vec::new();
    for (name, column, unique) in session.run(|connection| select.fetch_all(connection)).await? {
        match indexes.last_mut() {
            Some(last) if last.name == name => last.columns.push(column),
            _ => indexes.push(Index { name, columns: vec![column], unique, partial: false }),
        }
    }
    Ok(indexes)
}

/// What the status column holds, and it as the text of a status.
pub(super) fn status_column(column: &Column, name: &str) -> Result<(StatusKind, String), Misfit> {
    let number = || (StatusKind::Integer, format!("CAST({name} AS CHAR)"));
    let text = |kind| (kind, format!("CONVERT({name} USING utf8mb4)"));
    match column.base.as_str() {
        "tinyint" | "smallint" | "mediumint" | "int" | "bigint" => Ok(number()),
        "decimal" if column.scale == Some(0) => Ok(number()),
        "bit" => Ok((StatusKind::Integer, format!("CAST({name} + 0 AS CHAR)"))),
        "enum" => Ok(text(StatusKind::Enumeration(labels(&column.declared)))),
        "char" | "varchar" | "tinytext" | "text" | "mediumtext" | "longtext" => Ok(text(StatusKind::Text)),
        _ => Err(Misfit(format!(
            "orders.status: the column {} is {}; a status is a whole number, text or an ENUM",
            column.name, column.declared
        ))),
    }
}

/// The labels of `enum('a','b''c')`.
fn labels(declared: &str) -> Vec<String> {
    let inside = declared.split_once('(').map_or("", |(_, rest)| rest.trim_end_matches(')'));
    let mut labels = Vec::new();
    let mut rest = inside;
    while let Some(quoted) = rest.trim_start_matches([',', ' ']).strip_prefix('\'') {
        let mut label = String::new();
        let mut characters = quoted.char_indices();
        let mut end = quoted.len();
        while let Some((at, c)) = characters.next() {
            if c != '\'' {
                label.push(c);
            } else if quoted[at + 1..].starts_with('\'') {
                label.push(c);
                characters.next();
            } else {
                end = at + 1;
                break;
            }
        }
        labels.push(label);
        rest = &quoted[end..];
    }
    labels
}

/// How ids are compared, and which of them the column can hold.
pub(super) fn id_column(column: &Column) -> Result<(IdColumn, IdKind), Misfit> {
    let misfit = |what: &str| Err(Misfit(format!("orders.id: the column {} is {}; {what}", column.name, column.declared)));
    let integer = |bits: u32| {
        if column.is_unsigned() {
            Ok((IdColumn::Unsigned, IdKind::Integer { min: 0, max: (1 << bits) - 1 }))
        } else {
            Ok((IdColumn::Signed, IdKind::Integer { min: -(1 << (bits - 1)), max: (1 << (bits - 1)) - 1 }))
        }
    };
    match column.base.as_str() {
        "tinyint" => integer(8),
        "smallint" => integer(16),
        "mediumint" => integer(24),
        "int" => integer(32),
        "bigint" => integer(64),
        "decimal" if column.scale == Some(0) => {
            let digits = column.precision.and_then(|precision| u32::try_from(precision).ok()).unwrap_or(0);
            let largest = 10_i128.pow(digits.min(38)) - 1;
            Ok((IdColumn::Decimal, IdKind::Integer { min: if column.is_unsigned() { 0 } else { -largest }, max: largest }))
        }
        "uuid" => Ok((IdColumn::Uuid, IdKind::Uuid)),
        "binary" if column.length == Some(16) => Ok((IdColumn::PackedUuid, IdKind::Uuid)),
        "char" | "varchar" | "tinytext" | "text" | "mediumtext" | "longtext" | "varbinary" => {
            let charset = match column.charset.as_deref() {
                Some("utf8mb4") | None => Charset::Unicode,
                Some("utf8" | "utf8mb3") => Charset::Bmp,
                Some(_) => Charset::Ascii,
            };
            Ok((IdColumn::Text, IdKind::Text { max_chars: column.length.and_then(|length| usize::try_from(length).ok()), charset }))
        }
        _ => misfit("an id is a whole number, text or a UUID (BINARY(16), or MariaDB's own type)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_can_skip_locked_rows_are_accepted() {
        assert_eq!(product("8.0.36"), Ok(("MySQL 8.0.36".into(), false)));
        assert_eq!(product("10.11.6-MariaDB-0+deb12u1"), Ok(("MariaDB 10.11.6".into(), true)));
        assert_eq!(product("5.5.5-10.6.12-MariaDB-log"), Ok(("MariaDB 10.6.12".into(), true)));
        assert!(product("5.7.44-log").is_err_and(|misfit| misfit.to_string().contains("MySQL 8.0 or later")));
        assert!(product("10.5.23-MariaDB").is_err_and(|misfit| misfit.to_string().contains("MariaDB 10.6 or later")));
    }

    #[test]
    fn labels_are_read_with_their_quotes_and_commas() {
        assert_eq!(labels("enum('new','it''s','a,b)')"), ["new", "it's", "a,b)"]);
        assert_eq!(labels("enum('')"), [""]);
    }
}
