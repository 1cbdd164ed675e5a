//! Secrets: wherever they stand in the configuration, no output has one.

use std::sync::LazyLock;

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use order_closer::config::{DatabaseUrl, EventSource, Oldest, RedisUrl, Span, TimeZone, WebhookUrl};
use proptest::prelude::*;

use super::configuration::{keys, load};
use crate::support::{OneShot, Settings};

/// A password, as it stands in a URL and as it is meant. Its beginning occurs in nothing else, and is longer than the
/// random part of a temporary folder's name.
fn passwords() -> impl Strategy<Value = (String, String)> {
    proptest::collection::vec(
        prop_oneof!["[a-zA-Z0-9]", Just("@".into()), Just(":".into()), Just("/".into()), Just("%".into()), Just("ü".into())],
        4..12,
    )
    .prop_map(|parts| {
        let plain = format!("Zq9xZq9x{}", parts.concat());
        let encoded = plain
            .bytes()
            .map(|byte| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") })
            .collect();
        (encoded, plain)
    })
}

fn hides(shown: &str, (encoded, plain): &(String, String)) -> Result<(), TestCaseError> {
    prop_assert!(!shown.contains(encoded.as_str()) && !shown.contains(plain.as_str()) && !shown.contains("Zq9xZq9x"), "{}", shown);
    Ok(())
}

/// Where passwords stand in URLs: the setting, what comes before, and what comes after.
const ENCLOSURES: &[(&str, &str, &str)] = &[
    ("database.url", "postgres://closer:", "@h.example/shop"),
    ("database.url", "mysql://closer:", "@h.example:3306/shop?ssl-mode=disabled"),
    ("database.url", "mariadb://:", "@h.example"),
    ("database.url", "postgres://closer@h.example/shop?password=", "&sslmode=require"),
    ("redis.url", "redis://closer:", "@h.example:6379/0"),
    ("redis.url", "rediss://:", "@h.example"),
    ("redis.url", "redis://", "@h.example"),
    ("redis.url", "redis-cluster://closer:", "@h1.example:7000,h2.example"),
    ("redis.url", "rediss-sentinel://:x@h1.example,h2.example?sentinelServiceName=shop&sentinelPassword=", ""),
    ("redis.url", "redis+unix:///run/redis.sock?db=0&user=closer&password=", ""),
    ("events.webhooks", "https://closer:", "@h.example/hook"),
    ("events.webhooks", "https://h.example/hook/", "?token=x"),
];

/// Words and numbers that stand in nothing else, with special characters between them.
fn careless_passwords() -> impl Strategy<Value = String> {
    let word = prop_oneof![Just("Zq9xZq9x".to_owned()), Just("47913".to_owned()), "[a-z]{0,2}"];
    let special =
        proptest::sample::select(vec!["/", "?", "#", "@", ":", "%", "&", "=", ";", "+", "\\", "[", "]", " ", "%2F", "%40", "//", "ü", "_"]);
    proptest::collection::vec((word, special), 1..4)
        .prop_map(|parts| parts.into_iter().map(|(word, special)| format!("{word}{special}")).collect::<String>() + "47913Zq9x")
}

/// A configuration with this webhook.
fn webhook(url: &str) -> Settings {
    let webhook = toml::Table::from_iter([
        ("name".to_owned(), "till".into()),
        ("url".to_owned(), url.into()),
        ("secrets".to_owned(), vec![format!("whsec_{}", "QUJD".repeat(10))].into()),
    ]);
    Settings::new().set("events.webhooks", vec![toml::Value::from(webhook)])
}

/// A text with secrets in it, and what must not be seen of it.
#[derive(Debug, Clone)]
struct Planted {
    text: String,
    needles: Vec<String>,
}

/// Webhooks' secrets, and URLs with passwords and tokens.
fn planted() -> impl Strategy<Value = Planted> {
    let signing = "[a-zA-Z0-9]{24,40}".prop_map(|plain| {
        let plain = format!("Zq9xZq9x{plain}");
        let encoded = BASE64.encode(&plain);
        Planted {
            text: format!("whsec_{encoded}"),
            needles: vec![plain, encoded.trim_end_matches('=').to_owned(), encoded[..12].to_owned()],
        }
    });
    let urls = [
        "postgres://closer:PASSWORD@127.0.0.1:1/shop",
        "postgres://closer@127.0.0.1:1/shop?sslpassword=PASSWORD",
        "postgres://closer@127.0.0.1:1/shop?password=PASSWORD&sslmode=require",
        "postgres://closer@127.0.0.1:1/shop?options=PASSWORD",
        "postgres://closer@127.0.0.1:1/shop?sslmode=PASSWORD",
        "mysql://closer:PASSWORD@127.0.0.1:1/shop",
        "mysql://closer@127.0.0.1:1/shop?ssl-key=PASSWORD&token=PASSWORD",
        "sqlite://closer:PASSWORD@127.0.0.1/shop",
        "sqlite://shop.db?key=PASSWORD",
        "redis://closer:PASSWORD@127.0.0.1:1/0",
        "redis://127.0.0.1:1/PASSWORD",
        "redis+unix:///no/redis.sock?password=PASSWORD",
        "https://closer:PASSWORD@127.0.0.1:1/hook",
        "https://127.0.0.1:1/hook/PASSWORD?token=PASSWORD",
    ];
    let urls = (passwords(), proptest::sample::select(urls.to_vec())).prop_map(|((encoded, plain), url)| Planted {
        text: url.replace("PASSWORD", &encoded),
        needles: vec![encoded, plain, "Zq9xZq9x".into()],
    });
    prop_oneof![signing, urls]
}

impl Planted {
    fn is_hidden_in(&self, shown: &str) -> Result<(), TestCaseError> {
        for needle in &self.needles {
            prop_assert!(!shown.contains(needle.as_str()), "of {:?} is shown: {}", self.text, shown);
        }
        Ok(())
    }
}

/// Where somebody may put one: each setting, the tables around them, what a webhook has, and what there is not.
static PLACES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let more = [
        "redis",
        "redis.ca_file",
        "redis.password",
        "database",
        "database.time_zone",
        "database.password",
        "orders",
        "orders.filter",
        "orders.deadline",
        "orders.set",
        "close",
        "close.retry",
        "sweep",
        "events",
        "events.webhooks",
        "events.webhook",
        "timers",
        "timers.webhooks",
        "timers.stream",
        "timers.stream.key",
        "timers.intake",
        "timers.secrets",
        "close.ask",
        "close.ask.url",
        "close.ask.url_file",
        "close.ask.secrets",
        "close.ask.secret_files",
        "close.ask.token",
        "hints",
        "databases",
        "databases.ds",
        "databases.ds_file",
        "databases.time_zone",
        "databases.password",
        "events.stream",
        "events.stream.key",
        "events.stream.max_len",
        "events.secrets",
        "events.traceparent",
        "http",
        "http.token",
        "http.token_file",
        "log",
        "rules",
        "password",
    ];
    keys().into_iter().chain(more.map(str::to_owned)).collect()
});

/// The tables that have a URL and secrets, and what stands in one of them.
const WITH_A_URL: [&str; 5] = ["events.webhooks", "timers.webhooks", "close.ask", "hints", "databases"];

/// The settings of a webhook, of whoever is asked, of a door, of a database: one of them has what should not be there.
const IN_A_WEBHOOK: [&str; 13] = [
    "name",
    "url",
    "url_file",
    "secrets",
    "secret_files",
    "ca_file",
    "timeout",
    "concurrency",
    "token",
    "queue",
    "include",
    "ds_file",
    "time_zone",
];

/// What stands at this place, all right but for one setting.
fn table_with_a_url(place: &str, field: &str, value: toml::Value) -> toml::Value {
    let signed = [("url", "https://127.0.0.1:1/hook".into()), ("secrets", vec![format!("whsec_{}", "QUJD".repeat(10))].into())];
    let right: Vec<(&str, toml::Value)> = match place {
        "close.ask" => signed.into(),
        "hints" => ["name", "from", "queue", "url"].into_iter().zip(["mq", "amqp", "due", "amqp://127.0.0.1:1"].map(Into::into)).collect(),
        "databases" => vec![("ds", "sqlite://shop.db".into())],
        _ => [("name", "till".into())].into_iter().chain(signed).collect(),
    };
    let mut table: toml::Table = right.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    // The one beside the other would be refused before it is looked at.
    if field == "url_file" {
        table.remove("url");
    }
    table.insert(field.into(), value);
    if matches!(place, "close.ask" | "databases") { table.into() } else { toml::Value::Array(vec![table.into()]) }
}

/// A value with this text, in one of the shapes that it may take by mistake at this place.
fn shaped(shape: usize, text: &str, place: &str, field: &str) -> toml::Value {
    let table = |key: &str, value: toml::Value| toml::Value::from(toml::Table::from_iter([(key.to_owned(), value)]));
    match shape {
        0 => text.into(),
        1 => vec![text].into(),
        2 => table("secrets", text.into()),
        3 => toml::Value::Array(vec![table("name", text.into())]),
        4 => table("retry", table("max", vec![text].into())),
        _ => {
            let is_list = (field.starts_with("secret") || field == "include") && shape == 5;
            table_with_a_url(place, field, if is_list { vec![text].into() } else { text.into() })
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_password_is_shown(password in passwords(), other in passwords(), tls in any::<bool>()) {
        let redis = format!("{}://user:{}@127.0.0.1:6379/3", if tls { "rediss" } else { "redis" }, password.0);
        for database in [
            format!("postgres://user:{}@127.0.0.1/db", other.0),
            format!("postgres://127.0.0.1/db?user=u&password={}", other.0),
            format!("mysql://user:{}@127.0.0.1/db?ssl-mode=disabled", other.0),
        ] {
            let settings = Settings::new().set("redis.url", redis.as_str()).set("database.url", database.as_str());
            let loaded = load(&settings.toml()).map_err(|(message, _)| TestCaseError::fail(message))?;
            let config = &loaded.config;
            let listed: Vec<String> = loaded.settings().into_iter().map(|setting| format!("{setting:?} {}", setting.value)).collect();
            let shown = [format!("{config:?} {config:#?}"), config.redis.url.to_string(), config.database.url.to_string(), listed.concat()].concat();
            hides(&shown, &password)?;
            hides(&shown, &other)?;
            prop_assert_eq!(config.database.url.secret(), database.as_str());
            prop_assert_eq!(config.redis.url.database, 3);
        }
    }

    #[test]
    fn no_password_is_shown_in_an_error(password in passwords()) {
        let wrong = [
            ("redis.url", format!("redis://user:{}@127.0.0.1:notaport/3", password.0)),
            ("redis.url", format!("redis://user:{}@127.0.0.1:6379/many", password.0)),
            ("redis.url", format!("redis://:{}@127.0.0.1:6379?timeout=1", password.0)),
            ("redis.url", format!("http://user:{}@127.0.0.1", password.0)),
            ("redis.url", format!("redis+unix://user:{}@host/run/redis.sock", password.0)),
            ("database.url", format!("postgres://user:{}@127.0.0.1:99999/db", password.0)),
            ("database.url", format!("mysql://user:{}@:3306/db", password.0)),
            ("database.url", format!("oracle://user:{}@127.0.0.1/db", password.0)),
            ("database.url", format!("postgres:/user:{}@127.0.0.1/db", password.0)),
        ];
        for (key, url) in wrong {
            let settings = Settings::new().set(key, url.as_str());
            let Err((message, _)) = load(&settings.toml()) else { return Err(TestCaseError::fail(format!("{url} was accepted"))) };
            prop_assert!(message.contains(key), "{}", message);
            hides(&message, &password)?;
        }
    }

    /// Whether or not its special characters are percent-encoded.
    #[test]
    fn no_part_of_a_password_is_shown(password in careless_passwords(), (key, before, after) in proptest::sample::select(ENCLOSURES)) {
        // What stands before a colon is a user.
        prop_assume!(before != "redis://" || !password.contains(':'));
        let url = format!("{before}{password}{after}");
        let settings = if key == "events.webhooks" { webhook(&url) } else { Settings::new().set(key, url.as_str()) };
        let shown = match load(&settings.toml()) {
            Ok(loaded) => format!("{:?} {:?}", loaded.config, loaded.settings()),
            Err((message, file)) => message.replace(&file, ""),
        };
        prop_assert!(!shown.contains("Zq9x") && !shown.contains("47913"), "of {url} is shown: {shown}");
    }

    /// A file that is no TOML, cut off or with something in between.
    #[test]
    fn no_secret_is_shown_of_a_broken_file(planted in planted(), cut in 0..200_usize, between in "[\"'=\\[\\]{}#\n\\\\]{1,3}") {
        let whole = webhook(&planted.text).set("database.url", planted.text.as_str()).toml();
        let at = (0..=cut.min(whole.len())).rev().find(|at| whole.is_char_boundary(*at)).unwrap_or(0);
        for broken in [whole[..at].to_owned(), format!("{}{between}{}", &whole[..at], &whole[at..]), format!("{} = 1\n{0} = 2", planted.text)] {
            let shown = match load(&broken) {
                Ok(loaded) => format!("{loaded:?} {:?}", loaded.settings()),
                Err((message, _)) => message,
            };
            planted.is_hidden_in(&shown)?;
        }
    }
}

/// Pieces of URLs, in any order.
fn pieces_of_urls() -> impl Strategy<Value = String> {
    let piece = proptest::sample::select(vec![
        "postgres",
        "mysql",
        "sqlite",
        "redis",
        "redis+unix",
        "https",
        ":",
        "//",
        "/",
        "@",
        "?",
        "#",
        "&",
        "=",
        "%",
        "%4",
        "%ff",
        "[",
        "]",
        "::1",
        "127.0.0.1",
        "h.example",
        "99999",
        "password",
        "sslmode",
        "db",
        "user",
        "\u{1b}",
        "\n",
        " ",
        "ü",
        "\0",
        "closer",
        "whsec_",
        "none",
    ]);
    proptest::collection::vec(piece, 0..14).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever it is given, no parser panics, and what a URL says of itself has no login and is a URL again, or was none.
    #[test]
    fn no_url_panics(text in prop_oneof![pieces_of_urls(), "\\PC{0,40}"]) {
        let shown = [
            DatabaseUrl::try_from(text.clone()).map(|url| url.to_string()),
            RedisUrl::try_from(text.clone()).map(|url| url.to_string()),
            WebhookUrl::try_from(text.clone()).map(|url| url.to_string()),
        ];
        for shown in shown.into_iter().flatten() {
            let between = shown.split("://").nth(1).and_then(|rest| rest.split_once('@')).map(|(login, _)| login.to_owned());
            let password = between.as_deref().and_then(|login| login.split_once(':')).map(|(_, password)| password);
            prop_assert!(password.is_none_or(|password| password == "***"), "{text:?} is shown as {shown:?}");
        }
        drop((text.parse::<Span>(), TimeZone::try_from(text.clone()), EventSource::try_from(text.clone()), text.parse::<Oldest>()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever stands where in the file, and however it is shaped.
    #[test]
    fn no_secret_is_shown_wherever_it_stands(planted in planted(), shape in 0..7_usize) {
        let with_a_url = WITH_A_URL.map(str::to_owned);
        let places: &[String] = if shape > 4 { &with_a_url } else { &PLACES };
        let fields = if shape > 4 { IN_A_WEBHOOK.as_slice() } else { &["name"] };
        for (place, field) in places.iter().flat_map(|place| fields.iter().map(move |field| (place, field))) {
            let settings = if place.starts_with("orders.deadline.") { Settings::new().set("orders.deadline.column", "x") } else { Settings::new() };
            let shown = match load(&settings.set(place, shaped(shape, &planted.text, place, field)).toml()) {
                Ok(loaded) => format!("{loaded:?} {:?}", loaded.settings()),
                Err((message, _)) => message,
            };
            planted.is_hidden_in(&shown)?;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever stands in which variable, as text, as a value, or as a value that is cut off.
    #[test]
    fn no_command_shows_a_secret_of_a_variable(
        planted in planted(),
        place in proptest::sample::select(PLACES.clone()),
        with_a_url in proptest::sample::select(WITH_A_URL.to_vec()),
        field in proptest::sample::select(IN_A_WEBHOOK.to_vec()),
        shape in 0..9_usize,
        cut in 1..4_usize,
    ) {
        let place = if shape > 4 { with_a_url } else { place.as_str() };
        let mut value = if shape == 0 { planted.text.clone() } else { shaped(shape, &planted.text, place, field).to_string() };
        if shape > 6 {
            value = value.chars().take(value.chars().count() - cut).collect();
        }
        let variable = format!("ORDER_CLOSER_{}", place.to_uppercase().replace('.', "__"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let settings = Settings::new().set("redis.url", "redis://127.0.0.1:1").set("database.url", "sqlite://shop.db");
        for arguments in [["config", "--json"], ["check", "--json"]] {
            let finished = runtime.block_on(OneShot::with(&settings, &arguments).env(&variable, &value).run());
            planted.is_hidden_in(&format!("{} {}", finished.stdout, finished.stderr))?;
        }
    }
}
