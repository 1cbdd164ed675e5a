//! The daemon and its one-shot commands, as processes.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, SystemTime},
};

use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::{one_shot::OneShot, process, process::Process, settings::Settings, wait};

/// The program under test.
pub(super) const PROGRAM: &str = env!("CARGO_BIN_EXE_order-closer");

/// The daemon, running; dropping it kills it.
#[derive(Debug)]
pub struct Daemon {
    process: Process,
    /// Each with the moment at which it was read.
    lines: Arc<Mutex<Vec<(SystemTime, String)>>>,
    unread: Arc<AtomicBool>,
    reader: JoinHandle<()>,
    folder: TempDir,
}

impl Daemon {
    /// Starts `order-closer run` with these settings, which should ask for logs in JSON.
    #[must_use]
    pub fn start(settings: &Settings) -> Self {
        Self::started(settings, |_| {})
    }

    /// The same after a change of the command: another working directory, other environment variables, options, a file for its output.
    #[must_use]
    pub fn started(settings: &Settings, change: impl FnOnce(&mut Command)) -> Self {
        Self::of_program(Path::new(PROGRAM), settings, change)
    }

    /// The same of another version's program.
    #[must_use]
    pub fn of_program(program: &Path, settings: &Settings, change: impl FnOnce(&mut Command)) -> Self {
        let folder = process::folder();
        let mut command = command(program, settings, folder.path(), &["run"]);
        command.stdout(Stdio::null());
        change(&mut command);
        command.stderr(Stdio::piped());
        let process = Process::spawn("the daemon", command);
        let lines = Arc::new(Mutex::new(Vec::new()));
        let stderr = process.with(|child| child.stderr.take()).expect("standard error is a pipe");
        let (collected, unread) = (Arc::clone(&lines), Arc::new(AtomicBool::new(false)));
        let paused = Arc::clone(&unread);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                while paused.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(10));
                }
                collected.lock().unwrap_or_else(PoisonError::into_inner).push((SystemTime::now(), line));
            }
        });
        Self { process, lines, unread, reader, folder }
    }

    /// Its configuration file.
    pub fn config_file(&self) -> PathBuf {
        config_file(self.folder.path())
    }

    /// Leaves what it logs unread in its pipe, or reads on.
    pub fn leave_unread(&self, unread: bool) {
        self.unread.store(unread, Ordering::SeqCst);
    }

    /// What it has logged.
    pub fn lines(&self) -> Vec<String> {
        self.heard().into_iter().map(|(_, line)| line).collect()
    }

    /// What it has logged, each line with the moment at which it was read: the daemon's own clock may be wrong.
    pub fn heard(&self) -> Vec<(SystemTime, String)> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What it has logged that is JSON.
    pub fn records(&self) -> Vec<Value> {
        self.lines().iter().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// How many of its lines have this text.
    pub fn logged(&self, text: &str) -> usize {
        self.lines().iter().filter(|line| line.contains(text)).count()
    }

    /// Waits for a line with this text, and returns it; fails when the daemon ends before.
    pub async fn until_logged(&self, text: &str) -> String {
        self.until_line(&format!("the daemon has logged {text:?}"), |line| line.contains(text)).await
    }

    /// Waits for a line; fails when the daemon ends before.
    pub async fn until_line(&self, what: &str, is_it: impl Fn(&str) -> bool) -> String {
        wait::some(what, async || {
            // Looked at before the lines, so that the last words of a daemon that ends are still heard.
            let ended = self.process.ended().filter(|_| self.reader.is_finished());
            let found = self.lines().into_iter().find(|line| is_it(line));
            assert!(found.is_some() || ended.is_none(), "the daemon ended ({ended:?}) before {what}:\n{}", self.lines().join("\n"));
            found
        })
        .await
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// How it ended; `None` while it runs.
    pub fn ended(&self) -> Option<ExitStatus> {
        self.process.ended()
    }

    /// SIGTERM.
    pub fn terminate(&self) {
        self.process.signal(Signal::SIGTERM);
    }

    /// SIGINT.
    pub fn interrupt(&self) {
        self.process.signal(Signal::SIGINT);
    }

    /// Gives it this configuration file, and waits until it has read it; whether it goes on with it.
    pub async fn reload(&self, text: &str) -> bool {
        std::fs::write(self.config_file(), text).expect("a configuration file can be written");
        self.hang_up().await
    }

    /// SIGHUP, and waits until it has read its configuration; whether it goes on with it.
    pub async fn hang_up(&self) -> bool {
        const TAKEN: &str = "the configuration was read anew, and";
        let (taken, read) = (self.logged(TAKEN), self.logged("the configuration was read anew"));
        self.process.signal(Signal::SIGHUP);
        wait::until("the configuration was read", async || self.logged("the configuration was read anew") > read).await;
        self.logged(TAKEN) > taken
    }

    /// SIGKILL, and waits for its end.
    pub fn kill(&self) {
        self.process.kill();
    }

    /// SIGSTOP.
    pub fn freeze(&self) {
        self.process.signal(Signal::SIGSTOP);
    }

    /// SIGCONT.
    pub fn thaw(&self) {
        self.process.signal(Signal::SIGCONT);
    }

    /// Waits for its end, and for its last words.
    pub async fn wait(&self) -> ExitStatus {
        let status = self.process.wait().await;
        wait::until("the daemon's last words are read", async || self.reader.is_finished()).await;
        status
    }

    /// SIGTERM, and waits for its end, which must be a good one.
    pub async fn stop(&self) {
        self.terminate();
        let status = self.wait().await;
        assert!(status.success(), "the daemon ended with {status}:\n{}", self.lines().join("\n"));
    }

    /// The records with this message.
    pub fn said(&self, message: &str) -> Vec<Value> {
        self.records().into_iter().filter(|record| record["message"].as_str().is_some_and(|said| said.contains(message))).collect()
    }

    /// What it summed up when it stopped.
    pub fn summary(&self) -> Summary {
        let mut summaries = self.said("order-closer stopped");
        assert_eq!(summaries.len(), 1, "one summary at the end:\n{}", self.lines().join("\n"));
        Summary(summaries.remove(0))
    }

    /// Its resident memory in KiB.
    pub fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("the daemon runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a process has resident memory");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    /// The processor time that it has used.
    pub fn cpu_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("the daemon runs");
        // The name in parentheses may have spaces; user and system time are the 14th and 15th field, in 1/100 s.
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().expect("a number")).sum();
        Duration::from_millis(ticks * 10)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.leave_unread(false);
        if std::thread::panicking() {
            let lines = self.lines();
            let tail = &lines[lines.len().saturating_sub(200)..];
            eprintln!("--- the daemon ({:?}) logged:\n{}\n---", self.ended(), tail.join("\n"));
        }
    }
}

/// What a daemon did, by its own account.
#[derive(Debug, Clone)]
pub struct Summary(Value);

impl Summary {
    /// One of its counts.
    pub fn count(&self, name: &str) -> u64 {
        self.0[name].as_u64().unwrap_or_else(|| panic!("{name} is not counted: {}", self.0))
    }
}

/// What a command left behind.
#[derive(Debug, Clone)]
pub struct Finished {
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Its results.
    pub stdout: String,
    /// Its logs and progress.
    pub stderr: String,
}

impl Finished {
    /// Its results as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("not JSON: {error}\n{self:#?}"))
    }

    /// Panics unless it ended with this code.
    pub fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }
}

/// Runs a one-shot command, such as `["reconcile", "--json"]`, to its end.
pub async fn order_closer(settings: &Settings, arguments: &[&str]) -> Finished {
    OneShot::with(settings, arguments).run().await
}

fn config_file(folder: &Path) -> PathBuf {
    folder.join("order-closer.toml")
}

fn command(program: &Path, settings: &Settings, folder: &Path, arguments: &[&str]) -> Command {
    settings.write(&config_file(folder));
    let mut command = process::mortal(program);
    command.arg("--config").arg(config_file(folder)).args(arguments).current_dir(folder);
    without_foreign_settings(&mut command);
    command
}

/// What the developer has set for a daemon of his own is none of the tests' business.
pub(super) fn without_foreign_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ORDER_CLOSER_") {
            command.env_remove(name);
        }
    }
}
