//! What one pass did, as a file that Prometheus' node_exporter reads (its textfile collector): for whoever has cron, and no
//! daemon that could be scraped.
//!
//! The file is replaced as a whole, so nobody reads half of it. It is written after a pass that failed, too; the time of the
//! last one that ended well is taken over from the file before.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::Report;
use crate::{
    cli::{CommandResult, Exit, Failure, complain},
    config::RuleName,
};

/// Whoever collects it is mostly another user.
const MODE: u32 = 0o644;

const LAST_SUCCESS: &str = "order_closer_reconcile_last_success_timestamp_seconds";

/// A path whose file is read.
pub(super) fn path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let is_read = path.extension().is_some_and(|extension| extension == "prom") && path.file_stem().is_some();
    if is_read { Ok(path) } else { Err("the file's name has to end in .prom: node_exporter reads no other".into()) }
}

/// Writes what a pass did, and says how the command ends.
pub(super) fn tell(file: &Path, rule: &RuleName, report: Option<&Report>, took: Duration, ended: CommandResult) -> CommandResult {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let is_well = matches!(ended, Ok(Exit::Done));
    let last_success = if is_well { Some(now.as_secs_f64()) } else { last_success(file) };
    let Err(error) = replace(file, &figures(rule, report, is_well, now, last_success, took)) else { return ended };
    let message = format!("--textfile {} can't be written: {error}", file.display());
    if is_well {
        return Err(Failure::new(Exit::Output, message));
    }
    complain(&message);
    ended
}

/// In Prometheus' text format.
fn figures(rule: &RuleName, report: Option<&Report>, is_well: bool, now: Duration, last_success: Option<f64>, took: Duration) -> String {
    let mut text = String::new();
    let mut gauge = |name: &str, help: &str, samples: &[(&str, f64)]| {
        if samples.is_empty() {
            return;
        }
        // Nothing fails that writes to a text.
        writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge").ok();
        for (label, value) in samples {
            writeln!(text, "{name}{{rule=\"{rule}\"{label}}} {value}").ok();
        }
    };
    gauge("order_closer_reconcile_success", "Whether the last pass ended with exit status 0.", &[("", f64::from(u8::from(is_well)))]);
    gauge(
        "order_closer_reconcile_last_run_timestamp_seconds",
        "When the last pass ended, in seconds since 1970.",
        &[("", now.as_secs_f64())],
    );
    let last_success: Vec<_> = last_success.map(|at| ("", at)).into_iter().collect();
    gauge(LAST_SUCCESS, "When the last pass ended that ended with exit status 0, in seconds since 1970.", &last_success);
    gauge("order_closer_reconcile_duration_seconds", "How long the last pass took.", &[("", took.as_secs_f64())]);
    let Some(report) = report else { return text };
    let orders = [
        (",state=\"overdue\"", report.overdue),
        (",state=\"closed\"", report.closed),
        (",state=\"settled\"", report.settled),
        (",state=\"not_found\"", report.not_found),
        (",state=\"failed\"", report.failed),
        (",state=\"left_alone\"", report.left_alone),
        (",state=\"disputed\"", report.disputed),
    ];
    gauge(
        "order_closer_reconcile_orders",
        "Orders that the last pass found overdue, and what became of them.",
        &orders.map(|(label, orders)| (label, orders as f64)),
    );
    gauge("order_closer_reconcile_paused", "Whether closing was paused in the last pass.", &[("", f64::from(u8::from(report.paused)))]);
    let lateness: Vec<_> = report.lateness_ms.map(|lateness| ("", lateness.max / 1e3)).into_iter().collect();
    gauge("order_closer_reconcile_max_lateness_seconds", "How late the latest closure of the last pass was.", &lateness);
    text
}

/// When a pass ended well, by the file as it is.
fn last_success(file: &Path) -> Option<f64> {
    let text = std::fs::read_to_string(file).ok()?;
    let sample = text.lines().find(|line| line.starts_with(LAST_SUCCESS))?;
    sample.rsplit(' ').next()?.parse().ok()
}

/// Replaces a file as a whole.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut written = tempfile::Builder::new().prefix(".order-closer-").tempfile_in(folder)?;
    written.write_all(text.as_bytes())?;
    written.as_file().set_permissions(std::fs::Permissions::from_mode(MODE))?;
    written.persist(file)?;
    Ok(())
}
