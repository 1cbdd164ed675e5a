//! What a table of one's own is asked: its columns, its statuses, its time limit.

use crate::{
    cli::{
        Exit, Failure,
        init::{
            Arguments,
            asker::{Asker, Choice, Question},
            candidates::{self, StatusValue, column_choice, table_choice},
            guesses, keys,
        },
        output::print,
    },
    config::{ColumnName, Config, Span, TableName},
    order::did_you_mean,
    redis::Commands,
    store::{COUNTED, ColumnKind, Survey, SurveyedColumn, SurveyedTable},
};

/// How many of the newest orders are looked at.
pub(super) const NEWEST: u32 = 200;

/// What is proposed where the column holds the time of creation and nothing else is known.
const TIME_LIMIT: &str = "30m";

/// Seconds since 1970 from 2001 to 2100.
const SECONDS: std::ops::Range<i64> = 1_000_000_000..4_102_444_800;

/// How an orders table is laid out. Texts are as the configuration has them.
#[derive(Debug, Clone)]
pub(super) struct Mapping {
    pub(super) table: SurveyedTable,
    pub(super) id: SurveyedColumn,
    pub(super) status: SurveyedColumn,
    pub(super) values: Vec<StatusValue>,
    /// As TOML has them.
    pub(super) unpaid: Vec<String>,
    pub(super) closed: String,
    pub(super) deadline: SurveyedColumn,
    pub(super) unit: Option<&'static str>,
    pub(super) plus: Option<Span>,
    pub(super) filter: Option<String>,
    pub(super) key_prefix: String,
    /// Whether keys of orders were seen with it.
    pub(super) prefix_was_seen: bool,
    pub(super) time_zone: Option<String>,
    /// The ids of the newest orders.
    pub(super) newest: Vec<String>,
}

impl Mapping {
    /// Asks for all but the time limit and the zone, which need rows that are read by this.
    pub(super) async fn ask(asker: &Asker, arguments: &Arguments, survey: &Survey, config: &Config) -> Result<Self, Failure> {
        let table = table(asker, arguments, &survey.tables)?;
        let about = table_choice(table).about;
        let about = if about.is_empty() { about } else { format!(" ({about})") };
        print(&format!("The orders are in {}{about}.", table.name));
        let redis = keys::connect(&config.redis).await;
        let (id, newest, seen) = id(asker, arguments, survey, table, redis.as_ref()).await?;
        let status = column(
            asker,
            "--status",
            "the column with an order's status",
            arguments.status.as_deref(),
            table,
            &candidates::statuses(table),
        )?;
        let counts = survey.counts(table, &status).await.map_err(Failure::from)?;
        let values = candidates::values(&status, &counts);
        show(table, &status, &values);
        let unpaid = unpaid(asker, arguments, &status, &values)?;
        let closed = closed(asker, arguments, &status, &values, &unpaid)?;
        let what = "the column with the payment deadline, or with the time of creation";
        let deadline = column(asker, "--deadline", what, arguments.deadline.as_deref(), table, &candidates::deadlines(table))?;
        let unit = unit(arguments, survey, table, &deadline).await?;
        let filter = match arguments.filter.as_deref() {
            Some("none") => None,
            Some(filter) => Some(filter.to_owned()),
            None => candidates::not_deleted(table),
        };
        let prefix_was_seen = seen.is_some() && arguments.key_prefix.is_none();
        let key_prefix = arguments.key_prefix.clone().or(seen).unwrap_or_else(|| "order_".into());
        Ok(Self {
            table: table.clone(),
            id,
            status,
            values,
            unpaid,
            closed,
            deadline,
            unit,
            plus: arguments.plus,
            filter,
            key_prefix,
            prefix_was_seen,
            time_zone: arguments.time_zone.clone(),
            newest,
        })
    }

    /// Whether a time limit is to be added to the column.
    pub(super) fn holds_creation(&self) -> bool {
        candidates::is_created(&self.deadline)
    }

    /// Asks how long an order may wait for its payment; `seen` is how long keys live.
    pub(super) fn ask_time_limit(&mut self, asker: &Asker, seen: Option<Span>) -> Result<(), Failure> {
        if self.plus.is_some() || !self.holds_creation() {
            return Ok(());
        }
        let proposal = seen.map_or_else(
            || Choice::new(TIME_LIMIT, format!("for half an hour after {}", self.deadline.name)),
            |seen| Choice::new(seen.to_string().replace(' ', ""), format!("as the orders' keys have it, after {}", self.deadline.name)),
        );
        let question = Question {
            flag: "--plus",
            what: "how long an order may wait for its payment",
            default: Some(&proposal.value),
            proposals: std::slice::from_ref(&proposal),
            otherwise: None,
        };
        let text = asker.text(&question, |text| text.parse::<Span>().map(drop).map_err(|what| format!("{text:?} {what}")))?;
        self.plus = text.parse().ok();
        Ok(())
    }
}

/// One of the tables, by its name.
fn table<'s>(asker: &Asker, arguments: &Arguments, tables: &'s [SurveyedTable]) -> Result<&'s SurveyedTable, Failure> {
    let find = |name: &str| tables.iter().find(|table| table.name.to_string() == name);
    if let Some(name) = &arguments.table {
        return find(name)
            .ok_or_else(|| {
                let names: Vec<String> = tables.iter().map(|table| table.name.to_string()).collect();
                let meant = did_you_mean(name, names.iter().map(String::as_str));
                Failure::new(Exit::Usage, format!("--table {name}: this database has no such table{meant}"))
            })
            .and_then(|table| usable("--table", name, TableName::try_from(name.clone())).map(|()| table));
    }
    if tables.is_empty() {
        let message =
            "this database has no table that this user may see; name another database in its URL, or let the user read the orders";
        return Err(Failure::new(Exit::Usage, message));
    }
    let likely = candidates::tables(tables);
    let others = tables.iter().filter(|table| !likely.iter().any(|known| known.name == table.name));
    let [likely_ones, others]: [Vec<Choice>; 2] =
        [likely.iter().map(|table| table_choice(table)).collect(), others.map(table_choice).collect()];
    let name = asker.choose("--table", "the table with the orders", &likely_ones, &others, candidates::is_clear(&likely))?;
    usable("--table", &name, TableName::try_from(name.clone()))?;
    find(&name).ok_or_else(|| Failure::new(Exit::Software, format!("{name} was chosen, and is no table")))
}

/// Refuses a name that the database has and the configuration can't.
fn usable<T>(flag: &str, name: &str, parsed: Result<T, String>) -> Result<(), Failure> {
    let refused = |_| {
        let reason =
            "a name with a quote, a semicolon, a control character or, in a column, a dot can't stand in the configuration; rename it";
        Failure::new(Exit::Usage, format!("{flag} {name}: {reason}"))
    };
    parsed.map(drop).map_err(refused)
}

/// One of the table's columns: by its name, or of those that may be meant.
fn column(
    asker: &Asker,
    flag: &str,
    what: &str,
    given: Option<&str>,
    table: &SurveyedTable,
    candidates: &[&SurveyedColumn],
) -> Result<SurveyedColumn, Failure> {
    let find = |name: &str| table.columns.iter().find(|column| column.name == name).cloned();
    if let Some(name) = given {
        return find(name)
            .ok_or_else(|| {
                let meant = did_you_mean(name, table.columns.iter().map(|column| column.name.as_str()));
                Failure::new(Exit::Usage, format!("{flag} {name}: {} has no such column{meant}", table.name))
            })
            .and_then(|column| usable(flag, name, ColumnName::try_from(name.to_owned())).map(|()| column));
    }
    let others = table.columns.iter().filter(|column| !candidates.iter().any(|known| known.name == column.name));
    let [likely, others]: [Vec<Choice>; 2] =
        [candidates.iter().map(|column| column_choice(column)).collect(), others.map(column_choice).collect()];
    let name = asker.choose(flag, what, &likely, &others, !likely.is_empty())?;
    usable(flag, &name, ColumnName::try_from(name.clone()))?;
    find(&name).ok_or_else(|| Failure::new(Exit::Software, format!("{name} was chosen, and is no column")))
}

/// The id: the column whose values stand in keys, if there are any. With the newest ids, and the keys' prefix.
async fn id(
    asker: &Asker,
    arguments: &Arguments,
    survey: &Survey,
    table: &SurveyedTable,
    redis: Option<&Commands>,
) -> Result<(SurveyedColumn, Vec<String>, Option<String>), Failure> {
    let mut found = candidates::ids(table);
    if let Some(named) = arguments.id.as_deref().and_then(|name| table.columns.iter().find(|column| column.name == name)) {
        found = vec![named];
    }
    let asked = found.clone();
    let rows = if asked.is_empty() { Vec::new() } else { survey.newest(table, &asked, NEWEST).await.map_err(Failure::from)? };
    let ids: Vec<Vec<String>> = (0..asked.len()).map(|at| rows.iter().filter_map(|row| row[at].clone()).collect()).collect();
    let seen = match redis {
        Some(redis) => keys::prefix(redis, &ids).await,
        None => None,
    };
    if let Some((at, _)) = &seen {
        let column = found.remove(*at);
        found.insert(0, column);
    }
    let id = column(asker, "--id", "the column with the id that stands in the keys", arguments.id.as_deref(), table, &found)?;
    let at = asked.iter().position(|column| column.name == id.name);
    let prefix = seen.filter(|(seen, _)| Some(*seen) == at).map(|(_, prefix)| prefix);
    Ok((id, at.map(|at| ids[at].clone()).unwrap_or_default(), prefix))
}

/// Prints the statuses with their counts.
fn show(table: &SurveyedTable, status: &SurveyedColumn, values: &[StatusValue]) {
    if values.is_empty() {
        print(&format!("{} has no orders yet, and {} ({}) says nothing of its statuses.", table.name, status.name, status.declared));
        return;
    }
    let counted: u64 = values.iter().map(|value| value.orders).sum();
    let of = if counted >= u64::from(COUNTED) { format!("of the newest {counted} orders") } else { "of all orders".into() };
    print(&format!("{} ({}), {of}:", status.name, status.declared));
    let width = values.iter().map(|value| value.value.chars().count()).max().unwrap_or(0).max(20);
    for value in values {
        print(format!("  {:<width$} {:>8}  {}", value.value, value.orders, value.label).trim_end());
    }
}

fn choices(values: &[StatusValue], likely: &[&str]) -> Vec<Choice> {
    let about = |value: &StatusValue| match (value.orders, value.label.as_str()) {
        (0, label) => label.to_owned(),
        (orders, "") => format!("({orders} orders)"),
        (orders, label) => format!("{label} ({orders} orders)"),
    };
    let place = |value: &&StatusValue| likely.iter().position(|likely| *likely == value.value).unwrap_or(usize::MAX);
    let mut values: Vec<&StatusValue> = values.iter().collect();
    values.sort_by_key(place);
    values.into_iter().map(|value| Choice::new(&value.value, about(value))).collect()
}

fn pairs(values: &[StatusValue]) -> impl Iterator<Item = (&str, &str)> {
    values.iter().map(|value| (value.value.as_str(), value.label.as_str()))
}

fn unpaid(asker: &Asker, arguments: &Arguments, status: &SurveyedColumn, values: &[StatusValue]) -> Result<Vec<String>, Failure> {
    let given = match &arguments.unpaid {
        Some(given) => given.clone(),
        None => {
            let likely = guesses::unpaid(pairs(values));
            let proposals = choices(values, &likely);
            let what = "the status of an order that waits for its payment; several with commas";
            let question = Question { flag: "--unpaid", what, proposals: &proposals, default: likely.first().copied(), otherwise: None };
            let valid = |text: &str| text.split(',').try_for_each(|one| literal(status, one).map(drop));
            asker.text(&question, valid)?.split(',').map(str::to_owned).collect()
        }
    };
    given.iter().map(|one| literal(status, one).map_err(|what| Failure::new(Exit::Usage, format!("--unpaid {what}")))).collect()
}

fn closed(
    asker: &Asker,
    arguments: &Arguments,
    status: &SurveyedColumn,
    values: &[StatusValue],
    unpaid: &[String],
) -> Result<String, Failure> {
    let given = match &arguments.closed {
        Some(given) => given.clone(),
        None => {
            let is_other = |value: &&StatusValue| literal(status, &value.value).is_ok_and(|text| !unpaid.contains(&text));
            let others: Vec<StatusValue> = values.iter().filter(is_other).cloned().collect();
            let likely = guesses::closed(pairs(&others));
            let proposals = choices(&others, &likely);
            let what = "the status that closing sets";
            let question = Question { flag: "--closed", what, proposals: &proposals, default: likely.first().copied(), otherwise: None };
            let is_unpaid = |text: &str| format!("{text:?} is one of the unpaid statuses; an order that is closed waits no more");
            let valid = |text: &str| if unpaid.contains(&literal(status, text)?) { Err(is_unpaid(text)) } else { Ok(()) };
            asker.text(&question, valid)?
        }
    };
    let closed = literal(status, &given).map_err(|what| Failure::new(Exit::Usage, format!("--closed {what}")))?;
    let is_known = values.is_empty() || values.iter().any(|value| literal(status, &value.value).is_ok_and(|text| text == closed));
    if !is_known {
        let meant = did_you_mean(&given, values.iter().map(|value| value.value.as_str()));
        print(&format!("No order has the status {given} yet{meant}"));
    }
    if unpaid.contains(&closed) {
        return Err(Failure::new(
            Exit::Usage,
            format!("--closed {given} is one of the unpaid statuses; an order that is closed waits no more"),
        ));
    }
    Ok(closed)
}

/// A status as TOML has it for this column.
fn literal(status: &SurveyedColumn, text: &str) -> Result<String, String> {
    let text = text.trim();
    match &status.kind {
        ColumnKind::Integer => text
            .parse::<i64>()
            .map(|number| number.to_string())
            .map_err(|_| format!("{text:?}: the column {} is {}, and its statuses are whole numbers", status.name, status.declared)),
        ColumnKind::Enumeration(labels) if !labels.iter().any(|label| label == text) => {
            let meant = did_you_mean(text, labels.iter().map(String::as_str));
            Err(format!("{text:?}: the column {} has {}{meant}", status.name, labels.join(", ")))
        }
        _ if text.is_empty() => Err("\"\": a status is needed".into()),
        &ColumnKind::Bytes { length, fixed } => bytes(status, length, fixed, text),
        ColumnKind::Enumeration(_)
        | ColumnKind::Text
        | ColumnKind::Uuid
        | ColumnKind::Time { .. }
        | ColumnKind::Boolean
        | ColumnKind::Other => Ok(toml::Value::from(text).to_string()),
    }
}

/// The same of bytes: as `HEX()` prints them, after 0x.
fn bytes(status: &SurveyedColumn, length: usize, fixed: bool, text: &str) -> Result<String, String> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or_default();
    let is_hex = !digits.is_empty() && digits.len().is_multiple_of(2) && digits.chars().all(|digit| digit.is_ascii_hexdigit());
    if is_hex && (digits.len() == 2 * length || (!fixed && digits.len() < 2 * length)) {
        return Ok(toml::Value::from(format!("0x{}", digits.to_ascii_lowercase())).to_string());
    }
    let wanted = format!("0x and {}{} hex digits, as HEX() shows them", if fixed { "" } else { "at most " }, 2 * length);
    Err(format!("{text:?}: the column {} is {}, and its statuses are written {wanted}", status.name, status.declared))
}

/// Whether a column of numbers counts seconds or milliseconds.
async fn unit(
    arguments: &Arguments,
    survey: &Survey,
    table: &SurveyedTable,
    deadline: &SurveyedColumn,
) -> Result<Option<&'static str>, Failure> {
    match arguments.unit.as_deref() {
        Some("s") => return Ok(Some("s")),
        Some(_) => return Ok(Some("ms")),
        None if deadline.kind != ColumnKind::Integer => return Ok(None),
        None => {}
    }
    let rows = survey.newest(table, &[deadline], NEWEST).await.map_err(Failure::from)?;
    let numbers: Vec<i64> = rows.iter().filter_map(|row| row[0].as_ref()?.parse().ok()).filter(|number| *number > 0).collect();
    let looks_like =
        |unit: i64| !numbers.is_empty() && numbers.iter().filter(|number| SECONDS.contains(&(*number / unit))).count() * 2 > numbers.len();
    match () {
        () if looks_like(1) => Ok(Some("s")),
        () if looks_like(1_000) => Ok(Some("ms")),
        () => Err(Failure::new(
            Exit::Usage,
            format!(
                "--unit is missing: {} is {}, and its values tell neither seconds nor milliseconds since 1970; --unit s, or --unit ms",
                deadline.name, deadline.declared
            ),
        )),
    }
}
