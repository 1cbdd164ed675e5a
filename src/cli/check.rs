//! `order-closer check`: what is right, and what to fix, with the command or SQL that fixes it.

mod ask;
mod database;
mod deadlines;
mod doors;
mod events;
mod redis;
mod witnesses;

pub(super) use witnesses::{is_prefix, zone_apart};

use std::collections::{HashMap, HashSet};

use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::{
    cli::{CommandResult, Exit, Failure, print, some_rules, worst},
    config::{Config, RuleName},
    order::printable,
};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Examine what this rule needs only.
    #[arg(long, value_name = "NAME")]
    rule: Option<String>,
    /// Don't try a closure on a real order, which is rolled back.
    #[arg(long)]
    no_rehearsal: bool,
}

impl Arguments {
    /// All rules, for people, without a rehearsal.
    pub(super) fn without_rehearsal() -> Self {
        Self { json: false, rule: None, no_rehearsal: true }
    }
}

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
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    name: &'static str,
    mark: Mark,
    found: String,
    /// The command, SQL or setting that fixes it.
    fix: Option<String>,
}

impl Finding {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, mark: Mark::Ok, found: printable(found.into()), fix: None }
    }

    fn warn(name: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, mark: Mark::Warn, found: printable(found.into()), fix: Some(printable(fix.into())) }
    }

    fn fail(name: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, mark: Mark::Fail, found: printable(found.into()), fix: Some(printable(fix.into())) }
    }

    fn line(&self) -> String {
        let mark = match self.mark {
            Mark::Ok => '✓',
            Mark::Warn => '!',
            Mark::Fail => '✗',
        };
        let mut line = format!("{mark} {:<16} {}", self.name, self.found);
        if let Some(fix) = &self.fix {
            line += &format!("\n  {:<16} -> {fix}", "");
        }
        line
    }

    /// `mend` is what `fix` was called at first: it says the same for one version, for scripts that read it.
    fn json(&self) -> Value {
        let mut json = json!({ "name": self.name, "mark": self.mark, "found": self.found });
        if let Some(fix) = &self.fix {
            json["fix"] = fix.as_str().into();
            json["mend"] = fix.as_str().into();
        }
        json
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
    /// The whole database can't be used.
    is_away: bool,
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

pub(super) async fn run(config: &Config, arguments: &Arguments) -> CommandResult {
    let rules = some_rules(config, arguments.rule.as_deref())?;
    let (mut exit, mut all): (Exit, Vec<(RuleName, Finding)>) = (Exit::Done, Vec::new());
    let mut common: HashMap<RuleName, Common> = HashMap::new();
    let (mut away, names) = (HashSet::new(), config.rule_names());
    for config in &rules {
        // That a database is away has been said of another of its shards.
        if away.contains(&config.which.database) {
            continue;
        }
        let common = common.entry(config.which.name.everywhere()).or_default();
        let (found, findings, is_away) = examine(config, &names, common, !arguments.no_rehearsal).await;
        if is_away && config.which.name.shard().is_some() {
            away.insert(config.which.database.clone());
        }
        exit = worst(exit, found);
        // What the rules have in common is said once.
        let news = findings.into_iter().filter(|finding| !all.iter().any(|(_, known)| known == finding)).collect::<Vec<_>>();
        all.extend(news.into_iter().map(|finding| (config.which.name.clone(), finding)));
    }
    let are_several = rules.iter().any(|config| config.which.is_one_of_several);
    if arguments.json {
        let json = |(rule, finding): &(RuleName, Finding)| {
            let mut json = finding.json();
            json["rule"] = rule.as_str().into();
            if let Some(shard) = rule.shard() {
                json["shard"] = shard.into();
            }
            json
        };
        let report = json!({ "ok": exit == Exit::Done, "findings": all.iter().map(json).collect::<Vec<Value>>() });
        print(&serde_json::to_string_pretty(&report).map_err(|error| Failure::new(Exit::Software, error.to_string()))?);
        return Ok(exit);
    }
    let mut last = None;
    for (rule, finding) in &all {
        if are_several && last.replace(rule) != Some(rule) {
            print(&format!("rule {}", rule.in_full()));
        }
        print(&finding.line());
    }
    Ok(exit)
}

/// What the shards of a rule have in common.
#[derive(Debug, Default)]
struct Common {
    redis: OnceCell<Examination>,
    asked: OnceCell<Examination>,
}

/// Examines all that a rule needs; says last whether its database can't be used at all.
async fn examine(config: &Config, rules: &[RuleName], common: &Common, rehearsal: bool) -> (Exit, Vec<Finding>, bool) {
    let (redis, database, witnesses, asked, doors) = tokio::join!(
        common.redis.get_or_init(|| redis::examine(config)),
        database::examine(config, rules, rehearsal),
        witnesses::examine(config),
        common.asked.get_or_init(|| ask::examine(config)),
        doors::examine(config)
    );
    let clocks = clocks(redis.clock, database.clock);
    let exit = [redis.exit, database.exit, witnesses.exit, asked.exit, doors.exit].into_iter().flatten().fold(Exit::Done, worst);
    let findings = redis.findings.iter().cloned();
    let findings = findings.chain(database.findings).chain(witnesses.findings).chain(asked.findings.iter().cloned()).chain(doors.findings);
    (exit, findings.chain(clocks).collect(), database.is_away)
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
