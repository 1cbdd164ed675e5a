//! Reading the configuration: default < file < environment. Some defaults depend on the other two.

use std::{
    collections::HashSet,
    fmt,
    path::{Path, PathBuf},
};

use figment::{
    Figment, Metadata, Profile, Provider,
    error::{Actual, Kind},
    providers::{Env, Format, Serialized, Toml},
    util::nest,
    value::{Dict, Map, Value},
};

use crate::config::{Config, DatabaseUrl, Rule, Webhook, explain::explain};

/// The file that is read when none is named and it exists.
pub const DEFAULT_FILE: &str = "/etc/order-closer/order-closer.toml";

const ENV_PREFIX: &str = "ORDER_CLOSER_";

/// Whether a variable with our prefix is meant for us: in Kubernetes a Service named `order-closer` makes
/// `ORDER_CLOSER_PORT_6379_TCP`, `ORDER_CLOSER_SERVICE_HOST` and their like.
fn is_setting(key: &str) -> bool {
    key != "config" && !key.starts_with("port") && !key.starts_with("service_")
}

/// Text settings, and all below `orders.set`: their variables are taken as they are, so that a prefix `007` keeps its zeros.
const TEXT: [&str; 15] = [
    "redis.url",
    "redis.ca_file",
    "redis.key_prefix",
    "database.url",
    "database.time_zone",
    "orders.table",
    "orders.id",
    "orders.status",
    "orders.deadline.column",
    "orders.filter",
    "events.stream.key",
    "http.listen",
    "http.token",
    "http.token_file",
    "log.level",
];

/// The configuration, and where each value came from.
#[derive(Debug)]
pub struct Loaded {
    /// The settings.
    pub config: Config,
    figment: Figment,
}

/// One effective setting, safe to print.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Setting {
    /// The dotted key.
    pub key: String,
    /// The value, as TOML; passwords hidden.
    pub value: String,
    /// Where it was set.
    pub source: String,
}

/// Reads the configuration from a file (the default one if it exists, when none is named) and the
/// environment.
///
/// # Errors
/// Says in one text which key is wrong, what it found, what would be right and where it was set.
pub fn load(file: Option<&Path>) -> Result<Loaded, String> {
    let file = file.map(Path::to_owned).or_else(|| Some(PathBuf::from(DEFAULT_FILE)).filter(|path| path.exists()));
    let mut set = Figment::new();
    if let Some(file) = file {
        set = set.merge(File::read(file)?);
    }
    let set = set.merge(Variables);
    let defaults = Serialized::defaults(defaults_beside(&set));
    let figment = set.join(defaults);
    let config: Config = figment.extract().map_err(|error| describe(&figment, &error))?;
    let loaded = Loaded { config, figment };
    loaded.validate()?;
    Ok(loaded)
}

/// The defaults of what is not set.
fn defaults_beside(set: &Figment) -> Config {
    let mut defaults = Config::default();
    let close = &mut defaults.close;
    // What is set wrongly is reported when all of it is read.
    if let Ok(DatabaseUrl::Postgres(_) | DatabaseUrl::MySql(_)) = set.extract_inner("database.url") {
        close.batch_size = 1_000;
    }
    if let Ok(inbox) = set.extract_inner("close.inbox") {
        close.batch_size = close.batch_size.min(inbox).max(1);
    }
    defaults
}

impl Loaded {
    /// The effective settings in alphabetical order.
    #[must_use]
    pub fn settings(&self) -> Vec<Setting> {
        // What is shown goes through the parsed configuration, which hides passwords; only the
        // source is looked up in the raw values.
        let shown = Figment::from(Serialized::defaults(&self.config));
        let mut settings = Vec::new();
        if let Ok(dict) = shown.extract::<Dict>() {
            self.flatten("", &Value::from(dict), &mut settings);
        }
        settings
    }

    fn flatten(&self, key: &str, value: &Value, settings: &mut Vec<Setting>) {
        if let Value::Dict(_, dict) = value
            && !dict.is_empty()
        {
            for (name, value) in dict {
                let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                self.flatten(&key, value, settings);
            }
        } else {
            settings.push(Setting { key: key.into(), value: toml_text(value), source: source_of(&self.figment, key) });
        }
    }

    /// Checks what no single value can check for itself.
    fn validate(&self) -> Result<(), String> {
        let Config { close, sweep, orders, redis, events, .. } = &self.config;
        let within = |key: &str, value: usize, min: usize, max: usize| {
            if (min..=max).contains(&value) {
                return Ok(());
            }
            Err(self.wrong(key, &format!("is {value}, and must be from {min} to {max}")))
        };
        within("close.batch_size", close.batch_size, 1, 5_000)?;
        within("close.workers", close.workers, 1, 64)?;
        within("close.inbox", close.inbox, close.batch_size, 10_000_000)?;
        within("close.retry.attempts", close.retry.attempts as usize, 1, 1_000)?;
        within("events.retry.attempts", events.retry.attempts as usize, 1, 1_000)?;
        within("sweep.page", sweep.page as usize, 10, 100_000)?;
        for (key, span) in [
            ("sweep.every", sweep.every),
            ("database.timeout", self.config.database.timeout),
            ("shutdown.timeout", self.config.shutdown.timeout),
            ("close.retry.initial", close.retry.initial),
            ("events.keep", events.keep),
            ("events.retry.initial", events.retry.initial),
            ("log.summary", self.config.log.summary),
        ] {
            if span.get().is_zero() {
                return Err(self.wrong(key, "is 0s, and must be longer"));
            }
        }
        self.validate_webhooks()?;
        if let Some(stream) = &events.stream {
            if stream.key.is_empty() {
                return Err(self.wrong("events.stream.key", "is empty; write a key such as \"orders:closed\""));
            }
            if stream.max_len == 0 {
                return Err(self.wrong("events.stream.max_len", "is 0; the stream would hold nothing"));
            }
        }
        if redis.key_prefix.is_empty() {
            return Err(self.wrong("redis.key_prefix", "is empty; every expired key would be taken for an order"));
        }
        if orders.unpaid.get().contains(&orders.closed) {
            return Err(self.wrong("orders.closed", &format!("is {}, which orders.unpaid lists as unpaid", orders.closed.text())));
        }
        let rule = Rule::of(&self.config);
        if rule.sets(&rule.status) {
            return Err(self.wrong("orders.set", &format!("sets {}, the status column, which orders.closed sets already", orders.status)));
        }
        if rule.sets(&rule.id) {
            return Err(self.wrong("orders.set", &format!("sets {}, the id column, by which what follows finds the order", orders.id)));
        }
        Ok(())
    }

    fn validate_webhooks(&self) -> Result<(), String> {
        let mut names = HashSet::new();
        for Webhook { name, secrets, secret_files, timeout, concurrency, .. } in &self.config.events.webhooks {
            let wrong = |what: &str| Err(self.wrong("events.webhooks", &format!("has an entry {name}, whose {what}")));
            if !names.insert(name) {
                return wrong("name another one has, too");
            }
            if secrets.is_empty() && secret_files.is_empty() {
                return wrong("secrets are missing; write secrets = [\"whsec_...\"], or secret_files");
            }
            if !(1..=256).contains(concurrency) {
                return wrong(&format!("concurrency is {concurrency}, and must be from 1 to 256"));
            }
            if timeout.get().is_zero() {
                return wrong("timeout is 0s, and must be longer");
            }
        }
        Ok(())
    }

    /// The error that a setting is wrong, with the place where it was set.
    pub(crate) fn wrong(&self, key: &str, what: &str) -> String {
        format!("{key} {what} (set in {})", source_of(&self.figment, key))
    }
}

fn source_of(figment: &Figment, key: &str) -> String {
    // An array's items and an inline table's keys have the source of what they stand in.
    std::iter::successors(Some(key), |key| key.rsplit_once('.').map(|(parent, _)| parent))
        .find_map(|key| figment.find_metadata(key))
        .map_or_else(|| "the default".into(), |metadata| name_source(metadata, key))
}

fn name_source(metadata: &Metadata, key: &str) -> String {
    match &metadata.source {
        Some(figment::Source::File(path)) => path.display().to_string(),
        _ if metadata.name == Variables::NAME => format!("the environment variable {}", variable_with(key)),
        _ => "the default".into(),
    }
}

/// The variable that has a setting: its own, or that of a table it stands in.
fn variable_with(key: &str) -> String {
    let variable = |key: &str| format!("{ENV_PREFIX}{}", key.replace('.', "__").to_uppercase());
    std::iter::successors(Some(key), |key| key.rsplit_once('.').map(|(parent, _)| parent))
        .map(variable)
        .find(|name| std::env::var_os(name).is_some())
        .unwrap_or_else(|| variable(key))
}

/// A setting's name; the entries of a list are counted from 1, as in every other message.
fn name_setting(path: &[String]) -> String {
    let name = path.iter().fold(String::new(), |name, part| match part.parse::<usize>() {
        Ok(index) => format!("{name}, entry {}", index + 1),
        Err(_) if name.is_empty() => part.clone(),
        Err(_) => format!("{name}{}{part}", if name.contains(", entry") { ", " } else { "." }),
    });
    if name.is_empty() { "the configuration".into() } else { name }
}

fn describe(figment: &Figment, error: &figment::Error) -> String {
    let mut lines: Vec<String> = error
        .clone()
        .into_iter()
        .map(|error| {
            let key = error.path.join(".");
            let place = error.metadata.as_ref().map_or_else(|| source_of(figment, &key), |metadata| name_source(metadata, &key));
            format!("{}: {} (set in {place})", name_setting(&error.path), explain(&without_secret(&key, error.kind)))
        })
        .collect();
    lines.dedup();
    lines.join("\n")
}

/// What stands in the place of a secret is one, even where it should not stand.
fn without_secret(key: &str, mut kind: Kind) -> Kind {
    if let Kind::InvalidType(Actual::Str(text), _) | Kind::InvalidValue(Actual::Str(text), _) = &mut kind
        && key.contains("secret")
    {
        *text = "***".into();
    }
    kind
}

fn toml_text(value: &Value) -> String {
    toml::Value::try_from(value).map_or_else(|_| "?".into(), |value| value.to_string())
}

/// The configuration file, as a source of settings. It is read once, since a pipe has nothing to say a second time.
struct File {
    path: PathBuf,
    text: String,
}

impl File {
    fn read(path: PathBuf) -> Result<Self, String> {
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Self { path, text }),
            Err(error) => Err(format!("the configuration file {} can't be read: {error}", path.display())),
        }
    }
}

impl Provider for File {
    fn metadata(&self) -> Metadata {
        Metadata::from("file", self.path.as_path())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Toml::string(&self.text).data()
    }
}

/// The environment, as a source of settings.
struct Variables;

impl Variables {
    const NAME: &str = "environment";
}

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::NAME)
    }
}

impl Provider for Variables {
    fn metadata(&self) -> Metadata {
        Metadata::named(Self::NAME)
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        let variables = Env::prefixed(ENV_PREFIX).split("__");
        let variables = variables.iter().map(|(key, text)| (key.into_string(), text));
        let mut variables: Vec<(String, String)> = variables.filter(|(key, _)| is_setting(key)).collect();
        // A table comes before those of its keys that have variables of their own.
        variables.sort();
        let mut settings = Dict::new();
        for (key, text) in variables {
            let value: Value = if TEXT.contains(&key.as_str()) || key.starts_with("orders.set.") {
                text.into()
            } else {
                text.parse().unwrap_or_else(|never: std::convert::Infallible| match never {})
            };
            insert(&mut settings, &key, value);
        }
        Ok(Profile::Default.collect(settings))
    }
}

/// Puts a value where its dotted key leads.
fn insert(dict: &mut Dict, key: &str, value: Value) {
    let Some((first, rest)) = key.split_once('.') else {
        dict.insert(key.into(), value);
        return;
    };
    let inner = dict.entry(first.into()).or_insert_with(|| Dict::new().into());
    if let Value::Dict(_, inner) = inner {
        insert(inner, rest, value);
    } else {
        *inner = nest(rest, value);
    }
}
