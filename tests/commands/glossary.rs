//! The fields of the log's lines are on the page that explains them.

use std::collections::BTreeSet;

use super::files::{files, read, root};

/// The names that stand in the left columns of this part of the glossary's tables.
fn explained(from: &str, to: &str) -> BTreeSet<String> {
    let page = read(&root().join("docs/glossary.md"));
    let part = page.split_once(from).and_then(|(_, rest)| rest.split_once(to)).expect("both are there").0;
    let columns = part.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    columns.flat_map(|column| column.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

/// The fields in calls of this macro, in all of the program.
fn logged(name: &str) -> BTreeSet<String> {
    let src = root().join("src");
    let is_ours = |path: &std::path::PathBuf| {
        path.extension().is_some_and(|extension| extension == "rs") && !path.starts_with(src.join("model")) && !path.ends_with("tests.rs")
    };
    let mut fields = BTreeSet::new();
    for path in files(&src).into_iter().filter(is_ours) {
        let text = read(&path);
        let code: String = text.lines().filter(|line| !line.trim_start().starts_with("//")).map(|line| format!("{line}\n")).collect();
        for call in code.split(&format!("{name}!(")).skip(1) {
            fields.extend(fields_of(call));
        }
    }
    fields
}

/// The names before a call's sentence.
fn fields_of(call: &str) -> Vec<String> {
    let (mut fields, mut rest) = (Vec::new(), call);
    loop {
        let (argument, after) = argument(rest);
        if argument.is_empty() || argument.starts_with('"') {
            return fields;
        }
        let name = argument.split('=').next().unwrap_or(argument).trim().trim_start_matches(['%', '?']);
        fields.push(name.rsplit('.').next().unwrap_or(name).to_owned());
        rest = after;
    }
}

/// A call's first argument, and what follows it.
fn argument(text: &str) -> (&str, &str) {
    let (mut depth, mut is_quoted, mut is_escaped) = (0, false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            _ if is_quoted => {}
            '(' | '[' | '{' => depth += 1,
            ',' if depth == 0 => return (text[..at].trim(), &text[at + 1..]),
            ')' | ']' | '}' if depth == 0 => return (text[..at].trim(), ""),
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
    }
    (text, "")
}

#[test]
fn every_field_of_the_log_is_explained() {
    let summary = explained("## Fields of the summary", "## Fields of other lines");
    let others = explained("## Fields of other lines", "## Fields of `reconcile");
    let logged: [BTreeSet<String>; 4] = ["info", "warn", "error", "debug"].map(logged);
    let said: BTreeSet<&String> = logged[..3].iter().flatten().collect();
    assert!(said.len() > 50, "{said:?}");
    let missing: Vec<&&String> = said.iter().filter(|field| !summary.contains(**field) && !others.contains(**field)).collect();
    assert!(missing.is_empty(), "docs/glossary.md lacks {missing:?}");
    // These are those of spans, which stand on each line within.
    let spans = ["rule", "shard", "database"].map(str::to_owned);
    let gone: Vec<&String> = others.iter().filter(|field| !logged.iter().flatten().chain(&spans).any(|logged| logged == *field)).collect();
    assert!(gone.is_empty(), "docs/glossary.md explains {gone:?}, which no line has");
}

#[test]
fn a_field_is_found_wherever_it_stands() {
    let call = r#"order = %id, %error, also = ?a(b, "c, d")[0], x.place, fix = "now, \"then", "a sentence, with {} in it", y) ; z, w"#;
    assert_eq!(fields_of(call), ["order", "error", "also", "place", "fix"]);
    assert_eq!(fields_of("\"a sentence\")"), [""; 0]);
}
