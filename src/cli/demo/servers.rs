//! The demo's processes: a private Redis, and the daemon.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde::Deserialize;

use crate::{
    cli::{Exit, Failure},
    config::{Redis, RedisUrl},
    redis::Commands,
};

const REDIS_CONF: &str = include_str!("../../../redis.conf");

/// How long a server may take to start or to stop.
const PATIENCE: Duration = Duration::from_secs(20);

fn failed(what: &str, error: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Software, format!("{what}: {error}"))
}

/// A child that dies with its owner.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// A Redis of our own, on a free port.
pub(super) struct PrivateRedis {
    pub(super) port: u16,
    _process: Process,
}

impl PrivateRedis {
    pub(super) async fn start(folder: &Path) -> Result<Self, Failure> {
        let conf = folder.join("redis.conf");
        fs::write(&conf, REDIS_CONF).map_err(|error| failed("redis.conf can't be written", error))?;
        let port = free_port().map_err(|error| failed("no free port", error))?;
        let child = Command::new("redis-server")
            .arg(&conf)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--dir"])
            .arg(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| {
                Failure::new(Exit::Unavailable, format!("redis-server can't be started ({error}); `make demo` installs it"))
            })?;
        let redis = Self { port, _process: Process(child) };
        let settings = redis.settings()?;
        let began = Instant::now();
        loop {
            match Commands::connect(&settings).await {
                Ok(_) => return Ok(redis),
                Err(error) if began.elapsed() > PATIENCE => return Err(error.into()),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(super) fn settings(&self) -> Result<Redis, Failure> {
        let url = RedisUrl::try_from(self.url()).map_err(|error| Failure::new(Exit::Software, error))?;
        Ok(Redis { url, ..Redis::default() })
    }
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// This program as a daemon.
pub(super) struct Daemon {
    process: Process,
    log: PathBuf,
}

/// The last line that the daemon logs.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Summary {
    pub(super) closed: u64,
    pub(super) expired: u64,
    pub(super) pacer: u64,
    pub(super) sweep: u64,
    pub(super) lateness_p50_ms: f64,
    pub(super) lateness_p99_ms: f64,
    pub(super) lateness_max_ms: f64,
}

impl Daemon {
    pub(super) fn start(folder: &Path, redis: &PrivateRedis) -> Result<Self, Failure> {
        let config = folder.join("order-closer.toml");
        let text = super::shop::configuration(folder, &redis.url());
        fs::write(&config, text).map_err(|error| failed("the configuration can't be written", error))?;
        let log = folder.join("daemon.log");
        let out = fs::File::create(&log).map_err(|error| failed("the log can't be written", error))?;
        let program = std::env::current_exe().map_err(|error| failed("this program can't be found", error))?;
        let mut command = Command::new(program);
        // The demo's settings are in its file; the user's own must not leak in.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ORDER_CLOSER_")) {
            command.env_remove(name);
        }
        let child = command
            .arg("--config")
            .arg(config)
            .arg("run")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(out)
            .spawn()
            .map_err(|error| failed("the daemon can't be started", error))?;
        Ok(Self { process: Process(child), log })
    }

    pub(super) async fn wait_until_listening(&self) -> Result<(), Failure> {
        let began = Instant::now();
        while self.line("listening for expired keys").is_none() {
            if began.elapsed() > PATIENCE {
                return Err(self.broken("the daemon does not listen"));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Stops the daemon as a service manager would, and returns what it says at its end.
    pub(super) async fn stop(mut self) -> Result<Summary, Failure> {
        let pid = self.process.0.id().to_string();
        Command::new("kill").args(["-TERM", &pid]).status().map_err(|error| failed("the daemon can't be stopped", error))?;
        let began = Instant::now();
        let status = loop {
            match self.process.0.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if began.elapsed() < PATIENCE => tokio::time::sleep(Duration::from_millis(20)).await,
                Ok(None) => return Err(self.broken("the daemon does not stop")),
                Err(error) => return Err(failed("the daemon can't be waited for", error)),
            }
        };
        if !status.success() {
            return Err(self.broken(&format!("the daemon ended with {status}")));
        }
        let line = self.line("order-closer stopped").ok_or_else(|| self.broken("the daemon did not say what it did"))?;
        serde_json::from_str(&line).map_err(|error| failed("the daemon's last line can't be read", error))
    }

    fn line(&self, message: &str) -> Option<String> {
        let text = fs::read_to_string(&self.log).ok()?;
        text.lines().rev().find(|line| line.contains(message)).map(str::to_owned)
    }

    fn broken(&self, what: &str) -> Failure {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        Failure::new(Exit::Software, format!("{what}; its log:\n{log}"))
    }
}
