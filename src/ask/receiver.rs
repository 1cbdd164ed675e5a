//! Whoever is asked: one signed request about some orders, on a thread of its own.

use std::{collections::HashMap, sync::Arc, time::Duration};

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

/// Whoever is asked.
#[derive(Debug)]
pub(super) struct Receiver {
    poster: Arc<Poster>,
    thread: Apart,
    timeout: Duration,
    rule: RuleName,
}

impl Receiver {
    /// As the settings of this rule have it.
    pub(super) fn new(rule: &RuleName, ask: &config::Ask) -> Result<Self, String> {
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
        let thread = Apart::new("asker")?;
        let poster = Arc::new(thread.make(|| Poster::new(&address))?);
        Ok(Self { poster, thread, timeout: ask.timeout.get(), rule: rule.clone() })
    }
}

#[async_trait]
impl Respondent for Receiver {
    async fn ask(&self, questions: &[Question]) -> Result<HashMap<String, Answer>, String> {
        let (body, poster, limit) = (body(self.rule.as_str(), questions)?, Arc::clone(&self.poster), self.timeout);
        let asking = async move {
            let late = || format!("no whole answer within {}", humantime::format_duration(limit));
            tokio::time::timeout(limit, post(&poster, body)).await.unwrap_or_else(|_| Err(late()))
        };
        let bytes = self.thread.run(limit, asking).await.map_err(|error| error.to_string())??;
        answer::read(&bytes)
    }
}

async fn post(poster: &Poster, body: String) -> Result<Vec<u8>, String> {
    let mut response = poster.post(&Uuid::now_v7().to_string(), "application/json", None, body).await?;
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
