//! Receivers whose answers are none, though they say "close" somewhere.

use futures::{StreamExt, stream};

use super::*;
use crate::support::liar::{Liar, Lie, response};

/// Eight orders that may be closed, compressed.
const GZIP: &[u8] = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xab\x56\xca\x2f\x4a\x49\x2d\x2a\x56\xb2\x52\xa8\x56\x32\x04\x92\x4a\xc9\x39\xf9\xc5\xa9\x4a\x3a\x0a\x4a\x46\x28\x3c\x63\x14\x9e\x09\x0a\xcf\x14\x85\x67\x86\xc2\x33\x47\xe1\x59\x20\x78\xb5\xb5\x00\x76\x58\x1e\x3a\x7c\x00\x00\x00";

const ENDLESS: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

/// What is made of an answer that would close every order that was asked about.
type Made = fn(String) -> Lie;

/// By their names.
const LIES: &[(&str, Made)] = &[
    ("compressed", |_| {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n", GZIP.len());
        Lie::Whole([head.as_bytes(), GZIP].concat())
    }),
    ("redirected", |body| Lie::Whole(response("307 Temporary Redirect\r\nlocation: /ask", &body))),
    ("created", |body| Lie::Whole(response("201 Created", &body))),
    ("in part", |body| Lie::Whole(response("206 Partial Content", &body))),
    ("failed", |body| Lie::Whole(response("500 Oh", &body))),
    ("hints without end", |_| {
        let hints = "HTTP/1.1 103 Early Hints\r\nlink: </style.css>; rel=preload\r\n\r\n".repeat(500);
        Lie::Endless(Vec::new(), hints.into(), Duration::ZERO)
    }),
    ("headers without end", |_| Lie::Endless("HTTP/1.1 200 OK\r\n".into(), "x-more: of the same\r\n".repeat(500).into(), Duration::ZERO)),
    ("a status without end", |_| Lie::Endless("HTTP/1.1 200 ".into(), "O".repeat(10_000).into(), Duration::ZERO)),
    ("chunks without end, fast", |body| {
        Lie::Endless((ENDLESS.to_owned() + &chunk(&body)).into(), chunk(&" ".repeat(10_000)).into(), Duration::ZERO)
    }),
    ("chunks without end, slow", |body| {
        Lie::Endless((ENDLESS.to_owned() + &chunk(&body)).into(), chunk(" ").into(), Duration::from_millis(20))
    }),
    ("a chunk's extension without end", |body| {
        Lie::Endless((ENDLESS.to_owned() + &chunk(&body) + "1;").into(), "x".repeat(10_000).into(), Duration::ZERO)
    }),
    ("trailers without end", |body| {
        Lie::Endless((ENDLESS.to_owned() + &chunk(&body) + "0\r\n").into(), "x-more: of the same\r\n".repeat(500).into(), Duration::ZERO)
    }),
    ("chunks that are cut", |body| Lie::Cut((ENDLESS.to_owned() + &chunk(&body)).into())),
    ("an enormous length", |body| {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", 1_u64 << 40);
        Lie::Endless(head.into(), " ".into(), Duration::from_millis(20))
    }),
    ("longer than it may be", |body| Lie::Whole(response("200 OK", &(" ".repeat(1 << 20) + &body)))),
    ("cut", |body| Lie::Cut(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len() + 1).into())),
    ("two lengths", |body| {
        Lie::Whole(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\ncontent-length: 2\r\n\r\n{body}", body.len()).into())
    }),
    ("no HTTP", |body| Lie::Cut(body.into())),
    ("another protocol", |_| Lie::Cut("SSH-2.0-OpenSSH_9.6\r\n".into())),
    ("nothing", |_| Lie::Cut(Vec::new())),
    ("of others", |_| Lie::Whole(response("200 OK", r#"{"orders": {"999": "close", "01": "close", "1 ": "close", "": "close"}}"#))),
    ("twice", |body| {
        let orders = body.trim_start_matches("{\"orders\":{").trim_end_matches("}}");
        Lie::Whole(response("200 OK", &format!("{{\"orders\":{{{orders},{}}}}}", orders.replace("close", "paid"))))
    }),
    ("no number", |body| {
        Lie::Whole(response("200 OK", &body.replace("\"close\"}", "\"close\",\"9\":{\"answer\":\"later\",\"retry_after\":NaN}}")))
    }),
    ("as deep as it gets", |body| Lie::Whole(response("200 OK", &format!("{{\"x\": {}, {}", "[".repeat(900_000), &body[1..])))),
    ("in UTF-16", |body| {
        let wide: Vec<u8> = body.encode_utf16().flat_map(u16::to_le_bytes).collect();
        Lie::Whole([format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", wide.len()).as_bytes(), &wide].concat())
    }),
];

/// No order closes by any of them, the daemon takes no harm, and closes all when it is answered.
#[tokio::test]
async fn what_is_no_answer_closes_nothing() {
    let redis = &Redis::start();
    let tried = stream::iter(LIES).map(async |(name, lies)| {
        let liar = Liar::start(*lies).await;
        let shop = Shop::open(Kind::Sqlite).await;
        let settings = shop.settings_with(redis).add(&liar.settings("timeout = '500ms'"));
        shop.orders_due_in(1..=8, -1_000).await;
        let daemon = listening(&settings).await;
        wait::until(&format!("it was asked again ({name})"), async || liar.asked() >= 3).await;
        daemon.until_logged("nobody answers who is asked before closing").await;
        assert_eq!(shop.closed().await, 0, "{name}");
        let megabytes = daemon.resident_kib() >> 10;
        assert!(megabytes < 200, "{name}: {megabytes} MB");
        liar.repent();
        wait::until_eq(&format!("the number of closed orders ({name})"), 8, async || shop.closed().await).await;
        daemon.stop().await;
        shop.assert_outcome().await;
    });
    tried.buffer_unordered(4).collect::<Vec<()>>().await;
}

/// A second response behind the first is not the answer to the next question.
#[tokio::test]
async fn an_answer_that_was_not_asked_for_is_none() {
    let redis = Redis::start();
    let liar = Liar::start(|body| {
        let all = json!({ "orders": (1..=8).map(|order| (order.to_string(), json!("close"))).collect::<serde_json::Map<_, _>>() });
        Lie::Whole([response("200 OK", &body.replace("close", "paid")), response("200 OK", &all.to_string())].concat())
    })
    .await;
    let shop = Shop::open(Kind::Sqlite).await;
    let settings = shop.settings_with(&redis).add(&liar.settings("batch = 1\nconcurrency = 1"));
    let daemon = listening(&settings.set("log.summary", "100ms")).await;
    for order in 1..=8 {
        shop.order(order, -1_000).await;
        wait::until_eq("the number of paid orders", order.unsigned_abs(), async || said(&daemon, "paid")).await;
    }
    assert_eq!(shop.closed().await, 0);
    daemon.stop().await;
}
