//! How MySQL and MariaDB are asked what they hold.

use super::{catalogue::labels, ids::IdColumn};
use crate::store::survey::{ColumnKind, SurveyWords};

pub(super) const SURVEY: SurveyWords = SurveyWords {
    begin: "START TRANSACTION READ ONLY",
    // Of the URL's database; of all where it names none. The inner limits have both sides read once and joined then: MariaDB would
    // open each table again for the second side, which takes 20 s of 5,000 tables, and one second so.
    columns: "SELECT CASE WHEN t.table_schema = DATABASE() THEN '' ELSE CAST(t.table_schema AS CHAR) END, CAST(t.table_name AS CHAR),
                CAST(t.table_comment AS CHAR), CAST(t.table_rows AS CHAR), CAST(c.column_name AS CHAR), CAST(c.column_type AS CHAR),
                CAST(c.data_type AS CHAR), '', CAST(c.column_comment AS CHAR),
                CASE c.column_key WHEN 'PRI' THEN 'primary' WHEN 'UNI' THEN 'unique' END
         FROM (SELECT * FROM information_schema.tables WHERE table_schema = COALESCE(DATABASE(), table_schema)
               AND table_schema NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema')
               AND table_name NOT LIKE 'order\\_closer\\_%' LIMIT 1000000) t
              JOIN (SELECT * FROM information_schema.columns WHERE table_schema = COALESCE(DATABASE(), table_schema) LIMIT 1000000) c
              ON c.table_schema = t.table_schema AND c.table_name = t.table_name
         ORDER BY t.table_schema, t.table_name, c.ordinal_position LIMIT 500000",
    quote: '`',
    text: "CHAR",
    status_of_bytes: |name| format!("CONCAT('0x', LOWER(HEX({name})))"),
    id_of_bytes: |name| IdColumn::PackedUuid.text(name),
    kind,
};

fn kind(base: &str, declared: &str, _: Vec<String>) -> ColumnKind {
    match base {
        "tinyint" | "smallint" | "mediumint" | "int" | "bigint" => ColumnKind::Integer,
        "char" | "varchar" | "tinytext" | "text" | "mediumtext" | "longtext" => ColumnKind::Text,
        "enum" => ColumnKind::Enumeration(labels(declared)),
        "uuid" => ColumnKind::Uuid,
        "binary" | "varbinary" => ColumnKind::Bytes { length: length(declared), fixed: base == "binary" },
        "timestamp" => ColumnKind::Time { has_zone: true },
        "datetime" | "date" => ColumnKind::Time { has_zone: false },
        "bit" => ColumnKind::Boolean,
        _ => ColumnKind::Other,
    }
}

/// The length in `binary(16)`.
fn length(declared: &str) -> usize {
    declared.split_once('(').and_then(|(_, rest)| rest.trim_end_matches(')').parse().ok()).unwrap_or(0)
}
