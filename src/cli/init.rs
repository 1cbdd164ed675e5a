//! `order-closer init`: a configuration for an orders table, from what its database says and what people answer.
//!
//! It only reads, and each read ends after a few seconds. Nothing is written before the last question is answered; then the file is written
//! whole, over no other one. What it guesses stands in [`guesses`] and is always a proposal: which statuses mean unpaid and closed
//! is never decided without a person or a flag. Passwords are kept out of the file.

mod asker;
mod candidates;
mod file;
mod guesses;
mod keys;
mod mapping;
mod samples;
mod shops;
mod snippet;

use std::{
    env,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use url::Url;

use crate::{
    app::settings_of,
    cli::{CommandResult, Exit, Failure, check, output::print},
    config::{Config, DatabaseUrl, INIT_FILE, KeyPrefix, RedisUrl, Rule, Span, load_text},
    order::{OrderId, Row},
    store::{self, Store, Survey, grants},
};
use asker::{Asker, Choice, Question};
use file::{Server, Servers};
use mapping::Mapping;
use shops::Shop;
use snippet::Language;

/// How long each read may take.
const READ: Duration = Duration::from_secs(3);

const DATABASE: &str = "ORDER_CLOSER_DATABASE__URL";
const REDIS: &str = "ORDER_CLOSER_REDIS__URL";

/// On a terminal, whatever is left out is asked, with a proposal where there is one.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The database with the orders [env: ORDER_CLOSER_DATABASE__URL]; a password is better given there than here.
    #[arg(long, value_name = "URL")]
    database_url: Option<String>,
    /// Redis [env: ORDER_CLOSER_REDIS__URL] [default: redis://127.0.0.1:6379]; it need not be there.
    #[arg(long, value_name = "URL")]
    redis_url: Option<String>,
    /// Take the shipped example for this shop system, such as mall or woocommerce; "none" for a table of your own.
    #[arg(long, value_name = "NAME")]
    shop: Option<String>,
    /// The orders table; with its schema where a bare name would not find it.
    #[arg(long, value_name = "TABLE")]
    table: Option<String>,
    /// The column with the id that stands in the keys.
    #[arg(long, value_name = "COLUMN")]
    id: Option<String>,
    /// The column with the status.
    #[arg(long, value_name = "COLUMN")]
    status: Option<String>,
    /// The status of an order that waits for its payment; several with commas.
    #[arg(long, value_name = "STATUS", value_delimiter = ',')]
    unpaid: Option<Vec<String>>,
    /// The status that closing sets.
    #[arg(long, value_name = "STATUS")]
    closed: Option<String>,
    /// The column with the payment deadline, or with the time of creation.
    #[arg(long, value_name = "COLUMN")]
    deadline: Option<String>,
    /// How long an order may wait for its payment, where that column holds the time of creation: 30m.
    #[arg(long, value_name = "TIME")]
    plus: Option<Span>,
    /// What a column of numbers counts since 1970.
    #[arg(long, value_parser = ["s", "ms"])]
    unit: Option<String>,
    /// The zone in which a column without one was written: +08:00, UTC, Asia/Shanghai.
    #[arg(long, value_name = "ZONE")]
    time_zone: Option<String>,
    /// What stands before the id in a key.
    #[arg(long, value_name = "PREFIX")]
    key_prefix: Option<String>,
    /// One more condition on an order; "none" leaves out the proposed one about deleted rows.
    #[arg(long, value_name = "SQL")]
    filter: Option<String>,
    /// Print what an order service does, in this language.
    #[arg(long, value_enum)]
    language: Option<Language>,
    /// Replace the file if it is there.
    #[arg(long)]
    force: bool,
}

pub(super) async fn run(file: Option<PathBuf>, arguments: Arguments) -> CommandResult {
    let file = file.unwrap_or_else(|| INIT_FILE.into());
    let asker = Asker::new();
    let replace = may_replace(&asker, &arguments, &file)?;
    let servers = servers(&asker, &arguments)?;
    let secrets = file::secrets(&file, &servers, replace)?;
    let base = base(&servers)?;
    let survey = Survey::open(settings_of(&base)).await?;
    let chosen = choose(&asker, &arguments, &survey, &base, &servers).await;
    survey.close().await;
    let (text, newest) = chosen?;
    let config = configured(&file, &text, &base)?;
    let mut stores = Vec::new();
    for config in config.of_each_rule() {
        let store = open(&config).await?;
        samples::show(&config, &store, &newest).await;
        stores.push((config, store));
    }
    let language = language(&asker, &arguments)?;
    if !asker.confirm(&format!("Write {}?", file.display()), true, true)? {
        return Err(Failure::new(Exit::Unfinished, "nothing was written"));
    }
    write(&file, &text, secrets, replace)?;
    for (config, store) in &stores {
        to_do(config, store.as_ref()).await;
        store.close().await;
    }
    if let Some((clients, code)) = language.code(&base.database.url) {
        print(&format!(
            "\nWhat an order service does in {clients}, of a table `orders`; write your own names, statuses, deadline and key instead of \
             those in it, and your database's client:\n"
        ));
        print(code);
    }
    let program = format!("order-closer --config {}", file.display());
    print(&format!("\n{program} check"));
    let exit = check::run(&config, &check::Arguments::without_rehearsal()).await?;
    print(&format!(
        "\nWhen nothing is left to mend, see what it would close, and let it:\n\n{program} run --shadow --for 1h\n{program} run"
    ));
    Ok(exit)
}

/// Whether a file that is there is to be replaced.
fn may_replace(asker: &Asker, arguments: &Arguments, file: &Path) -> Result<bool, Failure> {
    if arguments.force || file.symlink_metadata().is_err() {
        return Ok(arguments.force);
    }
    if asker.confirm(&format!("{} is there already. Replace it?", file.display()), false, false)? {
        return Ok(true);
    }
    Err(file::refuse_to_replace(file))
}

/// Where the servers are: by flags, by the variables that the daemon reads, or asked.
fn servers(asker: &Asker, arguments: &Arguments) -> Result<Servers, Failure> {
    let variable = |name: &str| env::var(name).ok().filter(|url| !url.is_empty());
    let server = |flag: &Option<String>, name: &'static str| match (flag.clone(), variable(name)) {
        (Some(url), _) => Some(Server { variable: name, url, from_variable: false }),
        (None, Some(url)) => Some(Server { variable: name, url, from_variable: true }),
        (None, None) => None,
    };
    let redis = server(&arguments.redis_url, REDIS).unwrap_or(Server {
        variable: REDIS,
        url: "redis://127.0.0.1:6379".into(),
        from_variable: false,
    });
    let database = match server(&arguments.database_url, DATABASE) {
        Some(database) => database,
        None => Server { variable: DATABASE, url: ask_database(asker)?, from_variable: false },
    };
    Ok(Servers { database, redis })
}

fn ask_database(asker: &Asker) -> Result<String, Failure> {
    let proposals = [
        Choice::new("postgres://user@host:5432/shop", ""),
        Choice::new("mysql://user@host:3306/shop", ""),
        Choice::new("sqlite:///var/lib/shop/orders.db", ""),
    ];
    let what = "the database's URL (postgres://, mysql:// or sqlite://)";
    let question = Question { flag: "--database-url", what, proposals: &proposals, default: None, otherwise: None };
    let url = asker.text(&question, |url| DatabaseUrl::try_from(url.to_owned()).map(drop))?;
    let Ok(mut parsed) = Url::parse(&url) else { return Ok(url) };
    if parsed.scheme() == "sqlite" || parsed.username().is_empty() || parsed.password().is_some() {
        return Ok(url);
    }
    let password = asker.password(&format!("the password of {} (not shown; empty for none)", parsed.username()))?;
    if password.is_empty() {
        return Ok(url);
    }
    // Fails only for URLs that can't have one.
    parsed.set_password(Some(&password)).ok();
    Ok(parsed.to_string())
}

/// What is in effect before there is a file: the environment, and these servers.
fn base(servers: &Servers) -> Result<Config, Failure> {
    let wrong = |message: String| Failure::new(Exit::Usage, message);
    let mut config = load_text(Path::new(INIT_FILE), None).map_err(|message| Failure::new(Exit::Configuration, message))?.config;
    config.database.url = DatabaseUrl::try_from(servers.database.url.clone()).map_err(|what| wrong(format!("--database-url: {what}")))?;
    config.redis.url = RedisUrl::try_from(servers.redis.url.clone()).map_err(|what| wrong(format!("--redis-url: {what}")))?;
    Ok(config)
}

/// The configuration that a text says, with the servers as they are reached.
fn configured(file: &Path, text: &str, base: &Config) -> Result<Config, Failure> {
    let mut config = load_text(file, Some(text.into())).map_err(|message| Failure::new(Exit::Configuration, message))?.config;
    config.database.url = base.database.url.clone();
    config.redis.url = base.redis.url.clone();
    Ok(config)
}

async fn open(config: &Config) -> Result<Arc<dyn Store>, Failure> {
    Ok(store::open(settings_of(config).reading_within(READ)).await?)
}

/// The text of the file, and the ids of the newest orders.
async fn choose(
    asker: &Asker,
    arguments: &Arguments,
    survey: &Survey,
    base: &Config,
    servers: &Servers,
) -> Result<(String, Vec<String>), Failure> {
    if let Some(shop) = shop(asker, arguments, survey, base)? {
        print(&format!(
            "The tables are those of {}; the orders are in {}. Its example is taken: config/examples/{}.toml.",
            shop.about, shop.table, shop.name
        ));
        return Ok((file::of_shop(&shop, servers), Vec::new()));
    }
    let mut mapping = Mapping::ask(asker, arguments, survey, base).await?;
    refine(asker, &mut mapping, base, servers).await?;
    let prefix = Question {
        flag: "--key-prefix",
        what: if mapping.prefix_was_seen {
            "what stands before the id in a key, as seen in Redis"
        } else {
            "what stands before the id in a key"
        },
        proposals: &[],
        default: Some(&mapping.key_prefix.clone()),
        otherwise: Some(&mapping.key_prefix.clone()),
    };
    if arguments.key_prefix.is_none() {
        mapping.key_prefix = asker.text(&prefix, |text| KeyPrefix::try_from(text.to_owned()).map(drop))?;
    }
    Ok((file::of_table(&mapping, servers), mapping.newest))
}

/// The shop system whose tables these are, if its example is wanted.
fn shop(asker: &Asker, arguments: &Arguments, survey: &Survey, base: &Config) -> Result<Option<Shop>, Failure> {
    let mut known = shops::known(&base.database.url, &survey.tables);
    let wanted = match arguments.shop.as_deref() {
        Some(name) => name.to_owned(),
        None if arguments.table.is_some() || known.is_empty() => return Ok(None),
        None => {
            let mut choices: Vec<Choice> = known.iter().map(|shop| Choice::new(shop.name, &shop.about)).collect();
            choices.dedup();
            choices.push(Choice::new("none", "a table of your own, not this example"));
            asker.choose("--shop", "the shop system, by its tables", &choices, &[], false)?
        }
    };
    if wanted == "none" {
        return Ok(None);
    }
    known.retain(|shop| shop.name == wanted);
    if !known.is_empty() {
        return one_of(asker, arguments, known).map(Some);
    }
    let names: Vec<&str> = shops::names().collect();
    let reason = if names.contains(&wanted.as_str()) {
        "this database lacks tables, or columns of the orders, that its example names".to_owned()
    } else {
        format!(
            "there is no example of that name{}; there are {}",
            crate::order::did_you_mean(&wanted, names.iter().copied()),
            names.join(", ")
        )
    };
    Err(Failure::new(Exit::Usage, format!("--shop {wanted}: {reason}")))
}

/// The shop that is meant, where a database has several of one system, each with a prefix of its own.
fn one_of(asker: &Asker, arguments: &Arguments, mut shops: Vec<Shop>) -> Result<Shop, Failure> {
    let table = match arguments.table.as_deref() {
        Some(table) => table.to_owned(),
        None if shops.len() == 1 => shops[0].table.clone(),
        None => {
            let choices: Vec<Choice> = shops.iter().map(|shop| Choice::new(&shop.table, "")).collect();
            asker.choose("--table", "the shop's table with the orders", &choices, &[], false)?
        }
    };
    let tables: Vec<&str> = shops.iter().map(|shop| shop.table.as_str()).collect();
    match tables.iter().position(|known| *known == table) {
        Some(at) => Ok(shops.swap_remove(at)),
        None => {
            let name = shops[0].name;
            Err(Failure::new(Exit::Usage, format!("--table {table}: the orders of {name} are in {}", tables.join(", "))))
        }
    }
}

/// Learns from rows and keys in which zone times were written and how long keys live, and asks for the time limit.
async fn refine(asker: &Asker, mapping: &mut Mapping, base: &Config, servers: &Servers) -> Result<(), Failure> {
    let redis = keys::connect(&base.redis).await;
    // First without a time limit: what the column itself says.
    let given = mapping.plus.take();
    let mut read = rows(mapping, base, servers).await?;
    if mapping.time_zone.is_none() && mapping.holds_creation() {
        mapping.time_zone = keys::zone_of_newest(read.0.as_ref(), &read.1);
        if let Some(zone) = &mapping.time_zone {
            print(&format!("The newest orders are in the future unless {} is read in {zone}.", mapping.deadline.name));
        }
    }
    if given.is_some() || mapping.time_zone.is_some() {
        mapping.plus = given;
        read.0.close().await;
        read = rows(mapping, base, servers).await?;
    }
    let (store, rows) = read;
    let prefix = KeyPrefix::try_from(mapping.key_prefix.clone()).unwrap_or_default();
    let difference = match &redis {
        Some(redis) => keys::difference(redis, &prefix, &rows).await,
        None => None,
    };
    let is_limit = mapping.holds_creation() && mapping.plus.is_none();
    let seen = difference.as_ref().filter(|_| is_limit).and_then(keys::time_limit).map(Span::from);
    let is_shown = difference.is_some();
    if let Some(difference) = difference.filter(|_| !is_limit && mapping.time_zone.is_none()) {
        mapping.time_zone = keys::zone(store.as_ref(), &difference);
        if let Some(zone) = &mapping.time_zone {
            print(&format!("Keys expire {difference} after {}; read in {zone} both agree.", mapping.deadline.name));
        }
    }
    let (matters, read_in) = (store.zone_matters(), store.time_zone());
    store.close().await;
    mapping.ask_time_limit(asker, seen)?;
    if matters && mapping.time_zone.is_none() {
        let what = format!("the zone in which {} was written, such as +08:00; empty for {read_in}", mapping.deadline.name);
        let question = Question { flag: "--time-zone", what: &what, proposals: &[], default: None, otherwise: Some("") };
        let valid = |text: &str| if text.is_empty() { Ok(()) } else { crate::config::TimeZone::try_from(text.to_owned()).map(drop) };
        mapping.time_zone = Some(asker.text(&question, valid)?).filter(|zone| !zone.is_empty());
        if mapping.time_zone.is_none() && !is_shown {
            print(&format!(
                "Neither keys nor rows show in which zone {} is written; it is read in {read_in}. If the application \
                 writes another, orders close by so many hours too early: --time-zone.",
                mapping.deadline.name
            ));
        }
    }
    Ok(())
}

/// The newest orders by the mapping as it is known so far.
async fn rows(mapping: &Mapping, base: &Config, servers: &Servers) -> Result<(Arc<dyn Store>, Vec<Row>), Failure> {
    let config = configured(Path::new(INIT_FILE), &file::of_table(mapping, servers), base)?;
    let store = open(&config).await?;
    let ids: Vec<OrderId> = mapping.newest.iter().map(|id| OrderId::from_database(id)).collect();
    let rows = store.look(&ids).await?;
    Ok((store, rows))
}

fn language(asker: &Asker, arguments: &Arguments) -> Result<Language, Failure> {
    if let Some(language) = arguments.language {
        return Ok(language);
    }
    let choices: Vec<Choice> = Language::ALL.iter().map(|(name, _)| Choice::new(*name, "")).collect();
    let name = asker.choose("--language", "the order service's language, to print what it does", &choices, &[], true)?;
    Ok(Language::ALL.iter().find(|(known, _)| *known == name).map_or(Language::None, |(_, language)| *language))
}

fn write(file: &Path, text: &str, secrets: Option<(PathBuf, String)>, replace: bool) -> Result<(), Failure> {
    if let Some((beside, text)) = secrets {
        // Replaced, since it has what stood there before.
        file::write(&beside, &text, 0o600, true)?;
        print(&format!("{} has the password, as a variable for systemd's EnvironmentFile; nobody else reads it.", beside.display()));
    }
    file::write(file, text, 0o644, replace)?;
    print(&format!("{} is written.", file.display()));
    Ok(())
}

/// Prints the statements that the database's owner has to run.
async fn to_do(config: &Config, store: &dyn Store) {
    if let Ok(catalogue) = store.catalogue().await {
        let missing = [catalogue.sweep_index, catalogue.id_index].into_iter().filter(|index| index.found.is_none());
        let create: Vec<String> = missing.map(|index| index.create).collect();
        if !create.is_empty() {
            print("\nAn index that is missing:\n");
            create.iter().for_each(|statement| print(statement));
        }
    }
    let statements = grants(&Rule::of(config), &config.database.url, config.database.url.database().as_deref()).statements;
    if !statements.is_empty() {
        print("\nWhat the daemon's own user needs, once it is created (docs/database.md has how, and more for events):\n");
        statements.iter().for_each(|statement| print(statement));
    }
}
