//! What a statement does, by the word that says it.

/// Whether a statement returns rows instead of changing them: a database counts what it reads, nothing at all, or what the
/// statement before it changed.
pub(super) fn only_reads(sql: &str) -> bool {
    const READS: [&str; 7] = ["SELECT", "VALUES", "TABLE", "SHOW", "EXPLAIN", "DESCRIBE", "PRAGMA"];
    verb(sql).is_some_and(|verb| READS.iter().any(|reads| verb.eq_ignore_ascii_case(reads)))
}

/// The first word; after WITH, that of the statement itself, which stands behind its subqueries. None where quotes or
/// parentheses do not close, which the database will say.
fn verb(sql: &str) -> Option<&str> {
    const MAIN: [&str; 8] = ["SELECT", "VALUES", "TABLE", "INSERT", "UPDATE", "DELETE", "REPLACE", "MERGE"];
    let mut words = Words { rest: sql, depth: 0 };
    let (depth, first) = words.next()?;
    if !first.eq_ignore_ascii_case("WITH") {
        return Some(first);
    }
    let mut is_name = true;
    // All of it may stand in parentheses.
    for (_, word) in words.filter(|(at, _)| *at == depth) {
        match word {
            "," => is_name = true,
            _ if word.eq_ignore_ascii_case("RECURSIVE") => {}
            // A subquery may be called whatever its author likes.
            _ if is_name => is_name = false,
            _ if MAIN.iter().any(|main| word.eq_ignore_ascii_case(main)) => return Some(word),
            _ => {}
        }
    }
    None
}

/// The words and commas of a statement outside of literals and comments, each with the number of parentheses around it.
struct Words<'a> {
    rest: &'a str,
    depth: usize,
}

impl<'a> Words<'a> {
    /// Goes past so many bytes, or to the end if what is begun does not.
    fn skip(&mut self, bytes: Option<usize>) {
        self.rest = bytes.and_then(|bytes| self.rest.get(bytes..)).unwrap_or_default();
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = (usize, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        while let Some(first) = self.rest.chars().next() {
            let closing = |close: &str| self.rest.get(close.len()..).and_then(|rest| rest.find(close)).map(|at| at + 2 * close.len());
            match first {
                // A quoted name is a word, too; which one does not matter.
                '\'' => self.skip(closing("'")),
                '"' | '`' => {
                    let length = closing(&first.to_string());
                    self.skip(length);
                    return Some((self.depth, "\"\""));
                }
                '-' if self.rest.starts_with("--") => self.skip(self.rest.find('\n')),
                '/' if self.rest.starts_with("/*") => self.skip(self.rest.find("*/").map(|at| at + 2)),
                _ if is_word(first) => {
                    let (word, rest) = self.rest.split_at(self.rest.find(|c| !is_word(c)).unwrap_or(self.rest.len()));
                    self.rest = rest;
                    return Some((self.depth, word));
                }
                _ => {
                    self.rest = &self.rest[first.len_utf8()..];
                    match first {
                        '(' => self.depth += 1,
                        ')' => self.depth = self.depth.saturating_sub(1),
                        ',' => return Some((self.depth, ",")),
                        _ => {}
                    }
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reads_is_known_however_it_begins() {
        for sql in [
            "SELECT 1 FROM t WHERE o IN (:ids)",
            "  select release(o) FROM t",
            "/* give it back */ SELECT 1",
            "-- give it back\nSELECT 1",
            "(SELECT 1)",
            "( ( select 1 ) )",
            "WITH due AS (SELECT o FROM t WHERE o IN (:ids)) SELECT * FROM due",
            "with recursive n(i) as (values (1) union select i + 1 from n where i < 5), m as materialized (select 1) select * from n",
            "WITH gone AS (DELETE FROM t WHERE o IN (:ids) RETURNING o) SELECT * FROM gone",
            "WITH update AS (SELECT 1), \"delete\" AS (SELECT ')' AS x /* ) DELETE */) SELECT 1",
            "(WITH a AS (SELECT 1) SELECT * FROM a)",
            "VALUES (1)",
            "TABLE t",
            "EXPLAIN UPDATE t SET n = 0",
        ] {
            assert!(only_reads(sql), "{sql}");
        }
    }

    #[test]
    fn what_changes_is_known_even_if_it_reads_besides() {
        for sql in [
            "UPDATE t SET n = (SELECT 1) WHERE o IN (:ids)",
            "DELETE FROM t WHERE o IN (:ids) RETURNING o",
            "INSERT INTO log SELECT o FROM t WHERE o IN (:ids)",
            "/* SELECT */ REPLACE INTO log VALUES (1)",
            "WITH due AS (SELECT o FROM t WHERE o IN (:ids)) UPDATE t SET n = 0 FROM due WHERE due.o = t.o",
            "WITH select_me AS (SELECT 1) DELETE FROM t WHERE o IN (SELECT * FROM select_me)",
            "WITH a(x, y) AS (SELECT 1, 2) INSERT INTO log SELECT x FROM a",
            "CALL release(:ids)",
            "",
            "WITH a AS (SELECT 'unfinished",
        ] {
            assert!(!only_reads(sql), "{sql}");
        }
    }
}
