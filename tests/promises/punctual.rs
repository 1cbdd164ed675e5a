//! Orders close at their deadlines, and not some seconds later.

use super::listening;
use crate::support::{Kind, Redis, Shop};

/// What all but one in a hundred are closed within, in a wave in which the machine has time for them.
const ON_TIME_MILLIS: i64 = 100;

/// How many waves there may be: other tests run beside this one.
const WAVES: i64 = 15;

/// In each wave so many, a hundredth of a second apart.
const ORDERS: i64 = 200;

#[tokio::test]
async fn on_time_with_and_without_keys() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let daemon = listening(&shop.settings_with(&redis)).await;
    let mut seen = Vec::new();
    for wave in 0..WAVES {
        let numbers = wave * ORDERS + 1..=(wave + 1) * ORDERS;
        let orders: Vec<(i64, i64)> = numbers.clone().zip(0..).map(|(number, place)| (number, 3_000 + place * 10)).collect();
        let (with_keys, without) = orders.split_at(orders.len() / 2);
        shop.orders(with_keys).await;
        shop.write_keys(&redis, 0).await;
        shop.orders(without).await;
        shop.until_all_settled().await;
        let outcome = shop.assert_outcome().await;
        let mut late: Vec<i64> = outcome.closed.range(numbers).map(|(_, millis)| *millis).collect();
        late.sort_unstable();
        let p99 = late[late.len() * 99 / 100 - 1];
        seen.push(p99);
        if p99 <= ON_TIME_MILLIS {
            return daemon.stop().await;
        }
    }
    panic!("p99 of lateness in each wave, in ms: {seen:?}");
}
