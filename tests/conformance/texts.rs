//! Deadlines as text, which SQLite holds in whatever spelling somebody has written: read as SQLite reads them, and never
//! earlier.

use std::collections::HashMap;

use order_closer::order::Verdict;
use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

use super::{Database, create_orders, ids, open, overdue, settings, verdict};

/// What SQLite takes for white space.
const BLANKS: [char; 6] = [' ', '\t', '\n', '\u{b}', '\u{c}', '\r'];

/// Spellings that mean a time, and those that nearly do.
fn spellings() -> impl Strategy<Value = String> {
    let date = prop_oneof![
        8 => "20(30|26)-0[1-9]-[0-3][0-9]",
        1 => prop::sample::select(vec!["2030-02-31", "1970-06-01", "0000-00-00", "-2030-01-01", "2030-1-01", "20300101", "12:00", ""]).prop_map(String::from),
    ];
    let separator = prop_oneof![8 => "[ T]", 1 => "[\t\n t]|  |TT| T|"];
    let time = prop_oneof![4 => "(0[0-9]|1[0-9]|2[0-4]):[0-5][0-9]:[0-5][0-9]", 3 => "1[0-9]:[0-5][0-9]", 1 => "9:30|12:60|25:00|"];
    let fraction = prop_oneof![3 => Just(String::new()), 2 => "\\.[0-9]{1,9}", 1 => "\\.|,5"];
    let zone = prop_oneof![
        2 => Just(String::new()),
        4 => "[Zz]|[+-](0[0-9]|1[0-4]):[0-5][0-9]",
        1 => "[+-][0-9]{4}|[+-]8|ZZ|Z[+]08:00| UTC|[+]15:00|[+]08:00:00|[+]08:00Z|−08:00",
    ];
    let blanks = || prop_oneof![3 => Just(String::new()), 2 => "[ \t\n\u{b}\u{c}\r]{1,3}", 1 => "\u{0}|Z\u{0}|\u{0}Z| \u{0}x|\u{a0}|x"];
    (blanks(), date, separator, time, fraction, blanks(), zone, blanks()).prop_map(
        |(before, date, separator, time, fraction, between, zone, after)| {
            // Most begin as they should.
            let before = if before.contains(BLANKS) { String::new() } else { before };
            [before, date, separator, time, fraction, between, zone, after].concat()
        },
    )
}

/// Whether a text that SQLite reads has a zone of its own; it reads up to the first NUL.
fn has_zone(text: &str) -> bool {
    let read = text.split('\0').next().unwrap_or_default().trim_end_matches(BLANKS);
    let offset =
        read.len().checked_sub(6).and_then(|at| read.get(at..)).is_some_and(|end| end.starts_with(['+', '-']) && end.contains(':'));
    read.ends_with(['Z', 'z']) || (read.len() > 16 && offset)
}

fn literal(text: &str) -> String {
    text.split('\0').map(|part| format!("'{}'", part.replace('\'', "''"))).collect::<Vec<_>>().join(" || char(0) || ")
}

pub async fn deadlines_in_any_spelling(database: Database) {
    create_orders(&database, "bigint", "integer", "text").await;
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let texts: Vec<String> = (0..4_000).map(|_| spellings().new_tree(&mut runner).expect("a spelling").current()).collect();
    let rows: Vec<String> = (1..).zip(&texts).map(|(id, text): (i64, _)| format!("({id}, 0, {})", literal(text))).collect();
    database.execute(&format!("INSERT INTO orders (order_no, status, expires_at) VALUES {}", rows.join(", "))).await;
    let read: HashMap<String, i64> = database
        .rows("SELECT order_no, CAST(round(unixepoch(expires_at, 'subsec') * 1000) AS INTEGER) FROM orders")
        .await
        .into_iter()
        .filter_map(|row| Some((row[0].clone()?, row[1].as_ref()?.parse().ok()?)))
        .collect();
    assert!((1_000..3_500).contains(&read.len()), "SQLite reads {} of {}", read.len(), texts.len());
    let numbers: Vec<String> = (1..=texts.len()).map(|id| id.to_string()).collect();
    for (zone, hours_east) in [("+08:00", 8), ("UTC", 0), ("-11:00", -11)] {
        let store = open(&settings(&database).set("database.time_zone", zone)).await;
        let rows = store.look(&ids(&*store, &numbers)).await.expect("they can be read");
        assert_eq!(rows.len(), texts.len());
        let mut understood = 0;
        for row in rows {
            let id = row.id.to_string();
            let text = &texts[id.parse::<usize>().expect("a number") - 1];
            let Some(deadline) = row.deadline else { continue };
            let reading = read.get(&id).unwrap_or_else(|| panic!("{text:?} means nothing to SQLite, and {deadline} to us"));
            let east = if has_zone(text) { 0 } else { hours_east * 3_600_000 };
            let late = deadline / 1_000 - (reading - east);
            assert!((0..=1).contains(&late), "{text:?} is read {late} ms late in {zone}");
            understood += 1;
        }
        assert!(understood > 500, "{understood}");
    }
}

/// White space after a zone of its own does not make it a local time, which would be due hours early.
pub async fn a_zone_with_white_space_after_it(database: Database) {
    create_orders(&database, "bigint", "integer", "text").await;
    let store = open(&settings(&database).set("database.time_zone", "+08:00")).await;
    let mut id = 0;
    for after in ["", " ", "\n", " \t", "\r\n"] {
        for (zone, shift) in [("Z", "+0"), ("+02:00", "+2"), ("-05:00", "-5")] {
            for (minutes, due) in [(-5, true), (5, false), (4 * 60, false)] {
                id += 1;
                let time = format!("strftime('%Y-%m-%dT%H:%M:%S', 'now', '{shift} hours', '{minutes} minutes')");
                database.execute(&format!("INSERT INTO orders VALUES ({id}, 0, {time} || '{zone}{after}', NULL)")).await;
                let verdict = verdict(&*store, &id.to_string()).await;
                assert_eq!(matches!(verdict, Verdict::Close { .. }), due, "{zone:?}{after:?}: {verdict:?}");
            }
        }
    }
    assert_eq!(overdue(&*store).await.len(), id / 3);
}
