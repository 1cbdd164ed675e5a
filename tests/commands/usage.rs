//! The command line itself.

use crate::support::{OneShot, Settings};

#[tokio::test]
async fn help_and_version_are_answers() {
    let version = OneShot::new(&["--version"]).run().await.expect_code(0);
    assert_eq!((version.stdout.as_str(), version.stderr.as_str()), (concat!("order-closer ", env!("CARGO_PKG_VERSION"), "\n"), ""));
    let help = OneShot::new(&["--help"]).run().await.expect_code(0);
    assert_eq!(help.stderr, "");
    for command in ["run", "reconcile", "check", "arm", "close", "config", "demo"] {
        assert!(help.stdout.contains(&format!("\n  {command} ")), "{command}: {help:#?}");
        OneShot::new(&[command, "--help"]).run().await.expect_code(0);
    }
    assert!(help.stdout.contains("--config <FILE>") && help.stdout.contains("ORDER_CLOSER_CONFIG"), "{help:#?}");
}

#[tokio::test]
async fn a_wrong_command_line_is_64() {
    for arguments in [
        [].as_slice(),
        &["frobnicate"],
        &["run", "--fast"],
        &["run", "1"],
        &["reconcile", "--limit", "0"],
        &["reconcile", "--limit", "many"],
        &["reconcile", "--max-duration", "5"],
        &["arm", "7"],
        &["arm", "--ttl", "5s"],
        &["close"],
        &["--config"],
    ] {
        let finished = OneShot::new(arguments).run().await.expect_code(64);
        assert_eq!(finished.stdout, "", "{arguments:?}");
        assert!(finished.stderr.contains("Usage:") || finished.stderr.contains("--help"), "{arguments:?}: {finished:#?}");
    }
    let finished = OneShot::new(&["reconcile", "--max-duration", "5"]).run().await.expect_code(64);
    assert!(finished.stderr.contains("such as \"30s\""), "{finished:#?}");
}

#[tokio::test]
async fn a_rule_that_there_is_not_is_told_its_likeness() {
    let rule = |name: &str| format!("[[rules]]\nname = '{name}'\nkey_prefix = 'none'\norders = {{ table = '{name}' }}\n");
    let settings = Settings::new().add(&(rule("online") + &rule("transfer")));
    let finished = OneShot::with(&settings, &["events", "--rule", "tranfer"]).run().await.expect_code(64);
    let said = "order-closer: there is no rule \"tranfer\"; the configuration has online, transfer; did you mean transfer?\n";
    assert_eq!(finished.stderr, said);
}

/// What it says fits a terminal that nobody has widened.
#[tokio::test]
async fn the_demo_holds_its_promises_in_80_columns() {
    let finished = OneShot::new(&["demo", "--orders", "30", "--seconds", "1"]).run().await.expect_code(0);
    assert!(finished.stdout.contains("every unpaid order closed"), "{finished:#?}");
    for line in finished.stdout.lines().chain(finished.stderr.lines()) {
        assert!(line.chars().count() <= 80, "{line:?}");
    }
}
