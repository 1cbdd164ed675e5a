//! A file system of a test's own, which can be full. Only root may make one.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use nix::{sys::statvfs::statvfs, unistd};

use super::{process, wait};

/// A disk in memory; it goes with the test process.
#[derive(Debug)]
pub struct Disk {
    folder: PathBuf,
    /// In bytes.
    size: u64,
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
        Some(Self { folder, size: u64::from(size) * 1_024 * 1_024 })
    }

    /// A new folder there.
    pub fn folder(&self, name: &str) -> PathBuf {
        let folder = self.folder.join(name);
        fs::create_dir(&folder).expect("a folder can be made");
        folder
    }

    /// Leaves no room for anybody: it becomes as small as what is on it. A file in its place would take the machine's memory.
    pub fn fill(&self) {
        wait::blocking("the disk is full", || Ok(self.resize(self.used()))).expect("it can be resized");
    }

    /// Makes room again.
    pub fn empty(&self) {
        assert!(self.resize(self.size), "a disk can grow");
    }

    /// Whether it takes so many bytes in all from now on: no fewer than are on it.
    fn resize(&self, size: u64) -> bool {
        let resized = Command::new("mount").args(["-o", &format!("remount,size={size}")]).arg(&self.folder).output();
        resized.is_ok_and(|resized| resized.status.success())
    }

    fn used(&self) -> u64 {
        let state = statvfs(Path::new(&self.folder)).expect("a disk has a state");
        (state.blocks() - state.blocks_free()) * state.fragment_size()
    }
}
