//! Other products as processes of their own, which `benches/peers` has, and the servers that they need.
//!
//! Their packages come from npm by the versions of its lockfile, RabbitMQ from the system. What is not installed is left out.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use crate::{
    orders::Millis,
    support::{ports, process, process::Process, wait},
};

/// Where RabbitMQ's own scripts are, below those of the distribution, which ask for root.
const RABBITMQ: &str = "/usr/lib/rabbitmq/bin";

/// The folder of the products.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers")
}

/// What is missing of what the products need, or nothing: Node.js, and their packages, which this installs.
pub fn install() -> Result<(), String> {
    if Command::new("node").arg("--version").output().is_err() {
        return Err("Node.js is not installed (nodejs)".into());
    }
    if folder().join("node_modules/.package-lock.json").exists() {
        return Ok(());
    }
    let installed = Command::new("npm").args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(folder()).output();
    match installed {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("npm ci failed: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(_) => Err("npm is not installed (npm)".into()),
    }
}

/// The version of an npm package, as it is installed.
pub fn version(package: &str) -> Option<String> {
    let text = std::fs::read_to_string(folder().join("node_modules").join(package).join("package.json")).ok()?;
    let package: serde_json::Value = serde_json::from_str(&text).ok()?;
    package["version"].as_str().map(str::to_owned)
}

/// The version of Node.js.
pub fn node_version() -> Option<String> {
    let output = Command::new("node").arg("--version").output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).trim().trim_start_matches('v').to_owned())
}

/// A product at work, which is told of orders over its standard input.
#[derive(Debug)]
pub struct Peer {
    process: Process,
    answers: Mutex<BufReader<std::process::ChildStdout>>,
}

impl Peer {
    /// Starts one with these servers.
    pub fn start(product: &str, database: &str, redis: &str, amqp: &str) -> Self {
        let mut command = process::mortal("node");
        command.arg("peer.js").arg(product).current_dir(folder()).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.env("DATABASE", database).env("REDIS", redis).env("AMQP", amqp).env("NODE_ENV", "production");
        let process = Process::spawn(product, command);
        let answers = process.with(|child| child.stdout.take()).expect("its output is piped");
        Self { process, answers: Mutex::new(BufReader::new(answers)) }
    }

    /// Tells it of orders, each with its deadline, and waits until it has heard of them.
    pub fn fill(&self, orders: &[(i64, Millis)]) {
        for some in orders.chunks(1_000) {
            self.ask(&serde_json::json!({ "fill": some }));
        }
    }

    /// Lets it begin to close.
    pub fn work(&self) {
        self.ask(&serde_json::json!({ "work": true }));
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    fn ask(&self, message: &serde_json::Value) {
        let line = format!("{message}\n");
        self.process.with(|child| child.stdin.as_mut().expect("its input is piped").write_all(line.as_bytes())).expect("it reads");
        let mut answer = String::new();
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        while answer.trim() != "done" {
            answer.clear();
            let read = answers.read_line(&mut answer).expect("it answers");
            assert!(read > 0, "a product has ended; what it said stands above");
        }
    }
}

/// A RabbitMQ with its default settings; dropping it kills it.
#[derive(Debug)]
pub struct RabbitMq {
    port: u16,
    process: Process,
    names: u16,
    _folder: tempfile::TempDir,
}

impl RabbitMq {
    /// Its version, where it is installed.
    pub fn version() -> Option<String> {
        let folders = std::fs::read_dir("/usr/lib/rabbitmq/lib").ok()?;
        let names = folders.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.filter_map(|name| name.strip_prefix("rabbitmq_server-").map(str::to_owned)).next()
    }

    /// Starts one.
    pub fn start() -> Self {
        let folder = process::folder();
        let (process, (port, names)) = ports::with_free("rabbitmq-server", |port| {
            let names = ports::free();
            Ok((launch(folder.path(), port, names)?, (port, names)))
        });
        Self { port, process, names, _folder: folder }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("amqp://guest:guest@127.0.0.1:{}", self.port)
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }
}

impl Drop for RabbitMq {
    fn drop(&mut self) {
        self.process.kill();
        // Erlang leaves its register of names behind, which is this server's alone.
        let killed = Command::new("epmd").args(["-port", &self.names.to_string(), "-kill"]).output();
        drop(killed);
    }
}

fn launch(folder: &Path, port: u16, names: u16) -> Result<Process, String> {
    let mut command = process::mortal(Path::new(RABBITMQ).join("rabbitmq-server"));
    let path = |name: &str| folder.join(name);
    std::fs::write(path("rabbitmq.conf"), "").expect("a temporary file can be written");
    std::fs::write(path("plugins"), "[].\n").expect("a temporary file can be written");
    command
        .env("HOME", folder)
        .env("RABBITMQ_NODENAME", format!("closer{port}@localhost"))
        .env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1")
        .env("RABBITMQ_NODE_PORT", port.to_string())
        .env("RABBITMQ_DIST_PORT", ports::free().to_string())
        .env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "-kernel inet_dist_use_interface {127,0,0,1}")
        .env("ERL_EPMD_PORT", names.to_string())
        .env("ERL_EPMD_ADDRESS", "127.0.0.1")
        .env("RABBITMQ_CONFIG_FILE", path("rabbitmq.conf"))
        .env("RABBITMQ_ENABLED_PLUGINS_FILE", path("plugins"))
        .env("RABBITMQ_MNESIA_BASE", path("mnesia"))
        .env("RABBITMQ_LOG_BASE", path("log"))
        .env("RABBITMQ_LOGS", path("server.log"))
        .env("RABBITMQ_PID_FILE", path("pid"));
    process::log_to(&mut command, &path("output"));
    let process = Process::spawn("rabbitmq-server", command);
    wait::blocking("RabbitMQ takes clients", || {
        if process.ended().is_some() {
            return Err(process::read(&path("output")));
        }
        // It listens when all else is done.
        std::thread::sleep(Duration::from_millis(50));
        Ok(process::read(&path("server.log")).contains("Server startup complete"))
    })?;
    Ok(process)
}
