//! A primary and its replica, watched by three sentinels.

use super::{Redis, wait};

/// What the sentinels call the primary.
const SERVICE: &str = "shop";

/// How the servers are started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Safety {
    /// Without passwords.
    Open,
    /// With a password for Redis, another for the sentinels, and TLS alone.
    Closed,
}

/// Two servers, of which one is the primary at any time, and their sentinels.
#[derive(Debug)]
pub struct Trio {
    /// The two; the first is the primary at first.
    pub servers: [Redis; 2],
    /// The sentinels.
    pub sentinels: Vec<Redis>,
    safety: Safety,
}

impl Trio {
    /// The password of Redis.
    pub const PASSWORD: &str = "the-keys-password";
    /// The password of the sentinels.
    pub const SENTINELS_PASSWORD: &str = "the-sentinels-password";

    /// Starts all five, and waits until the sentinels know each other and the replica.
    pub async fn start(safety: Safety) -> Self {
        let closed = safety == Safety::Closed;
        let primary = if closed {
            Redis::options().password(Self::PASSWORD).tls().config("tls-replication yes").config(&format!("masterauth {}", Self::PASSWORD))
        } else {
            Redis::options()
        };
        let primary = primary.with_notifications().start();
        let port = if closed { primary.tls_port() } else { primary.port() };
        let replica = primary.options.clone();
        let replica = if closed { replica.tls_like(&primary) } else { replica };
        let replica = replica.config(&format!("replicaof 127.0.0.1 {port}")).start();
        replica.until_replicated().await;
        let sentinel = |_| {
            let mut options = Redis::options()
                .sentinel()
                .config(&format!("sentinel monitor {SERVICE} 127.0.0.1 {port} 2"))
                .config(&format!("sentinel down-after-milliseconds {SERVICE} 1000"))
                .config(&format!("sentinel failover-timeout {SERVICE} 5000"));
            if closed {
                options = options
                    .tls_like(&primary)
                    .password(Self::SENTINELS_PASSWORD)
                    .config("tls-replication yes")
                    .config(&format!("sentinel auth-pass {SERVICE} {}", Self::PASSWORD))
                    .config(&format!("sentinel sentinel-pass {}", Self::SENTINELS_PASSWORD));
            }
            options.start()
        };
        let trio = Self { sentinels: (0..3).map(sentinel).collect(), servers: [primary, replica], safety };
        wait::until("the sentinels know each other and the replica", async || {
            trio.sentinels.iter().all(|sentinel| {
                let masters = sentinel.command(&["SENTINEL", "MASTER", SERVICE]);
                let fields: Vec<String> = masters.array().iter().map(|field| field.text()).collect();
                let field = |name: &str| fields.iter().position(|field| field == name).map(|at| fields[at + 1].clone());
                field("num-other-sentinels").as_deref() == Some("2") && field("num-slaves").as_deref() == Some("1")
            })
        })
        .await;
        trio
    }

    /// The URL of its sentinels, with all passwords.
    pub fn url(&self) -> String {
        match self.safety {
            Safety::Open => format!("redis-sentinel://{}?sentinelServiceName={SERVICE}", self.hosts()),
            Safety::Closed => format!(
                "rediss-sentinel://:{}@{}?sentinelServiceName={SERVICE}&sentinelPassword={}",
                Self::PASSWORD,
                self.hosts(),
                Self::SENTINELS_PASSWORD
            ),
        }
    }

    /// The authority that signed all their certificates, if they have any.
    pub fn ca_file(&self) -> Option<std::path::PathBuf> {
        (self.safety == Safety::Closed).then(|| self.servers[0].ca_file())
    }

    /// The sentinels' hosts and ports, with commas between.
    pub fn hosts(&self) -> String {
        let host = |sentinel: &Redis| match self.safety {
            Safety::Open => format!("127.0.0.1:{}", sentinel.port()),
            Safety::Closed => format!("localhost:{}", sentinel.tls_port()),
        };
        self.sentinels.iter().map(host).collect::<Vec<_>>().join(",")
    }

    /// Whom the first sentinel that answers names: the number of the server.
    pub fn named(&self) -> Option<usize> {
        let answer = self.sentinels.iter().find_map(|sentinel| {
            sentinel.try_command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE]).ok().map(|answer| answer.array()[1].text())
        })?;
        let port = |server: &Redis| if self.safety == Safety::Closed { server.tls_port() } else { server.port() };
        self.servers.iter().position(|server| port(server).to_string() == answer)
    }

    /// Waits until the sentinels name this one, and it is a primary.
    pub async fn until_led_by(&self, number: usize) {
        let leads = async || {
            let role = self.servers[number].try_command(&["ROLE"]);
            self.named() == Some(number) && role.is_ok_and(|role| role.array()[0].text() == "master")
        };
        wait::until("the other server is the primary", leads).await;
    }

    /// A failover that an operator asks for.
    pub async fn fail_over(&self) {
        // Refused while the one before is still going on.
        let begun = async || self.sentinels[0].try_command(&["SENTINEL", "FAILOVER", SERVICE]).is_ok();
        wait::until("a failover begins", begun).await;
    }
}
