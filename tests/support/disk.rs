//! A file system of a test's own, which can be full. Only root may make one.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use nix::{
    fcntl::{FallocateFlags, fallocate},
    sys::statvfs::statvfs,
    unistd,
};

use super::process;

/// A disk in memory; it goes with the test process.
#[derive(Debug)]
pub struct Disk {
    folder: PathBuf,
}

impl Disk {
    /// One that takes so much. None where this process may not mount anything.
    pub fn of_mebibytes(size: u32) -> Option<Self> {
        if !unistd::geteuid().is_root() {
            return None;
        }
        let folder = process::folder().keep();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={size}m,mode=755"), "tmpfs"]).arg(&folder).output();
        if !mounted.is_ok_and(|mounted| mounted.status.success()) {
            fs::remove_dir(&folder).ok();
            return None;
        }
        // Its standard input ends when this process does, however that ends.
        let end = "trap '' INT TERM HUP; cat; umount -l \"$1\"; rmdir \"$1\"";
        let mut undertaker = Command::new("sh");
        undertaker.args(["-c", end, "sh"]).arg(&folder).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        std::mem::forget(undertaker.spawn().expect("sh can be started"));
        Some(Self { folder })
    }

    /// A new folder there.
    pub fn folder(&self, name: &str) -> PathBuf {
        let folder = self.folder.join(name);
        fs::create_dir(&folder).expect("a folder can be made");
        folder
    }

    /// Leaves no room for anybody.
    pub fn fill(&self) {
        let ballast = fs::OpenOptions::new().create(true).append(true).open(self.ballast()).expect("a file can be made");
        // Whoever gives room back meanwhile gives it to this.
        while let Some(free) = self.free().filter(|free| *free > 0) {
            let length = i64::try_from(ballast.metadata().expect("a file has a length").len()).expect("it is small");
            if fallocate(&ballast, FallocateFlags::empty(), length, free).is_err() {
                return;
            }
        }
    }

    /// Makes room again.
    pub fn empty(&self) {
        if let Err(error) = fs::remove_file(self.ballast()) {
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        }
    }

    fn ballast(&self) -> PathBuf {
        self.folder.join("ballast")
    }

    fn free(&self) -> Option<i64> {
        let state = statvfs(Path::new(&self.folder)).ok()?;
        i64::try_from(state.blocks_available() * state.fragment_size()).ok()
    }
}
