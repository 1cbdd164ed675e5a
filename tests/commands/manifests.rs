//! Container files and manifests: every setting, path, port and command in them is one that the program has. No container was started
//! for that: docs/install.md says so.

use std::collections::BTreeSet;

use serde_json::Value;

use super::files::{read, root};
use crate::support::{Daemon, Database, Kind, OneShot, Redis, Settings, process, wait};

fn yaml(path: &str) -> Value {
    serde_yaml_ng::from_str(&read(&root().join(path))).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().unwrap_or_else(|| panic!("no list: {list}")).iter().map(|text| text.as_str().expect("a text")).collect()
}

/// The program takes these arguments.
async fn assert_command(arguments: &[&str]) {
    let help = OneShot::new(&[arguments, &["--help"]].concat()).run().await;
    assert_eq!(help.code, Some(0), "{arguments:?}: {help:#?}");
}

/// A value of the image's last stage.
fn of_image(instruction: &str) -> String {
    let dockerfile = read(&root().join("Dockerfile"));
    let line = dockerfile.lines().rev().find_map(|line| line.strip_prefix(instruction)?.strip_prefix(' ').map(str::to_owned));
    line.unwrap_or_else(|| panic!("the Dockerfile has no {instruction}"))
}

/// The configuration as it is mounted, with its secrets in a folder of the test's own, and these in them.
fn mounted(path: &str, secrets_at: &str, folder: &std::path::Path, secrets: &[(&str, &str)]) -> Settings {
    for (name, text) in secrets {
        std::fs::write(folder.join(name), text).expect("a file can be written");
    }
    let text = read(&root().join(path));
    assert!(text.contains(secrets_at), "{path} has no secrets from {secrets_at}");
    Settings::new().add(&text.replace(secrets_at, &folder.display().to_string()))
}

#[tokio::test]
async fn the_image_has_what_the_manifests_call() {
    let program = "/usr/bin/order-closer";
    assert_eq!(of_image("ENTRYPOINT"), format!("[\"{program}\"]"));
    assert!(of_image("COPY --from=build").ends_with(program));
    let command: Vec<String> = serde_json::from_str(&of_image("CMD")).expect("a list");
    assert_command(&command.iter().map(String::as_str).collect::<Vec<_>>()).await;
    // The base has no libraries.
    assert!(of_image("FROM").starts_with("gcr.io/distroless/static"));
    assert!(read(&root().join("Dockerfile")).contains("crt-static"));
    let toolchain = read(&root().join("Cargo.toml")).lines().find_map(|line| line.strip_prefix("rust-version = ")).map(str::to_owned);
    let toolchain = toolchain.expect("a version").trim_matches('"').to_owned();
    let image = read(&root().join("Dockerfile")).lines().find_map(|line| line.strip_prefix("FROM rust:")).map(str::to_owned);
    let minor = |version: &str| version.split(['.', '-']).nth(1).and_then(|minor| minor.parse::<u32>().ok()).expect("a version");
    assert!(minor(&image.expect("an image with Rust")) >= minor(&toolchain));

    let compose = yaml("compose.yaml");
    let daemon = &compose["services"]["order-closer"];
    assert_command(&texts(&daemon["command"])).await;
    let check = texts(&daemon["healthcheck"]["test"]);
    assert_eq!(check[..2], ["CMD", program]);
    assert_command(&check[2..]).await;
    let secrets: BTreeSet<&str> = texts(&daemon["secrets"]).into_iter().collect();
    let settings = read(&root().join("config/compose/order-closer.toml"));
    for secret in secrets {
        assert!(settings.contains(&format!("\"/run/secrets/{secret}\"")), "{secret}");
    }
    for service in compose["services"].as_object().expect("a table").values() {
        for volume in texts(&service["volumes"]).into_iter().filter(|volume| volume.starts_with("./")) {
            assert!(root().join(volume.split(':').next().expect("a path")).exists(), "{volume}");
        }
    }
    for secret in compose["secrets"].as_object().expect("a table").values() {
        assert!(root().join(secret["file"].as_str().expect("a path")).exists(), "{secret}");
    }
}

/// From the shipped files alone: the user's rights, the index, Redis by its own file, an order that closes, a daemon that is healthy.
#[tokio::test]
async fn what_compose_sets_up_closes_orders() {
    let database = Database::fresh(Kind::Postgres).await;
    let name = database.url.rsplit('/').next().expect("a name");
    // The server is shared, and so are its users.
    let role = name.replace("test_", "order_closer_").chars().take(40).collect::<String>();
    database
        .execute(
            &read(&root().join("config/compose/orders.sql"))
                .replace("ROLE order_closer", &format!("ROLE {role}"))
                .replace("TO order_closer", &format!("TO {role}")),
        )
        .await;
    let url = read(&root().join("config/compose/database-url"));
    let address = database.url.split('@').nth(1).expect("an address");
    let url = url.trim().replace("postgres:5432/shop", address).replace("//order_closer:", &format!("//{role}:"));
    assert!(url.ends_with(address), "{url}");
    let redis = Redis::options().with_notifications().config("appendonly yes").start();
    let folder = process::folder();
    let port = crate::support::ports::free();
    let settings =
        mounted("config/compose/order-closer.toml", "/run/secrets", folder.path(), &[("database-url", &url), ("redis-url", &redis.url())]);
    let settings = settings.set("http.listen", format!("127.0.0.1:{port}"));
    let check = crate::support::order_closer(&settings, &["check"]).await;
    assert_eq!(check.code, Some(0), "{check:#?}");
    let daemon = Daemon::start(&settings);
    wait::until("the daemon is healthy", async || crate::support::order_closer(&settings, &["healthcheck"]).await.code == Some(0)).await;
    database.execute("INSERT INTO orders VALUES (1001, 0, now() + interval '1 s'), (1002, 1, now())").await;
    wait::until_eq("1001 is closed", 4, async || database.number("SELECT status FROM orders WHERE order_no = 1001").await).await;
    assert_eq!(database.number("SELECT status FROM orders WHERE order_no = 1002").await, 1);
    daemon.stop().await;
    database.execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

#[tokio::test]
async fn kubernetes_asks_what_the_daemon_answers() {
    let folder = process::folder();
    let secrets = [("database-url", "postgres://closer@h/shop"), ("redis-url", "redis://h/0")];
    let settings = mounted("config/kubernetes/order-closer.toml", "/run/secrets/order-closer", folder.path(), &secrets);
    let shown = super::config::shown(&OneShot::with(&settings, &["config", "--json"]).run().await.expect_code(0));
    let port: u64 = shown["http.listen"].0.trim_matches('"').rsplit_once(':').expect("a port").1.parse().expect("a number");
    let openapi: Value = serde_json::from_str(&read(&root().join("src/http/openapi.json"))).expect("JSON");

    let deployment = yaml("config/kubernetes/deployment.yaml");
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(container["ports"][0]["containerPort"], port);
    for probe in ["livenessProbe", "readinessProbe"] {
        let path = container[probe]["httpGet"]["path"].as_str().expect("a path");
        assert!(openapi["paths"].get(path).is_some(), "{path}");
        assert_eq!(container[probe]["httpGet"]["port"], container["ports"][0]["name"]);
    }
    let annotations = &deployment["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(annotations["prometheus.io/port"], port.to_string());
    assert!(openapi["paths"].get(annotations["prometheus.io/path"].as_str().expect("a path")).is_some());
    assert_eq!(shown["shutdown.timeout"].0, "\"10s\"");
    assert!(pod["terminationGracePeriodSeconds"].as_u64() > Some(10));

    let jobs = ["cronjob", "deliver"].map(|name| yaml(&format!("config/kubernetes/{name}.yaml")));
    for job in &jobs {
        assert_eq!(job["spec"]["concurrencyPolicy"], "Forbid");
        assert!(job["spec"]["jobTemplate"]["spec"]["activeDeadlineSeconds"].as_u64() > Some(50));
    }
    let user = of_image("USER");
    for pod in [pod].into_iter().chain(jobs.iter().map(|job| &job["spec"]["jobTemplate"]["spec"]["template"]["spec"])) {
        let container = &pod["containers"][0];
        assert_command(&texts(&container["args"])).await;
        assert_eq!(format!("{}:{}", pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsGroup"]), user);
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
        let places: Vec<&Value> = container["volumeMounts"].as_array().expect("a list").iter().map(|mount| &mount["mountPath"]).collect();
        assert_eq!(places, ["/etc/order-closer", "/run/secrets/order-closer"]);
    }
    let listed: Vec<Value> = serde_json::from_value(yaml("config/kubernetes/kustomization.yaml")["resources"].clone()).expect("a list");
    assert_eq!(listed, ["deployment.yaml", "cronjob.yaml"]);
}
