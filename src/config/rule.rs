//! A rule: everything that closing the orders of one table needs, and nothing else, resolved once from the configuration.
//!
//! What is built from it depends on the configuration alone; what the database's catalogue adds stands in the store.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use super::{ColumnName, Config, Deadline, Disputed, KeyPrefix, Orders, RuleName, Statement, Status, TableName};

/// Longer than any calendar, in microseconds, and still within an `i64` when it is added to a time of ours.
const FOREVER: i64 = 9_000_000_000_000_000_000;

/// Which orders are closed, when, and what closing one does.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Its name.
    pub name: RuleName,
    /// Other rules that close orders of the same table in the same statuses.
    pub rivals: Vec<Rival>,
    /// The table, schema-qualified if need be.
    pub table: TableName,
    /// The column with the id.
    pub id: ColumnName,
    /// The column with the status.
    pub status: ColumnName,
    /// The statuses of an order that still can be paid, none of them twice.
    pub unpaid: Vec<Status>,
    /// The status that closing sets.
    pub closed: Status,
    /// When an unpaid order is to be closed.
    pub deadline: Deadline,
    /// One more condition on a row; rows that fail it are no orders.
    pub filter: Option<String>,
    /// Further columns that closing sets, each to an SQL expression.
    pub set: BTreeMap<ColumnName, String>,
    /// Statements in the transaction that closes.
    pub close_sql: Vec<Statement>,
    /// Columns that the event of a closure carries; none where no events are recorded.
    pub include: Vec<ColumnName>,
    /// The column with the trace that it goes on with, likewise.
    pub traceparent: Option<ColumnName>,
    /// Columns that the question before closing carries.
    pub asked: Vec<ColumnName>,
    /// What becomes of an order that its row calls due before its key expires.
    pub disputed: Disputed,
    /// What stands before the id in an order's key.
    pub key_prefix: KeyPrefix,
    /// What the index is to be called by which the sweep reads, where it is missing.
    pub due_index: String,
    /// The same of that on the id.
    pub id_index: String,
}

/// Another rule that closes orders of the same table in the same statuses: what it takes, too, neither closes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rival {
    /// Its name.
    pub name: RuleName,
    /// Its column with the status.
    status: ColumnName,
    /// The statuses of its orders.
    unpaid: Vec<Status>,
    /// Its filter.
    pub(super) filter: Option<String>,
}

impl Rival {
    /// What `other` takes of the orders of a rule; nothing where their statuses tell them apart.
    pub(super) fn new(name: &RuleName, orders: &Orders, other: &Orders) -> Option<Self> {
        let unpaid = other.unpaid.get();
        let is_apart = orders.status == other.status && !unpaid.iter().any(|status| orders.unpaid.get().contains(status));
        (!is_apart).then(|| Self {
            name: name.clone(),
            status: other.status.clone(),
            unpaid: unpaid.to_vec(),
            filter: other.filter.clone(),
        })
    }

    /// The condition that it takes a row, which is no match where it is NULL.
    fn takes(&self, names: &Names) -> String {
        let statuses: Vec<String> = self.unpaid.iter().map(Status::literal).collect();
        let filter = self.filter.as_ref().map_or_else(String::new, |filter| format!(" AND (\n{filter}\n)"));
        format!("{} IN ({}){filter}", names.quoted(self.status.as_str()), statuses.join(", "))
    }
}

/// The names of the table and its columns, quoted for one dialect.
#[derive(Debug, Clone)]
pub struct Names {
    /// The table.
    pub table: String,
    /// The column with the id.
    pub id: String,
    /// The column with the status.
    pub status: String,
    /// The column with the deadline.
    pub deadline: String,
    quote: char,
}

impl Names {
    /// Quotes a name; the configuration has refused names with quotes in them.
    #[must_use]
    pub fn quoted(&self, name: &str) -> String {
        quoted(self.quote, name)
    }
}

fn quoted(quote: char, name: &str) -> String {
    format!("{quote}{name}{quote}")
}

/// What tells an index of one rule, or of one shard, from those of the others: in SQLite no two of a schema have the same name, in
/// MySQL no two of a table.
fn index_name(purpose: &str, of: Option<&RuleName>, config: &Config) -> String {
    /// The shortest limit of the databases, in characters.
    const LONGEST: usize = 63;
    let table = config.which.name.shard().map(|_| config.orders.table.name.as_str());
    let parts = of.map(RuleName::as_str).into_iter().chain(table);
    let whole = parts.fold(format!("order_closer_{purpose}"), |name, part| format!("{name}_{part}"));
    let name = whole.replace('-', "_");
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.len() <= LONGEST && name.chars().all(is_plain) && !table.is_some_and(|table| table.contains('-')) {
        return name;
    }
    // What is cut off, or needs quotes, is told apart by a checksum.
    let sum = Sha256::digest(&whole).iter().take(4).map(|byte| format!("{byte:02x}")).collect::<String>();
    let plain: String = name.chars().filter(|c| is_plain(*c)).take(LONGEST - sum.len() - 1).collect();
    format!("{plain}_{sum}")
}

impl Rule {
    /// The rule that the configuration describes.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let orders = &config.orders;
        Self {
            name: config.which.name.clone(),
            rivals: config.which.rivals.clone(),
            table: orders.table.clone(),
            id: orders.id.clone(),
            status: orders.status.clone(),
            unpaid: orders.unpaid.get().to_vec(),
            closed: orders.closed.clone(),
            deadline: orders.deadline.clone(),
            filter: orders.filter.clone(),
            set: orders.set.clone(),
            close_sql: config.close.sql.clone(),
            include: if config.events.enabled { config.events.include.clone() } else { Vec::new() },
            traceparent: config.events.traceparent.clone().filter(|_| config.events.enabled),
            asked: config.close.ask.as_ref().map(|ask| ask.include.clone()).unwrap_or_default(),
            disputed: orders.disputed,
            key_prefix: config.redis.key_prefix.clone(),
            due_index: index_name("due", config.which.indexed.due.as_ref(), config),
            id_index: index_name("id", config.which.indexed.id.as_ref(), config),
        }
    }

    /// Its names, in these quotes.
    #[must_use]
    pub fn names(&self, quote: char) -> Names {
        let table = match &self.table.schema {
            Some(schema) => format!("{}.{}", quoted(quote, schema), quoted(quote, &self.table.name)),
            None => quoted(quote, &self.table.name),
        };
        Names {
            table,
            id: quoted(quote, self.id.as_str()),
            status: quoted(quote, self.status.as_str()),
            deadline: quoted(quote, self.deadline.column.as_str()),
            quote,
        }
    }

    /// The unpaid statuses as the column prints them.
    #[must_use]
    pub fn unpaid_texts(&self) -> Vec<String> {
        self.unpaid.iter().map(Status::text).collect()
    }

    /// What `deadline.plus` adds, in microseconds.
    #[must_use]
    pub fn plus_micros(&self) -> i64 {
        self.deadline.plus.map_or(0, |plus| i64::try_from(plus.get().as_micros()).unwrap_or(FOREVER))
    }

    /// The filter as one more condition, with its leading AND; on lines of its own, so that a comment in it ends there. With it
    /// the condition that no rival takes the row.
    #[must_use]
    pub fn filter_condition(&self, names: &Names) -> String {
        self.filter_alone() + &self.by_no_rival(names)
    }

    /// The same in a form that no index serves, for statements that find their rows by id.
    #[must_use]
    pub fn filter_by_row(&self, names: &Names) -> String {
        let filter = self.filter.as_ref().map_or_else(String::new, |filter| format!(" AND CASE WHEN (\n{filter}\n) THEN 1 END = 1"));
        filter + &self.by_no_rival(names)
    }

    /// For each rival, but those before this rule by their names, the condition that it takes a row that this rule takes, too,
    /// with its leading AND.
    pub fn claims(&self, names: &Names) -> impl Iterator<Item = (&RuleName, String)> {
        self.rivals
            .iter()
            .filter(|rival| rival.name > self.name)
            .map(|rival| (&rival.name, format!("{} AND {}", self.filter_alone(), rival.takes(names))))
    }

    /// The condition, with its leading AND, that neither this rule nor a rival takes a row; nothing where this rule takes all.
    #[must_use]
    pub fn untaken(&self, names: &Names) -> Option<String> {
        let filter = self.filter.as_ref()?;
        Some(format!(" AND CASE WHEN (\n{filter}\n) THEN 1 ELSE 0 END = 0{}", self.by_no_rival(names)))
    }

    fn filter_alone(&self) -> String {
        self.filter.as_ref().map_or_else(String::new, |filter| format!(" AND (\n{filter}\n)"))
    }

    /// `yes` for a row that this rule takes, `no` for one that its filter hides, `both` for one that a rival takes, too.
    #[must_use]
    pub fn takes(&self, names: &Names) -> String {
        let (filter, alone) = (self.filter_alone(), self.by_no_rival(names));
        format!("CASE WHEN 1 = 1{filter} THEN CASE WHEN 1 = 1{alone} THEN 'yes' ELSE 'both' END ELSE 'no' END")
    }

    fn by_no_rival(&self, names: &Names) -> String {
        self.rivals.iter().map(|rival| format!(" AND CASE WHEN {} THEN 1 ELSE 0 END = 0", rival.takes(names))).collect()
    }

    /// All SQL of the user's that a closure runs, on lines of its own.
    #[must_use]
    pub fn written_sql(&self) -> String {
        let statements = self.close_sql.iter().map(|statement| statement.sql.as_str());
        let filters = self.rivals.iter().filter_map(|rival| rival.filter.as_deref()).chain(self.filter.as_deref());
        statements.chain(self.set.values().map(String::as_str)).chain(filters).collect::<Vec<_>>().join("\n")
    }

    /// Whether the filter may look at more than its own row: a subquery and a function have parentheses.
    #[must_use]
    pub fn filter_looks_elsewhere(&self) -> bool {
        self.rivals.iter().filter_map(|rival| rival.filter.as_ref()).chain(&self.filter).any(|filter| filter.contains('('))
    }

    /// Whether `set` has this column, in whatever case: two of the databases don't tell names apart by it.
    #[must_use]
    pub fn sets(&self, column: &ColumnName) -> bool {
        self.set.keys().any(|set| set.as_str().eq_ignore_ascii_case(column.as_str()))
    }
}
