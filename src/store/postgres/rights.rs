//! Which rights this user lacks. The catalogue tells everybody, also of tables that this user may not read.

use std::collections::{BTreeMap, BTreeSet};

use super::Postgres;
use crate::{
    config::{Events, Rule},
    store::{
        StoreError, TABLES_VERSION as VERSION,
        rights::{self, Need, Reading, Right, grant},
        session::Session,
    },
};

const READING: Reading = Reading { quote: '"', folds: true, escapes: false };

/// The schemas in which a bare name is looked for, also those that this user may not use.
const PATH: &str = "string_to_array(replace(replace(current_setting('search_path'), '\"$user\"', current_user::text), '\"', ''), ', ')";

/// The GRANTs that it takes, each a statement.
///
/// # Errors
/// As the database says, sorted.
pub(super) async fn lacking(session: &mut Session<Postgres>, rule: &Rule, events: &Events) -> Result<Vec<String>, StoreError> {
    let user = sqlx::query_scalar::<_, String>("SELECT quote_ident(current_user)");
    let user = session.run(|connection| user.fetch_one(connection)).await?;
    let mut needs = rights::needs(rule, READING);
    if let Some(orders) = find(session, &needs[0]).await? {
        needs.extend(rights::own(&orders.schema, events, VERSION));
    }
    let (mut schemas, mut tables) = (BTreeSet::new(), BTreeMap::<String, BTreeSet<Right>>::new());
    let mut sequences = BTreeSet::new();
    for need in &needs {
        let Some(found) = find(session, need).await? else { continue };
        if !found.may_use_schema {
            schemas.insert(format!("GRANT USAGE ON SCHEMA {} TO {user};", found.quoted_schema));
        }
        for right in &need.rights {
            if !may(session, found.oid, *right, need.columns(*right)).await? {
                tables.entry(found.qualified.clone()).or_default().insert(*right);
            }
        }
        if let Some(inserted) = &need.inserted {
            sequences.extend(unusable_sequences(session, found.oid, inserted).await?);
        }
    }
    let tables = tables.iter().filter_map(|(table, rights)| grant(rights, table, &user));
    let sequences = sequences.iter().map(|sequence| format!("GRANT USAGE ON SEQUENCE {sequence} TO {user};"));
    Ok(schemas.into_iter().chain(tables).chain(sequences).collect())
}

/// A table that is there.
struct Found {
    oid: i64,
    schema: String,
    quoted_schema: String,
    qualified: String,
    may_use_schema: bool,
}

async fn find(session: &mut Session<Postgres>, need: &Need) -> Result<Option<Found>, StoreError> {
    // In: $1 the schema, if one is named, $2 the name. Out: the table that is meant. Locks nothing.
    let select = sqlx::query_as::<_, (i64, String, String, String, bool)>(sqlx::AssertSqlSafe(format!(
        "SELECT c.oid::bigint AS oid, n.nspname::text AS schema, quote_ident(n.nspname) AS quoted_schema,
                quote_ident(n.nspname) || '.' || quote_ident(c.relname) AS qualified,
                has_schema_privilege(n.oid, 'USAGE') AS may_use_schema
         FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE c.relname = $2 AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
         AND CASE WHEN $1::text IS NULL THEN n.nspname = ANY({PATH}) ELSE n.nspname = $1 END
         ORDER BY array_position({PATH}, n.nspname::text) LIMIT 1"
    )))
    .bind(&need.table.schema)
    .bind(&need.table.name);
    let found = |(oid, schema, quoted_schema, qualified, may_use_schema)| Found { oid, schema, quoted_schema, qualified, may_use_schema };
    Ok(session.run(|connection| select.fetch_optional(connection)).await?.map(found))
}

/// Whether this user has a right to these columns that are there, or without any to some.
async fn may(session: &mut Session<Postgres>, oid: i64, right: Right, columns: &[String]) -> Result<bool, StoreError> {
    // In: $1 the table, $2 the right, $3 the columns. Out: whether it is there. Locks nothing.
    let select = sqlx::query_scalar::<_, bool>(
        "SELECT CASE WHEN $2 = 'DELETE' OR has_table_privilege($1::oid, $2) THEN has_table_privilege($1::oid, $2)
                     WHEN $3 = '{}'::text[] THEN has_any_column_privilege($1::oid, $2)
                     ELSE (SELECT COALESCE(bool_and(has_column_privilege($1::oid, attnum, $2)), false) FROM pg_attribute
                           WHERE attrelid = $1::oid AND attname = ANY($3) AND NOT attisdropped) END",
    )
    .bind(oid)
    .bind(right.sql())
    .bind(columns);
    session.run(|connection| select.fetch_one(connection)).await
}

/// The sequences that give new rows values in other columns than these, and that this user may not use.
async fn unusable_sequences(session: &mut Session<Postgres>, oid: i64, inserted: &[String]) -> Result<Vec<String>, StoreError> {
    // In: $1 the table, $2 columns. Out: sequences in the defaults of its other columns; an identity needs no right. Locks
    // nothing.
    let select = sqlx::query_scalar::<_, String>(
        "SELECT quote_ident(n.nspname) || '.' || quote_ident(s.relname)
         FROM pg_attrdef d
              JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
              JOIN pg_depend p ON p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid AND p.refclassid = 'pg_class'::regclass
              JOIN pg_class s ON s.oid = p.refobjid JOIN pg_namespace n ON n.oid = s.relnamespace
         WHERE d.adrelid = $1::oid AND a.attname <> ALL($2)
         AND CASE s.relkind WHEN 'S' THEN NOT has_sequence_privilege(s.oid, 'USAGE, UPDATE') ELSE false END",
    )
    .bind(oid)
    .bind(inserted);
    session.run(|connection| select.fetch_all(connection)).await
}
