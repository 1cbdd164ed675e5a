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
    time::{SystemTime, UNIX_EPOCH},
};

use super::Passed;
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

/// Writes what the passes did, and says how the command ends.
pub(super) fn tell(file: &Path, passed: &[Passed], ended: Exit) -> CommandResult {
    let Err(error) = replace(file, &figures(passed, &std::fs::read_to_string(file).unwrap_or_default())) else { return Ok(ended) };
    let message = format!("--textfile {} can't be written: {error}", file.display());
    if ended == Exit::Done {
        return Err(Failure::new(Exit::Output, message));
    }
    complain(&message);
    Ok(ended)
}

/// In Prometheus' text format; `before` is the file as it was.
fn figures(passed: &[Passed], before: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let is_well = |passed: &Passed| matches!(passed.ended, Ok(Exit::Done));
    let mut text = String::new();
    let mut gauge = |name: &str, help: &str, samples: &dyn Fn(&Passed) -> Vec<(&'static str, f64)>| {
        let mut lines = String::new();
        for one in passed {
            for (label, value) in samples(one) {
                // Nothing fails that writes to a text.
                writeln!(lines, "{name}{{rule=\"{}\"{label}}} {value}", one.rule.name).ok();
            }
        }
        if !lines.is_empty() {
            writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge").ok();
            text += &lines;
        }
    };
    gauge("order_closer_reconcile_success", "Whether the last pass ended with exit status 0.", &|one| {
        vec![("", f64::from(u8::from(is_well(one))))]
    });
    gauge("order_closer_reconcile_last_run_timestamp_seconds", "When the last pass ended, in seconds since 1970.", &|_| vec![("", now)]);
    gauge(LAST_SUCCESS, "When the last pass ended that ended with exit status 0, in seconds since 1970.", &|one| {
        let last = if is_well(one) { Some(now) } else { last_success(before, &one.rule.name) };
        last.map(|at| ("", at)).into_iter().collect()
    });
    gauge("order_closer_reconcile_duration_seconds", "How long the last pass took.", &|one| vec![("", one.took.as_secs_f64())]);
    gauge("order_closer_reconcile_orders", "Orders that the last pass found overdue, and what became of them.", &|one| {
        let Some(report) = &one.report else { return Vec::new() };
        let orders = [
            (",state=\"overdue\"", report.overdue),
            (",state=\"closed\"", report.closed),
            (",state=\"settled\"", report.settled),
            (",state=\"not_found\"", report.not_found),
            (",state=\"failed\"", report.failed),
            (",state=\"left_alone\"", report.left_alone),
            (",state=\"disputed\"", report.disputed),
            (",state=\"paid\"", report.paid),
            (",state=\"later\"", report.later),
            (",state=\"unanswered\"", report.unanswered),
        ];
        orders.map(|(label, orders)| (label, orders as f64)).to_vec()
    });
    gauge("order_closer_reconcile_paused", "Whether closing was paused in the last pass.", &|one| {
        one.report.iter().map(|report| ("", f64::from(u8::from(report.paused)))).collect()
    });
    gauge("order_closer_reconcile_max_lateness_seconds", "How late the latest closure of the last pass was.", &|one| {
        let lateness = one.report.as_ref().and_then(|report| report.lateness_ms);
        lateness.map(|lateness| ("", lateness.max / 1e3)).into_iter().collect()
    });
    text
}

/// When a pass of this rule ended well, by the file as it was.
fn last_success(before: &str, rule: &RuleName) -> Option<f64> {
    let name = format!("{LAST_SUCCESS}{{rule=\"{rule}\"}} ");
    before.lines().find_map(|line| line.strip_prefix(&name))?.parse().ok()
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
