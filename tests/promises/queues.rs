//! Hints from a queue of a real broker: acknowledged after the look, and redelivered whatever ends before.

use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties,
    options::{BasicGetOptions, BasicPublishOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable},
};

use super::{by_notification_alone, listening};
use crate::support::{
    Daemon, Kind, Proxy, RabbitMq, Redis, Settings, Shop, order_closer, process,
    rabbitmq::PASSWORD,
    shop::{CLOSED, UNPAID},
    wait,
};

const QUEUE: &str = "orders.timeout";
const DEAD: &str = "orders.dead";
const DELAY: &str = "orders.delay";

/// A producer as shops have it: a queue with a time to live, whose dead letters come into the one that is consumed; which has
/// a queue for its own dead letters.
struct Producer {
    channel: Channel,
    _connection: Connection,
}

impl Producer {
    async fn at(broker: &RabbitMq) -> Self {
        let connection = Connection::connect(&broker.url(), ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        let producer = Self { channel, _connection: connection };
        producer
            .channel
            .exchange_declare(
                "dead".into(),
                lapin::ExchangeKind::Fanout,
                ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() },
                FieldTable::default(),
            )
            .await
            .unwrap();
        producer.declare(DEAD, &[]).await;
        producer
            .channel
            .queue_bind(DEAD.into(), "dead".into(), "".into(), QueueBindOptions::default(), FieldTable::default())
            .await
            .unwrap();
        producer.declare(QUEUE, &[("x-dead-letter-exchange", "dead")]).await;
        producer.declare(DELAY, &[("x-dead-letter-exchange", ""), ("x-dead-letter-routing-key", QUEUE)]).await;
        producer
    }

    async fn declare(&self, queue: &str, arguments: &[(&str, &str)]) {
        let mut table = FieldTable::default();
        for (name, value) in arguments {
            table.insert((*name).into(), AMQPValue::LongString((*value).into()));
        }
        self.channel.queue_declare(queue.into(), QueueDeclareOptions::durable(), table).await.unwrap();
    }

    /// Publishes a message that survives the broker, and dies in its queue after so many milliseconds.
    async fn publish(&self, queue: &str, body: &str, ttl: Option<u32>) {
        let mut properties = BasicProperties::default().with_delivery_mode(2);
        if let Some(ttl) = ttl {
            properties = properties.with_expiration(ttl.to_string().into());
        }
        let published = self.channel.basic_publish("".into(), queue.into(), BasicPublishOptions::default(), body.as_bytes(), properties);
        published.await.unwrap().await.unwrap();
    }

    async fn order(&self, id: i64) {
        self.publish(QUEUE, &format!("{{\"order\":{{\"id\":{id}}}}}"), None).await;
    }

    /// How many messages are in a queue and not in anybody's hand.
    async fn ready(&self, queue: &str) -> u32 {
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        self.channel.queue_declare(queue.into(), passive, FieldTable::default()).await.unwrap().message_count()
    }
}

async fn shop_with(redis: &Redis, door: &str) -> (Shop, Settings) {
    let shop = Shop::open(Kind::Sqlite).await;
    let settings = by_notification_alone(shop.settings_with(redis));
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    let door = format!("[[hints]]\nname = 'timeouts'\nfrom = 'amqp'\nqueue = '{QUEUE}'\n{door}");
    (shop, settings.add(&door))
}

async fn taking(settings: &Settings) -> Daemon {
    let daemon = listening(settings).await;
    daemon.until_logged("hints are taken").await;
    daemon
}

#[tokio::test]
async fn messages_are_acknowledged_after_their_looks() {
    let (redis, broker) = (Redis::start(), RabbitMq::start());
    let producer = Producer::at(&broker).await;
    let (shop, settings) = shop_with(&redis, &format!("url = '{}'\nid = '/order/id'\nprefetch = 100", broker.url())).await;
    let checked = order_closer(&settings, &["check"]).await.expect_code(0).stdout;
    assert!(checked.contains("0 messages are ready in it"), "{checked}");
    let daemon = taking(&settings).await;
    shop.orders_due_in([1], -100).await;
    shop.orders_due_in([2], 1_500).await;
    shop.orders_due_in([3], 3_600_000).await;
    // As the message's time to live would have it, the first is the only one that comes after its deadline.
    producer.publish(DELAY, "{\"order\":{\"id\":\"1\"}}", Some(50)).await;
    producer.order(2).await;
    producer.order(3).await;
    for poison in ["{\"order\":{}}", "no json", "{\"order\":{\"id\":\"no number\"}}"] {
        producer.publish(QUEUE, poison, None).await;
    }
    shop.until_status(1, CLOSED).await;
    shop.until_status(2, CLOSED).await;
    wait::until("poison is where the queue sends its dead letters", async || producer.ready(DEAD).await == 3).await;
    daemon.until_logged("a hint names no order, and is set aside").await;
    daemon.stop().await;
    // The first may have been found by the sweep that begins with the subscription; of the second only the message spoke.
    assert!(daemon.summary().count("hint") >= 1);
    // Nothing was given back: what came early was acknowledged, too.
    assert_eq!((producer.ready(QUEUE).await, shop.status(3).await), (0, UNPAID));

    // No look is taken for a while, and the daemon dies.
    order_closer(&settings, &["pause", "--reason", "a test"]).await.expect_code(0);
    let daemon = taking(&settings).await;
    shop.orders_due_in(10..=309, -100).await;
    for id in 10..=309 {
        producer.order(id).await;
    }
    wait::until("as many are in hand as may be", async || producer.ready(QUEUE).await == 200).await;
    daemon.kill();
    wait::until("the broker has all of them again", async || producer.ready(QUEUE).await == 300).await;
    let daemon = taking(&settings).await;
    order_closer(&settings, &["resume"]).await.expect_code(0);
    wait::until("all are closed", async || shop.closed().await == 302).await;
    wait::until("the broker has none of them", async || producer.ready(QUEUE).await == 0).await;
    assert_eq!(producer.ready(DEAD).await, 3);
    daemon.stop().await;
}

#[tokio::test]
async fn a_broker_that_restarts_and_a_connection_that_is_cut() {
    let (redis, mut broker) = (Redis::start(), RabbitMq::start());
    let proxy = Proxy::before(&broker.url());
    let folder = process::folder();
    let file = folder.path().join("amqp-url");
    let url = proxy.url(&broker.url());
    std::fs::write(&file, url.replace(PASSWORD, "an-old-password")).unwrap();
    let (shop, settings) = shop_with(&redis, &format!("url_file = '{}'", file.display())).await;
    let daemon = listening(&settings.clone().set("log.level", "debug")).await;
    let refused = daemon.until_logged("no hints come in through this door").await;
    assert!(refused.contains("ERROR") && refused.contains("fix user and password"), "{refused}");
    let checked = order_closer(&settings, &["check"]).await.expect_code(78).stdout;
    assert!(checked.contains("fix user and password"), "{checked}");
    // The password is right from now on, and the queue is still missing.
    std::fs::write(&file, format!("{url}\n")).unwrap();
    daemon.until_logged("declare the queue orders.timeout").await;
    let producer = Producer::at(&broker).await;
    daemon.until_logged("hints are taken").await;

    shop.orders_due_in(1..=20, -100).await;
    producer.publish(QUEUE, "1", None).await;
    shop.until_status(1, CLOSED).await;
    wait::until("the connection is open", async || proxy.open() > 0).await;
    proxy.reset();
    producer.publish(QUEUE, " 2\n", None).await;
    shop.until_status(2, CLOSED).await;
    drop(producer);
    broker.kill();
    wait::until("the door is shut", async || daemon.logged("no hints come in through this door") >= 3).await;
    broker.start_again();
    let producer = Producer::at(&broker).await;
    for id in 3..=20 {
        producer.publish(QUEUE, &id.to_string(), None).await;
    }
    shop.until_all_settled().await;
    wait::until("nothing is left", async || producer.ready(QUEUE).await == 0).await;
    assert!(producer.channel.basic_get(DEAD.into(), BasicGetOptions::default()).await.unwrap().is_none());
    daemon.stop().await;
    let log = daemon.lines().join("\n");
    assert!(!log.contains(PASSWORD) && !log.contains("an-old-password"), "a password is in the log:\n{log}");
    shop.assert_outcome().await;
}

#[tokio::test]
async fn a_broker_with_tls() {
    let (redis, broker) = (Redis::start(), RabbitMq::start_with_tls());
    let producer = Producer::at(&broker).await;
    let url = format!("url = '{}'\nid = 'header:order_id'\n", broker.tls_url());
    let (_, stranger) = shop_with(&redis, &url).await;
    let checked = order_closer(&stranger, &["check"]).await;
    assert!(checked.code != Some(0) && checked.stdout.contains("ca_file"), "{checked:?}");
    let (shop, settings) = shop_with(&redis, &format!("{url}ca_file = '{}'", broker.ca_file().display())).await;
    let daemon = taking(&settings).await;
    shop.orders_due_in([7, 8], -100).await;
    for id in [AMQPValue::LongLongInt(7), AMQPValue::LongString("8".into())] {
        let mut headers = FieldTable::default();
        headers.insert("order_id".into(), id);
        let properties = BasicProperties::default().with_headers(headers);
        producer.channel.basic_publish("".into(), QUEUE.into(), BasicPublishOptions::default(), b"", properties).await.unwrap();
    }
    shop.until_all_settled().await;
    daemon.stop().await;
    shop.assert_outcome().await;
}
