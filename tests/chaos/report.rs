//! What is printed of a run: how late orders were by what went wrong meanwhile, and, of an order whose history must not be, all
//! that is known.

use std::{collections::BTreeMap, fmt::Write};

use super::{nemesis::Happened, scene::Lines, service::Account};
use crate::histories::history::{GIVEN_UP, Histories, History, Violation};

/// For so long before an order's deadline, and for so long after a fault, the one may have to do with the other: it is read ahead,
/// and connections come back.
const BEFORE: i64 = 2_500;
const AFTER: i64 = 1_500;

/// How many orders are shown whole, at the most.
const SHOWN: usize = 5;

/// How late orders of either rule closed, by the kinds of fault that could have to do with it.
pub fn lateness(histories: &Histories, happened: &[Happened]) -> String {
    let mut by_fault = BTreeMap::<&str, [Vec<i64>; 2]>::new();
    for history in histories.values() {
        let rule = usize::from(history.status == Some(GIVEN_UP));
        // What waits for its key is not late.
        for closure in history.closures.iter().filter(|_| !history.outlived()) {
            let near = |fault: &&Happened| fault.began <= closure.at && fault.ended + AFTER >= closure.deadline - BEFORE;
            let mut names: Vec<&str> = happened.iter().filter(near).map(|fault| fault.what.name()).collect();
            names.sort_unstable();
            names.dedup();
            if names.is_empty() {
                names.push("(none)");
            }
            for name in names {
                by_fault.entry(name).or_default()[rule].push(closure.at - closure.deadline);
            }
        }
    }
    let mut table = format!("{:<40} {:>33}   {:>33}\n", "", "card, asked about", "transfer");
    let columns = format!("{:>8} {:>7} {:>8} {:>7}", "closed", "p50", "p99", "max");
    writeln!(table, "{:<40} {columns}   {columns}  (lateness in ms)", "what went wrong meanwhile").expect("a string takes everything");
    for (name, rules) in by_fault {
        let [card, transfer] = rules.map(figures);
        writeln!(table, "{name:<40} {card}   {transfer}").expect("a string takes everything");
    }
    table
}

fn figures(mut lateness: Vec<i64>) -> String {
    lateness.sort_unstable();
    let rank = |percent: usize| lateness.get(lateness.len().saturating_sub(1) * percent / 100).copied().unwrap_or_default();
    format!("{:>8} {:>7} {:>8} {:>7}", lateness.len(), rank(50), rank(99), rank(100))
}

/// Everything that is known of the orders whose histories must not be, the first of them at least.
pub fn violations(
    wrong: &BTreeMap<i64, Vec<Violation>>,
    histories: &Histories,
    account: &Account,
    happened: &[Happened],
    lines: &Lines,
    began: i64,
) -> String {
    let mut kinds = BTreeMap::<String, usize>::new();
    for violation in wrong.values().flatten() {
        *kinds.entry(format!("{violation:?}")).or_default() += 1;
    }
    let mut text = format!("{} of {} histories must not be: {kinds:?}\n", wrong.len(), histories.len());
    let mut shown: Vec<_> = wrong.iter().collect();
    // One of each kind before a second of any.
    shown.sort_by_key(|(_, violations)| kinds[&format!("{:?}", violations[0])]);
    for (number, violations) in shown.into_iter().take(SHOWN) {
        let moments = whole(*number, &histories[number], account, happened, lines);
        text += &told(&format!("order {number}: {violations:?}"), moments, began);
    }
    let others: Vec<&i64> = wrong.keys().collect();
    writeln!(text, "All of them: {:?}", &others[..others.len().min(200)]).expect("a string takes everything");
    text
}

/// Everything that is known of the orders that closed latest.
pub fn latest(histories: &Histories, account: &Account, happened: &[Happened], lines: &Lines, began: i64) -> String {
    let late = |history: &History| history.closures.iter().map(|closure| closure.at - closure.deadline).max();
    let closed = histories.iter().filter(|(_, history)| !history.outlived());
    let mut closed: Vec<_> = closed.filter_map(|(number, history)| Some((late(history)?, *number, history))).collect();
    closed.sort_by_key(|(late, ..)| std::cmp::Reverse(*late));
    let shown = closed.into_iter().take(SHOWN).map(|(late, number, history)| {
        told(&format!("order {number}: {late} ms late"), whole(number, history, account, happened, lines), began)
    });
    shown.collect()
}

fn told(title: &str, moments: Vec<(i64, String)>, began: i64) -> String {
    let lines = moments.into_iter().map(|(at, what)| format!("    {:>10.3} s  {what}\n", (at - began) as f64 / 1e3));
    std::iter::once(format!("{title}\n")).chain(lines).collect()
}

/// What everybody says of one order, in the order of time.
fn whole(number: i64, history: &History, account: &Account, happened: &[Happened], lines: &Lines) -> Vec<(i64, String)> {
    let mut moments = history.moments();
    moments.extend(account.notes.get(&number).into_iter().flatten().map(|(at, note)| (*at, format!("service: {note}"))));
    let (first, last) = (moments.first().map_or(0, |(at, _)| *at), moments.iter().map(|(at, _)| *at).max().unwrap_or(0));
    for fault in happened.iter().filter(|fault| fault.began <= last + 5_000 && fault.ended >= first - 5_000) {
        moments.push((fault.began, format!("fault: {:?}", fault.what)));
        moments.push((fault.ended, format!("mended: {:?}", fault.what)));
    }
    for (place, lines) in lines {
        let about = lines.iter().filter(|(_, line)| mentions(line, number));
        moments.extend(about.map(|(at, line)| (*at, format!("daemon {place}: {line}"))));
    }
    moments.push((history.deadline, format!("the deadline in its row; its status is {:?} in the end", history.status)));
    moments.sort();
    moments
}

/// Whether a line has this number as a word of its own.
fn mentions(line: &str, number: i64) -> bool {
    line.split(|c: char| !c.is_ascii_alphanumeric() && c != '.' && c != ':').any(|word| {
        let digits = word.trim_end_matches(['.', ':']);
        digits.parse() == Ok(number)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        chaos::faults::What,
        histories::history::{Closure, Event},
        support::shop::CLOSED,
    };

    /// Closed though paid, while Redis was being flushed.
    fn run() -> (Histories, Account, Vec<Happened>, Lines) {
        let events = vec![(1_000, Event::Created { deadline: 3_000, key: None }), (2_000, Event::Paid), (3_010, Event::Closed)];
        let history = History {
            events,
            closures: vec![Closure { at: 3_010, deadline: 3_000 }],
            status: Some(CLOSED),
            deadline: 3_000,
            ..History::default()
        };
        let mut account = Account::default();
        account.notes.insert(17, vec![(1_999, "Pay: done after 1 ms".into())]);
        let happened = vec![Happened { what: What::RedisFlushed, began: 2_500, ended: 2_900 }];
        let lines = [r#"{"order":"17"}"#, r#"{"order":"171"}"#].map(|line| (3_005, line.to_owned()));
        (Histories::from([(17, history)]), account, happened, Lines::from([(2, lines.to_vec())]))
    }

    #[test]
    fn a_violation_is_shown_with_everything_that_is_known() {
        let (histories, account, happened, lines) = run();
        let wrong = BTreeMap::from([(17, vec![Violation::ClosedThoughSettled])]);
        let text = violations(&wrong, &histories, &account, &happened, &lines, 1_000);
        for part in ["order 17: [ClosedThoughSettled]", "Paid", "Pay: done", "fault: RedisFlushed", "mended", r#"daemon 2: "#, "2.005 s"] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        assert!(!text.contains("171"), "of another order:\n{text}");
    }

    #[test]
    fn lateness_is_shown_by_what_went_wrong() {
        let (histories, _, happened, _) = run();
        let table = lateness(&histories, &happened);
        assert!(table.lines().any(|line| line.starts_with("Redis flushed") && line.contains(" 10 ")), "{table}");
        assert!(!table.contains("(none)"), "{table}");
        assert!(lateness(&histories, &[]).contains("(none)"));
    }
}
