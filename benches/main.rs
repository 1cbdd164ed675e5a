//! `make bench`: how punctual, how fast and how frugal order-closer is, beside other ways and beside bare SQL.
//!
//! Everything is real: servers of the benchmark's own with durable settings, the optimized daemon as a process of its
//! own, configured by a file, and all figures taken in one run. Lateness is what the database recorded.
//!
//! | file | what is in it |
//! |---|---|
//! | [`scenarios`] | what is measured |
//! | [`flash_sale`], [`bound`] | orders due at one instant, closed by daemons or by bare SQL |
//! | [`contestants`], [`peers`] | other ways of closing orders, and other products that do |
//! | [`shop`], [`orders`], [`intake`], [`stage`] | tables and keys, filled by the hundred thousand, and new orders as they come |
//! | [`timer_table`] | timers, filled by the million |
//! | [`servers`], [`machine`], [`usage`], [`watcher`] | what it runs on, what that uses, and who looks at it |
//! | [`lateness`] | what the database recorded |
//! | [`report`], [`table`], [`plots`] | results.json, results.md, plots |
//! | [`options`], [`progress`] | the command line, and what it shows meanwhile |

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    unreachable_pub,
    reason = "a benchmark may panic, and its figures are small"
)]

mod bound;
mod contestants;
mod flash_sale;
mod intake;
mod lateness;
mod machine;
mod options;
mod orders;
mod peers;
mod plots;
mod progress;
mod report;
mod scenarios;
mod servers;
mod shop;
mod stage;
#[path = "../tests/support/mod.rs"]
mod support;
mod table;
mod timer_table;
mod usage;
mod watcher;

use std::{process::ExitCode, time::Instant};

use clap::{Parser, ValueEnum};

use machine::Machine;
use options::{Name, Options};
use progress::Progress;
use report::{Ran, Results};
use scenarios::{ask, burst, cost, doors, fan_in, outbox, peers as products, punctual, recovery, shards, steady, timers, trouble, watched};

#[tokio::main]
async fn main() -> ExitCode {
    match bench(&Options::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn bench(options: &Options) -> Result<(), String> {
    machine::assert_temporary_files_are_on_disk();
    let folder = options.out();
    let mut results = Results::load(&folder)?;
    let progress = Progress::new();
    let machine = Machine::look().await;
    progress.result(&machine.to_string());
    for name in Name::value_variants().iter().copied().filter(|name| options.wants(*name)) {
        let began = Instant::now();
        match name {
            Name::Punctual => results.punctual = Some(Ran::new(began, options, &machine, punctual::run(options, &progress).await)),
            Name::Burst => results.burst = Some(Ran::new(began, options, &machine, burst::run(options, &progress).await)),
            Name::Steady => results.steady = Some(Ran::new(began, options, &machine, steady::run(options, &progress).await)),
            Name::FanIn => results.fan_in = Some(Ran::new(began, options, &machine, fan_in::run(options, &progress).await)),
            Name::Cost => results.cost = Some(Ran::new(began, options, &machine, cost::run(options, &progress).await)),
            Name::Recovery => results.recovery = Some(Ran::new(began, options, &machine, recovery::run(options, &progress).await)),
            Name::Outbox => results.outbox = Some(Ran::new(began, options, &machine, outbox::run(options, &progress).await)),
            Name::Ask => results.ask = Some(Ran::new(began, options, &machine, ask::run(options, &progress).await)),
            Name::Trouble => results.trouble = Some(Ran::new(began, options, &machine, trouble::run(options, &progress).await)),
            Name::Peers => results.peers = Some(Ran::new(began, options, &machine, products::run(options, &progress).await)),
            Name::Shards => results.shards = Some(Ran::new(began, options, &machine, shards::run(options, &progress).await)),
            Name::Doors => results.doors = Some(Ran::new(began, options, &machine, doors::run(options, &progress).await)),
            Name::Timers => results.timers = Some(Ran::new(began, options, &machine, timers::run(options, &progress).await)),
            Name::Watched => results.watched = Some(Ran::new(began, options, &machine, watched::run(options, &progress).await)),
        }
        // After each, so that what was measured stays when the next one fails.
        results.write(&folder)?;
    }
    progress.end();
    eprintln!("Results are in {}", folder.display());
    Ok(())
}
