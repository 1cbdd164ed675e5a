//! What to run, and at which size.

use std::path::{Path, PathBuf};

use clap::{Parser, ValueEnum};
use serde::{Deserialize, Serialize};

/// Measures order-closer beside other ways of closing orders, on servers of its own.
#[derive(Debug, Clone, Parser, Serialize, Deserialize)]
#[command(name = "make bench", version)]
pub struct Options {
    /// What to measure; everything, if nothing is named
    #[arg(value_enum, value_name = "SCENARIO")]
    pub scenarios: Vec<Name>,
    /// How long each window of punctual, steady, fan-in, cost, timers and watched lasts, in seconds; in trouble, half as long
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=1_200))]
    pub seconds: u32,
    /// How often each burst is repeated, in watched at least three times, in outbox five; the median counts
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub rounds: u32,
    /// For how long Redis, the database and the daemon are away in recovery, in seconds
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub away: u32,
    /// Pending orders in punctual; cost and watched take the largest, peers the two largest up to 100,000, shards the largest in each of its databases, doors those from 10,000 to 100,000
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1_000, 10_000, 100_000, 1_000_000], value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    pub sizes: Vec<u32>,
    /// Orders due at one instant in burst; fan-in, watched, peers and timers (these up to 20,000) take the largest, recovery the smallest
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [10_000, 100_000], value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    pub bursts: Vec<u32>,
    /// Articles among which the orders of a burst are spread
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [10, 10_000], value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub skus: Vec<u32>,
    /// Databases of burst, outbox, timers and trouble; everything else is measured on PostgreSQL, which records when it committed
    #[arg(long, value_enum, value_name = "NAME", value_delimiter = ',', default_values_t = [Base::Postgres, Base::Mariadb, Base::Sqlite])]
    pub databases: Vec<Base>,
    /// Orders that fall due in a second, in steady
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [500, 2_000, 5_000], value_parser = clap::value_parser!(u32).range(10..=100_000))]
    pub rates: Vec<u32>,
    /// Daemons that work side by side in fan-in
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 2, 4], value_parser = clap::value_parser!(u32).range(1..=32))]
    pub daemons: Vec<u32>,
    /// Timers that are pending, in timers; on MariaDB and SQLite a million at the most
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(10_000..=10_000_000))]
    #[serde(default)]
    pub timers: u32,
    /// Where results.json, results.md and the plots go; target/bench, if not said
    #[arg(long, value_name = "FOLDER")]
    #[serde(skip)]
    out: Option<PathBuf>,
    /// What cargo adds to the command line of every benchmark
    #[arg(long, hide = true)]
    #[serde(skip)]
    bench: bool,
}

impl Options {
    /// Whether a scenario is to run.
    pub fn wants(&self, name: Name) -> bool {
        self.scenarios.is_empty() || self.scenarios.contains(&name)
    }

    /// The folder for the results.
    pub fn out(&self) -> PathBuf {
        self.out.clone().unwrap_or_else(|| Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("bench"))
    }
}

/// The scenarios, in the order in which they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Name {
    /// How late orders are closed, by the number of pending ones, beside other ways
    Punctual,
    /// How fast a flash sale's orders are closed, beside bare SQL
    Burst,
    /// Lateness and processor time at a steady rate
    Steady,
    /// Several daemons on the same Redis and database
    FanIn,
    /// What the daemon costs while nothing is due
    Cost,
    /// How soon nothing is overdue after an outage
    Recovery,
    /// How fast orders are closed while events of an endpoint that is away wait
    Outbox,
    /// Whether orders that need nothing of what is broken close on time
    Trouble,
    /// Other products that close the same orders: RabbitMQ, BullMQ, graphile-worker, pg-boss, and ways without one
    Peers,
    /// How late orders in 64 tables of four databases are closed, and those of three when the fourth is stopped
    Shards,
    /// How late orders are closed by hints from a stream, a sorted set, a queue of RabbitMQ
    Doors,
    /// How fast timers are registered, how late they are told of, and how fast a crowd is, beside BullMQ, graphile-worker, pg-boss
    Timers,
    /// What it costs to be watched: metrics scraped each second, the page open
    Watched,
    /// How late orders close, and how soon a crowd, when somebody is asked before
    Ask,
}

/// The databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Base {
    /// PostgreSQL
    Postgres,
    /// MariaDB
    Mariadb,
    /// SQLite
    Sqlite,
}

impl Base {
    /// Its name as its makers write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Postgres => "PostgreSQL",
            Self::Mariadb => "MariaDB",
            Self::Sqlite => "SQLite",
        }
    }
}
