//! Child processes that can't outlive the tests.

use std::{
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{LazyLock, Mutex, PoisonError, mpsc},
};

use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};
use tempfile::TempDir;

use super::wait;

/// Everything that tests create on disk has this in its name.
const PREFIX: &str = "order-closer-test-";

type Order = (Command, mpsc::Sender<io::Result<Child>>);

/// The death signal of a child follows the *thread* that spawned it, and a test's thread ends with the
/// test. So one thread spawns all children and never ends.
static NURSERY: LazyLock<Mutex<mpsc::Sender<Order>>> = LazyLock::new(|| {
    let (orders, inbox) = mpsc::channel::<Order>();
    std::thread::spawn(move || {
        for (mut command, answer) in inbox {
            answer.send(command.spawn()).ok();
        }
    });
    Mutex::new(orders)
});

/// A command whose process is killed when the test process ends, however it ends.
pub fn mortal(program: impl AsRef<OsStr>) -> Command {
    mortal_as(None, program)
}

/// The same, as another user.
pub fn mortal_as(user: Option<&str>, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.arg("--pdeathsig=KILL");
    if let Some(user) = user {
        command.args([format!("--reuid={user}"), format!("--regid={user}"), "--clear-groups".into()]);
    }
    command.arg("--").arg(program).stdin(Stdio::null());
    command
}

/// A running child; dropping it kills it.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Mutex<Child>,
}

impl Process {
    /// Starts a command made by [`mortal`].
    pub fn spawn(name: &str, command: Command) -> Self {
        let (answer, started) = mpsc::channel();
        NURSERY.lock().unwrap_or_else(PoisonError::into_inner).send((command, answer)).expect("the nursery never ends");
        let child = started.recv().expect("the nursery answers").unwrap_or_else(|error| panic!("{name} can't be started: {error}"));
        Self { name: name.into(), child: Mutex::new(child) }
    }

    fn child(&self) -> std::sync::MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the child's pipes.
    pub fn with<T>(&self, work: impl FnOnce(&mut Child) -> T) -> T {
        work(&mut self.child())
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child().id()
    }

    /// How it ended; `None` while it runs.
    pub fn ended(&self) -> Option<ExitStatus> {
        self.child().try_wait().expect("a child can be waited for")
    }

    /// Sends a signal, if it still runs.
    pub fn signal(&self, signal: Signal) {
        // A child that has not been waited for keeps its number, so the signal can't reach a stranger.
        let mut child = self.child();
        if child.try_wait().expect("a child can be waited for").is_none() {
            let pid = Pid::from_raw(i32::try_from(child.id()).expect("a process id fits"));
            signal::kill(pid, signal).unwrap_or_else(|error| panic!("{signal} can't be sent to {}: {error}", self.name));
        }
    }

    /// `kill -9`, and waits for its end.
    pub fn kill(&self) -> ExitStatus {
        let mut child = self.child();
        // PostgreSQL's sessions are processes of their own, and may commit before they notice.
        let sessions = fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap_or_default();
        child.kill().expect("a child can be killed");
        for session in sessions.split_whitespace().filter_map(|pid| pid.parse().ok()) {
            // It may have ended by itself.
            let _ended = signal::kill(Pid::from_raw(session), Signal::SIGKILL);
        }
        child.wait().expect("a child can be waited for")
    }

    /// Waits for its end.
    pub async fn wait(&self) -> ExitStatus {
        wait::some(&format!("{} ends", self.name), async || self.ended()).await
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs a command to its end, and panics with what it said unless it succeeds.
pub fn run(name: &str, mut command: Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{name} can't be started: {error}"));
    assert!(
        output.status.success(),
        "{name} failed ({}):\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A temporary folder.
pub fn folder() -> TempDir {
    tempfile::Builder::new().prefix(PREFIX).tempdir().expect("a temporary folder can be made")
}

/// A temporary folder that goes with the test process instead of a value: statics are never dropped.
pub fn lasting_folder() -> PathBuf {
    let path = folder().keep();
    let mut command = Command::new("sh");
    // Its standard input ends when this process does. A server that is just dying may still write files.
    command
        .args(["-c", "trap '' INT TERM HUP; cat; for _ in 1 2 3 4 5; do rm -rf \"$1\" && break; sleep 1; done", "sh"])
        .arg(&path)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let child = command.spawn().expect("sh can be started");
    std::mem::forget(child);
    path
}

/// Finds a program in PATH and in the places where distributions hide servers.
pub fn find_program(names: &[&str]) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let mut versions: Vec<PathBuf> =
        fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|entry| entry.path().join("bin")).collect();
    versions.sort();
    folders.extend(versions.into_iter().rev());
    folders.extend(["/usr/sbin", "/usr/local/sbin", "/usr/libexec"].map(PathBuf::from));
    for name in names {
        if let Some(found) = folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file()) {
            return found;
        }
    }
    panic!("none of {names:?} is installed; tests need redis-server, postgresql, pgbouncer and mariadb-server");
}

/// Finds a server's program in the folder that this environment variable names, for tests of other versions than the
/// installed one; without the variable, as [`find_program`] does.
pub fn find_server(variable: &str, names: &[&str]) -> PathBuf {
    let Some(folder) = std::env::var_os(variable).filter(|folder| !folder.is_empty()) else {
        return find_program(names);
    };
    let found = names.iter().map(|name| Path::new(&folder).join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("none of {names:?} is in {variable}={}", Path::new(&folder).display()))
}

/// Sends what a server says to a file, so that a failure can show it.
pub fn log_to(command: &mut Command, log: &Path) {
    let open = || fs::OpenOptions::new().create(true).append(true).open(log).expect("a log file can be opened");
    command.stdout(open()).stderr(open());
}

/// The file's text, or what there is of it.
pub fn read(path: &Path) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// Copies a folder with all that is in it, with owners and rights.
pub fn copy(from: &Path, to: &Path) {
    let mut cp = Command::new("cp");
    cp.arg("--archive").arg("--no-target-directory").arg(from).arg(to);
    run("cp", cp);
}
