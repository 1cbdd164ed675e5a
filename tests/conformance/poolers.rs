//! PgBouncer before PostgreSQL.

use order_closer::store::OpenError;

use super::{Database, close, open, overdue_orders, plain_orders, settings, status_of, texts, try_open};
use crate::support::{Settings, pgbouncer::PgBouncer, postgres::Postgres};

const ACCEPTING: &str = "ignore_startup_parameters = extra_float_digits";

fn name(database: &Database) -> &str {
    database.url.rsplit('/').next().expect("a URL ends with the database")
}

/// The settings of a daemon that goes through this PgBouncer.
fn through(pooler: &PgBouncer, database: &Database) -> Settings {
    settings(database).set("database.url", pooler.url(name(database)))
}

async fn misfit(settings: &Settings) -> String {
    match try_open(settings).await {
        Err(OpenError::Misfit(misfit) | OpenError::Missing(misfit)) => misfit.to_string(),
        other => panic!("no misfit but {other:?}"),
    }
}

pub async fn a_pooler_that_shares_sessions(database: Database) {
    plain_orders(&database).await;
    for mode in ["pool_mode = transaction", "pool_mode = statement"] {
        let pooler = PgBouncer::start(Postgres::shared().port(), &[mode, ACCEPTING]);
        let message = misfit(&through(&pooler, &database)).await;
        assert!(message.contains("database.url") && message.contains("shares sessions"), "{mode}: {message}");
        // Nor has it left anything behind for whoever comes next.
        let next = sqlx::PgPool::connect(&pooler.url(name(&database))).await.expect("PgBouncer takes clients");
        for limit in ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"] {
            let sql = sqlx::AssertSqlSafe(format!("SHOW {limit}"));
            let shown: String = sqlx::Row::get(&sqlx::raw_sql(sql).fetch_one(&next).await.expect("a setting is shown"), 0);
            assert_eq!(shown, "0", "{limit}");
        }
    }
}

pub async fn a_pooler_that_does_not_know_the_driver(database: Database) {
    plain_orders(&database).await;
    let pooler = PgBouncer::start(Postgres::shared().port(), &["pool_mode = session"]);
    let message = misfit(&through(&pooler, &database)).await;
    assert!(message.contains("database.url") && message.contains(ACCEPTING), "{message}");
}

pub async fn a_pooler_that_pools_by_session(database: Database) {
    plain_orders(&database).await;
    overdue_orders(&database, 1..=3).await;
    let pooler = PgBouncer::start(Postgres::shared().port(), &["pool_mode = session", ACCEPTING]);
    let store = open(&through(&pooler, &database)).await;
    assert_eq!(close(&*store, &["1", "2"]).await, 2);
    assert_eq!(status_of(&database).await, texts([("1", "4"), ("2", "4"), ("3", "0")]));
}
