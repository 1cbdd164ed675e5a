use std::collections::BTreeSet;

use order_closer::metric;

use super::Asked;
use crate::support::{Kind, Redis, Shop, ports, process, wait};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/config/prometheus");
const RULES: &str = include_str!("../../config/prometheus/order-closer.rules.yml");

fn alerts() -> BTreeSet<&'static str> {
    RULES.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect()
}

#[test]
fn they_and_the_dashboard_name_metrics_that_there_are() {
    let exported = |metric: &&metric::Metric| match metric.kind {
        metric::Kind::Histogram(_) => format!("{}_bucket", metric.name),
        metric::Kind::Counter | metric::Kind::Gauge => metric.name.to_owned(),
    };
    let known: BTreeSet<String> = metric::ALL.iter().map(exported).collect();
    for (text, at_least) in [(RULES, 10), (include_str!("../../config/grafana/order-closer.json"), 15)] {
        let words = text.lines().filter(|line| !line.trim_start().starts_with('#'));
        let words = words.flat_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
        let named: BTreeSet<String> = words.filter(|word| word.starts_with("order_closer_")).map(String::from).collect();
        assert!(named.len() > at_least, "{named:?}");
        assert!(named.is_subset(&known), "{:?}", named.difference(&known));
    }
}

#[test]
fn each_has_its_chapter_in_the_runbook() {
    let runbook = include_str!("../../docs/runbook.md");
    let chapters: BTreeSet<&str> = runbook.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert_eq!(chapters, alerts());
}

/// With promtool, of Prometheus.
#[test]
fn promtool_tries_each_of_them() {
    let tried = std::process::Command::new("promtool").args(["test", "rules", "order-closer.test.yml"]).current_dir(FOLDER).output();
    let tried = tried.expect("promtool is installed (Debian: prometheus)");
    assert!(tried.status.success(), "{}{}", String::from_utf8_lossy(&tried.stdout), String::from_utf8_lossy(&tried.stderr));
    let tests = include_str!("../../config/prometheus/order-closer.test.yml");
    let untried: Vec<&str> = alerts().into_iter().filter(|alert| !tests.contains(&format!("\"{alert}\""))).collect();
    assert!(untried.is_empty(), "{untried:?}");
}

/// A real Prometheus scrapes a daemon that can't close, and says so.
#[tokio::test]
async fn promtool_s_server_fires_one() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let asked = Asked::start(&shop, &redis).await;
    let folder = process::folder();
    let rules = format!("{FOLDER}/order-closer.rules.yml");
    let config = format!(
        "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: [{rules:?}]\nscrape_configs:\n  - job_name: order-closer\n    \
         static_configs: [{{ targets: [{:?}] }}]\n",
        asked.address
    );
    let file = folder.path().join("prometheus.yml");
    std::fs::write(&file, config).unwrap();
    let listen = format!("127.0.0.1:{}", ports::free());
    let mut server = tokio::process::Command::new("prometheus")
        .arg(format!("--config.file={}", file.display()))
        .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
        .arg(format!("--web.listen-address={listen}"))
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("Prometheus is installed (Debian: prometheus)");
    let firing = async || {
        let answer = asked.client.get(format!("http://{listen}/api/v1/alerts")).send().await.ok()?;
        let answer: serde_json::Value = serde_json::from_str(&answer.text().await.ok()?).ok()?;
        let alerts = answer["data"]["alerts"].as_array()?.iter();
        Some(
            alerts
                .filter(|alert| alert["state"] == "firing")
                .filter_map(|alert| alert["labels"]["alertname"].as_str().map(String::from))
                .collect(),
        )
    };
    wait::until("it scrapes and nothing alerts", async || firing().await == Some(BTreeSet::new())).await;
    shop.database.execute("ALTER TABLE orders ADD CONSTRAINT cursed CHECK (status <> 4 OR order_no > 10)").await;
    shop.orders_due_in(1..=10, -1_000).await;
    wait::until("the failures alert", async || firing().await.is_some_and(|alerts| alerts.contains("OrderCloserReleaseFails"))).await;
    server.kill().await.ok();
    asked.daemon.stop().await;
}
