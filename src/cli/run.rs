//! `order-closer run`: the daemon, or its shadow.

use std::{
    path::PathBuf,
    sync::{Arc, mpsc},
};

use tokio_util::sync::CancellationToken;
use tracing::error;

use super::{
    CommandResult, Exit, Failure, logs,
    output::{is_read, print},
    runtime,
};
use crate::{
    app::{self, Reread},
    config::{ColumnName, Loaded, Span, load},
    shadow::{Plan, Report},
};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Close nothing and write nothing: report what would have been closed, beside what becomes of the orders.
    #[arg(long)]
    shadow: bool,
    /// For how long the shadow runs, such as 24h; until it is stopped, without.
    #[arg(long = "for", value_name = "TIME", requires = "shadow")]
    length: Option<Span>,
    /// The column with the time at which a row was changed last, such as updated_at: it tells exactly when an order was closed.
    #[arg(long, value_name = "COLUMN", requires = "shadow", value_parser = column)]
    changed_at: Option<ColumnName>,
    /// Print what the shadow sees as one JSON object on each line.
    #[arg(long, requires = "shadow")]
    json: bool,
}

fn column(name: &str) -> Result<ColumnName, String> {
    ColumnName::try_from(name.to_owned()).map_err(|error| error.to_string())
}

impl Arguments {
    /// Whether nothing is to be closed.
    pub(super) fn is_shadow(&self) -> bool {
        self.shadow
    }

    /// What it is told by, if it is to be a shadow. The results are printed by a thread of their own: whoever reads them slowly
    /// holds nothing up.
    fn plan(&self) -> Option<(Plan, Printer)> {
        if !self.shadow {
            return None;
        }
        let (lines, printed) = mpsc::channel::<Option<String>>();
        let unread = CancellationToken::new();
        let is_unread = unread.clone();
        let thread = std::thread::spawn(move || {
            for line in printed.iter().map_while(|line| line) {
                print(&line);
                if !is_read() {
                    is_unread.cancel();
                }
            }
        });
        let printer = Printer { lines: lines.clone(), thread };
        // Nobody is there to print it after the end.
        let report = Report::new(self.json, Arc::new(move |line| lines.send(Some(line)).unwrap_or_default()));
        Some((Plan { length: self.length.map(Span::get), changed_at: self.changed_at.clone(), report, unread }, printer))
    }
}

/// Prints the lines of a shadow.
struct Printer {
    lines: mpsc::Sender<Option<String>>,
    thread: std::thread::JoinHandle<()>,
}

impl Printer {
    /// Waits until all that was told is printed.
    fn finish(self) {
        self.lines.send(None).unwrap_or_default();
        self.thread.join().unwrap_or_default();
    }
}

/// Runs the daemon, whose last word is a line of its log, as all its others are.
pub(super) fn run(loaded: &Loaded, file: Option<PathBuf>, set_level: logs::SetLevel, arguments: &Arguments) -> CommandResult {
    logs::log_panics();
    let workers: usize = loaded.config.of_each_rule().iter().map(|config| config.close.workers).sum();
    let runtime = runtime(workers + 2)?;
    let read = move || {
        let loaded = load(file.as_deref())?;
        let (filter, set_level) = (logs::filter(&loaded)?, Arc::clone(&set_level));
        Ok(Reread { loaded, set_level: Box::new(move || set_level(filter)) })
    };
    let (plan, printer) = arguments.plan().unzip();
    let ended = runtime.block_on(app::run(loaded, Box::new(read), plan.clone()));
    // Threads that ask a silent name server are not waited for.
    runtime.shutdown_background();
    if let Some((plan, printer)) = plan.zip(printer) {
        plan.report.sum_up(true);
        printer.finish();
    }
    let Err(error) = ended else { return Ok(Exit::Done) };
    let Failure { exit, message, .. } = error.into();
    error!(reason = message, exit = exit as u8, "order-closer can't go on");
    Ok(exit)
}
