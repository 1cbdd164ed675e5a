//! Which proxy stands between, and whether it sends the statements of one session to several servers. That asks for no rights
//! and changes nothing: MaxScale writes one warning into its log.

use std::collections::BTreeSet;

use sqlx::SqlSafeStr;

use super::MySql;
use crate::store::{
    StoreError,
    between::Between,
    dialect::{sorted, text},
    driver::Columns,
    session::Session,
    statement::sql,
};

/// ProxySQL answers this by itself if it is asked to the letter, small letters and all; a server says what it is.
const TO_PROXYSQL: &str = "select @@version_comment limit 1";
const PROXYSQL: &str = "(ProxySQL)";

/// MaxScale refuses a variable of this name that it does not know; to a server it is a variable like any other.
const TO_MAXSCALE: &str = "SET @maxscale.order_closer = TRUE";

/// Out: the server that answers, and whether what is set of each session is there. Locks nothing.
const WHO: &str = "SELECT CAST(CONCAT(@@hostname, ':', @@port, ' (server_id ', @@server_id, ')') AS CHAR),
                          CAST(@@session.innodb_lock_wait_timeout = 1 AS SIGNED)";

/// Where proxies look first: so a closure's transaction begins, and writes.
const SET: &str = "SET @order_closer = 1; ";

/// How often is read outside of a transaction; a proxy may take turns.
const READS: usize = 4;

pub(super) async fn look(mut session: Session<MySql>) -> Result<Between, StoreError> {
    let is_proxysql = text::<MySql>(&session.execute(TO_PROXYSQL.into_sql_str()).await?)? == PROXYSQL;
    let is_maxscale = match session.execute(TO_MAXSCALE.into_sql_str()).await {
        Err(StoreError::Rejected(reason)) => reason.contains("MaxScale"),
        Err(error) => return Err(error),
        Ok(_) => false,
    };
    let proxy = if is_proxysql { Some("ProxySQL") } else { is_maxscale.then_some("MaxScale") };
    let (mut reads, mut transaction) = (BTreeSet::new(), BTreeSet::new());
    let mut keeps_settings = true;
    for _ in 0..READS {
        reads.insert(who(&mut session, "", &mut keeps_settings).await?);
    }
    session.begin(sql(format!("{SET}START TRANSACTION; SELECT 0"))).await?;
    for before in [SET, ""] {
        transaction.insert(who(&mut session, before, &mut keeps_settings).await?);
    }
    session.rollback().await;
    Ok(Between { proxy, reads, transaction, keeps_settings })
}

async fn who(session: &mut Session<MySql>, before: &str, keeps_settings: &mut bool) -> Result<String, StoreError> {
    let rows = session.execute(sql(format!("{before}{WHO}"))).await?;
    let mut columns = Columns::<sqlx::MySql>::of(rows.last().ok_or(sqlx::Error::RowNotFound).map_err(sorted::<MySql>)?);
    let server = columns.text().map_err(sorted::<MySql>)?;
    *keeps_settings &= columns.number().map_err(sorted::<MySql>)? == 1;
    Ok(server)
}
