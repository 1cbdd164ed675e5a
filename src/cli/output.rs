//! Standard output and standard error.
//!
//! Either may take nothing more, and that never changes what a command does or how its outcome is called. Whoever has
//! stopped reading results is missed by nobody; results that are lost otherwise, on a full disk say, are an error
//! where all else went well.

use std::{
    borrow::Cow,
    io::{self, ErrorKind, IsTerminal, Write},
    sync::OnceLock,
};

use crate::order::{is_invisible, write_visible};

/// Why standard output takes nothing more.
static BROKEN: OnceLock<ErrorKind> = OnceLock::new();

/// Lines as a terminal may have them: whatever does something else than being shown is escaped, as JSON does it, which stays the
/// same JSON by that. Line ends are ours: what others have said comes without any.
fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(|c| c != '\n' && is_invisible(c)) {
        return text.into();
    }
    let mut visible = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if c == '\n' {
            visible.push(c);
        } else {
            // Nothing fails that writes to a text.
            write_visible(&mut visible, c).ok();
        }
    }
    visible.into()
}

/// Prints a result.
pub(super) fn print(text: &str) {
    if is_read() {
        let mut out = io::stdout().lock();
        note(writeln!(out, "{}", visible(text)).and_then(|()| out.flush()));
    }
}

/// Takes note of how the writing of a result ended.
pub(super) fn note(written: io::Result<()>) {
    if let Err(error) = written {
        BROKEN.get_or_init(|| error.kind());
        if is_lost() {
            complain(&format!("results can't be written to standard output: {error}"));
        }
    }
}

/// Whether results still go anywhere.
pub(super) fn is_read() -> bool {
    BROKEN.get().is_none()
}

/// Whether results were lost, and somebody may miss them.
pub(super) fn is_lost() -> bool {
    BROKEN.get().is_some_and(|kind| *kind != ErrorKind::BrokenPipe)
}

/// Says something to people.
pub(super) fn say(text: &str) {
    writeln!(io::stderr(), "{}", visible(text)).ok();
}

/// Says that a list is empty, to whoever sees it: a program that reads the list finds nothing in it.
pub(super) fn say_empty(text: &str) {
    if io::stdout().is_terminal() {
        say(text);
    }
}

/// Says what is wrong.
pub(super) fn complain(text: &str) {
    say(&format!("order-closer: {text}"));
}
