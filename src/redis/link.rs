//! A connection to some server: encrypted and logged in; who it is, is for others to ask.

use std::{fmt, net::SocketAddr, time::Duration};

use fred::{
    clients::Client,
    error::{Error, ErrorKind},
    interfaces::{ClientLike, EventInterface},
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
    resolve::resolve,
    secrets::Secrets,
};
use crate::config::{Endpoint, Redis, RedisAddress, Secret};

/// How long a connection attempt or an answer may take.
pub const PATIENCE: Duration = Duration::from_secs(3);

/// Who we say that we are.
#[derive(Clone, Copy)]
pub(super) struct Login<'l> {
    username: Option<&'l str>,
    password: Option<&'l Secret>,
}

impl<'l> Login<'l> {
    /// To the servers with the keys.
    pub(super) fn of(redis: &'l Redis) -> Self {
        Self { username: redis.url.username.as_deref(), password: redis.url.password.as_ref() }
    }

    /// To those who know where these are.
    pub(super) fn of_sentinels(redis: &'l Redis) -> Self {
        match &redis.url.address {
            RedisAddress::Sentinels(sentinels) => Self { username: sentinels.username.as_deref(), password: sentinels.password.as_ref() },
            RedisAddress::Tcp { .. } | RedisAddress::Unix(_) | RedisAddress::Cluster { .. } | RedisAddress::Nowhere => {
                Self { username: None, password: None }
            }
        }
    }
}

/// A connection. Dropping it closes it.
pub(super) struct Link {
    pub(super) client: Client,
    driving: AbortOnDropHandle<std::result::Result<(), Error>>,
    secrets: Secrets,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").finish_non_exhaustive()
    }
}

impl Link {
    pub(super) async fn open(
        redis: &Redis,
        login: Login<'_>,
        server: ServerConfig,
        performance: &impl Fn(&mut PerformanceConfig),
    ) -> Result<Self> {
        let is_local = matches!(server, ServerConfig::Unix { .. });
        let config = ClientConfig {
            server,
            username: login.username.map(inline),
            password: login.password.map(|password| inline(password.reveal())),
            tls: if redis.url.is_encrypted() && !is_local { Some(tls_connector(redis)?.into()) } else { None },
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
        let client = builder.build().map_err(|error| sort(&error, &secrets, ""))?;
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
        Ok(Self { client, driving, secrets })
    }

    /// Connects to the first of a name's addresses that answers.
    pub(super) async fn open_named(redis: &Redis, login: Login<'_>, Endpoint { host, port }: &Endpoint) -> Result<Self> {
        let mut failure = None;
        for address in resolve(host, *port, PATIENCE).await? {
            match Self::open(redis, login, at(address, host), &|_| {}).await {
                Ok(link) => return Ok(link),
                // A server's own words say more than its silence.
                Err(error) if matches!(failure, None | Some(RedisError::Unreachable(_))) => failure = Some(error),
                Err(_) => {}
            }
        }
        Err(failure.unwrap_or_else(|| RedisError::unreachable("the name has no address")))
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
pub(super) fn at(address: SocketAddr, host: &str) -> ServerConfig {
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
