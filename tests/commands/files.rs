//! The files that are shipped: examples parse and show the defaults, Redis starts from its own.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use order_closer::config::{Config, load};
use toml::{Table, Value};

use crate::support::{ports, process, process::Process, wait};

pub(super) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(super) fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All files below a folder.
pub(super) fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// All but those of containers, whose secrets are mounted there; `manifests` tries those.
fn toml_files() -> Vec<PathBuf> {
    let is_toml = |path: &PathBuf| {
        path.extension().is_some_and(|extension| extension == "toml")
            && !read(path).contains("\"/run/secrets/order-closer/")
            && !path.ends_with("compose/order-closer.toml")
    };
    files(&root().join("config")).into_iter().filter(is_toml).collect()
}

/// The dotted keys of a table, down to what is no table.
fn keys(table: &Table) -> BTreeSet<String> {
    let deeper = |(key, value): (&String, &Value)| match value {
        Value::Table(inner) if !inner.is_empty() => keys(inner).into_iter().map(|inner| format!("{key}.{inner}")).collect(),
        _ => vec![key.clone()],
    };
    table.iter().flat_map(deeper).collect()
}

/// The keys that a file explains, set or commented out, as `section.key`.
fn explained(text: &str) -> BTreeSet<String> {
    let mut section = String::new();
    let mut found = BTreeSet::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']').into();
        }
        let line = line.strip_prefix("# ").unwrap_or(line);
        if let Some((key, _)) = line.split_once(" = ").filter(|(key, _)| key.chars().all(|c| c.is_ascii_lowercase() || c == '_')) {
            found.insert(format!("{section}.{key}"));
        }
    }
    found
}

#[test]
fn every_example_is_a_configuration() {
    let examples = toml_files();
    assert!(!examples.is_empty());
    for example in examples {
        load(Some(&example)).unwrap_or_else(|error| panic!("{}: {error}", example.display()));
    }
}

#[test]
fn the_annotated_file_has_every_setting_with_its_default() {
    let path = root().join("config/order-closer.toml");
    let loaded = load(Some(&path)).unwrap_or_else(|error| panic!("{error}"));
    let table = |config: &Config| Table::try_from(config).expect("a configuration is a table");
    assert_eq!(table(&loaded.config), table(&Config::default()));
    let file: Table = read(&path).parse().expect("TOML");
    let set = keys(&file);
    // The optional ones are there as comments, each with a value that would do. So are those whose defaults depend on
    // another: a copy of the file must not fix them.
    let optional =
        ["redis.ca_file", "database.time_zone", "orders.filter", "close.batch_size", "database.connections", "events.traceparent"];
    for setting in loaded.settings().into_iter().filter(|setting| !optional.contains(&setting.key.as_str())) {
        assert!(set.contains(&setting.key), "{} is not in the file", setting.key);
        assert_eq!(setting.source, path.display().to_string(), "{}", setting.key);
    }
    let explained = explained(&read(&path));
    for key in optional {
        assert!(explained.contains(key) && !set.contains(key), "{key}");
    }
    // Uncommented, they are still a configuration.
    let whole: String = read(&path)
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(rest) if optional.iter().any(|key| rest.starts_with(&format!("{} = ", key.rsplit('.').next().expect("a name")))) => {
                format!("{rest}\n")
            }
            _ => format!("{line}\n"),
        })
        .collect();
    let folder = process::folder();
    std::fs::write(folder.path().join("whole.toml"), whole).expect("a file can be written");
    let loaded = load(Some(&folder.path().join("whole.toml"))).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(loaded.config.orders.filter.as_deref(), Some("deleted = 0"));
    assert!(loaded.config.redis.ca_file.is_some() && loaded.config.database.time_zone.is_some());
}

/// Each unit calls the program as it can be called.
#[test]
fn the_units_call_commands_that_exist() {
    let lines: Vec<String> =
        files(&root().join("config")).iter().flat_map(|path| read(path).lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    let calls: Vec<Vec<&str>> = lines
        .iter()
        .map(|line| line.trim_start_matches("# "))
        .filter_map(|line| line.split_once("order-closer --config /etc/order-closer/order-closer.toml "))
        .map(|(_, rest)| rest.split(" | ").next().expect("a command").split_whitespace().collect())
        .collect();
    assert!(calls.len() >= 3, "{calls:?}");
    for call in calls {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_order-closer"));
        let output = command.args(&call).arg("--help").output().expect("the binary can be started");
        assert!(output.status.success(), "{call:?}: {output:?}");
    }
}

/// systemd itself finds nothing to say against the units, and little that they could still do.
#[test]
fn the_units_are_confined() {
    let analyze = |arguments: &[&str], file: &Path| std::process::Command::new("systemd-analyze").args(arguments).arg(file).output();
    let Ok(version) = std::process::Command::new("systemd-analyze").arg("--version").output() else {
        eprintln!("systemd-analyze is not installed; left out");
        return;
    };
    let folder = process::folder();
    let units = root().join("config/systemd");
    let services = ["order-closer.service", "order-closer-reconcile.service", "order-closer-deliver.service"];
    let timers = ["order-closer-reconcile.timer", "order-closer-deliver.timer"];
    for name in services.into_iter().chain(timers) {
        // With a program that is there.
        let unit = read(&units.join(name)).replace("/usr/local/bin/order-closer", env!("CARGO_BIN_EXE_order-closer"));
        std::fs::write(folder.path().join(name), unit).expect("a file can be written");
    }
    for name in services.into_iter().chain(timers) {
        let verified = analyze(&["verify", "--man=no"], &folder.path().join(name)).expect("it has just been started");
        let said = String::from_utf8_lossy(&verified.stderr);
        assert!(verified.status.success() && !said.contains(name), "{name}: {said}");
    }
    for name in services {
        // Tenths; older versions than 250 can't do this without a running systemd.
        let confined = analyze(&["security", "--offline=true", "--threshold=13", "--no-pager"], &folder.path().join(name));
        let confined = confined.expect("it has just been started");
        let said = String::from_utf8_lossy(&confined.stdout);
        assert!(confined.status.success() || !said.contains("exposure"), "{name}, {}: {said}", String::from_utf8_lossy(&version.stdout));
        assert!(read(&units.join(name)).contains("LimitCORE=0"), "{name}: memory with passwords may be written to a disk");
    }
}

/// Redis starts from the shipped file, and has what the file says.
#[tokio::test]
async fn redis_starts_from_its_file() {
    let folder = process::folder();
    let log = folder.path().join("redis.log");
    let (_redis, port) = ports::with_free("redis-server", |port| {
        let mut command = process::mortal(process::find_program(&["redis-server", "valkey-server"]));
        command.arg(root().join("redis.conf")).args(["--port", &port.to_string(), "--dir"]).arg(folder.path());
        process::log_to(&mut command, &log);
        let redis = Process::spawn("redis-server", command);
        wait::blocking("redis-server is ready", || match redis.ended() {
            Some(status) => Err(format!("{status}\n{}", process::read(&log))),
            None => Ok(process::read(&log).contains("Ready to accept connections")),
        })?;
        Ok((redis, port))
    });
    let commands = crate::support::OneShot::new(&["check", "--json"])
        .env("ORDER_CLOSER_REDIS__URL", &format!("redis://127.0.0.1:{port}"))
        .env("ORDER_CLOSER_REDIS__ENABLE_NOTIFICATIONS", "false")
        .env("ORDER_CLOSER_CONFIG", "/dev/null");
    // There is no database; Redis alone is looked at.
    let report = commands.run().await.expect_code(78).json();
    for name in ["redis", "notifications", "eviction", "persistence", "probe key"] {
        let finding = report["findings"].as_array().and_then(|all| all.iter().find(|finding| finding["name"] == name));
        assert_eq!(finding.map(|finding| &finding["mark"]), Some(&"ok".into()), "{report:#}");
    }
}
