//! A TCP proxy that does to connections what networks do to them: delays, cuts, swallows, refuses, leads elsewhere.
//!
//! It runs on a thread of its own, so that a test that blocks its own thread delays nothing. What it is told holds for
//! the connections that it carries and for those to come; a cut is for those that it carries, see [`Proxy::open`].

mod tests;

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::{mpsc, watch},
    time::Instant,
};
use url::Url;

use super::ports;

/// How many pieces of at most [`PIECE`] bytes may be under way in one direction before its reader waits.
const UNDER_WAY: usize = 1_024;
const PIECE: usize = 16 * 1_024;

/// Towards whom bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Towards {
    /// The server behind the proxy.
    Server,
    /// Whoever has connected to the proxy.
    Client,
}

/// What becomes of the connections that there are, when new ones lead elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// They stay with the server that they have.
    Stay,
    /// They are reset.
    Cut,
}

/// What the network is like. A cut is a number that has grown since a connection began.
#[derive(Debug, Clone)]
struct Network {
    server: SocketAddr,
    delays: [Duration; 2],
    refuses: bool,
    swallows: bool,
    resets: u64,
    closes: u64,
    half_closes: [u64; 2],
    strands: u64,
}

/// A proxy before a server on this machine; dropping it cuts all that it carries.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    network: Option<watch::Sender<Network>>,
    listening: watch::Receiver<bool>,
    open: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts one before the server of this URL.
    pub fn before(url: &str) -> Self {
        let (network, conditions) = watch::channel(Network {
            server: address(url),
            delays: [Duration::ZERO; 2],
            refuses: false,
            swallows: false,
            resets: 0,
            closes: 0,
            half_closes: [0; 2],
            strands: 0,
        });
        let (told, listening) = watch::channel(true);
        let (port, listener) = ports::with_free("a proxy", |port| {
            let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|error| error.to_string())?;
            listener.set_nonblocking(true).map_err(|error| error.to_string())?;
            Ok((port, listener))
        });
        let open = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&open);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be built");
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).expect("a listener can be watched");
                accept(listener, port, conditions, &told, &counter).await;
            });
        });
        Self { port, network: Some(network), listening, open, thread: Some(thread) }
    }

    /// The same URL by way of the proxy.
    pub fn url(&self, url: &str) -> String {
        let mut url: Url = url.parse().expect("a good URL");
        url.set_host(Some("127.0.0.1"))
            .and_then(|()| url.set_port(Some(self.port)).map_err(|()| url::ParseError::InvalidPort))
            .expect("a URL with a host");
        url.into()
    }

    /// How many connections it carries. One that a client has just opened may not be among them yet: wait for it before a cut.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    /// Bytes arrive so much later, in either direction; those under way too are neither overtaken nor held up.
    pub fn delay(&self, each_way: Duration) {
        self.delay_towards(Towards::Server, each_way);
        self.delay_towards(Towards::Client, each_way);
    }

    /// Bytes arrive so much later in one direction.
    pub fn delay_towards(&self, towards: Towards, by: Duration) {
        self.change(|network| network.delays[towards as usize] = by);
    }

    /// Cuts all connections with RST.
    pub fn reset(&self) {
        self.change(|network| network.resets += 1);
    }

    /// Ends all connections in good order, with FIN to both sides.
    pub fn close(&self) {
        self.change(|network| network.closes += 1);
    }

    /// Sends FIN to one side, which can still send; what the other side sends it is lost.
    pub fn half_close(&self, towards: Towards) {
        self.change(|network| network.half_closes[towards as usize] += 1);
    }

    /// Accepts and swallows: nothing arrives any more, on old connections and on new ones, neither bytes nor ends.
    pub fn black_hole(&self) {
        self.change(|network| network.swallows = true);
    }

    /// Ends a black hole. A connection of which something was lost is reset, as by a host that hears of it again;
    /// one on which nothing was sent meanwhile goes on.
    pub fn pass(&self) {
        self.change(|network| network.swallows = false);
    }

    /// The connections that there are never carry anything again, and nobody hears of that; as when a router has forgotten them.
    pub fn strand(&self) {
        self.change(|network| network.strands += 1);
    }

    /// Refuses new connections, from the moment that this returns.
    pub async fn refuse(&self) {
        self.change(|network| network.refuses = true);
        self.until_listening(false).await;
    }

    /// Accepts new connections again.
    pub async fn accept(&self) {
        self.change(|network| network.refuses = false);
        self.until_listening(true).await;
    }

    /// Leads new connections to the server of another URL.
    pub fn lead_to(&self, url: &str, existing: Existing) {
        let server = address(url);
        self.change(|network| {
            network.server = server;
            network.resets += u64::from(existing == Existing::Cut);
        });
    }

    fn change(&self, change: impl FnOnce(&mut Network)) {
        self.network.as_ref().expect("there until it is dropped").send_modify(change);
    }

    async fn until_listening(&self, wanted: bool) {
        self.listening.clone().wait_for(|listens| *listens == wanted).await.expect("the proxy runs");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Without a sender nobody waits for a change any more, and the thread ends with all that it carries.
        drop(self.network.take());
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || matches!(ended, Some(Ok(()))), "the proxy panicked");
    }
}

fn address(url: &str) -> SocketAddr {
    let url: Url = url.parse().expect("a good URL");
    SocketAddr::from((Ipv4Addr::LOCALHOST, url.port().expect("a URL with a port")))
}

/// Accepts until nobody can change the network any more.
async fn accept(
    listener: TcpListener,
    port: u16,
    mut network: watch::Receiver<Network>,
    told: &watch::Sender<bool>,
    open: &Arc<AtomicUsize>,
) {
    let mut listener = Some(listener);
    loop {
        if network.borrow_and_update().refuses {
            listener = None;
        } else if listener.is_none() {
            listener = Some(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.expect("the port is the proxy's own"));
        }
        told.send_replace(listener.is_some());
        let accepted = async {
            match &listener {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Ok((client, _)) = accepted => {
                // What has changed since the wait began holds for it, too.
                let (born, network, open) = (network.borrow().clone(), network.clone(), Arc::clone(open));
                open.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    // A broken connection has been cut on both sides, and that is all.
                    carry(client, born, network).await.ok();
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
            changed = network.changed() => if changed.is_err() { return },
        }
    }
}

/// Carries one connection to its end. `born` is what the network was like when it began.
async fn carry(mut client: TcpStream, born: Network, mut network: watch::Receiver<Network>) -> io::Result<()> {
    let mut server = None;
    let lost = AtomicBool::new(born.swallows);
    let ended = tokio::select! {
        ended = both_ways(&mut client, &mut server, &born, &network, &lost) => ended,
        cut = cut(&born, network.clone(), &lost) => cut,
    };
    if ended.is_err() || lost.load(Ordering::SeqCst) {
        // A black hole swallows ends, too.
        network.wait_for(|now| !now.swallows || now.resets != born.resets).await.ok();
        for stream in [Some(&client), server.as_ref()].into_iter().flatten() {
            stream.set_zero_linger()?;
        }
    } else {
        for stream in [Some(&mut client), server.as_mut()].into_iter().flatten() {
            stream.shutdown().await?;
        }
    }
    Ok(())
}

/// Waits until this connection is to be cut: by FIN, or (an error) by RST.
async fn cut(born: &Network, mut network: watch::Receiver<Network>, lost: &AtomicBool) -> io::Result<()> {
    let hears = |now: &Network| !now.swallows && now.strands == born.strands;
    let is_reset = |now: &Network| now.resets != born.resets || (hears(now) && lost.load(Ordering::SeqCst));
    let reset = network.wait_for(|now| is_reset(now) || now.closes != born.closes).await.is_ok_and(|now| is_reset(&now));
    if reset { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(()) }
}

async fn both_ways(
    client: &mut TcpStream,
    server: &mut Option<TcpStream>,
    born: &Network,
    network: &watch::Receiver<Network>,
    lost: &AtomicBool,
) -> io::Result<()> {
    client.set_nodelay(true)?;
    if born.swallows {
        return discard(client).await;
    }
    // The handshake of a real connection takes one way there and one back.
    tokio::time::sleep(born.delays.iter().sum()).await;
    let server = server.insert(TcpStream::connect(born.server).await?);
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    tokio::try_join!(
        one_way(Towards::Server, from_client, to_server, born, network.clone(), lost),
        one_way(Towards::Client, from_server, to_client, born, network.clone(), lost),
    )
    .map(|_| ())
}

/// Reads to the end, so that whoever sends notices nothing.
async fn discard(client: &mut TcpStream) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    while client.read(&mut piece).await? > 0 {}
    Ok(())
}

/// Waits until one direction of this connection is to end; not so when the proxy ends.
async fn is_half_closed(network: &mut watch::Receiver<Network>, born: &Network, direction: usize) -> bool {
    network.wait_for(|now| now.half_closes[direction] != born.half_closes[direction]).await.is_ok()
}

/// Carries bytes, and then the end, in one direction. One half reads and stamps each piece with the moment at which it
/// is to arrive, the other waits for that moment: so there may be many under way.
async fn one_way(
    towards: Towards,
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    born: &Network,
    mut network: watch::Receiver<Network>,
    lost: &AtomicBool,
) -> io::Result<()> {
    let at = towards as usize;
    let (stamped, mut pieces) = mpsc::channel::<(Instant, Vec<u8>)>(UNDER_WAY);
    let mut closed = network.clone();
    let delay = network.clone();
    let read = async move {
        loop {
            let mut piece = vec![0; PIECE];
            let length = from.read(&mut piece).await?;
            piece.truncate(length);
            let arrives = Instant::now() + delay.borrow().delays[at];
            if stamped.send((arrives, piece)).await.is_err() || length == 0 {
                return Ok(());
            }
        }
    };
    let write = async move {
        let mut half_closed = false;
        loop {
            let (arrives, piece) = tokio::select! {
                piece = pieces.recv() => match piece {
                    Some(piece) => piece,
                    None => return Ok(()),
                },
                true = is_half_closed(&mut closed, born, at), if !half_closed => {
                    half_closed = true;
                    to.shutdown().await?;
                    continue;
                }
            };
            tokio::time::sleep_until(arrives).await;
            let (swallows, strands) = {
                let now = network.borrow_and_update();
                (now.swallows, now.strands)
            };
            if swallows || strands != born.strands || lost.load(Ordering::SeqCst) {
                lost.store(true, Ordering::SeqCst);
            } else if half_closed {
                // Nobody listens on that side any more.
            } else if piece.is_empty() {
                to.shutdown().await?;
            } else {
                to.write_all(&piece).await?;
            }
        }
    };
    tokio::try_join!(read, write).map(|_: ((), ())| ())
}
