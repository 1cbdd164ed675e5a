//! The daemon on this host, asked over HTTP.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use reqwest::{Client, Response, StatusCode};
use serde::{Deserialize, de::DeserializeOwned};

use crate::{
    cli::{Exit, Failure},
    config::{Config, Token},
};

/// How long it may take to answer, and from one piece of an answer to the next.
const PATIENCE: Duration = Duration::from_secs(3);

/// The daemon.
#[derive(Debug)]
pub(super) struct Daemon {
    address: SocketAddr,
    client: Client,
    authorization: Option<String>,
}

impl Daemon {
    /// The one that has this configuration.
    pub(super) fn of(config: &Config) -> Result<Self, Failure> {
        let Some(address) = config.http.listen.get() else {
            return Err(Failure::new(Exit::Configuration, "http.listen is \"none\": the daemon answers nobody; set an address"));
        };
        // Fails when there is one already, and any will do.
        rustls::crypto::ring::default_provider().install_default().ok();
        let client = Client::builder().no_proxy().tls_certs_only([]).connect_timeout(PATIENCE).read_timeout(PATIENCE).build();
        let client = client.map_err(|error| Failure::new(Exit::Software, error.to_string()))?;
        Ok(Self { address: reachable(address), client, authorization: None })
    }

    /// The same, asked by somebody who has the token.
    pub(super) fn with(self, token: Option<&Token>) -> Self {
        let authorization = token.map(|token| format!("Bearer {}", String::from_utf8_lossy(token.bytes())));
        Self { authorization, ..self }
    }

    /// Begins to read an answer, whatever its status is.
    pub(super) async fn ask(&self, path: &str) -> Result<Response, Failure> {
        let mut request = self.client.get(format!("http://{}{path}", self.address));
        if let Some(authorization) = &self.authorization {
            request = request.header(reqwest::header::AUTHORIZATION, authorization);
        }
        request.send().await.map_err(|error| self.away(error))
    }

    /// The same, where nothing but success will do.
    pub(super) async fn get(&self, path: &str) -> Result<Response, Failure> {
        #[derive(Default, Deserialize)]
        struct Refused {
            error: String,
        }
        let answer = self.ask(path).await?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let Refused { error } = self.json(answer).await.unwrap_or_default();
        let exit = match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Exit::Configuration,
            _ => Exit::Unavailable,
        };
        Err(Failure::new(exit, format!("the daemon at {} answers {status}: {error}", self.address)))
    }

    /// All of an answer.
    pub(super) async fn json<T: DeserializeOwned>(&self, answer: Response) -> Result<T, Failure> {
        let body = answer.bytes().await.map_err(|error| self.away(error))?;
        serde_json::from_slice(&body)
            .map_err(|_| Failure::new(Exit::Unavailable, format!("at {} something answers that is not this program", self.address)))
    }

    pub(super) fn away(&self, error: reqwest::Error) -> Failure {
        let reason = error.without_url();
        Failure::new(Exit::Unavailable, format!("the daemon does not answer at {} (http.listen): {reason}", self.address))
    }
}

/// An address that listens everywhere is asked here.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv4() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { IpAddr::V6(Ipv6Addr::LOCALHOST) });
    }
    address
}
