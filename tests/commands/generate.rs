//! `order-closer generate`: man pages and completions of all commands.

use std::{collections::BTreeSet, process::Command};

use crate::support::{OneShot, process};

/// The commands that the program's own help lists.
async fn commands() -> BTreeSet<String> {
    let help = OneShot::new(&["--help"]).run().await.expect_code(0).stdout;
    let list = help.split_once("Commands:\n").and_then(|(_, rest)| rest.split_once("\n\n")).expect("a list of commands").0;
    let first_words = list.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    first_words.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").map(str::to_owned).collect()
}

#[tokio::test]
async fn every_command_has_a_man_page() {
    let folder = process::folder();
    // As /usr/local/share/man/man1, which a fresh system lacks.
    let man = folder.path().join("man/man1");
    let path = man.display().to_string();
    // The configuration has nothing to do with it.
    OneShot::new(&["--config", "/nowhere", "generate", "man", &path]).run().await.expect_code(0);
    let page = |name: &str| process::read(&man.join(format!("{name}.1")));
    let commands = commands().await;
    assert!(commands.len() > 15, "{commands:?}");
    for command in &commands {
        assert!(page(&format!("order-closer-{command}")).contains(".SH SYNOPSIS"), "{command}");
    }
    assert!(page("order-closer-dead-letters-retry").contains(".SH SYNOPSIS"));
    assert!(page("order-closer-reconcile").contains("max\\-duration"));
    let first = page("order-closer");
    for part in ["EXIT STATUS", "/etc/order\\-closer/order\\-closer.toml", "ORDER_CLOSER_CONFIG"] {
        assert!(first.contains(part), "{part} is missing:\n{first}");
    }
    let nowhere = OneShot::new(&["generate", "man", "/dev/null/man1"]).run().await.expect_code(74);
    assert!(nowhere.stderr.contains("/dev/null/man1"), "{nowhere:#?}");
}

#[tokio::test]
async fn a_shell_completes_commands_and_options() {
    for shell in ["bash", "zsh", "fish"] {
        let script = OneShot::new(&["--config", "/nowhere", "generate", "completions", shell]).run().await.expect_code(0).stdout;
        assert!(script.contains("reconcile") && script.contains("max-duration"), "{shell}");
        if shell != "bash" {
            continue;
        }
        for (words, expected) in [("reco", "reconcile"), ("reconcile --max-du", "--max-duration"), ("dead-letters re", "retry")] {
            let (typed, last) = words.rsplit_once(' ').map_or(("", words), |(typed, last)| (typed, last));
            let ask = format!(
                "{script}\nCOMP_WORDS=(order-closer {words}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ));
                 _order__closer order-closer {last} {}; echo \"${{COMPREPLY[@]}}\"",
                typed.rsplit(' ').next().filter(|word| !word.is_empty()).unwrap_or("order-closer")
            );
            let output = Command::new("bash").args(["-c", &ask]).output().expect("bash can be started");
            let proposed = String::from_utf8_lossy(&output.stdout);
            assert!(proposed.split_whitespace().any(|word| word == expected), "{words}: {output:?}");
        }
    }
}
