//! The command line itself.

use crate::support::OneShot;

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
