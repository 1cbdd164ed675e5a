//! The orders table as the server's catalogue describes it, and the SQL made from that.

use super::{
    MySql,
    catalogue::{Column, Server, Table, columns, id_column, indexes, status_column, table},
    deadline::{DeadlineColumn, NOW},
    ids::IdColumn,
    own::words,
};
use crate::{
    config::{Names, Rule, TimeZone},
    store::{
        OpenError, StoreError,
        catalogue::{Described, Findings, Index, TableKind},
        dialect::Fragments,
        mapping::{Mapped, StatusLiterals},
        session::Session,
    },
};

/// The orders table.
#[derive(Debug)]
pub(in crate::store) struct Orders {
    pub(super) server: Server,
    pub(super) table: Table,
    pub(super) id: IdColumn,
    create_sweep_index: String,
    create_id_index: String,
}

pub(super) async fn read(
    session: &mut Session<MySql>,
    rule: &Rule,
    time_zone: Option<&TimeZone>,
) -> Result<(Orders, Fragments), OpenError> {
    let server = Server::read(session).await?;
    let table = table(session, rule).await?;
    // Column names are the one kind of name that these servers never tell apart by case.
    let columns = Mapped::find(rule, &columns(session, &table).await?, true)?;
    let names = rule.names('`');
    let (status_kind, status_text) = status_column(&columns.status, &names.status)?;
    let literals = StatusLiterals::new(rule, &status_kind, &columns.status.declared)?;
    let due = DeadlineColumn::new(&columns.deadline.base, &columns.deadline.declared, &names.deadline, rule)?;
    let (id, id_kind) = id_column(&columns.id)?;
    let indexes = indexes(session, &server, &table).await?;
    let hint = index_hint(&indexes, &columns.id.name);
    let zone = zone(session, time_zone).await?;
    let plus = rule.plus_micros();
    let Names { table: orders, id: id_name, status: status_name, deadline: deadline_name, .. } = &names;
    let has_status = |literals: &[String]| {
        let spelled: Vec<String> = literals.iter().map(|literal| format!("CAST({literal} AS BINARY)")).collect();
        let exactly = match literals.first() {
            Some(first) if first.starts_with('\'') => format!(" AND CAST({status_text} AS BINARY) IN ({})", spelled.join(", ")),
            _ => String::new(),
        };
        format!("{status_name} IN ({}){exactly}", literals.join(", "))
    };
    let any_swept = has_status(&literals.unpaid);
    // As the judge compares them.
    let status_is = |texts: &[String]| format!("CAST({status_text} AS BINARY) IN ('{}')", texts.join("', '"));
    let micros = due.micros(plus);
    let pair = |(name, column): &(String, Column)| format!("'{name}', {}", column.in_json(&names.quoted(name), &server));
    let object = |columns: &[(String, Column)]| {
        let pairs: Vec<String> = columns.iter().map(pair).collect();
        (!pairs.is_empty()).then(|| format!("CAST(JSON_OBJECT({}) AS CHAR)", pairs.join(", ")))
    };
    // With the schema, since others may be in another one.
    let qualified = [&table.schema, &table.name].map(|name| names.quoted(name)).join(".");
    let create_index =
        |unique: &str, name: &str, parts: &[&str]| format!("CREATE {unique}INDEX {name} ON {qualified} ({});", parts.join(", "));
    let (id_part, status_part) = (columns.id.key_part(id_name), columns.status.key_part(status_name));
    let unique = if table.kind() == TableKind::Partitioned { "" } else { "UNIQUE " };
    let (create_sweep_index, create_id_index) =
        (create_index("", &rule.due_index, &[&status_part, deadline_name, &id_part]), create_index(unique, &rule.id_index, &[&id_part]));
    let fragments = Fragments {
        id_kind,
        words: words(&table.schema, &table.name),
        described: Described::new(&columns, zone, matches!(due, DeadlineColumn::Local { .. }), table.obstacles(rule)),
        escapes: server.escapes,
        now: NOW,
        id_is_unique: indexes.iter().any(|index| index.makes_unique(&columns.id.name)),
        id_is_unique_with_deadline: indexes.iter().any(|index| index.makes_unique_with(&columns.id.name, &columns.deadline.name)),
        recent: table.by_deadline.then(|| due.recent(plus)),
        id_bytes: format!("CAST({} AS BINARY)", id.text(id_name)),
        id_text: id.text(id_name),
        qualified_id_text: id.text(&format!("{orders}.{id_name}")),
        batch: None,
        hint,
        listed: format!("{id_name} IN (:ids){}", id.exactly(id_name)),
        // MariaDB, by its comment, with a time limit for locks, since SKIP LOCKED without any fails at the first locked row
        // ("Operation not permitted").
        locking: Some("/*M! SET STATEMENT max_statement_time = 10 FOR */ "),
        swept: literals.unpaid.iter().map(|status| has_status(std::slice::from_ref(status))).collect(),
        is_unpaid: status_is(&rule.unpaid_texts()),
        is_closed: status_is(&[rule.closed.text()]),
        is_due: format!(" AND {micros} <= {NOW}"),
        deadline: micros,
        // Neither server has UPDATE … RETURNING.
        close_due: None,
        within: vec![due.within(plus)],
        still_within: vec![due.within(plus)],
        after: due.after(id_name, id.cursor()),
        cursor: due.text(),
        stored: format!("CAST({deadline_name} AS CHAR)"),
        valid: format!("{id_name} IS NOT NULL{}", id.valid(id_name)),
        order: format!("{deadline_name}, {id_name}"),
        included: object(&columns.included),
        asked: object(&columns.asked),
        traceparent: rule.traceparent.as_ref().map(|column| names.quoted(column.as_str())).map(|column| format!("CAST({column} AS CHAR)")),
        status_text,
        any_swept,
        names,
        literals,
    };
    Ok((Orders { server, table, id, create_sweep_index, create_id_index }, fragments))
}

impl Orders {
    pub(super) async fn findings(&self, session: &mut Session<MySql>) -> Result<Findings, StoreError> {
        Ok(Findings {
            product: self.server.product.clone(),
            table: self.table.kind(),
            row_security: false,
            swept_late: None,
            odd_deadlines: Vec::new(),
            indexes: indexes(session, &self.server, &self.table).await?,
            drops_implied: false,
            create_sweep_index: self.create_sweep_index.clone(),
            create_id_index: self.create_id_index.clone(),
        })
    }
}

/// Makes a statement find its rows by the id's index, however long its list: a scan would lock the whole table.
fn index_hint(indexes: &[Index], id: &str) -> String {
    let serving = indexes.iter().filter(|index| index.serves_id(id));
    // One that allows each id once is the surest to stay.
    let chosen = serving.max_by_key(|index| (index.makes_unique(id), index.name == "PRIMARY"));
    chosen.map_or_else(String::new, |index| format!(" FORCE INDEX (`{}`)", index.name.replace('`', "``")))
}

/// The zone in which times without a zone are read, as `check` names it.
async fn zone(session: &mut Session<MySql>, configured: Option<&TimeZone>) -> Result<String, StoreError> {
    let select = sqlx::query_as::<_, (String, String)>("SELECT CAST(@@session.time_zone AS CHAR), CAST(@@system_time_zone AS CHAR)");
    let (zone, system) = session.run(|connection| select.fetch_one(connection)).await?;
    Ok(match configured {
        Some(zone) => format!("{zone} (database.time_zone)"),
        None if zone == "SYSTEM" => format!("SYSTEM ({system}) (the server's own)"),
        None => format!("{zone} (the server's own)"),
    })
}
