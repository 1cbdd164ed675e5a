//! The witness beside a Redis and a table of its own, on a clock of its own.

use std::{
    collections::HashMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::time::{advance, sleep};

use super::*;

const SECOND: i64 = 1_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;

/// What Redis does when it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    Answers,
    /// After so long.
    Slow(Duration),
    Silent,
    /// This process stands still for a minute while it waits, once.
    Stalled,
    /// Of a cluster, those who have keys of an odd number.
    SilentInPart,
    Refuses,
    /// It answers, but not in time whether its keys are still the same.
    Forgetful,
}

/// A Redis whose clock shows zero when it is made.
#[derive(Debug)]
struct Shop {
    born: Instant,
    mood: Mutex<Mood>,
    run: Mutex<String>,
    keys: Mutex<HashMap<String, Option<i64>>>,
    rows: Mutex<HashMap<OrderId, i64>>,
    asked: AtomicUsize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shop {
    fn now(&self) -> i64 {
        i64::try_from(self.born.elapsed().as_micros()).expect("no test is that long")
    }

    fn set_key(&self, number: usize, at: i64) {
        lock(&self.keys).insert(format!("order_{number}"), Some(at));
    }

    fn is(&self, mood: Mood) {
        *lock(&self.mood) = mood;
    }

    /// Restarted without data.
    fn restarts_empty(&self) {
        lock(&self.keys).clear();
        lock(&self.run).push('+');
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

/// The shop as the witness sees it.
#[derive(Debug)]
struct Seen(Arc<Shop>);

#[async_trait]
impl Keys for Seen {
    async fn expiries(&self, keys: &[String], limit: Duration) -> Result<Expiries, Unanswered> {
        let shop = &self.0;
        shop.asked.fetch_add(keys.len(), Ordering::Relaxed);
        let away = || Unanswered::Away("silence".into());
        let mood = *lock(&shop.mood);
        match mood {
            Mood::Answers | Mood::SilentInPart | Mood::Forgetful => {}
            Mood::Slow(time) if time < limit => sleep(time).await,
            Mood::Slow(_) | Mood::Silent => {
                sleep(limit).await;
                return Err(away());
            }
            Mood::Stalled => {
                shop.is(Mood::Answers);
                sleep(Duration::from_mins(1)).await;
                return Err(away());
            }
            Mood::Refuses => return Err(Unanswered::Denied("NOPERM".into())),
        }
        let now = shop.now();
        let known = lock(&shop.keys);
        let expiry = |key: &String| match known.get(key) {
            _ if mood == Mood::SilentInPart && key.ends_with(['1', '3', '5', '7', '9']) => Expiry::Unknown,
            None => Expiry::NoKey,
            Some(None) => Expiry::Never,
            Some(Some(at)) if *at <= now => Expiry::NoKey,
            Some(Some(at)) => Expiry::At(*at),
        };
        Ok(Expiries { now, keys: keys.iter().map(expiry).collect() })
    }

    async fn life(&self) -> Option<String> {
        (*lock(&self.0.mood) != Mood::Forgetful).then(|| lock(&self.0.run).clone())
    }
}

#[async_trait]
impl Rows for Seen {
    async fn deadlines(&self, ids: &[OrderId]) -> Result<HashMap<OrderId, i64>, StoreError> {
        let rows = lock(&self.0.rows);
        Ok(ids.iter().filter_map(|id| Some((id.clone(), *rows.get(id)?))).collect())
    }
}

fn shop() -> (Arc<Shop>, Arc<Witness>) {
    let shop = Arc::new(Shop {
        born: Instant::now(),
        mood: Mutex::new(Mood::Answers),
        run: Mutex::new("a".into()),
        keys: Mutex::default(),
        rows: Mutex::default(),
        asked: AtomicUsize::new(0),
    });
    let mapping = Mapping { zone_matters: true, plus: None };
    let witness = Witness::new("order_", Arc::new(Seen(Arc::clone(&shop))), Arc::new(Seen(Arc::clone(&shop))), mapping);
    (shop, Arc::new(witness))
}

fn id(number: usize) -> OrderId {
    OrderId::from_database(&number.to_string())
}

fn found(number: usize, deadline: i64) -> Pending {
    Pending::new(id(number), Trigger::Sweep).with_deadline(Some(deadline))
}

/// What becomes of an order after whatever has to be asked; how long it waits, if it does.
async fn passes(witness: &Witness, order: Pending) -> Option<Duration> {
    let known = witness.known(std::slice::from_ref(&order)).remove(0);
    let leave = match known {
        Some(leave) => leave,
        None => witness.ask(&[order]).await.remove(0),
    };
    match leave {
        Leave::Go | Leave::GoFor(_) | Leave::GoUnasked | Leave::Look => None,
        Leave::Wait { until, .. } => Some(until - Instant::now()),
    }
}

/// Lets a batch of orders be known, of which each key expires so much later than the row says.
async fn differ(shop: &Shop, witness: &Witness, numbers: std::ops::Range<usize>, by: i64) {
    let due = shop.now() - SECOND;
    for number in numbers {
        shop.set_key(number, due + by);
        passes(witness, found(number, due)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_order_is_disputed_when_its_key_outlives_its_deadline_by_more_than_a_minute() {
    let (shop, witness) = shop();
    shop.set_key(1, MINUTE);
    shop.set_key(2, MINUTE + 1);
    lock(&shop.keys).insert("order_3".into(), None);
    assert_eq!(passes(&witness, found(1, 0)).await, None, "a minute is tolerated");
    assert_eq!(passes(&witness, found(2, 0)).await, Some(Duration::from_micros(60_000_001)));
    assert_eq!(passes(&witness, found(3, 0)).await, None, "a key without TTL says nothing");
    assert_eq!(passes(&witness, found(4, 0)).await, None, "nor does one that isn't there");
}

/// The answer comes before the deadline, and the deadline waits for none.
#[tokio::test(start_paused = true)]
async fn the_deadline_waits_for_no_answer() {
    let (shop, witness) = shop();
    assert_eq!(passes(&witness, found(2, 0)).await, None, "Redis has answered before");
    advance(PATIENCE).await;
    shop.is(Mood::Slow(Duration::from_millis(200)));
    shop.set_key(1, HOUR);
    let pacer = |number| Pending::new(id(number), Trigger::Pacer);
    assert_eq!(witness.known(&[pacer(1)]), [Some(Leave::Go)], "its key was not asked for");
    witness.foresee(vec![(id(1), SECOND)]);
    assert_eq!(witness.known(&[pacer(3)]), [Some(Leave::Go)], "nor was this one's");
    sleep(Duration::from_millis(300)).await;
    assert!(matches!(witness.known(&[pacer(1)])[..], [Some(Leave::Wait { .. })]), "it is disputed");
    let asked = shop.asked();
    witness.foresee(vec![(id(1), SECOND)]);
    sleep(Duration::from_millis(300)).await;
    assert_eq!(shop.asked(), asked, "asked once");
}

/// The answer about the deadline before is none about this one. No look ahead has seen that it was put off: the pacer brings it
/// all the same, since it was carried from the deadline before.
#[tokio::test(start_paused = true)]
async fn an_answer_about_another_deadline_is_none() {
    for until in [2_200_000, 4 * SECOND] {
        let (shop, witness) = shop();
        shop.set_key(1, SECOND);
        witness.foresee(vec![(id(1), SECOND)]);
        sleep(Duration::from_millis(10)).await;
        let carried = |deadline| Pending::new(id(1), Trigger::Pacer).with_deadline(Some(deadline));
        assert_eq!(witness.known(&[carried(SECOND)]), [Some(Leave::Go)]);
        shop.set_key(1, HOUR);
        lock(&shop.rows).insert(id(1), until);
        sleep(micros(until)).await;
        assert_eq!(witness.known(&[carried(until), Pending::new(id(1), Trigger::Expired)]), [None, None], "to be asked about again");
        assert!(passes(&witness, carried(until)).await.is_some(), "its key contradicts that");
        assert!(passes(&witness, Pending::new(id(1), Trigger::Expired)).await.is_some(), "whoever brings it");
    }
}

/// Its key was asked for by a hint, before anybody had read its row. By when its row is due, by another clock than that of Redis, the
/// key seems to be of that deadline.
#[tokio::test(start_paused = true)]
async fn an_answer_about_a_row_that_nobody_had_read_is_none() {
    let (shop, witness) = shop();
    shop.set_key(1, SECOND);
    assert_eq!(passes(&witness, Pending::new(id(1), Trigger::Expired)).await, None);
    let deadline = SECOND + SECOND / 2;
    shop.set_key(1, HOUR);
    lock(&shop.rows).insert(id(1), deadline);
    sleep(micros(deadline)).await;
    assert!(
        passes(&witness, Pending::new(id(1), Trigger::Expired).with_deadline(Some(deadline))).await.is_some(),
        "its key contradicts that"
    );
}

/// Its row is put off before its key, and its key is asked for in between.
#[tokio::test(start_paused = true)]
async fn a_key_that_is_put_off_after_its_row_is_asked_for_again() {
    let (shop, witness) = shop();
    for number in [1, 2] {
        shop.set_key(number, SECOND);
        assert_eq!(passes(&witness, found(number, 5 * SECOND)).await, None);
        shop.set_key(number, HOUR);
    }
    witness.foresee(vec![(id(1), 5 * SECOND)]);
    sleep(Duration::from_secs(5)).await;
    let pacer = Pending::new(id(1), Trigger::Pacer).with_deadline(Some(5 * SECOND));
    assert!(passes(&witness, pacer).await.is_some(), "the look-ahead has shown it");
    lock(&shop.rows).insert(id(2), 5 * SECOND);
    assert!(passes(&witness, Pending::new(id(2), Trigger::Expired)).await.is_some(), "whoever brings it");
}

/// Its row is committed, and seen, before its key is written.
#[tokio::test(start_paused = true)]
async fn a_key_that_is_written_late_is_asked_for_again() {
    let (shop, witness) = shop();
    witness.foresee(vec![(id(1), SECOND)]);
    sleep(Duration::from_millis(10)).await;
    shop.set_key(1, HOUR);
    witness.foresee(vec![(id(1), SECOND)]);
    sleep(Duration::from_millis(10)).await;
    let pacer = Pending::new(id(1), Trigger::Pacer);
    assert!(matches!(witness.known(&[pacer])[..], [Some(Leave::Wait { .. })]), "it is disputed");
}

/// A part of a cluster that is away is that for its own keys, and what is known of these stays.
#[tokio::test(start_paused = true)]
async fn a_part_of_a_cluster_that_is_away() {
    let (shop, witness) = shop();
    (1..=4).for_each(|number| shop.set_key(number, HOUR));
    assert!(passes(&witness, found(1, 0)).await.is_some());
    shop.is(Mood::SilentInPart);
    assert!(passes(&witness, found(1, 0)).await.is_some(), "it is known to be disputed");
    let leaves = witness.ask(&[found(1, 0), found(2, 0), found(3, 0), found(4, 0)]).await;
    let waits: Vec<bool> = leaves.iter().map(|leave| matches!(leave, Leave::Wait { .. })).collect();
    assert_eq!(waits, [true, true, false, true], "of the third nothing is known");
    assert!(passes(&witness, found(2, 0)).await.is_some(), "Redis does not count as away");
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_question_ends_after_300_ms_and_the_next_ones_at_once() {
    let (shop, witness) = shop();
    assert_eq!(passes(&witness, found(1, 0)).await, None);
    shop.is(Mood::Silent);
    let began = Instant::now();
    assert_eq!(passes(&witness, found(2, 0)).await, None);
    assert_eq!(began.elapsed(), Duration::from_millis(300));
    assert_eq!(passes(&witness, found(3, 0)).await, None);
    assert_eq!(began.elapsed(), Duration::from_millis(300), "Redis counts as away");
    shop.is(Mood::Answers);
    advance(Duration::from_secs(1)).await;
    shop.set_key(4, HOUR);
    assert!(passes(&witness, found(4, 0)).await.is_some(), "and is asked again");
}

/// A backlog has no deadline to keep, and may be all of a wrong mapping.
#[tokio::test(start_paused = true)]
async fn orders_that_are_late_already_wait_longer_for_an_answer() {
    let (shop, witness) = shop();
    assert_eq!(passes(&witness, found(1, 0)).await, None);
    advance(Duration::from_mins(2)).await;
    shop.is(Mood::Slow(Duration::from_secs(1)));
    shop.set_key(2, HOUR);
    assert!(passes(&witness, found(2, 0)).await.is_some(), "its key is waited for");
    shop.is(Mood::Silent);
    let began = Instant::now();
    assert_eq!(passes(&witness, found(3, 0)).await, None);
    assert_eq!(began.elapsed(), Duration::from_secs(3));
    advance(Duration::from_secs(1)).await;
    assert_eq!(passes(&witness, found(4, 0)).await, None);
    assert_eq!(began.elapsed(), Duration::from_millis(4_300), "and no longer so while Redis is silent");
}

#[tokio::test(start_paused = true)]
async fn who_stood_still_asks_again() {
    let (shop, witness) = shop();
    assert_eq!(passes(&witness, found(1, 0)).await, None);
    shop.set_key(2, HOUR);
    shop.is(Mood::Stalled);
    assert!(passes(&witness, found(2, 0)).await.is_some(), "Redis was not away");
}

#[tokio::test(start_paused = true)]
async fn at_the_start_a_connection_is_waited_for() {
    let (shop, witness) = shop();
    shop.is(Mood::Slow(Duration::from_secs(2)));
    shop.set_key(1, HOUR);
    assert!(passes(&witness, found(1, 0)).await.is_some());
}

/// Whoever has a second has none to spare for a Redis that does not answer.
#[tokio::test(start_paused = true)]
async fn whoever_has_little_time_waits_little_for_redis() {
    for answers_first in [true, false] {
        let (shop, witness) = shop();
        witness.be_patient_for(Duration::from_millis(400));
        sleep(Duration::from_millis(50)).await;
        if answers_first {
            assert_eq!(passes(&witness, found(1, 0)).await, None);
        }
        shop.is(Mood::Silent);
        assert_eq!(passes(&witness, found(2, -HOUR)).await, None);
        let waited = shop.born.elapsed();
        assert!(waited <= Duration::from_millis(450), "{waited:?}");
        shop.is(Mood::Slow(Duration::from_millis(200)));
        sleep(REST).await;
        shop.set_key(3, HOUR);
        assert!(passes(&witness, found(3, -HOUR)).await.is_some(), "it has answered in time");
    }
}

/// It was read at the start, with its deadline just ahead: nobody could ask sooner.
#[tokio::test(start_paused = true)]
async fn at_the_start_the_deadline_waits_for_the_first_answer() {
    let (shop, witness) = shop();
    shop.set_key(1, HOUR);
    let due = Pending::new(id(1), Trigger::Pacer).with_deadline(Some(0));
    assert!(passes(&witness, due.clone()).await.is_some());
    let (_answers, witness) = self::shop();
    witness.greet();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(witness.known(std::slice::from_ref(&due)), [Some(Leave::Go)], "the start is over");
    let (shop, witness) = self::shop();
    shop.is(Mood::Silent);
    assert_eq!(passes(&witness, due.clone()).await, None, "of a Redis that is away there is none");
    assert_eq!(shop.born.elapsed(), PATIENCE);
    assert_eq!(passes(&witness, due).await, None);
    assert_eq!(shop.born.elapsed(), PATIENCE, "and nobody waits for the next");
}

/// A row may be read only just before its deadline: it was written late, or the daemon has just started among others who have long
/// known that its key contradicts it.
#[tokio::test(start_paused = true)]
async fn the_deadline_waits_for_an_answer_that_is_under_way() {
    for running_for in [Duration::from_millis(1), PATIENCE * 2] {
        let (shop, witness) = shop();
        witness.greet();
        sleep(running_for).await;
        let due = |number| Pending::new(id(number), Trigger::Pacer).with_deadline(Some(shop.now() + 20_000));
        let foresee = |order: &Pending| witness.foresee(order.deadline.map(|deadline| (order.id.clone(), deadline)).into_iter().collect());
        shop.is(Mood::Slow(Duration::from_millis(50)));
        shop.set_key(1, HOUR);
        foresee(&due(1));
        assert!(passes(&witness, due(1)).await.is_some());

        shop.is(Mood::Silent);
        let second = due(2);
        foresee(&second);
        assert_eq!(witness.known(std::slice::from_ref(&second)), [None], "it is asked about");
        sleep(LIMIT * 2).await;
        assert_eq!(witness.known(&[second]), [Some(Leave::Go)], "there is no answer");
        sleep(REST).await;
        let third = due(3);
        foresee(&third);
        assert_eq!(witness.known(&[third]), [Some(Leave::Go)], "nobody waits for a Redis that was away when it was asked");
    }
}

/// Whatever becomes of Redis or the key: flushed, restarted, gone.
#[tokio::test(start_paused = true)]
async fn what_is_disputed_waits_until_its_keys_moment_or_until_its_row_changes() {
    for mishap in [
        Shop::restarts_empty,
        |shop: &Shop| lock(&shop.keys).clear(),
        |shop: &Shop| shop.is(Mood::Silent),
        |shop: &Shop| shop.is(Mood::Refuses),
    ] {
        let (shop, witness) = shop();
        shop.set_key(1, HOUR);
        assert_eq!(passes(&witness, found(1, 0)).await, Some(Duration::from_hours(1)));
        mishap(&shop);
        for minutes in [0, 30, 59] {
            advance(Duration::from_mins(minutes) - shop.born.elapsed().min(Duration::from_mins(minutes))).await;
            assert!(passes(&witness, found(1, 0)).await.is_some(), "after {minutes} minutes");
        }
        assert_eq!(passes(&witness, found(1, SECOND)).await, None, "its row has changed");
        advance(Duration::from_mins(1)).await;
        assert_eq!(passes(&witness, found(1, 0)).await, None, "its key's moment has come");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_put_off_meanwhile_is_heard_again() {
    let (shop, witness) = shop();
    shop.set_key(1, HOUR);
    assert!(passes(&witness, found(1, 0)).await.is_some());
    shop.set_key(1, 2 * HOUR);
    advance(Duration::from_hours(1)).await;
    assert_eq!(passes(&witness, found(1, 0)).await, Some(Duration::from_hours(1)));
}

/// Of a hint's order, or one that somebody names, the row has not been read yet.
#[tokio::test(start_paused = true)]
async fn the_row_is_read_where_only_the_key_is_known() {
    let (shop, witness) = shop();
    advance(Duration::from_hours(1)).await;
    for (number, deadline) in [(1, 0), (2, HOUR - SECOND), (3, 3 * HOUR)] {
        lock(&shop.rows).insert(id(number), deadline);
        shop.set_key(number, HOUR + 30 * SECOND);
    }
    for trigger in [Trigger::Expired, Trigger::Request] {
        assert!(passes(&witness, Pending::new(id(1), trigger)).await.is_some(), "due for an hour");
        assert_eq!(passes(&witness, Pending::new(id(2), trigger)).await, None, "within a minute");
        assert_eq!(passes(&witness, Pending::new(id(3), trigger)).await, None, "not due, as the transaction will say");
        assert_eq!(passes(&witness, Pending::new(id(4), trigger)).await, None, "no key, and no order");
    }
    shop.is(Mood::Silent);
    assert!(passes(&witness, found(1, 0)).await.is_some(), "that was a dispute");
}

#[tokio::test(start_paused = true)]
async fn while_rows_and_keys_differ_as_a_whole_an_order_without_a_known_key_waits_for_the_difference() {
    let (shop, witness) = shop();
    differ(&shop, &witness, 0..10, 8 * HOUR).await;
    assert_eq!(passes(&witness, found(20, shop.now())).await, None, "Redis is there, and has no such key");

    shop.is(Mood::Silent);
    let deadline = shop.now();
    assert!(passes(&witness, found(21, deadline)).await.expect("it waits") > Duration::from_secs(8 * 3_600 - 10));
    assert!(passes(&witness, Pending::new(id(22), Trigger::Pacer).with_deadline(Some(deadline))).await.is_some(), "at its deadline, too");
    assert_eq!(passes(&witness, found(23, deadline - 8 * HOUR)).await, None, "due for longer than the two differ");

    shop.is(Mood::Answers);
    advance(Duration::from_secs(2)).await;
    assert_eq!(passes(&witness, found(24, deadline)).await, None, "the same Redis is back");

    shop.is(Mood::Forgetful);
    assert!(passes(&witness, found(29, deadline)).await.is_some(), "nobody says whether its key has been lost");
    shop.is(Mood::Answers);
    advance(Duration::from_secs(2)).await;

    shop.restarts_empty();
    assert!(passes(&witness, found(25, deadline)).await.is_some(), "its key may have been lost in the restart");
    lock(&shop.rows).insert(id(26), deadline);
    assert!(passes(&witness, Pending::new(id(26), Trigger::Request)).await.is_some(), "and so with one whose row nobody has read");
    assert_eq!(passes(&witness, found(27, deadline - 8 * HOUR)).await, None);

    // Somebody has mended the mapping.
    let due = shop.now() - SECOND;
    for number in 100..200 {
        shop.set_key(number, due + 2 * SECOND);
        assert_eq!(passes(&witness, found(number, due)).await, None);
    }
    assert_eq!(passes(&witness, found(28, shop.now())).await, None, "rows and keys agree again");
}

/// A few disputes are no reason to doubt the others.
#[tokio::test(start_paused = true)]
async fn single_disputes_concern_nobody_else() {
    let (shop, witness) = shop();
    differ(&shop, &witness, 0..30, 0).await;
    differ(&shop, &witness, 30..50, 8 * HOUR).await;
    shop.is(Mood::Silent);
    assert_eq!(passes(&witness, found(60, shop.now())).await, None);
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_ask_rows_decide_and_nobody_asks_all_the_time() {
    let (shop, witness) = shop();
    shop.is(Mood::Refuses);
    shop.set_key(1, HOUR);
    for _ in 0..100 {
        assert_eq!(passes(&witness, found(1, 0)).await, None);
        advance(Duration::from_millis(100)).await;
    }
    assert_eq!(shop.asked(), 1);
}

/// Redis comes and goes, loses keys and forgets all, hints and sweeps come in any order: an order whose key was seen to
/// contradict its row, seconds before or when somebody brought it, never passes before the key's moment; and it does then.
#[tokio::test(start_paused = true)]
async fn whatever_happens_a_disputed_order_waits_for_its_keys_moment_and_no_longer() {
    for seed in 0..300 {
        let mut random = StdRng::seed_from_u64(seed);
        let (shop, witness) = shop();
        let by = random.random_range(2..600) * MINUTE;
        let count = random.random_range(1..40);
        let mut known = HashMap::new();
        for number in 0..count {
            let deadline = shop.now() + random.random_range(-MINUTE..MINUTE);
            shop.set_key(number, deadline + by);
            lock(&shop.rows).insert(id(number), deadline);
            if random.random_bool(0.5) {
                witness.foresee(vec![(id(number), deadline)]);
                sleep(Duration::from_millis(1)).await;
            } else {
                passes(&witness, found(number, deadline)).await;
            }
            known.insert(number, deadline);
        }
        let end = shop.now() + by + 2 * MINUTE;
        while shop.now() < end {
            advance(Duration::from_micros(u64::try_from(by / 17).expect("positive"))).await;
            match random.random_range(0..6) {
                0 => shop.is(Mood::Silent),
                1 => shop.is(Mood::Refuses),
                2 => shop.is(Mood::Slow(Duration::from_millis(random.random_range(0..400)))),
                3 => shop.restarts_empty(),
                4 => lock(&shop.keys).clear(),
                _ => shop.is(Mood::Answers),
            }
            let number = random.random_range(0..count);
            let deadline = known[&number];
            let order = match random.random_range(0..3) {
                0 => found(number, deadline),
                1 => Pending::new(id(number), Trigger::Expired),
                _ => Pending::new(id(number), Trigger::Pacer),
            };
            let waits = passes(&witness, order.clone()).await;
            let left = deadline + by - shop.now();
            if deadline <= shop.now() {
                assert!(left <= 0 || waits.is_some(), "seed {seed}: {order:?} passes {left} us too early");
            }
            assert!(waits.is_none_or(|waits| waits <= micros(left) + LIMIT), "seed {seed}: {order:?} waits {waits:?} of {left} us");
        }
        for (number, deadline) in known {
            assert_eq!(passes(&witness, found(number, deadline)).await, None, "seed {seed}");
        }
    }
}
