//! What whoever operates the daemon has to do with: the signals that end it, the service manager, the lines that sum it up, what is
//! measured, and whether it is ready.

mod gauges;
mod metrics;
mod overdue;
mod readiness;
mod signals;
mod summary;
mod systemd;

pub use gauges::Gauges;
pub use metrics::Measured;
pub use overdue::Overdues;
pub use readiness::{Readiness, Ready};
pub use signals::{Hangups, Signals};
pub use summary::Summaries;
pub use systemd::ServiceManager;
