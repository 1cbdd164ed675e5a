//! What wrong settings lead to: an error that names the key, the value, where it came from and what would be right.

use super::{SECRET, assert_no_secret};
use crate::support::{OneShot, Settings};

/// Runs `config` with this file and these variables, which are wrong, and returns what it says, without the line.
pub(super) async fn refusal(toml: &str, variables: &[(&str, &str)]) -> String {
    let one = OneShot::with(&Settings::new().add(toml), &["config"]);
    let one = variables.iter().fold(one, |one, (name, value)| one.env(name, value));
    let finished = one.run().await.expect_code(78);
    assert_eq!(finished.stdout, "", "{finished:#?}");
    assert_no_secret(&finished);
    without_lines(&finished.stderr.replace(&one.config_file().display().to_string(), "FILE"))
}

fn without_lines(said: &str) -> String {
    let mut parts = said.split("FILE, line ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |said, rest| said + "FILE" + rest.trim_start_matches(|c: char| c.is_ascii_digit()))
}

/// Whatever is wrong in a file has its line.
#[tokio::test]
async fn the_line_is_named() {
    let start = "# The first line.\n[redis]\nurl = 'redis://h'\n";
    for (toml, line) in [
        ("[sweep]\npage = 10\nevry = '5s'", 6),
        ("[sweep]\npage = 10\nevery = 5", 6),
        ("[sweep]\n\npage = 5", 6),
        ("listn = 'all'", 4),
        ("[sweeep]\nevery = '5s'", 4),
        ("[orders]\ndeadline = { unit = 's', plus = 'soon' }", 5),
        ("[[events.webhooks]]\nname = 'a'\nurl = 'https://h'\ntimeout = 'soon'", 7),
        ("[[events.webhooks]]\nname = 'a'\nurl_file = '/nowhere/url'", 6),
        ("[[events.webhooks]]\nurl = 'https://h'\nname = 'https://h'", 6),
        ("[close.ask]\nurl = 'https://h'", 4),
    ] {
        let one = OneShot::with(&Settings::new(), &["config"]);
        std::fs::write(one.config_file(), format!("{start}{toml}")).expect("a file can be written");
        let said = one.run().await.expect_code(78).stderr;
        assert!(said.ends_with(&format!("(set in {}, line {line})\n", one.config_file().display())), "{toml}: {said}");
    }
    // A variable's place is the variable.
    let said = refusal("[sweep]\npage = 10", &[("ORDER_CLOSER_SWEEP__PAGE", "5")]).await;
    assert!(said.ends_with("(set in the environment variable ORDER_CLOSER_SWEEP__PAGE)\n"), "{said}");
}

#[tokio::test]
async fn unknown_settings_are_refused() {
    let said = refusal("[sweep]\nevry = '5s'", &[]).await;
    assert_eq!(
        said,
        "order-closer: sweep.evry: there is no such setting, but every, ahead, page, oldest; did you mean every? (set in FILE)\n"
    );
    let said = refusal("[sweeep]\nevery = '5s'", &[]).await;
    assert!(said.contains("sweeep: there is no such setting, but redis, database, ") && said.contains("(set in FILE)"), "{said}");
    let said = refusal("", &[("ORDER_CLOSER_REDIS__URI", "redis://h")]).await;
    assert!(said.contains("redis.uri: there is no such setting, but url, "), "{said}");
    assert!(said.contains("(set in the environment variable ORDER_CLOSER_REDIS__URI)"), "{said}");
    let said = refusal("[close]\nretry = { attempts = 3, inital = '1s' }", &[]).await;
    assert!(said.contains("close.retry.inital: there is no such setting, but attempts, initial, max; did you mean initial?"), "{said}");
}

/// As most other programs spell them.
#[tokio::test]
async fn a_variable_with_single_underscores_is_told_its_name() {
    for (name, meant) in [
        ("ORDER_CLOSER_LOG_LEVEL", "ORDER_CLOSER_LOG__LEVEL"),
        ("order_closer_database_url", "ORDER_CLOSER_DATABASE__URL"),
        ("ORDER_CLOSER_CLOSE_BATCH_SIZE", "ORDER_CLOSER_CLOSE__BATCH_SIZE"),
        ("ORDER_CLOSER_ORDERS_DEADLINE_COLUMN", "ORDER_CLOSER_ORDERS__DEADLINE__COLUMN"),
        ("ORDER_CLOSER_HTTP_TOKEN", "ORDER_CLOSER_HTTP__TOKEN"),
        // Those that have no default, too, and tables and lists.
        ("ORDER_CLOSER_ORDERS_DEADLINE", "ORDER_CLOSER_ORDERS__DEADLINE"),
        ("ORDER_CLOSER_ORDERS_DEADLINE_PLUS", "ORDER_CLOSER_ORDERS__DEADLINE__PLUS"),
        ("ORDER_CLOSER_ORDERS__DEADLINE_UNIT", "ORDER_CLOSER_ORDERS__DEADLINE__UNIT"),
        ("ORDER_CLOSER_EVENTS_WEBHOOKS", "ORDER_CLOSER_EVENTS__WEBHOOKS"),
        ("ORDER_CLOSER_EVENTS_STREAM", "ORDER_CLOSER_EVENTS__STREAM"),
        ("ORDER_CLOSER_EVENTS_STREAM_MAX_LEN", "ORDER_CLOSER_EVENTS__STREAM__MAX_LEN"),
        ("ORDER_CLOSER_TIMERS_WEBHOOKS", "ORDER_CLOSER_TIMERS__WEBHOOKS"),
        ("ORDER_CLOSER_TIMERS_STREAM", "ORDER_CLOSER_TIMERS__STREAM"),
        ("ORDER_CLOSER_CLOSE_ASK", "ORDER_CLOSER_CLOSE__ASK"),
        ("ORDER_CLOSER_CLOSE_ASK_SECRETS", "ORDER_CLOSER_CLOSE__ASK__SECRETS"),
        ("ORDER_CLOSER_CLOSE_ASK_BATCH", "ORDER_CLOSER_CLOSE__ASK__BATCH"),
        ("ORDER_CLOSER_REDIS_URL_FILE", "ORDER_CLOSER_REDIS__URL_FILE"),
    ] {
        let said = refusal("", &[(name, SECRET)]).await;
        let expected = format!("there is no such setting; did you mean {meant}, with two underscores for each dot");
        assert!(said.contains(&expected) && said.lines().count() == 1, "{name}: {said}");
    }
    let rule = "[[rules]]\nname = 'by-hand'\nkey_prefix = 'none'";
    for (name, meant) in [
        ("ORDER_CLOSER_RULES_BY_HAND_CLOSE_BATCH_SIZE", "ORDER_CLOSER_RULES__BY_HAND__CLOSE__BATCH_SIZE"),
        ("ORDER_CLOSER_RULES_BY_HAND_KEY_PREFIX", "ORDER_CLOSER_RULES__BY_HAND__KEY_PREFIX"),
    ] {
        let said = refusal(rule, &[(name, "7")]).await;
        assert!(said.contains(&format!("there is no such setting; did you mean {meant}, with two underscores for each dot")), "{said}");
    }
    let said = refusal("", &[("ORDER_CLOSER_COLOUR", "x")]).await;
    assert!(said.contains("there is no such setting, but redis, ") && !said.contains("did you mean"), "{said}");
}

/// URLs as other programs have them: what is to be written instead, and nothing of what they hold.
#[tokio::test]
async fn database_urls_of_other_programs_are_told_what_to_write() {
    for (url, expected) in [
        (
            "jdbc:mysql://root:tell-nobody@h:3306/shop?useSSL=false",
            "write mysql://user:password@host:port/database in place of jdbc:mysql://",
        ),
        (
            "jdbc:postgresql://h/shop?user=u&password=tell-nobody",
            "write postgres://user:password@host:port/database in place of jdbc:postgresql://",
        ),
        (
            "jdbc:mysql://root:tell-nobody@h:3306/shop?useSSL=false&serverTimezone=Asia%2FShanghai",
            "without JDBC's parameters, and database.time_zone = \"Asia/Shanghai\" for its zone (set in",
        ),
        ("jdbc:mysql://h/shop?serverTimezone=tell-nobody!", "without JDBC's parameters, and its zone as database.time_zone (set in"),
        ("mysql://u:tell-nobody@h/shop?timezone=%2B08:00", "this URL has timezone, which is a setting of its own here: "),
        ("mariadb://u:tell-nobody@h/shop?time-zone=%2B08:00", "write the zone as database.time_zone"),
        ("jdbc:sqlite:shop.db", "write sqlite:// and the file in place of jdbc:sqlite:"),
        ("postgresql+psycopg://u:tell-nobody@h/shop", "write postgres:// in place of postgresql with a driver's name"),
        ("mysql+pymysql://u:tell-nobody@h/shop", "write mysql:// in place of mysql with a driver's name"),
        ("mysql2://u:tell-nobody@h/shop", "write mysql:// in place of mysql2:"),
        ("mysql://u:tell-nobody@h/shop?serverTimezone=Asia/Shanghai", "this URL has serverTimezone, which is a setting of its own here: "),
        ("mysql://u:tell-nobody@h/shop?parseTime=true&loc=Local", "write the zone as database.time_zone"),
        ("postgres://u:tell-nobody@h/shop?TimeZone=Asia/Shanghai", "write the zone as database.time_zone"),
        ("mysql://u:tell-nobody@h/shop?charset=utf8", "this URL has charset, which is always utf8mb4 here"),
        ("mysql://u:tell-nobody@h1,h2/shop?charset=latin1", "take it out of the URL"),
        ("postgresql://u:tell-nobody@h/shop?schema=public", "this URL has schema, as Prisma writes it: take it out of the URL"),
        (
            "postgresql://u:tell-nobody@h/shop?sslmode=require&channel_binding=require",
            "this URL has channel_binding, which means something to",
        ),
    ] {
        let said = refusal(&format!("[database]\nurl = '{url}'"), &[]).await;
        assert!(said.contains(expected) && said.lines().count() == 1, "{url}: {said}");
    }
    let same = Settings::new().set("database.url", "mysql://h/shop?charset=UTF8MB4");
    OneShot::with(&same, &["config"]).run().await.expect_code(0);
    // What stands before the colon may be somebody's name.
    let said = refusal("[database]\nurl = 'tell-nobody:pw@tcp(h:3306)/shop'", &[]).await;
    assert_eq!(said, "order-closer: database.url: a database URL begins with sqlite://, postgres:// or mysql:// (set in FILE)\n");
}

/// What is said about each: the key, what it has, what would be right.
#[tokio::test]
async fn wrong_values_are_refused() {
    for (toml, key, texts) in [
        ("[sweep]\nevery = 5", "sweep.every", ["the number 5", "a length of time with its unit, such as \"5s\""]),
        ("[sweep]\nevery = 'soon'", "sweep.every", ["\"soon\"", "a length of time such as \"30s\""]),
        ("[sweep]\nevery = '0s'", "sweep.every", ["is 0s", "longer"]),
        ("[sweep]\npage = 5", "sweep.page", ["is 5", "from 10 to 100000"]),
        ("[close]\nbatch_size = 'lots'", "close.batch_size", ["\"lots\"", "a whole number"]),
        ("[close]\nbatch_size = -1", "close.batch_size", ["-1", "a whole number"]),
        ("[close]\nsql = 'DELETE FROM t WHERE o IN (:ids)'", "close.sql", ["DELETE FROM t", "a list"]),
        ("[close]\nbatch_size = 100\ninbox = 50", "close.inbox", ["is 50", "from 100 to"]),
        ("[orders]\nunpaid = []", "orders.unpaid", ["at least one status", ""]),
        ("[orders]\nunpaid = [1.5]", "orders.unpaid", ["whole numbers or strings", "[0, 1]"]),
        ("[orders]\nclosed = 0", "orders.closed", ["is 0", "orders.unpaid"]),
        ("[orders]\nclosed = \"it's\"", "orders.closed", ["it's", "quotes"]),
        ("[orders]\ntable = 'a.b.c'", "orders.table", ["\"a.b.c\"", "such as orders, shop.orders"]),
        ("[orders]\ntable = 5", "orders.table", ["the number 5", "a text in quotes"]),
        ("[orders]\ndeadline = 'expires_at'", "orders.deadline", ["\"expires_at\"", "a table"]),
        ("[orders]\ndeadline = { column = 'c', unit = 'us' }", "orders.deadline.unit", ["\"us\"", "s or ms"]),
        ("[orders]\ndeadline = { column = 'c', plus = 30 }", "orders.deadline.plus", ["the number 30", "with its unit"]),
        ("[orders]\nset = { status = '5' }", "orders.set", ["status column", "orders.closed"]),
        ("[orders]\nset = { Status = '5' }", "orders.set", ["status column", "orders.closed"]),
        ("[orders]\nset = { '\"STATUS\"' = '5' }", "orders.set", ["status column", "orders.closed"]),
        ("[orders]\nstatus = 'State'\nset = { state = '5' }", "orders.set", ["sets State", "status column"]),
        ("[orders]\nset = { Order_No = '0' }", "orders.set", ["sets order_no", "id column"]),
        ("[close]\nsql = [{ sql = 'WITH a AS (SELECT 1) SELECT * FROM a', rows = 1 }]", "close.sql", ["SELECT", "leave rows out"]),
        ("[close]\nsql = [{ sql = '/* x */ SELECT 1 WHERE 1 IN (:ids)', rows = 1 }]", "close.sql", ["SELECT", "leave rows out"]),
        ("[redis]\nenable_notifications = 'yes'", "redis.enable_notifications", ["\"yes\"", "true or false"]),
        ("[redis]\nlisten = 'some'", "redis.listen", ["\"some\"", "all or own"]),
        ("[redis]\nkey_prefix = ''", "redis.key_prefix", ["is empty", "every expired key"]),
        ("[redis]\nurl = 'redis://h1,h2'", "redis.url", ["several hosts", "redis-cluster://"]),
        ("[redis]\nurl = 'redis-sentinel://h1,h2'", "redis.url", ["names the service", "?sentinelServiceName=mymaster"]),
        ("[redis]\nurl = 'redis://h/300'", "redis.url", ["database number", "from 0 to 255"]),
        ("[database]\ntime_zone = 'UTC+8'", "database.time_zone", ["\"UTC+8\"", "\"+08:00\""]),
        ("[log]\nformat = 'xml'", "log.format", ["\"xml\"", "text or json"]),
        ("[log]\nlevel = 'order_closer=shout'", "log.level", ["\"order_closer=shout\"", "\"info\""]),
        ("[log]\nlevel = 'inof'", "log.level", ["\"inof\"", "\"info\""]),
        ("[log]\nlevel = 'order_closer=debug,inof'", "log.level", ["debug,inof\"", "\"info\""]),
        ("[close]\nretry = { max = '0s' }", "close.retry.max", ["is 0s", "longer"]),
        ("[events]\nretry = { max = '0s' }", "events.retry.max", ["is 0s", "longer"]),
        ("[events]\nkeep = '99999999999d'", "events.keep", ["\"99999999999d\"", "is longer than 100 years"]),
        ("[close]\nretry = { max = '99999999999d' }", "close.retry.max", ["99999999999d", "is longer than 100 years"]),
        ("[close]\nretry = { initial = '101y' }", "close.retry.initial", ["101y", "is longer than 100 years"]),
        ("[events]\nretry = { max = '584542046090y' }", "events.retry.max", ["584542046090y", "is longer than 100 years"]),
        ("[sweep]\noldest = '99999999999d'", "sweep.oldest", ["99999999999d", "is longer than 100 years"]),
        ("[sweep]\nevery = '99999999999999999999d'", "sweep.every", ["99999999999999999999d", "is not a length of time"]),
        ("[sweep]\nahead = '1000y'", "sweep.ahead", ["1000y", "is longer than 100 years"]),
        ("[database]\ntimeout = '1000y'", "database.timeout", ["1000y", "is longer than 100 years"]),
        ("[database]\ntimeout = '25h'", "database.timeout", ["is 1d 1h", "at most 1 day"]),
        ("[shutdown]\ntimeout = '1000y'", "shutdown.timeout", ["1000y", "is longer than 100 years"]),
        ("[log]\nsummary = '1000y'", "log.summary", ["1000y", "is longer than 100 years"]),
        ("[orders]\ndeadline = { column = 'c', plus = '1000y' }", "orders.deadline.plus", ["1000y", "is longer than 100 years"]),
        (
            "[[events.webhooks]]\nname = 'w'\nurl = 'https://h'\ntimeout = '1000y'",
            "events.webhooks, entry 1, timeout",
            ["is longer than 100 years", ""],
        ),
        ("[database]\nurl = 'postgres://h/shop?sslmode=sometimes'", "database.url", ["its sslmode is none such as", "verify-full"]),
        ("[database]\nurl = 'sqlite://shop.db?mod=ro'", "database.url", ["parameter", "mode, cache"]),
        ("[database]\nurl = 'sqlite://closer:word@h/shop'", "database.url", ["names a file", "neither user nor password"]),
        ("[redis]\nca_file = 'redis://h'", "redis.ca_file", ["has a URL", "does not belong there"]),
        ("[orders]\nfilter = 'https://h'", "orders.filter", ["has a URL", "does not belong there"]),
        ("[database]\nurl = 'postgres://h/shop?sslmod=require'", "database.url", ["parameter", "sslmode"]),
        ("[redis]\nurl = 'redis://closer@h'", "redis.url", ["a user and no password", "redis://:password@host"]),
    ] {
        let said = refusal(toml, &[]).await;
        assert!(said.starts_with(&format!("order-closer: {key}")), "{toml}: {said}");
        assert!(said.ends_with("(set in FILE)\n"), "{toml}: {said}");
        assert!(texts.iter().all(|text| said.contains(text)), "{toml}: {texts:?} expected: {said}");
    }
}

#[tokio::test]
async fn wrong_variables_are_named() {
    for (name, value, key, text) in [
        ("ORDER_CLOSER_SWEEP__EVERY", "5", "sweep.every", "with its unit"),
        ("ORDER_CLOSER_CLOSE__WORKERS", "0", "close.workers is 0", "from 1 to 64"),
        ("ORDER_CLOSER_CLOSE__BATCH_SIZE", "many", "close.batch_size", "a whole number"),
        ("ORDER_CLOSER_ORDERS__CLOSED", "0", "orders.closed is 0", "orders.unpaid"),
        ("ORDER_CLOSER_LOG__LEVEL", "a=b=c", "log.level", "filter"),
    ] {
        let said = refusal("[close]\nworkers = 3", &[(name, value)]).await;
        assert!(said.starts_with(&format!("order-closer: {key}")) && said.contains(text), "{name}: {said}");
        assert!(said.ends_with(&format!("(set in the environment variable {name})\n")), "{name}: {said}");
    }
}

/// Mistakes around a URL don't show its password.
#[tokio::test]
async fn a_wrong_url_keeps_its_secret() {
    let url = format!("postgres://closer:{SECRET}@h:port/shop");
    for (toml, variables) in [
        (format!("[database]\nurl = '{url}'"), None),
        (format!("[database]\nurl = ['{url}']"), None),
        (format!("database = '{url}'"), None),
        (format!("redis = 'redis://:{SECRET}@h'"), None),
        (format!("[redis]\nurl = 'redis://:{SECRET}@h/x'"), None),
        (format!("[redis]\nlisten = 'redis://:{SECRET}@h/x'"), None),
        (format!("[database]\nurl = 'oracle://closer:{SECRET}@h/shop'"), None),
        (format!("[database]\nurl = 'mysql://closer:12/{SECRET}@h/shop'"), None),
        (format!("[database]\nurl = 'mysql://closer:12?{SECRET}@h/shop'"), None),
        (format!("[database]\nurl = 'postgres://h/shop?password=12#{SECRET}'"), None),
        (format!("[database]\nurl = 'postgres://h/shop?password=12&{SECRET}'"), None),
        (format!("[redis]\nurl = 'redis://closer:12/{SECRET}@h'"), None),
        (format!("[redis]\nurl = 'redis://{SECRET}@h'"), None),
        (format!("[redis]\nurl = 'redis+unix:///redis.sock?password=12&{SECRET}'"), None),
        (String::new(), Some(("ORDER_CLOSER_DATABASE", url.as_str()))),
        (String::new(), Some(("ORDER_CLOSER_DATABASE__URL", url.as_str()))),
        (String::new(), Some(("ORDER_CLOSER_DATABASE__TIMEOUT", url.as_str()))),
    ] {
        let said = refusal(&toml, variables.as_slice()).await;
        assert!(said.contains("database") || said.contains("redis"), "{said}");
    }
}

/// Where a secret belongs nothing is quoted, whatever it looks like, and in whatever shape it stands there.
#[tokio::test]
async fn what_stands_where_a_secret_belongs_is_not_quoted() {
    let of_a_list = |list: &str, more: &str| format!("[[{list}]]\nname = 'a'\n{more}");
    for (key, toml) in ["events.webhooks", "timers.webhooks", "close.ask", "hints", "databases"].into_iter().flat_map(|key| {
        let (outer, inner) = key.split_once('.').unwrap_or(("", key));
        let whole = if outer.is_empty() { format!("{inner} = '{SECRET}'") } else { format!("[{outer}]\n{inner} = '{SECRET}'") };
        let within = match key {
            "close.ask" => format!("[close.ask]\nurl = 'https://h'\nsecrets = '{SECRET}'"),
            "databases" => format!("[databases]\nds = ['{SECRET}']"),
            "hints" => of_a_list(key, &format!("from = 'amqp'\nqueue = 'q'\nurl = '{SECRET}'")),
            _ => of_a_list(key, &format!("url = 'https://h'\nsecrets = '{SECRET}'")),
        };
        [(key, whole), (key, within)]
    }) {
        let said = refusal(&toml, &[]).await;
        assert!(said.starts_with(&format!("order-closer: {key}")), "{toml}: {said}");
    }
}

/// A webhook's secret that does not stand among its secrets is refused, and not shown.
#[tokio::test]
async fn a_misplaced_secret_is_refused_and_not_shown() {
    // It says tell-nobody in base64.
    let secret = "whsec_dGVsbC1ub2JvZHkuLi4uLi4uLi4uLi4uLi4u";
    let webhook = |more: &str| format!("[[events.webhooks]]\nurl = 'https://127.0.0.1/hook'\n{more}");
    let named = |more: &str| webhook(&format!("name = 'till'\nsecret_files = ['/no/secret']\n{more}"));
    let inline = |text: &str| vec![("ORDER_CLOSER_EVENTS__WEBHOOKS", text.to_owned())];
    for (toml, variables, key) in [
        (webhook(&format!("name = '{secret}'\nsecret_files = ['/no/secret']")), vec![], "events.webhooks, entry 1, name"),
        (webhook(&format!("name = 'till'\nsecret_files = ['{secret}']")), vec![], "events.webhooks, entry 1, secret_files, entry 1"),
        (webhook(&format!("name = 'till'\nsecret_files = '{secret}'")), vec![], "events.webhooks, entry 1, secret_files"),
        (webhook(&format!("name = 'till'\nsecrets = '{secret}'")), vec![], "events.webhooks, entry 1, secrets"),
        (
            webhook(&format!("name = 'till'\nsecrets = ['{secret}', '{}']", secret.replace('L', "ü"))),
            vec![],
            "events.webhooks, entry 1, secrets, entry 2",
        ),
        (named(&format!("concurrency = '{secret}'")), vec![], "events.webhooks, entry 1, concurrency"),
        (named(&format!("timeout = '{secret}'")), vec![], "events.webhooks, entry 1, timeout"),
        (named(&format!("ca_file = '{secret}'")), vec![], "events.webhooks, entry 1, ca_file"),
        (format!("[events]\nstream = '{secret}'"), vec![], "events.stream"),
        (format!("[events]\nstream = {{ key = '{secret}' }}"), vec![], "events.stream.key"),
        (format!("[events]\nkeep = '{secret}'"), vec![], "events.keep"),
        (format!("[events]\ninclude = ['{secret}']"), vec![], "events.include, entry 1"),
        (format!("[events]\n{secret} = 1"), vec![], "events.whsec_***"),
        (format!("[orders]\nfilter = \"'{secret}' = ''\""), vec![], "orders.filter"),
        (format!("[log]\nlevel = '{secret}'"), vec![], "log.level"),
        (String::new(), inline(secret), "events.webhooks"),
        (String::new(), inline(&format!("[\"{secret}\"]")), "events.webhooks, entry 1"),
        (String::new(), inline(&format!("{{name=\"till\",url=\"https://h\",secrets=[\"{secret}\"]}}")), "events.webhooks"),
        (String::new(), inline(&format!("[{{name=\"till\",url=\"https://h\",secrets=[\"{secret}\"]}}")), "events.webhooks"),
    ] {
        let variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let said = refusal(&toml, &variables).await;
        assert!(said.starts_with(&format!("order-closer: {key}")), "{toml} {variables:?}: {said}");
        assert!(!said.contains("dGVsbC1"), "{toml} {variables:?}: {said}");
    }
}

#[tokio::test]
async fn a_file_that_is_no_toml_keeps_its_secret() {
    let one = OneShot::with(&Settings::new(), &["config"]);
    std::fs::write(one.config_file(), format!("[database]\nurl = \"postgres://u:{SECRET}@h/d\" x\n")).expect("a file can be written");
    let finished = one.run().await.expect_code(78);
    assert_no_secret(&finished);
    assert!(finished.stderr.contains("line 2") && finished.stderr.contains(&one.config_file().display().to_string()), "{finished:#?}");
}

#[tokio::test]
async fn a_file_that_is_missing() {
    for arguments in [["--config", "no/such.toml", "config"], ["--config", ".", "config"]] {
        let finished = OneShot::new(&arguments).run().await.expect_code(78);
        let expected = format!("the configuration file {} can't be read", arguments[1]);
        assert!(finished.stderr.contains(&expected), "{finished:#?}");
    }
    let finished = OneShot::new(&["reconcile"]).env("ORDER_CLOSER_CONFIG", "no/such.toml").run().await.expect_code(78);
    assert!(finished.stderr.contains("no/such.toml"), "{finished:#?}");
}
