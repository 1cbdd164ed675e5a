//! Consumers of other brokers: each hands its messages over by HTTP, to a daemon that is asked more than it answers, and
//! acknowledges an order's message after the look.

use std::{
    process::{Command, Output, Stdio},
    time::Duration,
};

use futures::future::join_all;
use reqwest::StatusCode;

use super::{events::reqwest_client, toolchain};
use crate::{
    promises::listening,
    support::{
        Kind, Redis, Shop, ports, process,
        shop::{PAID, UNPAID},
        wait,
    },
};

const TOKEN: &str = "0123456789abcdef-a-token-of-tests";

#[tokio::test]
async fn kafka_in_python() {
    consumer(toolchain::kafka).await;
}

#[tokio::test]
async fn rocketmq_in_java() {
    consumer(|| toolchain::hints("DriveRocketMq")).await;
}

#[tokio::test]
async fn redisson_in_java() {
    consumer(|| toolchain::hints("DriveRedisson")).await;
}

/// Runs a consumer to the end of its messages; what it has acknowledged, and whether it ended well.
async fn consume(command: Option<Command>, address: &str, token: &str, messages: &[String]) -> (Vec<String>, bool) {
    let folder = process::folder();
    let file = folder.path().join("messages");
    std::fs::write(&file, messages.iter().map(|message| format!("{message}\n")).collect::<String>()).expect("a file can be written");
    let mut command = command.expect("it was there before");
    command.env("CLOSER_URL", format!("http://{address}")).env("CLOSER_TOKEN", token).env("NO_PROXY", "127.0.0.1");
    command.stdin(std::fs::File::open(&file).expect("it can be read")).stderr(Stdio::inherit());
    let Output { stdout, status, .. } = tokio::task::spawn_blocking(move || command.output()).await.expect("it ends").expect("it starts");
    (String::from_utf8_lossy(&stdout).lines().map(str::to_owned).collect(), status.success())
}

async fn consumer(command: impl Fn() -> Option<Command>) {
    if command().is_none() {
        return;
    }
    let (redis, shop) = (Redis::start(), Shop::open(Kind::Postgres).await);
    let address = format!("127.0.0.1:{}", ports::free());
    let settings = shop.settings_with(&redis).set("http.listen", address.as_str()).set("http.token", TOKEN);
    // Nothing but hints has an order closed that falls due after the start.
    let daemon = listening(&settings.set("sweep.ahead", "0s").set("sweep.every", "1h")).await;
    shop.orders_due_in(1..=61, 2_000).await;
    shop.database.execute(&format!("UPDATE orders SET status = {PAID} WHERE order_no = 61")).await;
    shop.orders_due_in(62..=62, 3_600_000).await;
    wait::until_eq("the number of overdue orders", 60, async || shop.overdue().await).await;
    // Due, closed, paid, early, unknown.
    let messages: Vec<String> = (1..=60).chain([1, 61, 62, 63]).map(|order: i64| order.to_string()).collect();

    let client = reqwest_client();
    let ask = async || {
        let answer = client.get(format!("http://{address}/openapi.json")).bearer_auth(TOKEN).send().await.expect("an answer");
        answer.status() == StatusCode::TOO_MANY_REQUESTS
    };
    // Fewer at a time than there are connections.
    let ask_much = async || join_all((0..40).map(|_| ask())).await.contains(&true);
    wait::until("others ask too much", &ask_much).await;
    assert_eq!(shop.closed().await, 0, "nobody has asked for one yet");
    let others = async {
        loop {
            ask_much().await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let (acknowledged, ended_well) = tokio::select! {
        consumed = consume(command(), &address, TOKEN, &messages) => consumed,
        never = others => never,
    };
    assert_eq!((acknowledged, ended_well), (messages, true));
    assert_eq!(shop.closed().await, 60, "each order was looked at");

    // Without a look nothing is acknowledged.
    shop.orders_due_in(160..=160, -1_000).await;
    for (token, message) in [("another-token-0123456789abcdef", "160"), (TOKEN, "no id")] {
        let (acknowledged, ended_well) = consume(command(), &address, token, &[message.to_owned()]).await;
        assert_eq!((acknowledged, ended_well), (Vec::new(), false), "{message}");
    }
    assert_eq!(shop.status(160).await, UNPAID);
    daemon.stop().await;
}
