//! Three orders of the table, and what would become of each.

use std::{sync::Arc, time::Duration};

use crate::{
    cli::output::print,
    close::Bounds,
    config::{Config, Rule},
    explain::{Explainer, read_id},
    order::OrderId,
    redis::Commands,
    store::{DueQuery, Store, Window},
};

/// How many.
const SHOWN: usize = 3;

const REDIS: Duration = Duration::from_secs(3);

/// Prints them: the order that is due next, the one that has been overdue for longest and would close, and one that would not.
pub(super) async fn show(config: &Config, store: &Arc<dyn Store>, newest: &[String]) {
    let oldest = config.sweep.oldest.get();
    let mut ids: Vec<OrderId> = Vec::new();
    let mut windows = vec![Window::ahead(Duration::MAX), Window::overdue(oldest)];
    windows.extend(oldest.map(Window::older));
    for window in windows {
        // A table without an index may take too long; the newest orders do then.
        let found = store.due(&DueQuery::of(window, 1)).await;
        ids.extend(found.into_iter().flat_map(|page| page.rows).map(|row| row.id).take(1));
    }
    for id in newest.iter().filter_map(|id| read_id(store.as_ref(), &Rule::of(config), id).ok()) {
        if ids.len() < SHOWN && !ids.contains(&id) {
            ids.push(id);
        }
    }
    if ids.is_empty() {
        print("There is no order yet to show what would become of it.");
        return;
    }
    let redis = Commands::new(&config.redis).map_err(|error| error.to_string());
    let explainer = Explainer::of(Rule::of(config), config.sweep.ahead.get(), store, Arc::new(Bounds::new(oldest)), (redis, REDIS));
    print("What would become of some orders, if the daemon ran now:");
    for id in ids.into_iter().take(SHOWN) {
        match explainer.explain(&id).await {
            Ok(explained) => print(&format!("  {}", explained.sentence())),
            Err(error) => print(&format!("  Order {id} could not be read: {error}.")),
        }
    }
}
