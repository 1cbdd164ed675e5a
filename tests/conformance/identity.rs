//! What tells a database from every other one.

use super::{Database, Kind, Settings, open, plain_orders, settings};
use crate::support::{Proxy, postgres::Postgres};

async fn identity(settings: &Settings) -> String {
    open(settings).await.identity().await.expect("it may be asked")
}

/// It is the same by whatever name the database is reached.
pub async fn one_database_by_two_names(database: Database) {
    plain_orders(&database).await;
    let settings = settings(&database);
    let (_proxy, other_name) = match database.kind {
        Kind::Postgres | Kind::MariaDb => {
            let proxy = Proxy::before(&database.url);
            let url = proxy.url(&database.url);
            (Some(proxy), url)
        }
        Kind::Sqlite => (None, database.url.replace("sqlite:///", "sqlite:////")),
    };
    assert_ne!(other_name, database.url);
    assert_eq!(identity(&settings.clone().set("database.url", other_name)).await, identity(&settings).await);
}

/// Two of them differ, on one server too.
pub async fn two_databases(database: Database) {
    let other = Database::fresh(database.kind).await;
    plain_orders(&database).await;
    plain_orders(&other).await;
    assert_ne!(identity(&settings(&database)).await, identity(&settings(&other)).await);
}

/// Without the right to read the cluster's control file there is an identity all the same, and the server logs no refusal.
pub async fn a_postgres_that_hides_its_control_file(_: Database) {
    let servers = [Postgres::options().start(), Postgres::options().start()];
    let mut identities = Vec::new();
    for server in &servers {
        let database = Database::on_postgres(server).await;
        plain_orders(&database).await;
        let statements =
            "CREATE ROLE closer LOGIN; GRANT ALL ON orders TO closer; REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC";
        let before = identity(&settings(&database)).await;
        database.execute(statements).await;
        let url = database.url.replace("postgres@", "closer@");
        let settings = settings(&database).set("database.url", url);
        identities.push(identity(&settings).await);
        assert_eq!(identity(&settings).await, identities[identities.len() - 1], "the same by another connection");
        assert_ne!(identities[identities.len() - 1], before);
        assert!(!server.log().contains("permission denied"), "{}", server.log());
    }
    assert_ne!(identities[0], identities[1], "two servers");
}
