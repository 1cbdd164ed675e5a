//! Secrets and certificates that change while the daemon runs.

use super::*;

/// As a webhook's are: on SIGHUP, all or nothing.
#[tokio::test]
async fn secrets_are_read_anew_from_their_files() {
    let (redis, till, other, folder) = (Redis::start(), Till::start().await, Till::start().await, process::folder());
    let shop = Shop::open(Kind::Sqlite).await;
    let secret = folder.path().join("secret");
    std::fs::write(&secret, SECRETS[0]).unwrap();
    let ask = |till: &Till| format!("[close.ask]\nurl = '{}'\nsecret_files = ['{}']\n", till.url(), secret.display());
    let settings = shop.settings_with(&redis);
    let daemon = listening(&settings.clone().add(&ask(&till))).await;
    let asked = async |till: &Till, order: i64| {
        shop.order(order, -1_000).await;
        shop.until_status(order, CLOSED).await;
        till.questions().into_iter().find(|question| question.orders() == [order]).expect("it was asked about")
    };
    asked(&till, 1).await.assert_signed_with(SECRETS[0]);
    std::fs::write(&secret, SECRETS[1]).unwrap();
    assert!(daemon.hang_up().await);
    asked(&till, 2).await.assert_signed_with(SECRETS[1]);

    // A secret that is none: nothing is taken over.
    std::fs::write(&secret, "hunter2").unwrap();
    assert!(!daemon.hang_up().await);
    let refused = daemon.said("refused as a whole; going on as before");
    let reason = refused[0]["reason"].as_str().unwrap();
    assert!(reason.starts_with("close.ask: secret_files: ") && !reason.contains("hunter2"), "{reason}");
    asked(&till, 3).await.assert_signed_with(SECRETS[1]);

    // Another receiver, and the same one without its file.
    std::fs::write(&secret, SECRETS[0]).unwrap();
    assert!(daemon.reload(&settings.clone().add(&ask(&other)).toml()).await);
    assert_eq!(daemon.said("the configuration was read anew, and").last().unwrap()["changed"], "close.ask.url");
    asked(&other, 4).await.assert_signed_with(SECRETS[0]);
    assert!(daemon.reload(&settings.clone().add(&other.settings("")).toml()).await);
    asked(&other, 5).await.assert_signed_with(SECRETS[0]);

    // Whether anybody is asked at all takes another start.
    assert!(!daemon.reload(&settings.toml()).await);
    asked(&other, 6).await;
    daemon.stop().await;
    assert_eq!(till.questions().len(), 3);
    assert!(SECRETS.iter().all(|secret| daemon.logged(secret) == 0));
    shop.assert_outcome().await;
}

/// A certificate authority that is replaced before the certificate is.
#[tokio::test]
async fn authorities_are_read_anew_from_their_file() {
    let (redis, folder) = (Redis::start(), process::folder());
    let [mine, others] = ["mine.pem", "others.pem"].map(|name| folder.path().join(name));
    let (till, _other) = (Till::with_tls(&mine).await, Till::with_tls(&others).await);
    let trusted = folder.path().join("trusted.pem");
    std::fs::copy(&others, &trusted).unwrap();
    let shop = Shop::open(Kind::Sqlite).await;
    let ask = format!("[close.ask]\nurl = '{}'\nsecrets = ['{}']\nca_file = '{}'\n", till.tls_url(), SECRETS[0], trusted.display());
    let daemon = listening(&shop.settings_with(&redis).add(&ask)).await;
    shop.orders_due_in(1..=5, -1_000).await;
    let why = daemon.until_logged("nobody answers who is asked before closing").await;
    assert!(why.contains("certificate"), "{why}");
    std::fs::write(&trusted, "no certificate").unwrap();
    assert!(!daemon.hang_up().await);
    assert_eq!((shop.closed().await, till.questions().len()), (0, 0));
    std::fs::copy(&mine, &trusted).unwrap();
    assert!(daemon.hang_up().await);
    shop.until_all_settled().await;
    daemon.stop().await;
    shop.assert_outcome().await;
}
