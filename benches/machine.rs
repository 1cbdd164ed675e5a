//! The machine and the servers on it.

use std::{io::Write, path::Path, time::Instant};

use procfs::{CpuInfo, Current, Meminfo};
use serde::{Deserialize, Serialize};

use crate::{options::Base, servers, servers::Server, support::process};

/// What figures depend on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// Processor cores that we may use.
    pub cores: usize,
    /// The processor, by its own name.
    pub processor: String,
    /// Memory.
    pub memory_gib: f64,
    /// The kernel's release.
    pub kernel: String,
    /// How long the disk takes to write 8 KiB for good, in the median: what each commit waits for.
    pub flush_ms: f64,
    /// The servers, and order-closer.
    pub versions: Vec<String>,
}

impl Machine {
    /// Looks at it; starts each server once.
    pub async fn look() -> Self {
        let processors = CpuInfo::current().expect("/proc/cpuinfo can be read");
        let memory = Meminfo::current().expect("/proc/meminfo can be read");
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            processor: processors.model_name(0).unwrap_or("unknown").to_owned(),
            memory_gib: (memory.mem_total as f64 / f64::from(1 << 30) * 10.0).round() / 10.0,
            kernel: process::read(Path::new("/proc/sys/kernel/osrelease")).trim().to_owned(),
            flush_ms: flush_ms(),
            versions: versions().await,
        }
    }
}

async fn versions() -> Vec<String> {
    let info = servers::redis().command(&["INFO", "server"]).text();
    let redis = info.lines().find_map(|line| line.strip_prefix("redis_version:")).unwrap_or("of unknown version");
    let mut versions = vec![format!("order-closer {}", env!("CARGO_PKG_VERSION")), format!("Redis {redis}")];
    for (base, sql) in [
        (Base::Postgres, "SELECT current_setting('server_version')"),
        (Base::Mariadb, "SELECT version()"),
        (Base::Sqlite, "SELECT sqlite_version()"),
    ] {
        let version = Server::start(base).shop(None).await.database.text(sql).await.unwrap_or_default();
        // Without what a distribution appends.
        versions.push(format!("{} {}", base.name(), version.split([' ', '-']).next().unwrap_or_default()));
    }
    versions
}

/// In the folder where the servers' files are.
fn flush_ms() -> f64 {
    let mut file = tempfile::tempfile().expect("a temporary file can be made");
    let mut times: Vec<f64> = (0..200)
        .map(|_| {
            let began = Instant::now();
            file.write_all(&[1; 8_192]).and_then(|()| file.sync_data()).expect("a temporary file can be written");
            began.elapsed().as_secs_f64() * 1_000.0
        })
        .collect();
    times.sort_unstable_by(f64::total_cmp);
    (times[100] * 100.0).round() / 100.0
}

/// Panics when temporary files are in memory: a database there would never wait for a disk.
pub fn assert_temporary_files_are_on_disk() {
    let folder = std::env::temp_dir();
    let system = nix::sys::statfs::statfs(&folder).expect("the temporary folder can be looked at");
    assert!(
        system.filesystem_type() != nix::sys::statfs::TMPFS_MAGIC,
        "TMPDIR is {}, which is in memory: databases there never wait for a disk, and the figures would mean nothing; set TMPDIR to a folder on a disk",
        folder.display()
    );
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { cores, processor, memory_gib, kernel, flush_ms, versions } = self;
        write!(
            f,
            "{cores} cores of {processor}, {memory_gib} GiB of memory, Linux {kernel}, a flush to disk takes {flush_ms} ms; {}.",
            versions.join(", ")
        )
    }
}
