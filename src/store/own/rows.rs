//! New rows on their way into a statement, in the form in which each dialect reads them fastest.

use serde::{Deserialize, Serialize};

use crate::store::driver::Value;

/// How a statement takes rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As an array for each column, which PostgreSQL reads in less time than objects of JSON.
    Arrays,
    /// As a JSON array of arrays, for `JSON_TABLE`.
    JsonTable,
    /// The same for `json_each`. SQLite looks for each column anew, in an array sooner than in an object.
    JsonEach,
}

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Uuid,
    Number,
    /// Of at most so many characters.
    Text(u16),
    Long,
}

/// A column of rows: its name, and what it holds.
pub(super) type Column = (&'static str, Kind);

/// A value of a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Cell {
    Null,
    Number(i64),
    Text(String),
}

impl Cell {
    /// A text, if there is one.
    pub(super) fn text(text: Option<&str>) -> Self {
        text.map_or(Self::Null, |text| Self::Text(text.to_owned()))
    }

    /// A number, if there is one.
    pub(super) fn number(number: Option<i64>) -> Self {
        number.map_or(Self::Null, Self::Number)
    }

    fn len(&self) -> usize {
        match self {
            Self::Null | Self::Number(_) => 8,
            Self::Text(text) => text.len() + 3,
        }
    }
}

impl Form {
    /// A table `e` with these columns, from the parameters that [`Form::bind`] makes; the first of them is `?1`.
    pub(super) fn table(self, columns: &[Column]) -> String {
        let list = |column: &dyn Fn(usize, &Column) -> String| -> String {
            columns.iter().enumerate().map(|(at, one)| column(at, one)).collect::<Vec<_>>().join(", ")
        };
        match self {
            Self::Arrays => {
                let arrays = list(&|at, (_, kind)| {
                    let of = match kind {
                        Kind::Uuid => "uuid",
                        Kind::Number => "bigint",
                        Kind::Text(_) | Kind::Long => "text",
                    };
                    format!("CAST(?{} AS {of}[])", at + 1)
                });
                format!("unnest({arrays}) AS e({})", list(&|_, (name, _)| (*name).to_owned()))
            }
            Self::JsonTable => {
                let columns = list(&|at, (name, kind)| {
                    let of = match kind {
                        Kind::Uuid => "CHAR(36)".to_owned(),
                        Kind::Number => "BIGINT".to_owned(),
                        Kind::Text(most) => format!("VARCHAR({most})"),
                        Kind::Long => "LONGTEXT".to_owned(),
                    };
                    format!("{name} {of} PATH '$[{at}]'")
                });
                format!("JSON_TABLE(?1, '$[*]' COLUMNS ({columns})) AS e")
            }
            Self::JsonEach => format!("(SELECT {} FROM json_each(?1)) AS e", list(&|at, (name, _)| format!("value ->> {at} AS {name}"))),
        }
    }

    /// How many parameters these rows take.
    pub(super) const fn parameters(self, columns: &[Column]) -> usize {
        match self {
            Self::Arrays => columns.len(),
            Self::JsonTable | Self::JsonEach => 1,
        }
    }

    /// The parameters of these rows, which have so many columns.
    pub(super) fn bind(self, rows: &[Vec<Cell>], columns: usize) -> Vec<Value> {
        match self {
            Self::Arrays => (0..columns).map(|at| array(rows.iter().filter_map(|row| row.get(at))).into()).collect(),
            Self::JsonTable | Self::JsonEach => vec![json(rows).into()],
        }
    }
}

/// Rows as a JSON array of arrays.
pub(super) fn json(rows: &[Vec<Cell>]) -> String {
    // Texts and numbers are always written.
    serde_json::to_string(rows).unwrap_or_default()
}

/// An array as PostgreSQL writes one.
fn array<'c>(cells: impl Iterator<Item = &'c Cell>) -> String {
    let mut array = String::from("{");
    for (at, cell) in cells.enumerate() {
        if at > 0 {
            array.push(',');
        }
        match cell {
            Cell::Null => array.push_str("NULL"),
            Cell::Number(number) => array.push_str(&number.to_string()),
            Cell::Text(text) => {
                array.push('"');
                for c in text.chars() {
                    if matches!(c, '"' | '\\') {
                        array.push('\\');
                    }
                    array.push(c);
                }
                array.push('"');
            }
        }
    }
    array.push('}');
    array
}

/// These rows in pieces, each of at most so many bytes or of one row; for no rows one empty piece, so that a rehearsal tries the
/// statements.
pub(super) fn pieces(rows: Vec<Vec<Cell>>, most: usize) -> Vec<Vec<Vec<Cell>>> {
    let mut pieces = vec![Vec::new()];
    let mut bytes = 0;
    for row in rows {
        let length: usize = row.iter().map(Cell::len).sum();
        match pieces.last_mut() {
            Some(piece) if piece.is_empty() || bytes + length <= most => piece.push(row),
            _ => {
                pieces.push(vec![row]);
                bytes = 0;
            }
        }
        bytes += length;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_piece_is_longer_than_it_may_be_unless_a_single_row_is() {
        let row = |kib: usize| vec![Cell::Text("x".repeat(kib * 1_024))];
        let pieces = pieces([10, 90, 400, 90, 150, 70, 10].into_iter().map(row).collect(), 256 * 1_024);
        let lengths: Vec<Vec<usize>> = pieces.iter().map(|piece| piece.iter().map(|row| row[0].len() / 1_024).collect()).collect();
        assert_eq!(lengths, [vec![10, 90], vec![400], vec![90, 150], vec![70, 10]]);
    }

    #[test]
    fn no_rows_are_one_empty_piece() {
        assert_eq!(pieces(Vec::new(), 1), [Vec::<Vec<Cell>>::new()]);
        let none = |form: Form| format!("{:?}", form.bind(&[], 2));
        assert_eq!([Form::Arrays, Form::JsonEach].map(none), ["[Text(\"{}\"), Text(\"{}\")]", "[Text(\"[]\")]"]);
    }

    #[test]
    fn whatever_a_text_holds_is_a_text() {
        let cells =
            [Cell::text(Some("a\"b\\c,{}\n")), Cell::text(Some("NULL")), Cell::text(Some("")), Cell::text(None), Cell::number(Some(-1))];
        assert_eq!(array(cells.iter()), "{\"a\\\"b\\\\c,{}\n\",\"NULL\",\"\",NULL,-1}");
        assert_eq!(json(&[cells.to_vec()]), "[[\"a\\\"b\\\\c,{}\\n\",\"NULL\",\"\",null,-1]]");
    }
}
