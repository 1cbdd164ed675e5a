//! The JSON schema of the configuration file, for editors: made from the types that read it.
//!
//! It knows names, kinds of values and defaults. What takes more than that, such as whether a URL means anything, is said by whoever reads
//! the file: `order-closer config`.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings, json_schema, transform::transform_subschemas};
use serde_json::{Value, json};

use super::{Config, Oldest, RuleSettings, Span, Status, Statuses, optional::NONE, rules::RULES, statement::Statement};

impl Config {
    /// The JSON schema (draft 7, which all editors know) of a configuration file.
    #[must_use]
    pub fn schema() -> Value {
        let mut schema = SchemaSettings::draft07().into_generator().into_root_schema_for::<Self>();
        schema.insert("title".into(), json!("order-closer's configuration"));
        none_for_null(&mut schema);
        schema.to_value()
    }
}

/// The dotted names of all settings, and of the tables around them; those of a rule stand below each of these rules' names.
pub(super) fn names_of_all(rules: &[String]) -> Vec<String> {
    let (root, mut names) = (Config::schema(), Vec::new());
    add_names(&root, &root, "", &mut names);
    for rule in rules {
        add_names(&root, &root["properties"][RULES]["items"], &format!("{RULES}.{rule}"), &mut names);
    }
    names
}

/// Adds those of one table of the schema. The entries of a list have no names.
fn add_names(root: &Value, table: &Value, name: &str, names: &mut Vec<String>) {
    let meant = table["$ref"].as_str().and_then(|place| root.pointer(place.strip_prefix('#')?));
    let choices = ["allOf", "anyOf"].into_iter().filter_map(|several| table[several].as_array()).flatten();
    meant.into_iter().chain(choices).for_each(|inner| add_names(root, inner, name, names));
    for (key, inner) in table["properties"].as_object().into_iter().flatten() {
        let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
        add_names(root, inner, &name, names);
        names.push(name);
    }
}

/// TOML has no null: what may be left out may also be switched off by a word.
fn none_for_null(schema: &mut Schema) {
    transform_subschemas(&mut none_for_null, schema);
    let Some(object) = schema.as_object_mut() else { return };
    if object.get("default").is_some_and(Value::is_null) {
        object.remove("default");
    }
    if let Some(Value::Array(choices)) = object.get_mut("anyOf")
        && let Some(null) = choices.iter_mut().find(|choice| choice["type"] == "null")
    {
        *null = json!({ "const": NONE });
    }
    let Some(Value::Array(kinds)) = object.get_mut("type") else { return };
    if let Some(at) = kinds.iter().position(|kind| kind == "null") {
        kinds.remove(at);
        // A text may be that word already.
        if let [kind] = kinds.as_slice() {
            *object.get_mut("type").unwrap_or(&mut Value::Null) = kind.clone();
        }
    }
}

/// The URL of a table may stand in a file.
pub(super) fn url_or_file(schema: &mut Schema) {
    if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| name != "url");
    }
    schema.insert("anyOf".into(), json!([{ "required": ["url"] }, { "required": ["url_file"] }]));
}

/// A list that may be switched off.
pub(super) fn list<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let list = generator.subschema_for::<Vec<T>>();
    json_schema!({ "anyOf": [list, { "const": NONE }], "default": [] })
}

/// Rules are a list in the file, each with its name, and must say what their keys begin with.
pub(super) fn rules(generator: &mut SchemaGenerator) -> Schema {
    let mut rule = RuleSettings::json_schema(generator);
    let name = generator.subschema_for::<super::RuleName>();
    if let Some(properties) = rule.get_mut("properties").and_then(Value::as_object_mut) {
        properties.insert("name".into(), name.to_value());
    }
    rule.insert("required".into(), json!(["name", "key_prefix"]));
    json_schema!({ "type": "array", "minItems": 1, "items": rule })
}

/// Databases by their names, and what they have in common.
pub(super) fn databases(generator: &mut SchemaGenerator) -> Schema {
    let (zone, span) = (generator.subschema_for::<super::TimeZone>(), generator.subschema_for::<Span>());
    json_schema!({
        "type": "object",
        "properties": { "time_zone": zone, "timeout": span, "connections": { "type": "integer", "minimum": 1 } },
        "additionalProperties": generator.subschema_for::<super::DatabaseUrls>()
    })
}

impl JsonSchema for Span {
    fn schema_name() -> Cow<'static, str> {
        "Span".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A length of time with its unit: \"500ms\", \"30s\", \"5m\", \"2h\", \"1d\".",
            "type": "string",
            "pattern": "^ *[0-9]"
        })
    }
}

impl JsonSchema for Oldest {
    fn schema_name() -> Cow<'static, str> {
        "Oldest".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [generator.subschema_for::<Span>(), { "const": NONE }] })
    }
}

impl JsonSchema for Statuses {
    fn schema_name() -> Cow<'static, str> {
        "Statuses".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let status = generator.subschema_for::<Status>();
        json_schema!({
            "description": "One status, or several.",
            "anyOf": [status, { "type": "array", "minItems": 1, "items": status }]
        })
    }
}

impl JsonSchema for Statement {
    fn schema_name() -> Cow<'static, str> {
        "Statement".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let rows = json!({
            "description": "How many rows it must change for each order: 1, or \">= 1\".",
            "anyOf": [{ "type": "integer", "minimum": 1 }, { "type": "string", "pattern": "^>= *[0-9]*[1-9]" }]
        });
        json_schema!({
            "description": "A statement, in which :ids is the list of the orders being closed.",
            "anyOf": [
                { "type": "string" },
                {
                    "type": "object",
                    "properties": { "sql": { "type": "string" }, "rows": rows },
                    "required": ["sql"],
                    "additionalProperties": false
                }
            ]
        })
    }
}
