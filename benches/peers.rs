//! Other products as processes of their own, which `benches/peers` has, and the servers that they need.
//!
//! Their packages come from npm by the versions of its lockfile, RabbitMQ from the system. What is not installed is left out.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
};

use crate::{
    orders::Millis,
    support::{process, process::Process},
};

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
