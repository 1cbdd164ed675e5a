//! A client's compiler or interpreter, and what the client depends on: fetched once by the language's own package manager,
//! in the versions that lie beside the client, and kept under `target/clients`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

use super::client::{folder, run};
use crate::support::process;

/// Where a language's dependencies lie; or why they don't.
type Place = LazyLock<Result<PathBuf, String>>;

static NODE: Place = LazyLock::new(|| {
    let place = place("node");
    let (clients, drivers) = (folder("examples/clients/node"), folder("tests/clients/drivers"));
    // Modules are looked for beside the file that imports them.
    copy(&clients, &place, |_| true);
    copy(&drivers, &place, |name| name.ends_with(".mjs"));
    once(&place, &clients.join("package-lock.json"), || {
        run(Path::new("npm"), &["ci", "--no-audit", "--no-fund", "--ignore-scripts"], &place)
    })?;
    Ok(place)
});

static PYTHON: Place = LazyLock::new(|| {
    let (place, wanted) = (place("python"), folder("examples/clients/python/requirements.txt"));
    once(&place, &wanted, || {
        run(Path::new("python3"), &["-m", "venv", "."], &place)?;
        run(&place.join("bin/pip"), &["install", "--quiet", "-r", &wanted.display().to_string()], &place)
    })?;
    Ok(place)
});

/// `node drive.mjs CLIENT`, or another script of the drivers; nothing where it can't run.
pub fn node(file: &str) -> Option<Command> {
    let place = ready("Node.js", &NODE)?;
    let mut command = process::mortal("node");
    command.current_dir(place);
    if !file.ends_with(".mjs") {
        command.arg("drive.mjs");
    }
    command.arg(format!("./{file}"));
    Some(command)
}

/// `python drive.py FILE`, or nothing where it can't run.
pub fn python(file: &str) -> Option<Command> {
    let place = ready("Python", &PYTHON)?;
    let mut command = process::mortal(place.join("bin/python"));
    command.env("PYTHONDONTWRITEBYTECODE", "1").arg(folder("tests/clients/drivers/drive.py"));
    command.arg(folder("examples/clients/python").join(file));
    Some(command)
}

static PHP: Place = LazyLock::new(|| {
    let place = place("php");
    let extensions = "exit(extension_loaded('redis') && extension_loaded('pdo_mysql') ? 0 : 1);";
    run(Path::new("php"), &["-r", extensions], &place)
        .map_err(|error| format!("php with the extensions redis and pdo_mysql is not installed: {error}"))?;
    Ok(place)
});

/// `php drive.php FILE`, or nothing where it can't run.
pub fn php(file: &str) -> Option<Command> {
    ready("PHP", &PHP)?;
    let mut command = process::mortal("php");
    command.arg(folder("tests/clients/drivers/drive.php")).arg(folder("examples/clients/php").join(file));
    Some(command)
}

/// Leaves a language out that is not there, and says so; but not in CI, where nothing is left out.
fn ready(language: &str, place: &'static Place) -> Option<&'static Path> {
    match LazyLock::force(place) {
        Ok(place) => Some(place),
        Err(reason) => {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "the clients in {language} can't be tried: {reason}");
            eprintln!("the clients in {language} are left out: {reason}");
            None
        }
    }
}

/// A folder of the language's own.
fn place(language: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_BIN_EXE_order-closer")).ancestors().nth(2).expect("target/debug/order-closer");
    let place = target.join("clients").join(language);
    fs::create_dir_all(&place).expect("a folder can be made");
    place
}

/// Does what the list of versions asks for, unless it was done for this very list.
fn once(place: &Path, list: &Path, fetch: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    let (wanted, done) = (fs::read(list).expect("the list lies beside the client"), place.join("fetched"));
    if fs::read(&done).ok().as_ref() != Some(&wanted) {
        fetch()?;
        fs::write(done, wanted).expect("a file can be written");
    }
    Ok(())
}

/// Copies the files with such names.
fn copy(from: &Path, to: &Path, these: impl Fn(&str) -> bool) {
    for entry in fs::read_dir(from).expect("a folder").map(|entry| entry.expect("an entry")) {
        if entry.path().is_file() && these(&entry.file_name().to_string_lossy()) {
            fs::copy(entry.path(), to.join(entry.file_name())).expect("a file can be copied");
        }
    }
}
