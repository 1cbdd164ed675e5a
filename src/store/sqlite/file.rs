//! The file of an SQLite database: whether it is there, and what ends it when SQLite can't use it.

use std::path::Path;

use crate::{
    config::DatabaseUrl,
    store::{Misfit, OpenError},
};

/// Looks whether there is such a file; SQLite's own message would not say which.
///
/// # Errors
/// [`OpenError::Missing`]: a volume may be mounted later.
pub(super) fn found(file: &Path, url: &DatabaseUrl) -> Result<(), OpenError> {
    let shown = file.display();
    let what = if file.is_dir() {
        format!("and {shown} is a directory; name the file in it")
    } else if !file.exists() {
        format!("and there is no file {shown}; a relative path begins at the working directory")
    } else {
        return Ok(());
    };
    Err(OpenError::Missing(Misfit(format!("database.url is {url}, {what}"))))
}

/// What ends a refusal with this result code, if a hand can: <https://www.sqlite.org/rescode.html>.
pub(super) fn cure(code: u32) -> Option<&'static str> {
    match code {
        // Read-only; a directory that is, so that there can be no journal.
        8 | 1544 => Some(
            "let the system user of this process write the file and its directory (chown, chmod, a volume that is not mounted read-only), \
             and leave mode=ro and immutable out of database.url",
        ),
        _ => match code & 0xff {
            // Permission, can't open, not authorized.
            3 | 14 | 23 => Some(
                "put the file where database.url has it, and let the system user of this process read and write it and its directory (chown, chmod)",
            ),
            26 => Some("correct database.url: the file is no SQLite database, or an encrypted one"),
            _ => None,
        },
    }
}
