//! What the server's catalogue says of the table: its columns, its indexes, and what they can hold.

use super::{MySql, ids::IdColumn};
use crate::{
    config::Rule,
    order::{Charset, IdKind},
    store::{
        Misfit, OpenError, StoreError,
        catalogue::{Index, TableKind},
        mapping::{self, StatusKind},
        obstacles::{self, Obstacle},
        session::Session,
    },
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
    pub(super) async fn read(session: &mut Session<MySql>) -> Result<Self, OpenError> {
        let select = sqlx::query_as::<_, (String, String, String)>(
            "SELECT CAST(VERSION() AS CHAR), CAST(@@version_comment AS CHAR), CAST(@@sql_mode AS CHAR)",
        );
        let (version, comment, modes) = session.run(|connection| select.fetch_one(connection)).await?;
        let (product, mariadb) = product(&version, &comment)?;
        Ok(Self { product, mariadb, escapes: !modes.contains("NO_BACKSLASH_ESCAPES") })
    }
}

/// Refuses a server that can't skip locked rows.
fn product(version: &str, comment: &str) -> Result<(String, bool), Misfit> {
    // It takes FOR UPDATE SKIP LOCKED without a word, and locks no row: an order that is paid or postponed between our
    // SELECT and our UPDATE would be closed all the same.
    if version.contains("TiDB") || comment.contains("TiDB") {
        return Err(Misfit(format!(
            "database.url leads to TiDB ({version}), whose FOR UPDATE SKIP LOCKED locks no row, so that an order that is just being paid \
             could be closed; MySQL 8.0, MariaDB 10.6 or later, or PostgreSQL is needed"
        )));
    }
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
    /// None of a view.
    engine: Option<String>,
    transactions: bool,
    partitioned: bool,
    /// The SELECT of a view; empty if this user may not see it.
    definition: Option<String>,
    /// Whether that is by ranges of the deadline.
    pub(super) by_deadline: bool,
}

impl Table {
    pub(super) fn kind(&self) -> TableKind {
        match self {
            Self { engine: None, .. } => TableKind::View,
            Self { partitioned: true, .. } => TableKind::Partitioned,
            Self { .. } => TableKind::Plain,
        }
    }

    pub(super) fn obstacles(&self, rule: &Rule) -> Vec<Obstacle> {
        let view = self.definition.as_deref().and_then(|definition| obstacles::view(rule, definition));
        view.into_iter().collect()
    }

    /// Refuses a table whose rows can be neither locked nor rolled back.
    fn with_transactions(self, rule: &Rule) -> Result<Self, OpenError> {
        match &self.engine {
            Some(engine) if !self.transactions => Err(Misfit(format!(
                "orders.table is {}, whose engine {engine} has no transactions: what fails could not be undone; \
                 run: ALTER TABLE {} ENGINE=InnoDB, also for the tables of close.sql",
                rule.table,
                rule.names('`').table
            ))
            .into()),
            _ => Ok(self),
        }
    }
}

pub(super) async fn table(session: &mut Session<MySql>, rule: &Rule) -> Result<Table, OpenError> {
    let wanted = &rule.table;
    let select = sqlx::query_scalar::<_, Option<String>>("SELECT CAST(COALESCE(?, DATABASE()) AS CHAR)").bind(&wanted.schema);
    let Some(schema) = session.run(|connection| select.fetch_one(connection)).await? else {
        return Err(Misfit(format!(
            "orders.table is {wanted}, and database.url names no database to find it in; append one to the URL, or write database.{wanted}"
        ))
        .into());
    };
    // Names differing in case are different tables, except where the server folds them.
    let select = sqlx::query_as::<_, (String, String, Option<String>, bool, bool, bool, Option<String>, bool)>(
        "SELECT CAST(table_schema AS CHAR), CAST(table_name AS CHAR), CAST(t.engine AS CHAR),
                EXISTS (SELECT 1 FROM information_schema.engines e WHERE e.engine = t.engine AND e.transactions = 'YES'),
                COALESCE(create_options, '') LIKE '%partitioned%',
                EXISTS (SELECT 1 FROM information_schema.partitions p
                        WHERE p.table_schema = t.table_schema AND p.table_name = t.table_name AND p.partition_method LIKE 'RANGE%'
                        AND LOWER(p.partition_expression) LIKE CONCAT('%`', LOWER(?), '`%')),
                (SELECT CAST(view_definition AS CHAR) FROM information_schema.views v
                 WHERE v.table_schema = t.table_schema AND v.table_name = t.table_name LIMIT 1),
                LOWER(table_schema) = LOWER(?) AND LOWER(table_name) = LOWER(?)
                AND (@@lower_case_table_names > 0 OR CAST(table_name AS BINARY) = CAST(? AS BINARY)) AS is_it
         FROM information_schema.tables t WHERE LOWER(table_name) = LOWER(?)
         ORDER BY is_it DESC, table_schema = DATABASE() DESC, table_schema, table_name LIMIT 5",
    )
    .bind(rule.deadline.column.as_str())
    .bind(&schema)
    .bind(&wanted.name)
    .bind(&wanted.name)
    .bind(&wanted.name);
    let mut found = session.run(|connection| select.fetch_all(connection)).await?;
    if found.first().is_some_and(|(.., is_it)| *is_it) {
        let (schema, name, engine, transactions, partitioned, by_deadline, definition, _) = found.swap_remove(0);
        return Table { schema, name, engine, transactions, partitioned, by_deadline, definition }.with_transactions(rule);
    }
    let similar: Vec<String> = found.into_iter().map(|(schema, name, ..)| format!("{schema}.{name}")).collect();
    let hint = if similar.is_empty() { String::new() } else { format!("; there is {}", similar.join(", ")) };
    Err(OpenError::Missing(Misfit(format!(
        "orders.table is {wanted}, but the database {schema} has no such table that this user may see{hint} (names are taken as written, not folded)"
    ))))
}

/// A table without transactions that a closure may write: one that the user's SQL names, or any beside the orders, for triggers
/// write where they like and show themselves only to whom they belong.
pub(super) async fn without_transactions(session: &mut Session<MySql>, orders: &Table, rule: &Rule) -> Result<Option<String>, StoreError> {
    let written = rule.written_sql();
    let select = sqlx::query_scalar::<_, String>(
        "SELECT CAST(CONCAT(t.table_schema, '.', t.table_name, ' (', t.engine, ')') AS CHAR) FROM information_schema.tables t
         WHERE t.table_type = 'BASE TABLE'
         AND t.table_schema NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema')
         AND (t.table_schema = ? OR LOCATE(LOWER(t.table_name), ?) > 0)
         AND NOT EXISTS (SELECT 1 FROM information_schema.engines e WHERE e.engine = t.engine AND e.transactions = 'YES') LIMIT 1",
    )
    .bind(&orders.schema)
    .bind(written.to_lowercase());
    session.run(|connection| select.fetch_optional(connection)).await
}

/// A column of the table.
#[derive(Debug, Clone)]
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

impl mapping::Column for Column {
    fn name(&self) -> &str {
        &self.name
    }

    fn declared(&self) -> String {
        self.declared.clone()
    }
}

impl Column {
    /// The column, by its quoted name, as a JSON object takes it.
    pub(super) fn in_json(&self, name: &str, server: &Server) -> String {
        // Bytes have no place in JSON, and with some of them MariaDB writes the whole object in their character set, or makes
        // NULL of it.
        let bytes = match self.base.as_str() {
            "binary" | "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" | "bit" | "vector" => true,
            "geometry" | "point" | "linestring" | "polygon" | "multipoint" | "multilinestring" | "multipolygon" | "geometrycollection" => {
                server.mariadb
            }
            _ => false,
        };
        if bytes {
            return format!("LOWER(HEX({name}))");
        }
        // No number in JSON begins with a zero.
        if self.declared.contains("zerofill") { format!("{name} + 0") } else { name.into() }
    }

    /// The column, by its quoted name, as a part of an index: long text only by its beginning.
    pub(super) fn key_part(&self, name: &str) -> String {
        // 3,072 bytes are the most of a whole index, and 191 characters fit into old row formats too.
        let long = self.base.ends_with("text") || self.length.is_some_and(|length| length > 500);
        if long { format!("{name}(191)") } else { name.to_owned() }
    }

    fn is_unsigned(&self) -> bool {
        self.declared.contains("unsigned")
    }
}

pub(super) async fn columns(session: &mut Session<MySql>, table: &Table) -> Result<Vec<Column>, StoreError> {
    let select = sqlx::query_as::<_, (String, String, String, Option<i64>, Option<String>, Option<i64>, Option<i64>)>(
        "SELECT CAST(column_name AS CHAR), CAST(LOWER(data_type) AS CHAR), CAST(column_type AS CHAR),
                CAST(character_maximum_length AS SIGNED), CAST(LOWER(character_set_name) AS CHAR),
                CAST(numeric_precision AS SIGNED), CAST(numeric_scale AS SIGNED)
         FROM information_schema.columns WHERE table_schema = ? AND table_name = ? AND CAST(table_name AS BINARY) = CAST(? AS BINARY)
         ORDER BY ordinal_position",
    )
    .bind(&table.schema)
    .bind(&table.name)
    .bind(&table.name);
    let column =
        |(name, base, declared, length, charset, precision, scale)| Column { name, base, declared, length, charset, precision, scale };
    Ok(session.run(|connection| select.fetch_all(connection)).await?.into_iter().map(column).collect())
}

pub(super) async fn indexes(session: &mut Session<MySql>, server: &Server, table: &Table) -> Result<Vec<Index>, StoreError> {
    // An index that the optimizer must not use can't be named in a hint, and by a hash, with which MariaDB keeps long texts
    // unique, it finds no row.
    let usable = if server.mariadb { "ignored = 'NO'" } else { "is_visible = 'YES'" };
    let select = sqlx::query_as::<_, (String, String, bool)>(sqlx::AssertSqlSafe(format!(
        "SELECT CAST(index_name AS CHAR), CAST(COALESCE(column_name, '') AS CHAR), non_unique = 0
         FROM information_schema.statistics
         WHERE table_schema = ? AND table_name = ? AND CAST(table_name AS BINARY) = CAST(? AS BINARY) AND index_type = 'BTREE' AND {usable}
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
    // ZEROFILL would add zeros.
    let number = || (StatusKind::Integer, format!("CAST({name} + 0 AS CHAR)"));
    let text = |kind| (kind, format!("CONVERT({name} USING utf8mb4)"));
    match column.base.as_str() {
        "tinyint" | "smallint" | "mediumint" | "int" | "bigint" | "bit" => Ok(number()),
        "decimal" if column.scale == Some(0) => Ok(number()),
        "enum" => Ok(text(StatusKind::Enumeration(labels(&column.declared)))),
        "char" | "varchar" | "tinytext" | "text" | "mediumtext" | "longtext" => Ok(text(StatusKind::Text)),
        "binary" | "varbinary" => {
            let length = column.length.and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
            let kind = StatusKind::Bytes { length, fixed: column.base == "binary" };
            Ok((kind, format!("CONVERT(CONCAT('0x', LOWER(HEX({name}))) USING utf8mb4)")))
        }
        _ => Err(Misfit(format!(
            "orders.status: the column {} is {}; a status is a whole number, text, an ENUM or bytes (BINARY, VARBINARY)",
            column.name, column.declared
        ))),
    }
}

/// The labels of `enum('a','b''c')`.
pub(super) fn labels(declared: &str) -> Vec<String> {
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
        assert_eq!(product("8.0.36", "MySQL Community Server - GPL"), Ok(("MySQL 8.0.36".into(), false)));
        assert_eq!(product("10.11.6-MariaDB-0+deb12u1", ""), Ok(("MariaDB 10.11.6".into(), true)));
        assert_eq!(product("5.5.5-10.6.12-MariaDB-log", ""), Ok(("MariaDB 10.6.12".into(), true)));
        assert!(product("5.7.44-log", "").is_err_and(|misfit| misfit.to_string().contains("MySQL 8.0 or later")));
        assert!(product("10.5.23-MariaDB", "").is_err_and(|misfit| misfit.to_string().contains("MariaDB 10.6 or later")));
    }

    /// It answers as MySQL 8 does, unless its configuration has another version for it to tell.
    #[test]
    fn a_server_that_takes_the_syntax_and_does_not_lock_is_refused() {
        let comment = "TiDB Server (Apache License 2.0) Community Edition, MySQL 8.0 compatible";
        for version in ["8.0.11-TiDB-v8.5.1", "5.7.25-TiDB-v6.5.0", "8.0.36"] {
            let refused = product(version, comment).expect_err("it does not lock").to_string();
            assert!(refused.contains("TiDB") && refused.contains("SKIP LOCKED") && refused.contains("MySQL 8.0"), "{refused}");
        }
    }

    #[test]
    fn labels_are_read_with_their_quotes_and_commas() {
        assert_eq!(labels("enum('new','it''s','a,b)')"), ["new", "it's", "a,b)"]);
        assert_eq!(labels("enum('')"), [""]);
    }
}
