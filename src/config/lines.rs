//! In which line of a file a setting stands.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, SeqAccess},
};
use toml::Spanned;

/// What stands in a file, as far as it leads to a setting.
enum Node {
    Table(Vec<(Spanned<String>, Node)>),
    List(Vec<Node>),
    Text(String),
    Other,
}

/// The line of a setting, counted from 1, or of what it would stand in; the entries of a list have numbers from 0, rules their names.
/// None where that is a list of tables: which of them is meant is not known.
pub(super) fn line_of(text: &str, path: &[&str]) -> Option<usize> {
    let (mut node, mut at) = (toml::from_str::<Node>(text).ok()?, None);
    for part in path {
        let inner = match node {
            Node::Table(entries) => entries.into_iter().find(|(key, _)| key.get_ref() == part),
            Node::List(entries) => {
                let mut tables = entries.into_iter().enumerate();
                let entry = tables.find(|(index, entry)| index.to_string() == *part || entry.name() == Some(*part)).map(|(_, entry)| entry);
                entry.and_then(|entry| Some((entry.first()?.clone(), entry)))
            }
            Node::Text(_) | Node::Other => None,
        };
        node = Node::Other;
        let Some((key, inner)) = inner else { break };
        (node, at) = (inner, Some(key.span().start));
    }
    let before = &text[..at?];
    let (lines, begin) = before.rsplit_once('\n').map_or((0, before), |(lines, begin)| (1 + lines.matches('\n').count(), begin));
    let are_tables = matches!(node, Node::List(_)) && begin.trim_start().starts_with("[[");
    (!are_tables).then_some(1 + lines)
}

impl Node {
    /// The first key of a table.
    fn first(&self) -> Option<&Spanned<String>> {
        let Self::Table(entries) = self else { return None };
        entries.iter().map(|(key, _)| key).min_by_key(|key| key.span().start)
    }

    /// What a table is called, as rules are.
    fn name(&self) -> Option<&str> {
        let Self::Table(entries) = self else { return None };
        entries.iter().find_map(|(key, value)| match value {
            Self::Text(name) if key.get_ref() == "name" => Some(name.as_str()),
            Self::Table(_) | Self::List(_) | Self::Text(_) | Self::Other => None,
        })
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Visitor)
    }
}

struct Visitor;

impl<'de> de::Visitor<'de> for Visitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Node::Table(entries))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = list.next_element()? {
            entries.push(entry);
        }
        Ok(Node::List(entries))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Text(text.to_owned()))
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<Node, E> {
        Ok(Node::Other)
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<Node, E> {
        Ok(Node::Other)
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Node, E> {
        Ok(Node::Other)
    }
}

#[cfg(test)]
mod tests {
    use super::line_of;

    #[test]
    fn each_setting_has_its_line() {
        let text = "# ä\n[sweep]\nevery = '5s'\npage = 10\n\n[close]\nsql = [\n  'a',\n  { sql = 'b' },\n]\n\n[close.ask]\nurl = 'x'\n\n\
                    [[rules]]\nname = 'one'\n[rules.orders]\nunpaid = [1]\n[[rules]]\nname = 'two'\n[rules.orders.deadline]\ncolumn = 'c'\n";
        for (path, line) in [
            ("sweep.every", Some(3)),
            ("sweep.page", Some(4)),
            // What is not there would stand in its table.
            ("sweep.ahead", Some(2)),
            ("close.sql", Some(7)),
            ("close.sql.1", Some(9)),
            ("close.ask.url", Some(13)),
            ("close.ask.secrets", Some(12)),
            ("rules", None),
            ("rules.one", Some(16)),
            ("rules.one.orders.unpaid", Some(18)),
            ("rules.two.orders.deadline.column", Some(22)),
            ("rules.1.name", Some(20)),
            ("redis.url", None),
        ] {
            assert_eq!(line_of(text, &path.split('.').collect::<Vec<_>>()), line, "{path}");
        }
        assert_eq!(line_of("[sweep", &["sweep"]), None);
    }
}
