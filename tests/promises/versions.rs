//! Daemons of other versions beside this one, as in a rolling upgrade: their heartbeats are written by hand.

use std::{fmt::Write, time::Duration};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::{
    listening,
    peers::{closes_all_at_once, late_ones, telling},
};
use crate::support::{Daemon, Kind, Redis, Shop, wait};

/// The format of this version's heartbeats.
const FORMAT: u32 = 3;

/// What daemons have in common that close the orders of a shop, as this version has it.
struct Group(String);

impl Group {
    async fn of(shop: &Shop) -> Self {
        // The server has never failed over, so its control file names the timeline that it writes.
        let identity = "SELECT s.system_identifier || '/' || c.timeline_id || '/' || d.oid || '/' || array_to_string(current_schemas(false), ',') \
             FROM pg_control_system() s, pg_control_checkpoint() c, pg_database d WHERE d.datname = current_database()";
        let identity = shop.database.text(identity).await;
        Self(
            serde_json::json!([identity, null, "orders", "order_no", "status", ["0"], "expires_at", null, null, null, "order_"])
                .to_string(),
        )
    }

    fn keyed_hash(&self, text: &str) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.0.as_bytes()).expect("a key");
        mac.update(text.as_bytes());
        mac.finalize().into_bytes()[..8].iter().fold(String::new(), |mut hex, byte| {
            write!(hex, "{byte:02x}").expect("a string takes everything");
            hex
        })
    }

    fn key(&self, format: u32) -> String {
        format!("order-closer:{format}:{}", self.keyed_hash("key"))
    }

    fn signed(&self, name: &str, said: &str) -> String {
        format!("{said} sign={}", self.keyed_hash(&format!("{name} {said}")))
    }
}

/// A shop, its daemon, and the hash of the heartbeats.
struct Scene {
    redis: Redis,
    shop: Shop,
    daemon: Daemon,
    group: Group,
}

impl Scene {
    async fn open() -> Self {
        let (redis, shop) = (Redis::start(), Shop::open(Kind::Postgres).await);
        let (daemon, group) = (listening(&telling(shop.settings_with(&redis))).await, Group::of(&shop).await);
        wait::until("the daemon's heartbeat", async || redis.command(&["HLEN", &group.key(FORMAT)]).integer() == 1).await;
        Self { redis, shop, daemon, group }
    }

    /// Another daemon says this again and again, each time with the next number in place of `{beat}`, while something is done.
    async fn beside<T>(&self, format: u32, name: &str, said: impl Fn(u64) -> String, work: impl Future<Output = T>) -> T {
        let beats = async {
            for beat in 1_000.. {
                self.redis.command(&["HSET", &self.group.key(format), name, &said(beat)]);
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            unreachable!("it says it for ever")
        };
        tokio::select! {
            never = beats => never,
            done = work => done,
        }
    }
}

/// A later version says more than this one knows: it has its share of the orders. When it says of its fitness a word that this
/// version does not know, when it says it is unfit, and when it says nothing any more, its orders are this daemon's at once.
#[tokio::test]
async fn a_later_one_that_says_more() {
    let scene = Scene::open().await;
    let Scene { shop, daemon, group, .. } = &scene;
    let says = |fit: &'static str| {
        move |beat: u64| group.signed("a-later-one", &format!("version=9.1 beat={beat} fit={fit} zone=eu-1 busy=no load=0.4"))
    };
    let orders: Vec<(i64, i64)> = (1..=960).map(|number| (number, 1_000 + 2 * number)).collect();
    let share = async {
        daemon.until_logged("\"others\":1").await;
        shop.orders(&orders).await;
        shop.until_all_settled().await;
    };
    scene.beside(FORMAT, "a-later-one", says("yes"), share).await;
    let waited = late_ones(&shop.assert_outcome().await, 1..=960);
    // They are of thirty shares, each of which is its by chance.
    assert!((190..=770).contains(&waited), "{waited} of 960 orders were left to the other one, which closes none");
    let unfit = async {
        wait::until("the other is unfit", async || daemon.logged("\"unfit\":1") > 0).await;
        closes_all_at_once(daemon, shop, 1_001..=1_100).await;
    };
    scene.beside(FORMAT, "a-later-one", says("leaving"), unfit).await;
    daemon.until_line("the other is gone", |line| line.contains("\"others\":0") && line.contains("\"was\":1")).await;
    closes_all_at_once(daemon, shop, 1_101..=1_200).await;
    daemon.stop().await;
}

/// What no version of this format writes is no heartbeat, and another format has a hash of its own: such daemons take no share, and
/// this one waits for none of them. Row locks keep them apart.
#[tokio::test]
async fn those_of_another_format() {
    let scene = Scene::open().await;
    let Scene { shop, daemon, group, redis } = &scene;
    let foreign = |beat: u64| {
        let older = format!("{beat} busy");
        let lacking = group.signed("another-one", &format!("beat={beat} fit=yes"));
        let newer = group.signed("another-one", &format!("{{\"beat\":{beat},\"fit\":true,\"busy\":false}}"));
        [older, lacking, newer][usize::try_from(beat / 10 % 3).expect("small")].clone()
    };
    let later = |beat: u64| group.signed("a-later-one", &format!("beat={beat} fit=yes busy=no"));
    let closed = closes_all_at_once(daemon, shop, 1..=200);
    scene.beside(FORMAT, "another-one", foreign, scene.beside(FORMAT + 1, "a-later-one", later, closed)).await;
    assert_eq!(redis.command(&["HLEN", &group.key(FORMAT + 1)]).integer(), 1, "it writes nothing there, and takes nothing away");
    daemon.stop().await;
    assert_eq!(daemon.logged("other instances"), 0, "{:#?}", daemon.lines());
}
