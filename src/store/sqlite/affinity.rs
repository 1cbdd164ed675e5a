//! What SQLite makes of a declared type.

/// What a column prefers to hold: <https://www.sqlite.org/datatype3.html#determination_of_column_affinity>.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Affinity {
    Integer,
    Text,
    Blob,
    Real,
    Numeric,
}

impl Affinity {
    pub(super) fn of(declared: &str) -> Self {
        let declared = declared.to_ascii_uppercase();
        let has = |parts: &[&str]| parts.iter().any(|part| declared.contains(part));
        match () {
            () if has(&["INT"]) => Self::Integer,
            () if has(&["CHAR", "CLOB", "TEXT"]) => Self::Text,
            () if has(&["BLOB"]) || declared.is_empty() => Self::Blob,
            () if has(&["REAL", "FLOA", "DOUB"]) => Self::Real,
            () => Self::Numeric,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn affinities_follow_sqlites_rules() {
        for (declared, affinity) in [
            ("BIGINT UNSIGNED", Affinity::Integer),
            ("CHARINT", Affinity::Integer),
            ("varchar(64)", Affinity::Text),
            ("", Affinity::Blob),
            ("double", Affinity::Real),
            ("DATETIME", Affinity::Numeric),
            ("STRING", Affinity::Numeric),
        ] {
            assert_eq!(Affinity::of(declared), affinity, "{declared}");
        }
    }
}
