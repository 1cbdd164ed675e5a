//! `reconcile --textfile`: figures for node_exporter, after a good pass and after a bad one.

use std::{collections::BTreeSet, os::unix::fs::PermissionsExt, path::Path};

use super::settings;
use crate::support::{Kind, Settings, Shop, order_closer, ports, process};

async fn reconcile(settings: &Settings, file: &Path, code: i32) {
    order_closer(settings, &["reconcile", "--textfile", &file.display().to_string()]).await.expect_code(code);
}

/// The value of a sample, by its name and the labels after the rule's.
fn sample(file: &Path, name: &str) -> Option<f64> {
    let text = std::fs::read_to_string(file).unwrap();
    let (name, labels) =
        name.split_once('{').map_or((name, String::new()), |(name, labels)| (name, format!(",{}", &labels[..labels.len() - 1])));
    let opens = format!("order_closer_reconcile_{name}{{rule=\"orders\"{labels}}} ");
    text.lines().find_map(|line| line.strip_prefix(&opens)?.parse().ok())
}

#[tokio::test]
async fn a_textfile_tells_of_good_and_bad_passes() {
    let shop = Shop::open(Kind::Postgres).await;
    shop.orders(&[(1, -60_000), (2, -60_000), (3, 600_000), (4, -60 * 86_400_000)]).await;
    let folder = process::folder();
    let file = folder.path().join("order-closer.prom");
    reconcile(&settings(&shop), &file, 0).await;
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o644, "another user reads it");
    for (name, value) in [
        ("success", 1.0),
        ("paused", 0.0),
        ("orders{state=\"overdue\"}", 2.0),
        ("orders{state=\"closed\"}", 2.0),
        ("orders{state=\"failed\"}", 0.0),
        ("orders{state=\"left_alone\"}", 1.0),
    ] {
        assert_eq!(sample(&file, name), Some(value), "{name}: {}", std::fs::read_to_string(&file).unwrap());
    }
    assert!(sample(&file, "max_lateness_seconds").is_some_and(|late| (60.0..120.0).contains(&late)));
    let succeeded = sample(&file, "last_success_timestamp_seconds").unwrap();
    assert_eq!(sample(&file, "last_run_timestamp_seconds"), Some(succeeded));

    shop.database.execute("ALTER TABLE orders ADD CONSTRAINT cursed CHECK (status <> 4 OR order_no <> 5)").await;
    shop.orders(&[(5, -60_000)]).await;
    reconcile(&settings(&shop), &file, 75).await;
    assert_eq!((sample(&file, "success"), sample(&file, "orders{state=\"failed\"}")), (Some(0.0), Some(1.0)));
    assert_eq!(sample(&file, "last_success_timestamp_seconds"), Some(succeeded), "of the pass before");
    let ran = sample(&file, "last_run_timestamp_seconds").unwrap();
    assert!(ran > succeeded);

    // Nothing is known of orders then, and what was is no figure of this pass.
    let away = settings(&shop).set("database.url", format!("postgres://nobody@127.0.0.1:{}/shop", ports::free()));
    reconcile(&away, &file, 69).await;
    assert_eq!((sample(&file, "success"), sample(&file, "orders{state=\"closed\"}")), (Some(0.0), None));
    assert_eq!(sample(&file, "last_success_timestamp_seconds"), Some(succeeded));
    assert!(sample(&file, "last_run_timestamp_seconds").unwrap() > ran);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
}

/// What can't be written keeps no order from closing.
#[tokio::test]
async fn a_textfile_that_can_not_be_written() {
    let shop = Shop::open(Kind::Sqlite).await;
    shop.orders_due_in(1..=3, -1_000).await;
    let folder = process::folder();
    let file = folder.path().join("missing/order-closer.prom").display().to_string();
    let finished = order_closer(&settings(&shop), &["reconcile", "--textfile", &file]).await.expect_code(74);
    assert!(
        finished.stderr.contains(&format!("--textfile {file} can't be written: ")) && finished.stderr.contains("No such file"),
        "{finished:#?}"
    );
    shop.assert_outcome().await;
    for wrong in [&["--textfile", "figures.txt"][..], &["--textfile", ".prom"], &["--textfile", "x.prom", "--dry-run"]] {
        order_closer(&settings(&shop), &[&["reconcile"], wrong].concat()).await.expect_code(64);
    }
}

/// With promtool, of Prometheus.
#[tokio::test]
async fn promtool_checks_the_textfile() {
    let shop = Shop::open(Kind::Sqlite).await;
    shop.orders_due_in(1..=3, -1_000).await;
    let folder = process::folder();
    let file = folder.path().join("order-closer.prom");
    reconcile(&settings(&shop), &file, 0).await;
    let checked = std::process::Command::new("promtool").args(["check", "metrics"]).stdin(std::fs::File::open(&file).unwrap()).output();
    let checked = checked.expect("promtool is installed (Debian: prometheus)");
    let said = (String::from_utf8_lossy(&checked.stdout), String::from_utf8_lossy(&checked.stderr));
    assert!(checked.status.success() && said.0.is_empty() && said.1.is_empty(), "{said:?}");
    let text = std::fs::read_to_string(&file).unwrap();
    let written: BTreeSet<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let page = include_str!("../../../docs/metrics.md");
    let documented = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let documented: BTreeSet<&str> = documented.filter(|name| name.starts_with("order_closer_reconcile_")).collect();
    assert_eq!(written, documented);
}
