//! A headless Chromium, driven by its DevTools protocol over a pipe.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{ChildStdin, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{process, process::Process, wait};

/// How long one command may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A browser with one tab; dropping it kills it.
#[derive(Debug)]
pub struct Browser {
    commands: Mutex<ChildStdin>,
    heard: Arc<Heard>,
    last: AtomicU64,
    session: String,
    _process: Process,
    _folder: TempDir,
}

#[derive(Debug, Default)]
struct Heard {
    waiting: Mutex<HashMap<u64, mpsc::Sender<Value>>>,
    events: Mutex<Vec<Value>>,
}

impl Browser {
    /// Starts one, which reaches nothing but this host.
    pub async fn start() -> Self {
        let folder = process::folder();
        // Its protocol is spoken over the descriptors 3 and 4.
        let script = "exec chromium \"$@\" about:blank 3<&0 4>&1 </dev/null >/dev/null 2>\"$LOG\"";
        let mut command = process::mortal("sh");
        command.args(["-c", script, "sh", "--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu"]);
        command.args(["--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update", "--disable-sync"]);
        command.args(["--disable-default-apps", "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]);
        command.arg(format!("--user-data-dir={}", folder.path().join("profile").display()));
        if nix::unistd::geteuid().is_root() {
            command.arg("--no-sandbox");
        }
        command.env("LOG", folder.path().join("log")).env("HOME", folder.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let process = Process::spawn("Chromium (Debian: chromium)", command);
        let (stdin, stdout) = process.with(|child| (child.stdin.take().unwrap(), child.stdout.take().unwrap()));
        let heard = Arc::new(Heard::default());
        let hears = Arc::clone(&heard);
        std::thread::spawn(move || {
            for message in BufReader::new(stdout).split(0).map_while(Result::ok) {
                let message: Value = serde_json::from_slice(&message).expect("JSON of a browser");
                let waiting = message["id"].as_u64().and_then(|id| lock(&hears.waiting).remove(&id));
                match waiting {
                    Some(waiting) => drop(waiting.send(message)),
                    None => lock(&hears.events).push(message),
                }
            }
        });
        let mut browser = Self {
            commands: Mutex::new(stdin),
            heard,
            last: AtomicU64::new(0),
            session: String::new(),
            _process: process,
            _folder: folder,
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" })).await["targetId"].clone();
        let attached = browser.call("Target.attachToTarget", json!({ "targetId": target, "flatten": true })).await;
        attached["sessionId"].as_str().unwrap().clone_into(&mut browser.session);
        for domain in ["Page", "Runtime", "Log", "Network", "Accessibility"] {
            browser.call(&format!("{domain}.enable"), json!({})).await;
        }
        browser
    }

    /// Sends a command of the protocol, and waits for its result.
    pub async fn call(&self, method: &str, parameters: Value) -> Value {
        let id = self.last.fetch_add(1, Ordering::SeqCst) + 1;
        let mut message = json!({ "id": id, "method": method, "params": parameters });
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        let (answer, answered) = mpsc::channel();
        lock(&self.heard.waiting).insert(id, answer);
        lock(&self.commands).write_all(format!("{message}\0").as_bytes()).expect("the browser listens");
        let answer = tokio::task::spawn_blocking(move || answered.recv_timeout(PATIENCE)).await.unwrap();
        let answer = answer.unwrap_or_else(|_| panic!("the browser does not answer {method}"));
        assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
        answer["result"].clone()
    }

    /// Goes to a page.
    pub async fn open(&self, url: &str) {
        let went = self.call("Page.navigate", json!({ "url": url })).await;
        assert!(went["errorText"].is_null(), "{url}: {went}");
        self.until("the page is loaded", "document.readyState === 'complete'").await;
    }

    /// What an expression is in the page; a promise is waited for.
    pub async fn eval(&self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true, "userGesture": true });
        let result = self.call("Runtime.evaluate", parameters).await;
        assert!(result["exceptionDetails"].is_null(), "{expression}: {}", result["exceptionDetails"]);
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    pub async fn until(&self, what: &str, expression: &str) {
        wait::until(what, async || self.eval(expression).await == true).await;
    }

    /// What the page shows as text.
    pub async fn text(&self) -> String {
        self.eval("document.body.innerText").await.as_str().unwrap().to_owned()
    }

    /// Clicks on what this selector finds, as a person would: it must be seen.
    pub async fn click(&self, selector: &str) {
        let seen = format!(
            "(() => {{ const e = document.querySelector({selector:?}); if (!e || !e.checkVisibility() || e.disabled) return false; \
             e.scrollIntoView({{ block: 'center' }}); e.click(); return true; }})()"
        );
        self.until(&format!("{selector} can be clicked"), &seen).await;
    }

    /// Presses a key.
    pub async fn press(&self, key: &str, code: u8) {
        for kind in ["keyDown", "keyUp"] {
            let mut event = json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code });
            if kind == "keyDown" && key == "Enter" {
                event["text"] = json!("\r");
            }
            self.call("Input.dispatchKeyEvent", event).await;
        }
    }

    /// Types where the focus is.
    pub async fn type_text(&self, text: &str) {
        self.call("Input.insertText", json!({ "text": text })).await;
    }

    /// Looks as a screen of so many pixels, light or dark.
    pub async fn screen(&self, width: u32, height: u32, dark: bool) {
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.call("Emulation.setDeviceMetricsOverride", metrics).await;
        let scheme = if dark { "dark" } else { "light" };
        self.call("Emulation.setEmulatedMedia", json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] })).await;
    }

    /// Takes a picture of the whole page.
    pub async fn picture(&self, file: &Path) {
        let taken = self.call("Page.captureScreenshot", json!({ "format": "png", "captureBeyondViewport": true })).await;
        std::fs::write(file, BASE64_STANDARD.decode(taken["data"].as_str().unwrap()).unwrap()).unwrap();
    }

    /// What it has complained of: errors in its console, exceptions, breaches of the page's policy.
    pub fn complaints(&self) -> Vec<String> {
        let is_one = |event: &&Value| match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Runtime.consoleAPICalled") => event["params"]["type"] == "error",
            Some("Log.entryAdded") => event["params"]["entry"]["level"] == "error",
            _ => false,
        };
        lock(&self.heard.events).iter().filter(is_one).map(|event| event["params"].to_string()).collect()
    }

    /// What it has asked for, by any page.
    pub fn requests(&self) -> Vec<String> {
        let asked = |event: &Value| {
            (event["method"] == "Network.requestWillBeSent").then(|| event["params"]["request"]["url"].as_str().unwrap().to_owned())
        };
        lock(&self.heard.events).iter().filter_map(asked).collect()
    }

    /// What a screen reader is told: each node's role and name.
    pub async fn accessible(&self) -> Vec<(String, String)> {
        let tree = self.call("Accessibility.getFullAXTree", json!({})).await;
        let nodes = tree["nodes"].as_array().unwrap().iter().filter(|node| node["ignored"] != true);
        let text = |value: &Value| value["value"].as_str().unwrap_or_default().to_owned();
        nodes.map(|node| (text(&node["role"]), text(&node["name"]))).collect()
    }
}

fn lock<T>(what: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}
