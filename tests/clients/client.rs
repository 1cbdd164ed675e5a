//! A client's process: told what to do line by line.

use std::{
    io::{BufRead, BufReader, Write},
    process::{ChildStdin, Command, Stdio},
    time::{Duration, Instant},
};

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::support::{
    process::{self, Process},
    wait,
};

/// What stands before an answer, so that what a library prints is none.
const ANSWER: &str = "= ";

/// A client that runs; dropping it kills it.
pub struct Client {
    stdin: ChildStdin,
    answers: UnboundedReceiver<String>,
    _process: Process,
}

/// What a client answered, and after how long.
#[derive(Debug)]
pub struct Answer {
    /// `true`, `false`, `done`, or what went wrong.
    pub text: String,
    /// How long it took.
    pub took: Duration,
}

impl Client {
    /// Starts a driver of `tests/clients/drivers`. It runs eight hours from the servers, to show that no zone slips in.
    pub fn start(mut command: Command) -> Self {
        command.env("TZ", "Asia/Shanghai").stdin(Stdio::piped()).stdout(Stdio::piped());
        let process = Process::spawn("a client", command);
        let (stdin, stdout) = process.with(|child| (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe")));
        let (sender, answers) = unbounded_channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                match line.strip_prefix(ANSWER) {
                    Some(answer) => drop(sender.send(answer.to_owned())),
                    None => eprintln!("the client printed: {line}"),
                }
            }
        });
        Self { stdin, answers, _process: process }
    }

    /// Has it do something, and waits for its answer, for as long as anything may take on a busy machine.
    pub async fn answer(&mut self, line: &str) -> Answer {
        let started = Instant::now();
        writeln!(self.stdin, "{line}").and_then(|()| self.stdin.flush()).unwrap_or_else(|error| panic!("{line}: {error}"));
        let text = tokio::time::timeout(wait::LIMIT, self.answers.recv()).await;
        let text = text.unwrap_or_else(|_| panic!("{line}: no answer within {:?}", wait::LIMIT));
        Answer { text: text.unwrap_or_else(|| panic!("{line}: the client ended")), took: started.elapsed() }
    }

    /// Has it do something that it must be able to do; what it returned.
    pub async fn call(&mut self, line: &str) -> String {
        let answer = self.answer(line).await;
        assert!(["true", "false", "done"].contains(&answer.text.as_str()), "{line}: {answer:?}");
        answer.text
    }
}

/// The folder of the clients, or of their drivers.
pub fn folder(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Runs a program to its end; what it said, if it failed.
pub fn run(program: &std::path::Path, arguments: &[&str], folder: &std::path::Path) -> Result<(), String> {
    let mut command = process::mortal(program);
    command.args(arguments).current_dir(folder);
    let output = command.output().map_err(|error| format!("{}: {error}", program.display()))?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    output.status.success().then_some(()).ok_or_else(|| format!("{} {arguments:?} ({}):\n{said}", program.display(), output.status))
}
