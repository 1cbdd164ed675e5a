//! What is written about the program: links lead somewhere, blocks are configurations, commands can be called.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::Command,
};

use order_closer::config::load;

use super::files::{files, read, root};
use crate::support::{Redis, process};

/// A Markdown file.
struct Page {
    path: PathBuf,
    text: String,
}

/// All of them, by their paths.
fn pages() -> Vec<Page> {
    let top = std::fs::read_dir(root()).expect("the repository is a folder").map(|entry| entry.expect("an entry").path());
    let below = ["config", "docs", "examples", "tests"].into_iter().flat_map(|folder| files(&root().join(folder)));
    let mut paths: Vec<PathBuf> = top.chain(below).filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect();
    paths.sort();
    paths.into_iter().map(|path| Page { text: read(&path), path }).collect()
}

/// A piece of code, as long as it is on the page.
enum Code<'a> {
    Fenced {
        language: &'a str,
        text: String,
    },
    /// A line that is indented.
    Line(String),
    /// What stands between backticks. All of these come after the rest.
    Span(String),
}

impl Page {
    /// The page without its code, and the code.
    fn split(&self) -> (String, Vec<Code<'_>>) {
        let (mut prose, mut code) = (String::new(), Vec::new());
        let mut lines = self.text.lines();
        while let Some(line) = lines.next() {
            if let Some(language) = line.trim_start().strip_prefix("```") {
                let inside = lines.by_ref().take_while(|line| line.trim() != "```");
                code.push(Code::Fenced { language, text: inside.map(|line| format!("{line}\n")).collect() });
            } else if let Some(line) = line.strip_prefix("    ") {
                code.push(Code::Line(line.trim_start().to_owned()));
            } else {
                prose.extend([line, "\n"]);
            }
        }
        let mut plain = String::new();
        for (place, piece) in prose.split('`').enumerate() {
            if place % 2 == 0 {
                plain.push_str(piece);
            } else {
                code.push(Code::Span(piece.replace('\n', " ")));
            }
        }
        (plain, code)
    }

    /// What can follow a `#`, as GitHub and mdBook make it of headings; and what is given by hand.
    fn anchors(&self) -> BTreeSet<String> {
        let mut seen = BTreeMap::new();
        let mut fenced = false;
        let mut anchors = BTreeSet::new();
        for line in self.text.lines() {
            fenced ^= line.trim_start().starts_with("```");
            anchors.extend(line.split("<a id=\"").skip(1).filter_map(|rest| rest.split('"').next()).map(str::to_owned));
            let Some(heading) = line.strip_prefix('#').filter(|_| !fenced) else { continue };
            let heading = heading.trim_start_matches('#').trim().to_lowercase();
            let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
            let times = seen.entry(anchor.clone()).and_modify(|times| *times += 1).or_insert(0);
            anchors.insert(if *times == 0 { anchor } else { format!("{anchor}-{times}") });
        }
        anchors
    }

    /// Where its links and pictures lead, without those to other sites.
    fn links(&self) -> Vec<String> {
        let (prose, _) = self.split();
        let targets = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        targets.filter(|target| !target.contains("://")).map(str::to_owned).collect()
    }

    /// Its path in the repository.
    fn name(&self) -> String {
        self.path.strip_prefix(root()).expect("a page is in the repository").display().to_string()
    }
}

#[test]
fn every_link_leads_somewhere() {
    let pages = pages();
    let mut wrong = Vec::new();
    let mut checked = 0;
    for page in &pages {
        for link in page.links() {
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let folder = page.path.parent().expect("a page is in a folder");
            let target = if file.is_empty() { Ok(page.path.clone()) } else { folder.join(file).canonicalize() };
            let there = target.is_ok_and(|target| {
                let other = pages.iter().find(|page| page.path.canonicalize().is_ok_and(|path| path == target));
                anchor.is_empty() || other.is_some_and(|other| other.anchors().contains(anchor))
            });
            if !there {
                wrong.push(format!("{}: {link}", page.name()));
            }
            checked += 1;
        }
    }
    assert!(checked > 100 && wrong.is_empty(), "{checked} links, of which these lead nowhere: {wrong:#?}");
}

/// `a/{b,c}.rs` names two.
fn each_of(path: &str) -> Vec<String> {
    match path.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?))) {
        Some((before, (among, after))) => among.split(',').map(|one| format!("{before}{one}{after}")).collect(),
        None => vec![path.to_owned()],
    }
}

#[test]
fn every_file_that_is_named_exists() {
    let mut named = 0;
    for page in pages() {
        for code in page.split().1 {
            let Code::Span(text) = code else { continue };
            let is_path = ["benches/", "config/", "docs/", "examples/", "src/", "tests/"].iter().any(|folder| text.starts_with(folder));
            if !is_path || text.contains(char::is_whitespace) {
                continue;
            }
            for path in each_of(&text) {
                assert!(root().join(&path).exists(), "{}: {path}", page.name());
                named += 1;
            }
        }
    }
    assert!(named > 20, "{named}");
}

/// A test, a file of tests or a folder of them: `room::file::a_test`.
fn is_a_test(name: &str) -> bool {
    let parts: Vec<&str> = name.split("::").collect();
    ["tests", "src"].iter().any(|top| {
        let file = |parts: &[&str]| {
            let path = root().join(top).join(parts.join("/"));
            [path.with_extension("rs"), path.join("mod.rs")].into_iter().find(|path| path.exists())
        };
        let is_in = |(test, file): (&&str, PathBuf)| read(&file).contains(&format!("fn {test}("));
        file(&parts).is_some() || parts.split_last().and_then(|(test, before)| Some((test, file(before)?))).is_some_and(is_in)
    })
}

#[test]
fn every_test_that_is_named_exists() {
    let path = root().join("docs/correctness.md");
    let page = Page { text: read(&path), path };
    let mut named = 0;
    for code in page.split().1 {
        let Code::Span(text) = code else { continue };
        if text.contains("::") && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_:".contains(c)) {
            assert!(is_a_test(&text), "docs/correctness.md: {text} is no test");
            named += 1;
        }
    }
    assert!(named > 40, "{named}");
    assert!(!is_a_test("promises::races::none") && !is_a_test("promises::none"));
}

/// A page that is in neither can't be found. In the book, a link to Markdown that is not in it leads nowhere.
#[test]
fn the_index_and_the_book_have_every_page() {
    let docs = root().join("docs");
    let linked = |name: &str| -> Vec<PathBuf> {
        let path = docs.join(name);
        let page = Page { text: read(&path), path };
        page.links().iter().filter_map(|link| docs.join(link.split('#').next()?).canonicalize().ok()).collect()
    };
    let (index, book) = (linked("README.md"), linked("SUMMARY.md"));
    assert_eq!(book.len(), book.iter().collect::<BTreeSet<_>>().len(), "mdBook builds no book that has a page twice: {book:#?}");
    for page in pages().into_iter().filter(|page| page.path.starts_with(&docs) && !page.path.ends_with("SUMMARY.md")) {
        let path = page.path.canonicalize().expect("it has been read");
        assert!(book.contains(&path), "docs/SUMMARY.md lacks {}", page.name());
        assert!(index.contains(&path) || page.path.ends_with("docs/README.md"), "docs/README.md lacks {}", page.name());
        for link in page.links() {
            let outside = page.path.parent().expect("a folder").join(link.split('#').next().expect("a path"));
            let outside = outside.canonicalize().is_ok_and(|target| !target.starts_with(docs.canonicalize().expect("a folder")));
            // The index has another name there.
            let in_the_book = !outside && !link.contains("README.md") || !link.contains(".md");
            assert!(in_the_book, "{}: {link} is not in the book", page.name());
        }
    }
}

#[test]
fn the_readme_is_short() {
    let lines = read(&root().join("README.md")).lines().count();
    assert!(lines <= 250, "{lines} lines; the rest belongs into docs/");
}

#[test]
fn every_block_of_settings_is_a_configuration() {
    let folder = process::folder();
    let file = folder.path().join("block.toml");
    let mut blocks = 0;
    for page in pages() {
        for code in page.split().1 {
            let Code::Fenced { language: "toml", text } = code else { continue };
            std::fs::write(&file, &text).expect("a file can be written");
            load(Some(&file)).unwrap_or_else(|error| panic!("{}: {error}:\n{text}", page.name()));
            blocks += 1;
        }
    }
    assert!(blocks >= 8, "{blocks}");
}

#[test]
fn every_setting_is_on_its_page_with_its_default() {
    let text = read(&root().join("docs/settings.md"));
    // The table's left column, and its middle one where it has a value.
    let rows: Vec<Vec<&str>> =
        text.lines().filter(|line| line.starts_with("| `")).map(|line| line.split('|').map(str::trim).collect()).collect();
    let listed: BTreeSet<&str> = rows.iter().map(|row| row[1].trim_matches('`')).collect();
    let path = root().join("config/order-closer.toml");
    for setting in load(Some(&path)).unwrap_or_else(|error| panic!("{error}")).settings() {
        // Some are listed as the table they stand in.
        let shown = [setting.key.as_str(), setting.key.rsplit_once('.').map_or("", |(table, _)| table)];
        assert!(shown.iter().any(|key| listed.contains(key)), "{} is not listed", setting.key);
        let plain = setting.value.trim_matches('"');
        if let Some(row) = rows.iter().find(|row| row[1] == format!("`{}`", setting.key)) {
            // The first one, where it depends on the database: that of the default's.
            assert_eq!(row[2].split('`').nth(1), Some(plain), "{}", setting.key);
        }
    }
}

/// What stands on a line of code after the program's name, if that is how the line begins.
fn call(line: &str) -> Option<&str> {
    let mut rest = line.trim();
    loop {
        let (word, after) = rest.split_once(char::is_whitespace)?;
        rest = after.trim_start();
        match word {
            "order-closer" => return Some(rest.strip_prefix("[--config FILE] ").unwrap_or(rest)),
            "order-closer-ctl" => return rest.strip_prefix('@').map_or(Some(rest), |named| Some(named.split_once(' ')?.1)),
            // A prompt, a schedule of cron, another program, a variable.
            "$" | "*" | "sudo" | "xargs" => {}
            variable if variable.contains('=') => {}
            _ => return None,
        }
    }
}

/// Each command as printed, up to its explanation; and the options that the explanation names.
#[test]
fn every_command_can_be_called() {
    let mut calls = BTreeSet::new();
    for page in pages() {
        for code in page.split().1 {
            let text = match code {
                Code::Fenced { language: "" | "console" | "sh", text } | Code::Line(text) | Code::Span(text) => text,
                Code::Fenced { .. } => continue,
            };
            let pieces = text.lines().flat_map(|line| line.split(" | ")).flat_map(|line| line.split(" && "));
            calls.extend(pieces.filter_map(call).map(|call| (call.to_owned(), page.name())));
        }
    }
    assert!(calls.len() > 40, "{}", calls.len());
    for (call, page) in calls {
        let end = ["  ", " [", " #", " >", " 2>", " &", "..."].iter().filter_map(|mark| call.find(mark)).min().unwrap_or(call.len());
        let words = shlex::split(&call[..end]).unwrap_or_else(|| panic!("{page}: {call}"));
        let output = Command::new(env!("CARGO_BIN_EXE_order-closer")).args(&words).arg("--help").output();
        let output = output.expect("the binary can be started");
        assert!(output.status.success(), "{page}: order-closer {call}: {}", String::from_utf8_lossy(&output.stderr));
        let help = String::from_utf8_lossy(&output.stdout);
        let options = call[end..].split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).filter(|word| word.starts_with("--"));
        for option in options {
            assert!(help.contains(option), "{page}: order-closer {call}: no {option}");
        }
    }
}

#[test]
fn every_target_of_make_exists() {
    let makefile = read(Path::new(&root().join("Makefile")));
    for page in pages() {
        for code in page.split().1 {
            let text = match code {
                Code::Fenced { language: "" | "console" | "sh", text } | Code::Line(text) | Code::Span(text) => text,
                Code::Fenced { .. } => continue,
            };
            let targets = text.lines().filter_map(|line| line.trim().strip_prefix("make ")?.split_whitespace().next());
            for target in targets.filter(|target| !target.contains('=')) {
                assert!(makefile.contains(&format!("\n{target}:")), "{}: make {target}", page.name());
            }
        }
    }
}

/// The README's way from an empty folder to a closed order, with a Redis and a folder of the test's own.
#[test]
fn the_five_minutes() {
    if ["bash", "sqlite3", "redis-cli"].iter().any(|program| Command::new(program).arg("--version").output().is_err()) {
        eprintln!("bash, sqlite3 or redis-cli is not installed; left out");
        return;
    }
    let text = read(&root().join("README.md"));
    let part = text.split_once("By hand, ").and_then(|(_, rest)| rest.split_once("Next: ")).expect("both are there").0;
    // Its servers are ours; sqlite3 alone waits for no lock.
    let mut script = String::from(
        "set -em; trap 'kill %1 2>/dev/null || true' EXIT
         redis-cli() { command redis-cli -u \"$ORDER_CLOSER_REDIS__URL\" \"$@\"; }
         sqlite3() { command sqlite3 -cmd '.timeout 5000' \"$@\"; }
         PATH=\"$PROGRAMS:$PATH\"\n",
    );
    let mut printed = String::new();
    for code in (Page { path: root().into(), text: part.into() }).split().1 {
        match code {
            Code::Fenced { language: "toml", text } => script += &format!("cat >order-closer.toml <<'END'\n{text}END\n"),
            Code::Line(line) if line.starts_with("cargo install ") || line.starts_with("redis-server ") => {}
            Code::Line(line) => script += &format!("{line}\n"),
            Code::Fenced { language: "console", text } => {
                script += "until [ \"$(sqlite3 shop.db 'SELECT status FROM orders WHERE order_no = 1001')\" = 4 ]; do sleep 0.1; done\n";
                script += "echo 'And then:'\n";
                // How late the order closed is another time each time.
                let (before, _) = text.split_once("$ kill %1\n").expect("the daemon is stopped");
                for line in before.lines() {
                    match line.strip_prefix("$ ") {
                        Some(command) => script += &format!("{command}\n"),
                        None => printed += &format!("{line}\n"),
                    }
                }
            }
            Code::Fenced { .. } | Code::Span(_) => {}
        }
    }
    let (redis, folder) = (Redis::start(), process::folder());
    let script = script.replace("/tmp/shop", &folder.path().join("shop").display().to_string()) + "kill %1; wait %1";
    let programs = Path::new(env!("CARGO_BIN_EXE_order-closer")).parent().expect("the binary is in a folder");
    let mut bash = process::mortal("bash");
    bash.arg("-c").arg(&script).env("ORDER_CLOSER_REDIS__URL", redis.url()).env("PROGRAMS", programs);
    let output = bash.output().expect("bash can be started");
    let shown = String::from_utf8_lossy(&output.stdout);
    let after = shown.split_once("And then:\n").map(|(_, after)| after);
    assert_eq!((output.status.success(), after), (true, Some(printed.as_str())), "{script}\n{output:?}");
}
