//! What each command of the real binary prints, does, and returns.

/// Writing a key as an order service would.
mod arm;
/// Results and messages that nobody takes.
mod broken_streams;
/// What is right, and that the printed fix really fixes.
mod check;
/// Closing orders by their ids.
mod close;
/// The effective settings and their sources.
mod config;
/// What was given up, by its ids.
mod dead_letters;
/// What is written about the program: links, blocks of settings, commands.
mod docs;
/// Whence hints come.
mod doors;
/// `migrate`, `events`.
mod events;
/// Why an order was closed, or is not.
mod explain;
/// The files that are shipped: examples parse and show the defaults, Redis starts from its own.
mod files;
/// Man pages and completions.
mod generate;
/// The fields of the log's lines.
mod glossary;
/// Ids and messages with line ends and escape sequences in them.
mod hostile;
/// A configuration from what a database says and what people answer.
mod init;
/// What the daemon logs.
mod logs;
/// Container files and manifests.
mod manifests;
/// What is installed, and by what other user it is called.
mod packages;
/// The SQL of `migrate`, for somebody else to run.
mod print_sql;
/// One pass over what is overdue.
mod reconcile;
/// Several rules: wrong ones, and the commands about one of them.
mod rules;
/// The schema of configuration files.
mod schema;
/// Orders in several tables of several databases.
mod shards;
/// The example shop.
mod shop;
/// The clients on the pages are those that are run.
mod snippets;
/// URLs in files of their own.
mod url_files;
/// The command line itself.
mod usage;
/// What wrong settings lead to.
mod wrong_settings;

use crate::support::daemon::Finished;

/// A password that must never be seen.
pub(crate) const SECRET: &str = "tell-nobody";

/// Panics if a command has printed the secret.
pub(crate) fn assert_no_secret(finished: &Finished) {
    assert!(!finished.stdout.contains(SECRET) && !finished.stderr.contains(SECRET), "a secret was printed: {finished:#?}");
}
