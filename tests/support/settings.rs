//! Configuration files for the daemon.

use std::path::Path;

use toml::{Table, Value};

/// Settings by their dotted keys.
#[derive(Debug, Clone, Default)]
pub struct Settings(Table);

impl Settings {
    /// None: all defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets one: `set("sweep.every", "200ms")`.
    #[must_use]
    pub fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        let mut table = &mut self.0;
        let mut parts = key.split('.').peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                table.insert(part.into(), value.into());
                break;
            }
            let inner = table.entry(part).or_insert_with(|| Value::Table(Table::new()));
            table = inner.as_table_mut().unwrap_or_else(|| panic!("{key}: {part} is not a table"));
        }
        self
    }

    /// Adds TOML text: `add("[orders]\ndeadline = { column = 'created', plus = '30m' }")`. Tables are merged, other values replaced.
    #[must_use]
    pub fn add(mut self, text: &str) -> Self {
        let more: Table = text.parse().unwrap_or_else(|error| panic!("{error}:\n{text}"));
        merge(&mut self.0, more);
        self
    }

    /// One more statement of `close.sql`, before the others.
    #[must_use]
    pub fn before_close_sql(mut self, statement: impl Into<Value>) -> Self {
        self.close_sql().insert(0, statement.into());
        self
    }

    /// One more statement of `close.sql`, after the others.
    #[must_use]
    pub fn after_close_sql(mut self, statement: impl Into<Value>) -> Self {
        self.close_sql().push(statement.into());
        self
    }

    fn close_sql(&mut self) -> &mut Vec<Value> {
        self.0.get_mut("close").and_then(|close| close.get_mut("sql")).and_then(Value::as_array_mut).expect("a list of statements")
    }

    /// All of them as TOML.
    pub fn toml(&self) -> String {
        self.0.to_string()
    }

    /// Writes them to a file.
    pub fn write(&self, file: &Path) {
        std::fs::write(file, self.toml()).expect("a configuration file can be written");
    }
}

fn merge(table: &mut Table, more: Table) {
    for (key, value) in more {
        match (table.get_mut(&key), value) {
            // A deadline is replaced as a whole: its keys belong together.
            (Some(Value::Table(inner)), Value::Table(more)) if key != "deadline" => merge(inner, more),
            (_, value) => {
                table.insert(key, value);
            }
        }
    }
}
