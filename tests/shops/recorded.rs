//! Shops whose tables and orders lie in files: `<name>/schema.sql` as the system itself made them, `<name>/orders.sql`, and
//! `<name>/changes.txt` with all that its own cancellation changes, where `{SELECT …}` stands for a value before it.

use std::path::PathBuf;

use super::{Example, assert_changes};
use crate::support::{Database, Kind};

fn read(name: &str, file: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/shops").join(name).join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(super) async fn open(name: &'static str, kind: Kind, clock: &'static str) -> Example {
    let example = Example::open(name, Database::fresh(kind).await, clock, &read(name, "schema.sql")).await;
    example.database.execute(&read(name, "orders.sql")).await;
    example
}

/// Closes what is due, and expects the recorded changes.
async fn closes(name: &'static str, kind: Kind, clock: &'static str) {
    let example = open(name, kind, clock).await;
    let mut expected = Vec::new();
    for line in read(name, "changes.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        expected.push(match line.split_once("{SELECT ").and_then(|(before, rest)| Some((before, rest.split_once('}')?))) {
            None => line.to_owned(),
            Some((before, (select, after))) => {
                let value = example.database.text(&format!("SELECT {select}")).await.expect("a value");
                format!("{before}{value}{after}")
            }
        });
    }
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    let orders = example.settings().orders;
    let closed =
        expected.iter().filter(|line| line.starts_with(&format!("{} ", orders.table)) && line.contains(&format!(": {} ", orders.status)));
    assert_changes(example.reconcile((closed.count() as u64, 0)).await, &expected);
}

#[tokio::test]
async fn closes_as_medusa_does() {
    closes("medusa", Kind::Postgres, "now()").await;
}

#[tokio::test]
async fn closes_as_vendure_does() {
    closes("vendure", Kind::Postgres, "now()").await;
}

#[tokio::test]
async fn closes_as_prestashop_does() {
    closes("prestashop", Kind::MariaDb, "NOW()").await;
}

#[tokio::test]
async fn closes_as_shopware_does() {
    closes("shopware", Kind::MariaDb, "UTC_TIMESTAMP()").await;
}

#[tokio::test]
async fn closes_as_sylius_does() {
    closes("sylius", Kind::MariaDb, "NOW()").await;
}
