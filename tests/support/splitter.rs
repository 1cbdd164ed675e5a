//! A proxy before two MariaDB servers that sends each statement to one of them by its words, as ProxySQL's query rules and MaxScale's
//! readwritesplit do. Both let the client in without a password. Prepared statements go to the writer.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    thread,
};

use super::mariadb::MariaDb;

const QUERY: u8 = 3;
const OK: u8 = 0;
const END: u8 = 0xfe;
const ERROR: u8 = 0xff;
const MORE_RESULTS: u8 = 8;

/// What becomes of statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Splitting {
    /// All go to the writer.
    Nothing,
    /// A SELECT outside of a transaction goes to the reader.
    Reads,
    /// Any SELECT does.
    EverySelect,
    /// As [`Splitting::Reads`], and what is set of a session reaches the writer alone.
    ReadsWithoutSettings,
}

/// Whose answers to questions about a proxy it gives, to the byte as in that one's source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Imitating {
    /// None's: such questions go to the servers.
    Nobody,
    /// ProxySQL's, `PROXYSQL_VERSION_COMMENT_WITH_OK` in `MySQL_Session.cpp`.
    ProxySql,
    /// MaxScale's, `Session::set_variable_value` and `MariaDBClientConnection`.
    MaxScale,
}

/// A running one; its threads end with their clients.
#[derive(Debug)]
pub struct Splitter {
    port: u16,
}

impl Splitter {
    /// Starts one.
    pub fn before(writer: &MariaDb, reader: &MariaDb, splitting: Splitting, imitating: Imitating) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
        let port = listener.local_addr().expect("it listens").port();
        let servers = [writer.port(), reader.port()];
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                thread::spawn(move || Carried::begin(client, servers, splitting, imitating).and_then(Carried::carry));
            }
        });
        Self { port }
    }

    /// The URL of this one for a database's.
    pub fn url(&self, database: &str) -> String {
        let mut url = url::Url::parse(database).expect("a URL");
        url.set_port(Some(self.port)).expect("it has a host");
        url.set_query(Some("ssl-mode=disabled"));
        url.into()
    }
}

/// A packet with its header.
fn packet(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut packet = vec![0; 4];
    stream.read_exact(&mut packet)?;
    let length = usize::from(packet[0]) | usize::from(packet[1]) << 8 | usize::from(packet[2]) << 16;
    packet.resize(4 + length, 0);
    stream.read_exact(&mut packet[4..])?;
    Ok(packet)
}

/// One client and its two servers.
struct Carried {
    client: TcpStream,
    writer: TcpStream,
    reader: TcpStream,
    splitting: Splitting,
    imitating: Imitating,
    in_transaction: bool,
}

impl Carried {
    fn begin(mut client: TcpStream, servers: [u16; 2], splitting: Splitting, imitating: Imitating) -> io::Result<Self> {
        let [mut writer, mut reader] = [TcpStream::connect(("127.0.0.1", servers[0]))?, TcpStream::connect(("127.0.0.1", servers[1]))?];
        packet(&mut reader)?;
        client.write_all(&packet(&mut writer)?)?;
        // Without a password it is no answer to anything, and good for both.
        let login = packet(&mut client)?;
        writer.write_all(&login)?;
        reader.write_all(&login)?;
        let (answer, other) = (packet(&mut writer)?, packet(&mut reader)?);
        assert_eq!((answer[4], other[4]), (OK, OK), "both let it in");
        client.write_all(&answer)?;
        let (mut from, mut to) = (writer.try_clone()?, client.try_clone()?);
        thread::spawn(move || {
            io::copy(&mut from, &mut to).ok();
            to.shutdown(Shutdown::Both).ok();
        });
        Ok(Self { client, writer, reader, splitting, imitating, in_transaction: false })
    }

    fn carry(mut self) -> io::Result<()> {
        loop {
            let sent = match packet(&mut self.client) {
                Ok(sent) => sent,
                Err(_) => return self.writer.shutdown(Shutdown::Both),
            };
            let statement = if sent[4] == QUERY { String::from_utf8_lossy(&sent[5..]).into_owned() } else { String::new() };
            if let Some(answer) = self.imitated(&statement) {
                self.client.write_all(&answer)?;
                continue;
            }
            let says = |word: &str| statement.contains(word);
            let ends = statement == "ROLLBACK" || statement.ends_with("COMMIT");
            self.in_transaction = (self.in_transaction || says("START TRANSACTION")) && !ends;
            let is_select = statement.trim_start().get(..6).is_some_and(|word| word.eq_ignore_ascii_case("select"));
            let only_sets = statement.starts_with("SET") && !says("START TRANSACTION") && !says("SELECT CAST") && !ends;
            match self.splitting {
                Splitting::Reads | Splitting::ReadsWithoutSettings if is_select && !self.in_transaction => self.ask_reader(&sent)?,
                Splitting::EverySelect if is_select => self.ask_reader(&sent)?,
                Splitting::Reads | Splitting::EverySelect if only_sets => {
                    self.tell_reader(&sent)?;
                    self.writer.write_all(&sent)?;
                }
                _ => self.writer.write_all(&sent)?,
            }
        }
    }

    fn imitated(&self, statement: &str) -> Option<Vec<u8>> {
        match self.imitating {
            Imitating::ProxySql if statement == "select @@version_comment limit 1" => Some(
                b"\x01\x00\x00\x01\x01\
                  \x27\x00\x00\x02\x03def\x00\x00\x00\x11@@version_comment\x00\x0c\x21\x00\x18\x00\x00\x00\xfd\x00\x00\x1f\x00\x00\
                  \x0b\x00\x00\x03\x0a(ProxySQL)\
                  \x07\x00\x00\x04\xfe\x00\x00\x02\x00\x00\x00"
                    .into(),
            ),
            Imitating::MaxScale if statement.to_ascii_lowercase().starts_with("set @maxscale.") => {
                let variable = statement["set ".len()..].split([' ', '=']).next()?;
                let message = format!("#HY000Attempt to set unknown MaxScale user variable {variable}");
                let payload: Vec<u8> = [&[ERROR], &1193_u16.to_le_bytes()[..], message.as_bytes()].concat();
                let length = u8::try_from(payload.len()).expect("a short message");
                Some([&[length, 0, 0, 1], &payload[..]].concat())
            }
            Imitating::Nobody | Imitating::ProxySql | Imitating::MaxScale => None,
        }
    }

    /// Has the reader answer, in one result.
    fn ask_reader(&mut self, sent: &[u8]) -> io::Result<()> {
        self.reader.write_all(sent)?;
        let first = packet(&mut self.reader)?;
        let mut answer = first.clone();
        if ![OK, ERROR].contains(&first[4]) {
            for _ in 0..first[4] {
                answer.extend(packet(&mut self.reader)?);
            }
            loop {
                let row = packet(&mut self.reader)?;
                answer.extend(&row);
                if [END, ERROR].contains(&row[4]) {
                    break;
                }
            }
        }
        self.client.write_all(&answer)
    }

    /// Has the reader know what is set, too, and keeps its answers back.
    fn tell_reader(&mut self, sent: &[u8]) -> io::Result<()> {
        self.reader.write_all(sent)?;
        loop {
            let answer = packet(&mut self.reader)?;
            // The counts of rows and ids are small here.
            if answer[4] != OK || answer[7] & MORE_RESULTS == 0 {
                return Ok(());
            }
        }
    }
}
