//! `order-closer check`: what is right, and what to mend, with the command or SQL that mends it.

mod database;
mod events;
mod redis;

use serde::Serialize;

use crate::{
    cli::{Exit, Failure, Outcome, print},
    config::Config,
};

/// How good a thing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Mark {
    /// As it should be.
    Ok,
    /// Orders close, but later or less safely than they could.
    Warn,
    /// This stops orders from closing, or notifications from coming.
    Fail,
}

/// One examined thing.
#[derive(Debug, Clone, Serialize)]
struct Finding {
    name: &'static str,
    mark: Mark,
    found: String,
    /// The command, SQL or setting that mends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    mend: Option<String>,
}

impl Finding {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, mark: Mark::Ok, found: found.into(), mend: None }
    }

    fn warn(name: &'static str, found: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { name, mark: Mark::Warn, found: found.into(), mend: Some(mend.into()) }
    }

    fn fail(name: &'static str, found: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { name, mark: Mark::Fail, found: found.into(), mend: Some(mend.into()) }
    }

    fn line(&self) -> String {
        let mark = match self.mark {
            Mark::Ok => '✓',
            Mark::Warn => '!',
            Mark::Fail => '✗',
        };
        let mut line = format!("{mark} {:<16} {}", self.name, self.found);
        if let Some(mend) = &self.mend {
            line += &format!("\n  {:<16} -> {mend}", "");
        }
        line
    }
}

/// What one server's examination gives to the whole.
#[derive(Debug, Default)]
struct Examination {
    findings: Vec<Finding>,
    /// Why a failure is one: the exit status that it asks for.
    exit: Option<Exit>,
    /// The server's clock minus this host's, in microseconds.
    clock: Option<i64>,
}

impl Examination {
    fn add(&mut self, finding: Finding) {
        if finding.mark == Mark::Fail && self.exit.is_none() {
            self.exit = Some(Exit::Configuration);
        }
        self.findings.push(finding);
    }

    fn unavailable(&mut self, finding: Finding) {
        self.exit = Some(Exit::Unavailable);
        self.findings.push(finding);
    }
}

/// A clock this far from another deserves a word.
const CLOCK_TOLERANCE_MICROS: i64 = 500_000;

pub(super) async fn run(config: &Config, json: bool) -> Outcome {
    let (redis, database) = tokio::join!(redis::examine(&config.redis), database::examine(config));
    let clocks = clocks(redis.clock, database.clock);
    // A wrong configuration is worth more than a server that may come back.
    let exits = [redis.exit, database.exit];
    let exit = [Exit::Configuration, Exit::Unavailable].into_iter().find(|exit| exits.contains(&Some(*exit))).unwrap_or(Exit::Done);
    let findings: Vec<Finding> = redis.findings.into_iter().chain(database.findings).chain(clocks).collect();
    if json {
        let report = serde_json::json!({ "ok": exit == Exit::Done, "findings": findings });
        print(&serde_json::to_string_pretty(&report).map_err(|error| Failure::new(Exit::Software, error.to_string()))?);
    } else {
        findings.iter().for_each(|finding| print(&finding.line()));
    }
    Ok(exit)
}

fn clocks(redis: Option<i64>, database: Option<i64>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let named = [("Redis", redis), ("the database", database)];
    for (name, ahead) in named {
        let Some(ahead) = ahead else { continue };
        findings.push(compare(&format!("{name} and this host"), ahead));
    }
    if let (Some(redis), Some(database)) = (redis, database) {
        findings.push(compare("Redis and the database", redis - database));
    }
    findings
}

fn compare(between: &str, micros: i64) -> Finding {
    let found = format!("{between} differ by {:.3} s", std::time::Duration::from_micros(micros.unsigned_abs()).as_secs_f64());
    if micros.abs() < CLOCK_TOLERANCE_MICROS {
        return Finding::ok("clocks", found);
    }
    Finding::warn("clocks", found, "synchronise the hosts' clocks (chronyd or ntpd); orders close by the database's clock")
}

/// This host's clock, in microseconds since 1970 UTC.
fn host_micros() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
