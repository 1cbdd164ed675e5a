//! `order-closer dead-letters` and `order-closer events --order`: ids in any spelling, and everything at once.

use super::reconcile::on_every_database;
use crate::support::{Database, Kind, OneShot, Settings, order_closer};

on_every_database! {
    ids_in_any_spelling => ids_in_any_spelling_in_postgres, ids_in_any_spelling_in_mariadb, ids_in_any_spelling_in_sqlite;
    all_at_once => all_at_once_in_postgres, all_at_once_in_mariadb, all_at_once_in_sqlite;
}

const UUID: &str = "0190f3a4-5b6c-7def-8123-456789abcdef";

/// A shop whose ids have this type, with our tables.
async fn shop(kind: Kind, id: &str) -> (Database, Settings) {
    let database = Database::fresh(kind).await;
    database.execute(&format!("CREATE TABLE orders (order_no {id} PRIMARY KEY, status integer, expires_at bigint)")).await;
    let settings = Settings::new()
        .set("database.url", database.url.as_str())
        .set("events.enabled", true)
        .add("[orders]\ndeadline = { column = 'expires_at', unit = 's' }");
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    (database, settings)
}

async fn dead_letter(database: &Database, id: &str, dropped: u8) {
    let columns = "orders_table, order_id, attempts, failed_at, error, dropped";
    database
        .execute(&format!("INSERT INTO order_closer_dead_letters ({columns}) VALUES ('orders', '{id}', 8, 1, 'refused', {dropped})"))
        .await;
}

async fn ids_in_any_spelling(kind: Kind) {
    let (database, settings) = shop(kind, "uuid").await;
    database.execute(&format!("INSERT INTO orders VALUES ('{UUID}', 0, 1700000000)")).await;
    let spelled = UUID.to_uppercase();
    order_closer(&settings, &["close", &spelled]).await.expect_code(0);
    let listed = order_closer(&settings, &["events", "--order", &spelled]).await.expect_code(0);
    assert!(listed.stdout.lines().count() == 1 && listed.stdout.contains(UUID), "{listed:#?}");
    let refused = order_closer(&settings, &["events", "--order", "lock_77"]).await.expect_code(64);
    assert!(refused.stderr.contains("\"lock_77\" can't be an order of orders"), "{refused:#?}");

    for (command, done) in [("drop", "dropped"), ("retry", "put back")] {
        database.execute("DELETE FROM order_closer_dead_letters").await;
        dead_letter(&database, UUID, 0).await;
        let shown = order_closer(&settings, &["dead-letters", "show", &spelled]).await.expect_code(0);
        assert_eq!(shown.stdout, format!("order {UUID}  8 tries, the last at 1970-01-01T00:00:00.000001Z: refused\n"));
        let changed = order_closer(&settings, &["dead-letters", command, &spelled]).await.expect_code(0);
        assert_eq!(changed.stdout, format!("{spelled}: {done}\n"));
    }
    let unknown = order_closer(&settings, &["dead-letters", "show", &spelled]).await.expect_code(64);
    assert!(unknown.stderr.contains(&format!("no dead letter has the id {spelled}")), "{unknown:#?}");
}

async fn all_at_once(kind: Kind) {
    let (database, settings) = shop(kind, "bigint").await;
    for (id, dropped) in [("5", 0), ("6", 1), ("7", 0)] {
        dead_letter(&database, id, dropped).await;
    }
    for wrong in [&["retry"][..], &["retry", "--all", "5"], &["drop"], &["drop", "--all"]] {
        order_closer(&settings, &[&["dead-letters"], wrong].concat()).await.expect_code(64);
    }
    let retried = order_closer(&settings, &["dead-letters", "retry", "--all"]).await.expect_code(0);
    assert_eq!(retried.stdout, "2 put back\n");
    assert_eq!(order_closer(&settings, &["dead-letters", "list"]).await.expect_code(0).stdout, "");
    let dropped = order_closer(&settings, &["dead-letters", "show", "6", "--json"]).await.expect_code(0).json();
    assert_eq!((&dropped["kind"], &dropped["id"], &dropped["dropped"]), (&"order".into(), &"6".into(), &true.into()));
    order_closer(&settings, &["dead-letters", "show", "5"]).await.expect_code(64);
    let none = order_closer(&settings, &["dead-letters", "retry", "--all"]).await.expect_code(0);
    assert_eq!(none.stdout, "0 put back\n");
}

/// A terminal says that there is nothing; whatever reads the list finds nothing in it.
#[tokio::test]
async fn empty_lists_say_so_on_a_terminal() {
    let (_database, settings) = shop(Kind::Postgres, "bigint").await;
    for (command, said) in [
        (["dead-letters", "list"].as_slice(), "no dead letters"),
        (&["events"], "no events of the last day; older ones are shown with --since"),
        (&["events", "--order", "7"], "no events"),
        (&["targets"], "no targets: "),
    ] {
        let shown = OneShot::with(&settings, command).on_terminal().run().await.expect_code(0);
        assert!(shown.stdout.starts_with(said) && shown.stdout.lines().count() == 1, "{command:?}: {shown:#?}");
        let piped = order_closer(&settings, command).await.expect_code(0);
        assert_eq!((piped.stdout.as_str(), piped.stderr.as_str()), ("", ""), "{command:?}");
    }
}

#[tokio::test]
async fn a_target_that_there_is_not_is_told_its_likeness() {
    let (_database, settings) = shop(Kind::Postgres, "bigint").await;
    let till = "[[events.webhooks]]\nname = 'billing'\nurl = 'http://127.0.0.1:1'\nsecrets = ['whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3']";
    for command in ["resume", "drop"] {
        let refused = order_closer(&settings.clone().add(till), &["targets", command, "biling"]).await.expect_code(64);
        assert!(refused.stderr.ends_with("no event waits for one; did you mean billing?\n"), "{refused:#?}");
    }
}
