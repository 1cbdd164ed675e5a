//! Reading the configuration: default < file < environment. Some defaults depend on the other two.

use std::{
    fmt,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use figment::{
    Figment, Metadata, Profile, Provider,
    error::Kind,
    providers::{Format, Serialized, Toml},
    value::{Dict, Map, Value},
};

use super::{
    Close, Config, DatabaseUrl, Databases, RuleName, RuleSettings, explain::explain, lines::line_of, rules, secret, url_files,
    validate::fewest_connections, variables::Variables,
};

/// The file that is read when none is named and it exists.
pub const DEFAULT_FILE: &str = "/etc/order-closer/order-closer.toml";

/// The file that `init` writes where it is run.
pub const INIT_FILE: &str = "order-closer.toml";

/// The configuration, and where each value came from.
pub struct Loaded {
    /// The settings.
    pub config: Config,
    /// All as it was written, with its secrets.
    pub(super) figment: Figment,
    has_file: bool,
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded").field("config", &self.config).finish_non_exhaustive()
    }
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

/// Reads the configuration from a file (the default one, if there is one, when none is named) and the
/// environment.
///
/// # Errors
/// Says in one text which key is wrong, what it found, what would be right and where it was set.
pub fn load(file: Option<&Path>) -> Result<Loaded, String> {
    load_or(file, Path::new(DEFAULT_FILE))
}

/// The same with another default file.
///
/// # Errors
/// As [`load()`] says.
pub fn load_or(file: Option<&Path>, default: &Path) -> Result<Loaded, String> {
    let file = match file {
        Some(file) => Some(File::read(file)?),
        None => File::read_if_there(default)?,
    };
    load_from(file)
}

/// The same of a file that is yet to be written there; without a text, of the environment alone.
///
/// # Errors
/// As [`load()`] says.
pub fn load_text(path: &Path, text: Option<String>) -> Result<Loaded, String> {
    load_from(text.map(|text| File { path: path.to_owned(), text }))
}

fn load_from(file: Option<File>) -> Result<Loaded, String> {
    let has_file = file.is_some();
    let file = file.map_or_else(Figment::new, |file| Figment::from(file));
    let in_file = rules::names_in(&file);
    let set = file.merge(Variables);
    let set = url_files::read(set.clone()).map_err(|(key, what)| wrong(&set, &key, &what))?;
    let names = rules::named(&set, &in_file).map_err(|(key, what)| wrong(&set, &key, &what))?;
    if set.find_value("databases").is_ok() && set.find_value("database").is_ok() {
        let place = source_of(&set, "databases");
        return Err(wrong(&set, "database", &format!("and [databases] (set in {place}) are both there; write all in [databases]")));
    }
    let defaults = Serialized::defaults(defaults_beside(&set, names));
    let figment = set.join(defaults);
    let mut config: Config = figment.extract().map_err(|error| describe(&figment, &error))?;
    config.take_what_databases_have_in_common().map_err(|(key, what)| wrong(&figment, &key, &what))?;
    let loaded = Loaded { config, figment, has_file };
    loaded.validate()?;
    Ok(loaded)
}

/// The defaults of what is not set. What is set wrongly is reported when all of it is read.
fn defaults_beside(set: &Figment, names: Vec<RuleName>) -> Config {
    let several: Databases = set.extract_inner("databases").unwrap_or_default();
    let first = several.each().next().map(|(_, url)| url.clone());
    let url = first.or_else(|| set.extract_inner("database.url").ok());
    let is_server = matches!(url, Some(DatabaseUrl::Postgres(_) | DatabaseUrl::MySql(_)));
    let close_in = |rule: &str| {
        let mut close = Close::default();
        if is_server {
            close.batch_size = 1_000;
        }
        if let Ok(inbox) = set.extract_inner(&format!("{rule}close.inbox")) {
            close.batch_size = close.batch_size.min(inbox).max(1);
        }
        close
    };
    let mut defaults = Config { close: close_in(""), ..Config::default() };
    let places: Vec<String> = names.iter().map(|name| format!("{}.{name}.", rules::RULES)).collect();
    let of_rule = |(name, place): (RuleName, &String)| (name, RuleSettings { close: close_in(place), ..RuleSettings::default() });
    defaults.rules = names.into_iter().zip(&places).map(of_rule).collect();
    // Those of the lane `alone`, of what takes long, and of requests come on top of a rule's workers.
    let workers =
        places.iter().map(String::as_str).chain([""]).filter_map(|place| set.extract_inner(&format!("{place}close.workers")).ok());
    let wanted = workers.map(|workers: usize| workers.saturating_add(8)).max().unwrap_or_default();
    let timers = usize::from(matches!(set.extract_inner("timers.enabled"), Ok(true)));
    let rules = places.len().max(1) + timers;
    defaults.database.connections = defaults.database.connections.max(wanted).max(fewest_connections(rules));
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
        if !self.config.rules.is_empty() {
            settings.retain(|setting| !rules::is_of_the_only_one(&setting.key));
        }
        if !self.config.databases.are_none() {
            settings.retain(|setting| !setting.key.starts_with("database."));
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

    /// Refuses to look for orders where nobody has said. A file may leave everything at its default.
    ///
    /// # Errors
    /// Says how to name the table.
    pub fn orders_table_is_named(&self) -> Result<(), String> {
        if self.has_file || Variables::name_any_of(&["orders", "rules"]) {
            return Ok(());
        }
        let here = if Path::new(INIT_FILE).is_file() {
            format!("; {INIT_FILE} of this folder is read with --config {INIT_FILE}")
        } else {
            String::new()
        };
        Err(format!(
            "no orders table was named: there is neither a configuration file nor a variable ORDER_CLOSER_ORDERS__...; write {DEFAULT_FILE} \
             (--config FILE and ORDER_CLOSER_CONFIG name another), or set ORDER_CLOSER_ORDERS__TABLE{here}"
        ))
    }

    /// A webhook's secret stands among its secrets, and a URL where one is wanted. Elsewhere they would be shown.
    pub(super) fn refuse_misplaced_secrets(&self) -> Result<(), String> {
        let all = self.figment.extract().map_err(|error| describe(&self.figment, &error))?;
        let Some((path, what)) = find(&all, &mut Vec::new(), &secret::misplaced) else { return Ok(()) };
        let name = secret::without_webhook_secrets(name_setting(&path));
        Err(format!("{name} has {what}, which does not belong there (set in {})", place_of(&self.figment, &path)))
    }

    /// The error that a setting is wrong, with the place where it was set.
    pub(crate) fn wrong(&self, key: &str, what: &str) -> String {
        wrong(&self.figment, key, what)
    }
}

fn wrong(figment: &Figment, key: &str, what: &str) -> String {
    format!("{key} {what} (set in {})", place_of(figment, &path_to(key)))
}

/// The path to the first text, a key or a value, of which there is something to say, and what that is.
fn find(value: &Value, path: &mut Vec<String>, judge: &Judge) -> Option<(Vec<String>, &'static str)> {
    let entries: Vec<(String, &Value)> = match value {
        Value::String(_, text) => return judge(path, text).map(|what| (path.clone(), what)),
        Value::Dict(_, dict) => dict.iter().map(|(key, value)| (key.clone(), value)).collect(),
        Value::Array(_, list) => list.iter().enumerate().map(|(index, value)| (index.to_string(), value)).collect(),
        Value::Char(..) | Value::Bool(..) | Value::Num(..) | Value::Empty(..) => return None,
    };
    entries.into_iter().find_map(|(key, value)| {
        // The key is judged by the table that it stands in, which is named then.
        if let Some(what) = judge(path, &key) {
            return Some((path.clone(), what));
        }
        path.push(key);
        let found = find(value, path, judge);
        path.pop();
        found
    })
}

type Judge = dyn Fn(&[String], &str) -> Option<&'static str>;

/// The value at the end of a path.
pub(super) fn value_at<'v>(value: &'v Value, path: &[String]) -> Option<&'v Value> {
    path.iter().try_fold(value, |value, part| match value {
        Value::Dict(_, dict) => dict.get(part),
        Value::Array(_, list) => list.get(part.parse::<usize>().ok()?),
        Value::String(..) | Value::Char(..) | Value::Bool(..) | Value::Num(..) | Value::Empty(..) => None,
    })
}

pub(super) fn source_of(figment: &Figment, key: &str) -> String {
    metadata_of(figment, key).map_or_else(|| "the default".into(), |metadata| name_source(metadata, key))
}

fn metadata_of<'f>(figment: &'f Figment, key: &str) -> Option<&'f Metadata> {
    // An array's items and an inline table's keys have the source of what they stand in.
    std::iter::successors(Some(key), |key| key.rsplit_once('.').map(|(parent, _)| parent)).find_map(|key| figment.find_metadata(key))
}

/// The source, and in a file the line.
fn place_of(figment: &Figment, path: &[String]) -> String {
    metadata_of(figment, &path.join(".")).map_or_else(|| "the default".into(), |metadata| name_place(metadata, path))
}

fn name_place(metadata: &Metadata, path: &[String]) -> String {
    let line = if metadata.name == File::NAME { metadata.interpolate(&Profile::Default, path) } else { String::new() };
    name_source(metadata, &path.join(".")) + &line
}

fn name_source(metadata: &Metadata, key: &str) -> String {
    match &metadata.source {
        Some(figment::Source::File(path)) => path.display().to_string(),
        _ if metadata.name == Variables::NAME => format!("the environment variable {}", Variables::with(key)),
        _ => "the default".into(),
    }
}

/// A setting's name; the entries of a list are counted from 1, as in every other message.
pub(super) fn name_setting(path: &[String]) -> String {
    let name = path.iter().fold(String::new(), |name, part| match part.parse::<usize>() {
        Ok(index) => format!("{name}, entry {}", index + 1),
        Err(_) if name.is_empty() => part.clone(),
        Err(_) => format!("{name}{}{part}", if name.contains(", entry") { ", " } else { "." }),
    });
    if name.is_empty() { "the configuration".into() } else { name }
}

/// The path to a setting of such a name.
fn path_to(name: &str) -> Vec<String> {
    let entry = |part: &str| part.strip_prefix("entry ")?.parse::<usize>().ok()?.checked_sub(1);
    let parts = name.split(", ").map(|part| entry(part).map_or_else(|| part.to_owned(), |index| index.to_string()));
    parts.collect::<Vec<_>>().join(".").split('.').map(str::to_owned).collect()
}

fn describe(figment: &Figment, error: &figment::Error) -> String {
    let all: Option<Value> = figment.extract().ok();
    let rules = rules::names_in(figment);
    let mut lines: Vec<String> = error
        .clone()
        .into_iter()
        .map(|error| {
            let key = error.path.join(".");
            let place =
                error.metadata.as_ref().map_or_else(|| place_of(figment, &error.path), |metadata| name_place(metadata, &error.path));
            let value = all.as_ref().and_then(|all| value_at(all, &error.path));
            let is_variable = error.metadata.as_ref().is_some_and(|metadata| metadata.name == Variables::NAME);
            let meant = if is_variable && matches!(error.kind, Kind::UnknownField(..)) { Variables::meant(&key, &rules) } else { None };
            let what = meant.map_or_else(|| explain(&key, &error.kind, value), |meant| format!("there is no such setting; {meant}"));
            format!("{}: {what} (set in {place})", name_setting(&error.path))
        })
        .map(secret::without_webhook_secrets)
        .collect();
    lines.dedup();
    lines.join("\n")
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
    const NAME: &str = "configuration file";

    fn read(path: &Path) -> Result<Self, String> {
        match std::fs::read_to_string(path) {
            Ok(text) => Ok(Self { path: path.to_owned(), text }),
            Err(error) => Err(format!("the configuration file {} can't be read: {error}", path.display())),
        }
    }

    /// Only of a file that does not exist there is nothing to know: one that can't be reached may say which orders to spare.
    fn read_if_there(path: &Path) -> Result<Option<Self>, String> {
        match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Ok(_) | Err(_) => Self::read(path).map(Some),
        }
    }
}

impl Provider for File {
    fn metadata(&self) -> Metadata {
        let text = self.text.clone();
        let line = move |_: &Profile, path: &[&str]| line_of(&text, path).map_or_else(String::new, |line| format!(", line {line}"));
        Metadata::from(Self::NAME, self.path.as_path()).interpolater(line)
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        let mut profiles = Toml::string(&self.text).data()?;
        for settings in profiles.values_mut() {
            rules::by_name(settings)?;
        }
        Ok(profiles)
    }
}
