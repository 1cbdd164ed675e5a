//! What two readings of the configuration differ in, and what of that a running daemon can take over.

use std::collections::BTreeMap;

use figment::value::{Dict, Value};

use super::{Loaded, rules, secret};

/// The settings that a running daemon takes over, each with all that stands below it.
pub const LIVE: &[&str] = &[
    "close.ask.ca_file",
    "close.ask.secret_files",
    "close.ask.secrets",
    "close.ask.url",
    "close.ask.url_file",
    "close.retry",
    "events.retry",
    "events.stream",
    "events.webhooks",
    "http.token",
    "http.token_file",
    "log.level",
    "sweep",
    "timers.stream",
    "timers.webhooks",
];

/// The names of settings that have changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Those that a running daemon takes over.
    pub live: Vec<String>,
    /// Those that need another start.
    pub fixed: Vec<String>,
}

impl Loaded {
    /// What is otherwise in a later reading.
    #[must_use]
    pub fn changes(&self, later: &Self) -> Changes {
        let (before, after) = (self.meanings(), later.meanings());
        let mut names: Vec<&String> = before.keys().chain(after.keys()).collect();
        names.sort_unstable();
        names.dedup();
        let changed = names.into_iter().filter(|name| before.get(*name) != after.get(*name));
        let mut changed: Vec<String> = changed.map(|name| self.rule_apart(later, name).unwrap_or_else(|| name.clone())).collect();
        changed.dedup();
        let (live, fixed) = changed.into_iter().partition(|name| is_live(name));
        Changes { live, fixed }
    }

    /// The rule that a setting is of, where one of the two readings has no such rule: of that all has changed.
    fn rule_apart(&self, later: &Self, name: &str) -> Option<String> {
        let rule = rules::of(name)?;
        let has = |loaded: &Self| loaded.config.rules.keys().any(|name| name.as_str() == rule);
        (has(self) != has(later)).then(|| format!("{}.{rule}", rules::RULES))
    }

    /// What each setting means, by its name: what is shown of it, and where that hides a secret, all of it.
    fn meanings(&self) -> BTreeMap<String, (String, Option<Value>)> {
        let raw = Value::from(self.figment.extract::<Dict>().unwrap_or_default());
        let settings = self.settings().into_iter().map(|setting| {
            let is_hidden = setting.value.contains(secret::HIDDEN);
            let secret = is_hidden.then(|| raw.find_ref(&setting.key).cloned()).flatten();
            (setting.key, (setting.value, secret))
        });
        settings.collect()
    }
}

fn is_live(name: &str) -> bool {
    let name = rules::within_rule(name);
    LIVE.iter().any(|live| name.strip_prefix(live).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
}
