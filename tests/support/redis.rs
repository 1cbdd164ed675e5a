//! A Redis server for one test: its notification setting is server-wide.

mod changes;
mod client;
mod cluster;
mod flood;
mod impostor;
mod trio;

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use nix::sys::signal::Signal;
use tempfile::TempDir;

pub use client::Reply;
pub use cluster::{Cluster, slot};
pub use flood::Flood;
pub use impostor::Impostor;
pub use trio::{Safety, Trio};

use client::Connection;

use super::{ports, process, process::Process, wait};

/// Names a folder with another `redis-server` or `valkey-server` than the installed one.
const PROGRAMS: &str = "COMPAT_REDIS";

/// What a started server still has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// What was last saved.
    Data,
    /// Nothing.
    Nothing,
}

/// How a Redis is to be started.
#[derive(Debug, Clone, Default)]
pub struct Options {
    lines: Vec<String>,
    password: Option<String>,
    socket: bool,
    tls: bool,
    certificates: Option<PathBuf>,
    sentinel: bool,
    data: Option<PathBuf>,
}

impl Options {
    /// One more line of `redis.conf`.
    #[must_use]
    pub fn config(mut self, line: &str) -> Self {
        self.lines.push(line.into());
        self
    }

    /// With `notify-keyspace-events Ex`, as an operator would have set it.
    #[must_use]
    pub fn with_notifications(self) -> Self {
        self.config("notify-keyspace-events Ex")
    }

    /// Saves now and then by itself, as Redis does by default.
    #[must_use]
    pub fn saving(self) -> Self {
        self.config("save 3600 1 300 100 60 10000")
    }

    /// The default user needs this password.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Listens on a Unix socket too.
    #[must_use]
    pub fn socket(mut self) -> Self {
        self.socket = true;
        self
    }

    /// Listens with TLS too, under a certificate for 127.0.0.1 and localhost of an authority of its own.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Listens with TLS too, under the certificate of another.
    #[must_use]
    pub fn tls_like(mut self, other: &Redis) -> Self {
        self.tls = true;
        self.certificates = Some(other.folder.path().to_owned());
        self
    }

    /// Its data are in this folder.
    #[must_use]
    pub fn data(mut self, folder: PathBuf) -> Self {
        self.data = Some(folder);
        self
    }

    /// As a sentinel, which has no keys.
    #[must_use]
    pub fn sentinel(mut self) -> Self {
        self.sentinel = true;
        self
    }

    /// Starts it.
    #[must_use]
    pub fn start(self) -> Redis {
        let folder = process::folder();
        match &self.certificates {
            Some(from) => {
                for file in ["ca.pem", "server.pem", "server.key"] {
                    std::fs::copy(from.join(file), folder.path().join(file)).expect("a file can be copied");
                }
            }
            None if self.tls => make_certificates(folder.path()),
            None => {}
        }
        let tls_port = self.tls.then(ports::free);
        let (process, port) = ports::with_free("redis-server", |port| Ok((launch(&self, folder.path(), port, tls_port)?, port)));
        Redis { options: self, port, tls_port, process, folder, client: Mutex::new(None), frozen: Mutex::new(false) }
    }
}

/// A running Redis; dropping it kills it.
#[derive(Debug)]
pub struct Redis {
    options: Options,
    port: u16,
    tls_port: Option<u16>,
    process: Process,
    folder: TempDir,
    client: Mutex<Option<Connection>>,
    frozen: Mutex<bool>,
}

impl Redis {
    /// Starts one with Redis's defaults: without notifications, and saving nothing by itself.
    #[must_use]
    pub fn start() -> Self {
        Self::options().start()
    }

    /// Starts one otherwise.
    #[must_use]
    pub fn options() -> Options {
        Options::default()
    }

    /// Its URL, with the password, if it has one.
    pub fn url(&self) -> String {
        format!("redis://{}127.0.0.1:{}", self.login(), self.port)
    }

    /// The URL of one of its databases.
    pub fn url_of(&self, database: u8) -> String {
        format!("{}/{database}", self.url())
    }

    /// The URL for a user of its own, such as one made by `ACL SETUSER`.
    pub fn url_as(&self, user: &str, password: &str) -> String {
        format!("redis://{user}:{password}@127.0.0.1:{}", self.port)
    }

    /// The URL of its socket.
    pub fn socket_url(&self) -> String {
        assert!(self.options.socket, "started without a socket");
        format!("redis+unix://{}{}", self.login(), self.folder.path().join("redis.sock").display())
    }

    /// The URL of its TLS port.
    pub fn tls_url(&self) -> String {
        format!("rediss://{}localhost:{}", self.login(), self.tls_port.expect("started with TLS"))
    }

    /// The authority that signed its certificate.
    pub fn ca_file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    fn login(&self) -> String {
        self.options.password.as_ref().map_or_else(String::new, |password| format!(":{password}@"))
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its TLS port.
    pub fn tls_port(&self) -> u16 {
        self.tls_port.expect("started with TLS")
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        process::read(&self.folder.path().join("redis.log"))
    }

    /// `kill -9`.
    pub fn kill(&self) {
        self.process.kill();
        self.disconnect();
    }

    /// SIGSTOP: connections stay open and nothing answers.
    pub fn freeze(&self) {
        *self.frozen.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.process.signal(Signal::SIGSTOP);
    }

    /// SIGCONT.
    pub fn thaw(&self) {
        self.process.signal(Signal::SIGCONT);
        *self.frozen.lock().unwrap_or_else(PoisonError::into_inner) = false;
    }

    /// Starts it again on the same port, after [`Redis::kill`].
    pub fn start_again(&mut self, keep: Keep) {
        self.kill();
        if keep == Keep::Nothing {
            let data = self.options.data.as_deref().unwrap_or(self.folder.path());
            std::fs::remove_file(data.join("dump.rdb")).ok();
            std::fs::remove_dir_all(data.join("appendonlydir")).ok();
        }
        self.process = launch(&self.options, self.folder.path(), self.port, self.tls_port)
            .unwrap_or_else(|failure| panic!("Redis does not start again on port {}: {failure}", self.port));
    }

    /// Kills it and starts it again on the same port without data, and with its notification setting as in its options.
    pub fn restart_empty(&mut self) {
        self.start_again(Keep::Nothing);
    }

    /// Saves, kills it, and starts it again on the same port with the same data.
    pub fn restart_with_data(&mut self) {
        self.command(&["SAVE"]);
        self.start_again(Keep::Data);
    }

    /// Runs a command in database 0; panics when it fails.
    pub fn command(&self, words: &[&str]) -> Reply {
        self.try_command(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// Runs a command in database 0.
    pub fn try_command(&self, words: &[&str]) -> Result<Reply, String> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.pipeline(&[words]).map(|mut replies| replies.remove(0)).and_then(|reply| match reply {
            Reply::Error(error) => Err(error),
            reply => Ok(reply),
        })
    }

    /// Runs many commands in one go; a failing command's reply is an error.
    pub fn pipeline(&self, commands: &[Vec<&[u8]>]) -> Result<Vec<Reply>, String> {
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        let mut connection = match client.take() {
            Some(connection) => connection,
            None => self.connect()?,
        };
        let replies = connection.run(commands).map_err(|error| format!("Redis on port {} does not answer: {error}", self.port))?;
        *client = Some(connection);
        Ok(replies)
    }

    fn connect(&self) -> Result<Connection, String> {
        let mut connection =
            Connection::open(self.port).map_err(|error| format!("Redis on port {} can't be reached: {error}", self.port))?;
        if let Some(password) = &self.options.password {
            connection.run(&[vec![b"AUTH", password.as_bytes()]]).map_err(|error| error.to_string())?;
        }
        Ok(connection)
    }

    fn disconnect(&self) {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Writes a key that expires at a point in time.
    pub fn set_until(&self, key: &str, value: &str, deadline: SystemTime) {
        self.command(&["SET", key, value, "PXAT", &unix_millis(deadline).to_string()]);
    }

    /// Whether its process runs, and was not stopped.
    pub fn is_running(&self) -> bool {
        self.process.ended().is_none() && !*self.frozen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes many keys, each with its expiry in milliseconds since 1970; returns those that it did not take.
    pub fn try_set_all_until(&self, keys: Vec<(String, i64)>) -> Vec<(String, i64)> {
        let times: Vec<String> = keys.iter().map(|(_, millis)| millis.to_string()).collect();
        let commands: Vec<Vec<&[u8]>> = keys.iter().zip(&times).map(|((key, _), millis)| command_set(key, millis)).collect();
        match self.pipeline(&commands) {
            Err(_) => keys,
            Ok(replies) => {
                keys.iter().zip(replies).filter(|(_, reply)| *reply != Reply::Text("OK".into())).map(|(key, _)| key.clone()).collect()
            }
        }
    }

    /// Writes many keys, each with its expiry in milliseconds since 1970.
    pub fn set_all_until(&self, keys: &[(String, i64)]) {
        for chunk in keys.chunks(1_000) {
            let times: Vec<String> = chunk.iter().map(|(_, millis)| millis.to_string()).collect();
            let commands: Vec<Vec<&[u8]>> = chunk.iter().zip(&times).map(|((key, _), millis)| command_set(key, millis)).collect();
            for reply in self.pipeline(&commands).expect("Redis answers") {
                assert_eq!(reply, Reply::Text("OK".into()));
            }
        }
    }

    /// Publishes what Redis itself would publish when a key expires; returns how many clients got it.
    pub fn publish_expired(&self, database: u8, key: &[u8]) -> i64 {
        let channel = format!("__keyevent@{database}__:expired");
        let replies = self.pipeline(&[vec![b"PUBLISH", channel.as_bytes(), key]]).expect("Redis answers");
        replies[0].integer()
    }

    /// Begins to publish that the keys of these orders have expired, so many a second.
    pub fn flood(&self, numbers: std::ops::Range<usize>, per_second: u32) -> Flood {
        Flood::begin(self.port, numbers, per_second)
    }

    /// A setting's value.
    pub fn config_get(&self, name: &str) -> String {
        self.command(&["CONFIG", "GET", name]).array()[1].text()
    }

    /// How many pattern subscriptions clients have.
    pub fn subscriptions(&self) -> i64 {
        self.try_command(&["PUBSUB", "NUMPAT"]).map_or(0, |reply| reply.integer())
    }

    /// Waits until somebody is subscribed by pattern.
    pub async fn until_subscribed(&self) {
        wait::until("a client has subscribed to key events", async || self.subscriptions() > 0).await;
    }

    /// Closes the connections of all subscribers from the server's side; returns how many.
    pub fn kill_subscribers(&self) -> i64 {
        // Over RESP3 a subscriber is listed as a normal client, so the type filter would miss it.
        let list = self.command(&["CLIENT", "LIST"]).text();
        let subscribers = list.lines().filter(|line| line.split(' ').any(|field| field.starts_with("psub=") && field != "psub=0"));
        let ids: Vec<&str> = subscribers.filter_map(|line| line.split(' ').find_map(|field| field.strip_prefix("id="))).collect();
        ids.iter().map(|id| self.command(&["CLIENT", "KILL", "ID", id]).integer()).sum()
    }
}

fn command_set<'a>(key: &'a str, millis: &'a str) -> Vec<&'a [u8]> {
    vec![b"SET", key.as_bytes(), b"1", b"PXAT", millis.as_bytes()]
}

/// Milliseconds since 1970.
pub fn unix_millis(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(since.as_millis()).expect("before the year 292 million")
}

fn launch(options: &Options, folder: &Path, port: u16, tls_port: Option<u16>) -> Result<Process, String> {
    let (shown, data) = (folder.display(), options.data.as_deref().unwrap_or(folder).display());
    let mut lines = vec![format!("port {port}"), "bind 127.0.0.1".into(), format!("dir {data}"), "save \"\"".into(), "daemonize no".into()];
    lines.extend(options.password.as_ref().map(|password| format!("requirepass {password}")));
    if options.socket {
        lines.push(format!("unixsocket {shown}/redis.sock"));
    }
    if let Some(tls_port) = tls_port {
        lines.extend([
            format!("tls-port {tls_port}"),
            format!("tls-cert-file {shown}/server.pem"),
            format!("tls-key-file {shown}/server.key"),
            format!("tls-ca-cert-file {shown}/ca.pem"),
            "tls-auth-clients no".into(),
        ]);
    }
    lines.extend(options.lines.iter().cloned());
    let config = folder.join("redis.conf");
    std::fs::write(&config, lines.join("\n")).expect("redis.conf can be written");
    let log = folder.join("redis.log");
    std::fs::remove_file(&log).ok();
    let mut command = process::mortal(process::find_server(PROGRAMS, &["redis-server", "valkey-server"]));
    command.arg(config).args(options.sentinel.then_some("--sentinel")).stdin(Stdio::null());
    process::log_to(&mut command, &log);
    let process = Process::spawn("redis-server", command);
    // Its own log tells; whoever answers on the port might be somebody else's server.
    wait::blocking("redis-server is ready", || match process.ended() {
        Some(status) => Err(format!("{status}\n{}", process::read(&log))),
        None => Ok(["Ready to accept connections", "Sentinel ID is"].iter().any(|ready| process::read(&log).contains(ready))),
    })?;
    Ok(process)
}

fn make_certificates(folder: &Path) {
    std::fs::write(folder.join("names"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n").expect("a file can be written");
    let steps = [
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=test-authority",
        "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout server.key -out server.csr -subj /CN=localhost",
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out server.pem -days 2 -extfile names",
    ];
    for step in steps {
        let mut openssl = std::process::Command::new("openssl");
        openssl.args(step.split(' ')).current_dir(folder);
        process::run("openssl", openssl);
    }
}

#[test]
fn a_redis_lives_dies_and_returns() {
    let mut redis = Redis::options().password("open sesame".replace(' ', "").as_str()).socket().start();
    redis.command(&["SET", "a", "1"]);
    redis.restart_with_data();
    assert_eq!(redis.command(&["GET", "a"]), Reply::Text("1".into()));
    redis.restart_empty();
    assert_eq!(redis.command(&["GET", "a"]), Reply::Nil);
    redis.kill();
    assert!(redis.try_command(&["PING"]).is_err());
}

#[test]
fn a_redis_speaks_tls_under_its_own_authority() {
    let redis = Redis::options().tls().start();
    let address = redis.tls_url().trim_start_matches("rediss://").to_owned();
    let mut client = process::mortal("openssl");
    client.args(["s_client", "-verify_return_error", "-brief", "-connect", &address, "-CAfile"]).arg(redis.ca_file());
    process::run("openssl s_client", client);
}

#[test]
fn a_frozen_redis_accepts_and_says_nothing() {
    let redis = Redis::start();
    redis.freeze();
    let mut connection = Connection::open(redis.port).expect("the kernel accepts for it");
    connection.set_patience(Duration::from_millis(50));
    assert!(connection.run(&[vec![b"PING"]]).is_err());
    redis.thaw();
    assert_eq!(redis.command(&["PING"]), Reply::Text("PONG".into()));
}
