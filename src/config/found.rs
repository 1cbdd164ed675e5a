//! Tables whose names the configuration gives by a pattern, `t_order_*`: those that the catalogue of their database had when it was
//! read last. More may come while the daemon runs, for another month, say.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

/// What stands for the numbers in the names of tables.
pub(super) const ANY: char = '*';

/// Where tables are looked for, and how they are called.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pattern {
    /// The name of the database, where databases have names.
    pub database: Option<String>,
    /// The schema (MySQL: the database); that of a bare name when absent.
    pub schema: Option<String>,
    /// The name, with an asterisk in it.
    pub name: String,
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        [&self.database, &self.schema].into_iter().flatten().try_for_each(|outer| write!(f, "{outer}."))?;
        f.write_str(&self.name)
    }
}

impl Pattern {
    /// Where in a name the part is that the asterisk stands for, if it fits: digits, and `_` or `-` between them. A table that
    /// holds a copy of another, `t_order_202611_old`, is none of them, and neither is `t_order_item_0`.
    #[must_use]
    pub fn fit(&self, name: &str) -> Option<(usize, usize)> {
        let (before, after) = self.name.split_once(ANY)?;
        let part = name.strip_prefix(before)?.strip_suffix(after)?;
        let is_digit = |c: char| c.is_ascii_digit();
        let fits = part.starts_with(is_digit) && part.ends_with(is_digit) && part.chars().all(|c| is_digit(c) || c == '_' || c == '-');
        fits.then_some((before.len(), name.len() - after.len()))
    }

    /// What names that fit are like, in SQL, where `!` escapes.
    #[must_use]
    pub fn like(&self) -> String {
        let escaped = self.name.chars().flat_map(|c| match c {
            ANY => vec!['%'],
            '%' | '_' | '!' => vec!['!', c],
            c => vec![c],
        });
        escaped.collect()
    }
}

/// What was found, for all copies of a configuration.
#[derive(Debug, Clone, Default)]
pub struct Found(Arc<RwLock<BTreeMap<Pattern, Vec<String>>>>);

impl Found {
    /// Adds tables that fit a pattern; returns those that are new. Once known they stay known: one that is gone is missed.
    pub fn add(&self, pattern: &Pattern, names: impl IntoIterator<Item = String>) -> Vec<String> {
        let mut found = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let known = found.entry(pattern.clone()).or_default();
        let mut new: Vec<String> = names.into_iter().filter(|name| pattern.fit(name).is_some() && !known.contains(name)).collect();
        new.sort();
        known.extend(new.iter().cloned());
        known.sort();
        new
    }

    /// The tables of a pattern; nothing where its catalogue was never read.
    pub(super) fn of(&self, pattern: &Pattern) -> Option<Vec<String>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(pattern).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(name: &str) -> Pattern {
        Pattern { database: None, schema: None, name: name.into() }
    }

    #[test]
    fn an_asterisk_stands_for_numbers() {
        let months = pattern("t_order_*");
        for (name, fits) in [
            ("t_order_202611", true),
            ("t_order_2026_11", true),
            ("t_order_2026-11", true),
            ("t_order_7", true),
            ("t_order_", false),
            ("t_order_202611_old", false),
            ("t_order__7", false),
            ("t_order_item_7", false),
            ("tXorderX7", false),
            ("T_ORDER_7", false),
        ] {
            assert_eq!(months.fit(name).is_some(), fits, "{name}");
        }
        assert_eq!(pattern("o*_x").fit("o12_x"), Some((1, 3)));
        assert_eq!(pattern("100%_!*").like(), "100!%!_!!%");
    }

    #[test]
    fn what_is_found_is_known_to_all_copies() {
        let (found, months) = (Found::default(), pattern("t_*"));
        let copy = found.clone();
        assert_eq!(copy.of(&months), None);
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(found.add(&months, names(&["t_2", "t_1", "t_x"])), names(&["t_1", "t_2"]));
        assert_eq!(found.add(&months, names(&["t_1", "t_3"])), names(&["t_3"]));
        assert_eq!(copy.of(&months), Some(names(&["t_1", "t_2", "t_3"])));
    }
}
