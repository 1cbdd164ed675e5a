//! What happened to each order, and whether that may be.

use std::{collections::BTreeMap, fmt, ops::RangeInclusive};

use crate::support::{
    Shop,
    shop::{CLOSED, PAID, UNPAID},
};

/// The status of an order that its customer has cancelled.
pub const CANCELLED: i64 = 2;

/// What the order service did to an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Written, with its deadline in milliseconds since 1970, and the moment at which its key expires, if it has one.
    Created { deadline: i64, key: Option<i64> },
    /// Given another deadline, with its key, while it was unpaid.
    Extended { deadline: i64 },
    /// Paid, while it was unpaid.
    Paid,
    /// Cancelled, while it was unpaid.
    Cancelled,
    /// It was paid, cancelled or closed before one of these could be done.
    TooLate,
}

/// What happened to one order, by the service's account and by the database's.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// With their moments, in milliseconds since 1970.
    events: Vec<(i64, Event)>,
    status: Option<i64>,
    deadline: i64,
    closures: Vec<i64>,
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
    /// Closed more than once.
    Twice,
    /// Due, and neither paid, cancelled nor closed.
    Lost,
    /// Closed late, though the fault had nothing to do with it.
    Late,
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

/// What an order that nothing excuses may be late, in milliseconds: a daemon that works takes a few, a loaded machine that runs
/// other tests beside it some more.
const LATE: i64 = 1_500;

/// A key that outlives its deadline by more than this contradicts its row.
const DISPUTED: i64 = 60_000;

impl History {
    /// Adds what the service did.
    pub fn add(&mut self, at: i64, event: Event) {
        self.events.push((at, event));
    }

    fn key(&self) -> Option<i64> {
        self.events.iter().rev().find_map(|(_, event)| match event {
            Event::Created { key, .. } => Some(*key),
            Event::Extended { deadline } => Some(Some(*deadline)),
            Event::Paid | Event::Cancelled | Event::TooLate => None,
        })?
    }

    /// The deadline that the service gave it last.
    fn given(&self) -> i64 {
        let given = self.events.iter().rev().find_map(|(_, event)| match event {
            Event::Created { deadline, .. } | Event::Extended { deadline } => Some(*deadline),
            Event::Paid | Event::Cancelled | Event::TooLate => None,
        });
        given.unwrap_or(self.deadline)
    }

    /// Whether its key contradicts its row.
    fn outlived(&self) -> bool {
        self.key().is_some_and(|key| key - self.given() > DISPUTED)
    }

    fn was_settled(&self) -> bool {
        self.events.iter().any(|(_, event)| matches!(event, Event::Paid | Event::Cancelled))
    }

    fn is_excused(&self, number: i64, excuse: &Excuse) -> bool {
        let touched = |at: i64| excuse.during.as_ref().is_some_and(|during| during.contains(&at));
        excuse.orders.contains(&number) || touched(self.deadline) || self.events.iter().any(|(at, _)| touched(*at))
    }

    /// What must not be in it, `now` being the end.
    fn violations(&self, number: i64, now: i64, excuse: &Excuse) -> Vec<Violation> {
        let mut found = Vec::new();
        let mut must_not = |is: bool, violation| found.extend(is.then_some(violation));
        let disputed = self.outlived() && !excuse.keys;
        let first = self.closures.first().copied();
        must_not(first.is_some_and(|at| at < self.deadline), Violation::EarlyByItsRow);
        must_not(disputed && first.is_some_and(|at| self.key().is_some_and(|key| at < key)), Violation::EarlyByItsKey);
        let closed = first.is_some() || self.status == Some(CLOSED);
        must_not(self.was_settled() && closed, Violation::ClosedThoughSettled);
        must_not(self.closures.len() > 1, Violation::Twice);
        let open = self.status == Some(UNPAID) || (self.status == Some(CLOSED) && first.is_none());
        let due = if disputed { self.key().unwrap_or_default() } else { self.deadline };
        must_not(open && due < now, Violation::Lost);
        must_not(first.is_some_and(|at| at - due > LATE) && !self.is_excused(number, excuse), Violation::Late);
        found
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all: Vec<(i64, String)> = self.events.iter().map(|(at, event)| (*at, format!("{event:?}"))).collect();
        all.extend(self.closures.iter().map(|at| (*at, "closed".to_owned())));
        all.sort();
        let start = all.first().map_or(0, |(at, _)| *at);
        for (at, what) in all {
            writeln!(f, "    {:>8} ms  {what}", at - start)?;
        }
        write!(f, "    its deadline is at {} ms, its status {:?} in the end", self.deadline - start, self.status)
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
        histories.entry(number(&row[0])).or_default().closures.push(number(&row[1]));
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

    fn history(events: &[(i64, Event)], status: i64, deadline: i64, closures: &[i64]) -> History {
        History { events: events.to_vec(), status: Some(status), deadline, closures: closures.to_vec() }
    }

    #[test]
    fn each_violation_is_noticed() {
        let created = (0, Event::Created { deadline: 1_000, key: Some(1_000) });
        let outlived = (0, Event::Created { deadline: 1_000, key: Some(91_000) });
        let none = Excuse { during: None, orders: Vec::new(), keys: false };
        let judged = |history: History, excuse: &Excuse| history.violations(7, 10_000, excuse);
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
}
