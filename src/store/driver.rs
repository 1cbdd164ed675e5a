//! What the store asks of a driver, without the bounds that the driver's own generics would repeat at each use.

use futures::future::BoxFuture;
use sqlx::{Arguments, Database, Executor, Row, SqlStr};

/// What is bound to a parameter.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Text(String),
    Integer(Option<i64>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Integer(Some(number))
    }
}

impl From<Option<i64>> for Value {
    fn from(number: Option<i64>) -> Self {
        Self::Integer(number)
    }
}

type Result<T> = std::result::Result<T, sqlx::Error>;

/// A database's driver.
pub(super) trait Driver: Database {
    /// Runs a statement and reads its rows; one that is `lasting` is worth a place in the driver's cache.
    fn fetch(
        connection: &mut Self::Connection,
        sql: SqlStr,
        arguments: Self::Arguments,
        lasting: bool,
    ) -> BoxFuture<'_, Result<Vec<Self::Row>>>;

    /// Runs a statement; returns how many rows it changed.
    fn change(connection: &mut Self::Connection, sql: SqlStr, arguments: Self::Arguments, lasting: bool) -> BoxFuture<'_, Result<u64>>;

    /// Runs statements without parameters, in one trip, and reads the rows of all.
    fn script(connection: &mut Self::Connection, sql: SqlStr) -> BoxFuture<'_, Result<Vec<Self::Row>>>;

    /// Binds one more value.
    fn bind(arguments: &mut Self::Arguments, value: &Value) -> Result<()>;

    /// A column that holds text.
    fn text(row: &Self::Row, at: usize) -> Result<Option<String>>;

    /// The bytes of a column that holds text, whatever they are.
    fn bytes(row: &Self::Row, at: usize) -> Result<Option<Vec<u8>>>;

    /// A column that holds a whole number.
    fn number(row: &Self::Row, at: usize) -> Result<Option<i64>>;
}

// Generic code would have to repeat a page of bounds at each use.
macro_rules! drivers {
    ($($driver:ty),*) => {$(
        impl Driver for $driver {
            fn fetch(connection: &mut Self::Connection, sql: SqlStr, arguments: Self::Arguments, lasting: bool) -> BoxFuture<'_, Result<Vec<Self::Row>>> {
                Box::pin(sqlx::query_with(sql, arguments).persistent(lasting).fetch_all(connection))
            }

            fn change(connection: &mut Self::Connection, sql: SqlStr, arguments: Self::Arguments, lasting: bool) -> BoxFuture<'_, Result<u64>> {
                let statement = sqlx::query_with(sql, arguments).persistent(lasting);
                Box::pin(async move { Ok(statement.execute(connection).await?.rows_affected()) })
            }

            fn script(connection: &mut Self::Connection, sql: SqlStr) -> BoxFuture<'_, Result<Vec<Self::Row>>> {
                connection.fetch_all(sqlx::raw_sql(sql))
            }

            fn bind(arguments: &mut Self::Arguments, value: &Value) -> Result<()> {
                match value {
                    Value::Text(text) => arguments.add(text.as_str()),
                    Value::Integer(number) => arguments.add(*number),
                }
                .map_err(sqlx::Error::Encode)
            }

            fn text(row: &Self::Row, at: usize) -> Result<Option<String>> {
                row.try_get(at)
            }

            fn bytes(row: &Self::Row, at: usize) -> Result<Option<Vec<u8>>> {
                row.try_get_unchecked(at)
            }

            fn number(row: &Self::Row, at: usize) -> Result<Option<i64>> {
                row.try_get(at)
            }
        }
    )*};
}
drivers!(sqlx::Postgres, sqlx::MySql, sqlx::Sqlite);

/// The columns of a row, to be taken from left to right.
pub(super) struct Columns<'r, D: Driver> {
    row: &'r D::Row,
    at: usize,
}

impl<'r, D: Driver> Columns<'r, D> {
    pub(super) fn of(row: &'r D::Row) -> Self {
        Self { row, at: 0 }
    }

    fn next(&mut self) -> usize {
        self.at += 1;
        self.at - 1
    }

    pub(super) fn optional_text(&mut self) -> Result<Option<String>> {
        D::text(self.row, self.next())
    }

    pub(super) fn bytes(&mut self) -> Result<Option<Vec<u8>>> {
        D::bytes(self.row, self.next())
    }

    pub(super) fn text(&mut self) -> Result<String> {
        self.optional_text()?.ok_or_else(|| self.null())
    }

    pub(super) fn optional_number(&mut self) -> Result<Option<i64>> {
        D::number(self.row, self.next())
    }

    pub(super) fn number(&mut self) -> Result<i64> {
        self.optional_number()?.ok_or_else(|| self.null())
    }

    fn null(&self) -> sqlx::Error {
        sqlx::Error::Decode(format!("column {} is NULL", self.at).into())
    }
}
