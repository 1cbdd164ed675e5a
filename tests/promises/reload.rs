//! SIGHUP: what can change changes, all at once, and whatever can't is refused as a whole.

use reqwest::{Client, StatusCode};

use super::listening;
use crate::support::{
    Daemon, Kind, NotifySocket, Redis, Settings, Shop, order_closer, ports, process,
    receiver::{Receiver, SECRETS},
    wait,
};

const DAY: i64 = 86_400_000;

#[tokio::test]
async fn the_log_s_level_changes_and_systemd_hears_of_it() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Sqlite).await;
    let socket = NotifySocket::open();
    let settings = shop.settings_with(&redis);
    let daemon = Daemon::started(&settings, |command| socket.starts(command, 60_000_000));
    daemon.until_logged("listening for expired keys").await;
    shop.order(1, -1_000).await;
    shop.until_all_settled().await;
    assert_eq!(daemon.logged("DEBUG"), 0);
    assert!(daemon.reload(&settings.clone().set("log.level", "debug").toml()).await);
    daemon.until_logged("looked ahead").await;
    assert_eq!(daemon.said("the configuration was read anew")[0]["changed"], "log.level");
    assert!(daemon.reload(&settings.toml()).await);
    assert!(daemon.hang_up().await, "nothing has changed");
    wait::until("systemd has heard of all", async || socket.count("READY=1") == 4).await;
    assert_eq!((socket.count("RELOADING=1"), socket.count("MONOTONIC_USEC=")), (3, 3), "{:?}", socket.heard());
    daemon.stop().await;
    let reread = daemon.lines().iter().rposition(|line| line.contains("the configuration was read anew")).unwrap();
    assert!(daemon.lines()[reread..].iter().all(|line| !line.contains("DEBUG")));
}

/// Webhooks come, go, and move, while orders close.
#[tokio::test]
async fn targets_are_added_changed_and_removed() {
    let (redis, first, second) = (Redis::start(), Receiver::start().await, Receiver::start().await);
    let shop = Shop::open(Kind::Postgres).await;
    let plain = shop.settings_with(&redis).toml();
    let one = format!("{plain}\n{}", first.webhook("a", ""));
    let both = format!("{one}\n{}", second.one_more_webhook("b"));
    let moved = format!("{plain}\n{}", second.webhook("a", ""));
    let settings = shop.settings_with(&redis).add(&first.webhook("a", ""));
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    let daemon = listening(&settings).await;
    let close = async |number: i64| {
        shop.order(number, -1_000).await;
        shop.until_all_settled().await;
    };
    let until_told = async |receiver: &Receiver, orders: &[i64]| {
        let told = async || receiver.taken().into_keys().collect::<Vec<i64>>();
        wait::until_eq("the orders that it was told of", orders.to_vec(), told).await;
    };
    close(1).await;
    until_told(&first, &[1]).await;
    assert!(daemon.reload(&both).await);
    close(2).await;
    until_told(&first, &[1, 2]).await;
    until_told(&second, &[2]).await;
    assert!(daemon.reload(&one).await);
    close(3).await;
    until_told(&first, &[1, 2, 3]).await;
    assert_eq!(shop.database.number("SELECT count(*) FROM order_closer_deliveries WHERE target = 'b'").await, 0);
    assert!(daemon.reload(&moved).await);
    close(4).await;
    until_told(&second, &[2, 4]).await;
    until_told(&first, &[1, 2, 3]).await;
    daemon.stop().await;
    shop.assert_outcome().await;
}

#[tokio::test]
async fn a_stream_is_added() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Sqlite).await;
    let settings = shop.settings_with(&redis).set("events.enabled", true);
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    let daemon = listening(&settings).await;
    assert!(daemon.reload(&settings.set("events.stream.key", "closed").toml()).await);
    shop.order(1, -1_000).await;
    wait::until("the entry is there", async || redis.command(&["XLEN", "closed"]).integer() == 1).await;
    daemon.stop().await;
}

/// A receiver moves, and its URL is nowhere but in a file.
#[tokio::test]
async fn a_receivers_url_is_read_anew_from_its_file() {
    let (redis, first, second) = (Redis::start(), Receiver::start().await, Receiver::start().await);
    let (shop, folder) = (Shop::open(Kind::Sqlite).await, process::folder());
    let file = folder.path().join("url");
    let url_of = |receiver: &Receiver| -> String {
        let webhook: toml::Table = receiver.one_more_webhook("a").parse().unwrap();
        webhook["events"]["webhooks"][0]["url"].as_str().unwrap().into()
    };
    std::fs::write(&file, url_of(&first)).unwrap();
    let webhook = first.webhook("a", "").replace(&format!("url = '{}'", url_of(&first)), &format!("url_file = '{}'", file.display()));
    let settings = shop.settings_with(&redis).add(&webhook);
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    let daemon = listening(&settings).await;
    shop.order(1, -1_000).await;
    wait::until("it is told", async || first.taken().contains_key(&1)).await;
    std::fs::write(&file, url_of(&second)).unwrap();
    assert!(daemon.hang_up().await);
    assert_eq!(daemon.said("the configuration was read anew")[0]["changed"], "events.webhooks");
    shop.order(2, -1_000).await;
    wait::until("the other one is told", async || second.taken().contains_key(&2)).await;
    assert_eq!((first.taken().len(), second.taken().len()), (1, 1));
    daemon.stop().await;
}

#[tokio::test]
async fn tokens_and_secrets_are_read_anew_from_their_files() {
    const TOKENS: [&str; 2] = ["0123456789abcdef-the-first-token", "0123456789abcdef-the-second-token"];
    let (redis, receiver, folder) = (Redis::start(), Receiver::start().await, process::folder());
    let shop = Shop::open(Kind::Sqlite).await;
    let (token, secret) = (folder.path().join("token"), folder.path().join("secret"));
    std::fs::write(&token, TOKENS[0]).unwrap();
    std::fs::write(&secret, SECRETS[0]).unwrap();
    let webhook = format!("[events]\nenabled = true\n{}", receiver.one_more_webhook("a"));
    let webhook: String = webhook.lines().filter(|line| !line.starts_with("secrets")).map(|line| format!("{line}\n")).collect();
    let address = format!("127.0.0.1:{}", ports::free());
    let settings = shop
        .settings_with(&redis)
        .set("http.listen", address.as_str())
        .set("http.token_file", token.display().to_string())
        .add(&format!("{webhook}secret_files = ['{}']", secret.display()));
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    let daemon = listening(&settings).await;
    daemon.until_logged("answering over HTTP").await;
    rustls::crypto::ring::default_provider().install_default().ok();
    let client = Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
    let answers = async || {
        let ask = async |token| client.get(format!("http://{address}/status")).bearer_auth(token).send().await.unwrap().status();
        [ask(TOKENS[0]).await, ask(TOKENS[1]).await]
    };
    assert_eq!(answers().await, [StatusCode::OK, StatusCode::UNAUTHORIZED]);
    std::fs::write(&token, TOKENS[1]).unwrap();
    std::fs::write(&secret, SECRETS[1]).unwrap();
    assert!(daemon.hang_up().await);
    assert_eq!(answers().await, [StatusCode::UNAUTHORIZED, StatusCode::OK]);
    shop.order(1, -1_000).await;
    wait::until("it is told", async || receiver.taken().contains_key(&1)).await;
    receiver.received()[0].assert_signed_with(SECRETS[1]);

    // A token that is none: nothing is taken over, of the secret neither.
    std::fs::write(&token, "short").unwrap();
    std::fs::write(&secret, SECRETS[0]).unwrap();
    assert!(!daemon.hang_up().await);
    assert_eq!(answers().await, [StatusCode::UNAUTHORIZED, StatusCode::OK]);
    shop.order(2, -1_000).await;
    wait::until("it is told", async || receiver.taken().contains_key(&2)).await;
    receiver.received().iter().find(|one| one.order() == 2).unwrap().assert_signed_with(SECRETS[1]);
    daemon.stop().await;
    for secret in [TOKENS[0], TOKENS[1], SECRETS[0], SECRETS[1]] {
        assert_eq!(daemon.logged(secret), 0);
    }
}

/// Without notifications, keys and a look-ahead nothing would find them.
#[tokio::test]
async fn the_sweep_comes_more_often_and_reaches_further_back() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    shop.orders_due_in(1..=3, -31 * DAY).await;
    shop.orders_due_in(4..=6, -DAY).await;
    let settings = shop.settings_with(&redis).set("sweep.every", "1h").set("sweep.ahead", "0s");
    let daemon = listening(&settings).await;
    wait::until_eq("the number of closed orders", 3, async || shop.closed().await).await;
    assert!(daemon.reload(&settings.clone().set("sweep.ahead", "5s").toml()).await);
    shop.orders_due_in(7..=9, 4_000).await;
    for number in 7..=9 {
        shop.until_status(number, 4).await;
    }
    assert!(daemon.reload(&settings.clone().set("sweep.every", "200ms").set("sweep.oldest", "none").toml()).await);
    shop.until_all_settled().await;
    shop.order(10, -1_000).await;
    shop.until_all_settled().await;
    daemon.stop().await;
    shop.assert_outcome().await;
}

/// Nothing of such a file is taken over, what could change neither.
#[tokio::test]
async fn what_can_not_change_is_refused_by_name() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let settings = shop.settings_with(&redis);
    let daemon = listening(&settings).await;
    let changed = settings
        .clone()
        .set("log.level", "debug")
        .set("orders.table", "invoices")
        .set("close.workers", 5)
        .set("database.url", shop.database.url.replace("postgres@", "postgres:hunter2@"));
    assert!(!daemon.reload(&changed.toml()).await);
    let refused = daemon.said("refused as a whole; going on as before");
    let reason = refused[0]["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("close.workers, database.connections, database.url, orders.table can't change while the daemon runs"),
        "{reason}"
    );
    assert_eq!(refused[0]["level"], "ERROR");
    // The same in other words is the same.
    let same = settings.clone().set("sweep.every", "1000ms").set("close.workers", 2).set("database.timeout", "10000ms");
    assert!(daemon.reload(&same.toml()).await);
    goes_on(&daemon, &shop).await;
    assert_eq!((daemon.logged("DEBUG"), daemon.logged("hunter2")), (0, 0));
}

/// What is otherwise where nobody is asked any more.
const NOBODY_ASKED: &str = "rules.two.close.ask.ahead, rules.two.close.ask.batch, rules.two.close.ask.concurrency, \
                            rules.two.close.ask.include, rules.two.close.ask.max_wait, rules.two.close.ask.timeout, \
                            rules.two.close.ask.unanswered";

/// Each rule takes over what is its own; a rule that is added, left out or renamed is named, not each of its settings.
#[tokio::test]
async fn rules_change_and_do_not_come_or_go() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    shop.database.execute("ALTER TABLE orders ADD COLUMN kind integer NOT NULL DEFAULT 1").await;
    let rule = |name: &str, kind: i64, more: &str| {
        format!("[[rules]]\nname = '{name}'\nkey_prefix = 'order_'\norders = {{ filter = 'kind = {kind}' }}\n{more}\n")
    };
    let asks = |timeout: &str, secret: usize| {
        let ask = format!("url = 'http://127.0.0.1:1/', secrets = ['{}'], timeout = '{timeout}'", SECRETS[secret]);
        format!("close = {{ retry = {{ attempts = 1 }}, ask = {{ {ask} }} }}")
    };
    let plain = Settings::new().set("database.url", shop.database.url.as_str()).set("redis.url", redis.url()).set("log.format", "json");
    let (one, two) = (rule("one", 1, ""), rule("two", 2, &asks("3s", 0)));
    let with = |rules: &[&str]| plain.clone().add(&rules.concat());
    let daemon = listening(&with(&[&one, &two])).await;
    for (rules, names) in [
        (vec![one.clone(), two.clone(), rule("three", 3, "")], "rules.three"),
        (vec![two.clone()], "rules.one"),
        (vec![rule("uno", 1, ""), two.clone()], "rules.one, rules.uno"),
        (vec![one.clone(), rule("two", 2, &asks("5s", 0))], "rules.two.close.ask.timeout"),
        (vec![one.clone(), rule("two", 2, "close = { retry = { attempts = 1 } }")], NOBODY_ASKED),
        (vec![one.clone(), rule("two", 4, &asks("3s", 0))], "rules.two.orders.filter"),
    ] {
        let before = daemon.said("refused as a whole; going on as before").len();
        let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
        assert!(!daemon.reload(&with(&rules).toml()).await, "{names}");
        let refused = daemon.said("refused as a whole; going on as before");
        assert_eq!(
            refused[before]["reason"],
            format!("{names} can't change while the daemon runs; restart it, or put back what was there")
        );
    }
    let retries = rule("one", 1, "close = { retry = { attempts = 1 } }");
    assert!(daemon.reload(&with(&[&two, &retries]).set("sweep.every", "200ms").toml()).await, "in another order");
    assert_eq!(daemon.said("the configuration was read anew").last().unwrap()["changed"], "rules.one.close.retry.attempts, sweep.every");
    shop.order(1, -1_000).await;
    shop.until_status(1, 4).await;
    daemon.stop().await;
    assert_eq!(daemon.logged("whsec_"), 0);
}

#[tokio::test]
async fn a_broken_file_is_harmless() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Sqlite).await;
    let settings = shop.settings_with(&redis);
    let daemon = listening(&settings).await;
    let misspelt = |key: &str, value: &str| settings.clone().set(key, value).toml();
    let nameless = format!("{}\n[events]\n[[events.webhooks]]\nname = 'a'\nurl = 'http://127.0.0.1:1/'\n", settings.toml());
    for (text, says) in [
        ("[orders\n".to_owned(), "TOML parse error"),
        (misspelt("sweep.evry", "1s"), "sweep.evry"),
        (misspelt("sweep.every", "0s"), "sweep.every is 0s"),
        (misspelt("log.level", "lowd"), "log.level"),
        (nameless, "secrets are missing"),
    ] {
        let before = daemon.said("refused as a whole; going on as before").len();
        assert!(!daemon.reload(&text).await, "{text}");
        let refused = daemon.said("refused as a whole; going on as before");
        let reason = refused[before]["reason"].as_str().unwrap();
        assert!(reason.contains(says), "{reason}");
    }
    std::fs::remove_file(daemon.config_file()).unwrap();
    assert!(!daemon.hang_up().await);
    goes_on(&daemon, &shop).await;
}

async fn goes_on(daemon: &Daemon, shop: &Shop) {
    shop.order(1, -1_000).await;
    shop.until_all_settled().await;
    daemon.stop().await;
    shop.assert_outcome().await;
}

/// The page that says what can change, and what does.
#[test]
fn the_documentation_lists_what_can_change_and_nothing_else() {
    let page = include_str!("../../docs/systemd.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | live |"));
    let documented: Vec<&str> = rows.flat_map(|(names, _)| names.split("`, `")).collect();
    assert_eq!(documented, order_closer::config::LIVE);
}
