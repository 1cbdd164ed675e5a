//! Who may ask what: without the token probes and metrics only.

use std::{
    path::Path,
    sync::{Arc, PoisonError, RwLock},
};

use axum::{
    extract::{Request, State},
    http::{StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use subtle::ConstantTimeEq;

use super::Refusal;
use crate::config::{Http, Token};

/// The token, if there is one. All clones have the same.
#[derive(Debug, Clone)]
pub struct Access(Arc<RwLock<Option<Arc<Token>>>>);

impl Access {
    /// As the configuration says, with its file read.
    ///
    /// # Errors
    /// Says which file can't be used, and why; never what is in it.
    pub fn new(http: &Http) -> Result<Self, String> {
        let token = match (&http.token, &http.token_file) {
            (Some(_), Some(_)) => return Err("http.token and http.token_file are both set; one of them is enough".into()),
            (Some(token), None) => Some(token.clone()),
            (None, Some(file)) => Some(read(file).map_err(|what| format!("http.token_file: {} can't be used: {what}", file.display()))?),
            (None, None) => None,
        };
        Ok(Self(Arc::new(RwLock::new(token.map(Arc::new)))))
    }

    /// Takes the token of another: from now on it alone is valid.
    pub fn replace(&self, by: &Self) {
        let token = by.token();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = token;
    }

    fn token(&self) -> Option<Arc<Token>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn admits(&self, request: &Request) -> Result<(), Refusal> {
        let Some(token) = self.token() else {
            let reason = "nothing of this is served without a token in the configuration (http.token_file)";
            return Err(Refusal::new(StatusCode::FORBIDDEN, reason));
        };
        let given = request.headers().get(header::AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
        // As long as it takes to compare all of it, however much is right.
        if given.is_some_and(|given| bool::from(given.ct_eq(token.bytes()))) {
            return Ok(());
        }
        Err(Refusal::new(StatusCode::UNAUTHORIZED, "this needs the header Authorization: Bearer with the token of http.token_file"))
    }
}

fn read(file: &Path) -> Result<Token, String> {
    std::fs::read_to_string(file).map_err(|error| error.to_string())?.trim().parse()
}

/// What follows the scheme, whose case does not matter (RFC 9110, section 11.1).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

pub(super) async fn guard(State(access): State<Access>, request: Request, next: Next) -> Response {
    match access.admits(&request) {
        Ok(()) => next.run(request).await,
        Err(refusal) => {
            let is_unknown = refusal.status == StatusCode::UNAUTHORIZED;
            let mut response = refusal.into_response();
            if is_unknown {
                response.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
            }
            response
        }
    }
}
