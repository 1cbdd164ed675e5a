//! Proxies before MariaDB that send the statements of one session to two servers.

use super::{Report, good_redis};
use crate::support::{
    Database, Redis, Settings,
    mariadb::MariaDb,
    splitter::{
        Imitating::{self, MaxScale, Nobody, ProxySql},
        Splitter, Splitting,
    },
};

/// A server with orders, and another with the same.
async fn two_servers() -> (MariaDb, MariaDb, Database) {
    let writer = MariaDb::options().replicated().start();
    let database = Database::on_mariadb(&writer).await;
    database
        .execute(
            "CREATE TABLE orders (order_no bigint PRIMARY KEY, status integer NOT NULL, expires_at datetime NULL);
             CREATE INDEX due ON orders (status, expires_at, order_no)",
        )
        .await;
    let reader = writer.copy();
    (writer, reader, database)
}

/// The servers, and what is asked of them.
struct Scene {
    writer: MariaDb,
    reader: MariaDb,
    database: Database,
    redis: Redis,
}

impl Scene {
    async fn open() -> Self {
        let (writer, reader, database) = two_servers().await;
        Self { writer, reader, database, redis: good_redis() }
    }

    async fn check(&self, splitting: Splitting, imitating: Imitating, code: i32) -> Report {
        let splitter = Splitter::before(&self.writer, &self.reader, splitting, imitating);
        let url = splitter.url(&self.database.url);
        Report::of(&Settings::new().set("database.url", url).set("redis.url", self.redis.url()), code).await
    }
}

#[tokio::test]
async fn a_proxy_that_splits_reads_from_transactions() {
    let scene = Scene::open().await;
    for (imitating, name, fix) in [
        (Nobody, "a proxy stands between", "name the server itself"),
        (ProxySql, "ProxySQL stands between", "fast_forward = 1"),
        (MaxScale, "MaxScale stands between", "router=readconnroute"),
    ] {
        let report = scene.check(Splitting::Reads, imitating, 0).await;
        assert_eq!(report.wrong(), ["proxy"], "{imitating:?}: {:#?}", report.findings);
        report.assert("proxy", "warn", name);
        for (server, what) in [(&scene.reader, "reads to"), (&scene.writer, "transactions to")] {
            let said = report.mark("proxy").1.split_once(what).expect("it says what goes where").1;
            assert!(said.trim_start().split(" (").next().is_some_and(|host| host.ends_with(&format!(":{}", server.port()))), "{said}");
        }
        assert!(report.fix("proxy").contains(fix), "{}", report.fix("proxy"));
    }
}

#[tokio::test]
async fn a_proxy_that_splits_transactions_or_loses_settings() {
    let scene = Scene::open().await;
    let report = scene.check(Splitting::EverySelect, Nobody, 78).await;
    report.assert("proxy", "fail", "sends the statements of one transaction to");
    let report = scene.check(Splitting::ReadsWithoutSettings, ProxySql, 78).await;
    report.assert("proxy", "fail", "ProxySQL stands between and loses what is set of a session");
}

#[tokio::test]
async fn a_proxy_that_splits_nothing_is_named_if_it_has_a_name() {
    let scene = Scene::open().await;
    for (imitating, name) in [(ProxySql, "ProxySQL"), (MaxScale, "MaxScale")] {
        let report = scene.check(Splitting::Nothing, imitating, 0).await;
        assert_eq!(report.wrong(), [] as [&str; 0], "{imitating:?}: {:#?}", report.findings);
        report.assert("proxy", "ok", &format!("{name} stands between; reads and transactions went to"));
    }
    let report = scene.check(Splitting::Nothing, Nobody, 0).await;
    assert!(report.findings.iter().all(|finding| finding["name"] != "proxy"), "{:#?}", report.findings);
}
