//! In a real browser, as people see it: `chromium_` in a test's name leaves it to `make test-all`.

use std::path::Path;

use serde_json::json;

use super::{Asked, TOKEN, rules::Rules};
use crate::support::{Daemon, Database, Kind, Redis, Settings, browser::Browser, daemon::order_closer, wait};

/// An id that would do something if it became an element.
const HOSTILE: &str = "<img src=x onerror=\"document.title='taken'\">";

/// A shop whose orders have texts for ids.
struct Texts {
    database: Database,
    redis: Redis,
}

impl Texts {
    async fn open() -> Self {
        let database = Database::fresh(Kind::Postgres).await;
        database
            .execute("CREATE TABLE orders (order_no text PRIMARY KEY, status integer NOT NULL DEFAULT 0, expires_at timestamptz)")
            .await;
        database.execute("CREATE INDEX orders_due ON orders (status, expires_at)").await;
        let texts = Self { database, redis: Redis::start() };
        order_closer(&texts.settings(), &["migrate"]).await.expect_code(0);
        texts
    }

    fn settings(&self) -> Settings {
        Settings::new()
            .set("database.url", self.database.url.as_str())
            .set("redis.url", self.redis.url())
            .set("close.retry.attempts", 2)
            .set("close.retry.initial", "100ms")
            .set("log.format", "json")
    }

    /// Takes an order that is due in so many seconds.
    async fn order(&self, id: &str, seconds: i64) {
        let id = id.replace('\'', "''");
        self.database.execute(&format!("INSERT INTO orders VALUES ('{id}', 0, clock_timestamp() + interval '{seconds} seconds')")).await;
    }
}

async fn browser_at(asked: &Asked) -> Browser {
    let browser = Browser::start().await;
    browser.screen(1280, 900, false).await;
    browser.open(&format!("http://{}/", asked.address)).await;
    browser
}

/// The token is typed in once.
async fn enter(browser: &Browser, token: &str) {
    browser.until("the token is asked for", "document.activeElement.id === 'token'").await;
    browser.type_text(token).await;
    browser.press("Enter", 13).await;
}

async fn sees(browser: &Browser, text: &str) {
    browser.until(&format!("the page shows {text:?}"), &format!("document.body.innerText.includes({})", json!(text))).await;
}

/// Waits until a number of the page is this one.
async fn counts(browser: &Browser, name: &str, number: &str) {
    let value = format!(
        "[...document.querySelectorAll('.numbers div')].find(div => div.children[0].textContent === {})?.children[1].textContent === {}",
        json!(name),
        json!(number)
    );
    browser.until(&format!("{name} is {number}"), &value).await;
}

async fn assert_accessible(browser: &Browser, when: &str) {
    assert_eq!(browser.eval(include_str!("accessible.js")).await, json!([]), "{when}");
    let needs_a_name = ["button", "textbox", "combobox", "spinbutton", "image", "dialog", "region", "heading", "link"];
    let silent: Vec<_> =
        browser.accessible().await.into_iter().filter(|(role, name)| needs_a_name.contains(&role.as_str()) && name.is_empty()).collect();
    assert!(silent.is_empty(), "{when}: {silent:?}");
}

/// It complains of nothing, asks nobody else, and nothing has become an element that was a text.
async fn assert_calm(browser: &Browser, asked: &Asked) {
    assert_eq!(browser.complaints(), Vec::<String>::new());
    let own = format!("http://{}/", asked.address);
    let outside: Vec<String> = browser.requests().into_iter().filter(|url| !url.starts_with(&own) && !url.starts_with("data:")).collect();
    assert_eq!(outside, Vec::<String>::new(), "nothing is asked of anybody else");
    assert_eq!(browser.eval("document.images.length").await, 0);
    assert!(browser.eval("document.title").await.as_str().unwrap().ends_with("order-closer"));
}

#[tokio::test]
async fn chromium_shows_figures_that_move_and_texts_as_texts() {
    let shop = Texts::open().await;
    shop.order("later", 150).await;
    let asked = Asked::with(shop.settings()).await;
    let browser = browser_at(&asked).await;
    enter(&browser, TOKEN).await;
    sees(&browser, "Orders close on time.").await;
    counts(&browser, "Due within 1 h", "1").await;
    counts(&browser, "Closed in 1 h", "0").await;
    sees(&browser, "Nothing was closed in the last hour.").await;
    assert_accessible(&browser, "with little to show").await;
    for id in [HOSTILE, "a-1", "ein Auftrag", "</script><script>document.title='taken'</script>"] {
        shop.order(id, -2).await;
    }
    counts(&browser, "Closed in 1 h", "4").await;
    sees(&browser, HOSTILE).await;
    sees(&browser, "2 s").await;
    assert_accessible(&browser, "with closures").await;
    browser.eval("document.getElementById('one-id').value = 'a-1'").await;
    browser.click("#one-form button").await;
    browser.until("an order is explained", "document.getElementById('one-said').textContent.includes('a-1')").await;
    for (width, dark) in [(320, false), (390, true), (768, false), (1280, true)] {
        browser.screen(width, 800, dark).await;
        browser.until("the plots are drawn anew", "document.querySelector('.cards svg').clientWidth <= innerWidth").await;
        let wide = browser.eval("document.documentElement.scrollWidth - innerWidth").await;
        assert_eq!(wide, 0, "nothing is to be scrolled sideways at {width}");
        let back = browser.eval("getComputedStyle(document.documentElement).backgroundColor").await;
        assert_eq!(back == "rgb(15, 18, 22)", dark, "{back}");
        assert_accessible(&browser, &format!("at {width}, dark: {dark}")).await;
        picture(&browser, &format!("{width}.png")).await;
    }
    assert_calm(&browser, &asked).await;
    asked.daemon.stop().await;
}

/// From the address line on, without a mouse.
#[tokio::test]
async fn chromium_pauses_and_resumes_by_keyboard() {
    let shop = Texts::open().await;
    let asked = Asked::with(shop.settings()).await;
    let browser = browser_at(&asked).await;
    enter(&browser, TOKEN).await;
    sees(&browser, "Orders close on time.").await;
    // Kept as long as the tab is.
    browser.open(&format!("http://{}/", asked.address)).await;
    sees(&browser, "Orders close on time.").await;
    let focused = "(() => { const e = document.activeElement; window.order = [...(window.order || []), e]; \
        return [e.id || e.textContent, getComputedStyle(e).outlineStyle !== 'none' && e.checkVisibility()]; })()";
    let mut places = Vec::new();
    while places.last() != Some(&json!(["pause", true])) {
        browser.press("Tab", 9).await;
        places.push(browser.eval(focused).await);
        assert!(places.len() < 10, "{places:?}");
    }
    assert_eq!(places[0], json!(["Skip to the figures", true]), "{places:?}");
    let in_order = "order.every((e, at) => at === 0 || order[at - 1].compareDocumentPosition(e) & Node.DOCUMENT_POSITION_FOLLOWING)";
    assert_eq!(browser.eval(in_order).await, true, "{places:?}");
    browser.press("Enter", 13).await;
    browser.until("the dialog has the focus", "document.activeElement.id === 'reason'").await;
    assert_accessible(&browser, "with a dialog").await;
    browser.type_text(&format!("because {HOSTILE}")).await;
    browser.press("Enter", 13).await;
    sees(&browser, "Closing is paused.").await;
    sees(&browser, &format!("by http: because {HOSTILE}")).await;
    assert_accessible(&browser, "while closing is paused").await;
    assert_eq!(shop.database.number("SELECT count(*) FROM order_closer_pauses").await, 1);
    shop.order("waits", -1).await;
    browser.until("it is overdue, and paused", "document.querySelectorAll('tbody tr')[3].innerText.endsWith('1')").await;
    browser.until("the focus is back", "document.activeElement.id !== 'reason'").await;
    browser.eval("document.getElementById('resume').focus()").await;
    browser.press("Enter", 13).await;
    browser.until("the dialog has the focus", "document.activeElement.id === 'rate'").await;
    browser.press("Escape", 27).await;
    browser.until("it is left", "!document.getElementById('dialog').open && document.activeElement.id === 'resume'").await;
    browser.press("Enter", 13).await;
    browser.press("Enter", 13).await;
    sees(&browser, "Orders close on time.").await;
    counts(&browser, "Closed in 1 h", "1").await;
    assert_calm(&browser, &asked).await;
    asked.daemon.stop().await;
}

#[tokio::test]
async fn chromium_shows_no_ids_to_whoever_has_no_token() {
    let shop = Texts::open().await;
    let asked = Asked::with(shop.settings().set("http.read_only_page", true)).await;
    shop.order("secret-7", -1).await;
    let browser = browser_at(&asked).await;
    counts(&browser, "Closed in 1 h", "1").await;
    let buttons = "[...document.querySelectorAll('button')].filter(button => button.checkVisibility()).map(button => button.id)";
    assert_eq!(browser.eval(buttons).await, json!(["enter"]));
    assert!(
        !browser.text().await.contains("secret-7")
            && !browser.eval("document.documentElement.outerHTML").await.to_string().contains("secret-7")
    );
    assert_accessible(&browser, "read only").await;
    assert_calm(&browser, &asked).await;
    browser.click("#enter").await;
    enter(&browser, "not the right token").await;
    sees(&browser, "This token is not the right one.").await;
    enter(&browser, TOKEN).await;
    sees(&browser, "secret-7").await;
    browser.click("#leave").await;
    sees(&browser, "read only").await;
    assert!(!browser.text().await.contains("secret-7"));
    asked.daemon.stop().await;
}

#[tokio::test]
async fn chromium_says_when_the_daemon_goes_away_and_goes_on_when_it_is_back() {
    let shop = Texts::open().await;
    let asked = Asked::with(shop.settings()).await;
    let browser = browser_at(&asked).await;
    enter(&browser, TOKEN).await;
    sees(&browser, "Orders close on time.").await;
    assert_calm(&browser, &asked).await;
    asked.daemon.kill();
    sees(&browser, "The daemon does not answer. Figures of").await;
    assert_eq!(browser.eval("document.title").await, "⚠ order-closer");
    let daemon = Daemon::start(&shop.settings().set("http.listen", asked.address.as_str()).set("http.token", TOKEN));
    browser.until("it is live", "document.getElementById('live').textContent === 'Live' && !document.body.classList.contains('old')").await;
    daemon.freeze();
    sees(&browser, "The daemon does not answer. Figures of").await;
    daemon.thaw();
    browser.until("it is live again", "document.getElementById('live').textContent === 'Live'").await;
    daemon.stop().await;
}

#[tokio::test]
async fn chromium_retries_and_drops_dead_letters() {
    let shop = Texts::open().await;
    shop.database.execute("ALTER TABLE orders ADD CONSTRAINT cursed CHECK (status <> 4 OR order_no NOT LIKE 'cursed%')").await;
    let asked = Asked::with(shop.settings()).await;
    let browser = browser_at(&asked).await;
    enter(&browser, TOKEN).await;
    // Three that fail one after the other would be nobody's fault.
    shop.order("cursed/1", -1).await;
    shop.order(&format!("cursed {HOSTILE}"), -1).await;
    counts(&browser, "Dead letters", "2").await;
    shop.order("a good one", -1).await;
    sees(&browser, "a good one").await;
    shop.order("cursed 2", -1).await;
    counts(&browser, "Dead letters", "3").await;
    sees(&browser, &format!("order cursed {HOSTILE}")).await;
    sees(&browser, "violates check constraint").await;
    assert_accessible(&browser, "with dead letters").await;
    browser.screen(360, 800, false).await;
    assert_eq!(browser.eval("document.documentElement.scrollWidth - innerWidth").await, 0);
    browser.screen(1280, 900, false).await;
    shop.database.execute("ALTER TABLE orders DROP CONSTRAINT cursed").await;
    browser.click("[aria-label='Retry order cursed/1']").await;
    sees(&browser, "order cursed/1 is tried again.").await;
    wait::until("it is closed", async || shop.database.number("SELECT status FROM orders WHERE order_no = 'cursed/1'").await == 4).await;
    browser.eval("document.getElementById('letters-error').value = 'no such error'").await;
    browser.click("#letters-filter button").await;
    sees(&browser, "None.").await;
    browser
        .eval("document.getElementById('letters-error').value = 'CONSTRAINT'; document.getElementById('letters-kind').value = 'order'")
        .await;
    browser.click("#letters-filter button").await;
    browser.click("[aria-label='Drop order cursed 2']").await;
    browser.click("#dialog-do").await;
    sees(&browser, "1 dropped.").await;
    browser.click("#letters-retry").await;
    sees(&browser, "Retry 1 dead letter?").await;
    browser.click("#dialog-do").await;
    sees(&browser, "1 are tried again.").await;
    wait::until("it is closed", async || shop.database.number("SELECT count(*) FROM orders WHERE status = 4").await == 3).await;
    sees(&browser, "None.").await;
    assert_calm(&browser, &asked).await;
    asked.daemon.stop().await;
}

/// Each rule has its figures; a dialog is about one of them or all, and a dead letter is its rule's, whoever has the same id.
#[tokio::test]
async fn chromium_shows_each_rule_and_pauses_one() {
    let shop = Rules::open().await;
    for table in ["orders", "reviews"] {
        shop.database.execute(&format!("ALTER TABLE {table} ADD CONSTRAINT cursed CHECK (status = 0 OR order_no <> 'cursed')")).await;
    }
    let asked = Asked::with(shop.settings()).await;
    let browser = browser_at(&asked).await;
    enter(&browser, TOKEN).await;
    for text in [
        "Orders close on time.",
        "Orders of rule card in the table orders",
        "Orders of rule transfer",
        "Orders of rule reviews in the table reviews",
    ] {
        sees(&browser, text).await;
    }
    for (table, kind) in [("orders", 1), ("reviews", 0)] {
        shop.take(table, "cursed", kind, -1).await;
        shop.take(table, "good", kind, -1).await;
    }
    browser.until("both are listed", "document.querySelectorAll('#letters-list tbody tr').length === 2").await;
    assert_accessible(&browser, "with three rules").await;
    for table in ["orders", "reviews"] {
        shop.database.execute(&format!("ALTER TABLE {table} DROP CONSTRAINT cursed")).await;
    }
    browser.click("[aria-label='Retry order cursed of rule reviews']").await;
    shop.until_status("reviews", "cursed", 4).await;
    assert_eq!(shop.database.number("SELECT status FROM orders WHERE order_no = 'cursed'").await, 0);
    browser.until("one is left", "document.querySelectorAll('#letters-list tbody tr').length === 1").await;
    browser.click("#pause").await;
    browser.eval("document.getElementById('which').value = 'transfer'").await;
    browser.eval("document.getElementById('reason').value = 'the bank is away'").await;
    browser.click("#dialog-do").await;
    sees(&browser, "Closing of transfer is paused").await;
    shop.take("orders", "waits", 2, -1).await;
    shop.take("orders", "closes", 1, -1).await;
    shop.until_status("orders", "closes", 4).await;
    assert_calm(&browser, &asked).await;
    // Rules that have no such order say so.
    browser.eval("document.getElementById('one-id').value = 'waits'").await;
    browser.click("#one-form button").await;
    sees(&browser, "transfer: Order waits").await;
    browser.screen(360, 800, false).await;
    assert_eq!(browser.eval("document.documentElement.scrollWidth - innerWidth").await, 0);
    asked.daemon.stop().await;
}

/// A picture for whoever wants to look: in the folder that PAGE_PICTURES names.
async fn picture(browser: &Browser, name: &str) {
    if let Some(folder) = std::env::var_os("PAGE_PICTURES") {
        browser.picture(&Path::new(&folder).join(name)).await;
    }
}
