//! `order-closer healthcheck`: whether the daemon on this host is ready, for containers without a shell.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use reqwest::Client;
use serde::Deserialize;

use crate::{
    cli::{CommandResult, Exit, Failure, print},
    config::Config,
};

const PATIENCE: Duration = Duration::from_secs(3);

/// What `/readyz` says.
#[derive(Debug, Deserialize)]
struct Said {
    ready: bool,
    missing: Vec<String>,
    degraded: Vec<String>,
}

pub(super) async fn run(config: &Config) -> CommandResult {
    let Some(address) = config.http.listen.get() else {
        return Err(Failure::new(Exit::Configuration, "http.listen is \"none\": the daemon answers nobody; set an address"));
    };
    let address = reachable(address);
    let asked = ask(address).await.map_err(|error| {
        let reason = error.without_url();
        Failure::new(Exit::Unavailable, format!("the daemon does not answer at {address}: {reason}"))
    })?;
    let Said { ready, missing, degraded } = serde_json::from_slice(&asked)
        .map_err(|_| Failure::new(Exit::Unavailable, format!("at {address} something answers that is not this program")))?;
    if !ready {
        return Err(Failure::new(Exit::Unavailable, missing.join("; ")));
    }
    print(&if degraded.is_empty() { "ready".to_owned() } else { format!("ready, but {}", degraded.join("; ")) });
    Ok(Exit::Done)
}

async fn ask(address: SocketAddr) -> Result<Vec<u8>, reqwest::Error> {
    // Fails when there is one already, and any will do.
    rustls::crypto::ring::default_provider().install_default().ok();
    let client = Client::builder().no_proxy().tls_certs_only([]).timeout(PATIENCE).build()?;
    Ok(client.get(format!("http://{address}/readyz")).send().await?.bytes().await?.to_vec())
}

/// An address that listens everywhere is asked here.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv4() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { IpAddr::V6(Ipv6Addr::LOCALHOST) });
    }
    address
}
