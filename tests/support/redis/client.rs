//! A small client for Redis.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
    time::Duration,
};

/// What a command returned.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// A status, or a value; what is not UTF-8 is replaced.
    Text(String),
    /// A number.
    Integer(i64),
    /// No value.
    Nil,
    /// Several replies.
    Array(Vec<Reply>),
    /// An error.
    Error(String),
}

impl Reply {
    /// The number.
    pub fn integer(&self) -> i64 {
        match self {
            Self::Integer(number) => *number,
            other => panic!("not a number: {other:?}"),
        }
    }

    /// The text.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            other => panic!("not a text: {other:?}"),
        }
    }

    /// The replies.
    pub fn array(&self) -> &[Self] {
        match self {
            Self::Array(replies) => replies,
            other => panic!("not an array: {other:?}"),
        }
    }
}

/// A connection to a server on this machine.
#[derive(Debug)]
pub(super) struct Connection {
    reader: BufReader<TcpStream>,
}

impl Connection {
    /// Connects.
    pub(super) fn open(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        Ok(Self { reader: BufReader::new(stream) })
    }

    /// Sends commands in one go, and reads as many replies.
    pub(super) fn run(&mut self, commands: &[Vec<&[u8]>]) -> io::Result<Vec<Reply>> {
        let mut request = Vec::new();
        for words in commands {
            write!(request, "*{}\r\n", words.len())?;
            for word in words {
                write!(request, "${}\r\n", word.len())?;
                request.extend_from_slice(word);
                request.extend_from_slice(b"\r\n");
            }
        }
        self.reader.get_mut().write_all(&request)?;
        commands.iter().map(|_| self.reply()).collect()
    }

    /// Waits for a reply no longer than this.
    pub(super) fn set_patience(&self, limit: Duration) {
        self.reader.get_ref().set_read_timeout(Some(limit)).expect("a timeout can be set");
    }

    /// Waits for one more reply, or a message.
    pub(super) fn reply(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let strange = || io::Error::new(io::ErrorKind::InvalidData, format!("strange reply {line:?}"));
        let (kind, rest) = line.trim_end().split_at_checked(1).ok_or_else(strange)?;
        let number = || rest.parse::<i64>().map_err(|_| strange());
        match kind {
            "+" => Ok(Reply::Text(rest.into())),
            "-" => Ok(Reply::Error(rest.into())),
            ":" => number().map(Reply::Integer),
            "$" | "*" if number()? < 0 => Ok(Reply::Nil),
            "$" => {
                let mut bytes = vec![0; usize::try_from(number()?).map_err(|_| strange())? + 2];
                self.reader.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Ok(Reply::Text(String::from_utf8_lossy(&bytes).into_owned()))
            }
            "*" => (0..number()?).map(|_| self.reply()).collect::<io::Result<_>>().map(Reply::Array),
            _ => Err(strange()),
        }
    }
}
