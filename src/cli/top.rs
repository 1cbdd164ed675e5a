//! `order-closer top`: the daemon's figures on a terminal, as its page shows them in a browser.

mod draw;
mod screen;

use std::{io::IsTerminal, time::Duration};

use reqwest::Response;
use tokio::time::Instant;

use crate::{
    cli::{CommandResult, Exit, Failure, daemon::Daemon, events::json, print},
    config::Config,
    http::Access,
    ops::{Figures, Signals},
};
use screen::Screen;

/// How long to wait before a daemon is asked again that does not answer.
const AGAIN: Duration = Duration::from_secs(1);

/// Lines that nobody draws on a screen are so long.
const WIDTH: usize = 100;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Print them once, as text; that is what happens, too, where there is no terminal.
    #[arg(long)]
    once: bool,
    /// Print them once, as one JSON object.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(config: &Config, arguments: &Arguments) -> CommandResult {
    let access = Access::new(&config.http).map_err(|reason| Failure::new(Exit::Configuration, reason))?;
    let daemon = Daemon::of(config)?.with(access.token().as_deref());
    if arguments.json || arguments.once || !std::io::stdout().is_terminal() {
        // What is printed is escaped, colours too.
        console::set_colors_enabled(false);
        let figures: Figures = daemon.json(daemon.get("/figures").await?).await?;
        if arguments.json {
            print(&json(&figures)?);
        } else {
            draw::lines(&figures, WIDTH).iter().for_each(|line| print(line.trim_end()));
        }
        return Ok(Exit::Done);
    }
    let stream = Stream::new(daemon.get("/figures/stream").await?);
    watch(&daemon, stream).await
}

/// Draws until somebody wants to leave.
async fn watch(daemon: &Daemon, first: Stream) -> CommandResult {
    let failed = |what: std::io::Error| Failure::new(Exit::Software, format!("the terminal can't be drawn on: {what}"));
    let mut signals = Signals::new().map_err(failed)?;
    let mut screen = Screen::enter().map_err(failed)?;
    let (mut stream, mut shown) = (Some(first), None);
    loop {
        let next = async {
            match &mut stream {
                Some(stream) => stream.next(daemon).await.map(Some),
                None => {
                    tokio::time::sleep(AGAIN).await;
                    daemon.get("/figures/stream").await.map(|answer| {
                        stream = Some(Stream::new(answer));
                        None
                    })
                }
            }
        };
        let next = tokio::select! {
            next = next => next,
            () = signals.next() => return Ok(Exit::Done),
            () = screen.left() => return Ok(Exit::Done),
        };
        match next {
            Ok(None) => {}
            Ok(Some(figures)) => {
                screen.show(|width| draw::lines(&figures, width)).map_err(failed)?;
                shown = Some((figures, Instant::now()));
            }
            Err(Failure { message, .. }) => {
                stream = None;
                screen
                    .show(|width| {
                        let mut lines = vec![draw::alarm(&format!("{message}; trying again"))];
                        if let Some((figures, at)) = &shown {
                            lines.push(format!("what follows is {} old", draw::long(at.elapsed().as_secs_f64() * 1e3)));
                            lines.extend(draw::lines(figures, width));
                        }
                        lines
                    })
                    .map_err(failed)?;
            }
        }
    }
}

/// Figures that come one after the other.
struct Stream {
    answer: Response,
    read: Vec<u8>,
}

impl Stream {
    fn new(answer: Response) -> Self {
        Self { answer, read: Vec::new() }
    }

    /// The next ones.
    async fn next(&mut self, daemon: &Daemon) -> Result<Figures, Failure> {
        loop {
            if let Some(end) = self.read.windows(2).position(|two| two == b"\n\n") {
                let event: Vec<u8> = self.read.drain(..end + 2).collect();
                let data = event.strip_prefix(b"data:").unwrap_or_default();
                return serde_json::from_slice(data)
                    .map_err(|error| Failure::new(Exit::Unavailable, format!("the daemon's figures can't be read: {error}")));
            }
            match self.answer.chunk().await {
                Ok(Some(more)) => self.read.extend_from_slice(&more),
                Ok(None) => return Err(Failure::new(Exit::Unavailable, "the daemon has ended")),
                Err(error) => return Err(daemon.away(error)),
            }
        }
    }
}
