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

/// `node SCRIPT`, or nothing where it can't run.
pub fn node_script(script: &str) -> Option<Command> {
    let place = ready("Node.js", &NODE, Ci::Has)?;
    let mut command = process::mortal("node");
    command.current_dir(place).arg(script);
    Some(command)
}

/// `node drive.mjs CLIENT`.
pub fn node(client: &str) -> Option<Command> {
    let mut command = node_script("drive.mjs")?;
    command.arg(format!("./{client}"));
    Some(command)
}

/// `python SCRIPT`, or nothing where it can't run.
pub fn python_script(script: &str) -> Option<Command> {
    let place = ready("Python", &PYTHON, Ci::Has)?;
    let mut command = process::mortal(place.join("bin/python"));
    command.env("PYTHONDONTWRITEBYTECODE", "1").arg(folder("examples/clients/python").join(script));
    Some(command)
}

/// `python drive.py CLIENT`.
pub fn python(client: &str) -> Option<Command> {
    // What is absolute replaces the folder.
    let mut command = python_script(&folder("tests/clients/drivers/drive.py").display().to_string())?;
    command.arg(folder("examples/clients/python").join(client));
    Some(command)
}

static PHP: Place = LazyLock::new(|| {
    let place = place("php");
    let extensions = "exit(extension_loaded('redis') && extension_loaded('pdo_mysql') ? 0 : 1);";
    run(Path::new("php"), &["-r", extensions], &place)
        .map_err(|error| format!("php with the extensions redis and pdo_mysql is not installed: {error}"))?;
    Ok(place)
});

static LARAVEL: Place = LazyLock::new(|| {
    for part in ["Database", "Redis"] {
        let file = format!("/usr/share/php/Illuminate/{part}/autoload.php");
        fs::metadata(&file).map_err(|error| format!("{file}: {error}"))?;
    }
    PHP.clone()
});

/// `php drive.php FILE`, or nothing where it can't run.
pub fn php(file: &str) -> Option<Command> {
    ready("PHP", &PHP, Ci::Has)?;
    let mut command = process::mortal("php");
    command.arg(folder("tests/clients/drivers/drive.php")).arg(folder("examples/clients/php").join(file));
    Some(command)
}

/// The same of a file that uses Laravel.
pub fn laravel(file: &str) -> Option<Command> {
    ready("PHP with Laravel", &LARAVEL, Ci::Has)?;
    let mut command = php(file)?;
    command.arg(folder("tests/clients/drivers/laravel.php"));
    Some(command)
}

/// The client of timers in PHP.
pub fn php_timers() -> Option<Command> {
    let mut command = php("timers.php")?;
    command.arg(folder("tests/clients/drivers/timers.php"));
    Some(command)
}

/// Where Debian has what is written in Go.
const GO_CODE: &str = "/usr/share/gocode";

static GO: Place = LazyLock::new(|| {
    let place = place("go");
    // A program's files must be in one folder.
    copy(&folder("examples/clients/go"), &place, |_| true);
    copy(&folder("tests/clients/drivers"), &place, |name| name.ends_with(".go"));
    for library in ["github.com/jackc/pgx/v4", "github.com/gomodule/redigo/redis"] {
        let path = Path::new(GO_CODE).join("src").join(library);
        fs::metadata(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let programs =
        [("drive", ["orders.go", "drive.go"].as_slice()), ("timers", &["timers.go", "drive_timers.go"]), ("consumer", &["consumer.go"])];
    for (program, files) in programs {
        let mut build = Command::new("go");
        build.current_dir(&place).env("GO111MODULE", "off").env("GOPATH", GO_CODE).env("GOFLAGS", "").env("GOCACHE", place.join("cache"));
        let built = build.args(["build", "-o", program]).args(files).output().map_err(|error| format!("go: {error}"))?;
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    }
    Ok(place)
});

/// The client in Go, built, or nothing where it can't be.
pub fn go() -> Option<Command> {
    Some(process::mortal(ready("Go", &GO, Ci::Has)?.join("drive")))
}

/// The client of timers in Go, likewise.
pub fn go_timers() -> Option<Command> {
    Some(process::mortal(ready("Go", &GO, Ci::Has)?.join("timers")))
}

/// The reader of the stream in Go, likewise.
pub fn go_consumer() -> Option<Command> {
    Some(process::mortal(ready("Go", &GO, Ci::Has)?.join("consumer")))
}

static JAVA: Place = LazyLock::new(|| {
    let (place, clients) = (place("java"), folder("examples/clients/java"));
    once(&place, &clients.join("pom.xml"), || {
        let (pom, lib) = (clients.join("pom.xml").display().to_string(), format!("-DoutputDirectory={}/lib", place.display()));
        run(Path::new("mvn"), &["-q", "-B", "-f", &pom, "dependency:copy-dependencies", &lib], &place)
    })?;
    let (client, driver) = (clients.join("Orders.java"), folder("tests/clients/drivers/Drive.java"));
    let sources = [client, driver].map(|source| source.display().to_string());
    run(Path::new("javac"), &["-cp", "lib/*", "-d", ".", &sources[0], &sources[1]], &place).unwrap_or_else(|error| panic!("{error}"));
    Ok(place)
});

/// `java Drive MODE`, or nothing where it can't run.
pub fn java(mode: &str) -> Option<Command> {
    let place = ready("Java", &JAVA, Ci::MayLack)?;
    let mut command = process::mortal("java");
    command.current_dir(place).args(["-cp", ".:lib/*", "Drive", mode]);
    Some(command)
}

/// What Debian has of Spring, and MariaDB's driver.
const SPRING_JARS: [&str; 10] = [
    "spring3-core",
    "spring3-beans",
    "spring3-context",
    "spring3-aop",
    "spring3-expression",
    "spring3-jdbc",
    "spring3-transaction",
    "aopalliance",
    "commons-logging",
    "mariadb-java-client",
];

/// With them the folder itself.
fn spring_classpath() -> String {
    SPRING_JARS.iter().map(|name| format!("/usr/share/java/{name}.jar:")).collect::<String>() + "."
}

static SPRING: Place = LazyLock::new(|| {
    let place = place("spring");
    for name in SPRING_JARS {
        let file = format!("/usr/share/java/{name}.jar");
        fs::metadata(&file).map_err(|error| format!("{file}: {error}"))?;
    }
    let (drivers, client) = (folder("tests/clients/drivers/spring"), folder("examples/clients/java/OrderService.java"));
    copy(&drivers, &place, |_| true);
    fs::copy(client, place.join("OrderService.java")).expect("a file can be copied");
    let compile = format!("exec javac --release 11 -cp {} -d . *.java", spring_classpath());
    run(Path::new("sh"), &["-c", &compile], &place).unwrap_or_else(|error| panic!("{error}"));
    Ok(place)
});

/// `java DriveSpring`, or nothing where it can't run.
pub fn spring() -> Option<Command> {
    let place = ready("Java with Spring", &SPRING, Ci::Has)?;
    let mut command = process::mortal("java");
    command.current_dir(place).args(["-cp", &spring_classpath(), "DriveSpring"]);
    Some(command)
}

/// MariaDB's driver where Debian has it.
const MARIADB: &str = "/usr/share/java/mariadb-java-client.jar";

static JAVA_TIMERS: Place = LazyLock::new(|| {
    let place = place("java-timers");
    fs::metadata(MARIADB).map_err(|error| format!("{MARIADB} (Debian: libmariadb-java): {error}"))?;
    run(Path::new("javac"), &["-version"], &place)?;
    let sources =
        ["examples/clients/java/Timers.java", "tests/clients/drivers/DriveTimers.java"].map(|file| folder(file).display().to_string());
    run(Path::new("javac"), &["-cp", MARIADB, "-d", ".", &sources[0], &sources[1]], &place).unwrap_or_else(|error| panic!("{error}"));
    Ok(place)
});

/// The client of timers in Java.
pub fn java_timers() -> Option<Command> {
    let place = ready("Java with MariaDB's driver", &JAVA_TIMERS, Ci::Has)?;
    let mut command = process::mortal("java");
    command.current_dir(place).args(["-cp", &format!(".:{MARIADB}"), "DriveTimers"]);
    Some(command)
}

/// PostgreSQL's driver where Debian has it.
const JDBC: &str = "/usr/share/java/postgresql.jar";

static JDK: Place = LazyLock::new(|| {
    let (place, source) = (place("jdk"), folder("examples/clients/java/Receiver.java").display().to_string());
    fs::metadata(JDBC).map_err(|error| format!("{JDBC} (Debian: libpostgresql-jdbc-java): {error}"))?;
    run(Path::new("javac"), &["-d", ".", &source], &place)?;
    Ok(place)
});

/// `java CLASS` of what needs a JDK and PostgreSQL's driver alone, or nothing where it can't run.
pub fn jdk(class: &str) -> Option<Command> {
    let place = ready("Java without libraries", &JDK, Ci::Has)?;
    let mut command = process::mortal("java");
    command.current_dir(place).args(["-cp", &format!(".:{JDBC}"), class]);
    Some(command)
}

/// Kafka's consumer, with as much of kafka-python as it uses; or nothing where it can't run.
pub fn kafka() -> Option<Command> {
    let mut command = python_script("hints_kafka.py")?;
    command.env("PYTHONPATH", folder("tests/clients/drivers/hints"));
    Some(command)
}

static HINTS: Place = LazyLock::new(|| {
    let place = place("hints");
    run(Path::new("javac"), &["-version"], &place)?;
    copy(&folder("tests/clients/drivers/hints"), &place, |name| name.ends_with(".java"));
    copy(&folder("examples/clients/java"), &place, |name| name.starts_with("Hints"));
    run(Path::new("sh"), &["-c", "exec javac -d . *.java"], &place).unwrap_or_else(|error| panic!("{error}"));
    Ok(place)
});

/// `java DRIVER` of a consumer in Java, with as much of its broker's client as it uses; or nothing where it can't run.
pub fn hints(driver: &str) -> Option<Command> {
    let place = ready("Java without libraries", &HINTS, Ci::Has)?;
    let mut command = process::mortal("java");
    command.current_dir(place).args(["-cp", ".", driver]);
    Some(command)
}

/// Whether CI has what a language needs.
#[derive(PartialEq)]
enum Ci {
    /// From npm, PyPI or Debian: where that fails in CI, the test fails.
    Has,
    /// From Maven Central, which not every CI may reach.
    MayLack,
}

/// Leaves a language out that is not there, and says so.
fn ready(language: &str, place: &'static Place, ci: Ci) -> Option<&'static Path> {
    match LazyLock::force(place) {
        Ok(place) => Some(place),
        Err(reason) => {
            let may_lack = ci == Ci::MayLack || std::env::var("CI").as_deref() != Ok("true");
            assert!(may_lack, "the clients in {language} can't be tried: {reason}");
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
