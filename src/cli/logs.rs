//! Logs, to standard error.

use std::io::IsTerminal;

use tracing_subscriber::{EnvFilter, filter::LevelFilter};

use crate::{
    cli::{Exit, Failure},
    config::{Loaded, LogFormat},
};

/// What is said unless the filter says otherwise: warnings, and so our own also where the filter names others
/// only. Libraries say no more than that unless it names them. A statement that waits for a lock is slow, and
/// nothing is wrong.
const QUIET: &str = "warn,fred=warn,sqlx=warn,sqlx::query=error,tokio_postgres=warn,rustls=warn";

/// Begins to log as configured.
pub(super) fn start(loaded: &Loaded) -> Result<(), Failure> {
    let log = &loaded.config.log;
    let wrong = |why: &str| {
        let what = format!("is {:?}, which is not a filter such as \"info\" or \"order_closer=debug\": {why}", log.level);
        Failure::new(Exit::Configuration, loaded.wrong("log.level", &what))
    };
    // A misspelt level would pass for the name of a module.
    if let Some(word) = log.level.split(',').find(|part| !part.contains(['=', '[', ']']) && part.trim().parse::<LevelFilter>().is_err()) {
        return Err(wrong(&format!("{word:?} is no level")));
    }
    let filter = EnvFilter::builder().parse(format!("{QUIET},{}", log.level)).map_err(|error| wrong(&error.to_string()))?;
    // An error of standard error can be told to nobody; to try it would be a panic.
    let logger =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).log_internal_errors(false).with_target(false);
    match log.format {
        LogFormat::Text => logger.with_ansi(std::io::stderr().is_terminal()).init(),
        LogFormat::Json => logger.json().flatten_event(true).init(),
    }
    Ok(())
}
