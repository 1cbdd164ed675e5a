//! Standard output and standard error.
//!
//! Either may take nothing more, and that never changes what a command does or how its outcome is called. Whoever has
//! stopped reading results is missed by nobody; results that are lost otherwise, on a full disk say, are an error
//! where all else went well.

use std::{
    io::{self, ErrorKind, Write},
    sync::OnceLock,
};

/// Why standard output takes nothing more.
static BROKEN: OnceLock<ErrorKind> = OnceLock::new();

/// Prints a result.
pub(super) fn print(text: &str) {
    if is_read() {
        let mut out = io::stdout().lock();
        note(writeln!(out, "{text}").and_then(|()| out.flush()));
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
    writeln!(io::stderr(), "{text}").ok();
}

/// Says what is wrong.
pub(super) fn complain(text: &str) {
    say(&format!("order-closer: {text}"));
}
