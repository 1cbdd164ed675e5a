//! What an order service does, in its language: the same code as in docs/order-service.md, which is taken from there.

use clap::ValueEnum;

/// The page that has it.
const PAGE: &str = include_str!("../../../docs/order-service.md");

/// The language of an order service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Language {
    /// With Jedis.
    Java,
    /// With go-redis.
    Go,
    /// With redis-py.
    Python,
    /// With ioredis.
    Node,
    /// With phpredis.
    Php,
    /// No code.
    None,
}

impl Language {
    /// All that have code, by the words that flags take.
    pub(super) const ALL: [(&str, Self); 6] =
        [("none", Self::None), ("java", Self::Java), ("go", Self::Go), ("python", Self::Python), ("node", Self::Node), ("php", Self::Php)];

    /// The code: what follows the first heading of that language.
    pub(super) fn code(self) -> Option<&'static str> {
        let heading = match self {
            Self::Java => "### Java",
            Self::Go => "### Go",
            Self::Python => "### Python",
            Self::Node => "### Node",
            Self::Php => "### PHP",
            Self::None => return None,
        };
        let (_, section) = PAGE.split_once(heading)?;
        let (_, fenced) = section.split_once("```")?;
        let (code, _) = fenced.split_once("\n```")?;
        Some(code.split_once('\n')?.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_language_has_its_code() {
        for (name, language) in Language::ALL {
            let code = language.code();
            assert_eq!(code.is_some(), language != Language::None, "{name}");
            assert!(code.is_none_or(|code| code.contains("UPDATE orders SET status = 1") && !code.contains("```")), "{name}: {code:?}");
        }
    }
}
