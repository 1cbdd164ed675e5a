//! A proxy that sends reads to a server that is far behind, and transactions to another.

use super::listening;
use crate::support::{
    Database, Redis, Shop,
    mariadb::MariaDb,
    splitter::{Imitating, Splitter, Splitting},
};

/// The reader holds what was there before the first order. What the driver has prepared is read from the writer, and all else of it.
#[tokio::test]
async fn each_order_closes_once_through_a_proxy_that_splits_reads() {
    let redis = Redis::start();
    let writer = MariaDb::options().replicated().start();
    let shop = Shop::in_database(Database::on_mariadb(&writer).await).await;
    let reader = writer.copy();
    let splitter = Splitter::before(&writer, &reader, Splitting::Reads, Imitating::Nobody);
    let daemon = listening(&shop.settings_with(&redis).set("database.url", splitter.url(&shop.database.url))).await;
    let orders: Vec<(i64, i64)> = (1..=200).map(|number| (number, 1_500 + number * 10)).collect();
    shop.orders(&orders).await;
    shop.write_keys(&redis, 0).await;
    for number in (1..=200).step_by(7) {
        shop.pay(number).await;
    }
    shop.until_all_settled().await;
    daemon.stop().await;
    shop.assert_outcome().await;
    assert_eq!(daemon.logged("\"ERROR\""), 0);
    drop(reader);
}
