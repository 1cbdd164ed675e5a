//! Orders in several tables and databases, as a command sees them: which there are, which is meant, what goes over all.

use std::collections::BTreeMap;

use futures::future::join_all;

use super::{Command, Exit, Failure, runtime};
use crate::{
    app::settings_of,
    config::{Config, RuleName},
    order::{Printable, did_you_mean},
    store::{self, OpenError, Sharing, StoreError},
};

/// Looks up the tables that patterns stand for, leaves only the shard that is named, and refuses what does not go over several.
///
/// # Errors
/// Says what no table fits, which shard there is not, and what goes over one table alone.
pub(super) fn settle(config: &mut Config, shard: Option<&str>, command: &Command) -> Result<(), Failure> {
    if command.opens_stores() {
        let patterns = config.patterns();
        if !patterns.is_empty() {
            runtime(1)?.block_on(find_tables(&patterns))?;
        }
    }
    if let Some(shard) = shard {
        only_shard(config, shard, command)?;
    }
    refuse_what_they_lack(config, command)
}

impl Command {
    /// Whether it goes over the orders tables by itself.
    fn opens_stores(&self) -> bool {
        match self {
            Self::Reconcile(_)
            | Self::Check(_)
            | Self::Close(_)
            | Self::Pause(_)
            | Self::Resume(_)
            | Self::Status { .. }
            | Self::Migrate { .. }
            | Self::Explain { .. }
            | Self::Events(_)
            | Self::DeadLetters(_) => true,
            // The daemon looks tables up again and again.
            Self::Run(_)
            | Self::Arm { .. }
            | Self::Healthcheck
            | Self::Top(_)
            | Self::Targets(_)
            | Self::Deliver
            | Self::Config { .. }
            | Self::Demo(_)
            | Self::Init(_)
            | Self::Generate(_) => false,
        }
    }
}

/// Looks up the tables that patterns stand for. One whose database is away stays a pattern: whoever opens it says why.
async fn find_tables(patterns: &[Config]) -> Result<(), Failure> {
    let sharing_of = sharings(patterns);
    let looked = join_all(patterns.iter().map(async |config| {
        let Some(pattern) = &config.which.pattern else { return Ok(()) };
        let names = store::find_tables(pattern, &settings_of(config).sharing(&sharing_of(config))).await?;
        config.found.add(pattern, names);
        Ok(())
    }));
    for (config, looked) in patterns.iter().zip(looked.await) {
        match looked {
            Ok(_) | Err(OpenError::Store(StoreError::Unavailable(_) | StoreError::TimedOut(_))) => {}
            Err(error) => return Err(Failure::from(error).of(&config.which)),
        }
    }
    Ok(())
}

/// Leaves only one shard for a command to look at.
fn only_shard(config: &mut Config, shard: &str, command: &Command) -> Result<(), Failure> {
    if matches!(command, Command::Run(_) | Command::Config { .. } | Command::Healthcheck | Command::Top(_)) {
        return Err(Failure::new(Exit::Usage, "--shard is for commands that look at orders; this one is about all shards"));
    }
    let names = config.rule_names();
    let known: Vec<&str> = names.iter().filter_map(RuleName::shard).collect();
    if !known.contains(&shard) {
        let message = match known.as_slice() {
            [] => "orders are in one table: there is no --shard to name".into(),
            [first, ..] => {
                let (shown, meant) = (Printable(&format!("{shard:?}")).to_string(), did_you_mean(shard, known.iter().copied()));
                format!("there is no shard {shown}, but {}, such as {first}{meant}", known.len())
            }
        };
        return Err(Failure::new(Exit::Usage, message));
    }
    config.only_shard = Some(shard.to_owned());
    Ok(())
}

/// Refuses what does not go over several databases or tables.
fn refuse_what_they_lack(config: &Config, command: &Command) -> Result<(), Failure> {
    let are_several_databases = config.databases.each().count() > 1;
    let lacking = [
        ("run --shadow", matches!(command, Command::Run(arguments) if arguments.is_shadow())),
        ("targets", matches!(command, Command::Targets(_))),
        ("deliver", matches!(command, Command::Deliver)),
        (
            "reconcile --accept-clock",
            are_several_databases && matches!(command, Command::Reconcile(arguments) if arguments.accepts_clock()),
        ),
    ];
    match lacking.into_iter().find(|(_, is_meant)| *is_meant && config.is_sharded()) {
        Some((what, _)) => Err(Failure::new(
            Exit::Configuration,
            format!(
                "order-closer {what} does not work with orders in several tables or databases; name with --config a file that has only one of them"
            ),
        )),
        None => Ok(()),
    }
}

/// What the stores of each database have in common.
pub(super) fn sharings(lines: &[Config]) -> impl Fn(&Config) -> Sharing + use<> {
    let mut databases: BTreeMap<Option<String>, Vec<&Config>> = BTreeMap::new();
    for config in lines {
        databases.entry(config.which.database.clone()).or_default().push(config);
    }
    let sharings: BTreeMap<_, _> =
        databases.into_iter().map(|(name, lines)| (name, Sharing::of(lines.iter().map(|config| &config.which.name)))).collect();
    move |config| sharings.get(&config.which.database).cloned().unwrap_or_default()
}
