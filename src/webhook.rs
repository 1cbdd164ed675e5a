//! Signed requests over HTTP, as the Standard Webhooks specification has them: to whoever is told of closures, and to
//! whoever is asked before them.
//!
//! A [`Poster`] speaks to one URL. It follows no redirect, tries nothing again, heeds no proxy, and no text of its errors has
//! the URL, which may hold a secret. What the other side may do to the thread that reads its answers stays on a thread
//! [`Apart`].

mod apart;
mod signature;

use std::{
    error::Error,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

pub use apart::{Apart, NoAnswer};
pub use signature::signatures;

use reqwest::{Certificate, Client, Response, Url, header, redirect};

use crate::config::{WebhookSecret, WebhookUrl};

/// Where to post, by which secrets and authorities.
#[derive(Debug)]
pub struct Address<'s> {
    /// What this is in the configuration, for errors.
    pub setting: String,
    /// The URL.
    pub url: &'s WebhookUrl,
    /// Signing secrets.
    pub secrets: &'s [WebhookSecret],
    /// Files with one each.
    pub secret_files: &'s [PathBuf],
    /// A file of certificate authorities to trust instead of the system's.
    pub ca_file: Option<&'s Path>,
    /// How many requests may be under way at the same time.
    pub concurrency: usize,
}

/// Posts signed requests.
#[derive(Debug)]
pub struct Poster {
    url: Url,
    secrets: Vec<WebhookSecret>,
    client: Client,
}

impl Poster {
    /// One for this address, with its files read.
    ///
    /// # Errors
    /// Says which file can't be used, and why.
    pub fn new(address: &Address<'_>) -> Result<Self, String> {
        let mut secrets = address.secrets.to_vec();
        for file in address.secret_files {
            secrets.push(secret(file).map_err(|what| unusable(address, "secret_files", file, &what))?);
        }
        Ok(Self { url: address.url.secret().clone(), secrets, client: client(address)? })
    }

    /// Posts a body under this id, by which the other side knows it again; `trace` is a W3C traceparent.
    ///
    /// # Errors
    /// Why there is no answer; [`reason`] says it.
    pub async fn post(&self, id: &str, content_type: &str, trace: Option<&str>, body: String) -> reqwest::Result<Response> {
        let timestamp = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let mut request = self
            .client
            .post(self.url.clone())
            .header(header::CONTENT_TYPE, content_type)
            .header("webhook-signature", signatures(&self.secrets, id, timestamp, &body))
            .header("webhook-timestamp", timestamp)
            .header("webhook-id", id)
            .body(body);
        if let Some(trace) = trace {
            request = request.header("traceparent", trace);
        }
        request.send().await
    }
}

fn client(address: &Address<'_>) -> Result<Client, String> {
    // Fails when there is one already, and any will do.
    rustls::crypto::ring::default_provider().install_default().ok();
    let mut builder = Client::builder()
        .user_agent(concat!("order-closer/", env!("CARGO_PKG_VERSION")))
        .redirect(redirect::Policy::none())
        .retry(reqwest::retry::never())
        .no_proxy()
        .pool_max_idle_per_host(address.concurrency);
    if let Some(file) = address.ca_file {
        let authorities = authorities(file).map_err(|what| unusable(address, "ca_file", file, &what))?;
        builder = builder.tls_certs_only(authorities);
    } else if address.url.secret().scheme() == "http" {
        // A system without authorities is no reason to refuse.
        builder = builder.tls_certs_only([]);
    }
    builder.build().map_err(|error| format!("{}: {}", address.setting, reason(error)))
}

fn secret(file: &Path) -> Result<WebhookSecret, String> {
    std::fs::read_to_string(file).map_err(|error| error.to_string())?.trim().parse()
}

fn authorities(file: &Path) -> Result<Vec<Certificate>, String> {
    let pem = std::fs::read(file).map_err(|error| error.to_string())?;
    let authorities = Certificate::from_pem_bundle(&pem).map_err(reason)?;
    if authorities.is_empty() { Err("it has no certificate".into()) } else { Ok(authorities) }
}

fn unusable(address: &Address<'_>, key: &str, file: &Path, what: &str) -> String {
    format!("{}: {key}: {} can't be used: {what}", address.setting, file.display())
}

/// What an error of the client says, with its causes, of which the last says most.
#[must_use]
pub fn reason(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause {
        text = format!("{text}: {deeper}");
        cause = deeper.source();
    }
    text
}
