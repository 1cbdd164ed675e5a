//! How PostgreSQL is asked what it holds.

use crate::store::survey::{ColumnKind, SurveyWords};

pub(super) const SURVEY: SurveyWords = SurveyWords {
    begin: "BEGIN READ ONLY",
    columns: "SELECT CASE WHEN pg_table_is_visible(c.oid) THEN '' ELSE n.nspname::text END, c.relname::text,
                COALESCE(obj_description(c.oid, 'pg_class'), ''), CASE WHEN c.reltuples >= 0 THEN c.reltuples::bigint::text END,
                a.attname::text, format_type(a.atttypid, a.atttypmod), b.typname::text,
                (SELECT string_agg(enumlabel::text, E'\\n' ORDER BY enumsortorder) FROM pg_enum WHERE enumtypid = b.oid),
                COALESCE(col_description(c.oid, a.attnum), ''),
                (SELECT min(CASE WHEN i.indisprimary THEN 'primary' ELSE 'unique' END) FROM pg_index i
                 WHERE i.indrelid = c.oid AND i.indisunique AND i.indpred IS NULL AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum)
         FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
              JOIN pg_type t ON t.oid = a.atttypid JOIN pg_type b ON b.oid = CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.oid END
         WHERE c.relkind IN ('r', 'p', 'v') AND NOT c.relispartition AND a.attnum > 0 AND NOT a.attisdropped
         AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\\_%' AND c.relname NOT LIKE 'order\\_closer\\_%'
         ORDER BY n.nspname, c.relname, a.attnum LIMIT 500000",
    quote: '"',
    text: "text",
    status_of_bytes: str::to_owned,
    id_of_bytes: str::to_owned,
    kind,
};

fn kind(base: &str, _: &str, labels: Vec<String>) -> ColumnKind {
    match base {
        "int2" | "int4" | "int8" => ColumnKind::Integer,
        "text" | "varchar" | "bpchar" | "citext" => ColumnKind::Text,
        "uuid" => ColumnKind::Uuid,
        "timestamptz" => ColumnKind::Time { has_zone: true },
        "timestamp" | "date" => ColumnKind::Time { has_zone: false },
        "bool" => ColumnKind::Boolean,
        _ if !labels.is_empty() => ColumnKind::Enumeration(labels),
        _ => ColumnKind::Other,
    }
}
