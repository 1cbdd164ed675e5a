//! The rights that closing needs, all at once: a statement that is refused names the first that is missing.

mod mentioned;

use std::collections::BTreeSet;

pub(super) use mentioned::Reading;

use crate::{
    config::{DatabaseUrl, Events, Rule, TableName},
    store::{TABLES_VERSION as VERSION, WITH_BATCHES, WITH_PAUSES},
};

/// What may be done to a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Right {
    Select,
    Insert,
    Update,
    Delete,
}

impl Right {
    /// As GRANT has it.
    pub(super) const fn sql(self) -> &'static str {
        match self {
            Self::Select => "SELECT",
            Self::Insert => "INSERT",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// What is to be done to a table.
#[derive(Debug, Clone)]
pub(super) struct Need {
    pub(super) table: TableName,
    pub(super) rights: BTreeSet<Right>,
    /// Which columns are read, and which are updated; where none are named, any would do.
    pub(super) read: Vec<String>,
    pub(super) updated: Vec<String>,
    /// The columns that get a value in new rows, where the statement says which.
    pub(super) inserted: Option<Vec<String>>,
}

impl Need {
    pub(super) fn of(table: TableName, rights: &[Right]) -> Self {
        Self { table, rights: rights.iter().copied().collect(), read: Vec::new(), updated: Vec::new(), inserted: None }
    }

    /// The columns of a right; none if any would do.
    pub(super) fn columns(&self, right: Right) -> &[String] {
        match right {
            Right::Select => &self.read,
            Right::Update => &self.updated,
            Right::Insert | Right::Delete => &[],
        }
    }
}

/// What a rule does to its own table, and the user's SQL to others.
pub(super) fn needs(rule: &Rule, reading: Reading) -> Vec<Need> {
    let Rule { name, id, status, deadline, set, close_sql, filter, table, .. } = rule;
    let updated = set.keys().chain([status]);
    // Timers are registered, cancelled and pruned, too.
    let rights: &[Right] =
        if name.is_timers() { &[Right::Select, Right::Insert, Right::Update, Right::Delete] } else { &[Right::Select, Right::Update] };
    let orders = Need {
        read: [id, status, &deadline.column].map(ToString::to_string).to_vec(),
        updated: updated.map(ToString::to_string).collect(),
        ..Need::of(table.clone(), rights)
    };
    let written = close_sql.iter().map(|statement| &statement.sql).chain(set.values()).chain(filter);
    let mentioned = written.flat_map(|sql| mentioned::mentioned(sql, reading));
    std::iter::once(orders).chain(mentioned).collect()
}

/// What is done to our own tables, which stand beside the orders; also where no events are recorded they are looked at.
/// Of tables that this version of them has.
pub(super) fn own(schema: &str, events: &Events, version: i64) -> Vec<Need> {
    use Right::{Delete, Insert, Select, Update};
    let written = |rights: &'static [Right]| if events.enabled { rights } else { &[Select] };
    [
        ("migrations", &[Select] as &[Right]),
        ("dead_letters", &[Select, Insert, Update, Delete]),
        ("facts", &[Select, Insert, Delete]),
        ("events", written(&[Select, Insert, Delete])),
        ("deliveries", written(&[Select, Insert, Update, Delete])),
        ("pauses", &[Select, Insert, Delete]),
        ("targets", written(&[Select, Insert, Update, Delete])),
        ("batches", written(&[Select, Insert, Delete])),
    ]
    .into_iter()
    .take(match version {
        ..WITH_PAUSES => 5,
        WITH_PAUSES..WITH_BATCHES => 7,
        WITH_BATCHES.. => 8,
    })
    .map(|(name, rights)| Need::of(TableName::of(Some(schema.into()), format!("order_closer_{name}")), rights))
    .collect()
}

/// What a user of the daemon's own has to be granted.
#[derive(Debug, Clone)]
pub struct Grants {
    /// The tables that closing reads or writes, the orders first.
    pub tables: Vec<TableName>,
    /// The statements; none where the database has no rights.
    pub statements: Vec<String>,
}

/// The GRANTs for a user `order_closer`, of all that closing the orders of a rule needs. Nothing is asked of the database.
#[must_use]
pub fn grants(rule: &Rule, url: &DatabaseUrl, database: Option<&str>) -> Grants {
    let (quote, to) = match url {
        DatabaseUrl::Postgres(_) => ('"', "order_closer"),
        DatabaseUrl::MySql(_) => ('`', "'order_closer'@'%'"),
        DatabaseUrl::Sqlite(_) => ('"', ""),
    };
    let reading = Reading { quote, folds: quote == '"', escapes: quote == '`' };
    let mut rights: Vec<(TableName, BTreeSet<Right>)> = Vec::new();
    for need in needs(rule, reading) {
        match rights.iter_mut().find(|(table, _)| *table == need.table) {
            Some((_, known)) => known.extend(need.rights),
            None => rights.push((need.table, need.rights)),
        }
    }
    let quoted = |name: &str| format!("{quote}{name}{quote}");
    let statement = |(table, rights): &(TableName, BTreeSet<Right>)| {
        let schema = table.schema.as_deref().or(database.filter(|_| quote == '`'));
        let name = schema.map_or_else(String::new, |schema| format!("{}.", quoted(schema))) + &quoted(&table.name);
        grant(rights, &name, to)
    };
    let statements = if to.is_empty() { Vec::new() } else { rights.iter().filter_map(statement).collect() };
    Grants { tables: rights.into_iter().map(|(table, _)| table).collect(), statements }
}

/// The GRANTs by which a user may do with our own tables whatever a daemon does that records events; `schema` is quoted, with its dot.
pub(crate) fn own_rights(schema: &str, to: &str) -> Vec<String> {
    let events = Events { enabled: true, ..Events::default() };
    let mut needs = own("", &events, VERSION);
    // Of those that not everybody has a use for.
    for name in ["order_closer_members", "order_closer_timers"] {
        let table = TableName::of(None, name);
        needs.push(Need::of(table, &[Right::Select, Right::Insert, Right::Update, Right::Delete]));
    }
    needs.iter().filter_map(|need| grant(&need.rights, &format!("{schema}{}", need.table.name), to)).collect()
}

/// GRANT, for all rights of a table at once; nothing without any.
pub(super) fn grant(rights: &BTreeSet<Right>, table: &str, to: &str) -> Option<String> {
    let rights: Vec<&str> = rights.iter().map(|right| right.sql()).collect();
    (!rights.is_empty()).then(|| format!("GRANT {} ON {table} TO {to};", rights.join(", ")))
}
