//! The configuration: an error names the key and where it was set.

use std::{path::Path, time::Duration};

use order_closer::config::{self, Loaded, Span};
use proptest::prelude::*;

use crate::support::{Settings, process};

/// Loads TOML text from a file; an error comes with that file's name.
pub(super) fn load(toml: &str) -> Result<Loaded, (String, String)> {
    let folder = process::folder();
    let file = folder.path().join("order-closer.toml");
    std::fs::write(&file, toml).expect("a file can be written");
    config::load(Some(&file)).map_err(|message| (message, file.display().to_string()))
}

/// Loading fails, and the message names the key and the file.
#[track_caller]
fn assert_wrong(settings: &Settings, key: &str) -> String {
    let toml = settings.toml();
    match load(&toml) {
        Ok(_) => panic!("accepted:\n{toml}"),
        Err((message, file)) => {
            assert!(message.contains(key) && message.contains(&file), "{key} or {file} is missing in: {message}\n{toml}");
            message
        }
    }
}

/// The keys of all settings; those of a deadline stand in one table.
pub(super) fn keys() -> Vec<String> {
    load("").unwrap_or_else(|(message, _)| panic!("{message}")).settings().into_iter().map(|setting| setting.key).collect()
}

#[test]
fn the_empty_file_is_all_defaults() {
    let keys = keys();
    for key in ["redis.url", "database.url", "orders.table", "orders.unpaid", "close.retry.attempts", "sweep.every", "log.format"] {
        assert!(keys.iter().any(|found| found == key), "{key} is missing in {keys:?}");
    }
    let loaded = load("").unwrap_or_else(|(message, _)| panic!("{message}"));
    assert!(loaded.settings().iter().all(|setting| setting.source == "the default"), "{:#?}", loaded.settings());
}

/// Statuses of bytes are read in either case, and shown as the database is asked for them.
#[test]
fn bytes_of_a_status_have_two_digits_each() {
    let loaded = load("[orders]\nunpaid = ['0x00AB', '0x00ab', 'x00ab', '0xyz']\nclosed = '0XCD'")
        .unwrap_or_else(|(message, _)| panic!("{message}"));
    let shown: Vec<String> = loaded.config.orders.unpaid.get().iter().map(config::Status::text).collect();
    assert_eq!(shown, ["0x00ab", "x00ab", "0xyz"]);
    assert_eq!(loaded.config.orders.closed.text(), "0xcd");
    for (key, value) in [("orders.unpaid", "0xabc"), ("orders.closed", "0xabc")] {
        let message = assert_wrong(&Settings::new().set(key, value), key);
        assert!(message.contains("3 hex digits") && message.contains("even"), "{message}");
    }
    let message = assert_wrong(&Settings::new().set("orders.unpaid", vec!["new", "it's"]), "orders.unpaid");
    assert!(message.contains("quotes"), "{message}");
}

#[test]
fn every_setting_says_where_it_was_set() {
    let settings = Settings::new().set("sweep.every", "3s").set("orders.unpaid", vec![0, 9]);
    let loaded = load(&settings.toml()).unwrap_or_else(|(message, _)| panic!("{message}"));
    for setting in loaded.settings() {
        let from_file = ["sweep.every", "orders.unpaid"].contains(&setting.key.as_str());
        assert_eq!(setting.source.ends_with("order-closer.toml"), from_file, "{setting:?}");
    }
    let every = loaded.settings().into_iter().find(|setting| setting.key == "sweep.every").expect("it is a setting");
    assert_eq!(every.value, "\"3s\"");
}

/// In units that the documentation uses, too: a month of 30.44 days, as others print it, is in no setting.
#[test]
fn lengths_of_time_are_printed_as_they_are_written() {
    for text in ["0s", "1ns", "20us", "500ms", "1s 500ms", "1m", "1h 30m", "30d", "90d", "365d", "36500d"] {
        assert_eq!(text.parse::<Span>().map(|span| span.to_string()).as_deref(), Ok(text));
    }
}

proptest! {
    #[test]
    fn a_length_of_time_is_read_as_it_is_printed(nanos in 0..3_000_000_000_000_000_000_u64) {
        let span = Span::from(Duration::from_nanos(nanos));
        prop_assert_eq!(span.to_string().parse::<Span>(), Ok(span));
    }
}

#[test]
fn a_missing_file_and_a_broken_one_are_errors() {
    let missing = config::load(Some(Path::new("/nonexistent/order-closer.toml"))).map(drop);
    assert!(missing.is_err_and(|message| message.contains("/nonexistent/order-closer.toml")));
    let (message, _) = load("[redis\nurl = 1").map(drop).expect_err("this is no TOML");
    assert!(message.contains("expected") || message.contains("TOML"), "{message}");
}

#[test]
fn a_misspelt_key_is_an_error() {
    for key in keys() {
        // A deadline has a required key; without it that one would be reported.
        let settings =
            if key.starts_with("orders.deadline.") { Settings::new().set("orders.deadline.column", "x") } else { Settings::new() };
        // Whatever stands below these is the user's.
        if key.starts_with("orders.set") {
            continue;
        }
        let misspelt = format!("{key}z");
        let last = misspelt.rsplit('.').next().unwrap_or_default();
        assert_wrong(&settings.set(&misspelt, 1), last);
    }
    assert_wrong(&Settings::new().set("rediss.url", "redis://127.0.0.1"), "rediss");
    assert_wrong(&Settings::new().set("verbose", true), "verbose");
}

#[test]
fn a_value_of_a_senseless_type_is_an_error() {
    for key in keys() {
        let senseless: toml::Value = toml::Value::Array(vec![toml::Value::Array(vec![])]);
        let settings =
            if key.starts_with("orders.deadline.") { Settings::new().set("orders.deadline.column", "x") } else { Settings::new() };
        assert_wrong(&settings.set(&key, senseless), &key);
    }
}

#[test]
fn a_senseless_value_is_an_error() {
    let cases: &[(&str, &[&str])] = &[
        (
            "redis.url",
            &[
                "",
                "127.0.0.1:6379",
                "http://127.0.0.1",
                "redis://",
                "redis://h/abc",
                "redis://h/256",
                "redis://h?x=1",
                "redis+unix://h/s",
                "redis://h:x",
                "redis://h1,h2",
                "redis-cluster://",
                "redis-cluster://h1,",
                "redis-cluster://h1,h2:x",
                "redis-cluster://h1,h2/x",
                "redis-cluster://h1?x=1",
                "redis-sentinel://h1,h2",
                "redis-sentinel://h?sentinelServiceName=",
                "redis-sentinel://h?sentinelServiceName=a&sentinelUsername=b",
                "redis-clusters://h",
            ],
        ),
        ("redis.key_prefix", &[""]),
        ("redis.listen", &["", "some", "ALL"]),
        ("database.url", &["", "orders.db", "oracle://h/db", "mysql://h:99999/db"]),
        ("database.time_zone", &["", "8", "+8", "+8:00", "+08:0", "+15:00", "+08:60", "UTC+8", "GMT-3", "Asia/Shang hai", "x';--"]),
        ("database.timeout", &["", "5", "-5s", "0s", "5 apples"]),
        ("orders.table", &["", ".", "a.", "a.b.c", "a;b", "\"a", "\"a\"b", "it's", "a\nb"]),
        ("orders.id", &["", "a.b", "a;b", "`a"]),
        ("orders.status", &["", "a.b"]),
        ("orders.unpaid", &["", "it's", "a\"b", "a\\b", "a\nb"]),
        ("orders.closed", &["", "it's"]),
        ("close.retry.initial", &["0s", "soon"]),
        ("close.retry.max", &["", "soon"]),
        ("sweep.every", &["0s", "1", "often"]),
        ("sweep.ahead", &["", "2"]),
        ("shutdown.timeout", &["0s", "10"]),
        ("log.format", &["", "xml", "JSON"]),
        ("events.source", &["", "a b", "https://u:p@h/", "https://h/?token=1", "ü", "%zz", "100%", "a\"b", "http://[::1/", "a\nb"]),
        ("events.traceparent", &["", "a.b", "a;b"]),
        ("log.summary", &["0s"]),
    ];
    for (key, values) in cases {
        for value in *values {
            assert_wrong(&Settings::new().set(key, *value), key);
        }
    }
    let numbers: &[(&str, &[i64])] = &[
        ("close.batch_size", &[0, -1, 5_001]),
        ("close.workers", &[0, -1, 65]),
        ("close.inbox", &[0, 10_000_001]),
        ("close.retry.attempts", &[0, 1_001, -1]),
        ("sweep.page", &[0, 9, 100_001, 1 << 40]),
        ("sweep.every", &[1]),
        ("redis.key_prefix", &[7]),
        // The default lists 0 as unpaid.
        ("orders.closed", &[0]),
    ];
    for (key, values) in numbers {
        for value in *values {
            assert_wrong(&Settings::new().set(key, *value), key);
        }
    }
    assert_wrong(&Settings::new().set("orders.unpaid", Vec::<i64>::new()), "orders.unpaid");
    for (statement, needle) in [
        ("7", "number 7"),
        ("{ rows = 1 }", "sql"),
        ("{ sql = 'DELETE FROM r WHERE o IN (:ids)', row = 1 }", "row"),
        ("{ sql = 'DELETE FROM r WHERE o IN (:ids)', rows = 0 }", "number 0"),
        ("{ sql = 'DELETE FROM r WHERE o IN (:ids)', rows = -1 }", "number -1"),
        ("{ sql = 'DELETE FROM r WHERE o IN (:ids)', rows = 1.5 }", "number 1.5"),
        ("{ sql = 'DELETE FROM r WHERE o IN (:ids)', rows = '1' }", "\"1\""),
        ("{ sql = 'DELETE FROM r WHERE o IN (:ids)', rows = '> 1' }", "\"> 1\""),
        ("{ sql = 'DELETE FROM r WHERE o IN (:ids)', rows = '>= 0' }", "\">= 0\""),
        ("{ sql = 'DELETE FROM r WHERE o IN (:ids)', rows = '>= one' }", "\">= one\""),
        ("{ sql = ' select o FROM r WHERE o IN (:ids) FOR UPDATE', rows = '>= 1' }", "a SELECT"),
    ] {
        let settings = Settings::new().add(&format!("[close]\nsql = ['DELETE FROM q WHERE o IN (:ids)', {statement}]"));
        let message = assert_wrong(&settings, "close.sql, entry 2");
        assert!(message.contains(needle), "{needle:?} is missing in: {message}");
    }
    assert_wrong(&Settings::new().set("orders.set.status", "5"), "orders.set");
    assert_wrong(&Settings::new().add("[orders.deadline]\ncolumn = 'c'\nunit = 'minutes'"), "orders.deadline.unit");
    assert_wrong(&Settings::new().add("[orders.deadline]\ncolumn = 'c'\nplus = '30'"), "orders.deadline.plus");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_loading_panic(text in "\\PC{0,60}", key in proptest::sample::select(keys())) {
        drop(load(&text));
        let settings = if key.starts_with("orders.deadline.") { Settings::new().set("orders.deadline.column", "x") } else { Settings::new() };
        if let Err((message, _)) = load(&settings.set(&key, text).toml()) {
            prop_assert!(message.contains(&key), "{}", message);
        }
    }
}
