//! A terminal that is drawn on, and left as it was.

use std::io::{self, Read, Write};

use console::{Term, truncate_str};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

/// Another screen without a cursor; the one before it, and a cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// To the first place; and clears what follows on a line, and below it.
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

/// The terminal while it is drawn on; dropping it leaves it as it was.
pub(super) struct Screen {
    terminal: Term,
    before: Option<Termios>,
    keys: mpsc::Receiver<()>,
}

impl Screen {
    /// Begins to draw.
    pub(super) fn enter() -> io::Result<Self> {
        let (left, keys) = mpsc::channel(1);
        // Keys are read one by one and not shown; Ctrl-C goes on being a signal. Where there is no keyboard, only signals end it.
        let before = tcgetattr(io::stdin()).ok();
        if let Some(before) = &before {
            let mut changed = before.clone();
            changed.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
            tcsetattr(io::stdin(), OptionalActions::Now, &changed)?;
            // Ends with the process.
            std::thread::spawn(move || {
                let wants_to_leave = |key: &io::Result<u8>| matches!(key, Ok(b'q' | b'Q' | 0x1b | 0x03) | Err(_));
                if io::stdin().lock().bytes().any(|key| wants_to_leave(&key)) {
                    left.blocking_send(()).ok();
                }
            });
        } else {
            // Nobody ever leaves by a key.
            std::mem::forget(left);
        }
        let screen = Self { terminal: Term::buffered_stdout(), before, keys };
        screen.terminal.write_str(ENTER)?;
        screen.terminal.flush()?;
        Ok(screen)
    }

    /// Draws lines for a terminal that is so wide; what does not fit is left out.
    pub(super) fn show(&mut self, lines: impl FnOnce(usize) -> Vec<String>) -> io::Result<()> {
        let (height, width) = self.terminal.size();
        let mut text = HOME.to_owned();
        for (at, line) in lines(usize::from(width)).iter().take(usize::from(height)).enumerate() {
            if at > 0 {
                text.push_str("\r\n");
            }
            text.push_str(&truncate_str(line, usize::from(width), "…"));
            text.push_str(CLEAR_LINE);
        }
        text.push_str(CLEAR_BELOW);
        self.terminal.write_str(&text)?;
        self.terminal.flush()
    }

    /// Waits until somebody presses q.
    pub(super) async fn left(&mut self) {
        if self.keys.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.terminal.write_str(LEAVE).ok();
        self.terminal.flush().ok();
        io::stdout().flush().ok();
        if let Some(before) = &self.before {
            tcsetattr(io::stdin(), OptionalActions::Now, before).ok();
        }
    }
}
