//! Webhooks: an event as a signed POST.
//!
//! An endpoint has taken an event when it has answered with a status of 2xx, to the end. Whatever else happens is a
//! failure, and the event comes again: no answer in time, a broken one, any other status, a redirect. 410 asks
//! for no more events at all. No error text has the URL, which may hold a secret.

use std::{
    error::Error,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use async_trait::async_trait;
use reqwest::{Certificate, Client, Response, StatusCode, Url, header, redirect};

use super::{
    Answer, Rest, Target,
    envelope::{CONTENT_TYPE, cloud_event},
    signature::signatures,
};
use crate::{
    config::{EventSource, Webhook, WebhookSecret},
    outbox::Event,
};

/// So much of an answer is read, so that its connection can be used again; what is longer is cut off.
const LONGEST_ANSWER: usize = 65_536;

/// The longest rest that an event is given when its endpoint asks for one.
const LONGEST_REST: Duration = Duration::from_hours(24);

/// For how long the endpoint is then asked for nothing else: a moment, for it may mean this event only; where it says that
/// there were too many (429), longer.
const SHORT_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// An endpoint.
#[derive(Debug)]
pub struct Endpoint {
    name: String,
    url: Url,
    secrets: Vec<WebhookSecret>,
    client: Client,
    timeout: Duration,
    concurrency: usize,
    source: EventSource,
}

impl Endpoint {
    /// An endpoint, with its files read.
    ///
    /// # Errors
    /// Says which file can't be used, and why.
    pub fn new(webhook: &Webhook, source: &EventSource) -> Result<Self, String> {
        let mut secrets = webhook.secrets.clone();
        for file in &webhook.secret_files {
            secrets.push(secret(file).map_err(|what| unusable(webhook, "secret_files", file, &what))?);
        }
        Ok(Self {
            name: webhook.name.to_string(),
            url: webhook.url.secret().clone(),
            secrets,
            client: client(webhook)?,
            timeout: webhook.timeout.get(),
            concurrency: webhook.concurrency,
            source: source.clone(),
        })
    }

    async fn post(&self, event: &Event) -> Result<Answer, String> {
        let body = cloud_event(event, &self.source).map_err(|error| error.to_string())?;
        let id = event.id.to_string();
        let timestamp = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let mut request = self
            .client
            .post(self.url.clone())
            .header(header::CONTENT_TYPE, CONTENT_TYPE)
            .header("webhook-signature", signatures(&self.secrets, &id, timestamp, &body))
            .header("webhook-timestamp", timestamp)
            .header("webhook-id", id)
            .body(body);
        if let Some(traceparent) = &event.traceparent {
            request = request.header("traceparent", traceparent);
        }
        let mut response = request.send().await.map_err(reason)?;
        let answer = judge(&response);
        let mut read = 0;
        while read < LONGEST_ANSWER
            && let Some(chunk) = response.chunk().await.map_err(reason)?
        {
            read += chunk.len();
        }
        Ok(answer)
    }
}

#[async_trait]
impl Target for Endpoint {
    fn name(&self) -> &str {
        &self.name
    }

    fn concurrency(&self) -> usize {
        self.concurrency
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    async fn deliver(&self, event: &Event) -> Answer {
        match tokio::time::timeout(self.timeout, self.post(event)).await {
            Ok(answered) => answered.unwrap_or_else(Answer::failed),
            Err(_) => Answer::failed(format!("no whole answer within {}", humantime::format_duration(self.timeout))),
        }
    }
}

fn judge(response: &Response) -> Answer {
    let status = response.status();
    if status.is_success() {
        return Answer::Delivered;
    }
    if status == StatusCode::GONE {
        return Answer::Gone { reason: format!("answered {status}") };
    }
    let note = if status.is_redirection() { "; redirects are not followed" } else { "" };
    let event = response.headers().get(header::RETRY_AFTER).and_then(|value| retry_after(value.to_str().ok()?, SystemTime::now()));
    let longest = if status == StatusCode::TOO_MANY_REQUESTS { LONGEST_PAUSE } else { SHORT_PAUSE };
    Answer::Failed { reason: format!("answered {status}{note}"), rest: event.map(|event| Rest { event, target: event.min(longest) }) }
}

/// `Retry-After` in either of its forms, seconds or a date (RFC 9110, section 10.2.3).
fn retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    let rest = match value.trim().parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(value).ok()?.duration_since(now).unwrap_or_default(),
    };
    Some(rest.min(LONGEST_REST))
}

fn client(webhook: &Webhook) -> Result<Client, String> {
    // Fails when there is one already, and any will do.
    rustls::crypto::ring::default_provider().install_default().ok();
    let mut builder = Client::builder()
        .user_agent(concat!("order-closer/", env!("CARGO_PKG_VERSION")))
        .redirect(redirect::Policy::none())
        .retry(reqwest::retry::never())
        .no_proxy()
        .pool_max_idle_per_host(webhook.concurrency);
    if let Some(file) = &webhook.ca_file {
        let authorities = authorities(file).map_err(|what| unusable(webhook, "ca_file", file, &what))?;
        builder = builder.tls_certs_only(authorities);
    } else if webhook.url.secret().scheme() == "http" {
        // A system without authorities is no reason to refuse.
        builder = builder.tls_certs_only([]);
    }
    builder.build().map_err(|error| format!("events.webhooks, {}: {}", webhook.name, reason(error)))
}

fn secret(file: &Path) -> Result<WebhookSecret, String> {
    std::fs::read_to_string(file).map_err(|error| error.to_string())?.trim().parse()
}

fn authorities(file: &Path) -> Result<Vec<Certificate>, String> {
    let pem = std::fs::read(file).map_err(|error| error.to_string())?;
    let authorities = Certificate::from_pem_bundle(&pem).map_err(reason)?;
    if authorities.is_empty() { Err("it has no certificate".into()) } else { Ok(authorities) }
}

fn unusable(webhook: &Webhook, key: &str, file: &Path, what: &str) -> String {
    format!("events.webhooks, {}: {key}: {} can't be used: {what}", webhook.name, file.display())
}

/// What an error of the client says, with its causes, of which the last says most.
fn reason(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause {
        text = format!("{text}: {deeper}");
        cause = deeper.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_retry_after_are_read() {
        let now = UNIX_EPOCH + Duration::from_secs(784_111_777 - 30);
        assert_eq!(retry_after("120", now), Some(Duration::from_secs(120)));
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:49:37 GMT", now), Some(Duration::from_secs(30)));
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:49:37 GMT", now + Duration::from_secs(60)), Some(Duration::ZERO));
        assert_eq!(retry_after("99999999999", now), Some(LONGEST_REST));
        assert_eq!(retry_after("soon", now), None);
    }

    proptest::proptest! {
        /// Whatever a receiver answers, its rest has an end.
        #[test]
        fn no_retry_after_is_too_much(text in "\\PC{0,40}|[-+ 0-9.eE]{0,30}|[A-Z][a-z]{2}, [0-9]{1,3} [A-Z][a-z]{2} [0-9]{1,6} [0-9:]{5,9} GMT", now in 0..20_000_000_000_u64) {
            let rest = retry_after(&text, UNIX_EPOCH + Duration::from_secs(now));
            proptest::prop_assert!(rest.is_none_or(|rest| rest <= LONGEST_REST), "{text:?}: {rest:?}");
        }
    }
}
