//! HTTP: where the daemon answers questions about itself, and who may ask it to do something.

use std::{net::SocketAddr, path::PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Secret, optional::optional};

/// The HTTP side of the daemon.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    /// Where it listens, if it does.
    pub listen: HttpListen,
    /// Who may ask for orders and change something: whoever sends `Authorization: Bearer` with this.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "optional")]
    pub token: Option<Token>,
    /// A file with that token.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "optional")]
    pub token_file: Option<PathBuf>,
    /// Whether whoever reaches it sees the page without the token: all figures, but no ids and nothing that changes anything.
    pub read_only_page: bool,
}

/// An address with its port, or none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct HttpListen(Option<SocketAddr>);

impl HttpListen {
    /// Where to listen, if anywhere.
    #[must_use]
    pub fn get(self) -> Option<SocketAddr> {
        self.0
    }
}

impl TryFrom<String> for HttpListen {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "none" => Ok(Self(None)),
            text => text
                .parse()
                .map(|address| Self(Some(address)))
                .map_err(|_| "is no address with a port, such as \"127.0.0.1:9890\" or \"[::]:9890\", nor \"none\"".into()),
        }
    }
}

impl From<HttpListen> for String {
    fn from(listen: HttpListen) -> Self {
        listen.0.map_or_else(|| "none".into(), |address| address.to_string())
    }
}

/// What whoever may change something sends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub struct Token(Secret);

impl Token {
    /// The fewest characters of one.
    const SHORTEST: usize = 16;

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.0.reveal().as_bytes()
    }
}

impl TryFrom<String> for Token {
    type Error = String;

    // No message may quote the text.
    fn try_from(text: String) -> Result<Self, String> {
        let fits = text.len() >= Self::SHORTEST && text.bytes().all(|byte| byte.is_ascii_graphic());
        if !fits {
            return Err(format!(
                "a token has {} visible ASCII characters or more, without spaces; `openssl rand -hex 32` prints one",
                Self::SHORTEST
            ));
        }
        Ok(Self(text.into()))
    }
}

impl std::str::FromStr for Token {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.to_owned().try_into()
    }
}
