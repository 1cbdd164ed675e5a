//! What whoever operates the daemon has to do with: the signals that end it, and the lines that sum it up.

mod signals;
mod summary;

pub use signals::Signals;
pub use summary::Summaries;
