//! The orders table as PostgreSQL's catalogue describes it, and the statements made from that.

use std::sync::Arc;

use sqlx::{AssertSqlSafe, Postgres as Driver, SqlSafeStr, SqlStr};

use super::{
    catalogue::{Relation, columns, id_cast, id_kind, indexes, lacking, relation, server_encoding, status_kind, table_oid},
    moment::Moment,
    outbox::words,
    zone::SessionZone,
};
use crate::{
    config::Config,
    order::IdKind,
    store::{
        Catalogue, ClockReading, Misfit, OpenError, StoreError,
        catalogue::{Asked, Described, TableKind},
        close_sql::CloseStatement,
        mapping::{
            Names, StatusLiterals, close_statements, filter_condition, filter_looks_elsewhere, further_assignments, included,
            no_such_column, plus_micros, quoted,
        },
        outbox::{OwnTables, Recorder},
        session::Session,
    },
};

// As floating point, since PostgreSQL 14's own extract() computes a slow numeric: exact to the microsecond until the year 2255.
pub(super) const NOW: &str = "(date_part('epoch', statement_timestamp()) * 1000000)::bigint";

/// The sweep's two statements for one status: the first page, and the next.
#[derive(Debug, Clone)]
pub(super) struct Due {
    pub(super) first: SqlStr,
    pub(super) next: SqlStr,
}

/// The table and the statements on it.
#[derive(Debug, Clone)]
pub(super) struct Schema {
    pub(super) id_kind: IdKind,
    pub(super) unpaid: Vec<String>,
    /// None where it could not tell two rows of one id, or what a trigger does afterwards, or could not return the deadline
    /// that it judged by; or where the filter may look at other tables: those it would see as they were before the lock.
    pub(super) close_due: Option<SqlStr>,
    pub(super) lock: SqlStr,
    pub(super) peek: SqlStr,
    pub(super) update: SqlStr,
    pub(super) count_closed: SqlStr,
    pub(super) close_sql: Vec<CloseStatement<SqlStr>>,
    pub(super) own: OwnTables,
    pub(super) recorder: Option<Arc<Recorder>>,
    pub(super) included: Option<SqlStr>,
    pub(super) due: Vec<Due>,
    pub(super) count_overdue: SqlStr,
    sample: SqlStr,
    names: Names,
    oid: i64,
    relation: Relation,
    described: Described,
    unpaid_list: String,
    /// The condition on what the sweep reads.
    swept: String,
}

fn sql(text: String) -> SqlStr {
    AssertSqlSafe(text).into_sql_str()
}

impl Schema {
    /// `own` are our own tables, if they were found before.
    pub(super) async fn read(
        session: &mut Session<Driver>,
        config: &Config,
        zone: &SessionZone,
        own: Option<&OwnTables>,
    ) -> Result<Self, OpenError> {
        let names = Names::new(config, '"');
        let oid = table_oid(session, config, &names).await?;
        let id_is_unique = indexes(session, oid).await?.iter().any(|index| index.makes_unique(config.orders.id.as_str()));
        let relation = relation(session, oid).await?;
        let own = match own {
            Some(own) => own.clone(),
            None => OwnTables::find(session, words(&relation.schema, &relation.name)).await?,
        };
        let columns = columns(session, oid).await?;
        let unicode = server_encoding(session).await? == "UTF8";
        let find = |key: &'static str, name: &str| {
            let existing: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
            columns.iter().find(|column| column.name == name).ok_or_else(|| no_such_column(config, key, name, &existing))
        };
        let orders = &config.orders;
        let id = find("orders.id", orders.id.as_str())?;
        let status = find("orders.status", orders.status.as_str())?;
        let deadline = find("orders.deadline.column", orders.deadline.column.as_str())?;
        for column in orders.set.keys() {
            find("orders.set", column.as_str())?;
        }
        let carried = included(config, find)?;
        let literals = StatusLiterals::new(config, &status_kind(status)?, &status.declared)?;
        let moment = Moment::new(deadline, &names.deadline, config)?;
        if let (Moment::Local { .. }, SessionZone::Unknown(reason)) = (&moment, zone) {
            return Err(Misfit(format!(
                "orders.deadline.column: {} is {}, without a time zone, and the server's own zone could not be learned ({reason}); \
                 set database.time_zone, such as \"UTC\" or \"+08:00\", to the zone in which your shop writes this column",
                deadline.name, deadline.declared
            ))
            .into());
        }
        let id_type = id_cast(id);
        let ids = format!("SELECT unnest($1::text[]::{id_type}[])");
        let (table, id_name, status_name) = (&names.table, &names.id, &names.status);
        // A bare name in ORDER BY means the output column, which is the text of the column of that name.
        let [by_id, by_deadline] = [&names.id, &names.deadline].map(|column| format!("{table}.{column}"));
        let filter = filter_condition(config);
        let not_dead = own.not_dead(&format!("{table}.{id_name}::text"));
        let unpaid_list = literals.unpaid_list();
        let deadline_micros = moment.micros(plus_micros(config));
        let row = format!("{id_name}::text, {status_name}::text, {deadline_micros}, {NOW}");
        // A type may take 'PENDING' for 'pending'. The judge does not, and the sweep would find such an order for ever.
        let has_status = |list: &str| format!("{status_name} IN ({list}){}", status.exactly(status_name, &format!("IN ({list})")));
        // In: ids, a horizon in microseconds. Out: deadlines that are real and within it.
        let within = |horizon: &str| moment.within(horizon, plus_micros(config));

        let due = literals
            .unpaid
            .iter()
            .map(|status| {
                let page = |after: &str| {
                    // In: $1 horizon, $2 page size, $3 and $4 the place to continue after. Out: rows in the
                    // order of deadlines. Locks nothing.
                    sql(format!(
                        "SELECT {row}, {deadline}::text FROM {table} WHERE {has_status} AND {within} AND {id_name} IS NOT NULL{after}{not_dead}{filter} \
                         ORDER BY {by_deadline}, {by_id} LIMIT $2",
                        has_status = has_status(status),
                        deadline = names.deadline,
                        within = within("$1"),
                    ))
                };
                let after = format!(" AND ({}, {id_name}) > ($3::text::{}, $4::text::{id_type})", names.deadline, deadline.cast);
                Due { first: page(""), next: page(&after) }
            })
            .collect();

        let listed = format!("{id_name} = ANY($1::text[]::{id_type}[]){}", id.exactly(id_name, "= ANY($1::text[])"));
        let set = format!("SET {status_name} = {}{}", literals.closed, further_assignments(config, '"'));
        // In: $1 ids. Out: the rows changed, with a status that they had, or none if a trigger has set another than ours.
        // Locks them; waits for locks. Status and deadline are compared as expressions: an index on them would have it read
        // all orders that are due.
        let close_due = sql(format!(
            "UPDATE {table} {set} WHERE {listed} AND {status_text} IN ({unpaid_texts}) AND {deadline_micros} <= {NOW}{filter} \
             RETURNING {id_name}::text, CASE WHEN {status_name} = {closed} THEN ({had})::text END, {deadline_micros}, {NOW}",
            status_text = status.text(status_name),
            unpaid_texts = literals.unpaid.iter().map(|status| format!("({status})::text")).collect::<Vec<_>>().join(", "),
            closed = literals.closed,
            had = literals.unpaid[0],
        ));

        let at_once =
            id_is_unique && !relation.has_after_triggers && !orders.sets(&orders.deadline.column) && !filter_looks_elsewhere(config);

        Ok(Self {
            id_kind: id_kind(id, unicode)?,
            unpaid: literals.unpaid_texts.clone(),
            close_due: at_once.then_some(close_due),
            // In: $1 ids. Out: their rows. Locks the rows until the end of the transaction, skips locked ones.
            lock: sql(format!("SELECT {row} FROM {table} WHERE {listed}{filter} ORDER BY {by_id} FOR UPDATE SKIP LOCKED")),
            // In: $1 ids. Out: their rows as last committed. Locks nothing.
            peek: sql(format!("SELECT {row} FROM {table} WHERE {listed}{filter}")),
            // In: $1 ids, whose rows are locked. Out: the number of rows changed. The status is asked once more for
            // tables in which an id is not unique.
            update: sql(format!("UPDATE {table} {set} WHERE {listed} AND {}{filter}", has_status(&unpaid_list))),
            // In: $1 ids. Out: one number. Locks nothing. Not filtered, as below.
            count_closed: sql(format!("SELECT count(*) FROM {table} WHERE {listed} AND {}", has_status(&literals.closed))),
            close_sql: close_statements(config, false, |template| sql(template.render(&ids)))?,
            // In: $1 ids, of closed orders. Out: id and what events carry. Not filtered: closing may have changed what the
            // filter asks.
            included: (!carried.is_empty()).then(|| {
                let pairs: Vec<String> = carried.iter().map(|(name, _)| format!("'{name}', {}", quoted('"', name))).collect();
                sql(format!(
                    "SELECT {id_name}::text, json_build_object({})::text FROM {table} \
                     WHERE {listed} AND {status_name} = {closed}",
                    pairs.join(", "),
                    closed = literals.closed,
                ))
            }),
            recorder: own.recorder(config),
            own,
            due,
            count_overdue: sql(format!(
                "SELECT count(*) FROM {table} WHERE {} AND {} AND {id_name} IS NOT NULL{not_dead}{filter}",
                has_status(&unpaid_list),
                within("$1")
            )),
            // Out: id, stored text and meaning of the latest deadline among a few rows.
            sample: sql(format!(
                "SELECT {id_name}::text, {deadline}::text, {deadline_micros} FROM {table} WHERE {deadline} IS NOT NULL AND {id_name} IS NOT NULL LIMIT 1",
                deadline = names.deadline
            )),
            described: Described::new(
                [id, status, deadline].map(|column| (column.name.as_str(), column.declared.clone())),
                zone.describe(),
                matches!(moment, Moment::Local { .. }),
            ),
            swept: format!("{} AND {}{filter}", has_status(&unpaid_list), within("0")),
            names,
            oid,
            relation,
            unpaid_list,
        })
    }

    pub(super) async fn catalogue(&self, session: &mut Session<Driver>) -> Result<Catalogue, StoreError> {
        let version = sqlx::query_scalar::<_, String>("SELECT 'PostgreSQL ' || current_setting('server_version')");
        let product = session.run(|connection| version.fetch_one(connection)).await?;
        let clock = clock(session).await?;
        let sample = sqlx::query_as::<_, (String, String, Option<i64>)>(self.sample.clone());
        let sample = session.run(|connection| sample.fetch_optional(connection)).await?;
        let Names { id, deadline, status, .. } = &self.names;
        let mut indexes = indexes(session, self.oid).await?;
        let lacking = lacking(session, self.oid, &self.names.table, &self.swept).await?;
        indexes.retain(|index| !lacking.contains(&index.name));
        // With its schema, since others have other search paths. A partitioned table takes no index concurrently, and a
        // unique one only with what it is partitioned by.
        let (table, kind) = (&self.relation.qualified, self.relation.kind());
        let (concurrently, unique) = if kind == TableKind::Partitioned { ("", "") } else { (" CONCURRENTLY", "UNIQUE ") };
        Ok(self.described.catalogue(Asked {
            product,
            clock,
            table: kind,
            row_security: self.relation.row_security,
            sample,
            swept_late: None,
            indexes,
            // With one unpaid status the index's own condition says it all, and the planner leaves out the query's.
            drops_implied: self.unpaid.len() == 1,
            create_sweep_index: if self.unpaid.len() == 1 {
                format!("CREATE INDEX{concurrently} ON {table} ({deadline}, {id}) WHERE {status} = {};", self.unpaid_list)
            } else {
                format!("CREATE INDEX{concurrently} ON {table} ({status}, {deadline}, {id}) WHERE {status} IN ({});", self.unpaid_list)
            },
            create_id_index: format!("CREATE {unique}INDEX{concurrently} ON {table} ({id});"),
        }))
    }
}

/// Reads the database's clock.
pub(super) async fn clock(session: &mut Session<Driver>) -> Result<ClockReading, StoreError> {
    let clock = sqlx::query_scalar::<_, i64>("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint");
    let started = std::time::Instant::now();
    let micros = session.run(|connection| clock.fetch_one(connection)).await?;
    Ok(ClockReading { micros, round_trip: started.elapsed() })
}
