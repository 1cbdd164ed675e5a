//! The command line. Results go to standard output, logs and progress to standard error.

mod arm;
mod asking;
mod check;
mod close;
mod config;
mod daemon;
mod dead_letters;
mod deliver;
mod demo;
mod events;
mod explain;
mod generate;
mod healthcheck;
mod init;
mod left_out;
mod logs;
mod migrate;
mod output;
mod pause;
mod reconcile;
mod run;
mod shards;
mod targets;
mod top;

use std::{collections::HashSet, env, ffi::OsString, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use crate::{
    app::{RunError, settings_of},
    config::{Config, Rule, RuleName, Span, Which, load},
    explain::read_id,
    order::{OrderId, Printable, did_you_mean},
    redis::{Commands, PATIENCE, RedisError},
    store::{self, OpenError, Store, StoreError},
    trigger::Witness,
};
use clap::{Parser, Subcommand, error::ErrorKind};
use output::{complain, print};
use tokio::time::{Instant, timeout};

/// Closes unpaid orders at their payment deadline: on time, once, and never a paid one.
#[derive(Debug, Parser)]
#[command(name = "order-closer", version, max_term_width = 100)]
struct Arguments {
    /// The configuration file [env: ORDER_CLOSER_CONFIG] [default: /etc/order-closer/order-closer.toml, if it exists].
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Only the orders of this shard, such as ds_0.t_order_3, where orders are in several tables or databases.
    #[arg(long, global = true, value_name = "NAME")]
    shard: Option<String>,
    #[command(subcommand)]
    command: Command,
}

impl Arguments {
    /// The configuration file that is named; an empty variable names none.
    fn file(&self) -> Option<PathBuf> {
        let variable = || env::var_os("ORDER_CLOSER_CONFIG").filter(|name| !name.is_empty());
        self.config.clone().or_else(|| variable().map(PathBuf::from))
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Listen and close orders until stopped (SIGTERM or SIGINT: finish what is in hand, then exit).
    Run(run::Arguments),
    /// Close what is overdue, once; for cron. Needs no Redis.
    Reconcile(reconcile::Arguments),
    /// Write a configuration for the orders table of a database: looks at its tables, asks what can't be seen, only reads.
    Init(Box<init::Arguments>),
    /// Examine Redis, the database, the mapping, indexes, clocks and time zones: what is right, what to mend.
    Check(check::Arguments),
    /// Write the key of an order, as an order service would.
    Arm {
        /// The order's id.
        id: String,
        /// The rule whose key it is, where there are several.
        #[arg(long, value_name = "NAME")]
        rule: Option<String>,
        /// How long until the key expires, such as 30m.
        #[arg(long, value_name = "TIME")]
        ttl: Span,
    },
    /// Close these orders now, if they are due.
    Close(close::Arguments),
    /// Close nothing for a while, in every daemon, reconcile and close.
    Pause(pause::Begin),
    /// Go on closing.
    Resume(pause::End),
    /// Say whether closing is paused, and how many orders are overdue.
    Status {
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Ask the daemon on this host whether it is ready.
    Healthcheck,
    /// Show the figures of the daemon on this host, live: what is due, overdue, closed, and how late.
    Top(top::Arguments),
    /// Create or upgrade the tables order_closer_*, which events and dead letters need.
    Migrate {
        /// Change nothing: print the SQL that does it, and the rights on the tables that this user needs, for their owner to run.
        #[arg(long)]
        print_sql: bool,
    },
    /// Say all that is known of one order: why it was closed, or is not, and what would close it. Changes nothing.
    Explain {
        /// The order's id; a timer's is its kind and key, as reminder/1001.
        id: String,
        /// The rule that looks after it; without, each rule that has it.
        #[arg(long, value_name = "NAME")]
        rule: Option<String>,
        /// Print one JSON object; one on each line, where several rules have it.
        #[arg(long)]
        json: bool,
    },
    /// Show the audit log: which orders were closed, when, by whom.
    Events(events::Arguments),
    /// List, show, retry and drop what was given up: orders not closed, events not delivered.
    DeadLetters(dead_letters::Arguments),
    /// List whom closures are told to, and how that goes; resume a target, drop what waits for one that is no more.
    Targets(targets::Arguments),
    /// Tell the targets what is due, once; for cron, where no daemon runs.
    Deliver,
    /// Show the effective settings and where each came from; secrets are hidden.
    Config {
        /// Print one JSON array.
        #[arg(long)]
        json: bool,
        /// Print the JSON schema of configuration files, for editors.
        #[arg(long, conflicts_with = "json")]
        schema: bool,
    },
    /// Write man pages, or completions for a shell.
    #[command(subcommand)]
    Generate(generate::Wanted),
    /// Run a whole shop in miniature: orders, payments, the daemon, and a table of what became of them.
    Demo(demo::Arguments),
}

/// How a command ends, as its exit status; the numbers are those of sysexits.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Exit {
    /// Done, also when there was nothing to do.
    Done = 0,
    /// The command line is wrong.
    Usage = 64,
    /// Redis or the database is unavailable.
    Unavailable = 69,
    /// A bug of ours.
    Software = 70,
    /// All went well, and the results could not be written.
    Output = 74,
    /// Some orders could not be closed, or time ran out.
    Unfinished = 75,
    /// The configuration is wrong.
    Configuration = 78,
}

/// A command that failed: what to say, and the exit status.
#[derive(Debug, Clone)]
struct Failure {
    exit: Exit,
    message: String,
    /// The whole database can't be used.
    is_away: bool,
}

impl Failure {
    fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), is_away: false }
    }

    /// The same of a rule, which is named where there are several.
    fn of(self, rule: &Which) -> Self {
        if rule.is_one_of_several { Self { message: format!("{}: {}", rule.name.in_full(), self.message), ..self } } else { self }
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Misfit(_) | OpenError::Missing(_) | OpenError::Zone(_) => Self::new(Exit::Configuration, error.to_string()),
            OpenError::Store(error) => error.into(),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let exit = match &error {
            StoreError::Refused { cure, .. } => return Self::new(Exit::Configuration, format!("{error}; {cure}")),
            StoreError::Unavailable(_) => return Self { is_away: true, ..Self::new(Exit::Unavailable, error.to_string()) },
            StoreError::TimedOut(_) => Exit::Unavailable,
            // Somebody holds the whole table, say; the next run goes on.
            StoreError::Conflict(_) | StoreError::Locked(_) => Exit::Unfinished,
            StoreError::Rejected(_) => Exit::Configuration,
        };
        Self::new(exit, error.to_string())
    }
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        if error.may_pass() {
            return Self::new(Exit::Unavailable, format!("Redis unavailable: {error}"));
        }
        Self::new(Exit::Configuration, format!("Redis can't be used: {error}; {}", error.fix()))
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        let exit = match error {
            RunError::Configuration(_) => Exit::Configuration,
            RunError::System(_) | RunError::Bug(_) => Exit::Software,
            RunError::Interrupted => Exit::Unfinished,
        };
        Self::new(exit, error.to_string())
    }
}

type CommandResult = Result<Exit, Failure>;

/// Runs the program with these arguments, the first of which is its name.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are answers, not errors.
            let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            let printed = error.print();
            if asked {
                output::note(printed);
            }
            return code(if asked { Exit::Done } else { Exit::Usage });
        }
    };
    // The panic's own message has been printed when it gets here.
    match std::panic::catch_unwind(|| dispatch(arguments)) {
        Ok(Ok(exit)) => code(exit),
        Ok(Err(Failure { exit, message, .. })) => {
            complain(&message);
            code(exit)
        }
        Err(_) => code(Exit::Software),
    }
}

fn code(exit: Exit) -> ExitCode {
    let exit = if exit == Exit::Done && output::is_lost() { Exit::Output } else { exit };
    ExitCode::from(exit as u8)
}

fn dispatch(arguments: Arguments) -> CommandResult {
    if let Command::Demo(demo) = arguments.command {
        // The demo brings its own configuration.
        return runtime(2)?.block_on(demo::run(demo));
    }
    // These are about no configuration in particular, and the one that is there may be wrong.
    if let Command::Generate(wanted) = &arguments.command {
        return generate::run(wanted);
    }
    if let Command::Config { schema: true, .. } = arguments.command {
        return config::print_schema();
    }
    let file = arguments.file();
    if let Command::Init(arguments) = arguments.command {
        // The file is yet to be written.
        let runtime = runtime(2)?;
        let ended = runtime.block_on(init::run(file, *arguments));
        // A thread that reads the terminal is not waited for.
        runtime.shutdown_background();
        return ended;
    }
    let mut loaded = load(file.as_deref()).map_err(|message| Failure::new(Exit::Configuration, message))?;
    shards::settle(&mut loaded.config, arguments.shard.as_deref(), &arguments.command)?;
    if matches!(
        arguments.command,
        Command::Run(_) | Command::Reconcile(_) | Command::Check(_) | Command::Close(_) | Command::Explain { .. }
    ) {
        loaded.orders_table_is_named().map_err(|message| Failure::new(Exit::Configuration, message))?;
    }
    let settings = &loaded.config;
    let log = logs::start(&loaded)?;
    match arguments.command {
        Command::Run(arguments) => run::run(&loaded, file, log.level(), &arguments),
        Command::Reconcile(arguments) => runtime(2)?.block_on(reconcile::run(settings, arguments)),
        Command::Check(arguments) => runtime(2)?.block_on(check::run(settings, &arguments)),
        Command::Arm { id, rule, ttl } => runtime(1)?.block_on(arm::run(settings, rule.as_deref(), &id, ttl)),
        Command::Close(arguments) => runtime(1)?.block_on(close::run(settings, &arguments)),
        Command::Pause(arguments) => runtime(1)?.block_on(pause::begin(settings, arguments)),
        Command::Resume(arguments) => runtime(1)?.block_on(pause::end(settings, arguments)),
        Command::Status { json } => runtime(1)?.block_on(pause::status(settings, json)),
        Command::Healthcheck => runtime(1)?.block_on(healthcheck::run(settings)),
        Command::Top(arguments) => runtime(1)?.block_on(top::run(settings, &arguments)),
        Command::Migrate { print_sql: false } => runtime(1)?.block_on(migrate::run(settings)),
        Command::Migrate { print_sql: true } => runtime(1)?.block_on(migrate::print_sql(settings)),
        Command::Explain { id, rule, json } => runtime(2)?.block_on(explain::run(settings, &id, rule.as_deref(), json)),
        Command::Events(arguments) => runtime(1)?.block_on(events::run(settings, arguments)),
        Command::DeadLetters(arguments) => runtime(1)?.block_on(dead_letters::run(settings, arguments)),
        Command::Targets(arguments) => runtime(1)?.block_on(targets::run(settings, arguments)),
        Command::Deliver => runtime(2)?.block_on(deliver::run(settings)),
        Command::Config { json, .. } => config::run(&loaded, json),
        Command::Demo(_) | Command::Init(_) | Command::Generate(_) => Ok(Exit::Done),
    }
}

/// How long Redis may take: half of the time that a command has left, so that orders close without it.
fn patience(deadline: Option<Instant>) -> Duration {
    deadline.map_or(PATIENCE, |deadline| PATIENCE.min(deadline.saturating_duration_since(Instant::now()) / 2))
}

/// The second witness of deadlines, for a command that has to be done by then: there is none without Redis.
async fn witness(config: &Config, store: &Arc<dyn Store>, deadline: Option<Instant>) -> Option<Arc<Witness>> {
    let limit = patience(deadline);
    match timeout(limit, Commands::connect(&config.redis)).await.unwrap_or_else(|_| Err(RedisError::timed_out(limit))) {
        Ok(commands) => {
            let witness = Witness::of(&Rule::of(config), store, &commands)?;
            witness.be_patient_for(patience(deadline));
            Some(witness)
        }
        Err(error) => {
            tracing::debug!(%error, "Redis can't be reached, and rows decide alone");
            None
        }
    }
}

/// The settings as the rules have them that a command is about: the one that was named, or all.
fn some_rules(config: &Config, name: Option<&str>) -> Result<Vec<Config>, Failure> {
    let Some(name) = name else { return Ok(config.of_each_rule()) };
    let found: Vec<Config> = config.of_each_rule().into_iter().filter(|config| config.which.name.as_str() == name).collect();
    if found.is_empty() {
        let all = config.rule_names();
        let meant = did_you_mean(name, all.iter().map(RuleName::as_str));
        let message = format!("there is no rule {}; the configuration has {}{meant}", Printable(&format!("{name:?}")), names(config));
        return Err(Failure::new(Exit::Usage, message));
    }
    Ok(found)
}

/// The same for a command that is about one rule, which has to be named where several have orders.
fn one_rule(config: &Config, name: Option<&str>) -> Result<Config, Failure> {
    let mut rules = some_rules(config, name)?;
    if name.is_none() && rules.len() > 1 {
        rules.retain(|rule| !rule.which.name.is_timers());
    }
    match (rules.pop(), rules.is_empty()) {
        (Some(rule), true) => Ok(rule),
        _ => Err(Failure::new(Exit::Usage, format!("name the rule with --rule: the configuration has {}", names(config)))),
    }
}

/// Opens the store of a rule, for a command that goes over all rules. A shard is named by whoever leaves it out.
async fn store_of(config: &Config) -> Result<Arc<dyn Store>, Failure> {
    let named = |failure: Failure| if config.which.name.shard().is_some() { failure } else { failure.of(&config.which) };
    store::open(settings_of(config)).await.map_err(|error| named(error.into()))
}

/// What two ends amount to: a wrong configuration counts for more than a server that may come back, and that for more than
/// an order that is left.
fn worst(one: Exit, other: Exit) -> Exit {
    let order = [Exit::Software, Exit::Usage, Exit::Configuration, Exit::Unavailable, Exit::Output, Exit::Unfinished];
    order.into_iter().find(|exit| [one, other].contains(exit)).unwrap_or(Exit::Done)
}

/// The first rule of each orders table: what stands in our tables beside it is every rule's of that table.
fn each_table(rules: Vec<Config>) -> Vec<Config> {
    let mut tables = HashSet::new();
    rules.into_iter().filter(|config| tables.insert((config.which.database.clone(), config.orders.table.clone()))).collect()
}

fn names(config: &Config) -> String {
    let mut names: Vec<String> = config.rule_names().iter().map(ToString::to_string).collect();
    names.dedup();
    names.join(", ")
}

/// Reads an order's id as somebody has written it.
fn order_id(config: &Config, store: &dyn Store, id: &str) -> Result<OrderId, Failure> {
    read_id(store, &Rule::of(config), id).map_err(|reason| Failure::new(Exit::Usage, reason))
}

fn runtime(threads: usize) -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads.min(std::thread::available_parallelism().map_or(2, usize::from).max(2)))
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Software, format!("the runtime can't start: {error}")))
}
