//! Whoever is asked: one signed request about some orders, on a thread of its own.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use reqwest::StatusCode;
use serde::Serialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::{
    Respondent,
    answer::{self, Answer},
    queue::Question,
};
use crate::{
    config::{self, RuleName},
    order::rfc3339,
    webhook::{Address, Apart, Poster, reason},
};

/// A longer answer is none.
const LONGEST: usize = 1 << 20;

/// Whoever is asked. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Receiver {
    way: Arc<Mutex<Way>>,
    thread: Arc<Apart>,
    timeout: Duration,
    rule: RuleName,
}

/// Where questions are posted, with the files of that read: what may change while the daemon runs.
#[derive(Debug, Clone)]
pub struct Way(Arc<Poster>);

impl Receiver {
    /// As the settings of this rule have it.
    ///
    /// # Errors
    /// Says which file of the settings can't be used, and why.
    pub fn new(rule: &RuleName, ask: &config::Ask) -> Result<Self, String> {
        let thread = Arc::new(Apart::new("asker")?);
        let way = Arc::new(Mutex::new(way(&thread, rule, ask)?));
        Ok(Self { way, thread, timeout: ask.timeout.get(), rule: rule.clone() })
    }

    /// The way there by these settings, and by their files as they are now.
    ///
    /// # Errors
    /// Says which file of the settings can't be used, and why.
    pub fn way(&self, ask: &config::Ask) -> Result<Way, String> {
        way(&self.thread, &self.rule, ask)
    }

    /// Whoever is asked from now on is asked that way.
    pub fn take(&self, way: Way) {
        *self.way.lock().unwrap_or_else(PoisonError::into_inner) = way;
    }

    fn poster(&self) -> Arc<Poster> {
        let Way(poster) = &*self.way.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(poster)
    }
}

fn way(thread: &Apart, rule: &RuleName, ask: &config::Ask) -> Result<Way, String> {
    let setting = match rule.as_str() {
        RuleName::ONLY => "close.ask".into(),
        rule => format!("rules.{rule}.close.ask"),
    };
    let address = Address {
        setting,
        url: &ask.url,
        secrets: &ask.secrets,
        secret_files: &ask.secret_files,
        ca_file: ask.ca_file.as_deref(),
        concurrency: ask.concurrency,
    };
    thread.make(|| Poster::new(&address)).map(Arc::new).map(Way)
}

#[async_trait]
impl Respondent for Receiver {
    async fn ask(&self, questions: &[Question]) -> Result<HashMap<String, Answer>, String> {
        let (body, poster, limit) = (body(self.rule.as_str(), questions)?, self.poster(), self.timeout);
        let asking = async move {
            let late = || format!("no whole answer within {}", humantime::format_duration(limit));
            tokio::time::timeout(limit, post(&poster, body)).await.unwrap_or_else(|_| Err(late()))
        };
        let bytes = self.thread.run(limit, asking).await.map_err(|error| error.to_string())??;
        answer::read(&bytes)
    }
}

async fn post(poster: &Poster, body: String) -> Result<Vec<u8>, String> {
    let mut response = poster.post(&Uuid::now_v7().to_string(), "application/json", None, body).await.map_err(reason)?;
    if response.status() != StatusCode::OK {
        let note = if response.status().is_redirection() { "; redirects are not followed" } else { "" };
        return Err(format!("answered {}{note}", response.status()));
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(reason)? {
        if bytes.len() + chunk.len() > LONGEST {
            return Err(format!("the answer is longer than {LONGEST} bytes"));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// The body of a request.
fn body(rule: &str, questions: &[Question]) -> Result<String, String> {
    #[derive(Serialize)]
    struct Body<'q> {
        r#type: &'static str,
        rule: &'q str,
        orders: Vec<Order<'q>>,
    }
    #[derive(Serialize)]
    struct Order<'q> {
        id: &'q str,
        deadline: String,
        order: &'q RawValue,
    }
    let body = || {
        let mut orders = Vec::with_capacity(questions.len());
        for question in questions {
            let order = serde_json::from_str(&question.order)?;
            orders.push(Order { id: question.id.as_str(), deadline: rfc3339(question.deadline), order });
        }
        serde_json::to_string(&Body { r#type: "order-closer.ask", rule, orders })
    };
    body().map_err(|error: serde_json::Error| error.to_string())
}
