//! `order-closer config`, and where its values come from.

use std::collections::BTreeMap;

use order_closer::config::load_or;
use serde_json::Value;

use super::{SECRET, assert_no_secret, wrong_settings::refusal};
use crate::support::{OneShot, Settings, daemon::Finished};

/// What Kubernetes tells every container of the Services `order-closer` and `order-closer-redis`.
const SERVICE_LINKS: [(&str, &str); 10] = [
    ("ORDER_CLOSER_PORT", "tcp://10.0.0.1:6379"),
    ("ORDER_CLOSER_PORT_6379_TCP", "tcp://10.0.0.1:6379"),
    ("ORDER_CLOSER_PORT_6379_TCP_ADDR", "10.0.0.1"),
    ("ORDER_CLOSER_SERVICE_HOST", "10.0.0.1"),
    ("ORDER_CLOSER_SERVICE_PORT_HTTP", "80"),
    ("ORDER_CLOSER_REDIS_SERVICE_HOST", "10.0.0.2"),
    ("ORDER_CLOSER_REDIS_SERVICE_PORT", "6379"),
    ("ORDER_CLOSER_REDIS_PORT", "tcp://10.0.0.2:6379"),
    ("ORDER_CLOSER_REDIS_PORT_6379_TCP", "tcp://10.0.0.2:6379"),
    ("ORDER_CLOSER_REDIS_PORT_6379_TCP_PROTO", "tcp"),
];

/// Each setting's value and source, from `config --json`.
pub(super) fn shown(finished: &Finished) -> BTreeMap<String, (String, String)> {
    let text = |setting: &Value, field: &str| setting[field].as_str().unwrap_or_else(|| panic!("no {field}: {setting}")).to_owned();
    let settings = finished.json();
    let settings = settings.as_array().expect("an array");
    settings.iter().map(|setting| (text(setting, "key"), (text(setting, "value"), text(setting, "source")))).collect()
}

#[tokio::test]
async fn every_setting_has_its_value_and_its_source() {
    let settings =
        Settings::new().set("sweep.every", "5s").set("sweep.page", 50).set("orders.set.closed_by", "'daemon'").set("close.batch_size", 7);
    let one = OneShot::with(&settings, &["config", "--json"])
        .env("ORDER_CLOSER_SWEEP__EVERY", "250ms")
        .env("ORDER_CLOSER_ORDERS__UNPAID", "[0, 1]")
        .env("ORDER_CLOSER_ORDERS__CLOSED", "\"4\"")
        .env("ORDER_CLOSER_ORDERS__DEADLINE", "{ column = \"created_at\" }")
        .env("ORDER_CLOSER_ORDERS__DEADLINE__PLUS", "30m")
        .env("ORDER_CLOSER_REDIS__KEY_PREFIX", "007")
        .env("ORDER_CLOSER_LOG__FORMAT", "json")
        .env("ORDER_CLOSER_REDIS__ENABLE_NOTIFICATIONS", "false");
    let finished = one.run().await.expect_code(0);
    let shown = shown(&finished);
    let file = one.config_file().display().to_string();
    let variable = |name: &str| format!("the environment variable {name}");
    for (key, value, source) in [
        ("sweep.every", "\"250ms\"", variable("ORDER_CLOSER_SWEEP__EVERY")),
        ("sweep.page", "50", file.clone()),
        ("sweep.ahead", "\"2s\"", "the default".into()),
        ("close.batch_size", "7", file.clone()),
        ("close.retry.attempts", "8", "the default".into()),
        ("orders.set.closed_by", "\"'daemon'\"", file),
        ("orders.unpaid", "[0, 1]", variable("ORDER_CLOSER_ORDERS__UNPAID")),
        ("orders.closed", "\"4\"", variable("ORDER_CLOSER_ORDERS__CLOSED")),
        ("orders.deadline.plus", "\"30m\"", variable("ORDER_CLOSER_ORDERS__DEADLINE__PLUS")),
        ("orders.deadline.column", "\"created_at\"", variable("ORDER_CLOSER_ORDERS__DEADLINE")),
        ("redis.key_prefix", "\"007\"", variable("ORDER_CLOSER_REDIS__KEY_PREFIX")),
        ("redis.enable_notifications", "false", variable("ORDER_CLOSER_REDIS__ENABLE_NOTIFICATIONS")),
        ("log.format", "\"json\"", variable("ORDER_CLOSER_LOG__FORMAT")),
        ("database.url", "\"sqlite://order-closer.db\"", "the default".into()),
    ] {
        assert_eq!(shown.get(key), Some(&(value.to_owned(), source)), "{key}");
    }
    // The text says the same, and without its comments it is a configuration.
    let text = one.arguments(&["config"]).run().await.expect_code(0).stdout;
    let keys: Vec<&str> = text.lines().filter_map(|line| line.split_once(" = ")).map(|(key, _)| key).collect();
    assert_eq!(keys, shown.keys().map(String::as_str).collect::<Vec<_>>());
    let table: toml::Table = text.parse().unwrap_or_else(|error| panic!("{error}:\n{text}"));
    assert_eq!(table["sweep"]["every"].as_str(), Some("250ms"));
    assert!(
        text.lines().any(|line| line.starts_with("sweep.every") && line.ends_with("# the environment variable ORDER_CLOSER_SWEEP__EVERY")),
        "{text}"
    );
}

#[tokio::test]
async fn passwords_are_hidden() {
    let settings = Settings::new()
        .set("redis.url", format!("redis://closer:{SECRET}@h:6379/3"))
        .set("database.url", format!("postgres://closer@h/shop?password={SECRET}&sslmode=require"));
    for arguments in [["config"].as_slice(), &["config", "--json"]] {
        let finished = OneShot::with(&settings, arguments).run().await.expect_code(0);
        assert_no_secret(&finished);
        assert!(finished.stdout.contains("redis://closer:***@h:6379/3"), "{finished:#?}");
        let variable = OneShot::with(&settings, arguments).env("ORDER_CLOSER_DATABASE__URL", &format!("mysql://closer:{SECRET}@h/shop"));
        let finished = variable.run().await.expect_code(0);
        assert_no_secret(&finished);
        assert!(finished.stdout.contains("mysql://closer:***@h/shop"), "{finished:#?}");
    }
}

#[tokio::test]
async fn a_number_for_a_text_setting_stays_text() {
    let one = OneShot::new(&["config", "--json"]).env("ORDER_CLOSER_CONFIG", "/dev/null");
    let one = [
        ("REDIS__KEY_PREFIX", "007"),
        ("ORDERS__TABLE", "2024"),
        ("ORDERS__ID", "true"),
        ("ORDERS__SET__CLOSED_BY", "0"),
        ("LOG__LEVEL", "3"),
    ]
    .iter()
    .fold(one, |one, (name, value)| one.env(&format!("ORDER_CLOSER_{name}"), value));
    let shown = shown(&one.run().await.expect_code(0));
    for (key, value) in
        [("redis.key_prefix", "007"), ("orders.table", "2024"), ("orders.id", "true"), ("orders.set.closed_by", "0"), ("log.level", "3")]
    {
        assert_eq!(shown[key].0, format!("{value:?}"), "{key}");
    }
}

#[tokio::test]
async fn the_environment_names_the_file() {
    let one = OneShot::with(&Settings::new().set("sweep.page", 77), &["config", "--json"]);
    let named = OneShot::new(&["config", "--json"]).env("ORDER_CLOSER_CONFIG", &one.config_file().display().to_string());
    assert_eq!(shown(&named.run().await.expect_code(0))["sweep.page"], ("77".into(), one.config_file().display().to_string()));
    // An empty variable names none.
    let empty = OneShot::new(&["config", "--json"]).env("ORDER_CLOSER_CONFIG", "");
    assert_eq!(shown(&empty.run().await.expect_code(0))["sweep.page"].1, "the default");
    // The command line is stronger.
    let both = OneShot::with(&Settings::new().set("sweep.page", 78), &["config", "--json"]).env("ORDER_CLOSER_CONFIG", "/no/such/file");
    assert_eq!(shown(&both.run().await.expect_code(0))["sweep.page"].0, "78");
}

/// A pipe gives what it has once.
#[tokio::test]
async fn the_file_may_be_a_pipe() {
    let settings = Settings::new().set("sweep.page", 77);
    for line in ["order-closer < order-closer.toml", "order-closer < <(cat order-closer.toml)"] {
        let one = OneShot::new(&["--config", "/dev/stdin", "config", "--json"]).in_shell(line);
        settings.write(&one.config_file());
        assert_eq!(shown(&one.run().await.expect_code(0))["sweep.page"], ("77".into(), "/dev/stdin".into()), "{line}");
    }
    let one = OneShot::new(&[]).in_shell("order-closer --config <(echo '[sweep]'; echo 'pages = 5') config");
    let said = one.run().await.expect_code(78).stderr;
    assert!(said.contains("sweep.pages: there is no such setting") && said.contains("(set in /dev/fd/"), "{said}");
}

#[tokio::test]
async fn service_links_are_no_settings() {
    let one = OneShot::new(&["config", "--json"]);
    let one = SERVICE_LINKS.iter().fold(one, |one, (name, value)| one.env(name, value));
    let shown = shown(&one.run().await.expect_code(0));
    assert!(shown.values().all(|(_, source)| source == "the default"), "{shown:#?}");
}

/// A setting of ours has two underscores, and is none of Kubernetes'.
#[tokio::test]
async fn what_only_looks_like_a_service_link_is_an_error() {
    for name in ["ORDER_CLOSER_REDIS__PORT", "ORDER_CLOSER_EVENTS__SERVICE_HOST", "ORDER_CLOSER_REDIS_SERVICE", "ORDER_CLOSER_PORT_6379"] {
        let said = refusal("", &[(name, "10.0.0.1")]).await;
        assert!(said.contains("there is no such setting") && said.contains(name), "{name}: {said}");
    }
}

#[tokio::test]
async fn an_empty_variable_is_not_set() {
    let one = OneShot::with(&Settings::new().set("orders.filter", "deleted = 0").set("sweep.page", 77), &["config", "--json"]);
    let empty = ["ORDERS__FILTER", "SWEEP__PAGE", "REDIS__URL", "REDIS__KEY_PREFIX", "EVENTS__STREAM", "NONSENSE"];
    let one = empty.iter().fold(one, |one, name| one.env(&format!("ORDER_CLOSER_{name}"), ""));
    let shown = shown(&one.run().await.expect_code(0));
    let file = one.config_file().display().to_string();
    assert_eq!(shown["orders.filter"], ("\"deleted = 0\"".into(), file.clone()));
    assert_eq!(shown["sweep.page"], ("77".into(), file));
    assert_eq!(shown["redis.key_prefix"], ("\"order_\"".into(), "the default".into()));
}

/// What can't be read is no setting that was left out.
#[tokio::test]
async fn a_variable_that_is_no_text_is_an_error() {
    let one = OneShot::new(&["config"]).in_shell("ORDER_CLOSER_DATABASE__URL=$'postgres://u:tell-nobody\\xff@h/d' order-closer");
    let finished = one.run().await.expect_code(78);
    assert_no_secret(&finished);
    assert!(finished.stderr.contains("the environment variable ORDER_CLOSER_DATABASE__URL is not UTF-8"), "{finished:#?}");
}

/// In a variable and in the file alike.
#[tokio::test]
async fn none_switches_off_what_is_optional() {
    let optional = [
        ("redis.ca_file", "/no/ca.pem"),
        ("database.time_zone", "+08:00"),
        ("orders.filter", "deleted = 0"),
        ("orders.deadline.plus", "30m"),
        ("orders.deadline.unit", "ms"),
        ("events.stream.key", "orders:closed"),
    ];
    let deadline = Settings::new().set("orders.deadline.column", "created_at");
    let set = optional.iter().fold(deadline.clone(), |settings, (key, value)| settings.set(key, *value));
    let set = set.add("[[events.webhooks]]\nname = 'till'\nurl = 'http://127.0.0.1:1/'\nsecret_files = ['/no/secret']");
    let one = OneShot::with(&set, &["config", "--json"]);
    let before = shown(&one.run().await.expect_code(0));
    let names: Vec<&str> = optional.iter().map(|(key, _)| *key).chain(["events.webhooks"]).collect();
    assert!(names.iter().all(|key| before.contains_key(*key)), "{before:#?}");
    let whole = |key: &str| if key == "events.stream.key" { "events.stream".to_owned() } else { key.to_owned() };
    let variable = |key: &str| format!("ORDER_CLOSER_{}", whole(key).to_uppercase().replace('.', "__"));
    let off = shown(&names.iter().fold(one, |one, key| one.env(&variable(key), "none")).run().await.expect_code(0));
    let in_file = names.iter().fold(deadline, |settings, key| settings.set(&whole(key), "none"));
    let off_in_file = shown(&OneShot::with(&in_file, &["config", "--json"]).run().await.expect_code(0));
    for (off, where_) in [(off, "a variable"), (off_in_file, "the file")] {
        assert!(names.iter().all(|key| !off.contains_key(*key)), "by {where_}: {off:#?}");
    }
    // What must be there can't be switched off.
    let said = refusal("[sweep]\nevery = 'none'", &[]).await;
    assert!(said.contains("sweep.every: \"none\" is not a length of time"), "{said}");
}

/// Defaults alone name no table: an order of somebody else's could be closed.
#[tokio::test]
async fn without_a_word_on_orders_nothing_is_closed() {
    let unavailable = [("ORDER_CLOSER_DATABASE__URL", "postgres://127.0.0.1:1/shop"), ("ORDER_CLOSER_REDIS__URL", "redis://127.0.0.1:1")];
    let one = |arguments: &[&str]| unavailable.iter().fold(OneShot::new(arguments), |one, (name, value)| one.env(name, value));
    for arguments in [["run"].as_slice(), &["reconcile"], &["close", "1001"], &["check"]] {
        let finished = one(arguments).run().await.expect_code(78);
        assert!(finished.stdout.is_empty(), "{finished:#?}");
        assert!(finished.stderr.starts_with("order-closer: no orders table was named"), "{finished:#?}");
        assert!(finished.stderr.contains("/etc/order-closer/order-closer.toml") && finished.stderr.contains("ORDER_CLOSER_ORDERS__TABLE"));
    }
    for arguments in [["reconcile"].as_slice(), &["close", "1001"], &["check"]] {
        one(arguments).env("ORDER_CLOSER_ORDERS__TABLE", "orders").run().await.expect_code(69);
        one(&[&["--config", "/dev/null"], arguments].concat()).run().await.expect_code(69);
    }
    one(&["config"]).run().await.expect_code(0);
}

/// Anything but its absence: it may name the orders that are to be left alone.
#[test]
fn a_default_file_that_cant_be_read_is_an_error() {
    let folder = crate::support::process::folder();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("file"), "").expect("a file can be written");
    std::fs::create_dir(at("folder")).expect("a folder can be made");
    std::fs::write(at("latin1.toml"), b"[orders]\nfilter = \"l\xf6schbar\"").expect("a file can be written");
    std::os::unix::fs::symlink("itself", at("itself")).expect("a link can be made");
    std::os::unix::fs::symlink("nowhere", at("dangling")).expect("a link can be made");
    for unreadable in ["file/order-closer.toml", "folder", "latin1.toml", "itself", "itself/order-closer.toml", "dangling"] {
        let path = at(unreadable);
        let refused = load_or(None, &path).map(drop).expect_err(unreadable);
        let expected = format!("the configuration file {} can't be read: ", path.display());
        assert!(refused.starts_with(&expected) && refused.len() > expected.len(), "{unreadable}: {refused}");
    }
    for missing in ["none.toml", "none/order-closer.toml"] {
        assert!(load_or(None, &at(missing)).is_ok_and(|loaded| loaded.orders_table_is_named().is_err()), "{missing}");
    }
    assert!(load_or(None, &at("file")).is_ok_and(|loaded| loaded.orders_table_is_named().is_ok()));
}

/// The most orders of a batch, when nobody says how many.
#[tokio::test]
async fn the_default_batch_depends_on_the_database_and_the_inbox() {
    let url = |scheme: &str| format!("[database]\nurl = '{scheme}://h/shop'\n");
    for (toml, variable, batch) in [
        (String::new(), None, 5_000),
        (url("sqlite"), None, 5_000),
        (url("postgres"), None, 1_000),
        (url("mysql"), None, 1_000),
        (url("mysql"), Some(("ORDER_CLOSER_DATABASE__URL", "sqlite://orders.db")), 5_000),
        (url("sqlite"), Some(("ORDER_CLOSER_DATABASE__URL", "mariadb://h/shop")), 1_000),
        ("[close]\ninbox = 50".into(), None, 50),
        (url("postgres"), Some(("ORDER_CLOSER_CLOSE__INBOX", "2000")), 1_000),
    ] {
        let one = OneShot::with(&Settings::new().add(&toml), &["config", "--json"]);
        let one = variable.iter().fold(one, |one, (name, value)| one.env(name, value));
        let found = shown(&one.run().await.expect_code(0));
        assert_eq!(found["close.batch_size"], (batch.to_string(), "the default".into()), "{toml} {variable:?}");
    }
    let said = refusal("[close]\ninbox = 0", &[]).await;
    assert_eq!(said, "order-closer: close.inbox is 0, and must be from 1 to 10000000 (set in FILE)\n");
}

#[tokio::test]
async fn who_is_asked_is_set_as_a_table() {
    let ask = |more: &str| format!("[close.ask]\nurl = 'https://pay.internal/secret-path'\n{more}");
    let secrets = "secrets = ['whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3']\n";
    let one = OneShot::with(&Settings::new().add(&ask(secrets)), &["config", "--json"]);
    let finished = one.run().await.expect_code(0);
    assert!(!finished.stdout.contains("secret-path") && !finished.stdout.contains("MDEyMzQ1"), "{finished:#?}");
    let settings = shown(&finished);
    for (key, value) in [("timeout", "\"3s\""), ("ahead", "\"0s\""), ("batch", "100"), ("unanswered", "\"wait\""), ("max_wait", "\"15m\"")]
    {
        assert_eq!(settings[&format!("close.ask.{key}")].0, value);
    }
    assert_eq!(settings["close.ask.url"].0, "\"https://pay.internal/***\"");
    let off = one.env("ORDER_CLOSER_CLOSE__ASK", "none").run().await.expect_code(0);
    assert!(!off.stdout.contains("close.ask"), "{off:#?}");
    for (more, complaint) in [
        ("", "close.ask has no secrets"),
        (&format!("{secrets}ahead = '3s'"), "close.ask.ahead is 3s, and orders are seen no more than sweep.ahead before, 2s"),
        (&format!("{secrets}batch = 0"), "close.ask.batch is 0, and must be from 1 to 1000"),
        (&format!("{secrets}concurrency = 65"), "close.ask.concurrency is 65"),
        (&format!("{secrets}timeout = '0s'"), "close.ask.timeout is 0s"),
        (&format!("{secrets}max_wait = '0s'"), "close.ask.max_wait is 0s"),
        (&format!("{secrets}unanswered = 'perhaps'"), "close.ask.unanswered: has a text, and takes wait or close"),
        (&format!("{secrets}retries = 1"), "there is no such setting"),
        ("secrets = 'whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3'", "close.ask.secrets"),
        ("secret_files = ['whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3']", "close.ask.secret_files"),
    ] {
        let said = refusal(&ask(more), &[]).await;
        assert!(said.contains(complaint) && said.contains("FILE"), "{more}: {said}");
    }
    let said = refusal("[close.ask]\nbatch = 5", &[]).await;
    assert!(said.contains("url is missing"), "{said}");
}
