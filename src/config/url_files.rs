//! URLs that stand in files of their own, as systemd, Docker and Kubernetes hand over secrets.

use std::path::PathBuf;

use figment::{
    Error, Figment, Metadata, Profile, Provider,
    value::{Dict, Map, Value},
};

use super::{
    load::{name_setting, source_of, value_at},
    optional::NONE,
    ranges::Ranges,
    rules, secret,
};

/// The settings that may stand in a file, which the same name with `_file` names. So may the last of them in each rule.
const URLS: [&[&str]; 3] = [&["redis", "url"], &["database", "url"], ASK];
const ASK: &[&str] = &["close", "ask", "url"];

/// The lists whose entries have a URL that may.
const LISTS: [&[&str]; 2] = [&["events", "webhooks"], &["timers", "webhooks"]];

/// The table of which each setting is a URL, or several, that may.
const DATABASES: &str = "databases";

/// What stands behind the name of a setting that may stand in a file.
pub(super) const FILE: &str = "_file";

/// What such a file says, as a source of settings.
struct UrlFile {
    path: PathBuf,
    table: String,
    /// All of the outermost table with the URL in it: whatever else it has keeps its own source.
    settings: Value,
}

impl Provider for UrlFile {
    fn metadata(&self) -> Metadata {
        Metadata::from("file", self.path.as_path())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, Error> {
        Ok(Profile::Default.collect(Dict::from_iter([(self.table.clone(), self.settings.clone())])))
    }
}

/// Adds what stands in the files that are named.
///
/// # Errors
/// Names the setting of the file, and says what is wrong with it; never what stands in the file.
pub(super) fn read(mut set: Figment) -> Result<Figment, (String, String)> {
    for setting in settings(&set) {
        let of_file = with(&setting, FILE);
        let wrong = |what: String| (name_setting(&of_file), what);
        let Some(path) = text_at(&set, &of_file) else { continue };
        if let Some(what) = secret::is_a(&path) {
            return Err(wrong(format!("has {what}, which does not belong there")));
        }
        // A range in the name of a file makes a database of each, as one in a URL does.
        let are_several = setting[0] == DATABASES;
        let paths = if are_several { Ranges::parse(&path).and_then(|ranges| ranges.together()) } else { Ok(vec![(None, path)]) };
        for (number, path) in paths.map_err(wrong)? {
            let url = content(&path).map_err(|what| wrong(format!("can't be used: {path} {what}")))?;
            let setting = number.map_or_else(|| setting.clone(), |number| with(&setting, &format!("_{number}")));
            let Ok(mut table) = set.find_value(&setting[0]) else { continue };
            if value_at(&table, &setting[1..]).is_some() {
                let (setting, other) = (name_setting(&setting), source_of(&set, &setting.join(".")));
                return Err(wrong(format!("and {setting} (set in {other}) are both set; one of them is enough")));
            }
            put(&mut table, &setting[1..], url);
            set = set.merge(UrlFile { path: path.into(), table: setting[0].clone(), settings: table });
        }
    }
    Ok(set)
}

/// The paths to all settings that may stand in files.
fn settings(set: &Figment) -> Vec<Vec<String>> {
    let path = |outer: &[&str], inner: &[&str]| outer.iter().chain(inner).map(|&part| part.to_owned()).collect::<Vec<_>>();
    let mut all: Vec<_> = URLS.iter().map(|setting| path(setting, &[])).collect();
    all.extend(rules::names_in(set).iter().map(|rule| path(&[rules::RULES, rule], ASK)));
    for list in LISTS {
        if let Ok(Value::Array(_, entries)) = set.find_value(&list.join(".")) {
            all.extend((0..entries.len()).map(|at| path(list, &[&at.to_string(), "url"])));
        }
    }
    if let Ok(Value::Dict(_, databases)) = set.find_value(DATABASES) {
        // What must not be shown is refused with all other settings.
        let names = databases.keys().filter(|name| secret::is_a(name).is_none());
        all.extend(names.filter_map(|name| Some(path(&[DATABASES, name.strip_suffix(FILE)?], &[]))));
    }
    all
}

/// A setting whose name has this behind it.
fn with(setting: &[String], ending: &str) -> Vec<String> {
    let mut setting = setting.to_vec();
    setting.iter_mut().last().into_iter().for_each(|name| name.push_str(ending));
    setting
}

/// The name of a file at a setting. What is no text is refused with all other settings.
fn text_at(set: &Figment, setting: &[String]) -> Option<String> {
    let table = set.find_value(&setting[0]).ok()?;
    let text = value_at(&table, &setting[1..])?.as_str()?;
    (text != NONE).then(|| text.to_owned())
}

/// Puts a text at the end of a path, in a table that is there.
fn put(value: &mut Value, path: &[String], text: String) {
    match (value, path) {
        (Value::Dict(_, dict), [name]) => {
            dict.insert(name.clone(), text.into());
        }
        (Value::Dict(_, dict), [name, rest @ ..]) => dict.get_mut(name).into_iter().for_each(|inner| put(inner, rest, text.clone())),
        (Value::Array(_, list), [at, rest @ ..]) => {
            let entry = at.parse::<usize>().ok().and_then(|at| list.get_mut(at));
            entry.into_iter().for_each(|inner| put(inner, rest, text.clone()));
        }
        _ => {}
    }
}

/// The text of a file without the line's end.
fn content(path: &str) -> Result<String, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("can't be read: {error}"))?;
    let text = text.trim();
    if text.is_empty() { Err("is empty".into()) } else { Ok(text.into()) }
}
