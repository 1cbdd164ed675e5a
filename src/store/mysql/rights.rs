//! Which rights this user lacks. What it may not use is not in its catalogue, and rights come by many ways (roles, patterns of
//! names): so the server is asked to prepare a statement for each, which shows whether it would be allowed and does nothing.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::SqlStr;

use super::{MySql, number};
use crate::{
    config::{Events, Rule},
    store::{
        StoreError, TABLES_VERSION as VERSION,
        driver::Driver,
        rights::{self, Need, Reading, Right, grant},
        session::Session,
        statement::sql,
    },
};

/// A column that no table has: a statement that names it is refused for that, if not for a right.
const NO_COLUMN: &str = "order_closer_no_such_column";

/// The GRANTs that it takes, each a statement.
///
/// # Errors
/// As the database says, sorted.
pub(super) async fn lacking(session: &mut Session<MySql>, rule: &Rule, events: &Events) -> Result<Vec<String>, StoreError> {
    let select = sqlx::query_as::<_, (String, Option<String>, String)>(
        "SELECT CAST(CURRENT_USER() AS CHAR), CAST(DATABASE() AS CHAR), CAST(@@sql_mode AS CHAR)",
    );
    let (user, database, modes) = session.run(|connection| select.fetch_one(connection)).await?;
    let reading = Reading { quote: '`', folds: false, escapes: !modes.contains("NO_BACKSLASH_ESCAPES") };
    let mut needs = rights::needs(rule, reading);
    let schema = rule.table.schema.clone().or(database.clone()).unwrap_or_default();
    if events.enabled || has_own_tables(session, &schema).await? {
        needs.extend(rights::own(&schema, events, own_version(session, &schema).await?));
    }
    let mut tables = BTreeMap::<String, BTreeSet<Right>>::new();
    for need in &needs {
        let Some(schema) = need.table.schema.as_ref().or(database.as_ref()) else { continue };
        let table = format!("{}.{}", quoted(schema), quoted(&need.table.name));
        for right in &need.rights {
            if is_denied(session, &probe(&table, *right, need), reading).await? {
                tables.entry(table.clone()).or_default().insert(*right);
            }
        }
    }
    let (name, host) = user.rsplit_once('@').unwrap_or((&user, "%"));
    let user = format!("'{}'@'{}'", name.replace('\'', "''"), host.replace('\'', "''"));
    Ok(tables.iter().filter_map(|(table, rights)| grant(rights, table, &user)).collect())
}

fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// Whether this user sees our own tables.
async fn has_own_tables(session: &mut Session<MySql>, schema: &str) -> Result<bool, StoreError> {
    let select = sqlx::query_scalar::<_, bool>(
        "SELECT COUNT(*) > 0 FROM information_schema.tables WHERE table_schema = ? AND table_name = 'order_closer_migrations'",
    )
    .bind(schema);
    session.run(|connection| select.fetch_one(connection)).await
}

/// The version of our own tables; the newest where this user may not read it. Without a right to a table MySQL does not say
/// whether it is there.
async fn own_version(session: &mut Session<MySql>, schema: &str) -> Result<i64, StoreError> {
    let select = format!("SELECT CAST(MAX(version) AS SIGNED) FROM {}.order_closer_migrations", quoted(schema));
    let select = sqlx::query_scalar::<_, Option<i64>>(sqlx::AssertSqlSafe(select));
    match session.run(|connection| select.fetch_one(connection)).await {
        Ok(version) => Ok(version.unwrap_or(VERSION)),
        Err(StoreError::Rejected(_) | StoreError::Refused { .. }) => Ok(VERSION),
        Err(error) => Err(error),
    }
}

/// A statement that takes just this right.
fn probe(table: &str, right: Right, need: &Need) -> String {
    let columns = || need.columns(right).iter().map(|column| quoted(column));
    match right {
        Right::Select if need.read.is_empty() => format!("SELECT 1 FROM {table} WHERE 1 = 0"),
        Right::Select => format!("SELECT {} FROM {table} WHERE 1 = 0", columns().collect::<Vec<_>>().join(", ")),
        Right::Insert => format!("INSERT INTO {table} ({NO_COLUMN}) VALUES (1)"),
        Right::Update if need.updated.is_empty() => format!("UPDATE {table} SET {NO_COLUMN} = 1 WHERE 1 = 0"),
        Right::Update => {
            let set: Vec<String> = columns().map(|column| format!("{column} = NULL")).collect();
            format!("UPDATE {table} SET {} WHERE 1 = 0", set.join(", "))
        }
        Right::Delete => format!("DELETE FROM {table} WHERE 1 = 0"),
    }
}

/// Whether the server would refuse this statement for want of a right.
async fn is_denied(session: &mut Session<MySql>, statement: &str, reading: Reading) -> Result<bool, StoreError> {
    let statement = if reading.escapes { statement.replace('\\', "\\\\") } else { statement.to_owned() };
    let prepare: SqlStr = sql(format!("PREPARE order_closer FROM '{}'", statement.replace('\'', "''")));
    session
        .run(|connection| async {
            match sqlx::MySql::script(connection, prepare).await {
                Ok(_) => Ok(false),
                // A table, a column; the whole database.
                Err(sqlx::Error::Database(error)) => Ok(matches!(number(error.as_ref()), 1142 | 1143 | 1044)),
                Err(error) => Err(error),
            }
        })
        .await
}
