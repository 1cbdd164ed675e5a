//! Failures, sorted once by what to do next. Nobody else reads an SQLSTATE.

use sqlx::error::DatabaseError;

use crate::{
    config::DatabaseUrl,
    order::{did_you_mean, printable},
};

/// Why a statement failed, as what to do next.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Two transactions got in each other's way; retry at once.
    #[error("conflict with another transaction: {0}")]
    Conflict(String),
    /// Somebody holds what is needed for longer than it is waited for; look again soon.
    #[error("locked by another transaction: {0}")]
    Locked(String),
    /// No answer within `database.timeout`; a smaller batch may fit into it.
    #[error("the database took too long: {0}")]
    TimedOut(String),
    /// The database can't be used at the moment; wait, and back off.
    #[error("database unavailable: {0}")]
    Unavailable(String),
    /// The database lets this user not in, or not write, or is not there: its configuration has to change, or ours.
    #[error("{reason}")]
    Refused {
        /// What the database says.
        reason: String,
        /// The setting or the SQL that ends it.
        cure: String,
    },
    /// The database refuses this statement for these orders; find the one that causes it.
    #[error("rejected by the database: {0}")]
    Rejected(String),
}

impl StoreError {
    /// Its name in metrics.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Conflict(_) => "conflict",
            Self::Locked(_) => "locked",
            Self::TimedOut(_) => "timed_out",
            Self::Unavailable(_) => "unavailable",
            Self::Rejected(_) => "rejected",
            Self::Refused { .. } => "refused",
        }
    }
}

/// What in the configuration does not fit the database, and what would.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Misfit(pub(super) String);

/// Why a store can't be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The configuration does not fit the database; waiting does not help.
    #[error(transparent)]
    Misfit(#[from] Misfit),
    /// What the configuration names is not there, or not for this user: a table, a column, a file. It may come.
    #[error(transparent)]
    Missing(Misfit),
    /// The server reads times without a zone otherwise than before.
    #[error("{0}; set database.time_zone to the zone in which the shop writes its times, or set the server's time zone back")]
    Zone(String),
    /// The database can't be reached or refuses to answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl OpenError {
    /// What ends it while the configuration stays as it is; `None` where nothing can.
    #[must_use]
    pub fn cure(&self) -> Option<&str> {
        match self {
            Self::Misfit(_) => None,
            Self::Missing(_) => Some("create it, or correct the setting that names it and start again"),
            Self::Zone(_) => Some("set the server's time zone back, or set database.time_zone and start again"),
            Self::Store(StoreError::Rejected(text)) if is_bad_syntax(text) => None,
            Self::Store(error) => Some(error.cure()),
        }
    }

    /// Whether it stays until somebody mends it. A database that is merely away comes back.
    #[must_use]
    pub fn needs_a_hand(&self) -> bool {
        match self {
            Self::Misfit(_) | Self::Missing(_) | Self::Zone(_) => true,
            Self::Store(StoreError::Rejected(_) | StoreError::Refused { .. }) => true,
            Self::Store(StoreError::Conflict(_) | StoreError::Locked(_) | StoreError::TimedOut(_) | StoreError::Unavailable(_)) => false,
        }
    }
}

/// Whether a statement could not even be parsed, which no right and no table changes.
fn is_bad_syntax(text: &str) -> bool {
    ["syntax error", "error in your SQL syntax", "incomplete input"].iter().any(|words| text.contains(words))
}

/// The column that is not there, by an error's text: `column o.due does not exist`, `Unknown column 'o.due' in 'WHERE'`,
/// `no such column: o.due`.
fn unknown_column(text: &str) -> Option<&str> {
    let (_, named) = text.split_once("nknown column ").or_else(|| text.split_once("no such column: ")).or_else(|| {
        let (_, named) = text.split_once("column ")?;
        text.contains("(42703)").then_some(("", named))
    })?;
    let name = named.split_whitespace().next()?.trim_matches(['\'', '"']);
    name.rsplit('.').next().map(|name| name.trim_matches(['\'', '"']))
}

/// The class of a database's own error; each dialect reads its own codes.
pub(super) enum Class {
    Conflict,
    Locked,
    TimedOut,
    Unavailable,
    /// With what ends it.
    Refused(String),
    Rejected,
}

/// Sorts an error of the driver; `classify` reads the codes of one dialect.
#[expect(clippy::wildcard_enum_match_arm, reason = "whatever else the driver may say is about the connection: I/O, TLS, protocol, pool")]
pub(super) fn sort(error: &sqlx::Error, classify: impl Fn(&dyn DatabaseError) -> Class) -> StoreError {
    use sqlx::Error;
    let text = printable(describe(error));
    match error {
        Error::Database(database) => match classify(database.as_ref()) {
            Class::Conflict => StoreError::Conflict(text),
            Class::Locked => StoreError::Locked(text),
            Class::TimedOut => StoreError::TimedOut(text),
            Class::Unavailable => StoreError::Unavailable(text),
            Class::Refused(cure) => StoreError::Refused { reason: text, cure },
            Class::Rejected => StoreError::Rejected(text),
        },
        Error::ColumnDecode { .. }
        | Error::ColumnNotFound(_)
        | Error::ColumnIndexOutOfBounds { .. }
        | Error::Encode(_)
        | Error::Decode(_)
        | Error::RowNotFound
        | Error::TypeNotFound { .. } => StoreError::Rejected(text),
        _ => StoreError::Unavailable(text),
    }
}

fn describe(error: &sqlx::Error) -> String {
    if let sqlx::Error::PoolTimedOut = error {
        return "no connection could be had in time".into();
    }
    let Some(database) = error.as_database_error() else {
        return error.to_string();
    };
    match database.code() {
        Some(code) => format!("{} ({code})", database.message()),
        None => database.message().to_owned(),
    }
}

/// The code at the end of an error's text, as [`describe`] writes it.
fn code(text: &str) -> &str {
    text.rsplit_once(" (").map_or("", |(_, code)| code.trim_end_matches(')'))
}

impl StoreError {
    /// What a hand can do about it.
    #[must_use]
    pub fn cure(&self) -> &str {
        match self {
            Self::Conflict(_) | Self::Locked(_) => "end the transaction that holds the table",
            Self::TimedOut(_) => "see what keeps the database busy, or set a longer database.timeout",
            Self::Rejected(reason) if reason.contains("is corrupt") => {
                "rebuild the table with its indexes (ALTER TABLE ... FORCE), and look for what has broken them, such as a disk that was full"
            }
            Self::Rejected(_) => {
                "grant this user SELECT and UPDATE on the tables named in orders and close.sql, or correct orders.set, orders.filter and \
                 close.sql and start again"
            }
            Self::Refused { cure, .. } => cure,
            Self::Unavailable(_) => "start the database, or correct database.url and start again",
        }
    }

    /// The same, said of the database behind this URL.
    pub(super) fn of(self, url: &DatabaseUrl) -> Self {
        match self {
            Self::Unavailable(reason) => Self::Unavailable(format!("{url}: {reason}")),
            Self::Refused { reason, cure } => Self::Refused { reason: format!("{url}: {reason}"), cure },
            Self::Conflict(_) | Self::Locked(_) | Self::TimedOut(_) | Self::Rejected(_) => self,
        }
    }

    /// Whether it is a refusal that names something missing, a right or a table: SQLSTATE's class 42 (syntax error or access rule
    /// violation), SQLite's plain error, and partitions, which both others take for a matter of the row.
    pub(super) fn names_what_is_missing(&self) -> bool {
        let Self::Rejected(text) = self else { return false };
        let code = code(text);
        let sqlstate = code.len() == 5 && code.starts_with("42");
        sqlstate || code == "1" || text.contains("no partition of relation") || text.contains("has no partition for value")
    }

    /// The same with a column that was perhaps meant, where the refusal names one that is not there; `columns` are those of the
    /// orders.
    #[must_use]
    pub(super) fn about(self, columns: &[String]) -> Self {
        match self {
            Self::Rejected(text) => match unknown_column(&text) {
                Some(name) => Self::Rejected(format!("{text}{}", did_you_mean(name, columns.iter().map(String::as_str)))),
                None => Self::Rejected(text),
            },
            Self::Conflict(_) | Self::Locked(_) | Self::TimedOut(_) | Self::Unavailable(_) | Self::Refused { .. } => self,
        }
    }

    /// What to say of an id that should have one row.
    pub(super) fn several_rows(id: &str) -> Self {
        Self::Rejected(format!("two rows have the id {id}; orders.id must name a column whose values are unique"))
    }

    /// What to say when there was no answer at all within `database.timeout`.
    pub(super) fn timed_out(after: std::time::Duration) -> Self {
        Self::TimedOut(format!("no answer within {} (database.timeout)", humantime::format_duration(after)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As MariaDB and MySQL say it.
    #[test]
    fn what_is_corrupt_is_to_be_rebuilt() {
        for text in ["Index for table 'orders' is corrupt; try to repair it (HY000)", "Index orders_due is corrupted (HY000)"] {
            assert!(StoreError::Rejected(text.into()).cure().contains("FORCE"), "{text}");
        }
        assert!(StoreError::Rejected("what was sent is not corrupt".into()).cure().contains("grant"));
    }
}
