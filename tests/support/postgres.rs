//! A PostgreSQL server: one for all tests, or one of a test's own that may be killed.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use nix::{
    sys::signal::Signal,
    unistd::{self, Pid, User},
};

use super::{ports, process, process::Process, wait};

/// Names a folder with another `postgres` and `initdb` than the installed ones.
const PROGRAMS: &str = "COMPAT_POSTGRES";

/// How a PostgreSQL is to be started.
#[derive(Debug, Clone, Default)]
pub struct Options {
    settings: Vec<String>,
    time_zone: Option<String>,
    logins: Option<String>,
}

impl Options {
    /// What is in `pg_hba.conf`, instead of letting in everybody; `postgres` is let in besides.
    #[must_use]
    pub fn logins(mut self, lines: &str) -> Self {
        self.logins = Some(lines.into());
        self
    }

    /// One more setting of `postgresql.conf`, such as `log_statement=all`.
    #[must_use]
    pub fn setting(mut self, setting: &str) -> Self {
        self.settings.push(setting.into());
        self
    }

    /// The zone of sessions that choose none; UTC otherwise.
    #[must_use]
    pub fn time_zone(mut self, zone: &str) -> Self {
        self.time_zone = Some(zone.into());
        self
    }

    /// As PostgreSQL comes, in what makes it slower and safer than a test needs it.
    #[must_use]
    pub fn durable(self) -> Self {
        self.setting("fsync=on").setting("autovacuum=on")
    }

    /// Starts it with all its files in this folder.
    #[must_use]
    pub fn start_in(self, home: PathBuf) -> Postgres {
        Postgres::new(self, home, None)
    }

    /// Starts it.
    #[must_use]
    pub fn start(self) -> Postgres {
        let folder = process::folder();
        let home = folder.path().to_owned();
        Postgres::new(self, home, Some(folder))
    }
}

/// A running PostgreSQL; dropping it kills it.
#[derive(Debug)]
pub struct Postgres {
    options: Options,
    home: PathBuf,
    port: u16,
    process: Process,
    _folder: Option<tempfile::TempDir>,
}

static SHARED: LazyLock<Postgres> = LazyLock::new(|| Postgres::new(Options::default(), process::lasting_folder(), None));

impl Postgres {
    /// The server of all tests, in UTC. Nobody may stop it or change its settings.
    pub fn shared() -> &'static Self {
        &SHARED
    }

    /// A server of the test's own.
    #[must_use]
    pub fn options() -> Options {
        Options::default()
    }

    fn new(options: Options, home: PathBuf, folder: Option<tempfile::TempDir>) -> Self {
        give_away(&home);
        let mut initdb = process::mortal_as(user_name().as_deref(), process::find_server(PROGRAMS, &["initdb"]));
        initdb.current_dir(&home).arg("-D").arg(home.join("data"));
        initdb.args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]);
        process::run("initdb", initdb);
        // Not an argument, which no ALTER SYSTEM could change.
        let zone = options.time_zone.as_deref().unwrap_or("UTC");
        let mut file = fs::OpenOptions::new().append(true).open(home.join("data/postgresql.conf")).expect("initdb has written it");
        writeln!(file, "timezone = '{zone}'").expect("it takes a line");
        if let Some(logins) = &options.logins {
            let lines = format!("host all postgres 127.0.0.1/32 trust\n{logins}\n");
            fs::write(home.join("data/pg_hba.conf"), lines).expect("initdb has written it");
        }
        let (process, port) = ports::with_free("postgres", |port| Ok((launch(&options, &home, port)?, port)));
        Self { options, home, port, process, _folder: folder }
    }

    /// A hot standby of this server, which streams from it.
    #[must_use]
    pub fn standby(&self) -> Self {
        let folder = process::folder();
        let home = folder.path().to_owned();
        give_away(&home);
        let mut backup = process::mortal_as(user_name().as_deref(), process::find_server(PROGRAMS, &["pg_basebackup"]));
        backup.current_dir(&home).arg("-D").arg(home.join("data"));
        backup.args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", "postgres", "-c", "fast", "-X", "stream", "-R", "--no-sync"]);
        process::run("pg_basebackup", backup);
        let options = self.options.clone();
        let (process, port) = ports::with_free("postgres", |port| Ok((launch(&options, &home, port)?, port)));
        Self { options, home, port, process, _folder: Some(folder) }
    }

    /// Ends it as its operator would; whatever was committed has been sent to its standby before.
    pub fn end(&self) {
        self.process.signal(Signal::SIGINT);
        wait::blocking("postgres ends", || Ok(self.process.ended().is_some())).expect("it ends");
    }

    /// Starts it again on the same port, as a standby that follows nobody.
    pub fn start_as_standby(&mut self) {
        fs::write(self.home.join("data/standby.signal"), "").expect("a file can be written");
        give_away(&self.home.join("data/standby.signal"));
        self.start_again();
    }

    /// The URL of a database; `postgres` is always there.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// Where its files are.
    pub fn data(&self) -> PathBuf {
        self.home.join("data")
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process id of the server; its sessions are its children.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Whether it runs: one that can't write ends by itself.
    pub fn is_running(&self) -> bool {
        self.process.ended().is_none()
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        process::read(&self.home.join("log"))
    }

    /// `kill -9` of the server; its sessions end with it.
    pub fn kill(&self) {
        self.process.kill();
    }

    /// SIGSTOP of the server and all of its sessions: connections stay open and nothing answers.
    pub fn freeze(&self) {
        // The first process first, so that it starts no more sessions.
        self.process.signal(Signal::SIGSTOP);
        self.sessions(Signal::SIGSTOP);
    }

    /// SIGCONT.
    pub fn thaw(&self) {
        self.sessions(Signal::SIGCONT);
        self.process.signal(Signal::SIGCONT);
    }

    fn sessions(&self, signal: Signal) {
        let pid = self.process.pid();
        for child in process::read(Path::new(&format!("/proc/{pid}/task/{pid}/children"))).split_whitespace() {
            let child = Pid::from_raw(child.parse().expect("a process id"));
            // It may have ended, but its number is not given away before its parent has noticed, which stands still.
            nix::sys::signal::kill(child, signal).ok();
        }
    }

    /// Starts it again on the same port with the same data.
    pub fn start_again(&mut self) {
        self.kill();
        let mut failure = String::new();
        // The killed server's sessions need a moment to notice, and hold its shared memory until then.
        let restarted = wait::blocking("postgres starts again", || match launch(&self.options, &self.home, self.port) {
            Ok(process) => {
                self.process = process;
                Ok(true)
            }
            Err(error) => {
                failure = error;
                Ok(false)
            }
        });
        restarted.unwrap_or_else(|error| panic!("{error}:\n{failure}"));
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // A frozen session would not notice that its server is gone.
        self.thaw();
    }
}

/// `initdb`, `postgres` and `pgbouncer` refuse to run as root.
fn other_user() -> Option<User> {
    unistd::geteuid().is_root().then(|| {
        let found = ["postgres", "nobody"].iter().find_map(|name| User::from_name(name).ok().flatten());
        found.expect("there is a user postgres or nobody")
    })
}

/// Gives a folder to that user.
pub(super) fn give_away(folder: &Path) {
    if let Some(user) = &other_user() {
        std::os::unix::fs::chown(folder, Some(user.uid.as_raw()), Some(user.gid.as_raw())).expect("root may give a folder away");
    }
}

/// That user's name, for [`process::mortal_as`].
pub(super) fn user_name() -> Option<String> {
    other_user().map(|user| user.name)
}

fn launch(options: &Options, home: &Path, port: u16) -> Result<Process, String> {
    let (data, log) = (home.join("data"), home.join("log"));
    fs::remove_file(&log).ok();
    let mut command = process::mortal_as(user_name().as_deref(), process::find_server(PROGRAMS, &["postgres"]));
    command.current_dir(home).arg("-D").arg(&data);
    let settings = [
        format!("port={port}"),
        "listen_addresses=127.0.0.1".into(),
        format!("unix_socket_directories={}", home.display()),
        "max_connections=300".into(),
        // A killed process loses nothing by this, only a killed machine would.
        "fsync=off".into(),
        "autovacuum=off".into(),
        "log_line_prefix=%m [%p] %a ".into(),
    ];
    for setting in settings.iter().chain(&options.settings) {
        command.args(["-c", setting]);
    }
    process::log_to(&mut command, &log);
    let process = Process::spawn("postgres", command);
    let pid = process.pid().to_string();
    wait::blocking("postgres is ready", || match process.ended() {
        Some(status) => Err(format!("{status}\n{}", process::read(&log))),
        None => {
            // Line 1 is the server's process, line 8 its state; a killed server's file may still be there.
            let file = process::read(&data.join("postmaster.pid"));
            let lines: Vec<&str> = file.lines().map(str::trim).collect();
            Ok(lines.first() == Some(&pid.as_str()) && lines.get(7).is_some_and(|state| ["ready", "standby"].contains(state)))
        }
    })?;
    Ok(process)
}
