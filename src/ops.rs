//! What whoever operates the daemon has to do with: the signals that end it, the service manager, the lines that sum it up, what is
//! measured, and whether it is ready; and the figures for people who look.

mod figures;
mod gauges;
mod metrics;
mod overdue;
mod readiness;
mod signals;
mod summary;
mod systemd;

pub use figures::{Figures, MOST_DUE, Part, PauseFigures, RuleFigures, Sampled, Sampler, Source, Sources, TargetFigures, Told, Watchers};
pub use gauges::{Backlogs, Gauges};
pub use metrics::Measured;
pub use overdue::{LastOverdue, Overdue, Overdues};
pub use readiness::{AllReady, NOT_BEGUN, Readiness, Ready};
pub use signals::{Hangups, Signals};
pub use summary::Summaries;
pub use systemd::ServiceManager;
