//! The orders table as PostgreSQL's catalogue describes it, and the SQL made from that.

use super::{
    Postgres,
    catalogue::{Column, Relation, columns, id_cast, id_kind, indexes, lacking, relation, server_encoding, status_kind, table_oid},
    deadline::DeadlineColumn,
    own::words,
    zone::SessionZone,
};
use crate::{
    config::{Names, Rule},
    store::{
        Misfit, OpenError, StoreError,
        catalogue::{Described, Findings, TableKind},
        dialect::Fragments,
        mapping::{Mapped, StatusLiterals},
        session::Session,
        statements::assignments,
    },
};

// As floating point, since PostgreSQL 14's own extract() computes a slow numeric: exact to the microsecond until the year 2255.
pub(in crate::store) const NOW: &str = "(date_part('epoch', statement_timestamp()) * 1000000)::bigint";

/// The table.
#[derive(Debug)]
pub(in crate::store) struct Table {
    oid: i64,
    relation: Relation,
    /// The type to which texts of ids are cast.
    pub(super) id_type: String,
    /// The condition on what the sweep reads.
    swept: String,
}

pub(super) async fn read(session: &mut Session<Postgres>, rule: &Rule, zone: &SessionZone) -> Result<(Table, Fragments), OpenError> {
    let names = rule.names('"');
    let oid = table_oid(session, rule, &names).await?;
    let relation = relation(session, oid, rule.deadline.column.as_str()).await?;
    let indexes = indexes(session, oid).await?;
    let id_is_unique = !relation.has_heirs && indexes.iter().any(|index| index.makes_unique(rule.id.as_str()));
    let columns = Mapped::find(rule, &columns(session, oid).await?, false)?;
    let unicode = server_encoding(session).await? == "UTF8";
    let Mapped { id, status, deadline, included, asked, .. } = &columns;
    let literals = StatusLiterals::new(rule, &status_kind(status)?, &status.declared)?;
    let due = DeadlineColumn::new(deadline, &names.deadline, rule)?;
    if let (DeadlineColumn::Local { .. }, SessionZone::Unknown(reason)) = (&due, zone) {
        return Err(Misfit(format!(
            "orders.deadline.column: {} is {}, without a time zone, and the server's own zone could not be learned ({reason}); \
             set database.time_zone, such as \"UTC\" or \"+08:00\", to the zone in which your shop writes this column",
            deadline.name, deadline.declared
        ))
        .into());
    }
    let (id_type, plus, filter) = (id_cast(id).to_owned(), rule.plus_micros(), rule.filter_condition(&names));
    let Names { table, id: id_name, status: status_name, deadline: deadline_name, .. } = &names;
    let (micros, closed) = (due.micros(plus), &literals.closed);
    let has_status = |list: &str| format!("{status_name} IN ({list}){}", status.exactly(status_name, &format!("IN ({list})")));
    // As an expression, so that no index on the status serves; in the spelling that the judge compares.
    let status_is = |texts: &[String]| format!("({status_name}::text || '') COLLATE \"C\" IN ('{}')", texts.join("', '"));
    let (is_unpaid, is_due) = (status_is(&rule.unpaid_texts()), format!(" AND {micros} <= {NOW}"));
    let any_swept = has_status(&literals.unpaid_list());
    let listed = format!("{id_name} = ANY($1::text[]::{id_type}[]){}", id.exactly(id_name, "= ANY($1::text[])"));
    // Not where it could not tell two rows of one id, or what a trigger does afterwards, or could not return the deadline
    // that it judged by; or where the filter may look at other tables: those it would see as they were before the lock.
    // The row comes with the status that it had when the statement began, looked up for each by its id, or with none if a
    // trigger has set another than ours: the old row itself is to be had from version 18 on only, and a join with it is at
    // the mercy of a plan for ten ids.
    let at_once = id_is_unique && !relation.has_after_triggers && !rule.sets(&rule.deadline.column) && !rule.filter_looks_elsewhere();
    let was = "order_closer_was";
    let had = format!("SELECT {was}.{status_name}::text FROM {table} {was} WHERE {was}.{id_name} = {table}.{id_name}");
    let close_due = at_once.then(|| {
        format!(
            "UPDATE {table} SET {assignments}{status_name} = {closed} WHERE {listed} AND {is_unpaid}{is_due}{filter_by_row} \
             RETURNING {id_name}::text, \
             CASE WHEN {status_name} = {closed} THEN ({had}) END, \
             {micros}, {NOW}",
            assignments = assignments(&names, rule),
            filter_by_row = rule.filter_by_row(&names),
        )
    });
    let object = |columns: &[(String, Column)]| {
        let pairs: Vec<String> = columns.iter().map(|(name, _)| format!("'{name}', {}", names.quoted(name))).collect();
        (!pairs.is_empty()).then(|| format!("json_build_object({})::text", pairs.join(", ")))
    };
    let fragments = Fragments {
        id_kind: id_kind(id, unicode)?,
        words: words(&relation.schema, &relation.name),
        described: Described::new(&columns, zone.describe(), matches!(due, DeadlineColumn::Local { .. }), relation.obstacles(rule)),
        escapes: false,
        now: NOW,
        id_is_unique,
        id_is_unique_with_deadline: indexes.iter().any(|index| index.makes_unique_with(rule.id.as_str(), rule.deadline.column.as_str())),
        recent: relation.by_deadline.then(|| due.recent(plus)),
        id_bytes: format!("{id_name}::text COLLATE \"C\""),
        id_text: format!("{id_name}::text"),
        qualified_id_text: format!("{table}.{id_name}::text"),
        status_text: format!("{status_name}::text"),
        deadline: micros,
        batch: None,
        hint: String::new(),
        listed,
        locking: Some(""),
        swept: literals.unpaid.iter().map(|status| has_status(status)).collect(),
        is_closed: status_is(&[rule.closed.text()]),
        is_unpaid,
        is_due,
        close_due,
        within: vec![due.within("?2", "?1", plus)],
        still_within: vec![due.within("?2", "?1", plus)],
        after: format!("({deadline_name}, {id_name}) > (?4::text::{}, ?5::text::{id_type})", deadline.cast),
        cursor: format!("{deadline_name}::text"),
        stored: format!("{deadline_name}::text"),
        valid: format!("{id_name} IS NOT NULL"),
        // A bare name would mean the output column of that name, which is the column's text.
        order: format!("{table}.{deadline_name}, {table}.{id_name}"),
        included: object(included),
        asked: object(asked),
        traceparent: rule.traceparent.as_ref().map(|column| names.quoted(column.as_str())).map(|column| format!("{column}::text")),
        any_swept,
        names,
        literals,
    };
    let swept = format!("{} AND {}{filter}", fragments.any_swept, due.real_until("0", plus));
    Ok((Table { oid, relation, id_type, swept }, fragments))
}

impl Table {
    pub(super) async fn findings(&self, session: &mut Session<Postgres>, fragments: &Fragments) -> Result<Findings, StoreError> {
        let version = sqlx::query_scalar::<_, String>("SELECT 'PostgreSQL ' || current_setting('server_version')");
        let product = session.run(|connection| version.fetch_one(connection)).await?;
        let Names { table, id, status, deadline, .. } = &fragments.names;
        let mut indexes = indexes(session, self.oid).await?;
        let lacking = lacking(session, self.oid, table, &self.swept).await?;
        indexes.retain(|index| !lacking.contains(&index.name));
        // With its schema, since others have other search paths. A partitioned table takes no index concurrently, and a
        // unique one only with what it is partitioned by.
        let (table, kind) = (&self.relation.qualified, self.relation.kind());
        let (concurrently, unique) = if kind == TableKind::Partitioned { ("", "") } else { (" CONCURRENTLY", "UNIQUE ") };
        // With one unpaid status the index's own condition says it all, and the planner leaves out the query's.
        let (one_status, unpaid) = (fragments.literals.unpaid.len() == 1, fragments.literals.unpaid_list());
        Ok(Findings {
            product,
            table: kind,
            row_security: self.relation.row_security,
            swept_late: None,
            odd_deadlines: Vec::new(),
            indexes,
            drops_implied: one_status,
            create_sweep_index: if one_status {
                format!("CREATE INDEX{concurrently} ON {table} ({deadline}, {id}) WHERE {status} = {unpaid};")
            } else {
                format!("CREATE INDEX{concurrently} ON {table} ({status}, {deadline}, {id}) WHERE {status} IN ({unpaid});")
            },
            create_id_index: format!("CREATE {unique}INDEX{concurrently} ON {table} ({id});"),
        })
    }
}
