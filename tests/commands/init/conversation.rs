//! The conversation, on a terminal of 80 columns.

use std::process::Stdio;

use console::{measure_text_width, strip_ansi_codes};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{Child, ChildStdin, ChildStdout},
};

use super::{MILLISECONDS, SPRING, init, written};
use crate::support::{Database, Kind, OneShot, Redis, wait};

/// A person at a terminal.
struct Conversation {
    process: Child,
    keys: ChildStdin,
    screen: ChildStdout,
    seen: Vec<u8>,
    /// How much of it has been answered.
    answered: usize,
}

impl Conversation {
    fn with(command: OneShot) -> (Self, OneShot) {
        let command = command.on_narrow_terminal();
        let mut process = command.command().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (keys, screen) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        (Self { process, keys, screen, seen: Vec::new(), answered: 0 }, command)
    }

    fn text(&self) -> String {
        strip_ansi_codes(&String::from_utf8_lossy(&self.seen)).into_owned()
    }

    /// Waits for a question, and answers it.
    async fn answer(&mut self, question: &str, keys: &str) {
        while !self.text()[self.answered..].contains(question) {
            let read = tokio::time::timeout(wait::LIMIT, self.screen.read_buf(&mut self.seen)).await;
            let read = read.unwrap_or_else(|_| panic!("{question:?} was not asked: {}", self.text())).unwrap();
            assert!(read > 0, "it ended before {question:?}: {}", self.text());
        }
        self.answered += self.text()[self.answered..].find(question).unwrap() + question.len();
        self.keys.write_all(keys.as_bytes()).await.unwrap();
    }

    /// Its exit status, and all that it has shown.
    async fn end(mut self) -> (Option<i32>, String) {
        let rest = async { while self.screen.read_buf(&mut self.seen).await.unwrap() > 0 {} };
        tokio::time::timeout(wait::LIMIT, rest).await.expect("it ends");
        (self.process.wait().await.unwrap().code(), String::from_utf8_lossy(&self.seen).into_owned())
    }
}

#[tokio::test]
async fn every_question_has_a_default_where_the_table_tells() {
    let (database, redis) = (Database::fresh(Kind::MariaDb).await, Redis::options().with_notifications().start());
    database.execute(SPRING.schema).await;
    database.execute(SPRING.orders).await;
    let (mut person, command) = Conversation::with(init(&database, &redis, &[]));
    person.answer("the table with the orders", "\r").await;
    person.answer("the id that stands in the keys", "\r").await;
    person.answer("an order's status", "\r").await;
    person.answer("waits for its payment", "\r").await;
    // A wrong answer is explained, and asked again.
    person.answer("the status that closing sets", "gone\r").await;
    person.answer("whole numbers", "0\r").await;
    person.answer("is one of the unpaid statuses", "\r").await;
    person.answer("the column with the payment deadline", "\r").await;
    person.answer("how long an order may wait", "45m\r").await;
    person.answer("the zone in which", "\r").await;
    person.answer("what stands before the id in a key", "\r").await;
    person.answer("the order service's language", "\r").await;
    person.answer("Write order-closer.toml?", "\r").await;
    let (code, shown) = person.end().await;
    assert_eq!(code, Some(0), "{shown}");
    let text = written(&command);
    for line in ["unpaid = [0]", "closed = 4", "plus = \"45m\"", "table = \"t_order\""] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let choices = shown.split("Write order-closer.toml?").next().unwrap();
    for line in choices.lines().filter(|line| line.contains('❯')) {
        assert!(measure_text_width(strip_ansi_codes(line).trim_end()) <= 80, "{line:?}");
    }
}

#[tokio::test]
async fn an_interruption_leaves_nothing() {
    let (database, redis) = (Database::fresh(Kind::Sqlite).await, Redis::start());
    database.execute(MILLISECONDS.schema).await;
    database.execute(MILLISECONDS.orders).await;
    // In a list, which hides the cursor, and in a line of text.
    for (question, before) in [("the table with the orders", 0), ("waits for its payment", 3)] {
        let (mut person, command) = Conversation::with(init(&database, &redis, &[]));
        let questions = ["the table with the orders", "the id that stands in the keys", "an order's status"];
        for question in &questions[..before] {
            person.answer(question, "\r").await;
        }
        person.answer(question, "\x03").await;
        let (code, shown) = person.end().await;
        assert_eq!(code, Some(130), "{shown:?}");
        let (hidden, visible) = (shown.rfind("\x1b[?25l"), shown.rfind("\x1b[?25h"));
        assert!(hidden < visible || hidden.is_none(), "the cursor is left hidden: {shown:?}");
        assert_eq!(std::fs::read_dir(command.folder()).unwrap().count(), 0);
    }
}

/// Whoever says no has nothing written.
#[tokio::test]
async fn the_last_question_is_whether_to_write() {
    let (database, redis) = (Database::fresh(Kind::Sqlite).await, Redis::start());
    database.execute(MILLISECONDS.schema).await;
    database.execute(MILLISECONDS.orders).await;
    let flags =
        ["--table", "orders", "--id", "id", "--status", "state", "--deadline", "expiresAt", "--key-prefix", "order_", "--language", "go"];
    let (mut person, command) = Conversation::with(init(&database, &redis, &[MILLISECONDS.flags, &flags].concat()));
    person.answer("Write order-closer.toml?", "n").await;
    let (code, shown) = person.end().await;
    assert_eq!(code, Some(75), "{shown}");
    assert_eq!(std::fs::read_dir(command.folder()).unwrap().count(), 0);
}
