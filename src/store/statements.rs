//! The statements on an orders table, the same set for each dialect.

use sqlx::SqlStr;

use crate::{
    config::{Names, Rule, RuleName},
    store::{
        Census, OpenError,
        close_sql::CloseStatement,
        dialect::{Dialect, Fragments},
        own::OwnTables,
        statement::{Statement, Writer, sql},
    },
};

/// What comes after the conditions of a page.
const ORDERED: &str = " ORDER BY ";

/// The sweep's two statements for one status: the first page, and the next.
#[derive(Debug)]
pub(super) struct Due {
    pub(super) first: Statement,
    /// How many bytes of it come before FROM: where it can select one more column.
    pub(super) selected: usize,
    pub(super) next: Statement,
}

impl Due {
    /// The same with one more condition, with its leading AND.
    pub(super) fn and(&self, condition: &str) -> Self {
        let [first, next] = [&self.first, &self.next].map(|statement| statement.with(ORDERED, condition));
        Self { first, next, selected: self.selected }
    }
}

/// The statements that find orders by their ids; `L` is one about a list of ids.
#[derive(Debug)]
pub(super) struct ById<L> {
    /// In: ids. Out: their rows. Locks the rows until the end of the transaction, skips locked ones.
    pub(super) lock: L,
    /// In: ids. Out: their rows as last committed. Locks nothing.
    pub(super) peek: L,
    /// In: ids. Out: those that several rows have, locked or not. Locks nothing. Only where that can be, and where a row that
    /// another transaction has locked would not be seen.
    pub(super) repeated: Option<L>,
    /// In: ids, whose rows are locked. Out: the number of rows changed. Status and deadline are asked once more: there are
    /// databases that take the words for a lock, and lock nothing.
    pub(super) update: L,
    /// In: ids. Out: the number of their rows that are closed. Locks nothing. Not filtered: closing may have changed what
    /// the filter asks.
    pub(super) count_closed: L,
    /// In: ids, of closed orders. Out: id, what events carry, and their trace. Locks nothing. Not filtered, likewise.
    pub(super) included: Option<L>,
}

/// The statements on an orders table.
#[derive(Debug)]
pub(super) struct Statements<L> {
    /// In all of the table.
    pub(super) all: ById<L>,
    /// Where the table is partitioned by the deadline: in the partitions of what has fallen due lately, as most of what is to
    /// be closed has. To look an id up in hundreds of them takes hundreds of times as long. What they don't find is looked
    /// for in all of the table.
    pub(super) recent: Option<ById<L>>,
    /// In: ids. Out: their rows as last committed, also what the filter hides. Locks nothing.
    pub(super) look: L,
    /// In: ids. Out: their rows as last committed, each with its deadline's text, and whether the rule takes it
    /// ([`Rule::takes`]). Locks nothing. Not filtered.
    pub(super) inspect: L,
    /// In: ids. Out: id, what the question before closing carries, and NULL. Locks nothing. Only where it carries something.
    pub(super) asked: Option<L>,
    /// In: ids. Out: the rows of those that were unpaid and due, and are closed now. Locks these; waits for locks.
    pub(super) close_due: Option<L>,
    /// In: ids, whose rows are locked. Out: the number of rows changed. As the update of a closure, whatever their deadline.
    pub(super) update_early: L,
    /// In: ids, of closed orders. The user's own.
    pub(super) close_sql: Vec<CloseStatement<L>>,
    /// In: ?1 and ?2 the last and the first deadline, ?3 page size, ?4 and ?5 the place to continue after. Out: rows in the
    /// order of deadlines, with the deadline's text. Locks nothing. One for each unpaid status and each way of writing a time.
    pub(super) due: Vec<Due>,
    /// In: ?1 and ?2 the last and the first deadline. Out: how many, and the first
    /// deadline. Locks nothing.
    pub(super) count_due: Vec<Statement>,
    /// In: ?1 and ?2 the last and the first deadline, ?3 the most. Out: how many, at most so many. Locks nothing. One for each
    /// unpaid status and each way of writing a time, in the order of deadlines: of half a table that is unpaid a planner would read
    /// all for the sake of some.
    pub(super) count_some: Vec<Statement>,
    /// Out: id, stored text and meaning of some unpaid orders' deadlines. Locks nothing.
    pub(super) samples: SqlStr,
    /// Out: statuses, each with its number among the last orders. Locks nothing.
    pub(super) statuses: SqlStr,
    /// Out: the number of unpaid orders, and of those with a deadline, up to a limit. Locks nothing. Not filtered.
    pub(super) unpaid: SqlStr,
    /// Out: 1 if an unpaid order passes the filter, else 0. Locks nothing.
    pub(super) passes_filter: SqlStr,
    /// Out: the id of an order that another rule takes, too. Locks nothing. One for each such rule.
    pub(super) claims: Vec<(RuleName, SqlStr)>,
    /// Out: the number of orders in an unpaid status that neither this rule nor another one takes, up to a limit. Locks nothing.
    pub(super) untaken: Option<SqlStr>,
    /// Out: the database's clock. Locks nothing.
    pub(super) clock: SqlStr,
}

impl<L> Statements<L> {
    pub(super) fn new<D: Dialect<List = L>>(
        table: &D::Table,
        fragments: &Fragments,
        rule: &Rule,
        own: &OwnTables,
    ) -> Result<Self, OpenError> {
        let Fragments { now, id_text, status_text, deadline, .. } = fragments;
        let (orders, filter) = (&fragments.names.table, rule.filter_condition(&fragments.names));
        let row = format!("{id_text}, {status_text}, {deadline}, {now}");
        let Fragments { hint, listed, .. } = fragments;
        let asked = fragments.asked.as_ref().map(|object| format!("SELECT {id_text}, {object}, NULL FROM {orders}{hint} WHERE {listed}"));
        let look = format!("SELECT {} FROM {orders}{hint} WHERE {listed}", fragments.batch.as_ref().unwrap_or(&row));
        let takes = rule.takes(&fragments.names);
        let inspect = format!("SELECT {row}, {}, {takes} FROM {orders}{hint} WHERE {listed}", fragments.stored);
        let found = format!(" AND {}{}{filter}", fragments.valid, own.not_dead(&fragments.qualified_id_text));
        let select = format!("SELECT {row}, {}", fragments.cursor);
        let page = |unpaid: &str, after: &str, within: &str| {
            Writer::new(D::PARAMETERS)
                .verbatim(&format!("{select} FROM {orders} WHERE {unpaid}"))
                .with_parameters(&format!("{after} AND {within}"))
                .verbatim(&format!("{found}{ORDERED}{}", fragments.order))
                .with_parameters(" LIMIT ?3")
                .finish()
        };
        // Asked before all else: of many orders with one deadline each page passes over those of the pages before, and what
        // follows may cost several times as much.
        let after = format!(" AND {}", fragments.after);
        let pages = |unpaid| fragments.within.iter().zip(&fragments.still_within).map(move |(first, next)| (unpaid, first, next));
        let due = fragments.swept.iter().flat_map(pages);
        let count_some = |unpaid: &str, within: &str| {
            Writer::new(D::PARAMETERS)
                .verbatim(&format!("SELECT count(*) FROM (SELECT 1 AS one FROM {orders} WHERE {unpaid}"))
                .with_parameters(&format!(" AND {within}"))
                .verbatim(&format!("{found} ORDER BY {}", fragments.order))
                .with_parameters(" LIMIT ?3")
                .verbatim(") AS some_of_them")
                .finish()
        };
        let some = |unpaid| fragments.within.iter().map(move |within| (unpaid, within));
        let some = fragments.swept.iter().flat_map(some);
        let count = |within: &String| {
            Writer::new(D::PARAMETERS)
                .verbatim(&format!("SELECT count(*), MIN({deadline}) FROM {orders} WHERE {} AND ", fragments.any_swept))
                .with_parameters(within)
                .verbatim(&found)
                .finish()
        };

        Ok(Self {
            all: ById::new::<D>(table, fragments, rule, &row, "")?,
            recent: fragments.recent.as_ref().map(|recent| ById::new::<D>(table, fragments, rule, &row, recent)).transpose()?,
            close_due: fragments.close_due.clone().map(|statement| D::list(table, statement)).transpose()?,
            look: D::list(table, look)?,
            inspect: D::list(table, inspect)?,
            asked: asked.map(|statement| D::list(table, statement)).transpose()?,
            update_early: D::list(table, update(fragments, rule, "", ""))?,
            close_sql: CloseStatement::of(rule, fragments.escapes, |template| D::user_list(table, template))?,
            due: due
                .map(|(unpaid, first, next)| Due {
                    first: page(unpaid, "", first),
                    selected: select.len(),
                    next: page(unpaid, &after, next),
                })
                .collect(),
            count_due: fragments.within.iter().map(count).collect(),
            count_some: some.map(|(unpaid, within)| count_some(unpaid, within)).collect(),
            samples: sql(format!(
                "SELECT sampled.i, sampled.s, sampled.d FROM ({} AND {} LIMIT 1000) AS sampled ORDER BY sampled.d IS NULL LIMIT 20",
                sample(fragments),
                fragments.any_swept
            )),
            statuses: sql(format!(
                "SELECT newest.s, count(*) FROM (SELECT {status_text} AS s FROM {orders} ORDER BY {} DESC LIMIT {}) AS newest \
                 GROUP BY newest.s ORDER BY 2 DESC, 1 LIMIT 10",
                fragments.names.id,
                Census::COUNTED
            )),
            unpaid: sql(format!(
                "SELECT count(*), count(counted.d) FROM (SELECT {} AS d FROM {orders} WHERE {} LIMIT {}) AS counted",
                fragments.names.deadline,
                fragments.any_swept,
                Census::COUNTED
            )),
            passes_filter: sql(format!(
                "SELECT count(*) FROM (SELECT 1 AS one FROM {orders} WHERE {}{filter} LIMIT 1) AS passing",
                fragments.any_swept
            )),
            claims: rule
                .claims(&fragments.names)
                .map(|(rival, claim)| {
                    let claimed = format!("SELECT {id_text} FROM {orders} WHERE {}{claim} LIMIT 1", fragments.any_swept);
                    (rival.clone(), sql(claimed))
                })
                .collect(),
            untaken: rule.untaken(&fragments.names).map(|untaken| {
                let limited = format!("SELECT 1 AS one FROM {orders} WHERE {}{untaken} LIMIT {}", fragments.any_swept, Census::COUNTED);
                sql(format!("SELECT count(*) FROM ({limited}) AS untaken"))
            }),
            clock: sql(format!("SELECT {now}")),
        })
    }
}

impl<L> ById<L> {
    /// `within` is one more condition, with its leading AND.
    fn new<D: Dialect<List = L>>(table: &D::Table, fragments: &Fragments, rule: &Rule, row: &str, within: &str) -> Result<Self, OpenError> {
        let Fragments { names, hint, id_text, id_bytes, listed, is_closed, is_due, .. } = fragments;
        let Names { table: orders, id, .. } = names;
        let (found, filter) = (format!("FROM {orders}{hint} WHERE {listed}{within}"), rule.filter_by_row(names));
        let list = |statement| D::list(table, statement);

        let look = format!("SELECT {} {found}{filter}", fragments.batch.as_deref().unwrap_or(row));
        let lock = match fragments.locking {
            Some(locking) => format!("{locking}{look} ORDER BY {orders}.{id} FOR UPDATE SKIP LOCKED"),
            None => look.clone(),
        };
        // No partition can have a unique index without the column by which the table is partitioned: with both, an id is as
        // unique as it can be.
        let within_once = if fragments.id_is_unique_with_deadline { &found } else { &format!("FROM {orders}{hint} WHERE {listed}") };
        let repeated = (fragments.locking.is_some() && !fragments.id_is_unique)
            .then(|| format!("SELECT MIN({id_text}) {within_once}{filter} GROUP BY {id_bytes} HAVING count(*) > 1"));
        let carried = [&fragments.included, &fragments.traceparent];
        let included = carried.iter().any(|part| part.is_some()).then(|| {
            let [object, traceparent] = carried.map(Option::as_deref);
            let (object, traceparent) = (object.unwrap_or("'{}'"), traceparent.unwrap_or("NULL"));
            format!("SELECT {id_text}, {object}, {traceparent} {found} AND {is_closed}")
        });
        Ok(Self {
            lock: list(lock)?,
            peek: list(look)?,
            repeated: repeated.map(list).transpose()?,
            update: list(update(fragments, rule, within, is_due))?,
            count_closed: list(format!("SELECT count(*) {found} AND {is_closed}"))?,
            included: included.map(list).transpose()?,
        })
    }
}

/// The UPDATE of a closure. `within` and `is_due` are conditions, each with its leading AND.
fn update(fragments: &Fragments, rule: &Rule, within: &str, is_due: &str) -> String {
    let Fragments { names, hint, listed, is_unpaid, literals, .. } = fragments;
    let Names { table, status, .. } = names;
    let (assignments, closed, filter) = (assignments(names, rule), &literals.closed, rule.filter_by_row(names));
    // The status last: MySQL assigns from left to right, and so the other expressions see the old one.
    format!("UPDATE {table}{hint} SET {assignments}{status} = {closed} WHERE {listed}{within} AND {is_unpaid}{is_due}{filter}")
}

/// The further assignments of the UPDATE, each with its trailing comma.
pub(super) fn assignments(names: &Names, rule: &Rule) -> String {
    rule.set.iter().map(|(column, expression)| format!("{} = {expression}, ", names.quoted(column.as_str()))).collect()
}

/// Out: id, stored text and meaning of all deadlines. Locks nothing.
pub(super) fn sample(Fragments { names, id_text, stored, deadline, valid, .. }: &Fragments) -> String {
    format!("SELECT {id_text} AS i, {stored} AS s, {deadline} AS d FROM {} WHERE {} IS NOT NULL AND {valid}", names.table, names.deadline)
}
