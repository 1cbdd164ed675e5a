//! `order-closer config --schema`: what the schema lets pass, and what it finds, is what the program itself does.

use std::collections::BTreeSet;

use jsonschema::Validator;
use order_closer::config::load;
use serde_json::Value;

use super::files::{files, read, root};
use crate::support::{OneShot, process};

async fn printed() -> Value {
    // The file that is there may be wrong: that is when an editor needs the schema.
    OneShot::new(&["--config", "/nowhere", "config", "--schema"]).run().await.expect_code(0).json()
}

async fn schema() -> Validator {
    jsonschema::validator_for(&printed().await).unwrap_or_else(|error| panic!("no schema: {error}"))
}

/// What is wrong with a file, by the schema.
fn faults(schema: &Validator, toml: &str) -> Vec<String> {
    let table: toml::Table = toml.parse().unwrap_or_else(|error| panic!("{error}:\n{toml}"));
    let value = serde_json::to_value(table).expect("TOML without dates is JSON");
    schema.iter_errors(&value).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

#[tokio::test]
async fn every_shipped_file_fits() {
    let schema = schema().await;
    let folders = ["config", "examples"].into_iter().flat_map(|folder| files(&root().join(folder)));
    let mut count = 0;
    for file in folders.filter(|file| file.extension().is_some_and(|ending| ending == "toml")) {
        assert_eq!(faults(&schema, &read(&file)), [] as [&str; 0], "{}", file.display());
        count += 1;
    }
    assert!(count > 10, "{count}");
}

/// Each of these is taken or refused by the program, and just so by the schema.
#[tokio::test]
async fn it_agrees_with_the_program() {
    let schema = schema().await;
    let folder = process::folder();
    let file = folder.path().join("order-closer.toml");
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let webhook = |more: &str| format!("[[events.webhooks]]\nname = \"a\"\nurl = \"https://h/\"\nsecrets = [\"{secret}\"]\n{more}");
    let ask = |more: &str| format!("[close.ask]\nurl = \"https://h/\"\nsecrets = [\"{secret}\"]\n{more}");
    let rule = |more: &str| format!("[[rules]]\nname = \"one\"\nkey_prefix = \"none\"\n{more}");
    let cases = [
        (String::new(), true),
        ("[sweep]\nevery = \"5s\"\noldest = \"none\"".into(), true),
        ("[sweep]\nevry = \"5s\"".into(), false),
        ("[sweep]\nevery = 5".into(), false),
        ("[sweep]\nevery = \"soon\"".into(), false),
        ("[sweeps]\n".into(), false),
        ("[redis]\nurl = \"redis://h:6379/3\"\nca_file = \"none\"\nlisten = \"own\"".into(), true),
        ("[redis]\nlisten = \"mine\"".into(), false),
        ("[redis]\nkey_prefix = \"none\"\nenable_notifications = \"yes\"".into(), false),
        ("[orders]\nunpaid = 0\nclosed = \"expired\"\nfilter = \"none\"\nset = { a = \"now()\" }".into(), true),
        ("[orders]\nunpaid = [0, \"pending\"]".into(), true),
        ("[orders]\nunpaid = []".into(), false),
        ("[orders]\ndeadline = { column = \"c\", plus = \"30m\", unit = \"none\" }".into(), true),
        ("[orders]\ndeadline = { column = \"c\", unit = \"us\" }".into(), false),
        ("[orders]\ndeadline = { plus = \"30m\" }".into(), true),
        ("[close]\nask = \"none\"\nsql = [\"DELETE FROM a WHERE b IN (:ids)\"]".into(), true),
        ("[close]\nsql = [{ sql = \"DELETE FROM a WHERE b IN (:ids)\", rows = \">= 1\" }]".into(), true),
        ("[close]\nsql = [{ sql = \"DELETE FROM a WHERE b IN (:ids)\", rows = 0 }]".into(), false),
        ("[close]\nsql = [{ statement = \"DELETE FROM a WHERE b IN (:ids)\" }]".into(), false),
        ("[close]\nretry = { attempts = 3, last = \"5m\" }".into(), false),
        ("[close]\nbatch_size = -1".into(), false),
        (ask("unanswered = \"close\"\nmax_wait = \"15m\""), true),
        (ask("unanswered = \"never\""), false),
        (ask("").replace("url = \"https://h/\"", ""), false),
        (webhook("url_file = \"none\""), true),
        (webhook("concurrency = 8"), true),
        (webhook("secret = \"x\""), false),
        ("[events]\nwebhooks = \"none\"\nstream = \"none\"\ntraceparent = \"none\"".into(), true),
        ("[events.stream]\nkey = \"orders:closed\"".into(), true),
        ("[events.stream]\nmax_len = 5".into(), false),
        (rule("include = \"none\"\norders = { filter = \"a = 1\" }"), true),
        (rule("prefix = \"x\""), false),
        ("[[rules]]\nname = \"one\"".into(), false),
        ("[http]\nlisten = \"127.0.0.1:9890\"\nread_only_page = true".into(), true),
    ];
    for (toml, fits) in cases {
        std::fs::write(&file, &toml).expect("a file can be written");
        let taken = load(Some(&file));
        assert_eq!(taken.is_ok(), fits, "the program: {:?}\n{toml}", taken.err());
        let faults = faults(&schema, &toml);
        assert_eq!(faults.is_empty(), fits, "the schema: {faults:?}\n{toml}");
    }
}

/// What the first edition takes, table by table.
const OF_THE_FIRST_EDITION: [(&str, &str); 15] = [
    ("", "redis database orders close sweep events shutdown log"),
    ("redis", "url ca_file key_prefix listen enable_notifications"),
    ("database", "url time_zone timeout"),
    ("orders", "table id status unpaid closed deadline filter set"),
    ("orders.deadline", "column plus unit"),
    ("close", "batch_size workers inbox retry sql"),
    ("close.retry", "attempts initial max"),
    ("close.sql", "sql rows"),
    ("sweep", "every ahead page"),
    ("events", "enabled include keep retry webhooks stream"),
    ("events.retry", "attempts initial max"),
    ("events.stream", "key max_len"),
    ("events.webhooks", "name url secrets secret_files ca_file timeout concurrency"),
    ("shutdown", "timeout"),
    ("log", "format level summary"),
];

/// The dotted names of all settings; one in a list has the list's.
fn settings(schema: &Value, at: &Value, path: &str, found: &mut BTreeSet<String>) {
    let at = at["$ref"].as_str().map_or(at, |reference| schema.pointer(reference.trim_start_matches('#')).expect("it is defined"));
    let several = ["anyOf", "allOf", "oneOf"].into_iter().flat_map(|several| at[several].as_array().into_iter().flatten());
    for inner in several.chain(at.get("items")) {
        settings(schema, inner, path, found);
    }
    for (name, inner) in at["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        settings(schema, inner, &path, found);
        found.insert(path);
    }
}

/// Whoever goes back learns of each setting that has to go.
#[tokio::test]
async fn what_the_first_edition_does_not_know_is_on_the_page_on_upgrading() {
    let page = read(&root().join("docs/upgrading.md"));
    let part = page.split_once("**Going back**").and_then(|(_, rest)| rest.split_once("\n## ")).expect("it is there").0;
    let schema = printed().await;
    let mut all = BTreeSet::new();
    settings(&schema, &schema, "", &mut all);
    assert!(all.len() > 100, "{all:?}");
    let in_table = |(table, names): (&str, &str)| -> Vec<String> {
        names.split(' ').map(|name| format!("{table}.{name}").trim_start_matches('.').to_owned()).collect()
    };
    let old: BTreeSet<String> = OF_THE_FIRST_EDITION.into_iter().flat_map(in_table).collect();
    assert!(old.is_subset(&all), "{:?}", old.difference(&all).collect::<Vec<_>>());
    // By itself, or with the table in which it stands.
    let is_named = |setting: &str| {
        let mut names = setting.match_indices('.').map(|(at, _)| &setting[..at]).chain([setting]);
        names.any(|name| part.contains(&format!("`{name}`")))
    };
    let missing: Vec<&String> = all.difference(&old).filter(|setting| !is_named(setting)).collect();
    assert!(missing.is_empty(), "the page does not name {missing:?}");
}
