//! What a database holds, for whoever does not know yet which of its tables has the orders.
//!
//! Nothing is changed: each read is a transaction that can't write, reads a few thousand rows at the most, and ends after a
//! limit of time. All values are read as text.

use std::{fmt, marker::PhantomData, time::Duration};

use async_trait::async_trait;
use sqlx::SqlSafeStr;

use crate::{
    config::{DatabaseUrl, TableName},
    store::{
        OpenError, Settings, StoreError,
        connections::Connections,
        dialect::{Dialect, sorted},
        driver::Columns,
        mysql::MySql,
        postgres::Postgres,
        sqlite::Sqlite,
        statement::sql,
        table::way,
    },
};

/// How many of a table's newest rows are counted.
pub const COUNTED: u32 = 10_000;

/// How long one read may take.
const LIMIT: Duration = Duration::from_secs(3);

/// A database, open for reading.
#[derive(Debug)]
pub struct Survey {
    reader: Box<dyn Reader>,
    words: &'static SurveyWords,
    /// Its tables and views, without those of the database itself.
    pub tables: Vec<SurveyedTable>,
}

/// A table or view.
#[derive(Debug, Clone)]
pub struct SurveyedTable {
    /// Its name, with the schema where a bare name would not find it.
    pub name: TableName,
    /// What its author says of it.
    pub comment: String,
    /// About how many rows it has, where the catalogue knows.
    pub rows: Option<u64>,
    /// Its columns, in their order.
    pub columns: Vec<SurveyedColumn>,
}

/// A column.
#[derive(Debug, Clone)]
pub struct SurveyedColumn {
    /// Its name.
    pub name: String,
    /// Its type, as SQL declares it.
    pub declared: String,
    /// What it can hold.
    pub kind: ColumnKind,
    /// What its author says of it.
    pub comment: String,
    /// Whether it is the whole primary key.
    pub is_primary: bool,
    /// Whether it has a unique index of its own, the primary key included.
    pub is_unique: bool,
}

/// What a column can hold, as far as orders care.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ColumnKind {
    /// Whole numbers.
    Integer,
    /// Text.
    Text,
    /// One of these labels.
    Enumeration(Vec<String>),
    /// UUIDs.
    Uuid,
    /// Bytes.
    Bytes {
        /// How many there can be.
        length: usize,
        /// Whether there are always that many.
        fixed: bool,
    },
    /// A moment, or local time without a zone.
    Time {
        /// Whether it is a moment.
        has_zone: bool,
    },
    /// True or false.
    Boolean,
    /// Anything else.
    Other,
}

/// How a dialect is asked.
#[derive(Debug)]
pub(super) struct SurveyWords {
    /// Begins a transaction that can't write.
    pub(super) begin: &'static str,
    /// Out, for each column of each table, as texts: schema (empty where a bare name finds the table), table, its comment,
    /// its number of rows, column, type as declared, type's name, labels (one on each line), comment, `primary` (also for
    /// a part of the key) or `unique` or nothing. Locks nothing.
    pub(super) columns: &'static str,
    /// The character that quotes a name.
    pub(super) quote: char,
    /// The type to which a value is cast to be read.
    pub(super) text: &'static str,
    /// A column of bytes, by its quoted name, as the text of a status, where the dialect has such columns.
    pub(super) status_of_bytes: fn(&str) -> String,
    /// The same as the text of an id.
    pub(super) id_of_bytes: fn(&str) -> String,
    /// What a column of this type can hold: the type's name, as declared, labels.
    pub(super) kind: fn(&str, &str, Vec<String>) -> ColumnKind,
}

/// Rows of text; `None` is NULL.
type Texts = Vec<Vec<Option<String>>>;

#[async_trait]
trait Reader: fmt::Debug + Send + Sync {
    async fn read(&self, sql: String, columns: usize) -> Result<Texts, StoreError>;

    async fn close(&self);
}

struct Reading<D: Dialect> {
    connections: Connections<D>,
    dialect: PhantomData<D>,
}

impl<D: Dialect> fmt::Debug for Reading<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.connections.fmt(f)
    }
}

#[async_trait]
impl<D: Dialect> Reader for Reading<D> {
    async fn read(&self, text: String, columns: usize) -> Result<Texts, StoreError> {
        let mut session = self.connections.read().await?;
        session.begin(D::SURVEY.begin.into_sql_str()).await?;
        let rows = session.execute(sql(text)).await?;
        session.rollback().await;
        let texts = |row| {
            let mut read = Columns::<D::Driver>::of(row);
            (0..columns).map(|_| read.optional_text()).collect::<Result<Vec<_>, _>>()
        };
        rows.iter().map(texts).collect::<Result<_, _>>().map_err(sorted::<D>)
    }

    async fn close(&self) {
        self.connections.close().await;
    }
}

impl Survey {
    /// Connects to the database of these settings, whose table may be anything, and reads its catalogue.
    ///
    /// # Errors
    /// As the database says, sorted; what rules this database out.
    pub async fn open(settings: Settings) -> Result<Self, OpenError> {
        let settings = settings.reading_within(LIMIT);
        let url = settings.database.url.clone();
        let opened = match url {
            DatabaseUrl::Postgres(_) => Self::of::<Postgres>(&settings).await,
            DatabaseUrl::MySql(_) => Self::of::<MySql>(&settings).await,
            DatabaseUrl::Sqlite(_) => Self::of::<Sqlite>(&settings).await,
        };
        opened.map_err(|error| match error {
            OpenError::Store(error) => error.of(&url).into(),
            OpenError::Misfit(_) | OpenError::Missing(_) | OpenError::Zone(_) => error,
        })
    }

    async fn of<D: Dialect>(settings: &Settings) -> Result<Self, OpenError> {
        let (_, connections) = way::<D>(settings).await?;
        connections.first().await.map_err(|error| D::refused(&settings.database, error))?;
        let reader: Box<dyn Reader> = Box::new(Reading { connections, dialect: PhantomData::<D> });
        let words = D::SURVEY;
        let rows = reader.read(words.columns.into(), 10).await?;
        Ok(Self { reader, words, tables: tables(rows, words) })
    }

    /// How many of the table's newest rows have each value of a column, the most frequent first.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn counts(&self, table: &SurveyedTable, column: &SurveyedColumn) -> Result<Vec<(Option<String>, u64)>, StoreError> {
        let newest = self.newest_of(table, &format!("{} AS v", self.value(column, self.words.status_of_bytes)), COUNTED);
        let count = format!("CAST(count(*) AS {})", self.words.text);
        // In: a table and a column. Out: values, as text, and how often each stands there. Locks nothing.
        let select = format!("SELECT newest.v, {count} FROM ({newest}) AS newest GROUP BY newest.v ORDER BY count(*) DESC, 1 LIMIT 30");
        let rows = self.reader.read(select, 2).await?;
        Ok(rows.into_iter().filter_map(|mut row| Some((row.swap_remove(0), row.pop()??.parse().ok()?))).collect())
    }

    /// These columns of the table's newest rows.
    ///
    /// # Errors
    /// As the database says, sorted.
    pub async fn newest(&self, table: &SurveyedTable, columns: &[&SurveyedColumn], limit: u32) -> Result<Texts, StoreError> {
        let values: Vec<String> = columns.iter().map(|column| self.value(column, self.words.id_of_bytes)).collect();
        self.reader.read(self.newest_of(table, &values.join(", "), limit), columns.len()).await
    }

    /// Closes its connections.
    pub async fn close(&self) {
        self.reader.close().await;
    }

    fn value(&self, column: &SurveyedColumn, of_bytes: fn(&str) -> String) -> String {
        let name = self.quoted(&column.name);
        let value = if matches!(column.kind, ColumnKind::Bytes { .. }) { of_bytes(&name) } else { name };
        format!("CAST({value} AS {})", self.words.text)
    }

    fn quoted(&self, name: &str) -> String {
        let quote = self.words.quote;
        format!("{quote}{}{quote}", name.replace(quote, &format!("{quote}{quote}")))
    }

    /// In: a table and columns. Out: these of the rows that were inserted last, by an index; without one of whichever come first.
    /// Locks nothing.
    fn newest_of(&self, table: &SurveyedTable, columns: &str, limit: u32) -> String {
        let schema = table.name.schema.as_ref().map_or_else(String::new, |schema| format!("{}.", self.quoted(schema)));
        let name = format!("{schema}{}", self.quoted(&table.name.name));
        let primary = table.columns.iter().find(|column| column.is_primary);
        let order = primary.map_or_else(String::new, |key| format!(" ORDER BY {} DESC", self.quoted(&key.name)));
        format!("SELECT {columns} FROM {name}{order} LIMIT {limit}")
    }
}

fn tables(rows: Texts, words: &SurveyWords) -> Vec<SurveyedTable> {
    let mut tables: Vec<SurveyedTable> = Vec::new();
    for row in rows {
        let mut texts = row.into_iter().map(Option::unwrap_or_default);
        let mut next = || texts.next().unwrap_or_default();
        let schema = Some(next()).filter(|schema| !schema.is_empty());
        let name = TableName::of(schema, next());
        let (comment, rows) = (next(), next().parse().ok());
        if tables.last().is_none_or(|last| last.name != name) {
            tables.push(SurveyedTable { name, comment, rows, columns: Vec::new() });
        }
        let (name, declared, base) = (next(), next(), next());
        let labels = next().lines().map(str::to_owned).collect();
        let (comment, key) = (next(), next());
        let kind = (words.kind)(&base.to_lowercase(), &declared, labels);
        let column = SurveyedColumn { name, declared, kind, comment, is_primary: key == "primary", is_unique: !key.is_empty() };
        if let Some(table) = tables.last_mut() {
            table.columns.push(column);
        }
    }
    // Of several columns none is the key alone.
    for table in &mut tables {
        if table.columns.iter().filter(|column| column.is_primary).count() > 1 {
            for column in table.columns.iter_mut().filter(|column| column.is_primary) {
                (column.is_primary, column.is_unique) = (false, false);
            }
        }
    }
    tables
}
