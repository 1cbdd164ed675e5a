//! What the daemon answers over HTTP, asked as Prometheus, a container's probe and an order service ask.

/// Alerts: their metrics, their chapters, and a Prometheus that fires them.
mod alerts;
/// The figures that the page and the terminal show.
mod figures;
/// More questions than are answered.
mod limits;
/// Metrics: all that are documented, and what they say of orders that close and orders that can't.
mod metrics;
/// The document of what is served.
mod openapi;
/// Questions about single orders, and closing one.
mod orders;
/// The page for people, in a browser.
mod page;
/// Whether it lives and is ready; ports in use, slow callers, tokens.
mod probes;
/// Several rules.
mod rules;
/// Orders in several tables.
mod shards;

use std::collections::BTreeMap;

use reqwest::{Client, Method, Response, StatusCode};
use serde_json::Value;

use crate::support::{Daemon, Redis, Settings, Shop, ports, wait};

const TOKEN: &str = "0123456789abcdef-a-token-of-tests";

fn client() -> Client {
    // Fails when there is one already, and any will do.
    rustls::crypto::ring::default_provider().install_default().ok();
    Client::builder().no_proxy().tls_certs_only([]).build().expect("a client")
}

/// A daemon that answers over HTTP.
struct Asked {
    daemon: Daemon,
    address: String,
    client: Client,
}

impl Asked {
    async fn start(shop: &Shop, redis: &Redis) -> Self {
        Self::with(shop.settings_with(redis)).await
    }

    /// Ready for its first question.
    async fn with(settings: Settings) -> Self {
        let address = format!("127.0.0.1:{}", ports::free());
        let daemon = Daemon::start(&settings.set("http.listen", address.as_str()).set("http.token", TOKEN));
        daemon.until_logged("answering over HTTP").await;
        Self { daemon, address, client: client() }
    }

    async fn ask(&self, method: Method, path: &str, token: Option<&str>) -> Response {
        let request = self.client.request(method, format!("http://{}{path}", self.address));
        let request = match token {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        request.send().await.expect("an answer")
    }

    async fn json(&self, method: Method, path: &str) -> (StatusCode, Value) {
        let response = self.ask(method, path, Some(TOKEN)).await;
        let status = response.status();
        (status, serde_json::from_str(&response.text().await.expect("a text")).expect("JSON"))
    }

    async fn post(&self, path: &str, body: &str) -> (StatusCode, Value) {
        let request = self.client.post(format!("http://{}{path}", self.address)).bearer_auth(TOKEN).body(body.to_owned());
        let response = request.send().await.expect("an answer");
        let status = response.status();
        (status, serde_json::from_str(&response.text().await.expect("a text")).expect("JSON"))
    }

    async fn get(&self, path: &str) -> (StatusCode, String) {
        let response = self.ask(Method::GET, path, None).await;
        (response.status(), response.text().await.expect("a text"))
    }

    /// Each sample by its name with its labels.
    async fn samples(&self) -> BTreeMap<String, f64> {
        let (_, text) = self.get("/metrics").await;
        let sample = |line: &str| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        text.lines().filter(|line| !line.starts_with('#')).filter_map(sample).collect()
    }

    /// Waits until a sample is as it should be.
    async fn until_sample(&self, name: &str, is_so: impl Fn(f64) -> bool) {
        let what = format!("{name} is as it should be");
        wait::until(&what, async || self.samples().await.get(name).copied().is_some_and(&is_so)).await;
    }
}
