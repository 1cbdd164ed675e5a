//! One connection to Redis: resolved, encrypted, logged in, examined, and never repaired.
//!
//! Whoever finds it unfit drops it and opens another, which asks the name server, the file of authorities and the server's
//! role anew. A connection that repaired itself would do so at the address that it has.

use std::{fmt, net::SocketAddr, time::Duration};

use fred::{
    clients::Client,
    error::{Error, ErrorKind},
    interfaces::{ClientLike, EventInterface, ServerInterface},
    rustls::{
        self,
        pki_types::{CertificateDer, pem::PemObject},
    },
    types::{
        Builder, RespVersion,
        config::{Config as ClientConfig, PerformanceConfig, Server as Address, ServerConfig, TlsConnector},
    },
};

use tokio::task::JoinError;
use tokio_util::task::AbortOnDropHandle;

use super::{
    error::{RedisError, Result, Said, sort},
    resolve::{Lead, resolve},
    secrets::Secrets,
    server::{Info, Server, check_role, fields},
};
use crate::config::{Listen, Redis, RedisAddress};

/// How long a connection attempt or an answer may take.
pub const PATIENCE: Duration = Duration::from_secs(3);

/// How long a look at where the name leads may take, beside an audit.
const LOOK: Duration = Duration::from_millis(500);

/// Where Redis is, for logs: without the password.
#[must_use]
pub fn address(redis: &Redis) -> String {
    redis.url.to_string()
}

/// The channels of the notifications that count; an ACL rule must have it to the letter.
#[must_use]
pub fn pattern(redis: &Redis) -> String {
    match redis.listen {
        Listen::All => "__keyevent@*__:expired".to_owned(),
        Listen::Own => format!("__keyevent@{}__:expired", redis.url.database),
    }
}

/// A connection to a server that was fit when it was opened. Dropping it closes it.
pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) server: Server,
    driving: AbortOnDropHandle<std::result::Result<(), Error>>,
    secrets: Secrets,
    /// The name that led here, and where it leads now.
    lead: Option<(String, u16, Lead)>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Connection {
    /// Connects to a primary without a cluster. Of several addresses of the name, to the first that is one.
    pub(super) async fn open(redis: &Redis, performance: impl Fn(&mut PerformanceConfig)) -> Result<Self> {
        let (host, port, tls) = match &redis.url.address {
            RedisAddress::Unix(path) => {
                return Self::open_at(redis, ServerConfig::Unix { path: path.clone() }, false, &performance).await;
            }
            RedisAddress::Tcp { host, port, tls } => (host, *port, *tls),
            RedisAddress::Nowhere => return Err(RedisError::none()),
        };
        let mut failure = None;
        for address in resolve(host, port, PATIENCE).await? {
            match Self::open_at(redis, at(address, host), tls, &performance).await {
                Ok(connection) => {
                    let named = host.parse::<std::net::IpAddr>().is_err();
                    let lead = named.then(|| (host.clone(), port, Lead::to(address.ip())));
                    return Ok(Self { lead, ..connection });
                }
                // A server's own words say more than its silence.
                Err(error) if matches!(failure, None | Some(RedisError::Unreachable(_))) => failure = Some(error),
                Err(_) => {}
            }
        }
        Err(failure.unwrap_or_else(|| RedisError::unreachable("the name has no address")))
    }

    async fn open_at(redis: &Redis, server: ServerConfig, tls: bool, performance: &impl Fn(&mut PerformanceConfig)) -> Result<Self> {
        let config = ClientConfig {
            server,
            username: redis.url.username.as_deref().map(inline),
            password: redis.url.password.as_ref().map(|password| inline(password.reveal())),
            tls: if tls { Some(tls_connector(redis)?.into()) } else { None },
            // A subscribed connection still answers commands only in RESP3.
            version: RespVersion::RESP3,
            ..ClientConfig::default()
        };
        let mut builder = Builder::from_config(config);
        builder.with_connection_config(|connection| {
            connection.connection_timeout = PATIENCE;
            connection.internal_command_timeout = PATIENCE;
            connection.max_command_attempts = 1;
        });
        builder.with_performance_config(|settings| performance(settings));
        let secrets = Secrets::of(redis);
        let unusable = |error| sort(&error, &secrets, "");
        let client = builder.build().map_err(unusable)?;
        // Before it can have happened.
        let mut connection = client.reconnect_rx();
        // Held from the beginning: an attempt that is given up must not succeed later, with nobody to close it.
        let mut driving = AbortOnDropHandle::new(client.connect());
        let connected = async {
            tokio::select! {
                ended = &mut driving => Err(ending(ended)),
                connected = connection.recv() => connected.map(drop).map_err(Error::from),
            }
        };
        in_time(connected, &secrets, "+hello +auth +ping +client|id").await?;
        let mut connection = Self { client, server: Server::default(), driving, secrets, lead: None };
        connection.examine().await?;
        // Only now: a sentinel and a node of a cluster have but one database, and would say no more than that.
        if redis.url.database > 0 {
            connection.ask(connection.client.select(i64::from(redis.url.database)), "+select").await?;
        }
        Ok(connection)
    }

    /// Sees what the server is.
    async fn examine(&mut self) -> Result<()> {
        let Some(info) = self.info("server").await? else {
            return Ok(());
        };
        self.server = Server::new(&info);
        self.server.check_age()?;
        check_role(&info)?;
        self.check_role().await
    }

    /// Whether it is still the Redis for us: a primary, and where its name leads.
    pub(super) async fn audit(&mut self) -> Result<()> {
        self.check_role().await?;
        let Some((host, port, lead)) = &mut self.lead else {
            return Ok(());
        };
        match resolve(host, *port, LOOK).await {
            Ok(addresses) if lead.has_moved(&addresses) => {
                let now: Vec<String> = addresses.iter().map(|address| address.ip().to_string()).collect();
                Err(RedisError::NotOurs(Said::new(format!("the name {host} now leads to {}", now.join(", ")), "nothing: it is followed")))
            }
            // A name server that is away says nothing about Redis.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    async fn check_role(&self) -> Result<()> {
        self.info("replication").await?.map_or(Ok(()), |info| check_role(&info))
    }

    /// A section of INFO; `None` where the server shows none at the moment, or not to us.
    async fn info(&self, section: &str) -> Result<Option<Info>> {
        let text = self.client.custom::<String, _>(fred::cmd!("INFO"), vec![section]);
        match self.ask(text, "+info").await {
            Ok(text) => Ok(Some(fields(&text))),
            Err(RedisError::NotNow(_) | RedisError::Denied(_) | RedisError::Rejected(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits for an answer; `needs` are the ACL rules without which it is denied.
    pub(super) async fn ask<T>(&self, answer: impl Future<Output = std::result::Result<T, Error>>, needs: &str) -> Result<T> {
        in_time(answer, &self.secrets, needs).await
    }

    /// Waits until the connection ends, and says why.
    pub(super) async fn ended(&mut self) -> RedisError {
        sort(&ending((&mut self.driving).await), &self.secrets, "")
    }
}

/// Why the client's task has ended.
fn ending(ended: std::result::Result<std::result::Result<(), Error>, JoinError>) -> Error {
    match ended {
        Ok(Err(error)) => error,
        Ok(Ok(())) => Error::new(ErrorKind::IO, "the connection was closed"),
        Err(error) => error.into(),
    }
}

async fn in_time<T>(answer: impl Future<Output = std::result::Result<T, Error>>, secrets: &Secrets, needs: &str) -> Result<T> {
    match tokio::time::timeout(PATIENCE, answer).await {
        Ok(answer) => answer.map_err(|error| sort(&error, secrets, needs)),
        Err(_) => Err(RedisError::timed_out(PATIENCE)),
    }
}

/// A server by its address, which must show a certificate for the name.
fn at(address: SocketAddr, host: &str) -> ServerConfig {
    let mut server = Address::new(address.ip().to_string(), address.port());
    server.tls_server_name = Some(host.into());
    ServerConfig::Centralized { server }
}

/// A word of the login. The client sends it in an inline command (HELLO), where a blank ends a word and quotes hold it
/// together.
pub(super) fn inline(word: &str) -> String {
    if word.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'')) {
        return word.to_owned();
    }
    let escaped: String = word.bytes().map(|byte| format!("\\x{byte:02x}")).collect();
    format!("\"{escaped}\"")
}

/// Trusts the authorities of `redis.ca_file` as they are now, or the system's.
pub(super) fn tls_connector(redis: &Redis) -> Result<TlsConnector> {
    let Some(path) = &redis.ca_file else {
        return TlsConnector::default_rustls().map_err(|error| RedisError::Unusable(Said::new(error.to_string(), "set redis.ca_file")));
    };
    let unusable = |error: &dyn fmt::Display| {
        let reason = format!("redis.ca_file {} can't be used: {error}", path.display());
        RedisError::Unusable(Said::new(reason, "let redis.ca_file name a PEM file with the certificates of the authorities to trust"))
    };
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| unusable(&error))? {
        roots.add(certificate.map_err(|error| unusable(&error))?).map_err(|error| unusable(&error))?;
    }
    if roots.is_empty() {
        return Err(unusable(&"it has no certificate"));
    }
    Ok(TlsConnector::from(rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()))
}
