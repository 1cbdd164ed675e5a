//! The orders table as SQLite's catalogue describes it, and the SQL made from that.

use super::{
    Sqlite,
    catalogue::{Column, columns, id_kind, indexes, no_such_table, rowid_alias, status_kind, table_kind},
    deadline::{DeadlineColumn, NOW},
    own::words,
};
use crate::{
    config::{DatabaseUrl, Names, Rule, TimeZone},
    order::IdKind,
    store::{
        OddDeadlines, Oddity, OpenError, SampleDeadline, StoreError,
        catalogue::{Described, Findings, Index, TableKind},
        dialect::{Fragments, sorted},
        driver::Columns,
        mapping::{Column as _, Mapped, StatusLiterals},
        obstacles,
        session::Session,
        statement::sql,
        statements::sample,
    },
};

/// A list of ids from the parameter ?1.
pub(super) const IDS: &str = "SELECT value FROM json_each(?1)";

/// The table.
#[derive(Debug)]
pub(in crate::store) struct Table {
    schema: String,
    name: String,
    kind: TableKind,
    rowid_alias: Option<String>,
    pub(super) ids_are_numbers: bool,
    due: DeadlineColumn,
    /// The condition on what the sweep reads first.
    swept: String,
    /// What its indexes are to be called.
    due_index: String,
    id_index: String,
}

pub(super) async fn read(
    session: &mut Session<Sqlite>,
    rule: &Rule,
    url: &DatabaseUrl,
    time_zone: Option<&TimeZone>,
) -> Result<(Table, Fragments), OpenError> {
    let name = &rule.table.name;
    let schema = rule.table.schema.clone().unwrap_or_else(|| "main".into());
    let all = columns(session, &schema, name).await?;
    if all.is_empty() {
        return Err(OpenError::Missing(no_such_table(session, &rule.table, url).await?));
    }
    // SQLite tells no names apart by case.
    let columns = Mapped::find(rule, &all, true)?;
    let names = rule.names('"');
    let literals = StatusLiterals::new(rule, &status_kind(&columns.status, rule)?, &columns.status.declared())?;
    let due = DeadlineColumn::new(&columns.deadline.declared(), &names.deadline, rule, time_zone)?;
    let zone = time_zone.map_or_else(|| "UTC (SQLite's own)".into(), |zone| format!("{zone} (database.time_zone)"));
    let (id_kind, plus) = (id_kind(&columns.id)?, rule.plus_micros());
    let Names { table, id, status, deadline, .. } = &names;
    let (id_text, status_text, micros, cursor) =
        (format!("CAST({id} AS TEXT)"), format!("CAST({status} AS TEXT)"), due.micros(plus), due.cursor());
    // Text is compared twice: by the column's collation, for its index, and by its bytes, so that no other spelling passes.
    // To the column's own collation two orders may be one, and a page would end between them.
    let (valid, exactly, ordered_id, last_id) = match id_kind {
        IdKind::Integer { .. } => (format!("typeof({id}) = 'integer'"), String::new(), id.clone(), "CAST(?5 AS INTEGER)"),
        IdKind::Text { .. } | IdKind::Uuid => (
            format!("typeof({id}) IN ('text', 'integer')"),
            format!(" AND CAST({id} AS BLOB) IN (SELECT CAST(value AS BLOB) FROM json_each(?1))"),
            format!("{id} COLLATE BINARY"),
            "?5",
        ),
    };
    let has_status = |literals: &[String]| {
        let one_of = match literals {
            // A partial index serves only a condition like its own.
            [one] => format!("= {one}"),
            several => format!("IN ({})", several.join(", ")),
        };
        format!("{status} {one_of} AND {status} COLLATE BINARY {one_of}")
    };
    // Its `+` keeps SQLite from reading every unpaid order by an index on the status.
    let status_is = |list: &str| format!("+{status} COLLATE BINARY IN ({list})");
    let pair = |(name, _): &(String, Column)| {
        let column = names.quoted(name);
        // A blob has no place in JSON, nor has an infinite number, of which SQLite makes one that is too large.
        let real = format!("CASE {column} WHEN 9e999 THEN 'Infinity' WHEN -9e999 THEN '-Infinity' ELSE {column} END");
        format!("'{name}', CASE typeof({column}) WHEN 'blob' THEN lower(hex({column})) WHEN 'real' THEN {real} ELSE {column} END")
    };
    let object = |columns: &[(String, Column)]| {
        let pairs: Vec<String> = columns.iter().map(pair).collect();
        (!pairs.is_empty()).then(|| format!("json_object({})", pairs.join(", ")))
    };
    let swept: Vec<String> = literals.unpaid.iter().map(|status| has_status(std::slice::from_ref(status))).collect();
    let within = due.within(plus, None);
    let orders = Table {
        rowid_alias: rowid_alias(&all),
        name: name.clone(),
        kind: table_kind(session, &schema, name).await?,
        ids_are_numbers: matches!(id_kind, IdKind::Integer { .. }),
        swept: format!("{} AND {}{}", swept[0], within[0], rule.filter_condition(&names)),
        due,
        due_index: rule.due_index.clone(),
        id_index: rule.id_index.clone(),
        schema,
    };
    let due = &orders.due;
    let obstacles = match orders.kind {
        TableKind::View => vec![obstacles::sqlite_view(rule)],
        TableKind::Plain | TableKind::Partitioned => Vec::new(),
    };
    let fragments = Fragments {
        words: words(&orders.schema, name),
        described: Described::new(&columns, zone, due.is_local(), obstacles),
        escapes: false,
        now: NOW,
        // What the transaction has locked, it sees: two rows of one id, too.
        id_is_unique: false,
        id_is_unique_with_deadline: false,
        recent: None,
        id_bytes: format!("CAST({id} AS BLOB)"),
        qualified_id_text: format!("CAST({table}.{id} AS TEXT)"),
        // The rows as one JSON array of [id, status, deadline], since the driver takes longer to hand over a thousand rows
        // than SQLite to find them; the clock; and whether the table has triggers.
        batch: Some(format!(
            "json_group_array(json_array({id_text}, {status_text}, {micros})), {NOW}, \
             EXISTS (SELECT 1 FROM \"{schema}\".sqlite_schema WHERE type = 'trigger' AND tbl_name = '{name}' COLLATE NOCASE)",
            schema = orders.schema,
            name = name.replace('\'', "''"),
        )),
        hint: String::new(),
        listed: format!("{id} IN ({IDS}){exactly} AND {valid}"),
        locking: None,
        swept,
        any_swept: has_status(&literals.unpaid),
        is_unpaid: status_is(&literals.unpaid_list()),
        is_closed: status_is(&literals.closed),
        is_due: String::new(),
        // UPDATE … RETURNING works, but costs more than reading the rows first: it has to tell each row's deadline twice.
        close_due: None,
        within,
        still_within: due.within(plus, Some(cursor)),
        after: format!("({deadline}, {ordered_id}) > ({cursor}, {last_id})"),
        cursor: due.text(),
        stored: format!("CAST({deadline} AS TEXT)"),
        order: format!("{deadline}, {ordered_id}"),
        included: object(&columns.included),
        asked: object(&columns.asked),
        traceparent: rule.traceparent.as_ref().map(|column| names.quoted(column.as_str())).map(|column| format!("CAST({column} AS TEXT)")),
        deadline: micros,
        id_text,
        status_text,
        valid,
        id_kind,
        literals,
        names,
    };
    Ok((orders, fragments))
}

impl Table {
    pub(super) async fn findings(&self, session: &mut Session<Sqlite>, fragments: &Fragments) -> Result<Findings, StoreError> {
        let version = sqlx::query_scalar::<_, String>("SELECT 'SQLite ' || sqlite_version()");
        let product = session.run(|connection| version.fetch_one(connection)).await?;
        let swept_late = match self.due.east_of_sweep() {
            Some(east) => {
                let late = sql(format!("{} AND {} AND {east} LIMIT 1", sample(fragments), fragments.any_swept));
                let found = session.execute(late).await?;
                found.first().map(SampleDeadline::read::<sqlx::Sqlite>).transpose().map_err(sorted::<Sqlite>)?
            }
            None => None,
        };
        let Names { table, id, deadline, status, .. } = &fragments.names;
        let Self { due_index, id_index, .. } = self;
        // An index names its schema itself, and the table without one.
        let bare_table = table.rsplit_once("\".\"").map_or_else(|| table.clone(), |(_, name)| format!("\"{name}"));
        Ok(Findings {
            product,
            table: self.kind,
            row_security: false,
            swept_late,
            odd_deadlines: self.odd_deadlines(session, fragments).await?,
            indexes: self.usable_indexes(session, table).await?,
            drops_implied: false,
            create_sweep_index: format!("CREATE INDEX {due_index} ON {bare_table} ({status}, {deadline}, {id});"),
            create_id_index: format!("CREATE UNIQUE INDEX {id_index} ON {bare_table} ({id});"),
        })
    }

    async fn odd_deadlines(&self, session: &mut Session<Sqlite>, fragments: &Fragments) -> Result<Vec<OddDeadlines>, StoreError> {
        let Fragments { names: Names { table, id, .. }, any_swept: unpaid, valid, stored, .. } = fragments;
        let unreadable = self.due.unreadable().map(|condition| (condition, Oddity::Unreadable));
        let untrimmed = self.due.untrimmed().map(|(condition, assignment)| {
            let trim = format!("UPDATE {table} SET {assignment} WHERE {unpaid} AND {condition};");
            (condition, Oddity::Untrimmed { trim })
        });
        let mut found = Vec::new();
        for (condition, oddity) in unreadable.into_iter().chain(untrimmed) {
            // Out: how many unpaid orders have such a deadline, the least id of them, and, since a bare column is that of the
            // row with the least, its text. Locks nothing.
            let count =
                sql(format!("SELECT count(*), CAST(min({id}) AS TEXT), {stored} FROM {table} WHERE {unpaid} AND {valid} AND {condition}"));
            let rows = session.execute(count).await?;
            let read = |row| {
                let mut columns = Columns::<sqlx::Sqlite>::of(row);
                Ok((columns.number()?, columns.optional_text()?, columns.optional_text()?))
            };
            if let Some((count, Some(id), Some(stored))) = rows.first().map(read).transpose().map_err(sorted::<Sqlite>)? {
                found.push(OddDeadlines { oddity, count: count.unsigned_abs(), id, stored });
            }
        }
        Ok(found)
    }

    /// Without the partial ones by which SQLite can't sweep, as it says itself when it must.
    async fn usable_indexes(&self, session: &mut Session<Sqlite>, table: &str) -> Result<Vec<Index>, StoreError> {
        let mut usable = Vec::new();
        for index in indexes(session, &self.schema, &self.name, self.rowid_alias.as_deref()).await? {
            let (name, swept) = (index.name.replace('"', "\"\""), &self.swept);
            let must = sql(format!("EXPLAIN SELECT 1 FROM {table} INDEXED BY \"{name}\" WHERE {swept}"));
            match index.partial {
                true => match session.execute(must).await {
                    Ok(_) => usable.push(index),
                    Err(StoreError::Rejected(_)) => {}
                    Err(error) => return Err(error),
                },
                false => usable.push(index),
            }
        }
        Ok(usable)
    }
}
