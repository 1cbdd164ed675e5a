//! `order-closer config`: the effective settings, and the schema of all.

use crate::{
    cli::{CommandResult, Exit, Failure, print},
    config::{Config, Loaded},
};

pub(super) fn run(loaded: &Loaded, json: bool) -> CommandResult {
    let settings = loaded.settings();
    if json {
        let text = serde_json::to_string_pretty(&settings).map_err(|error| Failure::new(Exit::Software, error.to_string()))?;
        print(&text);
        return Ok(Exit::Done);
    }
    let width = settings.iter().map(|setting| setting.key.len() + setting.value.chars().count()).max().unwrap_or(0) + 3;
    for setting in settings {
        let assignment = format!("{} = {}", setting.key, setting.value);
        print(&format!("{assignment:width$}  # {}", setting.source));
    }
    Ok(Exit::Done)
}

pub(super) fn print_schema() -> CommandResult {
    let text = serde_json::to_string_pretty(&Config::schema()).map_err(|error| Failure::new(Exit::Software, error.to_string()))?;
    print(&text);
    Ok(Exit::Done)
}
