//! Who answers: a person at a terminal, with defaults, or the flags alone.
//!
//! Nothing is written before the last answer, so an interruption leaves nothing behind.

use std::{
    io::{self, IsTerminal},
    sync::Once,
};

use console::{Term, truncate_str};
use dialoguer::{Confirm, Input, Password, Select, theme::ColorfulTheme};

use crate::cli::{Exit, Failure, output::say};

/// The status of a process that an interruption ended, as shells give it.
const INTERRUPTED: i32 = 130;

/// Asks questions, if anybody is there.
pub(super) struct Asker {
    term: Option<Term>,
    theme: ColorfulTheme,
}

/// One possible answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice {
    /// The flag's value.
    pub(super) value: String,
    /// What is said of it.
    pub(super) about: String,
}

impl Choice {
    pub(super) fn new(value: impl Into<String>, about: impl Into<String>) -> Self {
        Self { value: value.into(), about: about.into() }
    }

    /// Both in a line.
    fn line(&self) -> String {
        if self.about.is_empty() { self.value.clone() } else { format!("{}  {}", self.value, self.about) }
    }
}

impl Asker {
    /// At a terminal, where there is one for questions and for answers.
    pub(super) fn new() -> Self {
        let is_attended = io::stdin().is_terminal() && io::stderr().is_terminal();
        let term = is_attended.then(Term::stderr);
        if is_attended {
            tokio::spawn(async {
                if tokio::signal::ctrl_c().await.is_ok() {
                    leave();
                }
            });
        }
        Self { term, theme: ColorfulTheme::default() }
    }

    /// One of these, of which the first is the default; a terminal has the `others`, too. Without one the first is taken if that
    /// `is_clear`; otherwise the error names the flag, what is missing, and what it could be.
    pub(super) fn choose(&self, flag: &str, what: &str, likely: &[Choice], others: &[Choice], is_clear: bool) -> Result<String, Failure> {
        let Some(term) = &self.term else {
            return match likely {
                [first, ..] if is_clear => Ok(first.value.clone()),
                [] => Err(missing(flag, what, others)),
                _ => Err(missing(flag, what, likely)),
            };
        };
        let width = usize::from(term.size().1).saturating_sub(6).max(20);
        let choices: Vec<&Choice> = likely.iter().chain(others).collect();
        let lines: Vec<String> = choices.iter().map(|choice| truncate_str(&choice.line(), width, "…").into_owned()).collect();
        let select = || Select::with_theme(&self.theme).with_prompt(what).items(&lines).default(0).max_length(12).interact_on(term);
        let at = tokio::task::block_in_place(select).map_err(|error| broken(&error))?;
        Ok(choices[at].value.clone())
    }

    /// A text. Without a terminal the error names the flag and what it could be; with `otherwise` that is taken.
    pub(super) fn text(&self, question: &Question<'_>, valid: impl Fn(&str) -> Result<(), String>) -> Result<String, Failure> {
        let Question { flag, what, proposals, default, otherwise } = question;
        let Some(term) = &self.term else {
            return otherwise.map_or_else(|| Err(missing(flag, what, proposals)), |text| Ok(text.to_owned()));
        };
        let mut input = Input::<String>::with_theme(&self.theme)
            .with_prompt(*what)
            .allow_empty(otherwise.is_some_and(str::is_empty))
            .validate_with(|text: &String| valid(text.trim()));
        if let Some(default) = default {
            input = input.default((*default).to_owned());
        }
        let text = tokio::task::block_in_place(|| input.interact_text_on(term)).map_err(|error| broken(&error))?;
        Ok(text.trim().to_owned())
    }

    /// A password, which is not shown; empty where there is none.
    pub(super) fn password(&self, what: &str) -> Result<String, Failure> {
        let Some(term) = &self.term else { return Ok(String::new()) };
        let input = || Password::with_theme(&self.theme).with_prompt(what).allow_empty_password(true).interact_on(term);
        tokio::task::block_in_place(input).map_err(|error| broken(&error))
    }

    /// Yes or no; without a terminal `otherwise`.
    pub(super) fn confirm(&self, what: &str, default: bool, otherwise: bool) -> Result<bool, Failure> {
        let Some(term) = &self.term else { return Ok(otherwise) };
        let confirm = || Confirm::with_theme(&self.theme).with_prompt(what).default(default).interact_on(term);
        tokio::task::block_in_place(confirm).map_err(|error| broken(&error))
    }
}

/// A question for a text.
pub(super) struct Question<'q> {
    /// The flag that answers it.
    pub(super) flag: &'q str,
    /// What is asked.
    pub(super) what: &'q str,
    /// What it could be, the likeliest first.
    pub(super) proposals: &'q [Choice],
    /// What a terminal proposes.
    pub(super) default: Option<&'q str>,
    /// What is taken where nobody answers; empty where nothing may be answered.
    pub(super) otherwise: Option<&'q str>,
}

fn missing(flag: &str, what: &str, proposals: &[Choice]) -> Failure {
    let lines: String = proposals.iter().map(|choice| format!("\n  {flag} {}", choice.line())).collect();
    let could = if proposals.is_empty() { "" } else { "; it could be" };
    Failure::new(Exit::Usage, format!("{flag} is missing ({what}){could}{lines}"))
}

fn broken(error: &dialoguer::Error) -> Failure {
    let dialoguer::Error::IO(error) = error;
    if error.kind() == io::ErrorKind::Interrupted {
        leave();
    }
    Failure::new(Exit::Software, format!("the terminal can't be read: {error}"))
}

/// Ends the process as an interruption does: the signal, or the question that it interrupted, whichever is seen first.
fn leave() -> ! {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        // A list of choices hides it.
        Term::stderr().show_cursor().ok();
        say("\norder-closer: interrupted");
    });
    std::process::exit(INTERRUPTED)
}
