//! How SQLite is asked what it holds.

use super::affinity::Affinity;
use crate::store::survey::{ColumnKind, SurveyWords};

pub(super) const SURVEY: SurveyWords = SurveyWords {
    // It takes no lock that a writer would wait for, and is rolled back.
    begin: "PRAGMA query_only = 1; BEGIN",
    columns: "SELECT '', m.name, '', NULL, x.name, x.type, x.type, '', '',
                CASE WHEN x.pk > 0 THEN 'primary'
                     ELSE (SELECT 'unique' FROM pragma_index_list(m.name) l WHERE l.\"unique\" AND NOT l.partial
                           AND (SELECT count(*) FROM pragma_index_info(l.name)) = 1
                           AND (SELECT name FROM pragma_index_info(l.name)) = x.name LIMIT 1) END
         FROM sqlite_schema m JOIN pragma_table_xinfo(m.name) x
         WHERE m.type IN ('table', 'view') AND m.name NOT LIKE 'sqlite\\_%' ESCAPE '\\'
         AND m.name NOT LIKE 'order\\_closer\\_%' ESCAPE '\\' AND x.hidden <> 1
         ORDER BY m.name, x.cid",
    quote: '"',
    text: "TEXT",
    status_of_bytes: str::to_owned,
    id_of_bytes: str::to_owned,
    kind,
};

fn kind(_: &str, declared: &str, _: Vec<String>) -> ColumnKind {
    let upper = declared.to_uppercase();
    if upper.contains("UUID") {
        return ColumnKind::Uuid;
    }
    if upper.contains("BOOL") {
        return ColumnKind::Boolean;
    }
    if upper.contains("DATE") || upper.contains("TIMESTAMP") {
        return ColumnKind::Time { has_zone: false };
    }
    match Affinity::of(declared) {
        Affinity::Integer => ColumnKind::Integer,
        Affinity::Text => ColumnKind::Text,
        Affinity::Blob | Affinity::Numeric | Affinity::Real => ColumnKind::Other,
    }
}
