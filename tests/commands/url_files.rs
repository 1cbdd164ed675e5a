//! URLs that stand in files of their own, as systemd, Docker and Kubernetes hand over secrets.

use super::{SECRET, assert_no_secret, config::shown, wrong_settings::refusal};
use crate::support::{Kind, OneShot, Settings, Shop, order_closer, process};

#[tokio::test]
async fn the_file_has_the_url_and_nobody_sees_its_password() {
    let folder = process::folder();
    let (redis, database) = (folder.path().join("redis"), folder.path().join("database"));
    std::fs::write(&redis, format!("redis://closer:{SECRET}@h:6379/3\n")).expect("a file can be written");
    std::fs::write(&database, format!("postgres://closer:{SECRET}@h/shop")).expect("a file can be written");
    let one = OneShot::with(&Settings::new().set("redis.url_file", redis.display().to_string()), &["config", "--json"])
        .env("ORDER_CLOSER_DATABASE__URL_FILE", &database.display().to_string());
    let finished = one.run().await.expect_code(0);
    assert_no_secret(&finished);
    let shown = shown(&finished);
    assert_eq!(shown["redis.url"], ("\"redis://closer:***@h:6379/3\"".into(), redis.display().to_string()));
    assert_eq!(shown["database.url"], ("\"postgres://closer:***@h/shop\"".into(), database.display().to_string()));
    assert_eq!(shown["database.url_file"].1, "the environment variable ORDER_CLOSER_DATABASE__URL_FILE");
    // As many connections, and as large batches, as the database in the file takes.
    assert_eq!(shown["close.batch_size"].0, "1000");
}

#[tokio::test]
async fn orders_close_in_the_database_that_the_file_names() {
    let shop = Shop::open(Kind::Sqlite).await;
    shop.order(1, -60_000).await;
    let folder = process::folder();
    let file = folder.path().join("url");
    std::fs::write(&file, &shop.database.url).expect("a file can be written");
    let mut table: toml::Table = shop.settings().toml().parse().expect("settings are TOML");
    table["database"].as_table_mut().expect("a table").remove("url");
    let settings = Settings::new().add(&table.to_string()).set("database.url_file", file.display().to_string());
    order_closer(&settings, &["reconcile"]).await.expect_code(0);
    assert_eq!(shop.status(1).await, 4);
}

#[tokio::test]
async fn what_is_wrong_with_a_file_is_said_without_what_is_in_it() {
    let folder = process::folder();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a file can be written");
        path.display().to_string()
    };
    let (empty, wrong) = (write("empty", "\n"), write("wrong", &format!("postgre://closer:{SECRET}@h/shop")));
    let good = write("good", "sqlite://shop.db");
    let said = refusal("[database]\nurl_file = \"/nowhere/url\"", &[]).await;
    assert_eq!(
        said,
        "order-closer: database.url_file can't be used: /nowhere/url can't be read: No such file or directory (os error 2) (set in FILE)\n"
    );
    let said = refusal(&format!("[redis]\nurl_file = \"{empty}\""), &[]).await;
    assert_eq!(said, format!("order-closer: redis.url_file can't be used: {empty} is empty (set in FILE)\n"));
    let said = refusal(&format!("[database]\nurl_file = \"{wrong}\""), &[]).await;
    assert!(said.contains("database.url: a database URL begins with") && said.contains(&format!("(set in {wrong})")), "{said}");
    let said = refusal(&format!("[database]\nurl = \"sqlite://other.db\"\nurl_file = \"{good}\""), &[]).await;
    assert_eq!(said, "order-closer: database.url_file and database.url (set in FILE) are both set; one of them is enough (set in FILE)\n");
    let variable = [("ORDER_CLOSER_DATABASE__URL", "sqlite://other.db")];
    let said = refusal(&format!("[database]\nurl_file = \"{good}\""), &variable).await;
    assert!(said.contains("and database.url (set in the environment variable ORDER_CLOSER_DATABASE__URL) are both set"), "{said}");
    let said = refusal(&format!("[database]\nurl_file = \"postgres://closer:{SECRET}@h/shop\""), &[]).await;
    assert!(said.contains("database.url_file has a URL, which does not belong there"), "{said}");
    // Switched off, it is no file.
    let one = OneShot::with(&Settings::new().set("database.url_file", "none"), &["config"]);
    one.run().await.expect_code(0);
}

/// So may the URLs of those who are told and asked, in which there may be a token.
#[tokio::test]
async fn receivers_urls_stand_in_files_too() {
    let folder = process::folder();
    let write = |name: &str, host: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, format!("https://{host}/hook/{SECRET}?token={SECRET}\n")).expect("a file can be written");
        path.display().to_string()
    };
    let signed = |file: &str| format!("url_file = '{file}'\nsecrets = ['whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3']\n");
    let webhooks = |list: &str, first: &str, second: &str| {
        format!("[[{list}]]\nname = '{list}-1'\n{}[[{list}]]\nname = '{list}-2'\n{}", signed(first), signed(second))
    };
    let (one, two, three) = (write("one", "one.example"), write("two", "two.example"), write("three", "three.example"));
    let told = [webhooks("events.webhooks", &one, &two), webhooks("timers.webhooks", &two, &one)].concat();
    let only = OneShot::with(&Settings::new().add(&told), &["config", "--json"]);
    let finished = only
        .env("ORDER_CLOSER_CLOSE__ASK__URL_FILE", &three)
        .env("ORDER_CLOSER_CLOSE__ASK__SECRETS", "[\"whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3\"]")
        .run()
        .await
        .expect_code(0);
    assert_no_secret(&finished);
    let shown = shown(&finished);
    for list in ["events.webhooks", "timers.webhooks"] {
        let (value, source) = &shown[list];
        assert!(value.contains("one.example") && value.contains("two.example") && source.ends_with(".toml"), "{list}: {shown:#?}");
    }
    assert!(shown["close.ask.url"].0.contains("three.example") && shown["close.ask.url"].1 == three, "{shown:#?}");
    let rule = format!("[[rules]]\nname = 'by-hand'\nkey_prefix = 'none'\n[rules.close.ask]\n{}", signed(&three));
    let finished = OneShot::with(&Settings::new().add(&rule), &["config"]).run().await.expect_code(0);
    assert_no_secret(&finished);
    assert!(finished.stdout.contains("three.example"), "{finished:#?}");
    // What is wrong is said of the entry, and what else is wrong has its own source.
    for (toml, expected) in [
        (
            webhooks("events.webhooks", &one, "/nowhere/url"),
            "events.webhooks, entry 2, url_file can't be used: /nowhere/url can't be read: ",
        ),
        (
            webhooks("timers.webhooks", &one, &format!("{two}'\nurl = 'https://h")),
            "timers.webhooks, entry 2, url_file and timers.webhooks, entry 2, url (set in FILE) are both set",
        ),
        (format!("[close.ask]\n{}url = 'https://h'", signed(&three)), "close.ask.url_file and close.ask.url (set in FILE) are both set"),
        (
            format!("[close.ask]\nurl_file = '{three}'"),
            "close.ask has no secrets; write secrets = [\"whsec_...\"], or secret_files (set in FILE)",
        ),
        (rule.replace("secrets = ", "secret = "), "rules.by-hand.close.ask.secret: there is no such setting"),
        ("[[events.webhooks]]\nname = 'a'".into(), "events.webhooks, entry 1: url is missing (set in FILE)"),
        (
            webhooks("events.webhooks", &one, &format!("https://h/{SECRET}")),
            "events.webhooks, entry 2, url_file has a URL, which does not belong there",
        ),
    ] {
        let said = refusal(&toml, &[]).await;
        assert!(said.contains(expected) && said.contains("(set in FILE)"), "{expected}: {said}");
    }
}
