//! Where a name leads, now and later.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    time::Duration,
};

use tokio::sync::oneshot;

use super::error::{RedisError, Result};

/// The addresses of a host.
///
/// The system's resolver blocks, for as long as a silent name server lets it: on a thread of its own it holds up neither the
/// runtime nor its end.
pub(super) async fn resolve(host: &str, port: u16, limit: Duration) -> Result<Vec<SocketAddr>> {
    let (told, addresses) = oneshot::channel();
    let wanted = (host.to_owned(), port);
    std::thread::Builder::new()
        .name("resolver".into())
        .spawn(move || told.send(wanted.to_socket_addrs().map(Iterator::collect::<Vec<_>>)).ok())
        .map_err(|error| RedisError::unreachable(error.to_string()))?;
    match tokio::time::timeout(limit, addresses).await {
        Ok(Ok(Ok(addresses))) if addresses.is_empty() => Err(RedisError::unreachable(format!("the name {host} has no address"))),
        Ok(Ok(Ok(addresses))) => Ok(addresses),
        Ok(Ok(Err(error))) => Err(RedisError::unreachable(format!("the name {host} leads nowhere: {error}"))),
        Ok(Err(_)) | Err(_) => {
            Err(RedisError::unreachable(format!("no answer to the name {host} within {}", humantime::format_duration(limit))))
        }
    }
}

/// So many looks in a row must show the same other addresses, before the name has moved: those of a name that gives one of
/// several in turn change all the time.
const LOOKS: u32 = 2;

/// Watches whether a host's name still leads to the server of a connection.
#[derive(Debug)]
pub(super) struct Lead {
    connected: IpAddr,
    elsewhere: BTreeSet<IpAddr>,
    looks: u32,
}

impl Lead {
    pub(super) fn to(connected: IpAddr) -> Self {
        Self { connected, elsewhere: BTreeSet::new(), looks: 0 }
    }

    /// Takes in a look. Whether the name leads elsewhere for good.
    pub(super) fn has_moved(&mut self, addresses: &[SocketAddr]) -> bool {
        let now: BTreeSet<IpAddr> = addresses.iter().map(SocketAddr::ip).collect();
        if now.is_empty() || now.contains(&self.connected) {
            self.looks = 0;
        } else if now == self.elsewhere {
            self.looks += 1;
        } else {
            self.looks = 1;
        }
        self.elsewhere = now;
        self.looks >= LOOKS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(last: &[u8]) -> Vec<SocketAddr> {
        last.iter().map(|last| SocketAddr::from(([10, 0, 0, *last], 6379))).collect()
    }

    #[test]
    fn a_name_that_leads_elsewhere_has_moved() {
        let mut lead = Lead::to([10, 0, 0, 1].into());
        assert!(!lead.has_moved(&at(&[1, 2])));
        assert!(!lead.has_moved(&at(&[2])), "once is not for good");
        assert!(lead.has_moved(&at(&[2])));
    }

    #[test]
    fn a_name_that_gives_one_of_several_in_turn_has_not() {
        let mut lead = Lead::to([10, 0, 0, 1].into());
        for last in [2, 3, 1, 2, 3, 4, 1, 2] {
            assert!(!lead.has_moved(&at(&[last])));
        }
        assert!(!lead.has_moved(&[]), "nor one that leads nowhere at the moment");
    }

    #[tokio::test]
    async fn a_name_is_looked_up() {
        let addresses = resolve("localhost", 6379, Duration::from_secs(10)).await.expect("every system knows it");
        assert!(addresses.iter().all(|address| address.ip().is_loopback() && address.port() == 6379), "{addresses:?}");
        let nowhere = resolve("nowhere.invalid", 6379, Duration::from_secs(30)).await.expect_err("reserved for that").to_string();
        assert!(nowhere.contains("nowhere.invalid"), "{nowhere}");
    }
}
