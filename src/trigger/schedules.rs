//! The look-ahead and the sweep over a table in memory, on hundreds of seeded schedules in paused time: hints that are lost,
//! repeated or early, pages that are slow or fail, requests, orders that are extended. The table is for schedules only; that the
//! promises hold on real servers is shown in `tests/promises`.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{
    Beat, LONGEST_READ, LookAhead, Sweep, Turns, Upcoming,
    wheel::{Appointment, Step, Wheel},
};
use crate::{
    close::{Bounds, Closed, Inbox, Looked, Outcome},
    config::{Events, Live, Retry, RuleName, Sweep as Settings},
    order::{IdKind, OrderId, Row, Trigger},
    store::{
        Catalogue, Census, Claim, ClockReading, Counted, DueQuery, HostSeen, Inspected, Limits, MappedColumn, Obstacle, OpenError, Outbox,
        Page, Pool, Store, StoreError, Transaction, Window,
    },
};

const START: i64 = 1_700_000_000_000_000;

/// What the table does next when it is read.
type Behaviour = Box<dyn Fn(&mut StdRng) -> (Duration, bool) + Send>;

struct Table {
    rule: RuleName,
    began: Instant,
    /// Deadlines of unpaid orders.
    unpaid: Mutex<BTreeMap<u32, i64>>,
    random: Mutex<StdRng>,
    behaviour: Mutex<Behaviour>,
    /// When each read of what is overdue, or of what is ahead, began, and how long it took.
    swept: Mutex<Vec<(Instant, Duration)>>,
    looked: Mutex<Vec<(Instant, Duration)>>,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").finish_non_exhaustive()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).expect("a short time")
}

fn id(number: u32) -> OrderId {
    OrderId::from_database(&format!("{number:06}"))
}

fn number(id: &OrderId) -> u32 {
    id.as_str().parse().expect("a number")
}

impl Table {
    fn new(seed: u64, behaviour: Behaviour) -> Self {
        Self {
            rule: RuleName::default(),
            began: Instant::now(),
            unpaid: Mutex::default(),
            random: Mutex::new(StdRng::seed_from_u64(seed)),
            behaviour: Mutex::new(behaviour),
            swept: Mutex::default(),
            looked: Mutex::default(),
        }
    }

    fn now(&self) -> i64 {
        START + micros(self.began.elapsed())
    }
}

#[async_trait]
#[expect(clippy::unimplemented, reason = "neither the look-ahead nor the sweep asks for it")]
impl Store for Table {
    fn rule(&self) -> &RuleName {
        &self.rule
    }

    async fn count_untaken(&self) -> Result<u64, StoreError> {
        unimplemented!()
    }

    async fn claimed_twice(&self) -> Result<Option<Claim>, StoreError> {
        unimplemented!()
    }

    fn columns(&self) -> Vec<String> {
        Vec::new()
    }

    fn id_kind(&self) -> IdKind {
        unimplemented!()
    }

    fn unpaid(&self) -> &[String] {
        &[]
    }

    async fn refresh(&self) -> Result<(), OpenError> {
        unimplemented!()
    }

    async fn identity(&self) -> Result<String, StoreError> {
        unimplemented!()
    }

    async fn is_another(&self) -> Result<bool, StoreError> {
        unimplemented!()
    }

    fn turn(&self) -> u64 {
        0
    }

    async fn look_at_hosts(&self) -> Vec<HostSeen> {
        unimplemented!()
    }

    fn obstacles(&self) -> Vec<Obstacle> {
        unimplemented!()
    }

    async fn reach(&self) -> Result<(), StoreError> {
        unimplemented!()
    }

    async fn asked_about(&self, _ids: &[OrderId]) -> Result<Vec<(Row, String)>, StoreError> {
        unimplemented!()
    }

    fn set_targets(&self, _events: &Events) {}

    fn pools(&self) -> Vec<Pool> {
        Vec::new()
    }

    async fn begin(&self, _limits: Limits) -> Result<Box<dyn Transaction>, StoreError> {
        unimplemented!()
    }

    async fn due(&self, query: &DueQuery) -> Result<Page, StoreError> {
        let (began, now) = (Instant::now(), self.now());
        let is_sweep = query.window == Window::overdue(Settings::default().oldest.get());
        let (takes, fails) = locked(&self.behaviour)(&mut locked(&self.random));
        sleep(takes).await;
        locked(if is_sweep { &self.swept } else { &self.looked }).push((began, takes));
        if fails {
            return Err(StoreError::TimedOut("too long".into()));
        }
        let row = |(number, deadline): (&u32, &i64)| Row { id: id(*number), status: None, deadline: Some(*deadline), now, locked: false };
        let is_in = |deadline: i64| (deadline <= now) == is_sweep && deadline <= now + 10_000_000;
        let rows = locked(&self.unpaid).iter().filter(|(_, deadline)| is_in(**deadline)).map(row).collect();
        Ok(Page { rows, reads: 1, ..Page::default() })
    }

    async fn count(&self, _window: Window) -> Result<Counted, StoreError> {
        Ok(Counted::default())
    }

    async fn count_up_to(&self, _window: Window, _most: u32) -> Result<u64, StoreError> {
        unimplemented!()
    }

    async fn clock(&self) -> Result<ClockReading, StoreError> {
        Ok(ClockReading { micros: self.now(), round_trip: Duration::ZERO })
    }

    async fn catalogue(&self) -> Result<Catalogue, StoreError> {
        Err(StoreError::TimedOut("too long".into()))
    }

    async fn census(&self) -> Result<Census, StoreError> {
        unimplemented!()
    }

    async fn look(&self, _ids: &[OrderId]) -> Result<Vec<Row>, StoreError> {
        Ok(Vec::new())
    }

    async fn inspect(&self, _id: &OrderId) -> Result<Vec<Inspected>, StoreError> {
        unimplemented!()
    }

    fn mapped(&self) -> [MappedColumn; 3] {
        unimplemented!()
    }

    fn time_zone(&self) -> String {
        unimplemented!()
    }

    fn zone_matters(&self) -> bool {
        false
    }

    async fn zone_changed(&self) -> Result<Option<String>, StoreError> {
        unimplemented!()
    }

    async fn zone_differs(&self) -> Result<Option<String>, StoreError> {
        unimplemented!()
    }

    fn halted(&self) -> watch::Receiver<Option<String>> {
        unimplemented!()
    }

    async fn without_transactions(&self) -> Result<Option<String>, StoreError> {
        unimplemented!()
    }

    fn outbox(&self) -> &Outbox {
        unimplemented!()
    }

    fn outbox_apart(&self, _: usize) -> Outbox {
        unimplemented!()
    }

    async fn close(&self) {}
}

/// Whoever reads the table, and whoever closes orders at once; `ahead` is for the look-ahead.
struct Running {
    table: Arc<Table>,
    inbox: Arc<Inbox>,
    /// When each order was closed, and its deadline then.
    closed: Arc<Mutex<BTreeMap<u32, (i64, i64)>>>,
    stop: CancellationToken,
}

fn run(seed: u64, ahead: u64, behaviour: Behaviour) -> Running {
    let table = Arc::new(Table::new(seed, behaviour));
    let inbox = Arc::new(Inbox::new(10_000, Retry::default()));
    let (stop, closed) = (CancellationToken::new(), Arc::<Mutex<BTreeMap<u32, (i64, i64)>>>::default());
    let settings = Settings { ahead: Duration::from_secs(ahead).into(), ..Settings::default() };
    let (_, settings) = Live::new(settings);
    let (upcoming, seen) = mpsc::channel(8);
    let turns = Arc::new(Turns::default());
    let store: Arc<dyn Store> = table.clone();
    let look_ahead = LookAhead {
        store: Arc::clone(&store),
        inbox: Arc::clone(&inbox),
        upcoming,
        witness: None,
        settings: settings.clone(),
        passes: Arc::default(),
        turns: Arc::clone(&turns),
        beat: Beat::default(),
        stop: stop.clone(),
    };
    let sweep = Sweep {
        store,
        inbox: Arc::clone(&inbox),
        peers: Arc::default(),
        bounds: Arc::new(Bounds::default()),
        settings,
        passes: Arc::default(),
        turns,
        beat: Beat::default(),
        stop: stop.clone(),
    };
    tokio::spawn(look_ahead.run());
    tokio::spawn(sweep.run());
    tokio::spawn(offer_in_time(seen, Arc::clone(&inbox)));
    tokio::spawn(close(Arc::clone(&inbox), Arc::clone(&table), Arc::clone(&closed)));
    Running { table, inbox, closed, stop }
}

/// As the pacer does without Redis.
async fn offer_in_time(mut seen: mpsc::Receiver<Vec<Upcoming>>, inbox: Arc<Inbox>) {
    let mut wheel = Wheel::default();
    loop {
        tokio::select! {
            orders = seen.recv() => {
                let Some(orders) = orders else { return };
                for Upcoming { id, deadline, at } in orders {
                    wheel.insert(id, Appointment { at, deadline: Some(deadline), step: Step::Touch });
                }
            }
            ready = wheel.ready() => drop(inbox.offer_due(ready.iter().map(|(id, _)| id), Trigger::Pacer)),
        }
    }
}

/// As the workers do, by the row's deadline.
async fn close(inbox: Arc<Inbox>, table: Arc<Table>, closed: Arc<Mutex<BTreeMap<u32, (i64, i64)>>>) {
    while let Some(batch) = inbox.take(100).await {
        let look = |pending: crate::close::Pending| {
            let (number, now) = (number(&pending.id), table.now());
            let mut unpaid = locked(&table.unpaid);
            let outcome = match unpaid.get(&number).copied() {
                None => Outcome::NotFound,
                Some(deadline) if deadline > now => Outcome::NotDue { remaining: None },
                Some(deadline) => {
                    unpaid.remove(&number);
                    assert_eq!(locked(&closed).insert(number, (now, deadline)), None, "closed twice");
                    Outcome::Closed(Closed { lateness: Duration::ZERO, deadline })
                }
            };
            Looked { pending, outcome }
        };
        drop(inbox.settle(batch.orders.into_iter().map(look).collect()));
    }
}

/// Whatever becomes of hints and of some pages, each order closes once, never early, and within the sweep's interval and two
/// pages.
#[tokio::test(start_paused = true)]
async fn every_order_closes_in_time() {
    for seed in 0..200 {
        let mut random = StdRng::seed_from_u64(seed);
        let slowest = random.random_range(1..400_u64);
        let failing = if random.random_bool(0.5) { 0.1 } else { 0.0 };
        let running = run(seed, [0, 2][usize::from(random.random_bool(0.7))], {
            Box::new(move |random| (Duration::from_millis(random.random_range(0..slowest)), random.random_bool(failing)))
        });
        let count = random.random_range(1..300_u32);
        for number in 0..count {
            let due = running.table.now() + random.random_range(-2_000..6_000) * 1_000;
            locked(&running.table.unpaid).insert(number, due);
            for _ in 0..random.random_range(0..3) {
                // Early, of strangers, or repeated.
                running.inbox.offer_hint(&id(random.random_range(0..count + 50)), Trigger::Expired);
            }
            if random.random_bool(0.1) {
                // Some are given more time.
                let extended = random.random_range(0..=number);
                let more = running.table.now() + random.random_range(500..4_000) * 1_000;
                locked(&running.table.unpaid).entry(extended).and_modify(|deadline| *deadline = more.max(*deadline));
            }
            if random.random_bool(0.05) {
                running.inbox.want_sweep();
            }
            sleep(Duration::from_millis(random.random_range(0..30))).await;
        }
        sleep(Duration::from_secs(40)).await;
        running.stop.cancel();
        let closed = locked(&running.closed);
        assert_eq!(closed.len(), count as usize, "seed {seed}: all close");
        for (number, (at, deadline)) in closed.iter() {
            assert!(at >= deadline, "seed {seed}: {number} closed early");
        }
        if failing == 0.0 {
            // A rest is nine times as long as what is slow about it, and five seconds at the most.
            let most = 1_000 + i64::try_from(2 * slowest).expect("small") + 9 * i64::try_from(slowest).expect("small") + 100;
            let born_late = 2_000;
            let latest = closed.values().map(|(at, deadline)| (at - deadline) / 1_000).max().unwrap_or_default();
            assert!(latest <= most.max(1_000) + born_late, "seed {seed}: {latest} ms late, pages of {slowest} ms");
        }
    }
}

fn rests(reads: &[(Instant, Duration)]) -> Vec<Duration> {
    reads.windows(2).map(|pair| pair[1].0 - pair[0].0 - pair[0].1).collect()
}

/// Two of five passes are slow: no rest is longer for it.
#[tokio::test(start_paused = true)]
async fn a_hiccup_delays_nothing() {
    let running = run(1, 0, Box::new(|random| (Duration::from_millis(if random.random_ratio(1, 7) { 3_500 } else { 2 }), false)));
    sleep(Duration::from_secs(60)).await;
    let rests = rests(&locked(&running.table.swept));
    let long = rests.iter().filter(|rest| **rest > Duration::from_millis(1_100)).count();
    assert!(rests.len() > 30 && long * 10 <= rests.len(), "{rests:?}");
}

/// While all queries time out, both readers together take a tenth of the time, and rest for a minute at the most.
#[tokio::test(start_paused = true)]
async fn queries_that_time_out_take_a_tenth_of_the_time() {
    for (seconds, share) in [(1, 0.11), (3, 0.11), (LONGEST_READ.as_secs(), 0.105)] {
        let running = run(2, 2, Box::new(move |_| (Duration::from_secs(seconds), true)));
        sleep(Duration::from_secs(120)).await;
        let (swept, looked) = (locked(&running.table.swept).len(), locked(&running.table.looked).len());
        sleep(Duration::from_secs(2_000)).await;
        let more = locked(&running.table.swept).len() + locked(&running.table.looked).len() - swept - looked;
        let taken = f64::from(u32::try_from(more).expect("few")) * f64::from(u32::try_from(seconds).expect("few")) / 2_000.0;
        assert!(taken <= share && taken > share / 3.0, "{taken} of the time for queries of {seconds} s");
        // Quick again.
        *locked(&running.table.behaviour) = Box::new(|_| (Duration::from_millis(2), false));
        sleep(Duration::from_secs(140)).await;
        let (looks, sweeps) = (locked(&running.table.looked).len(), locked(&running.table.swept).len());
        sleep(Duration::from_secs(20)).await;
        assert!(locked(&running.table.looked).len() >= looks + 15 && locked(&running.table.swept).len() >= sweeps + 15);
        running.stop.cancel();
    }
}

/// However often somebody asks, there is a tenth of a second between passes, and after slow ones ten seconds.
#[tokio::test(start_paused = true)]
async fn requests_are_heard_but_not_all() {
    for (takes, least, most) in [(2, 100, 1_100), (2_000, 0, 12_000)] {
        let running = run(3, 0, Box::new(move |_| (Duration::from_millis(takes), false)));
        for _ in 0..10_000 {
            running.inbox.want_sweep();
            sleep(Duration::from_millis(10)).await;
        }
        let swept = locked(&running.table.swept);
        let steps: Vec<Duration> = swept.windows(2).skip(5).map(|pair| pair[1].0 - pair[0].0).collect();
        assert!(steps.iter().all(|step| (least..=most).contains(&step.as_millis())), "{steps:?}");
        if takes > 1_000 {
            assert!(steps.iter().all(|step| step.as_millis() >= 10_000), "{steps:?}");
        }
        running.stop.cancel();
    }
}
