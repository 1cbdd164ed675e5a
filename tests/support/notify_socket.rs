//! The socket on which systemd hears its services.

use std::{
    io::ErrorKind,
    os::unix::net::UnixDatagram,
    path::PathBuf,
    process::Command,
    sync::{Mutex, PoisonError},
};

use tempfile::TempDir;

use super::{process, wait};

/// A socket, and all that it has heard.
#[derive(Debug)]
pub struct NotifySocket {
    socket: UnixDatagram,
    heard: Mutex<Vec<String>>,
    folder: TempDir,
}

impl NotifySocket {
    /// Listens.
    pub fn open() -> Self {
        let folder = process::folder();
        let socket = UnixDatagram::bind(folder.path().join("notify")).expect("a socket can be bound");
        socket.set_nonblocking(true).expect("it need not block");
        Self { socket, heard: Mutex::default(), folder }
    }

    /// Has a command believe that systemd has started it, with a watchdog that bites after so long.
    pub fn starts(&self, command: &mut Command, watchdog_micros: u64) {
        command.env("NOTIFY_SOCKET", self.path()).env("WATCHDOG_USEC", watchdog_micros.to_string()).env_remove("WATCHDOG_PID");
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("notify")
    }

    /// Each assignment that it has heard, in order.
    pub fn heard(&self) -> Vec<String> {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let mut datagram = [0; 4_096];
        loop {
            match self.socket.recv(&mut datagram) {
                Ok(length) => heard.extend(String::from_utf8_lossy(&datagram[..length]).lines().map(String::from)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return heard.clone(),
                Err(error) => panic!("the socket can't be read: {error}"),
            }
        }
    }

    /// How often it has heard what begins so.
    pub fn count(&self, begin: &str) -> usize {
        self.heard().iter().filter(|word| word.starts_with(begin)).count()
    }

    /// Waits until the status that it has heard last begins so.
    pub async fn until_status(&self, begin: &str) {
        let is_so = async || {
            let heard = self.heard();
            heard.iter().filter_map(|word| word.strip_prefix("STATUS=")).next_back().is_some_and(|status| status.starts_with(begin))
        };
        wait::until(&format!("the status is {begin}"), is_so).await;
    }

    /// Waits until it hears what begins so, as many times more.
    pub async fn until(&self, begin: &str, times: usize) {
        let before = self.count(begin);
        wait::until(&format!("{begin} is heard {times} times more"), async || self.count(begin) >= before + times).await;
    }
}
