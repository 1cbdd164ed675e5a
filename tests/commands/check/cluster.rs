//! What `check`, `arm` and `explain` say of a Redis Cluster.

use super::Report;
use crate::support::{
    Daemon, Kind, Redis, Shop, order_closer, ports,
    redis::{Cluster, Options},
    wait,
};

#[tokio::test]
async fn each_primary_is_examined() {
    let cluster = Cluster::of(3, 0, Cluster::options().config("appendonly yes").password("the-clusters-password")).await;
    let shop = Shop::open(Kind::Sqlite).await;
    let settings = shop.settings().set("redis.url", cluster.url(&[1])).set("redis.enable_notifications", false);
    let report = Report::of(&settings, 0).await;
    report.assert("redis", "ok", "3 primaries");
    assert_eq!(report.finding("notifications")["found"], "notify-keyspace-events is \"xE\"", "said once: {:#?}", report.findings);
    let probes: Vec<_> = report.findings.iter().filter(|finding| finding["name"] == "probe key" && finding["mark"] == "ok").collect();
    let named = probes.iter().filter(|probe| probe["found"].to_string().contains("127.0.0.1:")).count();
    // All may have come after the same number of milliseconds, which is said once.
    assert!(matches!((probes.len(), named), (3, 3) | (1, 0)), "one at each: {probes:#?}");

    for order in 1..=9 {
        let (id, key) = (order.to_string(), format!("order_{order}"));
        order_closer(&settings, &["arm", &id, "--ttl", "60s"]).await.expect_code(0);
        assert!(cluster.owner(&key).expect("somebody has it").command(&["PTTL", &key]).integer() > 0, "{key}");
    }
    shop.order(4, 60_000).await;
    let explained = order_closer(&settings, &["explain", "4", "--json"]).await;
    assert_eq!(explained.json()["key"]["state"], "expires", "{explained:#?}");

    let [silent, limited, away] = [0, 1, 2].map(|node| (&cluster.nodes[node], format!("127.0.0.1:{}: ", cluster.nodes[node].port())));
    silent.0.command(&["CONFIG", "SET", "notify-keyspace-events", ""]);
    limited.0.command(&["ACL", "SETUSER", "default", "-pttl"]);
    let report = Report::of(&settings, 78).await;
    report.assert("notifications", "fail", &silent.1);
    assert!(report.fix("notifications").contains(&format!("-p {}", silent.0.port())), "{:#?}", report.findings);
    report.assert("rights", "fail", &limited.1);
    away.0.kill();
    let report = Report::of(&settings, 69).await;
    assert!(
        report
            .findings
            .iter()
            .any(|finding| finding["mark"] == "fail" && finding["found"].to_string().contains(&away.1[..away.1.len() - 2]))
    );
    let said = format!("{:#?}", report.findings);
    assert!(!said.contains("the-clusters-password"), "{said}");
}

/// Where a URL leads to another kind of server, it is said which URL leads there.
#[tokio::test]
async fn servers_of_the_other_kind() {
    let (redis, sentinel, node) = (Redis::start(), Redis::options().sentinel().start(), Cluster::of(1, 0, Cluster::options()).await);
    let shop = Shop::open(Kind::Sqlite).await;
    let of = async |url: String| Report::of(&shop.settings().set("redis.url", url), 78).await;
    let report = of(node.nodes[0].url()).await;
    report.assert("redis", "fail", "it is a node of a cluster");
    assert!(report.fix("redis").contains(&format!("redis-cluster://127.0.0.1:{}", node.nodes[0].port())), "{:#?}", report.findings);
    for other in [&redis, &sentinel] {
        let report = of(format!("redis-cluster://127.0.0.1:{}", other.port())).await;
        report.assert("redis", "fail", "it is no node of a cluster");
        assert!(report.fix("redis").contains(&format!("redis://127.0.0.1:{}", other.port())), "{:#?}", report.findings);
    }
    let empty = Redis::options().config("cluster-enabled yes").start();
    let report = Report::of(&shop.settings().set("redis.url", format!("redis-cluster://127.0.0.1:{}", empty.port())), 69).await;
    report.assert("redis", "fail", "nobody in the cluster has slots");
}

/// A node that may not say what it is: the first key that another node has tells.
#[tokio::test]
async fn a_node_that_sends_us_elsewhere() {
    let cluster = Cluster::of(3, 0, Cluster::options()).await;
    let node = &cluster.nodes[0];
    node.command(&["ACL", "SETUSER", "default", "-info"]);
    let shop = Shop::open(Kind::Sqlite).await;
    let settings = shop.settings().set("redis.url", node.url());
    let elsewhere = (1..).find(|order| cluster.owner(&format!("order_{order}")).is_some_and(|owner| owner.port() != node.port()));
    let order = elsewhere.expect("two of three nodes are others").to_string();
    let refused = order_closer(&settings, &["arm", &order, "--ttl", "60s"]).await.expect_code(78);
    let said = "it is a node of a cluster: MOVED ";
    assert!(refused.stderr.contains(said) && refused.stderr.contains("; let redis.url name the cluster: redis-cluster://"), "{refused:#?}");
    // As it says, it goes.
    order_closer(&settings.set("redis.url", cluster.url(&[1])), &["arm", &order, "--ttl", "60s"]).await.expect_code(0);
}

/// Nodes that name a host, another address, or none at all, by TLS and by IPv6.
#[tokio::test]
async fn ways_to_name_a_node() {
    let alone = async |options: Options| Cluster::of(1, 0, options).await;
    let shop = Shop::open(Kind::Sqlite).await;
    let listen = |url: String| shop.settings().set("redis.url", url);
    let assert_heard = async |settings: &crate::support::Settings, at: &str| {
        let report = Report::of(settings, 0).await;
        report.assert("probe key", "ok", "");
        let daemon = Daemon::start(settings);
        let line = daemon.until_logged("listening for expired keys").await;
        assert!(line.contains(at), "{at}: {line}");
        daemon.stop().await;
    };

    // The address that it takes for its own is somebody else's.
    let elsewhere = |options: Options| options.config("cluster-announce-ip 192.0.2.1").config("appendonly yes");
    let named = elsewhere(Cluster::options()).config("cluster-announce-hostname localhost");
    let hosts = alone(named.config("cluster-preferred-endpoint-type hostname")).await;
    assert_heard(&listen(hosts.url(&[0])), &format!("redis://localhost:{}", hosts.nodes[0].port())).await;
    let unknown = alone(elsewhere(Cluster::options()).config("cluster-preferred-endpoint-type unknown-endpoint")).await;
    assert_heard(&listen(unknown.url(&[0]).replace("127.0.0.1", "localhost")), &format!("redis://localhost:{}", unknown.nodes[0].port()))
        .await;

    // It does not know where it is, and has a certificate for localhost.
    let tls = Redis::options().tls().config("tls-cluster yes").config("cluster-enabled yes").with_notifications();
    let tls = alone(tls.config("appendonly yes")).await;
    let node = &tls.nodes[0];
    let url = format!("rediss-cluster://localhost:{}", node.tls_port());
    let settings = listen(url).set("redis.ca_file", node.ca_file().to_str().expect("UTF-8"));
    assert_heard(&settings, &format!("rediss://localhost:{}", node.tls_port())).await;

    if std::net::TcpListener::bind(("::1", 0)).is_err() {
        eprintln!("this machine has no IPv6");
        return;
    }
    let six = alone(Cluster::options().config("bind 127.0.0.1 ::1").config("cluster-announce-ip ::1").config("appendonly yes")).await;
    let port = six.nodes[0].port();
    assert_heard(&listen(format!("redis-cluster://[::1]:{},[::1]:{port}", ports::free())), &format!("redis://[::1]:{port}")).await;
    wait::until("nobody stays", async || six.nodes[0].subscriptions() == 0).await;
}
