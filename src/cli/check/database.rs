//! What `check` examines in the orders database.

use std::collections::BTreeSet;

use crate::{
    app::settings_of,
    cli::check::{Examination, Finding, deadlines, events, host_micros},
    config::{Config, RuleName, Status},
    store::{self, Between, Catalogue, Census, Claim, HostSeen, IndexAdvice, Obstacle, OpenError, Rehearsed, Store, StoreError, TableKind},
    trigger::claimed_twice,
};

const NAME: &str = "database";
const CLOSING: &str = "closing";
const GRANTS: &str = "grants";

/// What to do where rights are missing, which are listed before.
const GRANTED: &str = "grant the rights that are missing, as said above, and check again";

pub(super) async fn examine(config: &Config, rules: &[RuleName], rehearsal: bool) -> Examination {
    let mut examination = Examination::default();
    let settings = settings_of(config);
    let (opened, lacking) = tokio::join!(store::open(settings.clone()), store::lacking_rights(&settings));
    // Why there are none to be had, the other says.
    let lacking = lacking.unwrap_or_default();
    if !lacking.is_empty() {
        examination.add(Finding::fail(GRANTS, "the database user lacks rights that a closure needs", lacking.join(" ")));
    }
    let store = match opened {
        Ok(store) => store,
        Err(error @ (OpenError::Misfit(_) | OpenError::Missing(_) | OpenError::Zone(_))) => {
            examination.add(Finding::fail("mapping", error.to_string(), "fix the configuration, or the table"));
            return examination;
        }
        Err(OpenError::Store(error)) => {
            examination.is_away = matches!(error, StoreError::Unavailable(_));
            let of = config.which.database.as_ref().map_or_else(String::new, |name| format!("{name}: "));
            let finding = Finding::fail(NAME, format!("{of}{error}"), error.cure());
            if matches!(error, StoreError::Refused { .. } | StoreError::Rejected(_)) {
                examination.add(finding);
            } else {
                examination.unavailable(finding);
            }
            return examination;
        }
    };
    let before = host_micros();
    let catalogue = match store.catalogue().await {
        Ok(catalogue) => catalogue,
        Err(StoreError::Rejected(reason)) => {
            let fix = if lacking.is_empty() {
                format!("see that orders.filter names columns of {}", config.orders.table)
            } else {
                GRANTED.into()
            };
            examination.add(Finding::fail("mapping", reason, fix));
            store.close().await;
            return examination;
        }
        Err(error) => {
            examination.unavailable(Finding::fail(NAME, error.to_string(), "let the database user read the catalogue"));
            return examination;
        }
    };
    let asked = catalogue.clock.round_trip / 2;
    examination.clock = Some(catalogue.clock.micros - i64::midpoint(before, host_micros()));
    examination.add(Finding::ok(
        NAME,
        format!("{} at {}, answers in {:.1} ms", catalogue.product, config.database.url, asked.as_secs_f64() * 2000.0),
    ));
    // What could not be asked is not known.
    if let Ok(Some(between)) = store.between().await {
        examination.add(proxy(&between));
    }
    for finding in hosts(&store.look_at_hosts().await) {
        examination.add(finding);
    }
    examination.add(mapping(config, &catalogue));
    if catalogue.row_security {
        examination.add(Finding::warn(
            "row security",
            "policies of the table decide which orders this user sees; one that they hide is never closed",
            "see that a policy for SELECT and UPDATE lets this user see every order, or ALTER ROLE ... BYPASSRLS",
        ));
    }
    for Obstacle { name, what, fix } in store.obstacles() {
        examination.add(Finding::warn(name, what, fix));
    }
    examination.add(index("sweep index", &catalogue, &catalogue.sweep_index, "the sweep reads the whole table"));
    examination.add(index("id index", &catalogue, &catalogue.id_index, "each look-up reads the whole table"));
    if catalogue.id_index.found.is_some() && !catalogue.id_is_unique {
        examination.add(not_unique(config, &catalogue));
    }
    examination.add(match store.zone_changed().await {
        Ok(Some(reason)) => Finding::fail(
            "time zone",
            format!("{reason}; nothing closes"),
            "set database.time_zone to the zone in which the shop writes its times, or set the server's time zone back",
        ),
        Ok(None) | Err(_) => time_zone(&catalogue),
    });
    for finding in deadlines::examine(config, store.as_ref(), &catalogue).await {
        examination.add(finding);
    }
    // A table that is too large to be counted in time has no index, and that is said above.
    for finding in store.census().await.iter().filter_map(|census| unpaid(config, census)) {
        examination.add(finding);
    }
    for finding in rivals(config, store.as_ref()).await {
        examination.add(finding);
    }
    match store::rehearse(store.as_ref()).await {
        Ok(()) => {
            examination.add(Finding::ok(CLOSING, "every statement of a closure was accepted (on no order, rolled back)"));
            if rehearsal {
                examination.add(rehearsed(store::rehearse_on_an_order(store.as_ref()).await));
            }
        }
        Err(StoreError::Rejected(reason)) => examination.add(Finding::fail(
            CLOSING,
            reason,
            if lacking.is_empty() { "create what is missing, or fix orders.set, orders.filter and close.sql" } else { GRANTED },
        )),
        Err(error @ (StoreError::Conflict(_) | StoreError::Locked(_) | StoreError::TimedOut(_))) => examination.unavailable(Finding::fail(
            CLOSING,
            error.to_string(),
            "no order closes until the lock is released: end the transaction that holds it",
        )),
        Err(error @ StoreError::Refused { .. }) => examination.add(Finding::fail(CLOSING, error.to_string(), error.cure())),
        Err(error @ StoreError::Unavailable(_)) => examination.unavailable(Finding::fail(
            CLOSING,
            error.to_string(),
            "no order closes until the database takes changes: let database.url lead to one that does, no replica",
        )),
    }
    for finding in events::examine(config, rules, store.as_ref()).await {
        examination.add(finding);
    }
    store.close().await;
    examination
}

/// The hosts, where the URL names several: the one in use, those that could take its place, and those that could not.
fn hosts(hosts: &[HostSeen]) -> Vec<Finding> {
    const NAME: &str = "host";
    let told = |host: &HostSeen| format!("{}: {}{}", host.place, host.standing, if host.in_use { "; in use" } else { "" });
    let mut findings: Vec<Finding> = hosts
        .iter()
        .map(|host| match host.answers {
            true => Finding::ok(NAME, told(host)),
            false => Finding::warn(NAME, told(host), "start it, or take it out of database.url; while it is away it can't take over"),
        })
        .collect();
    let primaries: Vec<&str> = hosts.iter().filter(|host| host.takes_writes).map(|host| host.place.as_str()).collect();
    if primaries.len() > 1 {
        findings.push(Finding::warn(
            NAME,
            format!("{} take writes, all of them; orders are closed on one alone", primaries.join(" and ")),
            "stop all but one, or make them standbys (MySQL and MariaDB: SET GLOBAL read_only = 1); only several writers of one cluster \
             (Galera, group replication) may be so",
        ));
    }
    findings
}

/// A proxy, by its name or by what it does.
fn proxy(between: &Between) -> Finding {
    const NAME: &str = "proxy";
    let Between { proxy, reads, transaction, keeps_settings } = between;
    let name = proxy.unwrap_or("a proxy");
    let list = |servers: &BTreeSet<String>| servers.iter().map(String::as_str).collect::<Vec<_>>().join(" and ");
    let own = match *proxy {
        Some("ProxySQL") => "UPDATE mysql_users SET fast_forward = 1, default_hostgroup = (the writers') for this user, and load it",
        Some("MaxScale") => "a service of its own with router=readconnroute and router_options=master",
        _ => "a way of its own that leads to the writer alone",
    };
    let fix = format!("name the server itself in database.url, or give this user {own}");
    if !keeps_settings {
        let found = format!("{name} stands between and loses what is set of a session, such as the zone in which deadlines are read");
        return Finding::fail(NAME, found, fix);
    }
    if transaction.len() > 1 {
        let found = format!("{name} stands between and sends the statements of one transaction to {}", list(transaction));
        return Finding::fail(NAME, found, fix);
    }
    if reads != transaction {
        let found = format!(
            "{name} stands between and sends reads to {}, and transactions to {}: orders are found by rows that may be old",
            list(reads),
            list(transaction)
        );
        return Finding::warn(NAME, found, fix);
    }
    Finding::ok(NAME, format!("{name} stands between; reads and transactions went to {}", list(transaction)))
}

/// Where several rules share a table: what two of them take, and what none of them takes.
async fn rivals(config: &Config, store: &dyn Store) -> Vec<Finding> {
    const NAME: &str = "rules";
    let mut findings = Vec::new();
    if let Ok(Some(Claim { id, rule })) = claimed_twice(store).await {
        let found = format!("{} and {rule} both take the order {id}, and neither closes it", store.rule());
        findings.push(Finding::fail(NAME, found, "see that no row passes the filters of both"));
    }
    let untaken = if config.which.is_one_of_several { store.count_untaken().await.unwrap_or(0) } else { 0 };
    if untaken > 0 {
        let many = if untaken == Census::COUNTED.unsigned_abs() { "at least " } else { "" };
        let unpaid = config.orders.unpaid.get().iter().map(Status::text).collect::<Vec<_>>().join(", ");
        let found = format!("{many}{untaken} orders of {} with an unpaid status ({unpaid}) are taken by no rule", config.orders.table);
        findings.push(Finding::warn(NAME, found, "see that a filter is true for each of them; where a column is NULL none is"));
    }
    findings
}

fn rehearsed(rehearsed: Rehearsed) -> Finding {
    const NAME: &str = "rehearsal";
    match rehearsed {
        Rehearsed::Closable(id) => Finding::ok(NAME, format!("order {id} could be closed (tried and rolled back)")),
        Rehearsed::NotTried(why) => Finding::ok(NAME, format!("not tried on an order: {why}")),
        Rehearsed::Refused { id, reason, lacking: true } => Finding::fail(
            NAME,
            format!("order {id} can't be closed: {reason}"),
            "grant the right, or create what is missing; until then every order waits",
        ),
        Rehearsed::Refused { id, reason, lacking: false } => Finding::warn(
            NAME,
            format!("order {id} can't be closed: {reason}"),
            "see whether this order is odd, or each of them: constraints, triggers and close.sql decide",
        ),
    }
}

fn mapping(config: &Config, catalogue: &Catalogue) -> Finding {
    let columns: Vec<String> = catalogue
        .columns
        .iter()
        .map(|column| format!("{} {} ({})", column.key.trim_start_matches("orders."), column.name, column.type_name))
        .collect();
    Finding::ok("mapping", format!("{}: {}", config.orders.table, columns.join(", ")))
}

fn index(name: &'static str, catalogue: &Catalogue, advice: &IndexAdvice, without: &str) -> Finding {
    match &advice.found {
        Some(index) => Finding::ok(name, index.clone()),
        None if catalogue.table == TableKind::View => Finding::warn(name, "unknown; orders.table is a view", advice.create.clone()),
        None => Finding::warn(name, format!("none; {without}"), advice.create.clone()),
    }
}

fn not_unique(config: &Config, catalogue: &Catalogue) -> Finding {
    let id = &config.orders.id;
    let fix = if catalogue.table == TableKind::Partitioned {
        format!("see that no id comes twice; a partitioned table can have such an index only if {id} is what it is partitioned by")
    } else {
        catalogue.id_index.create.clone()
    };
    Finding::warn("id index", format!("no unique index on {id} alone; if an id came to stand in two rows, neither would close"), fix)
}

fn time_zone(catalogue: &Catalogue) -> Finding {
    if catalogue.zone_matters {
        Finding::ok("time zone", format!("the deadline column has no zone, and is read in {}", catalogue.time_zone))
    } else {
        Finding::ok("time zone", "the deadline column needs none")
    }
}

/// What keeps every order, or some, from ever being due.
fn unpaid(config: &Config, census: &Census) -> Option<Finding> {
    const NAME: &str = "unpaid orders";
    let closed = config.orders.closed.text();
    // Where all are closed, none waits at the moment.
    if census.statuses.iter().all(|(status, _)| status.as_ref() == Some(&closed)) {
        return None;
    }
    let wanted: Vec<String> = config.orders.unpaid.get().iter().map(Status::text).collect();
    if census.unpaid == 0 {
        let shown = |(status, count): &(Option<String>, i64)| format!("{} ({count})", status.as_deref().unwrap_or("NULL"));
        let held: Vec<String> = census.statuses.iter().map(shown).collect();
        let alike = |status: &&str| wanted.iter().any(|wanted| wanted.trim().eq_ignore_ascii_case(status.trim()));
        let similar = census.statuses.iter().filter_map(|(status, _)| status.as_deref()).find(alike);
        let fix = match similar {
            Some(status) => format!("orders.unpaid = {status:?}: text counts to the letter"),
            None => "list the statuses of orders that wait for their payment in orders.unpaid; all is well if no order waits at the moment"
                .into(),
        };
        return Some(Finding::warn(NAME, format!("no row matches orders.unpaid; the column holds {}", held.join(", ")), fix));
    }
    let many = if census.unpaid == Census::COUNTED { "at least " } else { "" };
    if !census.passes_filter {
        return Some(Finding::warn(
            NAME,
            format!("orders.filter excludes all of them, {many}{}", census.unpaid),
            "see that the filter is true for an order that is to be closed",
        ));
    }
    let without = census.unpaid - census.with_deadline;
    (without > 0).then(|| {
        let column = &config.orders.deadline.column;
        Finding::warn(
            NAME,
            format!("{without} of {many}{} have no deadline ({column} is NULL), and are never due", census.unpaid),
            format!("write {column} with each order, or let another column be orders.deadline"),
        )
    })
}
