//! Whoever looks at a daemon all the time: a Prometheus that scrapes it each second, and a browser with its page open.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use reqwest::{Client, Response};
use tokio_util::task::AbortOnDropHandle;

use crate::support::{Settings, ports};

const TOKEN: &str = "0123456789abcdef-a-token-of-benchmarks";

/// What the page hears, where there is one.
const STREAM: &str = "/figures/stream";

/// How often metrics are scraped, and an address is tried at which nobody answers.
const EVERY: Duration = Duration::from_secs(1);

/// A watcher of one address, until it is dropped.
#[derive(Debug)]
pub struct Watcher {
    address: String,
    scrapes: Arc<AtomicU64>,
    heard: Arc<AtomicU64>,
    _running: [AbortOnDropHandle<()>; 2],
}

impl Watcher {
    /// Watches whatever comes to answer at an address that is free now.
    pub fn start() -> Self {
        let client = client();
        let address = format!("127.0.0.1:{}", ports::free());
        let (scrapes, heard) = <(Arc<AtomicU64>, Arc<AtomicU64>)>::default();
        let scraping = tokio::spawn(again_and_again(client.clone(), format!("http://{address}/metrics"), Arc::clone(&scrapes)));
        let hearing = tokio::spawn(again_and_again(client, format!("http://{address}{STREAM}"), Arc::clone(&heard)));
        Self { address, scrapes, heard, _running: [scraping, hearing].map(AbortOnDropHandle::new) }
    }

    /// The settings of a daemon that it watches.
    pub fn watched(&self, settings: Settings) -> Settings {
        listening(settings, &self.address)
    }

    /// How often metrics were scraped, and how many pieces of the page's stream were heard.
    pub fn seen(&self) -> (u64, u64) {
        (self.scrapes.load(Ordering::Relaxed), self.heard.load(Ordering::Relaxed))
    }
}

/// Asks each second, and reads what comes for as long as it comes.
async fn again_and_again(client: Client, url: String, pieces: Arc<AtomicU64>) {
    let mut ticks = tokio::time::interval(EVERY);
    loop {
        ticks.tick().await;
        let answer = client.get(&url).bearer_auth(TOKEN).send().await.and_then(Response::error_for_status);
        let Ok(mut answer) = answer else { continue };
        while let Ok(Some(_)) = answer.chunk().await {
            pieces.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The counts of one daemon, which are asked for once.
#[derive(Debug)]
pub struct Counts {
    address: String,
}

impl Counts {
    /// Of a daemon that is to be started.
    pub fn at_a_free_address() -> Self {
        Self { address: format!("127.0.0.1:{}", ports::free()) }
    }

    /// The settings of that daemon.
    pub fn of(&self, settings: Settings) -> Settings {
        listening(settings, &self.address)
    }

    /// What a counter has come to, all its labels together.
    pub async fn total(&self, name: &str) -> u64 {
        let url = format!("http://{}/metrics", self.address);
        let answer = client().get(url).bearer_auth(TOKEN).send().await.and_then(Response::error_for_status).expect("it answers");
        let text = answer.text().await.expect("text");
        let samples = text.lines().filter(|line| line.split(['{', ' ']).next() == Some(name));
        samples.map(|line| line.rsplit(' ').next().and_then(|count| count.parse::<u64>().ok()).expect("a count")).sum()
    }
}

fn client() -> Client {
    // Fails when there is one already, and any will do.
    rustls::crypto::ring::default_provider().install_default().ok();
    Client::builder().no_proxy().tls_certs_only([]).build().expect("a client")
}

fn listening(settings: Settings, address: &str) -> Settings {
    settings.set("http.listen", address).set("http.token", TOKEN)
}
