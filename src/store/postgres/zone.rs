//! The session's time zone, which decides what a `timestamp` without a zone means.
//!
//! The driver sets every session to UTC in its first message, and nothing inside such a session tells
//! what the server, the database or the role would have chosen. So a second connection, by a driver that
//! sets nothing, asks: at the start, and again whether it is still the same.

use std::{error::Error, time::Duration};

use tokio_postgres::NoTls;

use crate::{
    config::{Database, DatabaseUrl, TimeZone},
    store::{
        StoreError,
        zone::{JANUARY, JULY, ServersZone},
    },
};

/// The zone of our sessions.
#[derive(Debug, Clone)]
pub(super) enum SessionZone {
    /// As configured.
    Configured(TimeZone),
    /// As the server chooses for this user and database.
    Servers(ServersZone),
    /// The server's own could not be learned, for this reason; sessions stay in UTC.
    Unknown(String),
}

/// The configured zone, or else the own one of the server behind this URL.
///
/// # Errors
/// [`StoreError::Unavailable`] when the server can't be reached, so that waiting may help.
pub(super) async fn session_zone(database: &Database, url: &DatabaseUrl) -> Result<SessionZone, StoreError> {
    if let Some(zone) = &database.time_zone {
        return Ok(SessionZone::Configured(zone.clone()));
    }
    let limit = database.timeout.get();
    match tokio::time::timeout(limit, servers_zone(url.secret(), limit)).await {
        Ok(zone) => zone,
        Err(_) => Err(StoreError::Unavailable("the server did not answer in time".into())),
    }
}

async fn servers_zone(url: &str, limit: Duration) -> Result<SessionZone, StoreError> {
    let mut options: tokio_postgres::Config = match url.parse() {
        Ok(options) => options,
        Err(error) => return failed(&error),
    };
    if options.get_ssl_mode() == tokio_postgres::config::SslMode::Require {
        return Ok(SessionZone::Unknown("the URL asks for TLS, which this one look-up does not speak".into()));
    }
    options.connect_timeout(limit).application_name("order-closer");
    let (client, connection) = match options.connect(NoTls).await {
        Ok(connected) => connected,
        Err(error) => return failed(&error),
    };
    let driving = tokio::spawn(connection);
    // Out: the zone's name, its offsets in January and in July. Locks nothing.
    let select = format!(
        "SELECT current_setting('TimeZone'), extract(timezone FROM to_timestamp({JANUARY}))::bigint, \
                extract(timezone FROM to_timestamp({JULY}))::bigint"
    );
    let zone = client.query_one(&select, &[]).await.and_then(|row| {
        let (name, january, july) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        Ok(SessionZone::Servers(ServersZone { name, january, july }))
    });
    driving.abort();
    zone.or_else(|error| failed(&error))
}

/// A server that is away may come back; one that refuses this way of asking will go on refusing.
fn failed(error: &tokio_postgres::Error) -> Result<SessionZone, StoreError> {
    let (reason, away) = match error.as_db_error() {
        // Class 28: this login, or a login without TLS.
        Some(refusal) => (refusal.message().to_owned(), !refusal.code().code().starts_with("28")),
        None => {
            let cause = error.source();
            let reason = cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"));
            (reason, error.is_closed() || cause.is_some_and(|cause| cause.is::<std::io::Error>()))
        }
    };
    if away { Err(StoreError::Unavailable(reason)) } else { Ok(SessionZone::Unknown(reason)) }
}

impl SessionZone {
    /// The statement that gives a session this zone.
    pub(super) fn set_sql(&self) -> String {
        match self {
            // An offset written as a zone name is read as POSIX does, with the sign reversed.
            Self::Configured(zone @ TimeZone::Offset(_)) => format!("SET TIME ZONE INTERVAL '{zone}' HOUR TO MINUTE"),
            Self::Configured(TimeZone::Named(name)) => format!("SET TIME ZONE '{name}'"),
            Self::Servers(zone) => format!("SET TIME ZONE '{}'", zone.name.replace('\'', "''")),
            Self::Unknown(_) => "SET TIME ZONE 'UTC'".into(),
        }
    }

    /// How `check` names it.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Configured(zone) => format!("{zone} (database.time_zone)"),
            Self::Servers(zone) => format!("{} (the server's own)", zone.name),
            Self::Unknown(reason) => format!("UTC (the server's own could not be learned: {reason})"),
        }
    }
}
