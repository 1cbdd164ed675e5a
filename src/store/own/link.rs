//! Our own tables hold texts and whole numbers only, so every dialect reads and writes them in one way.

use async_trait::async_trait;
use sqlx::{Row, SqlStr};

use crate::store::{
    StoreError,
    dialect::Dialect,
    driver::{Driver, Value},
    session::Session,
    statement::Statement,
};

#[derive(Debug)]
enum Field {
    Null,
    Integer(i64),
    Text(String),
}

/// The columns of one row, to be taken from left to right.
#[derive(Debug)]
pub(crate) struct Fields(std::vec::IntoIter<Field>);

impl Fields {
    /// A row that a test has made up.
    #[cfg(test)]
    pub(crate) fn of(values: impl IntoIterator<Item = Value>) -> Self {
        let field = |value| match value {
            Value::Integer(number) => number.map_or(Field::Null, Field::Integer),
            Value::Text(text) => Field::Text(text),
        };
        Self(values.into_iter().map(field).collect::<Vec<_>>().into_iter())
    }

    pub(crate) fn text(&mut self) -> Result<String, StoreError> {
        self.optional_text()?.ok_or_else(|| unexpected("NULL"))
    }

    pub(crate) fn optional_text(&mut self) -> Result<Option<String>, StoreError> {
        match self.0.next() {
            Some(Field::Text(text)) => Ok(Some(text)),
            Some(Field::Null) => Ok(None),
            Some(Field::Integer(_)) | None => Err(unexpected("no text")),
        }
    }

    pub(crate) fn integer(&mut self) -> Result<i64, StoreError> {
        self.optional_integer()?.ok_or_else(|| unexpected("NULL"))
    }

    pub(crate) fn optional_integer(&mut self) -> Result<Option<i64>, StoreError> {
        match self.0.next() {
            Some(Field::Integer(number)) => Ok(Some(number)),
            Some(Field::Null) => Ok(None),
            Some(Field::Text(_)) | None => Err(unexpected("no number")),
        }
    }
}

pub(crate) fn unexpected(what: &str) -> StoreError {
    StoreError::Rejected(format!("the order_closer tables hold {what} where order-closer never writes it"))
}

/// A connection that runs statements on our own tables.
#[async_trait]
pub(crate) trait Link: Send {
    async fn fetch(&mut self, statement: &Statement, values: &[Value]) -> Result<Vec<Fields>, StoreError>;

    /// Returns how many rows were changed.
    async fn change(&mut self, statement: &Statement, values: &[Value]) -> Result<u64, StoreError>;

    /// Runs statements without parameters, one after the other.
    async fn script(&mut self, sql: SqlStr) -> Result<(), StoreError>;
}

/// A transaction on our own tables.
#[async_trait]
pub(crate) trait Work: Send {
    fn link(&mut self) -> &mut dyn Link;
    async fn commit(self: Box<Self>) -> Result<(), StoreError>;
    async fn rollback(self: Box<Self>);
}

/// A [`Session`] in a transaction.
#[derive(Debug)]
pub(crate) struct Open<D: Dialect>(pub(crate) Session<D>);

/// Ends a transaction as its work ended.
pub(crate) async fn finish<T>(work: Box<dyn Work>, result: Result<T, StoreError>) -> Result<T, StoreError> {
    match result {
        Ok(done) => work.commit().await.map(|()| done),
        Err(error) => {
            work.rollback().await;
            Err(error)
        }
    }
}

#[async_trait]
impl<D: Dialect> Link for Session<D> {
    async fn fetch(&mut self, statement: &Statement, values: &[Value]) -> Result<Vec<Fields>, StoreError> {
        let rows = self.read(statement, values).await?;
        rows.iter().map(fields::<D::Driver>).collect()
    }

    async fn change(&mut self, statement: &Statement, values: &[Value]) -> Result<u64, StoreError> {
        self.write(statement, values).await
    }

    async fn script(&mut self, sql: SqlStr) -> Result<(), StoreError> {
        self.execute(sql).await.map(drop)
    }
}

fn fields<D: Driver>(row: &D::Row) -> Result<Fields, StoreError> {
    let field = |at| {
        // The driver knows which columns are numbers.
        Ok(match D::number(row, at) {
            Ok(number) => number.map_or(Field::Null, Field::Integer),
            Err(_) => D::text(row, at).map_err(|error| unexpected(&error.to_string()))?.map_or(Field::Null, Field::Text),
        })
    };
    (0..row.len()).map(field).collect::<Result<Vec<_>, _>>().map(|fields| Fields(fields.into_iter()))
}

#[async_trait]
impl<D: Dialect> Work for Open<D> {
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
