//! One-shot commands: with environment variables, on a terminal, in a shell, without a configuration file.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use super::{
    daemon::{Finished, PROGRAM, without_foreign_settings},
    process,
    settings::Settings,
    wait,
};

/// A command that runs to its end, such as `reconcile --json`.
#[derive(Debug)]
pub struct OneShot {
    program: PathBuf,
    folder: TempDir,
    arguments: Vec<OsString>,
    environment: Vec<(String, String)>,
    /// How many columns its terminal has, if there is one.
    terminal: Option<u16>,
    shell: Option<String>,
}

impl OneShot {
    /// One with just these arguments, and no `--config` among them.
    #[must_use]
    pub fn new(arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(OsString::from).collect();
        Self { program: PROGRAM.into(), folder: process::folder(), arguments, environment: Vec::new(), terminal: None, shell: None }
    }

    /// The same by another version's program.
    #[must_use]
    pub fn of_program(mut self, program: &Path) -> Self {
        self.program = program.into();
        self
    }

    /// One with these settings in a configuration file.
    #[must_use]
    pub fn with(settings: &Settings, arguments: &[&str]) -> Self {
        let mut one = Self::new(arguments);
        settings.write(&one.config_file());
        let config = ["--config".into(), one.config_file().into_os_string()];
        one.arguments.splice(..0, config);
        one
    }

    /// Its configuration file, whether or not it has one.
    pub fn config_file(&self) -> PathBuf {
        self.folder.path().join("order-closer.toml")
    }

    /// The folder in which it runs.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The same with other arguments.
    #[must_use]
    pub fn arguments(mut self, arguments: &[&str]) -> Self {
        let config = self.arguments.iter().position(|word| word == "--config").map_or(0, |at| at + 2);
        self.arguments.splice(config.., arguments.iter().map(OsString::from));
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Gives it a terminal, whose output is the result's `stdout`: results, logs and progress alike.
    #[must_use]
    pub fn on_terminal(mut self) -> Self {
        self.terminal = Some(120);
        self
    }

    /// The same with one of 80 columns.
    #[must_use]
    pub fn on_narrow_terminal(mut self) -> Self {
        self.terminal = Some(80);
        self
    }

    /// Runs a line of bash instead, in which `order-closer` stands for the command with its arguments.
    #[must_use]
    pub fn in_shell(mut self, line: &str) -> Self {
        self.shell = Some(line.into());
        self
    }

    /// Runs it.
    pub async fn run(&self) -> Finished {
        let output = tokio::time::timeout(wait::LIMIT, self.command().output()).await;
        let output = output
            .unwrap_or_else(|_| panic!("{:?} has not ended after {:?}", self.arguments, wait::LIMIT))
            .expect("the binary can be started");
        Finished {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// The command that would be run, for whoever wants to speak with it.
    pub fn command(&self) -> tokio::process::Command {
        let program = self.program.display();
        let mut command = if let Some(columns) = self.terminal {
            let line = format!("stty cols {columns} rows 40; exec '{program}' {}", self.words());
            let mut command = process::mortal("script");
            command.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm");
            command
        } else if let Some(line) = &self.shell {
            let mut command = process::mortal("bash");
            command.args(["-c", &format!("order-closer() {{ '{program}' {} \"$@\"; }}\n{line}", self.words())]);
            command
        } else {
            let mut command = process::mortal(&self.program);
            command.args(&self.arguments);
            command
        };
        command.current_dir(self.folder.path());
        without_foreign_settings(&mut command);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let mut command = tokio::process::Command::from(command);
        command.kill_on_drop(true);
        command
    }

    /// The arguments, as a shell reads them.
    fn words(&self) -> String {
        let words: Vec<String> = self.arguments.iter().map(|word| format!("'{}'", word.to_string_lossy())).collect();
        assert!(words.iter().all(|word| word.matches('\'').count() == 2), "{words:?} can't be put in quotes");
        words.join(" ")
    }
}
