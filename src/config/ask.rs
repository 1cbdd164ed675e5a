//! The question before closing: who is asked whether an order may be closed, and what becomes of it without an answer.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ColumnName, Span, WebhookSecret, WebhookUrl, optional::optional, schema};

/// Who is asked before an order is closed.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = schema::url_or_file)]
pub struct Ask {
    /// Where questions are posted.
    pub url: WebhookUrl,
    /// A file with that URL.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "optional")]
    pub url_file: Option<PathBuf>,
    /// Signing secrets; with several, each request carries a signature by each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<WebhookSecret>,
    /// Files with a signing secret each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secret_files: Vec<PathBuf>,
    /// A PEM file of certificate authorities to trust instead of the system's.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "optional")]
    pub ca_file: Option<PathBuf>,
    /// How long one request may take.
    #[serde(default = "three_seconds")]
    pub timeout: Span,
    /// How long before its deadline an order is asked about.
    #[serde(default = "no_time")]
    pub ahead: Span,
    /// The most orders in one request.
    #[serde(default = "hundred")]
    pub batch: usize,
    /// The most requests at the same time.
    #[serde(default = "four")]
    pub concurrency: usize,
    /// Columns of the order that a question carries.
    #[serde(default)]
    pub include: Vec<ColumnName>,
    /// What becomes of an order about which nobody answers.
    #[serde(default)]
    pub unanswered: Unanswered,
    /// After how long without an answer, where it closes then.
    #[serde(default = "quarter_of_an_hour")]
    pub max_wait: Span,
}

/// What becomes of an order about which nobody answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Unanswered {
    /// It waits for an answer.
    #[default]
    Wait,
    /// It waits for `max_wait`, and is closed then.
    Close,
}

fn three_seconds() -> Span {
    Span::from_secs(3)
}

fn no_time() -> Span {
    Span::from_secs(0)
}

fn quarter_of_an_hour() -> Span {
    Span::from_secs(15 * 60)
}

fn hundred() -> usize {
    100
}

fn four() -> usize {
    4
}
