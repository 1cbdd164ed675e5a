//! A server that says of itself what it is told to, and knows no more than it takes to be asked.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
};

use crate::support::ports;

/// A server with an INFO of its own; it lives as long as the test process.
#[derive(Debug)]
pub struct Impostor {
    port: u16,
}

impl Impostor {
    /// Starts one whose INFO has these lines.
    #[must_use]
    pub fn start(info: &'static str) -> Self {
        let (port, listener) = ports::with_free("an impostor", |port| {
            Ok((port, TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|error| error.to_string())?))
        });
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                std::thread::spawn(move || answer(client, info));
            }
        });
        Self { port }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

/// Answers until the client goes.
fn answer(mut client: TcpStream, info: &str) -> Option<()> {
    let mut reader = BufReader::new(client.try_clone().ok()?);
    let info = info.replace(' ', "\r\n");
    loop {
        let words = command(&mut reader)?;
        let reply = match words.first()?.as_str() {
            "HELLO" => "%1\r\n$5\r\nproto\r\n:3\r\n".into(),
            "INFO" => format!("${}\r\n{info}\r\n", info.len()),
            _ => "-ERR unknown command\r\n".into(),
        };
        client.write_all(reply.as_bytes()).ok()?;
    }
}

/// Reads a command, which is a line or an array.
fn command(reader: &mut BufReader<TcpStream>) -> Option<Vec<String>> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|length| *length > 0)?;
    let Some(count) = line.strip_prefix('*') else {
        return Some(line.split_whitespace().map(str::to_owned).collect());
    };
    (0..count.trim().parse().ok()?)
        .map(|_| {
            let mut length = String::new();
            reader.read_line(&mut length).ok()?;
            let mut word = vec![0; length.trim().strip_prefix('$')?.parse::<usize>().ok()? + 2];
            reader.read_exact(&mut word).ok()?;
            Some(String::from_utf8_lossy(&word).trim_end().to_owned())
        })
        .collect()
}
