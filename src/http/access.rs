//! Who may ask what, and how often: without the token probes and metrics only, which are limited for nobody.

use std::{
    path::Path,
    sync::{Arc, PoisonError, RwLock},
};

use axum::{
    extract::{Request, State},
    http::{Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use subtle::ConstantTimeEq;

use super::{Refusal, limits::Limits};
use crate::config::{Http, Token};

/// The token, if there is one, what is to be seen without it, and how often who may ask. All clones have the same.
#[derive(Debug, Clone)]
pub struct Access {
    token: Arc<RwLock<Option<Arc<Token>>>>,
    read_only_page: bool,
    reads_only: bool,
    limits: Arc<Limits>,
}

/// How much of the figures somebody sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    All,
    WithoutIds,
}

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
        let token = Arc::new(RwLock::new(token.map(Arc::new)));
        Ok(Self { token, read_only_page: http.read_only_page, reads_only: false, limits: Arc::default() })
    }

    /// The same for a shadow, where nothing can be changed, with whatever token.
    #[must_use]
    pub fn reading_only(self) -> Self {
        Self { reads_only: true, ..self }
    }

    /// Takes the token of another: from now on it alone is valid.
    pub fn replace(&self, by: &Self) {
        let token = by.token();
        *self.token.write().unwrap_or_else(PoisonError::into_inner) = token;
    }

    /// The token that has to be sent, if there is one.
    #[must_use]
    pub fn token(&self) -> Option<Arc<Token>> {
        self.token.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What the page is told of this.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match (self.read_only_page, self.token()) {
            (true, _) => "read-only",
            (false, Some(_)) => "token",
            (false, None) => "none",
        }
    }

    /// What is shown of the figures. A wrong token is never taken for none: whoever sends one wants to see more.
    fn view(&self, request: &Request) -> Result<View, Refusal> {
        if self.read_only_page && !request.headers().contains_key(header::AUTHORIZATION) {
            return self.limits.admit_stranger().map(|()| View::WithoutIds);
        }
        self.admits(request).map(|()| View::All)
    }

    fn admits(&self, request: &Request) -> Result<(), Refusal> {
        let Some(token) = self.token() else {
            let reason = "nothing of this is served without a token in the configuration (http.token_file)";
            return Err(Refusal::new(StatusCode::FORBIDDEN, reason));
        };
        let given = request.headers().get(header::AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
        // As long as it takes to compare all of it, however much is right.
        if given.is_some_and(|given| bool::from(given.ct_eq(token.bytes()))) {
            return self.limits.admit();
        }
        self.limits.admit_stranger()?;
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

/// Lets those pass who send the token.
pub(super) async fn guard(State(access): State<Access>, request: Request, next: Next) -> Response {
    match access.admits(&request) {
        Ok(()) if access.reads_only && request.method() != Method::GET => {
            refused(Refusal::new(StatusCode::CONFLICT, "this is a shadow (run --shadow): it closes nothing, and changes nothing"))
        }
        Ok(()) => next.run(request).await,
        Err(refusal) => refused(refusal),
    }
}

/// Lets those pass who may see figures, and says which.
pub(super) async fn see(State(access): State<Access>, mut request: Request, next: Next) -> Response {
    match access.view(&request) {
        Ok(view) => {
            request.extensions_mut().insert(view);
            next.run(request).await
        }
        Err(refusal) => refused(refusal),
    }
}

fn refused(refusal: Refusal) -> Response {
    let is_unknown = refusal.status == StatusCode::UNAUTHORIZED;
    let mut response = refusal.into_response();
    if is_unknown {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
    }
    response
}
