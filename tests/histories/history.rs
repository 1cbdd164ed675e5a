//! What happened to each order, and whether that may be.

use std::{collections::BTreeMap, fmt, ops::RangeInclusive};

use crate::support::{
    Shop,
    shop::{CLOSED, PAID, UNPAID},
};

/// The status of an order that its customer has cancelled.
pub const CANCELLED: i64 = 2;

/// The status of an order that another rule than the first has closed.
pub const GIVEN_UP: i64 = 5;

const CLOSED_STATUSES: [i64; 2] = [CLOSED, GIVEN_UP];

/// What happened to an order before, between and after its closures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Written, with its deadline in milliseconds since 1970, and the moment at which its key expires, if it has one.
    Created { deadline: i64, key: Option<i64> },
    /// Given another deadline, with its key, while it was unpaid.
    Extended { deadline: i64 },
    /// Opened again after its closure, with another deadline, and its key.
    Reopened { deadline: i64 },
    /// Its key was written, to expire then; `sure` where Redis has confirmed it.
    Key { expires: i64, sure: bool },
    /// Paid, while it was unpaid.
    Paid,
    /// Paid at the payment provider, which knows it before the shop does.
    PaidAtProvider,
    /// Cancelled, while it was unpaid.
    Cancelled,
    /// Closed, by the account of its row.
    Closed,
    /// It was paid, cancelled or closed before one of these could be done.
    TooLate,
}

/// One run of the closing statements for an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closure {
    /// When, in milliseconds since 1970, by the database's clock.
    pub at: i64,
    /// The deadline that its row had then, likewise.
    pub deadline: i64,
}

/// A closure as it was recorded, to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The event's id.
    pub id: String,
    /// When, and for which deadline.
    pub closure: Closure,
}

/// A request of which the receiver of events knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// When it came, in milliseconds since 1970.
    pub at: i64,
    /// The event's id.
    pub id: String,
    /// Whether the receiver has taken it.
    pub taken: bool,
}

/// What happened to one order, by everybody's account.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// With their moments, in milliseconds since 1970.
    pub events: Vec<(i64, Event)>,
    /// The status of its row in the end, if there is one.
    pub status: Option<i64>,
    /// The deadline of its row in the end.
    pub deadline: i64,
    /// Each run of the closing statements, in order.
    pub closures: Vec<Closure>,
    /// What the audit log says, in its order, where closures are recorded.
    pub records: Option<Vec<Record>>,
    /// What its receiver says, in the order of arrival.
    pub told: Vec<Told>,
}

/// Why a history must not be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Violation {
    /// Closed before its row's deadline.
    EarlyByItsRow,
    /// Closed before its key's moment, though the key outlives the deadline by more than a minute.
    EarlyByItsKey,
    /// Paid or cancelled, and closed.
    ClosedThoughSettled,
    /// Paid at the payment provider, and closed.
    ClosedThoughPaidAtProvider,
    /// Closed more often than it was open.
    Twice,
    /// Its row says closed, and the closing statements have not run, or the other way round.
    NotWhole,
    /// Due, and neither paid, cancelled nor closed.
    Lost,
    /// Closed late, though the fault had nothing to do with it.
    Late,
    /// A closure without its event, or an event without its closure.
    WrongEvents,
    /// An event that nobody was told of.
    Untold,
    /// Somebody was told of a later closure before an earlier one was taken.
    ToldOutOfOrder,
    /// Somebody was told of an event that is not in the audit log.
    ToldOfNothing,
}

/// What a fault excuses.
#[derive(Debug, Clone)]
pub struct Excuse {
    /// Orders that were created, extended or due then may be late.
    pub during: Option<RangeInclusive<i64>>,
    /// These may be late at any time.
    pub orders: Vec<i64>,
    /// Keys may be lost before anybody has read them.
    pub keys: bool,
}

impl Excuse {
    /// Everything may be late, as where several faults come at once; keys are lost, or not.
    pub fn any_lateness(keys: bool) -> Self {
        Self { during: Some(i64::MIN..=i64::MAX), orders: Vec::new(), keys }
    }
}

/// What an order that nothing excuses may be late, in milliseconds: a daemon that works takes a few, a loaded machine that runs
/// other tests beside it some more.
pub const LATE: i64 = 1_500;

/// A key that outlives its deadline by more than this contradicts its row.
const DISPUTED: i64 = 60_000;

impl History {
    /// Adds what happened.
    pub fn add(&mut self, at: i64, event: Event) {
        self.events.push((at, event));
    }

    /// The latest moment at which a key that was written before `by` expires, if Redis has confirmed it or `sure` does not matter.
    fn key(&self, by: i64, sure: bool) -> Option<i64> {
        self.events.iter().filter(|(at, _)| *at <= by).rev().find_map(|(_, event)| match event {
            Event::Created { key, .. } => key.map(Some),
            Event::Extended { deadline } | Event::Reopened { deadline } => Some(Some(*deadline)),
            Event::Key { expires, sure: is_sure } => Some(Some(*expires).filter(|_| *is_sure || !sure)),
            Event::Paid | Event::PaidAtProvider | Event::Cancelled | Event::Closed | Event::TooLate => None,
        })?
    }

    /// The deadline that the service gave it last.
    fn given(&self) -> i64 {
        let given = self.events.iter().rev().find_map(|(_, event)| match event {
            Event::Created { deadline, .. } | Event::Extended { deadline } | Event::Reopened { deadline } => Some(*deadline),
            Event::Key { .. } | Event::Paid | Event::PaidAtProvider | Event::Cancelled | Event::Closed | Event::TooLate => None,
        });
        given.unwrap_or(self.deadline)
    }

    /// Whether its key contradicts its row.
    pub fn outlived(&self) -> bool {
        self.key(i64::MAX, false).is_some_and(|key| key - self.given() > DISPUTED)
    }

    /// When this happened first.
    fn first(&self, is_it: impl Fn(&Event) -> bool) -> Option<i64> {
        self.events.iter().find(|(_, event)| is_it(event)).map(|(at, _)| *at)
    }

    fn count(&self, is_it: impl Fn(&Event) -> bool) -> usize {
        self.events.iter().filter(|(_, event)| is_it(event)).count()
    }

    fn is_paid_at_provider(&self) -> bool {
        self.first(|event| *event == Event::PaidAtProvider).is_some()
    }

    /// Whether its row is unpaid, or was closed without its statements.
    fn is_open(&self) -> bool {
        self.status == Some(UNPAID) || (self.is_closed() && self.closures.is_empty())
    }

    fn is_closed(&self) -> bool {
        self.status.is_some_and(|status| CLOSED_STATUSES.contains(&status))
    }

    /// When it should close, at the earliest.
    fn due(&self) -> i64 {
        if self.outlived() { self.key(i64::MAX, false).unwrap_or_default() } else { self.deadline }
    }

    /// Whether it is due, unpaid, and nobody else may leave it open.
    pub fn is_overdue(&self, now: i64) -> bool {
        self.is_open() && self.due() < now && !self.is_paid_at_provider()
    }

    fn is_excused(&self, number: i64, excuse: &Excuse) -> bool {
        let touched = |at: i64| excuse.during.as_ref().is_some_and(|during| during.contains(&at));
        excuse.orders.contains(&number) || touched(self.deadline) || self.events.iter().any(|(at, _)| touched(*at))
    }

    /// What must not be in it, `now` being the end.
    pub fn violations(&self, number: i64, now: i64, excuse: &Excuse) -> Vec<Violation> {
        let mut found = Vec::new();
        let mut must_not = |is: bool, violation| found.extend(is.then_some(violation));
        let before_its_key =
            |closure: &Closure| self.key(closure.at, true).is_some_and(|key| key - closure.deadline > DISPUTED && closure.at < key);
        must_not(self.closures.iter().any(|closure| closure.at < closure.deadline), Violation::EarlyByItsRow);
        must_not(!excuse.keys && self.closures.iter().any(before_its_key), Violation::EarlyByItsKey);
        let reopened = self.count(|event| matches!(event, Event::Reopened { .. }));
        let runs = self.closures.len();
        let closed_after = |at: i64| self.is_closed() || runs > reopened || self.closures.iter().any(|closure| closure.at > at);
        let settled = self.first(|event| matches!(event, Event::Paid | Event::Cancelled));
        must_not(settled.is_some_and(closed_after), Violation::ClosedThoughSettled);
        let provided = self.first(|event| *event == Event::PaidAtProvider);
        must_not(provided.is_some_and(closed_after), Violation::ClosedThoughPaidAtProvider);
        must_not(runs > reopened + 1, Violation::Twice);
        let by_its_row = self.count(|event| *event == Event::Closed);
        must_not(by_its_row > 0 && by_its_row != runs || runs < reopened, Violation::NotWhole);
        must_not(self.is_overdue(now), Violation::Lost);
        let late = self.closures.last().is_some_and(|closure| closure.at - self.due() > LATE);
        must_not(late && !self.is_excused(number, excuse), Violation::Late);
        found.extend(self.records.iter().flat_map(|records| self.wrongly_told(records)));
        found
    }

    /// What must not be among its events, of which each closure has one.
    fn wrongly_told(&self, records: &[Record]) -> Vec<Violation> {
        let mut found = Vec::new();
        let mut must_not = |is: bool, violation| found.extend(is.then_some(violation));
        let sorted = |mut deadlines: Vec<i64>| {
            deadlines.sort_unstable();
            deadlines
        };
        let recorded = sorted(records.iter().map(|record| record.closure.deadline).collect());
        let closed = sorted(self.closures.iter().map(|closure| closure.deadline).collect());
        must_not(recorded != closed, Violation::WrongEvents);
        let taken = |record: &Record| self.told.iter().find(|told| told.taken && told.id == record.id).map(|told| told.at);
        let told = |record: &Record| self.told.iter().find(|told| told.id == record.id).map(|told| told.at);
        must_not(records.iter().any(|record| taken(record).is_none()), Violation::Untold);
        let out_of_order = |pair: &[Record]| taken(&pair[0]).zip(told(&pair[1])).is_some_and(|(earlier, later)| later < earlier);
        must_not(records.windows(2).any(out_of_order), Violation::ToldOutOfOrder);
        let of_nothing = |told: &Told| records.iter().all(|record| record.id != told.id);
        must_not(self.told.iter().any(of_nothing), Violation::ToldOfNothing);
        found
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.moments();
        let start = all.first().map_or(0, |(at, _)| *at);
        for (at, what) in all {
            writeln!(f, "    {:>8} ms  {what}", at - start)?;
        }
        write!(f, "    its deadline is at {} ms, its status {:?} in the end", self.deadline - start, self.status)
    }
}

impl History {
    /// All of it in words, in the order of time.
    pub fn moments(&self) -> Vec<(i64, String)> {
        let mut all: Vec<(i64, String)> = self.events.iter().map(|(at, event)| (*at, format!("{event:?}"))).collect();
        all.extend(self.closures.iter().map(|closure| (closure.at, format!("closing statements, deadline {}", closure.deadline))));
        let records = self.records.iter().flatten();
        all.extend(records.map(|Record { id, closure }| (closure.at, format!("event {id}, deadline {}", closure.deadline))));
        let told = |told: &Told| (told.at, format!("the receiver {} event {}", if told.taken { "took" } else { "was told of" }, told.id));
        all.extend(self.told.iter().map(told));
        all.sort();
        all
    }
}

/// The histories of all orders, by number.
pub type Histories = BTreeMap<i64, History>;

/// Adds what the database says to what the service said, and returns each history that must not be.
pub async fn judge(shop: &Shop, mut histories: Histories, now: i64, excuse: &Excuse) -> Vec<String> {
    let millis = |column: &str| format!("floor(extract(epoch FROM {column}) * 1000)::bigint");
    let number = |text: &Option<String>| text.as_deref().and_then(|text| text.parse::<i64>().ok()).expect("a number");
    for row in shop.database.rows(&format!("SELECT order_no, status, {} FROM orders", millis("expires_at"))).await {
        let history = histories.entry(number(&row[0])).or_default();
        (history.status, history.deadline) = (Some(number(&row[1])), number(&row[2]));
    }
    for row in shop.database.rows(&format!("SELECT order_no, {} FROM closures ORDER BY 2", millis("closed_at"))).await {
        let history = histories.entry(number(&row[0])).or_default();
        history.closures.push(Closure { at: number(&row[1]), deadline: history.deadline });
    }
    let found = histories.iter().filter_map(|(number, history)| {
        let violations = history.violations(*number, now, excuse);
        (!violations.is_empty()).then(|| format!("order {number}: {violations:?}\n{history}"))
    });
    found.collect()
}

/// The orders that are due, unpaid, and wait for no key.
pub async fn unsettled(shop: &Shop, histories: &Histories) -> Vec<i64> {
    let due = shop
        .database
        .column(&format!("SELECT order_no FROM orders WHERE status = {UNPAID} AND expires_at < now() + interval '1 minute'"))
        .await;
    let due = due.iter().flatten().filter_map(|number| number.parse().ok());
    due.filter(|number| histories.get(number).is_none_or(|history| !history.outlived())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREATED: (i64, Event) = (0, Event::Created { deadline: 1_000, key: Some(1_000) });
    const OUTLIVED: (i64, Event) = (0, Event::Created { deadline: 1_000, key: Some(91_000) });

    fn history(events: &[(i64, Event)], status: i64, deadline: i64, closures: &[i64]) -> History {
        let closures = closures.iter().map(|at| Closure { at: *at, deadline }).collect();
        History { events: events.to_vec(), status: Some(status), deadline, closures, ..History::default() }
    }

    fn judged(history: &History, excuse: &Excuse) -> Vec<Violation> {
        history.violations(7, 10_000, excuse)
    }

    #[test]
    fn each_violation_is_noticed() {
        let (created, outlived) = (CREATED, OUTLIVED);
        let none = Excuse { during: None, orders: Vec::new(), keys: false };
        let judged = |history: History, excuse: &Excuse| judged(&history, excuse);
        assert_eq!(judged(history(&[created], CLOSED, 1_000, &[1_010]), &none), []);
        assert_eq!(judged(history(&[created], CLOSED, 1_000, &[990]), &none), [Violation::EarlyByItsRow]);
        assert_eq!(judged(history(&[outlived], CLOSED, 1_000, &[1_010]), &none), [Violation::EarlyByItsKey]);
        assert_eq!(judged(history(&[outlived], UNPAID, 1_000, &[]), &none), []);
        assert_eq!(judged(history(&[created, (500, Event::Paid)], PAID, 1_000, &[1_010]), &none), [Violation::ClosedThoughSettled]);
        assert_eq!(judged(history(&[created], CLOSED, 1_000, &[1_010, 1_020]), &none), [Violation::Twice]);
        assert_eq!(judged(history(&[created], UNPAID, 1_000, &[]), &none), [Violation::Lost]);
        assert_eq!(judged(history(&[created], CLOSED, 1_000, &[]), &none), [Violation::Lost], "closed without its statements");
        let late = history(&[created], CLOSED, 1_000, &[3_000]);
        assert_eq!(judged(late.clone(), &none), [Violation::Late]);
        assert_eq!(judged(late.clone(), &Excuse { during: Some(900..=1_100), ..none.clone() }), []);
        assert_eq!(judged(late, &Excuse { orders: vec![7], ..none }), []);
    }

    #[test]
    fn each_violation_of_an_order_that_is_opened_again_is_noticed() {
        let (calm, reopened) = (Excuse::any_lateness(false), (2_000, Event::Reopened { deadline: 4_000 }));
        let closed = |at: i64, deadline: i64| Closure { at, deadline };
        let again = |closures: &[Closure], status: i64| {
            let events = vec![CREATED, (1_005, Event::Closed), reopened, (4_010, Event::Closed)];
            History { events, closures: closures.to_vec(), status: Some(status), deadline: 4_000, ..History::default() }
        };
        assert_eq!(judged(&again(&[closed(1_005, 1_000), closed(4_010, 4_000)], CLOSED), &calm), []);
        assert_eq!(judged(&again(&[closed(1_005, 1_000), closed(3_990, 4_000)], CLOSED), &calm), [Violation::EarlyByItsRow]);
        assert_eq!(judged(&again(&[closed(1_005, 1_000)], CLOSED), &calm), [Violation::NotWhole]);
        let thrice = again(&[closed(1_005, 1_000), closed(4_010, 4_000), closed(4_020, 4_000)], CLOSED);
        assert_eq!(judged(&thrice, &calm), [Violation::Twice, Violation::NotWhole]);
        let mut paid = again(&[closed(1_005, 1_000)], PAID);
        paid.events.pop();
        paid.add(3_000, Event::PaidAtProvider);
        paid.add(3_010, Event::Paid);
        assert_eq!(judged(&paid, &calm), [], "closed before it was paid, and opened again in between");
        paid.add(3_015, Event::Closed);
        paid.closures.push(closed(4_010, 4_000));
        assert_eq!(judged(&paid, &calm), [Violation::ClosedThoughSettled, Violation::ClosedThoughPaidAtProvider]);
    }

    #[test]
    fn whoever_paid_at_the_provider_is_not_closed_and_not_lost() {
        let calm = Excuse::any_lateness(false);
        let paid = (990, Event::PaidAtProvider);
        assert_eq!(judged(&history(&[CREATED, paid], UNPAID, 1_000, &[]), &calm), [], "its callback is lost");
        assert_eq!(judged(&history(&[CREATED, paid], CLOSED, 1_000, &[1_010]), &calm), [Violation::ClosedThoughPaidAtProvider]);
        let after = (1_020, Event::PaidAtProvider);
        let unasked = history(&[CREATED, after], CLOSED, 1_000, &[1_010]);
        assert_eq!(judged(&unasked, &calm), [Violation::ClosedThoughPaidAtProvider], "its session was still open");
    }

    #[test]
    fn keys_count_from_when_redis_has_confirmed_them() {
        let calm = Excuse::any_lateness(false);
        let key = |sure: bool| (10, Event::Key { expires: 91_000, sure });
        let closed = |sure: bool| history(&[(0, Event::Created { deadline: 1_000, key: None }), key(sure)], CLOSED, 1_000, &[1_010]);
        assert_eq!(judged(&closed(true), &calm), [Violation::EarlyByItsKey]);
        assert_eq!(judged(&closed(true), &Excuse::any_lateness(true)), []);
        assert_eq!(judged(&closed(false), &calm), []);
        let open = history(&[(0, Event::Created { deadline: 1_000, key: None }), key(false)], UNPAID, 1_000, &[]);
        assert_eq!(judged(&open, &calm), [], "it may wait for a key that may be there");
    }

    #[test]
    fn each_violation_of_what_is_told_is_noticed() {
        let calm = Excuse::any_lateness(false);
        let closure = |at: i64, deadline: i64| Closure { at, deadline };
        let record = |id: &str, closure: Closure| Record { id: id.into(), closure };
        let told = |at: i64, id: &str, taken: bool| Told { at, id: id.into(), taken };
        let (first, second) = (closure(1_010, 1_000), closure(4_010, 4_000));
        let events = vec![CREATED, (2_000, Event::Reopened { deadline: 4_000 })];
        let whole = History {
            events,
            status: Some(CLOSED),
            deadline: 4_000,
            closures: vec![first, second],
            records: Some(vec![record("a", first), record("b", second)]),
            told: vec![told(1_020, "a", false), told(1_030, "a", true), told(4_020, "b", true), told(4_030, "a", true)],
        };
        assert_eq!(judged(&whole, &calm), [], "at least once");
        let lacks = History { records: Some(vec![record("a", first)]), told: whole.told[..2].to_vec(), ..whole.clone() };
        assert_eq!(judged(&lacks, &calm), [Violation::WrongEvents]);
        let twice = vec![record("a", first), record("b", second), record("c", second)];
        let mut all = whole.told.clone();
        all.push(told(4_040, "c", true));
        assert_eq!(judged(&History { records: Some(twice), told: all, ..whole.clone() }, &calm), [Violation::WrongEvents]);
        let untold = History { told: whole.told[..2].to_vec(), ..whole.clone() };
        assert_eq!(judged(&untold, &calm), [Violation::Untold]);
        let refused = vec![told(1_020, "a", false), told(4_020, "b", true)];
        assert_eq!(judged(&History { told: refused, ..whole.clone() }, &calm), [Violation::Untold]);
        let swapped = vec![told(1_020, "a", false), told(4_020, "b", false), told(4_030, "a", true), told(4_040, "b", true)];
        assert_eq!(judged(&History { told: swapped, ..whole.clone() }, &calm), [Violation::ToldOutOfOrder]);
        let mut more = whole.told.clone();
        more.push(told(5_000, "z", true));
        assert_eq!(judged(&History { told: more, ..whole }, &calm), [Violation::ToldOfNothing]);
    }
}
