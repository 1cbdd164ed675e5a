//! `order-closer generate`: man pages and completions, from the command line's own definition.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use clap::{Command, CommandFactory, Subcommand};
use clap_complete::Shell;
use clap_mangen::{
    Man,
    roff::{Roff, bold, roman},
};

use crate::cli::{CommandResult, Exit, Failure, output};

/// What is wanted.
#[derive(Debug, Subcommand)]
pub(super) enum Wanted {
    /// Man pages, one for each command, into this folder.
    Man {
        /// The folder, which is made if it is not there.
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
    },
    /// Completions for a shell, to standard output.
    Completions {
        /// The shell.
        shell: Shell,
    },
}

pub(super) fn run(wanted: &Wanted) -> CommandResult {
    let mut command = super::Arguments::command();
    match wanted {
        Wanted::Man { folder } => man_pages(command, folder)
            .map_err(|error| Failure::new(Exit::Output, format!("man pages can't be written into {}: {error}", folder.display())))?,
        Wanted::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut command, "order-closer", &mut script);
            if *shell == Shell::Bash {
                // clap_complete 4.6 writes a command's name in two ways where the program's has a hyphen, and finds no options then.
                script = String::from_utf8_lossy(&script).replace("__subcmd__", "__").into_bytes();
            }
            let mut out = io::stdout().lock();
            output::note(out.write_all(&script).and_then(|()| out.flush()));
        }
    }
    Ok(Exit::Done)
}

fn man_pages(command: Command, folder: &Path) -> io::Result<()> {
    // Each page names the program's version, and no date: the same version makes the same pages.
    let command = command.disable_help_subcommand(true);
    std::fs::create_dir_all(folder)?;
    clap_mangen::generate_to(command.clone(), folder)?;
    let mut page = Vec::new();
    Man::new(command).render(&mut page)?;
    background().to_writer(&mut page)?;
    std::fs::write(folder.join("order-closer.1"), page)
}

/// What the first page has beyond the options.
fn background() -> Roff {
    let exits = [
        ("0", "done, also when there was nothing to do"),
        ("64", "the command line is wrong"),
        ("69", "Redis or the database is unavailable"),
        ("70", "a bug"),
        ("74", "the results could not be written"),
        ("75", "some orders could not be closed, or time ran out"),
        ("78", "the configuration is wrong, or does not fit the tables"),
    ];
    let files = [
        ("/etc/order-closer/order-closer.toml", "the configuration, unless --config or ORDER_CLOSER_CONFIG names another"),
        ("/etc/order-closer/secrets.env", "variables for the daemon that systemd starts, such as URLs with passwords"),
    ];
    let variables = [
        ("ORDER_CLOSER_CONFIG", "the configuration file"),
        ("ORDER_CLOSER_TABLE__SETTING", "the setting table.setting: each has a variable, with two underscores for each dot"),
    ];
    let mut roff = Roff::new();
    for (title, entries) in [("EXIT STATUS", exits.as_slice()), ("FILES", &files), ("ENVIRONMENT", &variables)] {
        roff.control("SH", [title]);
        for (term, meaning) in entries {
            roff.control("TP", []).text([bold(*term)]).text([roman(*meaning)]);
        }
    }
    roff
}
