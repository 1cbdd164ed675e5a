//! `order-closer healthcheck`: whether the daemon on this host is ready, for containers without a shell.

use serde::Deserialize;

use crate::{
    cli::{CommandResult, Exit, Failure, daemon::Daemon, print},
    config::Config,
};

/// What `/readyz` says.
#[derive(Debug, Deserialize)]
struct Said {
    ready: bool,
    missing: Vec<String>,
    degraded: Vec<String>,
}

pub(super) async fn run(config: &Config) -> CommandResult {
    let daemon = Daemon::of(config)?;
    let Said { ready, missing, degraded } = daemon.json(daemon.ask("/readyz").await?).await?;
    if !ready {
        return Err(Failure::new(Exit::Unavailable, missing.join("; ")));
    }
    print(&if degraded.is_empty() { "ready".to_owned() } else { format!("ready, but {}", degraded.join("; ")) });
    Ok(Exit::Done)
}
