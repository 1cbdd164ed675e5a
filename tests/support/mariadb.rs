//! A MariaDB server, or a MySQL in its place: one for all tests, or one of a test's own that may be killed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, LazyLock},
};

use nix::{
    sys::signal::Signal,
    unistd::{Uid, User},
};
use tempfile::TempDir;

use super::{ports, process, process::Process, wait};

/// Names a folder with another `mariadbd`, or a `mysqld` of MySQL, than the installed one.
const PROGRAMS: &str = "COMPAT_MARIADB";

/// How a MariaDB is to be started.
#[derive(Debug, Clone, Default)]
pub struct Options {
    arguments: Vec<String>,
    /// Where its log of changes is, if it has one.
    log: Option<Arc<TempDir>>,
}

impl Options {
    /// One more argument, such as `--lower-case-table-names=1`.
    #[must_use]
    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// The zone of sessions that choose none, such as `+08:00`; UTC otherwise.
    #[must_use]
    pub fn time_zone(self, zone: &str) -> Self {
        self.argument(&format!("--default-time-zone={zone}"))
    }

    /// A standby may be made of it. Its log of changes has a place of its own, as where disks are small.
    #[must_use]
    pub fn replicated(mut self) -> Self {
        self.log = Some(Arc::new(process::folder()));
        self.argument("--binlog-format=ROW").argument("--log-slave-updates")
    }

    /// As MariaDB comes, in what makes it slower and safer than a test needs it.
    #[must_use]
    pub fn durable(self) -> Self {
        self.argument("--innodb-flush-log-at-trx-commit=1").argument("--innodb-buffer-pool-size=128M").argument("--loose-userstat=0")
    }

    /// Starts it with all its files in this folder.
    #[must_use]
    pub fn start_in(self, home: PathBuf) -> MariaDb {
        MariaDb::new(self, home, None)
    }

    /// Starts it.
    #[must_use]
    pub fn start(self) -> MariaDb {
        let folder = process::folder();
        let home = folder.path().to_owned();
        MariaDb::new(self, home, Some(folder))
    }
}

/// A running MariaDB; dropping it kills it.
#[derive(Debug)]
pub struct MariaDb {
    options: Options,
    home: PathBuf,
    port: u16,
    process: Process,
    _folder: Option<TempDir>,
}

static SHARED: LazyLock<MariaDb> = LazyLock::new(|| MariaDb::new(Options::default(), process::lasting_folder(), None));

impl MariaDb {
    /// The server of all tests, in UTC. Nobody may stop it or change its settings.
    pub fn shared() -> &'static Self {
        &SHARED
    }

    /// A server of the test's own.
    #[must_use]
    pub fn options() -> Options {
        Options::default()
    }

    fn new(options: Options, home: PathBuf, folder: Option<TempDir>) -> Self {
        let mut install = if is_mysql() { initialize_mysql(&home) } else { install_mariadb() };
        install.arg(user_argument()).arg(format!("--datadir={}", home.join("data").display())).arg(format!("--tmpdir={}", home.display()));
        process::run("the installation of a database", install);
        let (process, port) = ports::with_free("mariadbd", |port| Ok((launch(&options, &home, port)?, port)));
        Self { options, home, port, process, _folder: folder }
    }

    /// The URL of a database; `mysql` is always there.
    pub fn url(&self, database: &str) -> String {
        format!("mysql://root@127.0.0.1:{}/{database}", self.port)
    }

    /// Where its files are.
    pub fn data(&self) -> PathBuf {
        self.home.join("data")
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether it runs: one that can't write ends by itself.
    pub fn is_running(&self) -> bool {
        self.process.ended().is_none()
    }

    /// The process id of the server.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        process::read(&self.home.join("log"))
    }

    /// `kill -9`.
    pub fn kill(&self) {
        self.process.kill();
    }

    /// SIGSTOP: connections stay open and nothing answers.
    pub fn freeze(&self) {
        self.process.signal(Signal::SIGSTOP);
    }

    /// SIGCONT.
    pub fn thaw(&self) {
        self.process.signal(Signal::SIGCONT);
    }

    /// Starts it again on the same port with the same data.
    pub fn start_again(&mut self) {
        self.kill();
        self.process = launch(&self.options, &self.home, self.port).unwrap_or_else(|error| panic!("MariaDB does not start again: {error}"));
    }

    /// Ends it in good order, and starts it again on the same port with the same data, of which it changes nothing.
    pub fn start_read_only(&mut self) {
        self.process.signal(Signal::SIGTERM);
        wait::blocking("MariaDB ends", || Ok(self.process.ended().is_some())).expect("it does");
        let options = self.options.clone().argument("--innodb-read-only=1");
        self.process = launch(&options, &self.home, self.port).unwrap_or_else(|error| panic!("MariaDB does not start again: {error}"));
    }

    /// A server with the same data, as this one has them on its disk while it stands still for a moment. It is yet to be told
    /// whom it follows.
    #[must_use]
    pub fn copy(&self) -> Self {
        let folder = process::folder();
        let home = folder.path().to_owned();
        let options = self.options.clone().replicated();
        let logs = [&self.options, &options].map(|options| options.log.as_deref().expect("replicated").path());
        self.freeze();
        self.until_still();
        process::copy(&self.home.join("data"), &home.join("data"));
        process::copy(logs[0], logs[1]);
        self.thaw();
        // The log's index names files by their whole paths.
        let index = process::read(&logs[1].join("binlog.index"));
        let own = index.replace(&logs[0].display().to_string(), &logs[1].display().to_string());
        fs::write(logs[1].join("binlog.index"), own).expect("a file can be written");
        let (process, port) = ports::with_free("mariadbd", |port| Ok((launch(&options, &home, port)?, port)));
        Self { options, home, port, process, _folder: Some(folder) }
    }

    /// Waits until none of its threads does anything any more, after [`MariaDb::freeze`].
    fn until_still(&self) {
        let threads = || fs::read_dir(format!("/proc/{}/task", self.pid())).into_iter().flatten().flatten();
        let is_still = || threads().all(|thread| process::read(&thread.path().join("status")).contains("State:\tT"));
        wait::blocking("mariadbd stands still", || Ok(is_still())).expect("it does");
    }

    /// The statements that make these zones of the tz database known to the server.
    pub fn time_zone_tables(zones: &[&str]) -> String {
        let program = if is_mysql() {
            process::find_server(PROGRAMS, &["mysql_tzinfo_to_sql"])
        } else {
            process::find_program(&["mariadb-tzinfo-to-sql", "mysql_tzinfo_to_sql"])
        };
        let load = |zone: &&str| {
            let mut command = Command::new(&program);
            command.arg(format!("/usr/share/zoneinfo/{zone}")).arg(zone);
            process::run("mariadb-tzinfo-to-sql", command)
        };
        zones.iter().map(load).collect()
    }
}

/// Without being told, `mariadbd` refuses to run as root.
fn user_argument() -> String {
    let user = User::from_uid(Uid::effective()).ok().flatten().expect("the user has a name");
    format!("--user={}", user.name)
}

fn server() -> PathBuf {
    process::find_server(PROGRAMS, &["mariadbd", "mysqld"])
}

/// Whether the server is MySQL. MariaDB's own `mysqld` is a link to `mariadbd`, which stands beside it.
pub fn is_mysql() -> bool {
    server().file_name().is_some_and(|name| name == "mysqld")
}

fn install_mariadb() -> Command {
    let mut install = process::mortal(process::find_server(PROGRAMS, &["mariadb-install-db", "mysql_install_db"]));
    install.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
    install
}

/// MySQL makes a root of `localhost` alone, who is nobody on a connection by TCP without a look-up of names.
fn initialize_mysql(home: &Path) -> Command {
    let statements = home.join("users.sql");
    let users = "CREATE USER root@127.0.0.1 IDENTIFIED BY '';\nGRANT ALL ON *.* TO root@127.0.0.1 WITH GRANT OPTION;\n";
    fs::write(&statements, users).expect("a file can be written");
    let mut initialize = process::mortal(server());
    initialize.args(["--no-defaults", "--initialize-insecure"]).arg(format!("--init-file={}", statements.display()));
    initialize
}

fn launch(options: &Options, home: &Path, port: u16) -> Result<Process, String> {
    let log = home.join("log");
    fs::remove_file(&log).ok();
    let mut command = process::mortal(server());
    command.current_dir(home).args([
        "--no-defaults".into(),
        user_argument(),
        format!("--datadir={}", home.join("data").display()),
        // A server that starts deletes the temporary tables of every other server that uses the same folder.
        format!("--tmpdir={}", home.display()),
        format!("--socket={}", home.join("sock").display()),
        format!("--pid-file={}", home.join("pid").display()),
        format!("--port={port}"),
        "--bind-address=127.0.0.1".into(),
        "--skip-name-resolve".into(),
        "--max-connections=500".into(),
        "--default-time-zone=+00:00".into(),
        "--character-set-server=utf8mb4".into(),
        "--innodb-buffer-pool-size=64M".into(),
        // Counts the rows read of each table; MySQL has nothing like it.
        "--loose-userstat=1".into(),
        // MySQL alone: another port, which would have to be free, and a log for replicas, which forbids what tests create.
        "--loose-mysqlx=0".into(),
        "--skip-log-bin".into(),
        // A killed process loses nothing by this, only a killed machine would.
        "--innodb-flush-log-at-trx-commit=2".into(),
    ]);
    if let Some(log) = &options.log {
        // Ports are as different as servers are.
        command.arg(format!("--log-bin={}", log.path().join("binlog").display())).arg(format!("--server-id={port}"));
    }
    command.args(&options.arguments);
    process::log_to(&mut command, &log);
    let process = Process::spawn("mariadbd", command);
    // Its own log tells; whoever answers on the port might be somebody else's server.
    wait::blocking("mariadbd is ready", || match process.ended() {
        Some(status) => Err(format!("{status}\n{}", process::read(&log))),
        None => Ok(process::read(&log).contains("ready for connections")),
    })?;
    Ok(process)
}
