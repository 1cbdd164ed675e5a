//! What is installed: the Debian package, and `order-closer-ctl`, which runs a command as the daemon runs. `make package-test` installs
//! the package; nothing here changes the machine.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use nix::unistd::{Uid, geteuid};

use super::files::{read, root};
use crate::support::{Database, Kind, Shop, process};

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

/// The program without what is for debuggers, which would take a minute to compress.
fn stripped(folder: &Path) -> PathBuf {
    let program = folder.join("order-closer");
    run(Command::new("strip").arg("-o").arg(&program).arg(env!("CARGO_BIN_EXE_order-closer")));
    program
}

#[test]
fn package_is_made_twice_the_same_and_has_it_all() {
    if Command::new("dpkg-deb").arg("--version").output().is_err() {
        eprintln!("dpkg-deb is not installed; left out");
        return;
    }
    let folder = process::folder();
    let program = stripped(folder.path());
    let make = |name: &str| {
        let mut command = Command::new(root().join("packaging/deb.sh"));
        command.arg(&program).arg(folder.path().join(name)).envs([("SOURCE_DATE_EPOCH", "1700000000"), ("COMPRESSION", "none")]);
        PathBuf::from(String::from_utf8(run(&mut command).stdout).expect("a path").trim())
    };
    let (one, other) = (make("one"), make("other"));
    assert!(fs::read(&one).expect("a package") == fs::read(&other).expect("a package"), "two packages of the same input differ");

    let unpacked = folder.path().join("unpacked");
    run(Command::new("dpkg-deb").arg("-R").arg(&one).arg(&unpacked));
    for file in [
        "usr/bin/order-closer",
        "usr/sbin/order-closer-ctl",
        "usr/lib/systemd/system/order-closer.service",
        "usr/lib/systemd/system/order-closer@.service",
        "usr/lib/systemd/system/order-closer-reconcile.timer",
        "usr/lib/systemd/system/order-closer-deliver.timer",
        "usr/share/man/man1/order-closer.1.gz",
        "usr/share/man/man1/order-closer-dead-letters-retry.1.gz",
        "usr/share/man/man8/order-closer-ctl.8.gz",
        "usr/share/bash-completion/completions/order-closer",
        "usr/share/order-closer/order-closer.schema.json",
        "usr/share/doc/order-closer/examples/shops/woocommerce.toml",
        "usr/share/doc/order-closer/examples/shops/woocommerce/order-closer.php",
        "usr/share/doc/order-closer/examples/shops/mall/UnpaidOrderKeys.java",
        "usr/share/doc/order-closer/examples/clients/python/receiver.py",
        "usr/share/doc/order-closer/copyright",
        "etc/order-closer/order-closer.toml",
    ] {
        assert!(unpacked.join(file).exists(), "{file} is missing");
    }
    assert_eq!(read(&unpacked.join("DEBIAN/conffiles")), "/etc/order-closer/order-closer.toml\n");
    // Nothing that is installed leads to where it would stand if it were installed by hand.
    for file in super::files::files(&unpacked.join("usr/lib")).into_iter().chain([unpacked.join("usr/sbin/order-closer-ctl")]) {
        let text = read(&file);
        assert!(!text.contains("/usr/local/"), "{}:\n{text}", file.display());
    }
}

/// The wrapper, told of another program, another folder, and a user who is here.
struct Wrapper {
    folder: tempfile::TempDir,
}

impl Wrapper {
    fn new(program: &str) -> Self {
        let folder = process::folder();
        let (settings, state) = (folder.path().join("settings"), folder.path().join("state"));
        fs::create_dir(&settings).expect("a folder can be made");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(folder.path(), open).expect("it is ours");
        let mut script = read(&root().join("config/order-closer-ctl"));
        for (before, after) in [
            ("program=/usr/local/bin/order-closer\n", format!("program={program}\n")),
            ("settings=/etc/order-closer\n", format!("settings={}\n", settings.display())),
            ("state=/var/lib/order-closer\n", format!("state={}\n", state.display())),
            ("user=order-closer\n", "user=nobody\n".into()),
        ] {
            assert!(script.contains(before), "{before}");
            script = script.replacen(before, &after, 1);
        }
        fs::write(folder.path().join("ctl"), script).expect("a file can be written");
        Self { folder }
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.path().join("settings").join(name), text).expect("a file can be written");
    }

    fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let mut command = Command::new("sh");
        command.arg(self.folder.path().join("ctl")).args(arguments).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        let output = command.output().expect("sh can be started");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }
}

fn is_root() -> bool {
    let is_root = geteuid() == Uid::from_raw(0);
    if !is_root {
        eprintln!("only root can act for another user; left out");
    }
    is_root
}

#[test]
fn the_wrapper_hands_over_variables_as_systemd_would() {
    if !is_root() {
        return;
    }
    let wrapper = Wrapper::new("/usr/bin/env");
    // A program that shows its user, its folder, its variables and its arguments.
    let program = wrapper.folder.path().join("show");
    fs::write(&program, "#!/bin/sh\nid -un; pwd; env | grep ^ORDER_ | sort; printf '<%s>\\n' \"$@\"\n").expect("a file can be written");
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("it is ours");
    let script = wrapper.folder.path().join("ctl");
    let text = read(&script).replace("program=/usr/bin/env\n", &format!("program={}\n", program.display()));
    fs::write(&script, text).expect("a file can be written");
    wrapper.write(
        "secrets.env",
        "# a comment\n; another\n\nORDER_A='postgres://u:p$w`d \"x\"\\n@h/d'\n  ORDER_B=\"a\\\"b\\$c\\nd\"  \nORDER_C=plain\\ text # none\nORDER_D=\nORDER_E=a=b&c;rm\n",
    );
    let (code, shown, said) = wrapper.run(&["check", "--json", "a b"]);
    let folder = wrapper.folder.path().display();
    let expected = format!(
        "nobody\n{folder}/state\nORDER_A=postgres://u:p$w`d \"x\"\\n@h/d\nORDER_B=a\"b$c\\nd\nORDER_C=plain text # none\nORDER_D=\nORDER_E=a=b&c;rm\n\
         <--config>\n<{folder}/settings/order-closer.toml>\n<check>\n<--json>\n<a b>\n"
    );
    assert_eq!((code, shown.as_str(), said.as_str()), (Some(0), expected.as_str(), ""));

    wrapper.write("shop-de.env", "ORDER_F=1\n");
    let (_, shown, _) = wrapper.run(&["@shop-de", "check"]);
    assert_eq!(shown, format!("nobody\n{folder}/state/shop-de\nORDER_F=1\n<--config>\n<{folder}/settings/shop-de.toml>\n<check>\n"));
    // What would be understood otherwise than systemd does is refused, and not shown.
    for wrong in ["ORDER_G='tell'nobody", "ORDER_G='tell'nobody'", "tell-nobody", "ORDER-G=tell", "ORDER_G=tell\\", "ORDER_G=\"te\"ll\""] {
        wrapper.write("shop-de.env", &format!("ORDER_F=1\n{wrong}\n"));
        let (code, shown, said) = wrapper.run(&["@shop-de", "check"]);
        assert_eq!((code, shown.as_str()), (Some(78), ""), "{wrong}");
        assert!(said.contains("line 2 of ") && !said.contains("tell"), "{said}");
    }
    assert_eq!(wrapper.run(&[]).0, Some(64));
}

/// With the real program, which may be read by root alone where the tests run: a copy does.
#[tokio::test]
async fn the_wrapper_closes_orders_as_the_daemon_would() {
    if !is_root() {
        return;
    }
    let shop = Shop::open(Kind::Postgres).await;
    shop.order(1, -60_000).await;
    let Database { url, .. } = &shop.database;
    let programs = process::folder();
    fs::set_permissions(programs.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("it is ours");
    let program = programs.path().join("order-closer");
    fs::copy(env!("CARGO_BIN_EXE_order-closer"), &program).expect("the program can be copied");
    let wrapper = Wrapper::new(&program.display().to_string());
    let mut table: toml::Table = shop.settings().toml().parse().expect("settings are TOML");
    table["database"].as_table_mut().expect("a table").remove("url");
    wrapper.write("order-closer.toml", &table.to_string());
    wrapper.write("secrets.env", &format!("ORDER_CLOSER_DATABASE__URL='{url}'\n"));
    let (code, shown, said) = wrapper.run(&["reconcile", "--json"]);
    assert_eq!(code, Some(0), "{shown}{said}");
    assert_eq!(shop.status(1).await, 4);
}
