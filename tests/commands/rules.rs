//! Several rules in one configuration: what is wrong with them, and the commands that are about one of them.

use serde_json::Value;

use super::{config::shown, wrong_settings::refusal};
use crate::support::{Daemon, Database, Kind, OneShot, Redis, Settings, order_closer, wait};

const ONE: &str = "[[rules]]\nname = 'one'\nkey_prefix = 'a_'\norders = { filter = 'kind = 1' }\n";
const TWO: &str = "[[rules]]\nname = 'by-hand'\nkey_prefix = 'a_'\norders = { filter = 'kind = 2' }\n";

/// What is said about each: what it is about, what it has, what would be right, and where it stands.
#[tokio::test]
async fn wrong_rules_are_refused() {
    let more = |toml: &str| format!("{ONE}{toml}");
    let whsec = "whsec_dGVsbC1ub2JvZHkuLi4uLi4uLi4uLi4uLi4u";
    for (toml, texts) in [
        ("rules = 'one'".to_owned(), ["rules must be a list of tables", "[[rules]]"]),
        ("rules = []".to_owned(), ["rules is empty", "[[rules]]"]),
        ("[rules.one]\nkey_prefix = 'a_'".to_owned(), ["rules must be a list of tables", "[[rules]]"]),
        ("rules = [1]".to_owned(), ["rules, entry 1 is no table", "[[rules]]"]),
        ("[[rules]]\nkey_prefix = 'a_'".to_owned(), ["rules, entry 1: name is missing", "name = "]),
        (more("[[rules]]\nname = 2\nkey_prefix = 'a_'"), ["rules, entry 2: name takes a text", "in quotes"]),
        (more("[[rules]]\nname = 'By Hand'\nkey_prefix = 'a_'"), ["entry 2: name \"By Hand\" is no name of a rule", "small letters"]),
        (more(&format!("[[rules]]\nname = '{whsec}'\nkey_prefix = 'a_'")), ["entry 2: name a webhook's secret", "small letters"]),
        (more(ONE), ["rules, entry 2: the name one is another rule's", ""]),
        (more("[[rules]]\nname = 'two'"), ["rules, entry 2 (two): key_prefix is missing", "\"none\""]),
        (more("[[rules]]\nname = 'two'\nkey_prefix = ''"), ["rules.two.key_prefix: \"\" is empty", "every expired key"]),
        (more("[orders]\ntable = 'orders'"), ["orders says something of the only rule", "in each of them"]),
        (more("[redis]\nkey_prefix = 'b_'"), ["redis.key_prefix says something of the only rule", "in each of them"]),
        (more("[events]\ninclude = ['kind']"), ["events.include says something of the only rule", "in each of them"]),
        (more("[close]\nworkers = 3"), ["close says something of the only rule", "in each of them"]),
        (more("[[rules]]\nname = 'two'\nkey_prefix = 'a_'"), ["rules.two.orders.filter is missing", "the rule one"]),
        (more("close.batch = 5"), ["rules.one.close.batch: there is no such setting, but batch_size, ", ""]),
        (more("order = { table = 'o' }"), ["rules.one.order: there is no such setting, but name, key_prefix, orders, ", ""]),
        (more("sweep = { every = '1s' }"), ["rules.one.sweep: there is no such setting", ""]),
        (more("close = { batch_size = 0 }"), ["rules.one.close.batch_size is 0", "from 1 to 5000"]),
        (more("close = { retry = { max = 'soon' } }"), ["rules.one.close.retry.max: \"soon\"", "\"30s\""]),
        (more("close = { ask = { url = 'https://u:tell-nobody@h/' } }"), ["rules.one.close.ask has no secrets", "whsec_..."]),
        (more("close = { ask = 'tell-nobody' }"), ["rules.one.close.ask", "a table"]),
        (more(&format!("close = {{ ask = {{ url = 'https://h', secrets = '{whsec}' }} }}")), ["rules.one.close.ask.secrets", ""]),
        (
            more(&format!("close = {{ ask = {{ url = 'https://h', secret_files = ['{whsec}'] }} }}")),
            ["rules.one.close.ask.secret_files", ""],
        ),
        (more(&format!("include = ['{whsec}']")), ["rules.one.include, entry 1", ""]),
        (format!("[database]\nconnections = 5\n{ONE}{TWO}"), ["database.connections is 5", "from 6 to"]),
    ] {
        let said = refusal(&toml, &[]).await;
        assert!(texts.iter().all(|text| said.contains(text)), "{toml}: {texts:?} expected: {said}");
        assert!(said.contains("(set in FILE)") && !said.contains("dGVsbC1"), "{toml}: {said}");
    }
}

#[tokio::test]
async fn wrong_variables_about_rules_are_named() {
    for (name, value, texts) in [
        ("ORDER_CLOSER_ORDERS__TABLE", "orders", ["orders says something of the only rule", ""]),
        ("ORDER_CLOSER_CLOSE__BATCH_SIZE", "7", ["close says something of the only rule", ""]),
        ("ORDER_CLOSER_REDIS__KEY_PREFIX", "b_", ["redis.key_prefix says something of the only rule", ""]),
        ("ORDER_CLOSER_RULES__TWO__CLOSE__BATCH_SIZE", "7", ["rules.two is no rule that a variable could change", "has by-hand, one"]),
        ("ORDER_CLOSER_RULES__BY_HAND__CLOSE__WORKERS", "65", ["rules.by-hand.close.workers is 65", "from 1 to 64"]),
        ("ORDER_CLOSER_RULES__BY_HAND__CLOSE__BATCH_SIZE", "many", ["rules.by-hand.close.batch_size: has \"many\"", "a whole number"]),
        ("ORDER_CLOSER_RULES__BY_HAND__NAME", "two", ["rules.by-hand.name: there is no such setting", ""]),
        ("ORDER_CLOSER_RULES__BY_HAND", "tell-nobody", ["rules.by-hand: has a text, and takes a table", ""]),
        ("ORDER_CLOSER_RULES", "tell-nobody", ["rules: has a text, and takes a table", ""]),
    ] {
        let said = refusal(&format!("{ONE}{TWO}"), &[(name, value)]).await;
        assert!(texts.iter().all(|text| said.contains(text)), "{name}: {texts:?} expected: {said}");
        assert!(said.ends_with(&format!("(set in the environment variable {name})\n")), "{name}: {said}");
    }
    let said = refusal("", &[("ORDER_CLOSER_RULES__ONE__CLOSE__WORKERS", "3")]).await;
    assert!(said.contains("rules.one is no rule that a variable could change: the file has none"), "{said}");
}

/// As for the only rule: a smaller inbox makes smaller batches, and more workers or more rules more connections.
#[tokio::test]
async fn each_rule_has_its_values_their_sources_and_the_same_defaults() {
    let rules = format!(
        "{ONE}close = {{ inbox = 300, ask = {{ url = 'https://h/hidden', secrets = ['whsec_dGVsbC1ub2JvZHkuLi4uLi4uLi4uLi4uLi4u'] }} }}\n{TWO}"
    );
    let settings = Settings::new().set("database.url", "postgres://h/shop").add(&rules);
    let one = OneShot::with(&settings, &["config", "--json"]).env("ORDER_CLOSER_RULES__BY_HAND__CLOSE__WORKERS", "20");
    let finished = one.run().await.expect_code(0);
    assert!(!finished.stdout.contains("dGVsbC1") && !finished.stdout.contains("hidden"), "{finished:#?}");
    let shown = shown(&finished);
    let file = one.config_file().display().to_string();
    for (key, value, source) in [
        ("rules.one.close.inbox", "300", file.as_str()),
        ("rules.one.close.batch_size", "300", "the default"),
        ("rules.one.close.ask.url", "\"https://h/***\"", &file),
        ("rules.one.key_prefix", "\"a_\"", &file),
        ("rules.by-hand.orders.filter", "\"kind = 2\"", &file),
        ("rules.by-hand.close.batch_size", "1000", "the default"),
        ("rules.by-hand.close.workers", "20", "the environment variable ORDER_CLOSER_RULES__BY_HAND__CLOSE__WORKERS"),
        ("database.connections", "28", "the default"),
    ] {
        assert_eq!(shown.get(key), Some(&(value.to_owned(), source.to_owned())), "{key}");
    }
    assert!(shown.keys().all(|key| !key.starts_with("orders.") && !key.starts_with("close.") && key != "redis.key_prefix"), "{shown:#?}");
    let many: String = (0..10).map(|n| format!("[[rules]]\nname = 'r{n}'\nkey_prefix = 'none'\norders = {{ table = 't{n}' }}\n")).collect();
    let finished = OneShot::with(&Settings::new().add(&many), &["config", "--json"]).run().await.expect_code(0);
    assert_eq!(super::config::shown(&finished)["database.connections"].0, "14");
}

/// A table of orders of two kinds and one of reviews: three rules.
struct Shop {
    database: Database,
    settings: Settings,
    redis: Redis,
}

impl Shop {
    async fn open() -> Self {
        let (database, redis) = (Database::fresh(Kind::Postgres).await, Redis::start());
        for table in ["orders", "reviews"] {
            database
                .execute(&format!(
                    "CREATE TABLE {table} (order_no bigint PRIMARY KEY, status integer NOT NULL DEFAULT 0, kind integer, expires_at timestamptz)"
                ))
                .await;
        }
        let reviews = "[[rules]]\nname = 'reviews'\nkey_prefix = 'review_'\norders = { table = 'reviews' }\n";
        let settings = Settings::new()
            .set("database.url", database.url.as_str())
            .set("redis.url", redis.url())
            .set("events.enabled", true)
            .add(&format!("{ONE}{TWO}{reviews}"));
        order_closer(&settings, &["migrate"]).await.expect_code(0);
        Self { database, settings, redis }
    }

    async fn run(&self, arguments: &[&str]) -> String {
        order_closer(&self.settings, arguments).await.expect_code(0).stdout
    }

    async fn refused(&self, arguments: &[&str], code: i32) -> String {
        order_closer(&self.settings, arguments).await.expect_code(code).stderr
    }

    async fn lines(&self, arguments: &[&str]) -> Vec<Value> {
        self.run(arguments).await.lines().map(|line| serde_json::from_str(line).expect("JSON on each line")).collect()
    }
}

const STRANGER: &str = "there is no rule \"other\"; the configuration has by-hand, one, reviews";

#[tokio::test]
async fn a_rule_that_there_is_not_is_64_and_all_are_listed() {
    let shop = Shop::open().await;
    for arguments in [
        &["check"][..],
        &["events"],
        &["dead-letters", "list"],
        &["explain", "1"],
        &["pause", "--reason", "x"],
        &["resume"],
        &["arm", "1", "--ttl", "1h"],
    ] {
        let said = shop.refused(&[arguments, &["--rule", "other"]].concat(), 64).await;
        assert!(said.contains(STRANGER), "{arguments:?}: {said}");
    }
}

#[tokio::test]
async fn keys_are_armed_for_a_rule() {
    let shop = Shop::open().await;
    let said = shop.refused(&["arm", "7", "--ttl", "1h"], 64).await;
    assert!(said.contains("name the rule with --rule: the configuration has by-hand, one, reviews"), "{said}");
    assert_eq!(shop.run(&["arm", "7", "--ttl", "1h", "--rule", "reviews"]).await, "review_7 expires in 1h\n");
    assert_eq!(shop.run(&["arm", "7", "--ttl", "1h", "--rule", "one"]).await, "a_7 expires in 1h\n");
    assert_eq!(shop.redis.command(&["DBSIZE"]).integer(), 2);
}

#[tokio::test]
async fn check_is_about_all_rules_or_one() {
    let shop = Shop::open().await;
    shop.database.execute("INSERT INTO orders VALUES (1, 0, NULL, now()), (2, 0, NULL, now()), (3, 0, 1, now())").await;
    let all = order_closer(&shop.settings, &["check"]).await;
    let orphans = "2 orders of orders with an unpaid status (0) are taken by no rule";
    assert!(["one", "by-hand", "reviews"].iter().all(|rule| all.stdout.contains(rule)), "{all:#?}");
    assert_eq!(all.stdout.matches(orphans).count(), 1, "said once: {all:#?}");
    let one = order_closer(&shop.settings, &["check", "--rule", "reviews"]).await;
    assert!(one.stdout.contains("reviews") && !one.stdout.contains("by-hand"), "{one:#?}");
}

#[tokio::test]
async fn check_names_an_order_that_two_rules_take() {
    let shop = Shop::open().await;
    shop.database.execute("INSERT INTO orders VALUES (1, 0, 2, now()), (2, 0, 0, now())").await;
    let found = async |code: i32| {
        let check = OneShot::with(&shop.settings, &["check", "--json"]).env("ORDER_CLOSER_RULES__BY_HAND__ORDERS__FILTER", "kind >= 1");
        let report = check.run().await.expect_code(code).json();
        let findings = report["findings"].as_array().expect("a list").iter().filter(|finding| finding["name"] == "rules");
        findings.map(|finding| format!("{}: {}", finding["mark"], finding["found"])).collect::<Vec<_>>()
    };
    let untaken = r#""warn": "1 orders of orders with an unpaid status (0) are taken by no rule""#;
    assert_eq!(found(0).await, [untaken]);
    shop.database.execute("INSERT INTO orders VALUES (3, 0, 1, now())").await;
    let found = found(78).await;
    let twice = r#""fail": "by-hand and one both take the order 3, and neither closes it""#;
    assert_eq!(found, [twice, untaken]);
}

#[tokio::test]
async fn explanations_events_and_dead_letters_of_one_rule() {
    let shop = Shop::open().await;
    shop.database.execute("INSERT INTO orders VALUES (1, 0, 1, now()), (2, 0, 2, now()), (3, 0, 1, now() + interval '1 hour')").await;
    shop.database.execute("INSERT INTO reviews VALUES (1, 0, NULL, now()), (9, 0, NULL, now() + interval '1 hour')").await;
    let columns = "orders_table, rule, order_id, attempts, failed_at, error, dropped";
    for (table, rule, id) in [("orders", "one", "8"), ("orders", "by-hand", "2"), ("reviews", "reviews", "8")] {
        shop.database
            .execute(&format!("INSERT INTO order_closer_dead_letters ({columns}) VALUES ('{table}', '{rule}', '{id}', 8, 1, 'refused', 0)"))
            .await;
    }
    let rules = |lines: &[Value]| lines.iter().map(|line| line["rule"].as_str().expect("a rule").to_owned()).collect::<Vec<_>>();
    let explained = shop.lines(&["explain", "1", "--json"]).await;
    assert_eq!(rules(&explained), ["one", "reviews"], "not of by-hand: {explained:#?}");
    assert_eq!(rules(&shop.lines(&["explain", "1", "--rule", "reviews", "--json"]).await), ["reviews"]);

    assert_eq!(rules(&shop.lines(&["dead-letters", "list", "--json"]).await), ["by-hand", "one", "reviews"]);
    assert_eq!(rules(&shop.lines(&["dead-letters", "list", "--json", "--rule", "one"]).await), ["one"]);
    let listed = shop.run(&["dead-letters", "list"]).await;
    let begins: Vec<&str> = listed.lines().filter_map(|line| line.split_once("  ").map(|(begin, _)| begin)).collect();
    assert_eq!(begins, ["by-hand: order 2", "one: order 8", "reviews: order 8"]);
    let said = shop.refused(&["dead-letters", "retry", "8"], 64).await;
    assert!(said.contains("8 is a dead letter of the rules one, reviews; name one with --rule"), "{said}");
    shop.refused(&["dead-letters", "show", "8", "--rule", "by-hand"], 64).await;
    assert_eq!(shop.run(&["dead-letters", "retry", "8", "--rule", "reviews"]).await, "8: put back\n");
    assert_eq!(shop.run(&["dead-letters", "retry", "8"]).await, "8: put back\n", "only one is left");
    assert_eq!(shop.run(&["dead-letters", "retry", "--all", "--rule", "one"]).await, "0 put back\n");
    assert_eq!(shop.run(&["dead-letters", "retry", "--all"]).await, "1 put back\n");

    let daemon = Daemon::start(&shop.settings);
    for (table, order) in [("orders", 1), ("orders", 2), ("reviews", 1)] {
        let status = format!("SELECT status FROM {table} WHERE order_no = {order}");
        wait::until_eq("its status", 4, async || shop.database.number(&status).await).await;
    }
    daemon.stop().await;
    let mut events = rules(&shop.lines(&["events", "--json"]).await);
    events.sort();
    assert_eq!(events, ["by-hand", "one", "reviews"]);
    assert_eq!(rules(&shop.lines(&["events", "--json", "--rule", "by-hand"]).await), ["by-hand"]);
    assert_eq!(rules(&shop.lines(&["events", "--json", "--order", "1", "--rule", "reviews"]).await), ["reviews"]);
}

/// Under another name, nobody would see what was given up under the old one.
#[tokio::test]
async fn dead_letters_of_a_rule_that_is_no_more() {
    for kind in Kind::ALL {
        let (database, redis) = (Database::fresh(kind).await, Redis::start());
        database
            .execute(
                "CREATE TABLE orders (order_no bigint PRIMARY KEY, status integer NOT NULL DEFAULT 0, kind integer, expires_at bigint)",
            )
            .await;
        let settings = |rules: String| {
            let deadline = "deadline = { column = 'expires_at', unit = 's' }";
            Settings::new()
                .set("database.url", database.url.as_str())
                .set("redis.url", redis.url())
                .add(&rules.replace("orders = {", &format!("orders = {{ {deadline},")))
        };
        let before = settings(format!("{ONE}{TWO}"));
        let after = settings(format!("{ONE}{}", TWO.replace("by-hand", "by-eye")));
        order_closer(&before, &["migrate"]).await.expect_code(0);
        let columns = "orders_table, rule, order_id, attempts, failed_at, error, dropped";
        for (rule, id, dropped) in [("one", 1, 0), ("by-hand", 2, 0), ("by-hand", 3, 0), ("by-hand", 4, 1)] {
            let row = format!(
                "INSERT INTO order_closer_dead_letters ({columns}) VALUES ('orders', '{rule}', '{id}', 8, 1, 'refused', {dropped})"
            );
            database.execute(&row).await;
        }
        let said = async |settings: &Settings| {
            let lines = order_closer(settings, &["check"]).await.stdout;
            let lines: Vec<String> = lines.lines().map(str::to_owned).collect();
            let found = lines.iter().position(|line| line.starts_with("! dead letters"));
            found.map(|at| (lines[at].clone(), lines[at + 1].clone()))
        };
        assert_eq!(said(&before).await, None, "{kind:?}");
        let (found, fix) = said(&after).await.expect("a finding");
        assert!(found.contains("by-hand has given up 2 orders"), "{kind:?}: {found}");
        let (_, command) = fix.split_once("order-closer ").expect("a command");
        let forget = command.split_whitespace().collect::<Vec<_>>();
        for (settings, name) in [(&before, "by-hand"), (&after, "one"), (&after, "by-h'and"), (&after, "other")] {
            order_closer(settings, &["dead-letters", "forget", name]).await.expect_code(64);
        }
        assert_eq!(order_closer(&after, &forget).await.expect_code(0).stdout, "by-hand: 3 forgotten\n");
        assert_eq!(said(&after).await, None, "{kind:?}");
        assert_eq!(database.number("SELECT count(*) FROM order_closer_dead_letters").await, 1, "that of the other rule");
    }
}

#[tokio::test]
async fn one_rule_is_paused_or_all() {
    let shop = Shop::open().await;
    let paused = async |code: i32| -> Vec<String> {
        let said = order_closer(&shop.settings, &["status", "--json"]).await.expect_code(code).stdout;
        let rules = said.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON on each line"));
        rules.filter(|rule| rule["paused"] == true).map(|rule| rule["rule"].as_str().expect("a text").to_owned()).collect()
    };
    assert!(paused(0).await.is_empty());
    let said = shop.run(&["pause", "--rule", "by-hand", "--reason", "looking"]).await;
    assert!(said.starts_with("closing of the rule by-hand is paused until `order-closer resume`"), "{said}");
    assert_eq!(paused(75).await, ["by-hand"]);
    shop.run(&["pause", "--reason", "all of it"]).await;
    assert_eq!(paused(75).await, ["by-hand", "one", "reviews"]);
    let said = shop.run(&["resume", "--rule", "by-hand"]).await;
    assert!(said.contains("by-hand") || said.contains("paused"), "all are paused still, and that is said: {said}");
    shop.run(&["resume"]).await;
    assert!(paused(0).await.is_empty());
}
