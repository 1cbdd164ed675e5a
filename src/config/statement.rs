//! A statement of `close.sql`: plain SQL, or SQL with the number of rows that it must change.

use std::fmt;

use serde::{Deserialize, Serialize, de};

use crate::config::verb::only_reads;

/// One of the user's statements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(into = "Shape")]
pub struct Statement {
    /// The SQL, in which `:ids` is the list of the orders being closed.
    pub sql: String,
    /// How many rows it must change for each order; any number when absent.
    pub rows: Option<Rows>,
}

/// How many rows a statement must change for one order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// Just so many.
    Exactly(u64),
    /// So many or more.
    AtLeast(u64),
}

impl Rows {
    /// Whether a statement that changed so many rows did what it must.
    #[must_use]
    pub const fn allow(self, changed: u64) -> bool {
        match self {
            Self::Exactly(number) => changed == number,
            Self::AtLeast(number) => changed >= number,
        }
    }
}

impl fmt::Display for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(number) => write!(f, "{number}"),
            Self::AtLeast(number) => write!(f, ">= {number}"),
        }
    }
}

impl Serialize for Rows {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Exactly(number) => serializer.serialize_u64(*number),
            Self::AtLeast(_) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Rows {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = Rows;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of rows from 1, such as 1 for exactly one or \">= 1\" for one or more")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Rows, E> {
                if number == 0 {
                    return Err(E::invalid_value(de::Unexpected::Unsigned(number), &self));
                }
                Ok(Rows::Exactly(number))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Rows, E> {
                let unsigned = u64::try_from(number).map_err(|_| E::invalid_value(de::Unexpected::Signed(number), &self))?;
                self.visit_u64(unsigned)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Rows, E> {
                let number = text.strip_prefix(">=").and_then(|number| number.trim().parse().ok()).filter(|number| *number > 0);
                number.map(Rows::AtLeast).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

/// A statement as it is written.
#[derive(Serialize)]
#[serde(untagged)]
enum Shape {
    Plain(String),
    Counted { sql: String, rows: Rows },
}

impl From<Statement> for Shape {
    fn from(Statement { sql, rows }: Statement) -> Self {
        match rows {
            None => Self::Plain(sql),
            Some(rows) => Self::Counted { sql, rows },
        }
    }
}

impl<'de> Deserialize<'de> for Statement {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            sql: String,
            rows: Option<Rows>,
        }

        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Statement;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a statement in quotes, or a table such as { sql = \"...\", rows = 1 }")
            }

            fn visit_str<E: de::Error>(self, sql: &str) -> Result<Statement, E> {
                Ok(Statement { sql: sql.into(), rows: None })
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Statement, A::Error> {
                let Table { sql, rows } = Table::deserialize(de::value::MapAccessDeserializer::new(map))?;
                if only_reads(&sql)
                    && let Some(rows) = rows
                {
                    return Err(de::Error::custom(format!(
                        "has a SELECT, which changes no rows, and asks for {rows}; leave rows out, or write an INSERT, UPDATE or DELETE"
                    )));
                }
                Ok(Statement { sql, rows })
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}
