//! What is measured, a scenario in each file.

/// How fast a flash sale's orders are closed, beside bare SQL.
pub mod burst;
