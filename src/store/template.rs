//! The user's statements: finding `:ids` in SQL without disturbing anything else.

/// A statement split at its `:ids`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template {
    pieces: Vec<String>,
}

impl Template {
    /// Splits a statement at each `:ids` that stands outside of literals, quoted names and comments.
    /// In `escapes`, the dialect's literals escape quotes by backslashes too (MySQL).
    ///
    /// # Errors
    /// Says what is wrong with a statement that is empty or does not mention `:ids`.
    pub(super) fn parse(statement: &str, escapes: bool) -> Result<Self, String> {
        let statement = statement.trim().trim_end_matches(';').trim_end();
        let mut pieces = vec![String::new()];
        let mut rest = statement;
        while !rest.is_empty() {
            let length = token_length(rest, escapes);
            let (token, after) = rest.split_at(length);
            match (token, pieces.last_mut()) {
                (":ids", _) => pieces.push(String::new()),
                (_, Some(piece)) => piece.push_str(token),
                (_, None) => {}
            }
            rest = after;
        }
        if pieces.len() == 1 {
            return Err(format!("does not mention :ids, and would change rows of orders that are not being closed: {statement:?}"));
        }
        Ok(Self { pieces })
    }

    /// How often the list stands in the statement.
    pub(super) fn lists(&self) -> usize {
        self.pieces.len() - 1
    }

    /// The statement with `list` in place of each `:ids`.
    pub(super) fn render(&self, list: &str) -> String {
        self.pieces.join(list)
    }
}

/// The length in bytes of the first token: a literal, a quoted name, a comment, a parameter or one character.
pub(super) fn token_length(text: &str, escapes: bool) -> usize {
    let whole = |found: Option<usize>| found.unwrap_or(text.len());
    let first = text.chars().next().unwrap_or(' ');
    match first {
        '\'' | '"' | '`' => quoted_length(text, first, escapes && first != '`'),
        '-' if text.starts_with("--") => whole(text.find('\n')),
        '/' if text.starts_with("/*") => whole(text[2..].find("*/").map(|at| at + 4)),
        '$' => dollar_quote(text).map_or(1, |tag| whole(text[tag.len()..].find(tag).map(|at| at + 2 * tag.len()))),
        ':' if text.starts_with("::") => 2,
        ':' => 1 + word_length(&text[1..]),
        _ if is_word(first) => word_length(text),
        _ => first.len_utf8(),
    }
}

fn quoted_length(text: &str, quote: char, escapes: bool) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if !escaped && c == quote {
            return at + 1;
        }
        escaped = escapes && !escaped && c == '\\';
    }
    text.len()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn word_length(text: &str) -> usize {
    text.find(|c| !is_word(c)).unwrap_or(text.len())
}

/// PostgreSQL's `$tag$`, if the text begins with one.
fn dollar_quote(text: &str) -> Option<&str> {
    let end = text[1..].find('$')? + 2;
    let tag = &text[..end];
    let name = &tag[1..end - 1];
    (name.chars().all(is_word) && !name.starts_with(|c: char| c.is_ascii_digit())).then_some(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_ids_only_where_sql_would_see_a_parameter() {
        let statement = "UPDATE a SET note = ':ids', \":ids\" = 1, t = x::ids, d = $q$ :ids $q$ -- :ids\n\
                         WHERE /* :ids */ n IN (:ids) AND m IN (:ids) AND k <> ':ids''' AND :idsx = `:ids`;";
        let template = Template::parse(statement, false).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(template.lists(), 2);
        assert_eq!(
            template.render("?,?"),
            "UPDATE a SET note = ':ids', \":ids\" = 1, t = x::ids, d = $q$ :ids $q$ -- :ids\n\
             WHERE /* :ids */ n IN (?,?) AND m IN (?,?) AND k <> ':ids''' AND :idsx = `:ids`"
        );
    }

    #[test]
    fn refuses_a_statement_without_ids() {
        assert!(Template::parse("UPDATE stock SET n = 0 WHERE note = ':ids'", false).is_err());
    }

    #[test]
    fn a_backslash_escapes_a_quote_only_where_the_dialect_says_so() {
        let statement = r"UPDATE a SET note = 'it\'s :ids' WHERE n IN (:ids)";
        assert_eq!(Template::parse(statement, true).map(|template| template.lists()), Ok(1));
        let statement = r"UPDATE a SET path = 'C:\' WHERE n IN (:ids)";
        assert_eq!(Template::parse(statement, false).map(|template| template.lists()), Ok(1));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_taken_apart_without_loss(text in "[a:'\"`$/*\\-\n id s]{0,40}") {
            if let Ok(template) = Template::parse(&text, true) {
                proptest::prop_assert_eq!(template.render(":ids"), text.trim().trim_end_matches(';').trim_end());
            }
        }
    }
}
