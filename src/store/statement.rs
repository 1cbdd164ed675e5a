//! Statements of ours that are written once, their parameters as `?1`, `?2`, and so on, for each dialect to spell.

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

/// How a dialect writes its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parameters {
    /// `$1`
    Dollar,
    /// `?1`
    Numbered,
    /// `?`, bound anew for each occurrence.
    Bare,
}

/// A statement in one dialect.
#[derive(Debug, Clone)]
pub(crate) struct Statement {
    sql: SqlStr,
    /// Which value each parameter takes, where they have no numbers.
    order: Option<Vec<usize>>,
    /// Whether it is worth a place in the driver's cache.
    lasting: bool,
}

/// A statement being written.
#[derive(Debug)]
pub(super) struct Writer {
    parameters: Parameters,
    text: String,
    order: Vec<usize>,
}

impl Writer {
    pub(super) fn new(parameters: Parameters) -> Self {
        Self { parameters, text: String::new(), order: Vec::new() }
    }

    /// Adds a part whose parameters are written `?1`, `?2`, and so on.
    pub(super) fn with_parameters(mut self, part: &str) -> Self {
        let mut pieces = part.split('?');
        self.text.push_str(pieces.next().unwrap_or_default());
        for piece in pieces {
            let digits = piece.find(|c: char| !c.is_ascii_digit()).unwrap_or(piece.len());
            let (number, rest) = piece.split_at(digits);
            match self.parameters {
                Parameters::Dollar => self.text.extend(["$", number]),
                Parameters::Numbered => self.text.extend(["?", number]),
                Parameters::Bare => self.text.push('?'),
            }
            self.order.push(number.parse::<usize>().map_or(0, |number| number.saturating_sub(1)));
            self.text.push_str(rest);
        }
        self
    }

    /// Adds a part as it stands: it may have the user's own SQL in it.
    pub(super) fn verbatim(mut self, part: &str) -> Self {
        self.text.push_str(part);
        self
    }

    pub(super) fn finish(self) -> Statement {
        let order = (self.parameters == Parameters::Bare).then_some(self.order);
        Statement { sql: sql(self.text), order, lasting: true }
    }
}

impl Statement {
    /// The same, not worth such a place.
    pub(super) fn once(self) -> Self {
        Self { lasting: false, ..self }
    }

    /// The same with this part before the last one that begins so.
    pub(super) fn with(&self, before: &str, part: &str) -> Self {
        let text = self.sql.as_str();
        let (head, tail) = text.split_at(text.rfind(before).unwrap_or(text.len()));
        Self { sql: sql([head, part, tail].concat()), order: self.order.clone(), lasting: self.lasting }
    }

    pub(super) fn is_lasting(&self) -> bool {
        self.lasting
    }

    /// One statement of several whose parameters mean the same: each selects one more column, its own number in this list, after
    /// so many bytes of its text, and stands between these brackets.
    pub(super) fn union(branches: &[(&Self, usize)], (open, close): (&str, &str)) -> Self {
        let branch = |(number, (statement, at)): (usize, &(&Self, usize))| {
            let (selected, rest) = statement.sql.as_str().split_at(*at);
            format!("{open}{selected}, '{number}'{rest}{close}")
        };
        let text = branches.iter().enumerate().map(branch).collect::<Vec<_>>().join(" UNION ALL ");
        let order = branches.iter().map(|(statement, _)| statement.order.as_deref()).collect::<Option<Vec<_>>>();
        Self { sql: sql(text), order: order.map(|orders| orders.concat()), lasting: true }
    }

    pub(super) fn sql(&self) -> SqlStr {
        self.sql.clone()
    }

    /// The values in the order in which they are bound.
    pub(super) fn in_order<'v, V>(&self, values: &'v [V]) -> Vec<&'v V> {
        match &self.order {
            None => values.iter().collect(),
            Some(order) => order.iter().filter_map(|at| values.get(*at)).collect(),
        }
    }
}

/// SQL of ours, whose names and literals the configuration and the catalogue have vouched for.
pub(super) fn sql(text: String) -> SqlStr {
    AssertSqlSafe(text).into_sql_str()
}
