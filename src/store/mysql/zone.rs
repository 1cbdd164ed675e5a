//! The zone of a session, which decides what a `DATETIME` means.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection, MySqlConnection, mysql::MySqlConnectOptions};

use crate::store::zone::{JANUARY, JULY, ServersZone};

/// The zone of a session that these options make: the server's own, unless they set another.
pub(super) async fn of_session(options: &MySqlConnectOptions, limit: Duration) -> Result<ServersZone, sqlx::Error> {
    // Out: the zone's name, its offsets in January and in July. Locks nothing.
    let select = sqlx::query_as::<_, (String, i64, i64)>(AssertSqlSafe(format!(
        "SELECT CAST(@@session.time_zone AS CHAR), \
                TIMESTAMPDIFF(SECOND, '2026-01-15 12:00:00', FROM_UNIXTIME({JANUARY})), \
                TIMESTAMPDIFF(SECOND, '2026-07-15 12:00:00', FROM_UNIXTIME({JULY}))"
    )));
    let asked = async {
        let mut fresh = MySqlConnection::connect_with(options).await?;
        let (name, january, july) = select.fetch_one(&mut fresh).await?;
        fresh.close().await?;
        Ok(ServersZone { name, january, july })
    };
    tokio::time::timeout(limit, asked).await.unwrap_or(Err(sqlx::Error::PoolTimedOut))
}
