//! A RabbitMQ with its default settings, from the system's package.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use super::{ports, process, process::Process, wait};

/// Where its own scripts are, below those of the distribution, which ask for root.
const SCRIPTS: &str = "/usr/lib/rabbitmq/bin";

/// Of whoever logs in.
pub const USER: &str = "shop";
/// The same.
pub const PASSWORD: &str = "S3cret-of-the-shop";

/// A RabbitMQ; dropping it kills it.
#[derive(Debug)]
pub struct RabbitMq {
    ports: Ports,
    process: Process,
    folder: tempfile::TempDir,
}

#[derive(Debug, Clone, Copy)]
struct Ports {
    clients: u16,
    tls: Option<u16>,
    names: u16,
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
        Self::started(false)
    }

    /// Starts one that also speaks TLS, with a certificate for 127.0.0.1 of an authority of its own.
    pub fn start_with_tls() -> Self {
        Self::started(true)
    }

    fn started(tls: bool) -> Self {
        let folder = process::folder();
        if tls {
            certify(folder.path());
        }
        let (process, ports) = ports::with_free("rabbitmq-server", |clients| {
            let ports = Ports { clients, tls: tls.then(ports::free), names: ports::free() };
            Ok((launch(folder.path(), ports)?, ports))
        });
        Self { ports, process, folder }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("amqp://{USER}:{PASSWORD}@127.0.0.1:{}", self.ports.clients)
    }

    /// The same with TLS.
    pub fn tls_url(&self) -> String {
        format!("amqps://{USER}:{PASSWORD}@127.0.0.1:{}", self.ports.tls.expect("it was started with TLS"))
    }

    /// The authority of its certificate.
    pub fn ca_file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Kills it.
    pub fn kill(&self) {
        self.process.kill();
        self.forget_names();
    }

    /// Starts it again, with what it had kept.
    pub fn start_again(&mut self) {
        // It says anew when it has started.
        std::fs::remove_file(self.folder.path().join("server.log")).ok();
        self.process = launch(self.folder.path(), self.ports).unwrap_or_else(|error| panic!("RabbitMQ did not start again: {error}"));
    }

    /// Erlang leaves its register of names behind, which is this server's alone.
    fn forget_names(&self) {
        let killed = Command::new("epmd").args(["-port", &self.ports.names.to_string(), "-kill"]).output();
        drop(killed);
    }
}

impl Drop for RabbitMq {
    fn drop(&mut self) {
        self.process.kill();
        self.forget_names();
    }
}

/// An authority, and a certificate of it.
fn certify(folder: &Path) {
    let authority_key = rcgen::KeyPair::generate().expect("a key");
    let mut authority = rcgen::CertificateParams::default();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    authority.distinguished_name.push(rcgen::DnType::CommonName, "order-closer's tests");
    let authority_certificate = authority.self_signed(&authority_key).expect("a certificate");
    let issuer = rcgen::Issuer::new(authority, authority_key);
    let key = rcgen::KeyPair::generate().expect("a key");
    let server = rcgen::CertificateParams::new(vec!["127.0.0.1".into(), "localhost".into()]).expect("names");
    let certificate = server.signed_by(&key, &issuer).expect("a certificate");
    for (name, text) in [("ca.pem", authority_certificate.pem()), ("server.pem", certificate.pem()), ("server.key", key.serialize_pem())] {
        std::fs::write(folder.join(name), text).expect("a temporary file can be written");
    }
}

fn launch(folder: &Path, Ports { clients, tls, names }: Ports) -> Result<Process, String> {
    let mut command = process::mortal(Path::new(SCRIPTS).join("rabbitmq-server"));
    let path = |name: &str| folder.join(name);
    let mut settings = format!("default_user = {USER}\ndefault_pass = {PASSWORD}\n");
    if let Some(port) = tls {
        settings += &format!("listeners.ssl.1 = 127.0.0.1:{port}\n");
        for (setting, file) in [("cacertfile", "ca.pem"), ("certfile", "server.pem"), ("keyfile", "server.key")] {
            settings += &format!("ssl_options.{setting} = {}\n", path(file).display());
        }
    }
    std::fs::write(path("rabbitmq.conf"), settings).expect("a temporary file can be written");
    std::fs::write(path("plugins"), "[].\n").expect("a temporary file can be written");
    command
        .env("HOME", folder)
        .env("RABBITMQ_NODENAME", format!("closer{clients}@localhost"))
        .env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1")
        .env("RABBITMQ_NODE_PORT", clients.to_string())
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
