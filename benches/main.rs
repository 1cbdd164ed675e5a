//! `make bench`: how punctual, how fast and how frugal order-closer is, beside other ways and beside bare SQL.
//!
//! Everything is real: servers of the benchmark's own with durable settings, the optimized daemon as a process of its
//! own, configured by a file, and all figures taken in one run. Lateness is what the database recorded.
//!
//! | file | what is in it |
//! |---|---|
//! | [`scenarios`] | what is measured |
//! | [`flash_sale`], [`bound`] | orders due at one instant, closed by daemons or by bare SQL |
//! | [`shop`], [`orders`] | tables and keys, filled by the hundred thousand |
//! | [`servers`], [`machine`], [`usage`] | what it runs on and what that uses |
//! | [`lateness`] | what the database recorded |
//! | [`report`], [`table`], [`plots`] | results.json, results.md, plots |

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    unreachable_pub,
    reason = "a benchmark may panic, and its figures are small"
)]

mod bound;
mod flash_sale;
mod lateness;
mod machine;
mod options;
mod orders;
mod plots;
mod progress;
mod report;
mod scenarios;
mod servers;
mod shop;
#[path = "../tests/support/mod.rs"]
mod support;
mod table;
mod usage;

use std::{process::ExitCode, time::Instant};

use clap::Parser;

use machine::Machine;
use options::{Name, Options};
use progress::Progress;
use report::{Ran, Results};

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
    if options.wants(Name::Burst) {
        let began = Instant::now();
        results.burst = Some(Ran::new(began, options, &machine, scenarios::burst::run(options, &progress).await));
        results.write(&folder)?;
    }
    progress.end();
    eprintln!("Results are in {}", folder.display());
    Ok(())
}
