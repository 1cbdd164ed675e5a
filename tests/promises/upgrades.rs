//! From the first edition to this one and back, with both programs: whoever runs, each order closes once, with one event.
//!
//! `make upgrade-test` runs it; docs/upgrading.md says what is to be expected.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::atomic::{AtomicI64, Ordering},
};

use super::{listening, timers::register, together::take_turns_at_hot_rows};
use crate::support::{
    Daemon, Kind, OneShot, Redis, Settings, Shop,
    daemon::Finished,
    order_closer,
    receiver::{Behaviour, Receiver},
    shop::{CLOSED, key},
    wait,
};

/// So many orders fall due in a wave, over two seconds, from half a second on.
const WAVE: i64 = 100;

/// From here on the database refuses to close an order.
const REFUSED: i64 = 900_001;

/// The keys of two timers.
const TIMERS: [i64; 2] = [500_001, 500_002];

/// What may be said in WARN and ERROR: that of old tables, of the old daemon, of the orders that are refused, of the receiver in trouble.
const EXPLAINED: [&str; 5] = [
    "what needs the newer tables is left off",
    "a daemon of the first edition closes orders of this table, too",
    "close failed; will retry this order alone",
    "order can't be closed, and is a dead letter",
    "the target fails; asking it less often",
];

/// A shop whose orders both editions close.
struct Scene {
    first: PathBuf,
    redis: Redis,
    shop: Shop,
    receiver: Receiver,
    /// As both editions take them.
    settings: Settings,
    /// With timers, which only this one knows.
    more: Settings,
    waves: AtomicI64,
}

impl Scene {
    async fn open(kind: Kind) -> Self {
        let first = std::env::var_os("FIRST_EDITION").expect("FIRST_EDITION names its program, as `make upgrade-test` has it");
        let (redis, shop, receiver) = (Redis::start(), Shop::open(kind).await, Receiver::start().await);
        let refuse = match kind {
            Kind::Postgres | Kind::MariaDb => {
                format!("ALTER TABLE orders ADD CONSTRAINT refused CHECK (status <> {CLOSED} OR order_no < {REFUSED})")
            }
            Kind::Sqlite => format!(
                "CREATE TRIGGER refused BEFORE UPDATE ON orders WHEN NEW.status = {CLOSED} AND NEW.order_no >= {REFUSED}
                 BEGIN SELECT RAISE(ABORT, 'refused'); END"
            ),
        };
        shop.database.execute(&refuse).await;
        let settings = take_turns_at_hot_rows(kind, shop.settings_with(&redis))
            .add("[close]\nretry = { attempts = 2, initial = '100ms', max = '200ms' }")
            .add(&receiver.webhook("one", ""))
            .add("[events.stream]\nkey = 'closed'");
        let more = settings.clone().add(&receiver.timer_webhook("reminders", ""));
        let first = std::path::absolute(first).expect("a path");
        Self { first, redis, shop, receiver, settings, more, waves: AtomicI64::new(0) }
    }

    async fn by_first(&self, arguments: &[&str]) -> Finished {
        OneShot::with(&self.settings, arguments).of_program(&self.first).run().await
    }

    async fn first(&self) -> Daemon {
        let daemon = Daemon::of_program(&self.first, &self.settings, |_| {});
        daemon.until_logged("listening for expired keys").await;
        daemon
    }

    /// Orders fall due while something is done. One in ten is paid, one in five has no key.
    async fn wave<T>(&self, work: impl Future<Output = T>) -> T {
        let before = WAVE * self.waves.fetch_add(1, Ordering::Relaxed);
        let orders: Vec<(i64, i64)> = (1..=WAVE).map(|place| (before + place, 500 + place * 2_000 / WAVE)).collect();
        self.shop.orders(&orders).await;
        let deadlines = self.shop.deadlines().await;
        let with_keys = orders.iter().filter(|(number, _)| number % 5 != 0);
        self.redis.set_all_until(&with_keys.map(|(number, _)| (key(*number), deadlines[number])).collect::<Vec<_>>());
        for (number, _) in orders.iter().step_by(10) {
            self.shop.pay(*number).await;
        }
        let done = work.await;
        self.until_none("orders WHERE status = 0 AND order_no < 900001").await;
        done
    }

    /// Waits until no row is left of these.
    async fn until_none(&self, rows: &str) {
        let count = format!("SELECT count(*) FROM {rows}");
        wait::until_eq(&format!("the number of {rows}"), 0, async || self.shop.database.number(&count).await).await;
    }

    /// One more order that the database refuses to close is given up.
    async fn one_is_refused(&self) {
        let given_up = async || self.shop.database.number("SELECT count(*) FROM order_closer_dead_letters").await;
        let before = given_up().await;
        self.shop.order(REFUSED + before, 0).await;
        wait::until_eq("the number of orders that are given up", before + 1, given_up).await;
    }

    /// A timer that is due.
    async fn timer(&self, number: i64) {
        register(&self.shop.database, &number.to_string(), 0, "reminders", 1).await;
    }

    /// Judges everything at the end.
    async fn judge(&self) {
        let refused: Vec<i64> = (REFUSED..REFUSED + 3).collect();
        let outcome = self.shop.assert_outcome_except(&refused).await;
        super::assert_on_time(&outcome);
        let closed: BTreeSet<i64> = outcome.closed.keys().copied().collect();
        assert_eq!(closed.len() as i64, self.waves.load(Ordering::Relaxed) * WAVE * 9 / 10);
        let recorded = self.shop.database.column("SELECT order_id FROM order_closer_events WHERE orders_table = 'orders'").await;
        let mut recorded: Vec<i64> = recorded.iter().map(|id| id.as_ref().expect("an id").parse().expect("a number")).collect();
        recorded.sort_unstable();
        assert_eq!(recorded, closed.iter().copied().collect::<Vec<_>>(), "one event each");
        assert!(self.redis.command(&["XLEN", "closed"]).integer() >= closed.len() as i64);
        let told: BTreeMap<i64, u32> = self.receiver.taken();
        let twice = told.values().filter(|times| **times > 1).count();
        assert_eq!(told.into_keys().collect::<BTreeSet<_>>(), &closed | &BTreeSet::from(TIMERS), "each is told");
        eprintln!("{} closed, {} ms late at the most; told twice: {twice}", closed.len(), outcome.lateness(1.0));
    }
}

fn assert_explained(daemon: &Daemon) {
    let bad = |line: &&String| line.contains(r#""level":"WARN""#) || line.contains(r#""level":"ERROR""#);
    let lines = daemon.lines();
    let unexplained: Vec<_> = lines.iter().filter(bad).filter(|line| !EXPLAINED.iter().any(|said| line.contains(said))).collect();
    assert!(unexplained.is_empty(), "{unexplained:#?}");
}

/// In the order of the documentation, but that a new daemon is also run on the old tables; then back, and forth again. At each step orders
/// fall due.
async fn there_and_back(kind: Kind) {
    let scene = Scene::open(kind).await;
    let Scene { shop, receiver, settings, more, .. } = &scene;
    scene.by_first(&["migrate"]).await.expect_code(0);
    let old = scene.first().await;
    scene.wave(async {}).await;

    let checked = scene.wave(order_closer(settings, &["check"])).await.expect_code(0).stdout;
    assert!(checked.contains("order-closer migrate") && checked.contains("! first edition"), "{checked}");
    let early = scene.wave(listening(settings)).await;
    scene.wave(async {}).await;
    assert_eq!(early.said(EXPLAINED[0]).len(), 1);
    let migrated = scene.wave(order_closer(settings, &["migrate"])).await.expect_code(0).stdout;
    assert!(migrated.contains("from version 2"), "{migrated}");
    scene.wave(early.stop()).await;

    let new = scene.wave(listening(more)).await;
    scene.one_is_refused().await;
    scene.wave(old.stop()).await;
    scene.wave(async {}).await;
    order_closer(more, &["check"]).await.expect_code(0);
    scene.until_none("order_closer_deliveries").await;
    for daemon in [&early, &old, &new] {
        assert_explained(daemon);
    }

    // What the new one could not tell, the old one does, but for the timer that has fired: that waits for the next new one.
    receiver.usually(Behaviour::Status(503));
    scene.timer(TIMERS[0]).await;
    scene.wave(scene.until_none("order_closer_timers WHERE state = 'armed'")).await;
    let back = async {
        new.stop().await;
        scene.timer(TIMERS[1]).await;
        scene.first().await
    };
    let old = scene.wave(back).await;
    receiver.usually(Behaviour::Status(200));
    scene.one_is_refused().await;
    scene.wave(async {}).await;
    scene.until_none("order_closer_deliveries WHERE orders_table = 'orders'").await;
    for arguments in [&["check"][..], &["events"], &["reconcile"], &["migrate"]] {
        scene.by_first(arguments).await.expect_code(0);
    }
    let listed = scene.by_first(&["dead-letters", "list"]).await.expect_code(0).stdout;
    assert_eq!(listed.lines().count(), 2, "{listed}");
    assert_eq!(shop.database.number("SELECT count(*) FROM order_closer_timers WHERE state = 'armed'").await, 1);

    let next = scene.wave(listening(more)).await;
    scene.wave(old.stop()).await;
    scene.one_is_refused().await;
    scene.wave(async {}).await;
    scene.until_none("order_closer_deliveries").await;
    next.stop().await;
    for daemon in [&new, &old, &next] {
        assert_explained(daemon);
    }
    for daemon in [&new, &next] {
        assert_eq!((daemon.said(EXPLAINED[0]).len(), daemon.said(EXPLAINED[1]).len()), (0, 1), "{:#?}", daemon.lines());
    }
    scene.judge().await;
}

#[tokio::test]
#[ignore = "make upgrade-test"]
async fn there_and_back_on_postgres() {
    there_and_back(Kind::Postgres).await;
}

#[tokio::test]
#[ignore = "make upgrade-test"]
async fn there_and_back_on_mariadb() {
    there_and_back(Kind::MariaDb).await;
}

#[tokio::test]
#[ignore = "make upgrade-test"]
async fn there_and_back_on_sqlite() {
    there_and_back(Kind::Sqlite).await;
}
