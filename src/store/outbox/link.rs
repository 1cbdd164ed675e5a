//! Our own tables hold texts and whole numbers only, so every dialect reads and writes them in one way.

use async_trait::async_trait;
use sqlx::{Arguments, Database, Row, SqlStr};

use crate::store::{StoreError, outbox::words::Statement, session::Session};

/// What is bound to a parameter.
#[derive(Debug, Clone)]
pub(in crate::store) enum Value {
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

#[derive(Debug)]
enum Field {
    Null,
    Integer(i64),
    Text(String),
}

/// The columns of one row, to be taken from left to right.
#[derive(Debug)]
pub(in crate::store) struct Fields(std::vec::IntoIter<Field>);

impl Fields {
    pub(super) fn text(&mut self) -> Result<String, StoreError> {
        self.optional_text()?.ok_or_else(|| unexpected("NULL"))
    }

    pub(super) fn optional_text(&mut self) -> Result<Option<String>, StoreError> {
        match self.0.next() {
            Some(Field::Text(text)) => Ok(Some(text)),
            Some(Field::Null) => Ok(None),
            Some(Field::Integer(_)) | None => Err(unexpected("no text")),
        }
    }

    pub(super) fn integer(&mut self) -> Result<i64, StoreError> {
        self.optional_integer()?.ok_or_else(|| unexpected("NULL"))
    }

    pub(super) fn optional_integer(&mut self) -> Result<Option<i64>, StoreError> {
        match self.0.next() {
            Some(Field::Integer(number)) => Ok(Some(number)),
            Some(Field::Null) => Ok(None),
            Some(Field::Text(_)) | None => Err(unexpected("no number")),
        }
    }
}

pub(super) fn unexpected(what: &str) -> StoreError {
    StoreError::Rejected(format!("the order_closer tables hold {what} where order-closer never writes it"))
}

/// A connection that runs statements on our own tables.
#[async_trait]
pub(in crate::store) trait Link: Send {
    async fn fetch(&mut self, statement: &Statement, values: &[Value]) -> Result<Vec<Fields>, StoreError>;

    /// Returns how many rows were changed.
    async fn change(&mut self, statement: &Statement, values: &[Value]) -> Result<u64, StoreError>;

    /// Runs statements without parameters, one after the other.
    async fn script(&mut self, sql: SqlStr) -> Result<(), StoreError>;
}

/// A transaction on our own tables.
#[async_trait]
pub(in crate::store) trait Work: Send {
    fn link(&mut self) -> &mut dyn Link;
    async fn commit(self: Box<Self>) -> Result<(), StoreError>;
    async fn rollback(self: Box<Self>);
}

/// A [`Session`] in a transaction.
#[derive(Debug)]
pub(in crate::store) struct Open<DB: Database>(pub(in crate::store) Session<DB>);

/// Ends a transaction as its work ended.
pub(super) async fn finish<T>(work: Box<dyn Work>, result: Result<T, StoreError>) -> Result<T, StoreError> {
    match result {
        Ok(done) => work.commit().await.map(|()| done),
        Err(error) => {
            work.rollback().await;
            Err(error)
        }
    }
}

// Generic code would have to repeat a page of bounds at each use.
macro_rules! links {
    ($($driver:ty),*) => {$(
        #[async_trait]
        impl Link for Session<$driver> {
            async fn fetch(&mut self, statement: &Statement, values: &[Value]) -> Result<Vec<Fields>, StoreError> {
                let arguments = arguments::<$driver>(statement, values, |arguments, value| match value {
                    Value::Text(text) => arguments.add(text.as_str()),
                    Value::Integer(number) => arguments.add(*number),
                })?;
                let select = sqlx::query_with(statement.sql(), arguments).persistent(statement.lasting);
                let rows = self.run(|connection| select.fetch_all(connection)).await?;
                rows.iter().map(|row| (0..row.len()).map(|at| {
                    // The driver knows which columns are numbers.
                    Ok(match row.try_get::<Option<i64>, _>(at) {
                        Ok(number) => number.map_or(Field::Null, Field::Integer),
                        Err(_) => Field::Text(row.try_get::<String, _>(at).map_err(|error| unexpected(&error.to_string()))?),
                    })
                }).collect::<Result<Vec<_>, _>>().map(|fields| Fields(fields.into_iter()))).collect()
            }

            async fn change(&mut self, statement: &Statement, values: &[Value]) -> Result<u64, StoreError> {
                let arguments = arguments::<$driver>(statement, values, |arguments, value| match value {
                    Value::Text(text) => arguments.add(text.as_str()),
                    Value::Integer(number) => arguments.add(*number),
                })?;
                let change = sqlx::query_with(statement.sql(), arguments).persistent(statement.lasting);
                Ok(self.run(|connection| change.execute(connection)).await?.rows_affected())
            }

            async fn script(&mut self, sql: SqlStr) -> Result<(), StoreError> {
                self.execute(sql).await
            }
        }

        #[async_trait]
        impl Work for Open<$driver> {
            fn link(&mut self) -> &mut dyn Link {
                &mut self.0
            }

            async fn commit(self: Box<Self>) -> Result<(), StoreError> {
                self.0.commit().await
            }

            async fn rollback(self: Box<Self>) {
                self.0.rollback().await;
            }
        }
    )*};
}
links!(sqlx::Postgres, sqlx::MySql, sqlx::Sqlite);

fn arguments<DB: Database>(
    statement: &Statement,
    values: &[Value],
    add: impl Fn(&mut DB::Arguments, &Value) -> Result<(), sqlx::error::BoxDynError>,
) -> Result<DB::Arguments, StoreError> {
    let mut arguments = DB::Arguments::default();
    for value in statement.in_order(values) {
        add(&mut arguments, value).map_err(|error| StoreError::Rejected(error.to_string()))?;
    }
    Ok(arguments)
}
