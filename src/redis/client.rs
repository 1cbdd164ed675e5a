//! What both kinds of connection have in common: the server, the login, TLS, time limits.

use std::{fmt, time::Duration};

use fred::{
    rustls::{
        self,
        pki_types::{CertificateDer, pem::PemObject},
    },
    types::{
        Builder, RespVersion,
        config::{Config as ClientConfig, Server, ServerConfig, TlsConnector},
    },
};

use crate::{
    config::{Listen, Redis, RedisAddress},
    redis::error::{RedisError, Result},
};

/// How long a connection attempt or an answer may take.
pub const PATIENCE: Duration = Duration::from_secs(3);

/// Where Redis is, for logs: without the password.
#[must_use]
pub fn address(redis: &Redis) -> String {
    redis.url.to_string()
}

pub(super) fn client_config(redis: &Redis) -> Result<ClientConfig> {
    let (server, tls) = match &redis.url.address {
        RedisAddress::Tcp { host, port, tls } => (ServerConfig::Centralized { server: Server::new(host.as_str(), *port) }, *tls),
        RedisAddress::Unix(path) => (ServerConfig::Unix { path: path.clone() }, false),
    };
    Ok(ClientConfig {
        server,
        username: redis.url.username.as_deref().map(inline),
        password: redis.url.password.as_deref().map(inline),
        database: (redis.url.database > 0).then_some(redis.url.database),
        tls: if tls { Some(tls_connector(redis)?.into()) } else { None },
        // A subscribed connection still answers commands only in RESP3.
        version: RespVersion::RESP3,
        ..ClientConfig::default()
    })
}

/// A word of the login. The client sends it in an inline command (HELLO), where a blank ends a word and quotes hold it
/// together.
fn inline(word: &str) -> String {
    if word.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'')) {
        return word.to_owned();
    }
    let escaped: String = word.bytes().map(|byte| format!("\\x{byte:02x}")).collect();
    format!("\"{escaped}\"")
}

fn tls_connector(redis: &Redis) -> Result<TlsConnector> {
    let Some(path) = &redis.ca_file else {
        return Ok(TlsConnector::default_rustls()?);
    };
    let unusable = |error: &dyn fmt::Display| RedisError(format!("redis.ca_file {} can't be used: {error}", path.display()));
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| unusable(&error))? {
        roots.add(certificate.map_err(|error| unusable(&error))?).map_err(|error| unusable(&error))?;
    }
    if roots.is_empty() {
        return Err(unusable(&"it has no certificate"));
    }
    Ok(TlsConnector::from(rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()))
}

pub(super) fn builder(config: ClientConfig) -> Builder {
    let mut builder = Builder::from_config(config);
    builder.with_connection_config(|connection| {
        connection.connection_timeout = PATIENCE;
        connection.internal_command_timeout = PATIENCE;
        connection.max_command_attempts = 1;
    });
    builder
}

/// The channels of the notifications that count; an ACL rule must have it to the letter.
#[must_use]
pub fn pattern(redis: &Redis) -> String {
    match redis.listen {
        Listen::All => "__keyevent@*__:expired".to_owned(),
        Listen::Own => format!("__keyevent@{}__:expired", redis.url.database),
    }
}

pub(super) async fn in_time<T>(answer: impl Future<Output = std::result::Result<T, fred::error::Error>>) -> Result<T> {
    match tokio::time::timeout(PATIENCE, answer).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(RedisError::timed_out()),
    }
}
