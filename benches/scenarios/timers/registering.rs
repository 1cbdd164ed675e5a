//! Timers registered and cancelled, a thousand at a time.

use std::{fmt, time::Instant};

use reqwest::{Client, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    support::{Kind, wait},
    table::rounded,
    timer_table::{INTAKE, STREAM, TOKEN, TimerTable},
};

/// How many are registered in each way, at the most; a thousand at a time.
const REGISTERED: u32 = 100_000;
const BATCH: usize = 1_000;

/// How many callers there are over HTTP.
const CALLERS: usize = 2;

/// Timers a second.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Rates {
    pub(super) http: f64,
    pub(super) stream: f64,
    pub(super) sql: f64,
    pub(super) cancelled_http: f64,
    pub(super) cancelled_sql: f64,
}

impl fmt::Display for Rates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [http, stream, sql, cancelled_http, cancelled_sql] =
            [self.http, self.stream, self.sql, self.cancelled_http, self.cancelled_sql].map(rounded);
        write!(
            f,
            "registered per s: {http} over HTTP, {stream} from a stream, {sql} in SQL; cancelled per s: {cancelled_http} over HTTP, {cancelled_sql} in SQL"
        )
    }
}

/// One way after the other.
pub(super) async fn measure(table: &TimerTable, pending: u32) -> Rates {
    let count = REGISTERED.min(pending.next_multiple_of(10_000));
    // They wait there until somebody takes them.
    for some in numbers(count) {
        let commands: Vec<Vec<String>> = some.iter().map(|number| entry(*number)).collect();
        let commands: Vec<Vec<&[u8]>> = commands.iter().map(|words| words.iter().map(|word| word.as_bytes()).collect()).collect();
        table.redis.pipeline(&commands).expect("Redis answers");
    }
    let daemon = table.daemon().await;
    let stream = from_the_stream(table, count).await;
    let http = over_http(
        table,
        count,
        "/timers:batch",
        |number| json!({ "kind": "http", "key": number.to_string(), "in": "10h", "target": STREAM, "data": { "order": 1001 }, "generation": 1 }),
    );
    let http = http.await;
    let cancelled_http = over_http(table, count, "/timers:cancel", |number| json!({ "kind": "http", "key": number.to_string() })).await;
    daemon.stop().await;
    let key = if table.database.kind == Kind::MariaDb { "`key`" } else { "key" };
    let sql = in_sql(table, count, |some| {
        let rows: Vec<String> =
            some.iter().map(|number| format!("('sql', '{number}', 9999999999000000, '{STREAM}', '{{\"order\": 1001}}', 1)")).collect();
        format!("INSERT INTO order_closer_timers (kind, {key}, due_at, target, data, generation) VALUES {}", rows.join(", "))
    });
    let sql = sql.await;
    let cancelled_sql = in_sql(table, count, |some| {
        let keys: Vec<String> = some.iter().map(|number| format!("'{number}'")).collect();
        format!("DELETE FROM order_closer_timers WHERE kind = 'sql' AND {key} IN ({}) AND state = 'armed'", keys.join(", "))
    });
    let cancelled_sql = cancelled_sql.await;
    for (kind, state, expected) in [("stream", "armed", count), ("http", "cancelled", count), ("sql", "armed", 0)] {
        assert_eq!(table.count(&format!("kind = '{kind}' AND state = '{state}'")).await, i64::from(expected), "{kind}");
    }
    table.database.execute("DELETE FROM order_closer_timers WHERE kind IN ('stream', 'http')").await;
    table.settle().await;
    Rates { http, stream, sql, cancelled_http, cancelled_sql }
}

/// A thousand at a time.
fn numbers(count: u32) -> Vec<Vec<u32>> {
    (0..count).collect::<Vec<_>>().chunks(BATCH).map(<[u32]>::to_vec).collect()
}

fn entry(number: u32) -> Vec<String> {
    let number = number.to_string();
    let words = [
        "XADD",
        INTAKE,
        "*",
        "kind",
        "stream",
        "key",
        &number,
        "in",
        "10h",
        "target",
        STREAM,
        "data",
        "{\"order\": 1001}",
        "generation",
        "1",
    ];
    words.map(str::to_owned).into()
}

/// From the first that were taken off to the last.
async fn from_the_stream(table: &TimerTable, count: u32) -> f64 {
    let left = || table.redis.command(&["XLEN", INTAKE]).integer();
    wait::until("the first are registered", async || left() < i64::from(count)).await;
    let (began, before) = (Instant::now(), left());
    wait::until("all are registered", async || left() == 0).await;
    before as f64 / began.elapsed().as_secs_f64()
}

/// Panics unless each is answered as the first of its kind would be.
async fn over_http(table: &TimerTable, count: u32, path: &str, timer: impl Fn(u32) -> Value) -> f64 {
    rustls::crypto::ring::default_provider().install_default().ok();
    let client = Client::builder().no_proxy().tls_certs_only([]).build().expect("a client");
    let bodies: Vec<String> = numbers(count)
        .iter()
        .map(|some| json!({ "timers": some.iter().map(|number| timer(*number)).collect::<Vec<_>>() }).to_string())
        .collect();
    let url = format!("http://{}{path}", table.address);
    let began = Instant::now();
    let caller = |bodies: Vec<String>| {
        let (client, url) = (client.clone(), url.clone());
        tokio::spawn(async move {
            for body in bodies {
                let answer = client.post(&url).bearer_auth(TOKEN).body(body).send().await.expect("an answer");
                let status = answer.status();
                let text = answer.text().await.expect("a whole answer");
                assert!(status == StatusCode::OK && !text.contains("\"error\""), "{status}: {}", &text[..text.len().min(500)]);
            }
        })
    };
    let callers: Vec<_> = bodies.chunks(bodies.len().div_ceil(CALLERS)).map(|some| caller(some.to_vec())).collect();
    for caller in callers {
        caller.await.expect("all are answered");
    }
    f64::from(count) / began.elapsed().as_secs_f64()
}

/// By one client, each thousand in a transaction of its own.
async fn in_sql(table: &TimerTable, count: u32, statement: impl Fn(&[u32]) -> String) -> f64 {
    let statements: Vec<String> = numbers(count).iter().map(|some| statement(some)).collect();
    let began = Instant::now();
    for statement in statements {
        assert_eq!(table.database.execute(&statement).await, BATCH as u64);
    }
    f64::from(count) / began.elapsed().as_secs_f64()
}
