//! What `check` and `arm` say of a Redis behind sentinels.

use super::Report;
use crate::support::{
    Kind, Redis, Shop, order_closer,
    redis::{Safety, Trio},
};

#[tokio::test]
async fn a_primary_behind_sentinels() {
    let trio = Trio::start(Safety::Closed).await;
    let primary = &trio.servers[0];
    let shop = Shop::open(Kind::Sqlite).await;
    let settings = shop.settings().set("redis.url", trio.url());
    let untrusted = Report::of(&settings, 69).await;
    assert!(untrusted.fix("redis").contains("ca_file"), "{:#?}", untrusted.findings);
    let settings = settings.set("redis.ca_file", primary.ca_file().to_str().expect("UTF-8"));
    let report = Report::of(&settings, 0).await;
    report.assert("redis", "ok", &format!("at 127.0.0.1:{}", primary.tls_port()));
    report.assert("redis", "ok", &format!("rediss-sentinel://:***@{}?sentinelServiceName=shop&sentinelPassword=***", trio.hosts()));
    report.assert("probe key", "ok", "");
    assert!(report.fix("persistence").contains(&format!("-p {} --tls", primary.tls_port())), "{:#?}", report.findings);
    order_closer(&settings, &["arm", "7", "--ttl", "60s"]).await.expect_code(0);
    assert!(primary.command(&["PTTL", "order_7"]).integer() > 0);

    let wrong = |from: &str, to: &str| settings.clone().set("redis.url", trio.url().replace(from, to));
    for (settings, says, fix) in [
        (wrong("=shop", "=shops"), "knows no service \"shops\"", "SENTINEL MASTERS"),
        (wrong(&format!("&sentinelPassword={}", Trio::SENTINELS_PASSWORD), ""), "does not let us in", "sentinelPassword"),
        (wrong(Trio::SENTINELS_PASSWORD, "another"), "does not let us in", "sentinelPassword"),
        (wrong(Trio::PASSWORD, "another"), "WRONGPASS", "redis.url"),
    ] {
        let report = Report::of(&settings, 78).await;
        report.assert("redis", "fail", says);
        assert!(report.fix("redis").contains(fix), "{:#?}", report.findings);
        let said = format!("{:#?}", report.findings);
        assert!(!said.contains(Trio::PASSWORD) && !said.contains(Trio::SENTINELS_PASSWORD), "{said}");
    }
}

/// Where a URL leads to another kind of server, it is said which URL leads there.
#[tokio::test]
async fn servers_of_the_other_kind() {
    let (redis, sentinel) = (Redis::start(), Redis::options().sentinel().start());
    let shop = Shop::open(Kind::Sqlite).await;
    let of = async |url: String| Report::of(&shop.settings().set("redis.url", url), 78).await;
    let report = of(format!("{}/3", sentinel.url())).await;
    report.assert("redis", "fail", "it is a sentinel");
    let wanted = format!("redis-sentinel://127.0.0.1:{}/3?sentinelServiceName=NAME", sentinel.port());
    assert!(report.fix("redis").contains(&wanted), "{:#?}", report.findings);
    let report = of(format!("redis-sentinel://127.0.0.1:{}?sentinelServiceName=shop", redis.port())).await;
    report.assert("redis", "fail", "it is no sentinel");
    assert!(report.fix("redis").contains("redis://host:6379"), "{:#?}", report.findings);
}
