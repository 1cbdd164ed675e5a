//! Which tables a database has whose names fit a pattern.

use super::{
    Misfit, OpenError, Settings,
    dialect::{Dialect, sorted},
    driver::{Columns, Value},
    mysql::MySql,
    postgres::Postgres,
    sqlite::Sqlite,
    statement::Writer,
    table::{connect, home},
};
use crate::{
    config::{DatabaseUrl, Pattern},
    order::did_you_mean,
};

/// The most that are read, of more tables than a daemon could look after.
const MOST: usize = 2_000;

/// How many are named where none fits.
const NEAR: usize = 5;

/// Looks up the tables that a pattern may stand for, one at least.
///
/// # Errors
/// [`OpenError::Missing`] where none fits, with names of some that are alike; otherwise as [`super::open`] says.
pub async fn find_tables(pattern: &Pattern, settings: &Settings) -> Result<Vec<String>, OpenError> {
    let names = tables_like(settings, pattern, &pattern.like()).await?;
    if names.iter().any(|name| pattern.fit(name).is_some()) {
        return Ok(names);
    }
    let near = match names.as_slice() {
        [] => did_you_mean(&pattern.name, tables_like(settings, pattern, "%").await?.iter().map(String::as_str)),
        names => format!("; there are {}", names.iter().take(NEAR).cloned().collect::<Vec<_>>().join(", ")),
    };
    Err(OpenError::Missing(Misfit(format!(
        "orders.table: no table is called {pattern}, where an asterisk stands for digits, and for _ and - between them{near}"
    ))))
}

/// The names of tables, views and partitions excepted, that are like that in SQL.
async fn tables_like(settings: &Settings, pattern: &Pattern, like: &str) -> Result<Vec<String>, OpenError> {
    let read = match settings.database.url {
        DatabaseUrl::Postgres(_) => names::<Postgres>(settings, pattern, like).await,
        DatabaseUrl::MySql(_) => names::<MySql>(settings, pattern, like).await,
        DatabaseUrl::Sqlite(_) => names::<Sqlite>(settings, pattern, like).await,
    };
    read.map_err(|error| match error {
        OpenError::Store(error) => error.of(&settings.database.url).into(),
        OpenError::Misfit(_) | OpenError::Missing(_) | OpenError::Zone(_) => error,
    })
}

async fn names<D: Dialect>(settings: &Settings, pattern: &Pattern, like: &str) -> Result<Vec<String>, OpenError> {
    let (_, connections, _) = connect::<D>(settings).await?;
    let mut session = connections.read().await?;
    let schema = match &pattern.schema {
        Some(schema) => schema.clone(),
        None => home(&mut session).await?,
    };
    // In: ?1 the schema, ?2 what names are like. Out: names. Locks nothing.
    let statement = Writer::new(D::PARAMETERS).with_parameters(D::TABLES).verbatim(&format!(" LIMIT {MOST}")).finish();
    let rows = session.read(&statement, &[Value::from(schema.as_str()), Value::from(like)]).await?;
    let name = |row| Columns::<D::Driver>::of(row).text();
    Ok(rows.iter().map(name).collect::<Result<_, _>>().map_err(sorted::<D>)?)
}
