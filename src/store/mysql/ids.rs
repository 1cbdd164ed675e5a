//! Ids in SQL: how a column of each type is compared exactly, and lists of ids in a few fixed sizes.
//!
//! `'2x' = 2` and `'ABC' = 'abc '` are true for these servers, and would close somebody else's order. So
//! numbers are bound as numbers, and text is compared twice: by the column's own collation, for its index,
//! and by its bytes. A row that is merely equal is neither returned nor changed; MariaDB, though, which
//! looked at it through the index, keeps it locked until the transaction ends.

use std::iter;

use sqlx::{Arguments, SqlStr, mysql::MySqlArguments};

use crate::{
    order::OrderId,
    store::{dialect::List, statement::sql, template::Template},
};

/// The longest list in one statement; each size is one statement for the driver's cache.
const LONGEST_LIST: usize = 1_024;

/// How many sizes there are: none, and the powers of two up to the longest.
pub(super) const SIZES: usize = LONGEST_LIST.ilog2() as usize + 2;

/// What the id column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IdColumn {
    /// Integers with a sign.
    Signed,
    /// Integers without.
    Unsigned,
    /// Decimals without a fraction.
    Decimal,
    /// Text, or the bytes of text.
    Text,
    /// UUIDs as sixteen bytes.
    PackedUuid,
    /// UUIDs, in MariaDB's type for them.
    Uuid,
}

impl IdColumn {
    /// One id as a parameter.
    pub(super) fn parameter(self) -> &'static str {
        match self {
            Self::Signed | Self::Unsigned | Self::Text | Self::Uuid => "?",
            Self::Decimal => "CAST(? AS DECIMAL(65))",
            Self::PackedUuid => "UNHEX(REPLACE(?, '-', ''))",
        }
    }

    /// The parameter ?5, the text of an id, as a value to compare the column with.
    pub(super) fn cursor(self) -> &'static str {
        match self {
            Self::Signed => "CAST(?5 AS SIGNED)",
            Self::Unsigned => "CAST(?5 AS UNSIGNED)",
            Self::Decimal => "CAST(?5 AS DECIMAL(65))",
            Self::Text | Self::Uuid => "?5",
            Self::PackedUuid => "UNHEX(REPLACE(?5, '-', ''))",
        }
    }

    /// The column, by its quoted name, as the text of an id.
    pub(super) fn text(self, name: &str) -> String {
        match self {
            Self::Signed | Self::Uuid => format!("CAST({name} AS CHAR)"),
            // ZEROFILL would add zeros.
            Self::Unsigned | Self::Decimal => format!("CAST({name} + 0 AS CHAR)"),
            Self::Text => format!("CONVERT({name} USING utf8mb4)"),
            Self::PackedUuid => {
                let part = |from: u8, length: u8| format!("SUBSTR(HEX({name}), {from}, {length})");
                format!("LOWER(CONCAT_WS('-', {}, {}, {}, {}, {}))", part(1, 8), part(9, 4), part(13, 4), part(17, 4), part(21, 12))
            }
        }
    }

    /// The condition, with its leading AND, that the id is one of `:ids` and not merely equal to it.
    pub(super) fn exactly(self, name: &str) -> String {
        match self {
            Self::Text => format!(" AND CAST(CONVERT({name} USING utf8mb4) AS BINARY) IN (:ids)"),
            Self::Signed | Self::Unsigned | Self::Decimal | Self::PackedUuid | Self::Uuid => String::new(),
        }
    }

    /// The condition, with its leading AND, that the column's bytes are text at all; a page could not be
    /// continued after an id that has none.
    pub(super) fn valid(self, name: &str) -> String {
        match self {
            Self::Text => format!(" AND CAST(CONVERT({name} USING utf8mb4) AS BINARY) IS NOT NULL"),
            Self::Signed | Self::Unsigned | Self::Decimal | Self::PackedUuid | Self::Uuid => String::new(),
        }
    }

    /// Binds an id. One that can't be of this type becomes NULL, which equals nothing.
    fn bind(self, arguments: &mut MySqlArguments, id: &OrderId) -> Result<(), sqlx::Error> {
        let text = id.as_str();
        match self {
            Self::Signed => arguments.add(text.parse::<i64>().ok()),
            Self::Unsigned => arguments.add(text.parse::<u64>().ok()),
            Self::Decimal | Self::Text | Self::PackedUuid | Self::Uuid => arguments.add(text),
        }
        .map_err(sqlx::Error::Encode)
    }
}

/// A statement on a list of ids, which may stand in it several times.
#[derive(Debug)]
pub(in crate::store) struct ListStatement {
    column: IdColumn,
    lists: usize,
    /// For no ids, one, two, four, and so on.
    sizes: Vec<SqlStr>,
}

impl ListStatement {
    pub(super) fn new(template: &Template, column: IdColumn) -> Self {
        let list = |size: usize| match size {
            0 => "NULL".to_owned(),
            size => vec![column.parameter(); size].join(", "),
        };
        let sizes = iter::once(0).chain((0..SIZES - 1).map(|power| 1 << power));
        let sizes = sizes.map(|size| sql(template.render(&list(size)))).collect();
        Self { column, lists: template.lists(), sizes }
    }
}

impl List<sqlx::MySql> for ListStatement {
    const LONGEST: usize = LONGEST_LIST;

    /// Padded to the next size by repeating the last id.
    fn bound(&self, ids: &[OrderId]) -> Result<(SqlStr, MySqlArguments), sqlx::Error> {
        let mut arguments = MySqlArguments::default();
        let Some(last) = ids.last() else {
            return Ok((self.sizes[0].clone(), arguments));
        };
        let size = ids.len().next_power_of_two();
        for _ in 0..self.lists {
            for id in ids.iter().chain(iter::repeat(last)).take(size) {
                self.column.bind(&mut arguments, id)?;
            }
        }
        Ok((self.sizes[size.ilog2() as usize + 1].clone(), arguments))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement() -> ListStatement {
        let template = Template::parse("a IN (:ids) AND b IN (:ids)", true).unwrap_or_else(|error| panic!("{error}"));
        ListStatement::new(&template, IdColumn::Text)
    }

    fn bound(ids: usize) -> (String, usize) {
        let ids: Vec<OrderId> = (0..ids).map(|n| OrderId::from_database(&n.to_string())).collect();
        let (sql, arguments) = statement().bound(&ids).unwrap_or_else(|error| panic!("{error}"));
        (sql.as_str().to_owned(), arguments.len())
    }

    #[test]
    fn lists_are_padded_to_powers_of_two_and_bound_for_each_occurrence() {
        assert_eq!(bound(0), ("a IN (NULL) AND b IN (NULL)".into(), 0));
        assert_eq!(bound(1), ("a IN (?) AND b IN (?)".into(), 2));
        assert_eq!(bound(3), ("a IN (?, ?, ?, ?) AND b IN (?, ?, ?, ?)".into(), 8));
        assert_eq!(bound(LONGEST_LIST).1, 2 * LONGEST_LIST);
        assert_eq!(statement().sizes.len(), SIZES);
    }
}
