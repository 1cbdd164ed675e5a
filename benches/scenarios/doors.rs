//! How late orders are closed by hints that come through a door, each kind by itself and beside the look-ahead.

use std::{path::Path, sync::Arc, time::Duration};

use rand::{SeedableRng, rngs::StdRng, seq::SliceRandom};
use serde::{Deserialize, Serialize};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    intake::LIFETIME,
    lateness,
    lateness::{Lateness, Percentile},
    options::Options,
    orders,
    orders::{Millis, Orders},
    plots,
    progress::Progress,
    report::{Figures, Goal},
    servers,
    support::{RabbitMq, Redis, Settings},
    table::{Table, grouped},
};

/// More orders than this take a broker too long to hear of.
const LARGEST: u32 = 100_000;

/// How long the daemon runs before it counts, and is waited for after the last deadline. What is open then counts with the time
/// since its deadline.
const WARM_UP: Millis = 2_000;
const LAST: Millis = 3_000;

/// The key of the stream, and of the sorted set.
const KEY: &str = "orders:due";

/// The doors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Door {
    Stream,
    SortedSet,
    Amqp,
}

impl Door {
    const ALL: [Self; 3] = [Self::Stream, Self::SortedSet, Self::Amqp];

    fn name(self) -> &'static str {
        match self {
            Self::Stream => "stream, written at the deadlines",
            Self::SortedSet => "sorted set",
            Self::Amqp => "RabbitMQ, a time to live for each message",
        }
    }

    fn color(self) -> plots::RGBColor {
        match self {
            Self::Stream => plots::BLUE,
            Self::SortedSet => plots::GREEN,
            Self::Amqp => plots::VERMILION,
        }
    }
}

/// Every number of pending orders.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Doors {
    sizes: Vec<Size>,
    /// Why a door was left out.
    left_out: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Size {
    pending: u32,
    /// By hints alone, and with the look-ahead.
    doors: Vec<(Door, [Lateness; 2])>,
}

/// Why there is no queue to take from.
fn without_amqp() -> Option<String> {
    if !cfg!(feature = "amqp") {
        return Some("this was built without the feature amqp".into());
    }
    RabbitMq::version().is_none().then(|| "RabbitMQ is not installed (rabbitmq-server)".into())
}

/// Measures.
pub async fn run(options: &Options, progress: &Progress) -> Doors {
    let left_out = without_amqp();
    let sizes: Vec<u32> = options.sizes.iter().copied().filter(|size| (10_000..=LARGEST).contains(size)).collect();
    let sizes = if sizes.is_empty() { vec![options.sizes.iter().copied().min().unwrap_or(LARGEST).min(LARGEST)] } else { sizes };
    let doors: Vec<Door> = Door::ALL.into_iter().filter(|door| *door != Door::Amqp || left_out.is_none()).collect();
    progress.begin("doors", 2 * sizes.len() * doors.len());
    let mut measured = Vec::new();
    for pending in sizes {
        let mut size = Size { pending, doors: Vec::new() };
        for door in &doors {
            let mut both = Vec::new();
            for with_look_ahead in [false, true] {
                let how = if with_look_ahead { "with the look-ahead" } else { "alone" };
                progress.step(&format!("{pending} pending: {}, {how}", door.name()));
                let lateness = measure(*door, pending, with_look_ahead, options.seconds).await;
                progress.result(&format!("{}, {how}: {lateness}", door.name()));
                both.push(lateness);
            }
            size.doors.push((*door, [both.remove(0), both.remove(0)]));
        }
        measured.push(size);
    }
    Doors { sizes: measured, left_out }
}

/// Orders whose deadlines begin in a while, announced in an order that has nothing to do with these.
async fn measure(door: Door, pending: u32, with_look_ahead: bool, seconds: u32) -> Lateness {
    let server = servers::postgres();
    let redis = Arc::new(servers::redis());
    let broker = (door == Door::Amqp).then(RabbitMq::start);
    let shop = servers::shop_on(&server, None).await;
    // They fall due only when all have been announced.
    let ahead = 5_000 + Millis::from(pending) / 5;
    let orders = Orders { numbers: 1..i64::from(pending) + 1, due_from: orders::now() + ahead, over: LIFETIME };
    shop.take(&orders).await;
    shop.settle().await;
    let mut all: Vec<(i64, Millis)> = orders.parts().flatten().collect();
    all.shuffle(&mut StdRng::seed_from_u64(7));
    let (entry, _announcing) = match door {
        Door::Stream => (format!("from = 'redis-stream'\nkey = '{KEY}'"), Some(written_in_time(&redis, &orders))),
        Door::SortedSet => {
            for some in all.chunks(1_000) {
                let words: Vec<String> = some.iter().flat_map(|(number, deadline)| [deadline.to_string(), number.to_string()]).collect();
                redis.command(&["ZADD", KEY].into_iter().chain(words.iter().map(String::as_str)).collect::<Vec<_>>());
            }
            (format!("from = 'redis-zset'\nkey = '{KEY}'"), None)
        }
        Door::Amqp => {
            let url = broker.as_ref().map(RabbitMq::url).unwrap_or_default();
            publish(&url, &all).await;
            (format!("from = 'amqp'\nqueue = '{QUEUE}'\nurl = '{url}'"), None)
        }
    };
    // Nobody writes keys.
    let settings = shop.settings(&redis).set("redis.key_prefix", "none").add(&format!("[[hints]]\nname = 'door'\n{entry}"));
    let settings = if with_look_ahead { settings } else { by_hints_alone(settings) };
    orders::sleep_until(orders.due_from - 2_000).await;
    let daemon = servers::daemon(&settings).await;
    daemon.until_logged("hints are taken").await;
    let from = orders.due_from + WARM_UP;
    let until = from + Millis::from(seconds) * 1_000;
    orders::sleep_until(until + LAST).await;
    let lateness = Lateness::of(&lateness::fell_due(&shop, from, until).await);
    daemon.stop().await;
    lateness
}

fn by_hints_alone(settings: Settings) -> Settings {
    settings.set("sweep.ahead", "0s").set("sweep.every", "1h")
}

/// As an order service would that has timers of its own: each entry at its order's deadline.
fn written_in_time(redis: &Arc<Redis>, orders: &Orders) -> AbortOnDropHandle<()> {
    let (redis, orders) = (Arc::clone(redis), orders.clone());
    AbortOnDropHandle::new(tokio::spawn(async move {
        for number in orders.numbers.clone() {
            orders::sleep_until(orders.deadline(number)).await;
            redis.command(&["XADD", KEY, "*", "order_id", &number.to_string()]);
            // Others run on this thread, too.
            tokio::time::sleep(Duration::ZERO).await;
        }
    }))
}

/// Where messages come out whose time is over.
const QUEUE: &str = "orders.timeout";

/// Publishes each order with a time to live that ends at its deadline, as shops do: into a queue whose dead letters are hints.
#[cfg(feature = "amqp")]
async fn publish(url: &str, all: &[(i64, Millis)]) {
    use lapin::{
        BasicProperties, Connection, ConnectionProperties,
        options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions},
        types::{AMQPValue, FieldTable},
    };
    let connection = Connection::connect(url, ConnectionProperties::default()).await.expect("the broker takes clients");
    let channel = connection.create_channel().await.expect("a channel");
    channel.confirm_select(ConfirmSelectOptions::default()).await.expect("confirms");
    let mut dead_letters = FieldTable::default();
    dead_letters.insert("x-dead-letter-exchange".into(), AMQPValue::LongString("".into()));
    dead_letters.insert("x-dead-letter-routing-key".into(), AMQPValue::LongString(QUEUE.into()));
    for (queue, arguments) in [(QUEUE, FieldTable::default()), ("orders.delay", dead_letters)] {
        channel.queue_declare(queue.into(), QueueDeclareOptions::durable(), arguments).await.expect("a queue");
    }
    for (number, deadline) in all {
        let ttl = (deadline - orders::now()).max(0).to_string();
        let properties = BasicProperties::default().with_delivery_mode(2).with_expiration(ttl.into());
        let body = number.to_string();
        let published =
            channel.basic_publish("".into(), "orders.delay".into(), BasicPublishOptions::default(), body.as_bytes(), properties);
        drop(published.await.expect("the broker takes messages"));
    }
    channel.wait_for_confirms().await.expect("the broker has them");
    connection.close(200, "done".into()).await.expect("a connection that ends");
}

#[cfg(not(feature = "amqp"))]
fn publish(_: &str, _: &[(i64, Millis)]) -> std::future::Ready<()> {
    unreachable!("without it no queue is measured")
}

impl Figures for Doors {
    const TITLE: &str = "Doors";
    const ABOUT: &str = "So many orders are pending on PostgreSQL, with deadlines spread over 30 minutes, and are announced in random order by \
        nothing but a door: entries of a stream that the order service writes at each deadline, members of a sorted set with the deadlines as \
        scores, messages in a queue of RabbitMQ each with a time to live of its own and a dead-letter exchange. Measured by hints alone \
        (without look-ahead and sweep), and as the daemon comes. Lateness is that of punctual.";

    fn tables(&self) -> Vec<Table> {
        let table = |size: &Size| {
            let pending = format!("{} pending", grouped(size.pending.into()));
            let mut table = Table::new([&pending, "fell due", "closed", "p50", "p90", "p99", "max"]);
            for (door, both) in &size.doors {
                for (how, Lateness { due, closed, p50, p90, p99, max }) in ["alone", "with the look-ahead"].into_iter().zip(both) {
                    let figure = |percentile: &Percentile| percentile.to_string();
                    let name = format!("{}, {how}", door.name());
                    table.row([name, due.to_string(), closed.to_string(), figure(p50), figure(p90), figure(p99), figure(max)]);
                }
            }
            table
        };
        self.sizes.iter().map(table).collect()
    }

    fn goals(&self) -> Vec<Goal> {
        let mut goals = Vec::new();
        for Size { pending, doors } in &self.sizes {
            for (door, [alone, both]) in doors {
                let what = |how: &str| format!("{} pending, {}, {how}: p99", grouped((*pending).into()), door.name());
                goals.push(Goal::at_most(what("with the look-ahead"), both.p99.ms, 9.0, "ms"));
                if *door != Door::Amqp {
                    goals.push(Goal::at_most(what("alone"), alone.p99.ms, 150.0, "ms"));
                }
            }
        }
        goals
    }

    fn notes(&self) -> Vec<String> {
        let left_out = self.left_out.iter().map(|why| format!("RabbitMQ was left out: {why}."));
        let head = "A time to live ends a message at the head of its queue alone: one with a long time to live holds up all behind it, and hints \
            come when it has gone. What the look-ahead has seen waits for none of them.";
        left_out.chain([head.to_owned()]).collect()
    }

    fn plot(&self, folder: &Path) -> (&'static str, &'static str) {
        let file = "doors.svg";
        let labels: Vec<String> = self.sizes.iter().map(|size| format!("{} pending", grouped(size.pending.into()))).collect();
        let groups: Vec<[String; 2]> = labels.into_iter().map(|label| [label, "p99".to_owned()]).collect();
        let series = Door::ALL.into_iter().filter_map(|door| {
            let of = |size: &Size| size.doors.iter().find(|(known, _)| *known == door).map(|(_, [_, both])| both.p99.ms);
            let values: Option<Vec<f64>> = self.sizes.iter().map(of).collect();
            Some((door.color(), values?))
        });
        let series: Vec<(plots::RGBColor, Vec<f64>)> = series.collect();
        let names: Vec<(&str, plots::RGBColor)> = Door::ALL.iter().map(|door| (door.name(), door.color())).collect();
        plots::page(&folder.join(file), 340, |page| {
            let rest = plots::legend(page, &names)?;
            let bars = plots::Bars {
                title: "Lateness by door, with the look-ahead",
                y: "milliseconds, p99",
                groups,
                series,
                notes: Vec::new(),
                stacked: false,
            };
            bars.draw(&rest)
        });
        (file, "Lateness by door, with the look-ahead")
    }
}
