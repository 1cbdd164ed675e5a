//! The document that says what is served: each answer is as it says, and nothing is served of which it says nothing.

use std::collections::BTreeSet;

use order_closer::http;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Asked, TOKEN};
use crate::support::{Kind, Redis, Shop, order_closer, ports, wait};

/// A daemon whose answers are held against the document.
struct Held {
    asked: Asked,
    document: Value,
    /// What was called: the method, the path.
    called: BTreeSet<(String, String)>,
}

impl Held {
    /// Asks for a path of the document with its placeholder filled in, and expects this status.
    async fn ask(&mut self, path: &str, with: &str, status: u16) -> Value {
        let actual = with.strip_prefix('?').map_or_else(|| filled(path, with), |_| format!("{path}{with}"));
        self.call(Method::GET, path, &actual, "", status).await
    }

    async fn post(&mut self, path: &str, with: &str, body: &str, status: u16) -> Value {
        self.call(Method::POST, path, &filled(path, with), body, status).await
    }

    async fn call(&mut self, method: Method, path: &str, actual: &str, body: &str, status: u16) -> Value {
        let name = method.as_str().to_lowercase();
        let operation = self.document["paths"][path][&name].clone();
        assert!(operation.is_object(), "{name} {path} is not described");
        if !body.is_empty() && status < 400 {
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            self.assert_is(schema, &serde_json::from_str(body).unwrap(), &format!("the body of {name} {path}"));
        }
        let request = self.asked.client.request(method, format!("http://{}{actual}", self.asked.address));
        let response = request.bearer_auth(TOKEN).body(body.to_owned()).send().await.unwrap();
        let kind = response.headers().get("content-type").map(|kind| kind.to_str().unwrap().to_owned());
        let said = (response.status().as_u16(), kind.unwrap_or_default());
        let text = response.text().await.unwrap();
        assert_eq!(said.0, status, "{name} {actual}: {text}");
        if status == 204 {
            assert!(operation["responses"]["204"].is_object() && text.is_empty(), "{name} {actual}: {text}");
            self.called.insert((name, path.to_owned()));
            return Value::Null;
        }
        let content = operation["responses"][status.to_string()]["content"].as_object().expect("this status is described");
        let (kind, described) = content.iter().find(|(kind, _)| said.1.starts_with(kind.as_str())).expect("its type is described");
        let answer = if kind == "application/json" { serde_json::from_str(&text).unwrap() } else { Value::String(text) };
        self.assert_is(&described["schema"], &answer, &format!("{status} of {name} {actual}"));
        self.called.insert((name, path.to_owned()));
        answer
    }

    /// The first of the figures that follow each other without an end.
    async fn stream(&mut self) {
        let mut stream = self.asked.ask(Method::GET, "/figures/stream", Some(TOKEN)).await;
        assert!(stream.headers()["content-type"].to_str().unwrap().starts_with("text/event-stream"));
        let event = String::from_utf8(stream.chunk().await.unwrap().unwrap().to_vec()).unwrap();
        let figures = serde_json::from_str(event.strip_prefix("data:").unwrap()).unwrap();
        self.assert_is(&json!({ "$ref": "#/components/schemas/Figures" }), &figures, "an event of the stream");
        self.called.insert(("get".into(), "/figures/stream".into()));
    }

    fn assert_is(&self, schema: &Value, value: &Value, what: &str) {
        let mut schema = schema.clone();
        schema["components"] = self.document["components"].clone();
        let validator = jsonschema::validator_for(&schema).expect("a schema");
        let wrong: Vec<String> = validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect();
        assert!(wrong.is_empty(), "{what} is not as described: {wrong:#?}\n{value:#}");
    }
}

fn filled(path: &str, with: &str) -> String {
    match (path.find('{'), path.find('}')) {
        (Some(begin), Some(end)) => format!("{}{with}{}", &path[..begin], &path[end + 1..]),
        _ => path.to_owned(),
    }
}

/// The methods and paths of the document.
fn described(document: &Value) -> BTreeSet<(String, String)> {
    let paths = document["paths"].as_object().unwrap().iter();
    paths.flat_map(|(path, methods)| methods.as_object().unwrap().keys().map(|method| (method.clone(), path.clone()))).collect()
}

#[test]
fn it_describes_what_is_served_and_nothing_else() {
    let document: Value = serde_json::from_str(http::OPENAPI).unwrap();
    let served: BTreeSet<_> = http::served().into_iter().map(|(method, path)| (method.to_owned(), path.to_owned())).collect();
    assert_eq!(described(&document), served);
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    // An unknown field would be no failure where anything may stand.
    let schemas = document["components"]["schemas"].as_object().unwrap();
    assert!(schemas.iter().all(|(_, schema)| schema["additionalProperties"] == false), "each schema is closed");
    let page = include_str!("../../docs/http.md");
    for (method, path) in served {
        let path = path.replace("{id}", "ID").replace("{name}", "NAME").replace("{kind}", "KIND").replace("{key}", "KEY");
        let row = format!("| `{} {path}", method.to_uppercase());
        assert!(page.contains(&row), "docs/http.md has no row {row:?}");
    }
}

/// Every path is called, of a daemon with orders, events and dead letters of each kind.
#[tokio::test]
async fn each_answer_is_as_it_says() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Postgres).await;
    let nobody = format!("http://127.0.0.1:{}/", ports::free());
    let webhook = format!("[[events.webhooks]]\nname = 'shop'\nurl = '{nobody}'\nsecrets = ['whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3']");
    let settings = shop.settings_with(&redis).set("events.enabled", true).add(&webhook);
    let settings = settings.set("timers.enabled", true).add("[timers.stream]\nkey = 'fired'");
    order_closer(&settings, &["migrate"]).await.expect_code(0);
    shop.orders(&[(1, 3_000_000), (2, 3_000_000), (3, 3_000_000), (4, -60_000), (5, -60_000), (6, 3_000_000), (61, 9_000_000)]).await;
    assert!(shop.pay(3).await);
    redis.command(&["SET", "order_1", "1", "PX", "3000000"]);
    redis.command(&["SET", "order_5", "1", "PX", "3000000"]);
    let letter = "INSERT INTO order_closer_dead_letters (orders_table, order_id, attempts, failed_at, error, dropped) VALUES";
    shop.database.execute(&format!("{letter} ('orders', '6', 8, 1, 'cursed', 0), ('orders', '61', 8, 1, 'cursed', 1)")).await;
    let asked = Asked::with(settings).await;
    shop.until_status(4, 4).await;
    let (_, text) = asked.get("/livez").await;
    assert_eq!(text, "ok\n");
    let document = serde_json::from_str(&asked.ask(Method::GET, "/openapi.json", Some(TOKEN)).await.text().await.unwrap()).unwrap();
    let mut held = Held { asked, document, called: BTreeSet::new() };
    let deliveries = "INSERT INTO order_closer_deliveries (event_id, target, attempts, due_at, failed_at, error, orders_table)";
    let stranger = format!("{deliveries} SELECT id, 'stranger', 40, NULL, 1, 'refused', 'orders' FROM order_closer_events");
    shop.database.execute(&stranger).await;

    held.ask("/livez", "", 200).await;
    wait::until("it is ready", async || held.asked.get("/readyz").await.0 == StatusCode::OK).await;
    held.ask("/readyz", "", 200).await;
    held.ask("/metrics", "", 200).await;
    held.ask("/", "", 200).await;
    wait::until("figures have all that they can have", async || {
        let figures = held.ask("/figures", "", 200).await;
        let rule = figures["rules"].as_array().unwrap().iter().find(|rule| rule["name"] == "orders").cloned().unwrap_or_default();
        rule["overdue"].is_object() && rule["recent"]["latest"][0].is_object() && figures["targets"][1].is_object()
    })
    .await;
    held.stream().await;
    held.ask("/openapi.json", "", 200).await;

    for (id, state, status) in [
        ("1", "not_due", 200),
        ("3", "settled", 200),
        ("4", "closed", 200),
        ("5", "disputed", 200),
        ("6", "given_up", 200),
        ("99", "not_found", 404),
    ] {
        let explained = held.ask("/orders/{id}", id, status).await;
        assert_eq!(explained["state"], state, "{explained:#}");
    }
    assert_eq!(held.ask("/orders/{id}", "4", 200).await["undelivered"][0]["target"], "stranger");
    let refused = held.ask("/orders/{id}", "four", 400).await;
    assert!(refused["error"].as_str().unwrap().contains("order_no is bigint"), "{refused}");

    // A dead letter is not among what is coming, since nothing brings it.
    let coming = held.ask("/orders", "?due=1h&limit=1", 200).await;
    assert_eq!((coming["coming"].as_u64(), coming["overdue"].as_u64(), coming["orders"][0]["id"].as_str()), (Some(2), Some(1), Some("1")));
    let rest = held.ask("/orders", &format!("?due=1h&limit=10&after={}", coming["next"].as_str().unwrap()), 200).await;
    assert_eq!((rest["orders"][0]["id"].as_str(), rest["orders"].as_array().unwrap().len(), &rest["next"]), (Some("2"), 1, &Value::Null));
    assert_eq!(held.ask("/orders", "?due=10m", 200).await["coming"], 0);
    for wrong in ["?due=soon", "?limit=0", "?limit=1001", "?after=x", "?after=WzAsIngiLCIxIl0", "?what=1"] {
        held.ask("/orders", wrong, 400).await;
    }

    for (id, outcome, status) in
        [("1", "not_due", 409), ("4", "settled", 200), ("5", "disputed", 409), ("99", "not_found", 404), ("6", "not_due", 409)]
    {
        assert_eq!(held.post("/orders/{id}/close", id, "", status).await["outcome"], outcome);
    }
    held.post("/orders/{id}/close", "four", "", 400).await;
    shop.orders(&[(7, -1_000)]).await;
    held.post("/orders/{id}/close", "7", "", 200).await;

    let first = held.ask("/dead-letters", "?limit=1", 200).await;
    assert_eq!((first["dead_letters"][0]["kind"].as_str(), first["dead_letters"][0]["id"].as_str()), (Some("order"), Some("6")));
    let mut kinds = vec!["order".to_owned()];
    let mut next = first["next"].as_str().map(str::to_owned);
    while let Some(after) = next {
        let page = held.ask("/dead-letters", &format!("?limit=1&after={after}"), 200).await;
        kinds.extend(page["dead_letters"].as_array().unwrap().iter().map(|letter| letter["kind"].as_str().unwrap().to_owned()));
        next = page["next"].as_str().map(str::to_owned);
    }
    assert_eq!(kinds, ["order", "event"], "what was dropped is not listed");
    for wrong in ["?after=x", "?limit=none"] {
        held.ask("/dead-letters", wrong, 400).await;
    }
    let shown = held.ask("/dead-letters/{id}", "61", 200).await;
    assert_eq!(shown["dead_letters"][0]["dropped"], true);
    held.ask("/dead-letters/{id}", "1", 404).await;
    held.post("/dead-letters/{id}/drop", "6", "", 200).await;
    held.post("/dead-letters/{id}/drop", "6", "", 404).await;
    held.post("/dead-letters/{id}/retry", "6", "", 200).await;
    held.post("/dead-letters/{id}/retry", "6", r#"{"target": "shop"}"#, 404).await;
    held.post("/dead-letters/{id}/retry", "6", r#"{"to": "shop"}"#, 400).await;
    assert_eq!(held.ask("/orders/{id}", "6", 200).await["state"], "not_due");
    shop.database.execute(&format!("{letter} ('orders', '6', 8, 1, 'cursed', 0)")).await;
    let all = held.post("/dead-letters", "", r#"{"retry": "all"}"#, 200).await;
    assert_eq!(all, json!({ "put_back": 1, "left": [{ "target": "stranger", "dead": 1 }] }));
    held.post("/dead-letters", "", r#"{"retry": "some"}"#, 400).await;

    let targets = held.ask("/targets", "", 200).await;
    let names: Vec<_> = targets["targets"].as_array().unwrap().iter().map(|target| (&target["name"], &target["configured"])).collect();
    assert_eq!(names, [(&json!("shop"), &json!(true)), (&json!("stranger"), &json!(false))]);
    held.post("/targets/{name}/resume", "shop", "", 200).await;
    held.post("/targets/{name}/resume", "unknown", "", 404).await;
    held.post("/targets/{name}/drop", "shop", "", 409).await;
    assert_eq!(held.post("/targets/{name}/drop", "stranger", "", 200).await["given_up"], 1);
    held.post("/targets/{name}/drop", "stranger", "", 404).await;

    held.ask("/status", "", 200).await;
    held.post("/pause", "", r#"{"reason": "the provider is down", "for": "1h"}"#, 200).await;
    held.asked.until_sample(r#"order_closer_paused{rule="orders"}"#, |value| value == 1.0).await;
    assert!(held.ask("/status", "", 200).await["paused"].as_bool().unwrap());
    shop.orders(&[(8, -1_000)]).await;
    assert_eq!(held.ask("/orders/{id}", "8", 200).await["state"], "paused");
    assert_eq!(held.post("/orders/{id}/close", "8", "", 503).await["outcome"], "paused");
    held.post("/pause", "", "{}", 400).await;
    held.post("/pause", "", r#"{"reason": "x", "rule": "y"}"#, 404).await;
    held.post("/resume", "", r#"{"rate": 100}"#, 200).await;
    held.post("/resume", "", "", 200).await;
    held.post("/resume", "", r#"{"rate": 0}"#, 400).await;

    of_timers(&mut held, &shop).await;
    assert_eq!(held.called, described(&held.document), "each was called");
    held.asked.daemon.stop().await;
}

/// Timers are registered, changed, cancelled, and too late to be cancelled.
async fn of_timers(held: &mut Held, shop: &Shop) {
    const ONE: &str = "/timers/{kind}/{key}";
    const BATCH: &str = "/timers:batch";
    let reminder = |body: &str| body.replace('}', r#", "target": "stream"}"#);
    let hour = reminder(r#"{"in": "1h", "generation": 3}"#);
    let made = held.call(Method::PUT, ONE, "/timers/reminder/1%2F%C3%BC", &hour, 201).await;
    assert_eq!((&made["key"], &made["state"], &made["data"]), (&json!("1/ü"), &json!("armed"), &json!({})));
    assert!(made["seconds_left"].as_f64().is_some_and(|left| (3_500.0..=3_600.0).contains(&left)), "{made}");
    let again = reminder(r#"{"due": "2999-12-31T23:59:59.123456Z", "generation": 3}"#);
    let changed = held.call(Method::PUT, ONE, "/timers/reminder/1%2F%C3%BC", &again, 200).await;
    assert_eq!(changed["due"], "2999-12-31T23:59:59.123456Z");
    let older = held.call(Method::PUT, ONE, "/timers/reminder/1%2F%C3%BC", &reminder(r#"{"in": "1s", "generation": 2}"#), 409).await;
    assert_eq!((&older["status"], &older["timer"]["generation"], &older["timer"]["due"]), (&json!(409), &json!(3), &changed["due"]));
    let shown = held.call(Method::GET, ONE, "/timers/reminder/1%2F%C3%BC", "", 200).await;
    assert_eq!((&shown["due"], &shown["state"]), (&changed["due"], &json!("armed")));
    held.call(Method::DELETE, ONE, "/timers/reminder/1%2F%C3%BC", "", 204).await;
    held.call(Method::DELETE, ONE, "/timers/reminder/1%2F%C3%BC", "", 204).await;
    assert_eq!(held.call(Method::PUT, ONE, "/timers/reminder/1%2F%C3%BC", &again, 200).await["state"], "cancelled", "the same once more");
    held.call(Method::GET, ONE, "/timers/reminder/2", "", 404).await;
    held.call(Method::DELETE, ONE, "/timers/reminder/2", "", 404).await;
    for wrong in [
        "{}",
        r#"{"in": "1h"}"#,
        r#"{"in": "1h", "target": "shop"}"#,
        r#"{"in": "soon", "target": "stream"}"#,
        r#"{"in": "1h", "due": "2030-01-31T12:00:00Z", "target": "stream"}"#,
        r#"{"due": "tomorrow", "target": "stream"}"#,
        r#"{"due": "1969-12-31T12:00:00Z", "target": "stream"}"#,
        r#"{"target": "stream"}"#,
        r#"{"in": "1h", "target": "stream", "data": [1]}"#,
        r#"{"in": "1h", "target": "stream", "generation": "3"}"#,
        r#"{"in": "1h", "target": "stream", "when": 1}"#,
        r#"{"in": "1h", "target": "stream", "key": "3"}"#,
    ] {
        held.call(Method::PUT, ONE, "/timers/reminder/2", wrong, 400).await;
    }
    let long = format!(r#"{{"in": "1h", "target": "stream", "data": {{"long": "{}"}}}}"#, "x".repeat(65_536));
    held.call(Method::PUT, ONE, "/timers/reminder/2", &long, 400).await;
    held.call(Method::PUT, ONE, &format!("/timers/{}/2", "x".repeat(65)), &reminder(r#"{"in": "1h"}"#), 400).await;
    // Fires at once, with what it was given.
    let at_once = r#"{"in": "0s", "target": "stream", "data": {"a": [1, {"b": null}]}}"#;
    let fired = held.call(Method::PUT, ONE, "/timers/reminder/3", at_once, 201).await;
    assert_eq!(fired["data"], json!({"a": [1, {"b": null}]}));
    wait::until("it has fired", async || held.call(Method::GET, ONE, "/timers/reminder/3", "", 200).await["state"] == "fired").await;
    let late = held.call(Method::DELETE, ONE, "/timers/reminder/3", "", 409).await;
    assert_eq!(late["fired_at"], held.call(Method::GET, ONE, "/timers/reminder/3", "", 200).await["fired_at"]);

    let timer = |number: usize| json!({ "kind": "batch", "key": number.to_string(), "in": "1h", "target": "stream" });
    let mut all: Vec<Value> = (0..997).map(timer).collect();
    all.push(json!({ "kind": "batch", "key": "5", "in": "2h", "target": "stream", "generation": 1 }));
    all.push(json!({ "kind": "batch", "key": "6", "in": "2h", "target": "stream", "generation": -1 }));
    all.push(json!({ "kind": "batch", "key": "7", "in": "2h", "target": "nobody" }));
    let done = held.call(Method::POST, BATCH, BATCH, &json!({ "timers": all }).to_string(), 200).await;
    let statuses: Vec<u64> = done["timers"].as_array().unwrap().iter().map(|one| one["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [vec![201; 997], vec![200, 409, 400]].concat());
    assert_eq!(shop.database.number("SELECT count(*) FROM order_closer_timers WHERE kind = 'batch' AND state = 'armed'").await, 997);
    assert_eq!(held.call(Method::POST, BATCH, BATCH, r#"{"timers": []}"#, 200).await, json!({ "timers": [] }));
    all.push(timer(1_000));
    held.call(Method::POST, BATCH, BATCH, &json!({ "timers": all }).to_string(), 400).await;
    held.call(Method::POST, BATCH, BATCH, "[]", 400).await;
}

/// Without our own tables there is nothing to list, and it is said why.
#[tokio::test]
async fn what_needs_tables_says_so() {
    let redis = Redis::start();
    let shop = Shop::open(Kind::Sqlite).await;
    let asked = Asked::start(&shop, &redis).await;
    for (method, path) in [
        (Method::GET, "/dead-letters"),
        (Method::GET, "/targets"),
        (Method::POST, "/targets/x/drop"),
        (Method::POST, "/dead-letters/1/retry"),
    ] {
        let (status, answer) = asked.json(method, path).await;
        assert!(status == StatusCode::CONFLICT && answer["error"].as_str().unwrap().contains("order-closer migrate"), "{path}: {answer}");
    }
    asked.daemon.stop().await;
}
