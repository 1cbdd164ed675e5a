//! What the server's catalogue says of the table: its columns, its indexes, and what they can hold.

use sqlx::{AssertSqlSafe, Row};

use super::Postgres;
use crate::{
    config::{Names, Rule},
    order::{Charset, IdKind},
    store::{
        Misfit, OpenError, StoreError,
        catalogue::{Index, TableKind},
        mapping::{self, StatusKind},
        obstacles::{self, Obstacle},
        session::Session,
    },
};

/// A column of the catalogue; a domain counts as the type beneath it.
#[derive(Debug, Clone)]
pub(super) struct Column {
    pub(super) name: String,
    /// The type's short name: `int8`, `varchar`, `timestamptz`.
    pub(super) base: String,
    /// As SQL would declare it.
    pub(super) declared: String,
    /// Its schema-qualified name, for casts.
    pub(super) cast: String,
    pub(super) type_modifier: i32,
    /// Whether it takes texts for equal that differ in case, trailing blanks or else.
    loose: bool,
    pub(super) labels: Vec<String>,
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
    /// The column, by its quoted name, as text that equals only itself.
    pub(super) fn text(&self, name: &str) -> String {
        if self.loose { format!("{name}::text COLLATE \"C\"") } else { format!("{name}::text") }
    }

    /// The condition, with its leading AND, that it is one of a list and not merely equal to it.
    pub(super) fn exactly(&self, name: &str, one_of: &str) -> String {
        if self.loose { format!(" AND {} {one_of}", self.text(name)) } else { String::new() }
    }
}

pub(super) async fn table_oid(session: &mut Session<Postgres>, rule: &Rule, names: &Names) -> Result<i64, OpenError> {
    let select = sqlx::query_scalar::<_, Option<i64>>("SELECT to_regclass($1)::oid::bigint").bind(&names.table);
    if let Some(oid) = session.run(|connection| select.fetch_one(connection)).await? {
        return Ok(oid);
    }
    let table = &rule.table;
    // Somebody who wrote Orders or forgot the schema is told the name that would do.
    let select = sqlx::query_scalar::<_, String>(
        "SELECT schemaname || '.' || tablename FROM pg_tables WHERE lower(tablename) = lower($1) ORDER BY 1 LIMIT 5",
    )
    .bind(&table.name);
    let similar = session.run(|connection| select.fetch_all(connection)).await?;
    let hint = if similar.is_empty() { String::new() } else { format!("; there is {}", similar.join(", ")) };
    Err(OpenError::Missing(Misfit(format!(
        "orders.table is {table}, but this database has no such table on its search_path{hint} (names are taken as written, not folded)"
    ))))
}

/// The table itself.
#[derive(Debug)]
pub(super) struct Relation {
    pub(super) schema: String,
    pub(super) name: String,
    /// Its name with the schema, quoted where it must be.
    pub(super) qualified: String,
    partitioned: bool,
    /// Whether that is by ranges of the deadline's column.
    pub(super) by_deadline: bool,
    view: bool,
    /// The SELECT of a view.
    definition: Option<String>,
    /// Whether policies let its user see other rows than it may change.
    uneven_policies: bool,
    /// Whether policies decide which of its rows its user sees.
    pub(super) row_security: bool,
    /// Whether it has heirs whose rows are not in its own indexes.
    pub(super) has_heirs: bool,
    /// Whether its user has triggers that run after an UPDATE, of it or of a partition, or only as the transaction ends;
    /// RETURNING does not show what they do.
    pub(super) has_after_triggers: bool,
}

impl Relation {
    pub(super) fn obstacles(&self, rule: &Rule) -> Vec<Obstacle> {
        let view = self.definition.as_deref().and_then(|definition| obstacles::view(rule, definition));
        let policies = self.uneven_policies.then(|| obstacles::policies(rule));
        view.into_iter().chain(policies).collect()
    }

    pub(super) fn kind(&self) -> TableKind {
        match self {
            Self { view: true, .. } => TableKind::View,
            Self { partitioned: true, .. } => TableKind::Partitioned,
            Self { .. } => TableKind::Plain,
        }
    }
}

pub(super) async fn relation(session: &mut Session<Postgres>, oid: i64, deadline: &str) -> Result<Relation, StoreError> {
    // The conditions of the policies for a command, or for all, that are about this user; 0 is everybody.
    let policies = |command: &str| {
        format!(
            "ARRAY(SELECT DISTINCT (polpermissive, pg_get_expr(polqual, polrelid))::text FROM pg_policy
                   WHERE polrelid = c.oid AND polcmd IN ('{command}', '*')
                   AND EXISTS (SELECT FROM unnest(polroles) r WHERE CASE r WHEN 0 THEN true ELSE pg_has_role(r, 'USAGE') END)
                   ORDER BY 1)"
        )
    };
    let select =
        sqlx::query_as::<_, (String, String, String, bool, bool, bool, Option<String>, bool, bool, bool, bool)>(AssertSqlSafe(format!(
            "WITH RECURSIVE family AS (
             SELECT $1::oid AS oid
             UNION SELECT i.inhrelid FROM pg_inherits i JOIN family ON family.oid = i.inhparent
         )
         SELECT n.nspname::text, c.relname::text, format('%I.%I', n.nspname, c.relname),
                c.relkind = 'p',
                EXISTS (SELECT FROM pg_partitioned_table p JOIN pg_attribute a ON a.attrelid = p.partrelid AND a.attnum = p.partattrs[0]
                        WHERE p.partrelid = c.oid AND p.partstrat = 'r' AND a.attname = $2),
                c.relkind IN ('v', 'm'), CASE c.relkind WHEN 'v' THEN pg_get_viewdef(c.oid) END,
                row_security_active(c.oid) AND {} <> {}, row_security_active(c.oid),
                c.relkind = 'r' AND (SELECT count(*) > 1 FROM family),
                EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid IN (SELECT oid FROM family) AND NOT t.tgisinternal
                        AND t.tgtype & 16 <> 0 AND t.tgtype & 2 = 0) -- 16 is UPDATE, 2 is BEFORE
         FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = $1::oid",
            policies("r"),
            policies("w")
        )))
        .bind(oid)
        .bind(deadline);
    let (schema, name, qualified, partitioned, by_deadline, view, definition, uneven_policies, row_security, has_heirs, has_after_triggers) =
        session.run(|connection| select.fetch_one(connection)).await?;
    Ok(Relation {
        schema,
        name,
        qualified,
        partitioned,
        by_deadline,
        view,
        definition,
        uneven_policies,
        row_security,
        has_heirs,
        has_after_triggers,
    })
}

pub(super) async fn columns(session: &mut Session<Postgres>, oid: i64) -> Result<Vec<Column>, StoreError> {
    let select = sqlx::query_as::<_, (String, String, String, String, i32, bool, Vec<String>)>(
        "WITH RECURSIVE typed AS (
             SELECT attnum, atttypid AS type, atttypmod AS modifier FROM pg_attribute WHERE attrelid = $1::oid
             UNION ALL
             SELECT d.attnum, t.typbasetype, t.typtypmod FROM typed d JOIN pg_type t ON t.oid = d.type AND t.typtype = 'd'
         )
         SELECT a.attname::text, b.typname::text, format_type(a.atttypid, a.atttypmod),
                quote_ident(n.nspname) || '.' || quote_ident(b.typname), d.modifier,
                b.typname IN ('citext', 'bpchar') OR NOT COALESCE(c.collisdeterministic, true),
                ARRAY(SELECT enumlabel::text FROM pg_enum WHERE enumtypid = b.oid ORDER BY enumsortorder)
         FROM pg_attribute a JOIN typed d USING (attnum)
              JOIN pg_type b ON b.oid = d.type AND b.typtype <> 'd'
              JOIN pg_namespace n ON n.oid = b.typnamespace
              LEFT JOIN pg_collation c ON c.oid = a.attcollation
         WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
    )
    .bind(oid);
    let column =
        |(name, base, declared, cast, type_modifier, loose, labels)| Column { name, base, declared, cast, type_modifier, loose, labels };
    Ok(session.run(|connection| select.fetch_all(connection)).await?.into_iter().map(column).collect())
}

pub(super) async fn server_encoding(session: &mut Session<Postgres>) -> Result<String, StoreError> {
    session.run(|connection| sqlx::query_scalar::<_, String>("SHOW server_encoding").fetch_one(connection)).await
}

pub(super) async fn indexes(session: &mut Session<Postgres>, oid: i64) -> Result<Vec<Index>, StoreError> {
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

/// Which of the partial indexes, each with its condition, lack rows that this one of ours asks for. The planner proves it
/// as it does when it chooses an index: a query that contradicts itself is never run.
pub(super) async fn lacking(session: &mut Session<Postgres>, oid: i64, table: &str, ours: &str) -> Result<Vec<String>, StoreError> {
    let select = sqlx::query_as::<_, (String, String)>(
        "SELECT c.relname::text, pg_get_expr(i.indpred, i.indrelid)
         FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = $1::oid AND i.indpred IS NOT NULL",
    )
    .bind(oid);
    let mut lacking = Vec::new();
    for (name, condition) in session.run(|connection| select.fetch_all(connection)).await? {
        let explain = sqlx::raw_sql(AssertSqlSafe(format!(
            "SET constraint_exclusion = on; EXPLAIN SELECT FROM {table} WHERE {ours} AND NOT ({condition}); RESET constraint_exclusion"
        )));
        let plan = session.run(|connection| explain.fetch_all(connection)).await?;
        let covered = plan.iter().any(|line| line.try_get::<String, _>(0).is_ok_and(|line| line.contains("One-Time Filter: false")));
        if !covered {
            lacking.push(name);
        }
    }
    Ok(lacking)
}

pub(super) fn status_kind(column: &Column) -> Result<StatusKind, Misfit> {
    match column.base.as_str() {
        "int2" | "int4" | "int8" => Ok(StatusKind::Integer),
        "numeric" if numeric_scale(column.type_modifier) == Some(0) => Ok(StatusKind::Integer),
        "numeric" => Err(fraction("orders.status", column)),
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
        "numeric" => Err(fraction("orders.id", column)),
        "uuid" => Ok(IdKind::Uuid),
        "text" | "varchar" | "bpchar" | "citext" => Ok(IdKind::Text {
            // The length is stored with the four bytes of its header.
            max_chars: usize::try_from(column.type_modifier - 4).ok(),
            charset: if unicode { Charset::Unicode } else { Charset::Ascii },
        }),
        _ => Err(Misfit(format!("orders.id: the column {} is {}; an id is a whole number, text or a UUID", column.name, column.declared))),
    }
}

/// 7.0 equals 7, and is spelled otherwise.
fn fraction(key: &str, column: &Column) -> Misfit {
    Misfit(format!("{key}: the column {} is {}, which may hold fractions; declare it as numeric(n,0)", column.name, column.declared))
}

/// A numeric's type modifier packs precision and scale, plus the header's four bytes.
fn numeric_precision(type_modifier: i32) -> u32 {
    u32::try_from((type_modifier - 4) >> 16).unwrap_or(0)
}

fn numeric_scale(type_modifier: i32) -> Option<i32> {
    (type_modifier >= 4).then_some((type_modifier - 4) & 0x7ff)
}
