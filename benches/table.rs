//! Tables in Markdown.

use std::fmt;

/// A table; its first column is text, the others are figures.
#[derive(Debug, Clone)]
pub struct Table {
    headers: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// One without rows.
    pub fn new<const COLUMNS: usize>(headers: [&str; COLUMNS]) -> Self {
        Self { headers: headers.map(str::to_owned).into(), rows: Vec::new() }
    }

    /// One more row.
    pub fn row<const COLUMNS: usize>(&mut self, cells: [String; COLUMNS]) {
        assert_eq!(COLUMNS, self.headers.len(), "a cell for each column");
        self.rows.push(cells.into());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = (0..self.headers.len()).map(|at| if at == 0 { "---".to_owned() } else { "--:".to_owned() }).collect();
        for cells in [&self.headers, &rule].into_iter().chain(&self.rows) {
            writeln!(f, "| {} |", cells.join(" | "))?;
        }
        Ok(())
    }
}

/// A whole number with a comma for every three digits.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let parts: Vec<&str> = digits.as_bytes().rchunks(3).rev().filter_map(|part| std::str::from_utf8(part).ok()).collect();
    parts.join(",")
}

/// The whole part of a figure, grouped.
pub fn rounded(figure: f64) -> String {
    grouped(figure.round().max(0.0) as u64)
}
