//! The code on the documentation's pages is that of `examples/clients`, which other tests run. `make snippets` puts it there.

use std::collections::BTreeSet;

use super::files::{files, read, root};

/// The pages that show clients.
const PAGES: [&str; 4] = ["docs/doors.md", "docs/order-service.md", "docs/timers.md", "docs/webhooks.md"];

/// What follows the three backticks of a client's code, and the ending of its file.
const LANGUAGES: [(&str, &str); 5] = [("go", "go"), ("java", "java"), ("js", "js"), ("php", "php"), ("python", "py")];

/// The page with each block as its file has it now, and the files that it shows.
fn filled(page: &str, text: &str) -> (String, BTreeSet<String>) {
    let (mut filled, mut shown, mut above) = (String::new(), BTreeSet::new(), "");
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        filled += &format!("{line}\n");
        let language = line.strip_prefix("```").filter(|language| !language.is_empty());
        if language.is_some_and(|language| LANGUAGES.iter().any(|(known, _)| *known == language)) {
            // The line above the block is a link to its file.
            let file = above.strip_prefix("[examples/clients/").and_then(|rest| rest.split_once(']'));
            let (file, _) = file.unwrap_or_else(|| panic!("{page}: no link to a file of examples/clients above {line}, but {above:?}"));
            let file = format!("examples/clients/{file}");
            filled += &read(&root().join(&file));
            filled += "```\n";
            lines.by_ref().find(|line| *line == "```").unwrap_or_else(|| panic!("{page}: the block of {file} has no end"));
            shown.insert(file);
        } else if language.is_some() {
            filled.extend(lines.by_ref().take_while(|line| *line != "```").map(|line| format!("{line}\n")));
            filled += "```\n";
        }
        if !line.is_empty() {
            above = line;
        }
    }
    (filled, shown)
}

#[test]
fn the_pages_show_the_clients_as_they_are() {
    let mut all_shown = BTreeSet::new();
    for page in PAGES {
        let path = root().join(page);
        let text = read(&path);
        let (filled, shown) = filled(page, &text);
        all_shown.extend(shown);
        if std::env::var_os("UPDATE_SNIPPETS").is_some() {
            std::fs::write(&path, filled).expect("the page can be written");
        } else if let Some((number, (on_page, in_file))) =
            text.lines().zip(filled.lines()).enumerate().find(|(_, (on_page, in_file))| on_page != in_file)
        {
            panic!(
                "{page}, line {}: the page has\n  {on_page}\nand the file\n  {in_file}\n'make snippets' copies the files into the pages.",
                number + 1
            );
        } else {
            assert_eq!(text, filled, "{page}: 'make snippets' copies the files into the pages");
        }
    }
    let clients = files(&root().join("examples/clients"));
    let is_client = |path: &std::path::PathBuf| LANGUAGES.iter().any(|(_, ending)| path.extension().is_some_and(|is| is == *ending));
    for client in clients.into_iter().filter(is_client) {
        let name = client.strip_prefix(root()).expect("in the repository").display().to_string();
        assert!(all_shown.contains(&name), "{name} is on no page");
    }
}
