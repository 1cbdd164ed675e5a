//! Servers that can't be worked with: those that are too old, and poolers that give each transaction whichever session is
//! free. What we set of a session, its time zone and time limits, would be missing in the next one, and stay behind for
//! other programs.

use std::time::Duration;

use sqlx::{Connection, PgConnection, Row, postgres::PgConnectOptions};

use super::{Postgres, version};
use crate::store::{Misfit, OpenError, StoreError, dialect::sorted};

/// How long a second connection is waited for; where it can't be had, nothing can be said.
const PATIENCE: Duration = Duration::from_secs(1);

/// Refuses a server that is too old, before anything of it is set, and a pooler that shares sessions between its clients.
///
/// # Errors
/// [`Misfit`] for such a server, such a pooler, or one that does not let the driver in; else as the database says, sorted.
pub(super) async fn refuse_unfit_server(options: &PgConnectOptions, limit: Duration) -> Result<(), OpenError> {
    let Ok(seen) = tokio::time::timeout(limit, look_at(options)).await else {
        return Err(StoreError::Unavailable("the server did not answer in time".into()).into());
    };
    let what = match seen {
        Ok(Seen { version, shares_sessions: false }) => return Ok(version::refuse_old(version)?),
        Ok(Seen { shares_sessions: true, .. }) => "shares sessions between its clients, which would mix our settings with theirs".into(),
        // A protocol violation, says PgBouncer of a startup parameter that it does not know.
        Err(sqlx::Error::Database(error)) if error.code().is_some_and(|code| code == "08P01") => {
            format!("does not accept the driver ({})", error.message())
        }
        Err(error) => return Err(sorted::<Postgres>(error).into()),
    };
    Err(Misfit(format!(
        "database.url leads to a pooler that {what}; name the database itself, or let it pool by session (PgBouncer: pool_mode = session, \
         ignore_startup_parameters = extra_float_digits)"
    ))
    .into())
}

/// What two connections have shown.
struct Seen {
    /// As `server_version_num` has it; none where the server does not tell.
    version: Option<u32>,
    shares_sessions: bool,
}

async fn look_at(options: &PgConnectOptions) -> Result<Seen, sqlx::Error> {
    let mut one = PgConnection::connect_with(options).await?;
    let version = one.server_version_num();
    // Some poolers leave a session to the client that has set something of it: that is as good as none.
    sqlx::raw_sql("SET order_closer.session = 'own'").execute(&mut one).await?;
    let before = backend(&mut one).await?;
    let shares_sessions = match tokio::time::timeout(PATIENCE, another(options)).await {
        // What is free again goes to whoever comes next.
        Ok(Ok((other, theirs))) => {
            let after = backend(&mut one).await?;
            other.close().await.ok();
            theirs == before || after != before
        }
        Ok(Err(_)) | Err(_) => false,
    };
    one.close().await.ok();
    Ok(Seen { version, shares_sessions })
}

async fn another(options: &PgConnectOptions) -> Result<(PgConnection, i32), sqlx::Error> {
    let mut other = PgConnection::connect_with(options).await?;
    let backend = backend(&mut other).await?;
    Ok((other, backend))
}

/// The server's process behind a connection. By the simple protocol: a pooler loses prepared statements.
async fn backend(connection: &mut PgConnection) -> Result<i32, sqlx::Error> {
    sqlx::raw_sql("SELECT pg_backend_pid()").fetch_one(connection).await?.try_get(0)
}
