//! Logs, to standard error, by way of a [`Queue`]: whoever reads them slowly, or not at all, holds nothing up.
//!
//! The journal of systemd takes each line's priority from a number before it.

mod queue;

use std::{
    fmt,
    fs::File,
    io::{self, IsTerminal},
    os::{fd::AsFd, unix::fs::MetadataExt},
    sync::Arc,
    time::Duration,
};

use tracing::{Event, Level, Subscriber, error};
use tracing_subscriber::{
    EnvFilter,
    field::RecordFields,
    filter::LevelFilter,
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::{DefaultFields, Writer},
    },
    layer::SubscriberExt,
    registry::LookupSpan,
    reload,
    util::SubscriberInitExt,
};

use crate::{
    cli::{Exit, Failure},
    config::{Loaded, LogFormat, quoted},
    order::Printable,
};
use queue::Queue;

/// How long the end waits for what is still queued.
const FLUSH: Duration = Duration::from_secs(1);

/// What is said unless the filter says otherwise: warnings, and so our own also where the filter names others
/// only. Libraries say no more than that unless it names them. A statement that waits for a lock is slow, and
/// nothing is wrong; Redis's client warns of each answer that ends its connection, which is said here once for each reason.
const QUIET: &str = "warn,fred=error,sqlx=warn,sqlx::query=error,tokio_postgres=warn,rustls=warn";

/// The log while it is written; dropping it writes what is queued.
pub(super) struct Log {
    queue: Queue,
    level: SetLevel,
}

/// Makes the log say as much as a filter lets through.
pub(super) type SetLevel = Arc<dyn Fn(EnvFilter) + Send + Sync>;

impl Log {
    /// What changes how much it says.
    pub(super) fn level(&self) -> SetLevel {
        Arc::clone(&self.level)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.queue.flush(FLUSH);
    }
}

/// What lets through as much as is configured.
///
/// # Errors
/// Says what is wrong with the setting.
pub(super) fn filter(loaded: &Loaded) -> Result<EnvFilter, String> {
    let level = &loaded.config.log.level;
    let wrong = || {
        let what = format!("is {}, which is not a filter such as \"info\" or \"order_closer=debug\"", quoted("log.level", level));
        loaded.wrong("log.level", &what)
    };
    // A misspelt level would pass for the name of a module.
    if level.split(',').any(|part| !part.contains(['=', '[', ']']) && part.trim().parse::<LevelFilter>().is_err()) {
        return Err(wrong());
    }
    EnvFilter::builder().parse(format!("{QUIET},{level}")).map_err(|_| wrong())
}

/// Begins to log as configured.
pub(super) fn start(loaded: &Loaded) -> Result<Log, Failure> {
    let filter = filter(loaded).map_err(|message| Failure::new(Exit::Configuration, message))?;
    let queue =
        Queue::before(io::stderr()).map_err(|error| Failure::new(Exit::Software, format!("the log's thread can't start: {error}")))?;
    let (filter, handle) = reload::Layer::new(filter);
    let registry = tracing_subscriber::registry().with(filter);
    let lines = tracing_subscriber::fmt::layer().with_writer(queue.clone()).with_target(false);
    match loaded.config.log.format {
        LogFormat::Text if is_journal() => {
            registry.with(lines.with_ansi(false).fmt_fields(OnOneLine).map_event_format(WithPriority)).init();
        }
        LogFormat::Text => registry.with(lines.with_ansi(io::stderr().is_terminal()).fmt_fields(OnOneLine)).init(),
        LogFormat::Json => registry.with(lines.json().flatten_event(true).with_span_list(false)).init(),
    }
    // Fails only when there is no log any more.
    let level = Arc::new(move |filter| handle.reload(filter).unwrap_or_default());
    Ok(Log { queue, level })
}

/// Makes panics errors of the log. What the runtime prints otherwise waits for whoever reads it.
pub(super) fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string);
        let backtrace = std::backtrace::Backtrace::capture();
        error!(reason = panic.payload_as_str(), place, %backtrace, "a panic, which is a bug");
    }));
}

/// Whether standard error is a stream of systemd's journal: `JOURNAL_STREAM` has its device and inode.
fn is_journal() -> bool {
    let Ok(named) = std::env::var("JOURNAL_STREAM") else { return false };
    let stream = io::stderr().as_fd().try_clone_to_owned().and_then(|stream| File::from(stream).metadata());
    stream.is_ok_and(|stream| named == format!("{}:{}", stream.dev(), stream.ino()))
}

/// The fields of an event, on the one line that is its own: what others have said ends none and begins none.
struct OnOneLine;

impl<'w> FormatFields<'w> for OnOneLine {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut text = String::new();
        DefaultFields::new().format_fields(Writer::new(&mut text), fields)?;
        write!(writer, "{}", Printable(&text))
    }
}

/// A format with its priority before each line, as the journal reads it: `man sd-daemon`.
struct WithPriority<F>(F);

impl<S, N, F> FormatEvent<S, N> for WithPriority<F>
where
    S: Subscriber + for<'s> LookupSpan<'s>,
    N: for<'w> FormatFields<'w> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let priority = match *event.metadata().level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            Level::DEBUG | Level::TRACE => 7,
        };
        write!(writer, "<{priority}>")?;
        let Self(format) = self;
        format.format_event(context, writer, event)
    }
}
