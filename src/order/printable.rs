//! Texts of others, as people and logs may see them.
//!
//! An id, a server's message, a peer's name may have a line end, which begins a line of the log that nobody wrote, or an escape
//! sequence, which makes a terminal show something else. Each is written as JSON escapes it.

use std::fmt::{self, Write};

/// A text whose control and formatting characters are escaped when it is printed.
#[derive(Debug, Clone, Copy)]
pub struct Printable<'t>(pub &'t str);

/// Whether a character does something to what stands around it rather than being shown.
pub(crate) fn is_invisible(c: char) -> bool {
    // Directions of writing, line and paragraph separators, joiners, and what has no width.
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Writes one character so that it is seen.
pub(crate) fn write_visible(f: &mut impl Write, c: char) -> fmt::Result {
    match c {
        '\n' => f.write_str("\\n"),
        '\r' => f.write_str("\\r"),
        '\t' => f.write_str("\\t"),
        c if is_invisible(c) => write!(f, "\\u{:04x}", u32::from(c)),
        c => f.write_char(c),
    }
}

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(text) = self;
        if !text.contains(is_invisible) {
            return f.write_str(text);
        }
        text.chars().try_for_each(|c| write_visible(f, c))
    }
}

/// A text as a word of a command that is printed for a shell: whatever is in it, it stays one word.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShellWord<'t>(pub(crate) &'t str);

impl fmt::Display for ShellWord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(text) = self;
        if !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c)) {
            return f.write_str(text);
        }
        if !text.contains(is_invisible) {
            return write!(f, "'{}'", text.replace('\'', r"'\''"));
        }
        f.write_str("$'")?;
        for c in text.chars() {
            match c {
                '\\' => f.write_str(r"\\")?,
                // A shell that doesn't know this quoting would end it at \'.
                '\'' => f.write_str(r"\u0027")?,
                c => write_visible(f, c)?,
            }
        }
        f.write_char('\'')
    }
}

/// The text itself where there is nothing to escape in it.
pub(crate) fn printable(text: String) -> String {
    if text.contains(is_invisible) { Printable(&text).to_string() } else { text }
}

#[cfg(test)]
mod tests {
    use super::ShellWord;

    #[test]
    fn a_name_in_a_command_stays_one_word() {
        for (name, word) in [
            ("till-2.a_b", "till-2.a_b"),
            ("", "''"),
            ("a b", "'a b'"),
            ("$(touch x)`y`;&|>*~", "'$(touch x)`y`;&|>*~'"),
            ("it's \\", r"'it'\''s \'"),
            ("reminder/1001", "reminder/1001"),
            ("a\nb'\\\u{1b}[2K", r"$'a\nb\u0027\\\u001b[2K'"),
        ] {
            assert_eq!(ShellWord(name).to_string(), word);
        }
    }
}
