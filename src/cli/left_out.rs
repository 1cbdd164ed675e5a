//! What a command does that goes over shards, some of which can't be gone over: it goes over the others, and then names these.

use crate::{
    cli::{CommandResult, Exit, Failure, complain, worst},
    config::{Config, RuleName, Which},
};

/// Shards that could not be gone over.
#[derive(Debug, Default)]
pub(super) struct LeftOut(Vec<Because>);

/// Those of one database that failed for the same reason.
#[derive(Debug)]
struct Because {
    database: Option<String>,
    failure: Failure,
    shards: Vec<RuleName>,
}

impl LeftOut {
    /// Whether this shard is one of a database that was found unreachable, and so need not be tried; it is left out, too.
    pub(super) fn skips(&mut self, config: &Config) -> bool {
        let Which { name, database, .. } = &config.which;
        let mut away = self.0.iter_mut().filter(|because| because.failure.is_away && because.database == *database);
        away.next().filter(|_| name.shard().is_some()).map(|because| because.shards.push(name.clone())).is_some()
    }

    /// Leaves a shard out that failed.
    ///
    /// # Errors
    /// The failure itself, where it ends the command: it is no shard's, or the command line is wrong.
    pub(super) fn add(&mut self, which: &Which, failure: Failure) -> Result<(), Failure> {
        let Which { name, database, .. } = which;
        if name.shard().is_none() || matches!(failure.exit, Exit::Usage | Exit::Software | Exit::Output) {
            return Err(failure);
        }
        let is_alike = |known: &Failure| known.is_away && failure.is_away || known.message == failure.message;
        match self.0.iter_mut().find(|because| because.database == *database && is_alike(&because.failure)) {
            Some(because) => because.shards.push(name.clone()),
            None => self.0.push(Because { database: database.clone(), failure, shards: vec![name.clone()] }),
        }
        Ok(())
    }

    /// Names them, and says how the command ends that would have ended so.
    pub(super) fn end(self, exit: Exit) -> CommandResult {
        self.0.iter().for_each(|because| complain(&because.to_string()));
        Ok(self.0.iter().fold(exit, |exit, because| worst(exit, because.failure.exit)))
    }

    /// The same as a failure of the whole command, where there is one.
    pub(super) fn failure(&self) -> Option<Failure> {
        let exit = self.0.iter().map(|because| because.failure.exit).reduce(worst)?;
        Some(Failure::new(exit, self.0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")))
    }
}

impl std::fmt::Display for Because {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { database, failure: Failure { message, is_away, .. }, shards } = self;
        let count = shards.len();
        match database {
            Some(database) if *is_away => write!(f, "{database}: {message} (shards left out: {count})"),
            None if *is_away => write!(f, "{message} (shards left out: {count})"),
            Some(_) | None => write!(f, "{}: {message}", shards.iter().map(RuleName::in_full).collect::<Vec<_>>().join(", ")),
        }
    }
}
