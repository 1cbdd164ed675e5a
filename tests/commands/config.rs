//! `order-closer config`, and what wrong settings lead to.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{SECRET, assert_no_secret};
use crate::support::{OneShot, Settings, daemon::Finished};

/// What Kubernetes tells every container of a Service called `order-closer`.
const SERVICE_LINKS: [(&str, &str); 5] = [
    ("ORDER_CLOSER_PORT", "tcp://10.0.0.1:6379"),
    ("ORDER_CLOSER_PORT_6379_TCP", "tcp://10.0.0.1:6379"),
    ("ORDER_CLOSER_PORT_6379_TCP_ADDR", "10.0.0.1"),
    ("ORDER_CLOSER_SERVICE_HOST", "10.0.0.1"),
    ("ORDER_CLOSER_SERVICE_PORT_HTTP", "80"),
];

/// Each setting's value and source, from `config --json`.
fn shown(finished: &Finished) -> BTreeMap<String, (String, String)> {
    let text = |setting: &Value, field: &str| setting[field].as_str().unwrap_or_else(|| panic!("no {field}: {setting}")).to_owned();
    let settings = finished.json();
    let settings = settings.as_array().expect("an array");
    settings.iter().map(|setting| (text(setting, "key"), (text(setting, "value"), text(setting, "source")))).collect()
}

/// Runs `config` with this file and these variables, which are wrong, and returns what it says.
async fn refusal(toml: &str, variables: &[(&str, &str)]) -> String {
    let one = OneShot::with(&Settings::new().add(toml), &["config"]);
    let one = variables.iter().fold(one, |one, (name, value)| one.env(name, value));
    let finished = one.run().await.expect_code(78);
    assert_eq!(finished.stdout, "", "{finished:#?}");
    assert_no_secret(&finished);
    finished.stderr.replace(&one.config_file().display().to_string(), "FILE")
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
async fn unknown_settings_are_refused() {
    let said = refusal("[sweep]\nevry = '5s'", &[]).await;
    assert_eq!(said, "order-closer: sweep.evry: there is no such setting, but every, ahead, page, oldest (set in FILE)\n");
    let said = refusal("[sweeep]\nevery = '5s'", &[]).await;
    assert!(said.contains("sweeep: there is no such setting, but redis, database, ") && said.contains("(set in FILE)"), "{said}");
    let said = refusal("", &[("ORDER_CLOSER_REDIS__URI", "redis://h")]).await;
    assert!(said.contains("redis.uri: there is no such setting, but url, "), "{said}");
    assert!(said.contains("(set in the environment variable ORDER_CLOSER_REDIS__URI)"), "{said}");
    let said = refusal("[close]\nretry = { attempts = 3, inital = '1s' }", &[]).await;
    assert!(said.contains("close.retry.inital: there is no such setting, but attempts, initial, max"), "{said}");
}

/// What is said about each: the key, what it has, what would be right.
#[tokio::test]
async fn wrong_values_are_refused() {
    for (toml, key, texts) in [
        ("[sweep]\nevery = 5", "sweep.every", ["the number 5", "a length of time with its unit, such as \"5s\""]),
        ("[sweep]\nevery = 'soon'", "sweep.every", ["\"soon\"", "a length of time such as \"30s\""]),
        ("[sweep]\nevery = '0s'", "sweep.every", ["is 0s", "longer"]),
        ("[sweep]\npage = 5", "sweep.page", ["is 5", "from 10 to 100000"]),
        ("[close]\nbatch_size = 'lots'", "close.batch_size", ["\"lots\"", "a whole number"]),
        ("[close]\nbatch_size = -1", "close.batch_size", ["-1", "a whole number"]),
        ("[close]\nsql = 'DELETE FROM t WHERE o IN (:ids)'", "close.sql", ["DELETE FROM t", "a list"]),
        ("[close]\nbatch_size = 100\ninbox = 50", "close.inbox", ["is 50", "from 100 to"]),
        ("[orders]\nunpaid = []", "orders.unpaid", ["at least one status", ""]),
        ("[orders]\nunpaid = [1.5]", "orders.unpaid", ["whole numbers or strings", "[0, 1]"]),
        ("[orders]\nclosed = 0", "orders.closed", ["is 0", "orders.unpaid"]),
        ("[orders]\nclosed = \"it's\"", "orders.closed", ["it's", "quotes"]),
        ("[orders]\ntable = 'a.b.c'", "orders.table", ["\"a.b.c\"", "such as orders, shop.orders"]),
        ("[orders]\ntable = 5", "orders.table", ["the number 5", "a text in quotes"]),
        ("[orders]\ndeadline = 'expires_at'", "orders.deadline", ["\"expires_at\"", "a table"]),
        ("[orders]\ndeadline = { column = 'c', unit = 'us' }", "orders.deadline.unit", ["\"us\"", "s or ms"]),
        ("[orders]\ndeadline = { column = 'c', plus = 30 }", "orders.deadline.plus", ["the number 30", "with its unit"]),
        ("[orders]\nset = { status = '5' }", "orders.set", ["status column", "orders.closed"]),
        ("[orders]\nset = { Status = '5' }", "orders.set", ["status column", "orders.closed"]),
        ("[orders]\nset = { '\"STATUS\"' = '5' }", "orders.set", ["status column", "orders.closed"]),
        ("[orders]\nstatus = 'State'\nset = { state = '5' }", "orders.set", ["sets State", "status column"]),
        ("[orders]\nset = { Order_No = '0' }", "orders.set", ["sets order_no", "id column"]),
        ("[close]\nsql = [{ sql = 'WITH a AS (SELECT 1) SELECT * FROM a', rows = 1 }]", "close.sql", ["SELECT", "leave rows out"]),
        ("[close]\nsql = [{ sql = '/* x */ SELECT 1 WHERE 1 IN (:ids)', rows = 1 }]", "close.sql", ["SELECT", "leave rows out"]),
        ("[redis]\nenable_notifications = 'yes'", "redis.enable_notifications", ["\"yes\"", "true or false"]),
        ("[redis]\nlisten = 'some'", "redis.listen", ["\"some\"", "all or own"]),
        ("[redis]\nkey_prefix = ''", "redis.key_prefix", ["is empty", "every expired key"]),
        ("[redis]\nurl = 'redis://h/300'", "redis.url", ["\"300\"", "from 0 to 255"]),
        ("[database]\ntime_zone = 'UTC+8'", "database.time_zone", ["\"UTC+8\"", "\"+08:00\""]),
        ("[log]\nformat = 'xml'", "log.format", ["\"xml\"", "text or json"]),
        ("[log]\nlevel = 'order_closer=shout'", "log.level", ["\"order_closer=shout\"", "\"info\""]),
        ("[log]\nlevel = 'inof'", "log.level", ["\"inof\"", "\"info\""]),
        ("[log]\nlevel = 'order_closer=debug,inof'", "log.level", ["debug,inof\"", "\"info\""]),
        ("[database]\nurl = 'postgres://h/shop?sslmod=require'", "database.url", ["parameter", "sslmode"]),
        ("[redis]\nurl = 'redis://closer@h'", "redis.url", ["a user and no password", "redis://:password@host"]),
    ] {
        let said = refusal(toml, &[]).await;
        assert!(said.starts_with(&format!("order-closer: {key}")), "{toml}: {said}");
        assert!(said.ends_with("(set in FILE)\n"), "{toml}: {said}");
        assert!(texts.iter().all(|text| said.contains(text)), "{toml}: {texts:?} expected: {said}");
    }
}

#[tokio::test]
async fn wrong_variables_are_named() {
    for (name, value, key, text) in [
        ("ORDER_CLOSER_SWEEP__EVERY", "5", "sweep.every", "with its unit"),
        ("ORDER_CLOSER_CLOSE__WORKERS", "0", "close.workers is 0", "from 1 to 64"),
        ("ORDER_CLOSER_CLOSE__BATCH_SIZE", "many", "close.batch_size", "a whole number"),
        ("ORDER_CLOSER_ORDERS__CLOSED", "0", "orders.closed is 0", "orders.unpaid"),
        ("ORDER_CLOSER_LOG__LEVEL", "a=b=c", "log.level", "filter"),
    ] {
        let said = refusal("[close]\nworkers = 3", &[(name, value)]).await;
        assert!(said.starts_with(&format!("order-closer: {key}")) && said.contains(text), "{name}: {said}");
        assert!(said.ends_with(&format!("(set in the environment variable {name})\n")), "{name}: {said}");
    }
}

/// Mistakes around a URL don't show its password.
#[tokio::test]
async fn a_wrong_url_keeps_its_secret() {
    let url = format!("postgres://closer:{SECRET}@h:port/shop");
    for (toml, variables) in [
        (format!("[database]\nurl = '{url}'"), None),
        (format!("[database]\nurl = ['{url}']"), None),
        (format!("database = '{url}'"), None),
        (format!("redis = 'redis://:{SECRET}@h'"), None),
        (format!("[redis]\nurl = 'redis://:{SECRET}@h/x'"), None),
        (format!("[redis]\nlisten = 'redis://:{SECRET}@h/x'"), None),
        (format!("[database]\nurl = 'oracle://closer:{SECRET}@h/shop'"), None),
        (format!("[database]\nurl = 'mysql://closer:12/{SECRET}@h/shop'"), None),
        (format!("[database]\nurl = 'mysql://closer:12?{SECRET}@h/shop'"), None),
        (format!("[database]\nurl = 'postgres://h/shop?password=12#{SECRET}'"), None),
        (format!("[database]\nurl = 'postgres://h/shop?password=12&{SECRET}'"), None),
        (format!("[redis]\nurl = 'redis://closer:12/{SECRET}@h'"), None),
        (format!("[redis]\nurl = 'redis://{SECRET}@h'"), None),
        (format!("[redis]\nurl = 'redis+unix:///redis.sock?password=12&{SECRET}'"), None),
        (String::new(), Some(("ORDER_CLOSER_DATABASE", url.as_str()))),
        (String::new(), Some(("ORDER_CLOSER_DATABASE__URL", url.as_str()))),
        (String::new(), Some(("ORDER_CLOSER_DATABASE__TIMEOUT", url.as_str()))),
    ] {
        let said = refusal(&toml, variables.as_slice()).await;
        assert!(said.contains("database") || said.contains("redis"), "{said}");
    }
}

#[tokio::test]
async fn a_file_that_is_no_toml_keeps_its_secret() {
    let one = OneShot::with(&Settings::new(), &["config"]);
    std::fs::write(one.config_file(), format!("[database]\nurl = \"postgres://u:{SECRET}@h/d\" x\n")).expect("a file can be written");
    let finished = one.run().await.expect_code(78);
    assert_no_secret(&finished);
    assert!(finished.stderr.contains("line 2") && finished.stderr.contains(&one.config_file().display().to_string()), "{finished:#?}");
}

#[tokio::test]
async fn a_file_that_is_missing() {
    for arguments in [["--config", "no/such.toml", "config"], ["--config", ".", "config"]] {
        let finished = OneShot::new(&arguments).run().await.expect_code(78);
        let expected = format!("the configuration file {} can't be read", arguments[1]);
        assert!(finished.stderr.contains(&expected), "{finished:#?}");
    }
    let finished = OneShot::new(&["reconcile"]).env("ORDER_CLOSER_CONFIG", "no/such.toml").run().await.expect_code(78);
    assert!(finished.stderr.contains("no/such.toml"), "{finished:#?}");
}
