//! Ids and messages with line ends and escape sequences in them: no output has a line that somebody else wrote, or moves a
//! terminal's cursor. Where machines read, they are what they are.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::Value;

use super::reconcile::on_every_database;
use crate::support::{Daemon, Database, Kind, Redis, Settings, database::Rows, order_closer, wait};

/// What whoever forges a line begins it with.
const FORGED: &str = "FORGED";

/// Ids with what ends lines, colours terminals, or turns the direction of writing.
fn ids() -> impl Strategy<Value = BTreeSet<String>> {
    let hostile = proptest::sample::select(vec![
        "\n",
        "\r",
        "\r\n",
        "\u{1b}[2K\u{1b}[1A",
        "\u{1b}]0;x\u{7}",
        "\u{9b}31m",
        "\u{8}",
        "\u{7f}",
        "\u{85}",
        "\u{202e}",
        "\u{2028}",
        "\t",
        "\"",
        "{}",
        "%s",
    ]);
    let id = proptest::collection::vec((hostile, "[a-c]{0,2}"), 1..4)
        .prop_map(|parts| parts.into_iter().map(|(hostile, rest)| format!("{hostile}{FORGED}{rest}")).collect::<String>());
    proptest::collection::btree_set(id, 6)
}

#[track_caller]
fn assert_plain(what: &str, text: &str) {
    for line in text.split('\n') {
        let is_hostile = |c: char| c.is_control() || matches!(c, '\u{2028}'..='\u{202e}');
        assert!(!line.contains(is_hostile) && !line.starts_with(FORGED), "{what} prints {line:?}");
    }
}

fn quoted(kind: Kind, text: &str) -> String {
    let text = text.replace('\'', "''");
    format!("'{}'", if kind == Kind::MariaDb { text.replace('\\', "\\\\") } else { text })
}

/// Orders with these ids, two of which the database refuses to close, with a message that is as hostile: more would count as its own trouble.
async fn shop(kind: Kind, redis: &Redis, ids: &BTreeSet<String>) -> (Database, Settings) {
    let database = Database::fresh(kind).await;
    let text = if kind == Kind::MariaDb { "varchar(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin" } else { "varchar(190)" };
    database
        .execute(&format!("CREATE TABLE orders (order_no {text} PRIMARY KEY, status integer, expires_at bigint, refused integer)"))
        .await;
    for (number, id) in ids.iter().enumerate() {
        let refused = i32::from(number < 2);
        database.execute(&format!("INSERT INTO orders VALUES ({}, 0, 1700000000, {refused})", quoted(kind, id))).await;
    }
    database
        .execute(match kind {
            Kind::Postgres => {
                "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
                    $$ BEGIN RAISE EXCEPTION E'no\\nFORGED \\x1b[2K%', NEW.order_no; END $$;
                 CREATE TRIGGER refuse BEFORE UPDATE ON orders FOR EACH ROW WHEN (NEW.refused = 1) EXECUTE FUNCTION refuse()"
            }
            Kind::MariaDb => {
                "CREATE TRIGGER refuse BEFORE UPDATE ON orders FOR EACH ROW
                 BEGIN
                    DECLARE said varchar(400);
                    IF NEW.refused = 1 THEN
                        SET said = LEFT(CONCAT('no\\nFORGED \u{1b}[2K', NEW.order_no), 120);
                        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = said;
                    END IF;
                 END"
            }
            Kind::Sqlite => {
                "CREATE TRIGGER refuse BEFORE UPDATE ON orders WHEN NEW.refused = 1
                 BEGIN SELECT RAISE(ABORT, 'no\nFORGED \u{1b}[2K'); END"
            }
        })
        .await;
    let settings = Settings::new()
        .set("database.url", database.url.as_str())
        .set("redis.url", redis.url())
        .set("orders.disputed", "close")
        .set("sweep.oldest", "none")
        .set("log.level", "debug")
        .add(
            "[orders]\ndeadline = { column = 'expires_at', unit = 's' }\n[close]\nretry = { attempts = 2, initial = '10ms', max = '10ms' }\n\
             [events]\nenabled = true\ninclude = ['order_no']\nretry = { attempts = 1 }\n\
             [[events.webhooks]]\nname = 'till'\nurl = 'http://127.0.0.1:1'\nsecrets = ['whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3']",
        );
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    (database, settings)
}

fn texts(rows: Rows) -> BTreeSet<String> {
    rows.into_iter().flatten().flatten().collect()
}

/// The ids that lines of JSON name by this field.
fn named(lines: &str, field: &str) -> BTreeSet<String> {
    let objects = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line:?}")));
    objects.filter_map(|object| object[field].as_str().map(str::to_owned)).collect()
}

async fn no_output_is_forged(kind: Kind, ids: &BTreeSet<String>) {
    let redis = Redis::start();
    let (database, settings) = shop(kind, &redis, ids).await;
    for id in ids {
        redis.publish_expired(0, format!("order_{id}").as_bytes());
    }
    // The first words of a command on some of them; the daemon has the rest.
    let refused = texts(database.rows("SELECT order_no FROM orders WHERE refused = 1").await);
    let list: Vec<&str> = ids.iter().map(String::as_str).collect();
    let text = settings.clone().set("log.format", "text");
    for arguments in [
        [&["close"], &list[..2]].concat(),
        vec!["close", "no\nFORGED \u{1b}[2K"],
        vec!["explain", list[0]],
        vec!["check"],
        vec!["arm", &format!("x{}", list[0]), "--ttl", "1h"],
        vec!["reconcile", "--dry-run"],
    ] {
        let finished = order_closer(&text, &arguments).await;
        assert_plain(&format!("{arguments:?}"), &format!("{}\n{}", finished.stdout, finished.stderr));
    }
    let daemon = Daemon::start(&text);
    for id in ids {
        redis.publish_expired(0, format!("order_{id}").as_bytes());
    }
    let dead = "SELECT count(*) FROM order_closer_dead_letters";
    wait::until_eq("the refused orders are given up", refused.len() as i64, async || database.number(dead).await).await;
    let closed = (ids.len() - refused.len()) as i64;
    wait::until_eq("the others are closed", closed, async || database.number("SELECT count(*) FROM orders WHERE status = 4").await).await;
    daemon.stop().await;
    assert_plain("the daemon", &daemon.lines().join("\n"));
    // What a receiver has said.
    let error = quoted(kind, "no\nFORGED \u{1b}[2K");
    database.execute(&format!("UPDATE order_closer_deliveries SET due_at = NULL, failed_at = 1, error = {error}")).await;

    for arguments in
        [vec!["targets"], vec!["events"], vec!["dead-letters", "list"], vec!["reconcile"], vec!["dead-letters", "retry", "--all"]]
    {
        let finished = order_closer(&text, &arguments).await;
        assert_plain(&format!("{arguments:?}"), &format!("{}\n{}", finished.stdout, finished.stderr));
    }
    let events = order_closer(&settings, &["events", "--json"]).await.expect_code(0);
    assert_eq!(named(&events.stdout, "order_id").len() as i64, closed, "{events:?}");
    assert!(named(&events.stdout, "order_id").iter().all(|id| ids.contains(id)), "{events:?}");
    for one in ids {
        let finished = order_closer(&text, &["explain", one]).await.expect_code(0);
        assert_plain("explain", &format!("{}\n{}", finished.stdout, finished.stderr));
        assert_eq!(order_closer(&text, &["explain", one, "--json"]).await.expect_code(0).json()["id"], one.as_str());
    }
    for one in &refused {
        for verb in ["show", "retry", "drop"] {
            let finished = order_closer(&text, &["dead-letters", verb, one]).await;
            assert_plain(verb, &format!("{}\n{}", finished.stdout, finished.stderr));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2, max_shrink_iters: 0, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_output_is_forged_with_sqlite(ids in ids()) {
        runtime().block_on(no_output_is_forged(Kind::Sqlite, &ids));
    }

    #[test]
    fn no_output_is_forged_with_postgres(ids in ids()) {
        runtime().block_on(no_output_is_forged(Kind::Postgres, &ids));
    }

    #[test]
    fn no_output_is_forged_with_mariadb(ids in ids()) {
        runtime().block_on(no_output_is_forged(Kind::MariaDb, &ids));
    }
}

on_every_database! {
    no_timer_forges_output => no_timer_forges_output_with_postgres, no_timer_forges_output_with_mariadb, no_timer_forges_output_with_sqlite;
}

/// A timer's kind, key and target are whatever a service of the shop has inserted.
async fn no_timer_forges_output(kind: Kind) {
    const HOSTILE: &str = "no\nFORGED \u{1b}[2K'$(touch x)";
    let redis = Redis::start();
    let (database, settings) = shop(kind, &redis, &BTreeSet::new()).await;
    let settings = settings.set("log.format", "text").add(
        "[timers]\nenabled = true\n\
         [[timers.webhooks]]\nname = 'bell'\nurl = 'http://127.0.0.1:1'\nsecrets = ['whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3']",
    );
    let (hostile, key) = (quoted(kind, HOSTILE), if kind == Kind::MariaDb { "`key`" } else { "key" });
    let insert = format!("INSERT INTO order_closer_timers (kind, {key}, due_at, target) VALUES ");
    database.execute(&format!("{insert}({hostile}, {hostile}, 1700000000000000, {hostile})")).await;

    let id = format!("{HOSTILE}/{HOSTILE}");
    let run = async |arguments: &[&str]| {
        let finished = order_closer(&settings, arguments).await;
        let text = format!("{}\n{}", finished.stdout, finished.stderr);
        assert_plain(&format!("{arguments:?}"), &text);
        text
    };
    for arguments in [&["check"][..], &["reconcile", "--dry-run"], &["explain", &id, "--rule", "timers"], &["reconcile"]] {
        run(arguments).await;
    }
    assert_eq!(database.number("SELECT count(*) FROM order_closer_deliveries").await, 1, "it has fired");
    // Each command that is proposed has the name as one word of a shell.
    const DROP: &str = r"order-closer targets drop $'no\nFORGED \u001b[2K\u0027$(touch x)'";
    assert!(run(&["check"]).await.contains(DROP));
    for arguments in [&["targets"][..], &["events"], &["explain", &id], &["targets", "resume", HOSTILE], &["targets", "drop", "x\nFORGED"]]
    {
        run(arguments).await;
    }
    let daemon = Daemon::start(&settings);
    daemon.until_logged("events wait for a target that the configuration does not name").await;
    daemon.stop().await;
    assert_plain("the daemon", &daemon.lines().join("\n"));

    database.execute(&format!("UPDATE order_closer_deliveries SET due_at = NULL, failed_at = 1, error = {hostile}")).await;
    run(&["dead-letters", "list"]).await;
    assert!(run(&["dead-letters", "retry", "--all"]).await.contains(DROP));
    assert!(run(&["targets", "drop", HOSTILE]).await.contains("1 given up"));
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}
