//! What an order service does, in its language: the same code as in docs/order-service.md, which is taken from there.

use clap::ValueEnum;

use crate::config::DatabaseUrl;

/// The page that has it.
const PAGE: &str = include_str!("../../../docs/order-service.md");

/// The language of an order service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Language {
    /// With JDBC and Jedis.
    Java,
    /// With JdbcTemplate and StringRedisTemplate.
    Spring,
    /// With pgx and redigo.
    Go,
    /// With SQLAlchemy and redis-py.
    Python,
    /// With Django and redis-py.
    Django,
    /// With the usual clients of the database and Redis.
    Node,
    /// With PDO and phpredis.
    Php,
    /// With Laravel's DB and Redis.
    Laravel,
    /// No code.
    None,
}

impl Language {
    /// All of them, by the words that flags take.
    pub(super) const ALL: [(&str, Self); 9] = [
        ("none", Self::None),
        ("java", Self::Java),
        ("spring", Self::Spring),
        ("go", Self::Go),
        ("python", Self::Python),
        ("django", Self::Django),
        ("node", Self::Node),
        ("php", Self::Php),
        ("laravel", Self::Laravel),
    ];

    /// The code for this database, or for the one that is most like it, and what it is written with.
    pub(super) fn code(self, database: &DatabaseUrl) -> Option<(&'static str, &'static str)> {
        let heading = match (self, database) {
            (Self::Java, _) => "### Java (JDBC",
            (Self::Spring, _) => "### Java (Spring",
            (Self::Go, _) => "### Go",
            (Self::Python, _) => "### Python (SQLAlchemy",
            (Self::Django, _) => "### Python (Django",
            (Self::Node, DatabaseUrl::Postgres(_)) => "### Node (pg",
            (Self::Node, _) => "### Node (mysql2",
            (Self::Php, _) => "### PHP (PDO",
            (Self::Laravel, _) => "### PHP (Laravel",
            (Self::None, _) => return None,
        };
        let section = &PAGE[PAGE.find(heading)?..];
        let clients = section.lines().next()?.trim_start_matches("### ");
        let (_, fenced) = section.split_once("\n```")?;
        let (code, _) = fenced.split_once("\n```")?;
        Some((clients, code.split_once('\n')?.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_language_has_its_code() {
        for url in ["postgres://db/shop", "mysql://db/shop", "sqlite://shop.db"] {
            let database = DatabaseUrl::try_from(url.to_owned()).expect("a good URL");
            for (name, language) in Language::ALL {
                let code = language.code(&database);
                assert_eq!(code.is_some(), language != Language::None, "{name}");
                let is_whole = |(clients, code): (&str, &str)| clients.ends_with(')') && code.len() > 200 && !code.contains("```");
                assert!(code.is_none_or(is_whole), "{name}: {code:?}");
            }
        }
    }
}
