//! The results: a JSON file that keeps what other runs measured, and from it tables and plots.

use std::{fs, path::Path, time::Instant};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    machine::Machine,
    options::Options,
    scenarios::{
        ask::Ask, burst::Burst, cost::Cost, doors::Doors, fan_in::FanIn, outbox::Outbox, peers::Peers, punctual::Punctual,
        recovery::Recovery, shards::Shards, steady::Steady, timers::Timers, trouble::Trouble, watched::Watched,
    },
    table::Table,
};

/// What a scenario measured.
pub trait Figures: Serialize + DeserializeOwned {
    /// The heading of its chapter.
    const TITLE: &str;
    /// What was measured and how, in a few sentences.
    const ABOUT: &str;
    /// Its figures as tables.
    fn tables(&self) -> Vec<Table>;
    /// What they ought to be.
    fn goals(&self) -> Vec<Goal>;
    /// What else is to be known of them, a paragraph each.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
    /// Draws them to a file in the folder; returns its name and what it shows.
    fn plot(&self, folder: &Path) -> (&'static str, &'static str);
}

/// A figure and what it ought to be.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Goal {
    what: String,
    figure: f64,
    unit: String,
    goal: String,
    met: bool,
}

impl Goal {
    /// One that may not be exceeded.
    pub fn at_most(what: impl Into<String>, figure: f64, limit: f64, unit: &str) -> Self {
        Self { what: what.into(), figure, unit: unit.into(), goal: format!("≤ {limit}"), met: figure <= limit }
    }

    /// One that must be reached.
    pub fn at_least(what: impl Into<String>, figure: f64, limit: f64, unit: &str) -> Self {
        Self { what: what.into(), figure, unit: unit.into(), goal: format!("≥ {limit}"), met: figure >= limit }
    }
}

/// A scenario that was run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Ran<F: Figures> {
    date: String,
    minutes: f64,
    options: Options,
    machine: Machine,
    goals: Vec<Goal>,
    figures: F,
}

impl<F: Figures> Ran<F> {
    /// What was measured since then.
    pub fn new(began: Instant, options: &Options, machine: &Machine, figures: F) -> Self {
        Self {
            date: humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string(),
            minutes: (began.elapsed().as_secs_f64() / 6.0).round() / 10.0,
            options: options.clone(),
            machine: machine.clone(),
            goals: figures.goals(),
            figures,
        }
    }

    fn chapter(&self, folder: &Path) -> String {
        let (file, shows) = self.figures.plot(folder);
        let mut text = format!("## {}\n\n{}\n\n![{shows}]({file})\n", F::TITLE, F::ABOUT);
        for table in self.figures.tables() {
            text += &format!("\n{table}");
        }
        for note in self.figures.notes() {
            text += &format!("\n{note}\n");
        }
        let mut goals = Table::new(["", "figure", "goal", "met"]);
        for Goal { what, figure, unit, goal, met } in &self.goals {
            let met = if *met { "yes" } else { "**no**" };
            let (figure, goal) = (format!("{figure:.2} {unit}"), format!("{goal} {unit}"));
            goals.row([what.clone(), figure.trim_end().into(), goal.trim_end().into(), met.into()]);
        }
        text += &format!("\n{goals}\nMeasured {} in {} minutes on {}\n", self.date, self.minutes, self.machine);
        text
    }
}

/// Everything that was measured, in this run or in others before it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Results {
    /// The pending orders, beside other ways.
    pub punctual: Option<Ran<Punctual>>,
    /// The flash sale.
    pub burst: Option<Ran<Burst>>,
    /// The steady rates.
    pub steady: Option<Ran<Steady>>,
    /// The teams of daemons.
    pub fan_in: Option<Ran<FanIn>>,
    /// Waiting.
    pub cost: Option<Ran<Cost>>,
    /// The outages.
    pub recovery: Option<Ran<Recovery>>,
    /// Events that wait.
    pub outbox: Option<Ran<Outbox>>,
    /// Trouble that stays where it is.
    pub trouble: Option<Ran<Trouble>>,
    /// Tables and databases.
    pub shards: Option<Ran<Shards>>,
    /// Hints through doors.
    pub doors: Option<Ran<Doors>>,
    /// Timers.
    pub timers: Option<Ran<Timers>>,
    /// Scrapes and a page.
    pub watched: Option<Ran<Watched>>,
    /// Other products.
    pub peers: Option<Ran<Peers>>,
    /// The question before closing.
    pub ask: Option<Ran<Ask>>,
}

impl Results {
    /// What the folder has from earlier runs.
    ///
    /// # Errors
    /// Names the file that can't be understood.
    pub fn load(folder: &Path) -> Result<Self, String> {
        let file = folder.join("results.json");
        if !file.exists() {
            return Ok(Self::default());
        }
        let text = fs::read_to_string(&file).map_err(|error| format!("{} can't be read: {error}", file.display()))?;
        serde_json::from_str(&text).map_err(|error| {
            format!("{} is not what this version writes ({error}); delete it, or name another folder with --out", file.display())
        })
    }

    /// Writes the figures, the tables and the plots.
    ///
    /// # Errors
    /// Names the file that can't be written.
    pub fn write(&self, folder: &Path) -> Result<(), String> {
        fs::create_dir_all(folder).map_err(|error| format!("{} can't be made: {error}", folder.display()))?;
        let json = serde_json::to_string_pretty(self).map_err(|error| error.to_string())? + "\n";
        for (name, text) in [("results.json", json), ("results.md", self.markdown(folder))] {
            fs::write(folder.join(name), text).map_err(|error| format!("{} can't be written: {error}", folder.join(name).display()))?;
        }
        Ok(())
    }

    /// All chapters; draws the plots on the way.
    fn markdown(&self, folder: &Path) -> String {
        let Self { punctual, burst, steady, fan_in, cost, recovery, outbox, trouble, peers, ask, shards, doors, timers, watched } = self;
        let chapters = [
            punctual.as_ref().map(|ran| ran.chapter(folder)),
            burst.as_ref().map(|ran| ran.chapter(folder)),
            steady.as_ref().map(|ran| ran.chapter(folder)),
            fan_in.as_ref().map(|ran| ran.chapter(folder)),
            cost.as_ref().map(|ran| ran.chapter(folder)),
            recovery.as_ref().map(|ran| ran.chapter(folder)),
            outbox.as_ref().map(|ran| ran.chapter(folder)),
            trouble.as_ref().map(|ran| ran.chapter(folder)),
            peers.as_ref().map(|ran| ran.chapter(folder)),
            ask.as_ref().map(|ran| ran.chapter(folder)),
            shards.as_ref().map(|ran| ran.chapter(folder)),
            doors.as_ref().map(|ran| ran.chapter(folder)),
            timers.as_ref().map(|ran| ran.chapter(folder)),
            watched.as_ref().map(|ran| ran.chapter(folder)),
        ];
        let chapters: Vec<String> = chapters.into_iter().flatten().collect();
        format!("# Benchmarks\n\nWritten by `make bench`.\n\n{}", chapters.join("\n\n"))
    }
}

/// The middle one, or the mean of the two in the middle.
pub fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let half = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) { f64::midpoint(sorted[half - 1], sorted[half]) } else { sorted[half] }
}
