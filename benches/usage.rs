//! What processes use of the machine, by /proc.

use std::time::Duration;

use procfs::{ProcResult, process::Process};

/// The processor time that a process and its children have used, those that have ended included.
pub fn processor_time(pid: u32) -> Duration {
    let ticks = ticks(pid).unwrap_or_else(|error| panic!("process {pid} can't be looked at: {error}"));
    Duration::from_millis(ticks * 1_000 / procfs::ticks_per_second())
}

fn ticks(pid: u32) -> ProcResult<u64> {
    let process = Process::new(pid.cast_signed())?;
    let stat = process.stat()?;
    let ended = u64::try_from(stat.cutime + stat.cstime).unwrap_or_default();
    // A child that ends just now is counted with the ended ones the next time.
    let children: u64 = process.task_main_thread()?.children()?.into_iter().filter_map(|child| ticks(child).ok()).sum();
    Ok(stat.utime + stat.stime + ended + children)
}

/// The share of one core that `used` within `window` is, in per cent.
pub fn percent(used: Duration, window: Duration) -> f64 {
    100.0 * used.as_secs_f64() / window.as_secs_f64()
}
