//! What the catalogue tells of a table that keeps orders from closing, though every statement is accepted.

use crate::config::Rule;

/// Why orders may never close, and what helps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    /// What it is about, in a word.
    pub name: &'static str,
    /// What stands in the way.
    pub what: String,
    /// What to do.
    pub fix: String,
}

/// A view with a condition, such as `WHERE status = 0`: what is closed through it is not to be seen any more, and a closure
/// that can't be seen is rolled back. `definition` is empty where this user may not read it.
pub(super) fn view(rule: &Rule, definition: &str) -> Option<Obstacle> {
    let has_condition = definition.split(|c: char| !c.is_alphanumeric()).any(|word| word.eq_ignore_ascii_case("where"));
    (has_condition || definition.is_empty()).then(|| Obstacle {
        name: "view",
        what: format!(
            "orders.table is the view {}; if its condition hides an order once {} is what orders.closed says, no closure can be confirmed, \
             and none is made",
            rule.table, rule.status
        ),
        fix: "write the table beneath the view in orders.table, and the view's condition in orders.filter".into(),
    })
}

/// A view in SQLite, which changes by INSTEAD OF triggers alone.
pub(super) fn sqlite_view(rule: &Rule) -> Obstacle {
    Obstacle {
        name: "view",
        what: format!(
            "orders.table is the view {}, which changes by INSTEAD OF triggers alone, and SQLite does not count what they change: \
             no closure can be confirmed, and none is made",
            rule.table
        ),
        fix: "write the table beneath the view in orders.table, and the view's condition in orders.filter".into(),
    }
}

/// Row security whose policies for SELECT and for UPDATE are not the same.
pub(super) fn policies(rule: &Rule) -> Obstacle {
    Obstacle {
        name: "policies",
        what: format!(
            "the policies of {} for SELECT and for UPDATE have different conditions: an order that this user may see and not change \
             looks as if another transaction held it, and is never closed",
            rule.table
        ),
        fix: "let the policies for SELECT and UPDATE have the same USING for this user, or ALTER ROLE ... BYPASSRLS".into(),
    }
}
