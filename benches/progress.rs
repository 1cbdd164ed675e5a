//! What is going on: a bar on a terminal, plain lines elsewhere.

use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

/// Says on standard error what is being measured, and what came of it.
#[derive(Debug)]
pub struct Progress {
    began: Instant,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Begins to count the time.
    pub fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(0);
            let style = ProgressStyle::with_template("[{elapsed_precise}] {prefix} {bar:24} {pos}/{len}  {wide_msg}");
            bar.set_style(style.expect("a template without a mistake"));
            bar.enable_steady_tick(Duration::from_millis(250));
            bar
        });
        Self { began: Instant::now(), bar }
    }

    /// A scenario of so many steps begins.
    pub fn begin(&self, scenario: &str, steps: usize) {
        if let Some(bar) = &self.bar {
            bar.set_prefix(scenario.to_owned());
            bar.set_length(steps as u64);
            bar.set_position(0);
        } else {
            self.line(&format!("{scenario}, {steps} steps"));
        }
    }

    /// Its next step begins.
    pub fn step(&self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.inc(1);
            bar.set_message(what.to_owned());
        } else {
            self.line(&format!("  {what}"));
        }
    }

    /// Something is known.
    pub fn result(&self, what: &str) {
        match &self.bar {
            Some(bar) => bar.println(format!("  {what}")),
            None => self.line(&format!("    {what}")),
        }
    }

    /// Everything is done.
    pub fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn line(&self, text: &str) {
        let seconds = self.began.elapsed().as_secs();
        eprintln!("[{:02}:{:02}] {text}", seconds / 60, seconds % 60);
    }
}
