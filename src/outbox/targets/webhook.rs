//! Webhooks: an event as a signed POST.
//!
//! An endpoint has taken an event when it has answered with a status of 2xx, to the end. Whatever else happens is a
//! failure, and the event comes again: no answer in time, a broken one, any other status, a redirect. 410 asks
//! for no more events at all; of a timer, for no more of this one. Whoever takes a timer may say when to be told of it again. No
//! error text has the URL, which may hold a secret.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use reqwest::{
    StatusCode,
    header::{self, HeaderValue},
};
use tracing::warn;

use super::{
    Answer, Rest, Target,
    envelope::{CONTENT_TYPE, cloud_event},
};
use crate::{
    config::{EventSource, Webhook},
    outbox::{Due, Event},
    webhook::{Address, Poster, reason},
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
    poster: Poster,
    timeout: Duration,
    concurrency: usize,
    source: EventSource,
}

impl Endpoint {
    /// An endpoint of this list, with its files read.
    ///
    /// # Errors
    /// Says which file can't be used, and why.
    pub fn new(list: &str, webhook: &Webhook, source: &EventSource) -> Result<Self, String> {
        let address = Address {
            setting: format!("{list}, {}", webhook.name),
            url: &webhook.url,
            secrets: &webhook.secrets,
            secret_files: &webhook.secret_files,
            ca_file: webhook.ca_file.as_deref(),
            concurrency: webhook.concurrency,
        };
        Ok(Self {
            name: webhook.name.to_string(),
            poster: Poster::new(&address)?,
            timeout: webhook.timeout.get(),
            concurrency: webhook.concurrency,
            source: source.clone(),
        })
    }

    async fn post(&self, event: &Event) -> Result<Answer, String> {
        let body = cloud_event(event, &self.source).map_err(|error| error.to_string())?;
        let posted = self.poster.post(&event.id.to_string(), CONTENT_TYPE, event.traceparent.as_deref(), body).await;
        let mut response = match posted {
            Ok(response) => response,
            Err(error) if error.is_connect() => return Ok(Answer::Unreachable { reason: reason(error) }),
            Err(error) => return Err(reason(error)),
        };
        let answer = judge(response.status(), response.headers().get(header::RETRY_AFTER), SystemTime::now());
        let mut read = Vec::new();
        while read.len() < LONGEST_ANSWER
            && let Some(chunk) = response.chunk().await.map_err(reason)?
        {
            read.extend_from_slice(&chunk);
        }
        Ok(if event.is_of_timer() { of_timer(answer, &read, event) } else { answer })
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

/// What an answer means of a timer.
fn of_timer(answer: Answer, body: &[u8], event: &Event) -> Answer {
    match answer {
        Answer::Gone { .. } => Answer::Unwanted,
        Answer::Delivered => match Due::answered(body) {
            Ok(Some(due)) => Answer::Again { due },
            Ok(None) => Answer::Delivered,
            Err(reason) => {
                warn!(event = %event.id, timer = event.order_id, reason, "a target has taken a timer, and its wish to be told again can't be read: it is not");
                Answer::Delivered
            }
        },
        Answer::Again { .. } | Answer::Unwanted | Answer::Failed { .. } | Answer::Unreachable { .. } | Answer::Away { .. } => answer,
    }
}

fn judge(status: StatusCode, retry_after: Option<&HeaderValue>, now: SystemTime) -> Answer {
    if status.is_success() {
        return Answer::Delivered;
    }
    if status == StatusCode::GONE {
        return Answer::Gone { reason: format!("answered {status}") };
    }
    let note = if status.is_redirection() { "; redirects are not followed" } else { "" };
    let event = retry_after.and_then(|value| rest(value.to_str().ok()?, now));
    let longest = if status == StatusCode::TOO_MANY_REQUESTS { LONGEST_PAUSE } else { SHORT_PAUSE };
    Answer::Failed { reason: format!("answered {status}{note}"), rest: event.map(|event| Rest { event, target: event.min(longest) }) }
}

/// `Retry-After` in either of its forms, seconds or a date (RFC 9110, section 10.2.3).
fn rest(value: &str, now: SystemTime) -> Option<Duration> {
    let rest = match value.trim().parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(value).ok()?.duration_since(now).unwrap_or_default(),
    };
    Some(rest.min(LONGEST_REST))
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn both_forms_of_retry_after_are_read() {
        let now = UNIX_EPOCH + Duration::from_secs(784_111_777 - 30);
        assert_eq!(rest("120", now), Some(Duration::from_secs(120)));
        assert_eq!(rest("Sun, 06 Nov 1994 08:49:37 GMT", now), Some(Duration::from_secs(30)));
        assert_eq!(rest("Sun, 06 Nov 1994 08:49:37 GMT", now + Duration::from_secs(60)), Some(Duration::ZERO));
        assert_eq!(rest("99999999999", now), Some(LONGEST_REST));
        assert_eq!(rest("soon", now), None);
    }

    /// An endpoint that is asked too often is left alone for a minute at the most, any other for five seconds.
    #[test]
    fn a_wish_to_rest_counts_by_its_status() {
        let now = UNIX_EPOCH + Duration::from_secs(784_111_777 - 30);
        let judged = |status: u16, header: &str| {
            let header = HeaderValue::from_bytes(header.as_bytes()).expect("a header");
            judge(StatusCode::from_u16(status).expect("a status"), Some(&header), now)
        };
        for (status, header, event, target) in [
            (429, "120", 120, 60),
            (429, "60", 60, 60),
            (429, "7", 7, 7),
            (429, "Sun, 06 Nov 1994 08:49:37 GMT", 30, 30),
            (429, "99999999999", 86_400, 60),
            (503, "120", 120, 5),
            (503, "3", 3, 3),
            (503, "Sun, 06 Nov 1994 08:49:37 GMT", 30, 5),
            (503, "Sun, 06 Nov 1994 08:49:00 GMT", 0, 0),
            (503, "99999999999", 86_400, 5),
            (500, "60", 60, 5),
            (302, "60", 60, 5),
        ] {
            let Answer::Failed { rest: Some(rest), .. } = judged(status, header) else { panic!("{status} {header}: no rest") };
            assert_eq!((rest.event, rest.target), (Duration::from_secs(event), Duration::from_secs(target)), "{status} {header}");
        }
        for (status, header) in [(429, "soon"), (503, "-1"), (503, ""), (429, "ü"), (503, "99999999999999999999999")] {
            assert!(matches!(judged(status, header), Answer::Failed { rest: None, .. }), "{status} {header}");
        }
        assert!(matches!(judge(StatusCode::TOO_MANY_REQUESTS, None, now), Answer::Failed { rest: None, .. }));
        assert!(matches!(judged(200, "60"), Answer::Delivered));
        assert!(matches!(judged(410, "60"), Answer::Gone { .. }));
    }

    proptest::proptest! {
        /// Whatever a receiver answers, its rest has an end.
        #[test]
        fn no_retry_after_is_too_much(text in "\\PC{0,40}|[-+ 0-9.eE]{0,30}|[A-Z][a-z]{2}, [0-9]{1,3} [A-Z][a-z]{2} [0-9]{1,6} [0-9:]{5,9} GMT", now in 0..20_000_000_000_u64) {
            let rest = rest(&text, UNIX_EPOCH + Duration::from_secs(now));
            proptest::prop_assert!(rest.is_none_or(|rest| rest <= LONGEST_REST), "{text:?}: {rest:?}");
        }
    }
}
