//! A PgBouncer: a pool of connections to a PostgreSQL that its clients share.

use std::net::TcpStream;

use super::{ports, postgres, process, process::Process, wait};

/// A running PgBouncer; dropping it kills it.
#[derive(Debug)]
pub struct PgBouncer {
    port: u16,
    process: Process,
    folder: tempfile::TempDir,
}

impl PgBouncer {
    /// Starts one before the server on `port`, with these settings of its own.
    pub fn start(port: u16, settings: &[&str]) -> Self {
        let folder = process::folder();
        let (file, log) = (folder.path().join("pgbouncer.ini"), folder.path().join("log"));
        let (port, process) = ports::with_free("pgbouncer", |own| {
            let settings = settings.join("\n");
            let text = format!(
                "[databases]\n* = host=127.0.0.1 port={port} user=postgres\n\
                 [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {own}\nunix_socket_dir =\nauth_type = any\n{settings}\n"
            );
            std::fs::write(&file, text).expect("a file can be written");
            postgres::give_away(folder.path());
            let mut command = process::mortal_as(postgres::user_name().as_deref(), process::find_program(&["pgbouncer"]));
            command.arg(&file);
            process::log_to(&mut command, &log);
            let process = Process::spawn("pgbouncer", command);
            wait::blocking("pgbouncer answers", || match process.ended() {
                Some(status) => Err(format!("{status}\n{}", process::read(&log))),
                None => Ok(TcpStream::connect(("127.0.0.1", own)).is_ok()),
            })?;
            Ok((own, process))
        });
        Self { port, process, folder }
    }

    /// Leads new sessions to the server on another port; those that there are stay where they are.
    pub fn lead_to(&self, before: u16, now: u16) {
        let file = self.folder.path().join("pgbouncer.ini");
        let text = process::read(&file).replace(&format!("port={before} "), &format!("port={now} "));
        std::fs::write(&file, text).expect("a file can be written");
        self.process.signal(nix::sys::signal::Signal::SIGHUP);
    }

    /// The URL of one of the server's databases.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }
}
