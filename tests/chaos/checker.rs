//! Puts together what happened, from the rows' journal, the closing statements, the audit log, the receiver, the provider and the
//! service; judges each order's history, and the stock of all.

use std::collections::BTreeMap;

use super::{
    nemesis::Happened,
    scene::{Lines, Scene},
    service::Account,
    shop::{ARTICLES, article, quantity},
};
use crate::{
    histories::history::{CANCELLED, Closure, Event, Excuse, GIVEN_UP, Histories, History, Record, Told, Violation},
    support::{
        Shop,
        shop::{CLOSED, INITIAL_STOCK, PAID, UNPAID},
    },
};

/// All that is known in the end.
pub async fn histories(scene: &Scene, account: &Account) -> Histories {
    let mut histories = of_rows(&scene.shop).await;
    for (number, events) in &account.events {
        // Of an order that was never written there may be a key.
        if let Some(history) = histories.get_mut(number) {
            history.events.extend(events);
            history.events.sort_by_key(|(at, _)| *at);
        }
    }
    for received in scene.receiver.received() {
        let told = Told { at: scene.unix(received.at), id: received.id(), taken: received.answer.takes() };
        let history = histories.entry(received.order()).or_default();
        history.records.get_or_insert_default();
        history.told.push(told);
    }
    histories
}

fn number(text: &Option<String>) -> i64 {
    text.as_deref().and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{text:?} is no number"))
}

/// What the database knows.
async fn of_rows(shop: &Shop) -> Histories {
    let mut histories = Histories::new();
    let millis = |column: &str| shop.unix_millis(column);
    let rows = async |sql: String| shop.database.rows(&sql).await;
    for row in rows(format!("SELECT order_no, status, {} FROM orders", millis("expires_at"))).await {
        let history = histories.entry(number(&row[0])).or_default();
        (history.status, history.deadline, history.records) = (Some(number(&row[1])), number(&row[2]), Some(Vec::new()));
    }
    let journal = format!("SELECT order_no, {}, old_status, new_status, {} FROM journal ORDER BY id", millis("at"), millis("deadline"));
    for row in rows(journal).await {
        let (old, new, deadline) = (row[2].is_some().then(|| number(&row[2])), number(&row[3]), number(&row[4]));
        let event = match (old, new) {
            (None, _) => Event::Created { deadline, key: None },
            (Some(UNPAID), UNPAID) => Event::Extended { deadline },
            (_, UNPAID) => Event::Reopened { deadline },
            (_, PAID) => Event::Paid,
            (_, CANCELLED) => Event::Cancelled,
            (_, CLOSED | GIVEN_UP) => Event::Closed,
            other => panic!("order {:?} went from {other:?}", row[0]),
        };
        histories.entry(number(&row[0])).or_default().add(number(&row[1]), event);
    }
    let closures = format!("SELECT order_no, {}, {} FROM closures ORDER BY 2", millis("closed_at"), millis("deadline"));
    for row in rows(closures).await {
        histories.entry(number(&row[0])).or_default().closures.push(Closure { at: number(&row[1]), deadline: number(&row[2]) });
    }
    let events = "SELECT order_id, id, closed_at, deadline FROM order_closer_events WHERE order_id <> '' ORDER BY closed_at, id";
    for row in rows(events.into()).await {
        let closure = Closure { at: number(&row[2]) / 1_000, deadline: number(&row[3]) / 1_000 };
        let record = Record { id: row[1].clone().expect("an id"), closure };
        histories.entry(number(&row[0])).or_default().records.get_or_insert_default().push(record);
    }
    histories
}

/// How many orders are due, unpaid, and wait for nothing, or have an event that nobody has taken, or are of a batch.
pub async fn unsettled(scene: &Scene, account: &Account, now: i64) -> usize {
    let histories = histories(scene, account).await;
    let is_untold = |history: &History| history.violations(0, now, &Excuse::any_lateness(true)).contains(&Violation::Untold);
    let batches = scene.shop.database.number("SELECT count(*) FROM order_closer_batches").await;
    histories.values().filter(|history| history.is_overdue(now) || is_untold(history)).count() + usize::try_from(batches).unwrap_or(0)
}

/// For so long after a daemon has waited in vain for Redis' answer it does not ask, in milliseconds, and a little more; and so much
/// later than it said so it may be read, on a machine that is busy.
const UNASKED: i64 = 1_500;
const READ: i64 = 500;

/// Whose key could be relied on: nothing was wrong with Redis since before it was written, and no daemon has waited in vain for its
/// answer (at these moments), as on a machine that is busy with other things, too.
fn excuse(history: &History, happened: &[Happened], unanswered: &[i64]) -> Excuse {
    let from = history.events.first().map_or(0, |(at, _)| *at);
    let until = history.closures.last().map_or(i64::MAX - READ, |closure| closure.at);
    let keys = happened.iter().any(|fault| fault.concerns_keys() && fault.began <= until && fault.ended + 2_000 >= from);
    let alone = unanswered.iter().any(|at| (from - UNASKED..=until + READ).contains(at));
    Excuse::any_lateness(keys || alone)
}

/// When daemons have said that rows decide alone, since Redis has not answered in time.
pub fn unanswered(lines: &Lines) -> Vec<i64> {
    let said = lines.values().flatten().filter(|(_, line)| line.contains("rows decide alone"));
    said.map(|(at, _)| *at).collect()
}

/// Each order whose history must not be.
pub fn judge(histories: &Histories, happened: &[Happened], unanswered: &[i64], now: i64) -> BTreeMap<i64, Vec<Violation>> {
    let of = |history: &History| excuse(history, happened, unanswered);
    let judged = histories.iter().map(|(number, history)| (*number, history.violations(*number, now, &of(history))));
    judged.filter(|(_, violations)| !violations.is_empty()).collect()
}

/// What the stock must be, and what it is, of each article of which it is wrong.
pub fn wrong_stock(histories: &Histories, stock: &BTreeMap<i64, i64>) -> BTreeMap<i64, (i64, i64)> {
    let mut expected: BTreeMap<i64, i64> = (0..ARTICLES).map(|sku| (sku, INITIAL_STOCK)).collect();
    for (number, history) in histories {
        if matches!(history.status, Some(UNPAID | PAID)) {
            *expected.entry(article(*number)).or_default() -= quantity(*number);
        }
    }
    let both = expected.into_iter().map(|(sku, expected)| (sku, (expected, stock.get(&sku).copied().unwrap_or_default())));
    both.filter(|(_, (expected, found))| expected != found).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::faults::What;

    #[test]
    fn stock_that_was_given_back_twice_or_never_is_noticed() {
        let status = |status: i64| History { status: Some(status), ..History::default() };
        let histories = Histories::from([(1, status(UNPAID)), (2, status(PAID)), (3, status(CLOSED)), (4, status(CANCELLED))]);
        let mut stock: BTreeMap<i64, i64> = (0..ARTICLES).map(|sku| (sku, INITIAL_STOCK)).collect();
        *stock.get_mut(&1).unwrap() -= quantity(1);
        *stock.get_mut(&2).unwrap() -= quantity(2);
        assert_eq!(wrong_stock(&histories, &stock), BTreeMap::new());
        *stock.get_mut(&3).unwrap() += quantity(3);
        *stock.get_mut(&2).unwrap() += 1;
        let wrong = wrong_stock(&histories, &stock);
        assert_eq!(wrong.keys().copied().collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn a_key_counts_where_nothing_was_wrong_with_redis() {
        let events = vec![(10_000, Event::Key { expires: 80_000, sure: true }), (10_001, Event::Created { deadline: 12_000, key: None })];
        let closures = vec![Closure { at: 12_010, deadline: 12_000 }];
        let history = History { events, closures, status: Some(CLOSED), deadline: 12_000, ..History::default() };
        let histories = Histories::from([(1, history)]);
        let fault = |what: What, began: i64, ended: i64| Happened { what, began, ended };
        let found = |happened: &[Happened]| judge(&histories, happened, &[], 20_000);
        let early = BTreeMap::from([(1, vec![Violation::EarlyByItsKey])]);
        assert_eq!(found(&[]), early);
        assert_eq!(found(&[fault(What::RedisFlushed, 11_000, 11_500)]), BTreeMap::new());
        assert_eq!(found(&[fault(What::RedisFlushed, 1_000, 2_000)]), early, "before it was written");
        assert_eq!(found(&[fault(What::RedisFlushed, 13_000, 14_000)]), early, "after it was closed");
        assert_eq!(found(&[fault(What::DatabaseKilled, 11_000, 11_500)]), early);
        let line = |at: i64, text: &str| (at, text.to_owned());
        let said = |at: i64| unanswered(&Lines::from([(0, vec![line(10_500, "no JSON"), line(at, "…; rows decide alone")])]));
        assert_eq!(said(11_000), [11_000]);
        let judged = |at: i64| judge(&histories, &[], &said(at), 20_000);
        assert_eq!((judged(11_000), judged(9_000)), (BTreeMap::new(), BTreeMap::new()), "it did not ask yet when it was due");
        assert_eq!(judged(12_300), BTreeMap::new(), "it was read late");
        assert_eq!((judged(8_000), judged(13_000)), (early.clone(), early));
    }
}
