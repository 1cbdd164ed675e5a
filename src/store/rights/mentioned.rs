//! The tables that SQL of the user's mentions, and what it does with each.
//!
//! No parser: it knows after which words a table stands. What it takes for a table and is none, the catalogue does not know;
//! what it passes over, the database names when it refuses the statement.

use std::collections::{BTreeSet, HashSet};

use super::{Need, Right};
use crate::{config::TableName, store::template::token_length};

/// What may come after a table that has no other name.
const AFTER_A_TABLE: [&str; 14] =
    ["SET", "WHERE", "JOIN", "ON", "INNER", "LEFT", "RIGHT", "CROSS", "NATURAL", "STRAIGHT_JOIN", "USING", "USE", "FORCE", "IGNORE"];

/// A part of a statement, without white space, comments and literals.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    /// A word, as it is written.
    Word(String),
    /// A name in quotes.
    Quoted(String),
    /// Anything else; of several characters its first.
    Other(char),
}

impl Token {
    fn is(&self, word: &str) -> bool {
        matches!(self, Self::Word(text) if text.eq_ignore_ascii_case(word))
    }
}

/// How a dialect reads names.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) struct Reading {
    /// What stands around names that are taken as written.
    pub(in crate::store) quote: char,
    /// Whether other names are folded to lower case.
    pub(in crate::store) folds: bool,
    /// Whether a backslash escapes a quote in a literal.
    pub(in crate::store) escapes: bool,
}

/// What the statement needs of each table that it mentions.
pub(super) fn mentioned(sql: &str, reading: Reading) -> Vec<Need> {
    let tokens = tokens(sql, reading);
    // What is defined by WITH is no table, and `name AS (` is how that is done.
    let defined: HashSet<String> = tokens
        .windows(3)
        .filter(|three| three[1].is("AS") && (three[2] == Token::Other('(') || three[2].is("MATERIALIZED") || three[2].is("NOT")))
        .filter_map(|three| name(&three[0], reading))
        .collect();
    let mut statement = Statement { tokens: &tokens, reading, defined, needs: Vec::new(), target: None, deleted: None };
    statement.read();
    statement.needs
}

fn tokens(sql: &str, reading: Reading) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = sql;
    while let Some(first) = rest.chars().next() {
        let (token, after) = rest.split_at(token_length(rest, reading.escapes));
        rest = after;
        let is_quoted = first == reading.quote && token.len() > 1;
        match first {
            _ if first.is_whitespace() || token.starts_with("--") || token.starts_with("/*") => {}
            _ if is_quoted => tokens.push(Token::Quoted(token[1..token.len() - 1].into())),
            _ if first.is_alphanumeric() || first == '_' => tokens.push(Token::Word(token.into())),
            _ => tokens.push(Token::Other(first)),
        }
    }
    tokens
}

fn name(token: &Token, reading: Reading) -> Option<String> {
    match token {
        Token::Word(word) if reading.folds => Some(word.to_lowercase()),
        Token::Word(word) => Some(word.clone()),
        Token::Quoted(name) => Some(name.clone()),
        Token::Other(_) => None,
    }
}

struct Statement<'t> {
    tokens: &'t [Token],
    reading: Reading,
    defined: HashSet<String>,
    needs: Vec<Need>,
    /// The table that is inserted into, of which ON CONFLICT and RETURNING speak.
    target: Option<TableName>,
    /// How the table is called that DELETE names before its FROM.
    deleted: Option<String>,
}

/// A table in a list of tables.
struct Mentioned {
    table: TableName,
    alias: Option<String>,
}

impl Statement<'_> {
    fn is(&self, at: usize, word: &str) -> bool {
        self.tokens.get(at).is_some_and(|token| token.is(word))
    }

    fn joins(&self, at: usize) -> bool {
        ["JOIN", "STRAIGHT_JOIN"].iter().any(|word| self.is(at, word))
    }

    fn follows(&self, at: usize, words: &[&str]) -> bool {
        at.checked_sub(1).is_some_and(|before| words.iter().any(|word| self.is(before, word)))
    }

    fn read(&mut self) {
        // Of each open parenthesis, whether FROM and USING have another meaning in it, as in EXTRACT(YEAR FROM created) and
        // CONVERT(note USING utf8mb4).
        let mut inside = Vec::new();
        for at in 0..self.tokens.len() {
            match &self.tokens[at] {
                Token::Other('(') => {
                    inside.push(self.follows(at, &["EXTRACT", "TRIM", "SUBSTRING", "POSITION", "OVERLAY", "CONVERT", "CHAR"]));
                }
                Token::Other(')') => drop(inside.pop()),
                token if token.is("FROM") && !self.follows(at, &["DISTINCT"]) && inside.last() != Some(&true) => self.from(at),
                Token::Word(_) if self.joins(at) => self.read_or_delete(at + 1),
                token if token.is("USING") && !self.follows(at, &["KEY"]) && inside.last() != Some(&true) => {
                    self.list(at + 1, &[Right::Select]);
                }
                token if token.is("INTO") => self.into(at),
                token if token.is("UPDATE") => self.update(at),
                token if token.is("RETURNING") => self.add_to_target(Right::Select),
                Token::Word(_) | Token::Quoted(_) | Token::Other(_) => {}
            }
        }
    }

    fn from(&mut self, at: usize) {
        if self.follows(at, &["DELETE"]) {
            self.list(at + 1, &[Right::Select, Right::Delete]);
            return;
        }
        // DELETE i FROM order_items i JOIN ...
        let deleted =
            at.checked_sub(1).filter(|before| self.follows(*before, &["DELETE"])).and_then(|at| name(&self.tokens[at], self.reading));
        self.deleted = deleted.or(self.deleted.take());
        self.read_or_delete(at + 1);
    }

    /// The tables in a list, of which one may be what DELETE names.
    fn read_or_delete(&mut self, at: usize) {
        for Mentioned { table, alias } in self.tables(at) {
            let is_deleted = self.deleted.as_ref().is_some_and(|deleted| alias.as_ref() == Some(deleted) || table.name == *deleted);
            self.needs.push(Need::of(table, if is_deleted { &[Right::Select, Right::Delete] } else { &[Right::Select] }));
        }
    }

    fn into(&mut self, at: usize) {
        let Some((table, after)) = self.table(at + 1) else { return };
        let merges = self.follows(at, &["MERGE"]);
        let replaces = self.follows(at, &["REPLACE"]);
        self.target = Some(table.clone());
        let rights: &[Right] = match (merges, replaces) {
            (true, _) => &[Right::Select, Right::Insert, Right::Update],
            (false, true) => &[Right::Insert, Right::Delete],
            (false, false) => &[Right::Insert],
        };
        let columns = if merges { None } else { self.columns(after) };
        self.needs.push(Need { inserted: columns, ..Need::of(table, rights) });
    }

    /// The names in the parentheses here.
    fn columns(&self, at: usize) -> Option<Vec<String>> {
        if self.tokens.get(at) != Some(&Token::Other('(')) || self.is(at + 1, "SELECT") {
            return None;
        }
        let inside = self.tokens[at + 1..].iter().take_while(|token| **token != Token::Other(')'));
        Some(inside.filter_map(|token| name(token, self.reading)).collect())
    }

    fn update(&mut self, at: usize) {
        // FOR UPDATE, FOR NO KEY UPDATE; ON CONFLICT DO UPDATE, ON DUPLICATE KEY UPDATE; WHEN MATCHED THEN UPDATE.
        if self.follows(at, &["FOR", "THEN"]) || (self.follows(at, &["KEY"]) && self.follows(at - 1, &["NO"])) {
            return;
        }
        if self.follows(at, &["DO", "KEY"]) {
            self.add_to_target(Right::Update);
            return self.add_to_target(Right::Select);
        }
        let set = (at..self.tokens.len()).find(|at| self.is(*at, "SET")).unwrap_or(at);
        let joined = (at..set).filter(|at| self.joins(*at));
        let tables: Vec<Mentioned> = std::iter::once(at).chain(joined).flat_map(|at| self.tables(at + 1)).collect();
        let assigned = self.assigned(set);
        for (place, Mentioned { table, alias }) in tables.iter().enumerate() {
            let is_called = |name: &String| alias.as_ref().unwrap_or(&table.name) == name;
            let changes = assigned.iter().any(|by| by.as_ref().map_or(place == 0, is_called)) || tables.len() == 1;
            let rights: &[Right] = if changes { &[Right::Select, Right::Update] } else { &[Right::Select] };
            self.needs.push(Need::of(table.clone(), rights));
        }
    }

    /// By which name of a table each column is called that is assigned after this SET.
    fn assigned(&self, set: usize) -> Vec<Option<String>> {
        let mut assigned = Vec::new();
        let (mut depth, mut begins) = (0, true);
        for at in set + 1..self.tokens.len() {
            match &self.tokens[at] {
                Token::Other('(') => depth += 1,
                Token::Other(')') => depth -= 1,
                token if depth == 0 && (token.is("WHERE") || token.is("FROM")) => break,
                token if begins => {
                    let is_qualified = self.tokens.get(at + 1) == Some(&Token::Other('.'));
                    assigned.push(name(token, self.reading).filter(|_| is_qualified));
                    begins = false;
                }
                Token::Word(_) | Token::Quoted(_) | Token::Other(_) => {}
            }
            begins |= depth == 0 && self.tokens[at] == Token::Other(',');
        }
        assigned
    }

    /// A table and what comes after it, unless that shows it to be something else.
    fn list(&mut self, at: usize, rights: &[Right]) {
        for Mentioned { table, .. } in self.tables(at) {
            self.needs.push(Need::of(table, rights));
        }
    }

    /// The tables in a list, as far as they are separated by commas; joined ones too.
    fn tables(&self, mut at: usize) -> Vec<Mentioned> {
        let mut tables = Vec::new();
        loop {
            while ["ONLY", "IGNORE", "LOW_PRIORITY", "LATERAL"].iter().any(|word| self.is(at, word)) {
                at += 1;
            }
            let Some((table, mut after)) = self.table(at) else { return tables };
            let is_function = self.tokens.get(after) == Some(&Token::Other('('));
            after += usize::from(self.is(after, "AS"));
            let is_alias = |token: &&Token| !AFTER_A_TABLE.iter().any(|word| token.is(word));
            let alias = self.tokens.get(after).filter(is_alias).and_then(|token| name(token, self.reading));
            after += usize::from(alias.is_some());
            let is_defined = table.schema.is_none() && self.defined.contains(&table.name);
            if !is_function && !is_defined {
                tables.push(Mentioned { table, alias });
            }
            if self.tokens.get(after) != Some(&Token::Other(',')) {
                return tables;
            }
            at = after + 1;
        }
    }

    /// The name that stands here, and where it ends.
    fn table(&self, at: usize) -> Option<(TableName, usize)> {
        let read = |at: usize| self.tokens.get(at).and_then(|token| name(token, self.reading));
        let first = read(at)?;
        if self.is(at, "SELECT") || first.starts_with(|first: char| first.is_ascii_digit()) {
            return None;
        }
        match (self.tokens.get(at + 1), read(at + 2)) {
            (Some(Token::Other('.')), Some(name)) => Some((TableName::of(Some(first), name), at + 3)),
            _ => Some((TableName::of(None, first), at + 1)),
        }
    }

    fn add_to_target(&mut self, right: Right) {
        if let Some(target) = self.target.clone() {
            self.needs.push(Need { rights: BTreeSet::from([right]), ..Need::of(target, &[]) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POSTGRES: Reading = Reading { quote: '"', folds: true, escapes: false };
    const MYSQL: Reading = Reading { quote: '`', folds: false, escapes: true };

    /// Each table with the first letters of what is done to it.
    fn found(sql: &str, reading: Reading) -> String {
        let found = |need: Need| {
            let letters: String = need.rights.iter().map(|right| right.sql().chars().next().unwrap_or('?')).collect();
            let schema = need.table.schema.map(|schema| format!("{schema}.")).unwrap_or_default();
            format!("{schema}{} {letters}", need.table.name)
        };
        mentioned(sql, reading).into_iter().map(found).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn what_statements_of_a_shop_do() {
        for (sql, tables) in [
            (
                "UPDATE Inventory SET stock = 1 WHERE sku IN (SELECT sku FROM order_items i WHERE i.order_no IN (:ids))",
                "inventory SU, order_items S",
            ),
            ("UPDATE ONLY shop.\"Stock\" AS s SET n = n + i.n FROM items i, prices WHERE i.id = s.id", "shop.Stock SU, items S, prices S"),
            ("INSERT INTO closures (order_no) SELECT o.order_no FROM orders o WHERE o.order_no IN (:ids)", "closures I, orders S"),
            ("INSERT INTO a VALUES (1) ON CONFLICT (id) DO UPDATE SET n = 2 RETURNING id", "a I, a U, a S, a S"),
            ("DELETE FROM holds USING orders o WHERE o.id = holds.id AND o.id IN (:ids)", "holds SD, orders S"),
            ("DELETE FROM a WHERE x IS DISTINCT FROM y AND EXTRACT(YEAR FROM made) > 1 -- FROM b\n AND t = 'FROM c'", "a SD"),
            ("WITH gone AS (DELETE FROM a WHERE id IN (:ids) RETURNING id) INSERT INTO b SELECT id FROM gone", "a SD, b I"),
            ("SELECT id FROM a JOIN b USING (id) LEFT JOIN c ON true WHERE a.id IN (:ids) FOR UPDATE", "a S, b S, c S"),
            ("INSERT INTO a SELECT unnest(b) FROM unnest(ARRAY[1]) AS t (b)", "a I"),
        ] {
            assert_eq!(found(sql, POSTGRES), tables, "{sql}");
        }
        for (sql, tables) in [
            (
                "UPDATE order_items i JOIN `stock` s ON s.sku = i.sku SET s.n = s.n + i.n, s.m = 1 WHERE i.id IN (:ids)",
                "order_items S, stock SU, stock S",
            ),
            (
                "UPDATE (SELECT sku, SUM(n) AS n FROM items WHERE id IN (:ids) GROUP BY sku) AS freed \
                 STRAIGHT_JOIN stock FORCE INDEX (PRIMARY) ON stock.sku = freed.sku SET stock.n = stock.n + freed.n",
                "stock SU, items S, stock S",
            ),
            (
                "UPDATE (SELECT sku FROM items WHERE id IN (:ids)) AS freed STRAIGHT_JOIN stock s FORCE INDEX (PRIMARY) ON s.sku = freed.sku \
                 SET s.n = 0",
                "stock SU, items S, stock S",
            ),
            ("UPDATE stock s, items i SET s.n = 1, i.m = IF(1, 2, 3) WHERE s.id = i.id", "stock SU, items SU"),
            ("DELETE i FROM order_items i JOIN t ON t.n = CONVERT(i.n USING utf8mb4) WHERE i.id IN (:ids)", "order_items SD, t S"),
            ("DELETE a FROM a JOIN (SELECT id FROM b) AS c ON c.id = a.id", "a SD, b S"),
            ("DELETE a FROM (SELECT id FROM b) AS c STRAIGHT_JOIN a FORCE INDEX (PRIMARY) ON a.id = c.id", "b S, a SD"),
            ("INSERT IGNORE INTO Log (`id`) VALUES (1) ON DUPLICATE KEY UPDATE id = 1", "Log I, Log U, Log S"),
            ("UPDATE a SET n = CONVERT((SELECT m FROM b) USING utf8mb4), c = CHAR(77 USING ascii)", "a SU, b S"),
            ("REPLACE INTO a SELECT id FROM b WHERE note = 'it\\'s FROM c'", "a ID, b S"),
        ] {
            assert_eq!(found(sql, MYSQL), tables, "{sql}");
        }
    }

    #[test]
    fn the_columns_that_are_written() {
        let columns = |sql| mentioned(sql, POSTGRES).swap_remove(0).inserted;
        assert_eq!(columns("INSERT INTO a (id, \"No\") SELECT 1, 2"), Some(vec!["id".into(), "No".into()]));
        assert_eq!(columns("INSERT INTO a SELECT 1, 2"), None);
        assert_eq!(columns("INSERT INTO a (SELECT 1, 2)"), None);
    }
}
