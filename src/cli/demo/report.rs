//! What became of the demo's orders, held against what is promised.

use std::collections::{HashMap, HashSet};

use comfy_table::{Table, presets::UTF8_FULL_CONDENSED};

use crate::cli::demo::{
    Payment,
    servers::Summary,
    shop::{Counts, Outcome},
};

/// A promise, and whether it was kept.
#[derive(Debug)]
struct Promise {
    what: &'static str,
    found: String,
    kept: bool,
}

/// The end of the demo.
#[derive(Debug)]
pub(super) struct Report {
    promises: Vec<Promise>,
    facts: Vec<(&'static str, String)>,
}

/// Lateness so far, for the progress line.
pub(super) fn lateness(counts: &Counts) -> String {
    let sorted = &counts.lateness;
    match (sorted.get(sorted.len() / 2), sorted.last()) {
        (Some(p50), Some(max)) => format!("p50 {p50} ms, max {max} ms"),
        _ => "-".into(),
    }
}

impl Report {
    pub(super) fn new(outcome: Outcome, payments: &[Payment], summary: &Summary, killed: u64) -> Self {
        let paid: HashSet<&str> = payments.iter().filter(|payment| payment.accepted).map(|payment| payment.order.as_str()).collect();
        let refused = payments.len() - paid.len();
        let mut closures: HashMap<&str, u32> = HashMap::new();
        for order in &outcome.closures {
            *closures.entry(order).or_default() += 1;
        }
        let unpaid = outcome.orders.len() - paid.len();
        let closed = outcome.orders.iter().filter(|(order, status)| *status == 4 && !paid.contains(order.as_str())).count();
        let wronged = paid.iter().filter(|order| closures.contains_key(*order)).count()
            + outcome.orders.iter().filter(|(order, status)| *status != 1 && paid.contains(order.as_str())).count();
        let once = closures.values().filter(|count| **count == 1).count();
        let total = u64::try_from(unpaid).unwrap_or(u64::MAX);
        Self {
            promises: vec![
                Promise { what: "every unpaid order closed", found: format!("{closed} of {unpaid}"), kept: closed == unpaid },
                Promise { what: "no paid order closed", found: format!("{wronged} of {}", paid.len()), kept: wronged == 0 },
                Promise {
                    what: "each closed once",
                    found: format!("{} closures of {once} orders", outcome.closures.len()),
                    kept: once == unpaid && outcome.closures.len() == unpaid,
                },
                Promise {
                    what: "stock restored exactly",
                    found: format!("{} units out, {} units sold", outcome.missing, outcome.sold),
                    kept: outcome.missing == outcome.sold,
                },
                Promise { what: "the daemon's count agrees", found: format!("{} closures", summary.closed), kept: summary.closed == total },
                Promise { what: "subscription cut and regained", found: format!("{killed} connection cut"), kept: killed == 1 },
            ],
            facts: vec![
                ("late payments refused", refused.to_string()),
                (
                    "lateness p50 / p99 / max",
                    format!("{:.1} / {:.1} / {:.1} ms", summary.lateness_p50_ms, summary.lateness_p99_ms, summary.lateness_max_ms),
                ),
                ("closed by notification", summary.expired.to_string()),
                ("closed by the pacer", summary.pacer.to_string()),
                ("closed by the sweep", summary.sweep.to_string()),
            ],
        }
    }

    /// Whether every promise was kept.
    pub(super) fn holds(&self) -> bool {
        self.promises.iter().all(|promise| promise.kept)
    }

    pub(super) fn table(&self) -> String {
        let mut table = Table::new();
        table.load_preset(UTF8_FULL_CONDENSED);
        for promise in &self.promises {
            table.add_row([promise.what, &promise.found, if promise.kept { "✓" } else { "✗ BROKEN" }]);
        }
        for (what, found) in &self.facts {
            table.add_row([what, found.as_str(), ""]);
        }
        table.to_string()
    }
}
