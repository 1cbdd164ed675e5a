//! The proxy itself, with real sockets.

use std::{io::ErrorKind, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::Instant,
};

use super::{Existing, Proxy, Towards};
use crate::support::wait;

/// A server that greets with its name and sends back what it gets. Dropping it ends it.
struct Echo {
    url: String,
    task: JoinHandle<()>,
}

impl Echo {
    async fn start(name: u8) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("tcp://{}", listener.local_addr().expect("an address"));
        let task = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.expect("a connection");
                tokio::spawn(async move {
                    stream.write_all(&[name]).await.ok();
                    let (mut from, mut to) = stream.split();
                    tokio::io::copy(&mut from, &mut to).await.ok();
                    to.shutdown().await.ok();
                });
            }
        });
        Self { url, task }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Connects, and reads who has answered.
async fn connect(proxy: &Proxy) -> (TcpStream, u8) {
    let mut stream = TcpStream::connect(("127.0.0.1", proxy.port)).await.expect("the proxy accepts");
    let name = stream.read_u8().await.expect("the server greets");
    (stream, name)
}

async fn echo(stream: &mut TcpStream, byte: u8) -> std::io::Result<u8> {
    stream.write_all(&[byte]).await?;
    stream.read_u8().await
}

/// How a connection ends for its client: `None` in good order.
async fn end(stream: &mut TcpStream) -> Option<ErrorKind> {
    tokio::time::timeout(wait::LIMIT, stream.read(&mut [0; 1]))
        .await
        .expect("an end")
        .map(|length| assert_eq!(length, 0))
        .err()
        .map(|error| error.kind())
}

/// Whether nothing comes for a moment.
async fn is_silent(stream: &mut TcpStream) -> bool {
    tokio::time::timeout(Duration::from_millis(100), stream.read(&mut [0; 1])).await.is_err()
}

/// Megabytes arrive whole and in order, in far less time than one piece after the other would take.
#[tokio::test]
async fn delays_neither_overtake_nor_hold_up() {
    const LENGTH: usize = 20_000_000;
    let (server, each_way) = (Echo::start(b'a').await, Duration::from_millis(30));
    let proxy = Proxy::before(&server.url);
    let (mut stream, _) = connect(&proxy).await;
    proxy.delay(each_way);
    let began = Instant::now();
    assert_eq!(echo(&mut stream, 7).await.expect("an answer"), 7);
    assert!(began.elapsed() >= 2 * each_way, "{:?}", began.elapsed());

    let sent: Vec<u8> = (0..LENGTH).map(|at| (at % 251) as u8).collect();
    let (mut from, mut to) = stream.split();
    let began = Instant::now();
    let read = async {
        let mut read = vec![0; LENGTH];
        from.read_exact(&mut read).await.map(|_| read)
    };
    let (written, read) = tokio::join!(to.write_all(&sent), read);
    written.expect("all is sent");
    assert!(read.expect("all comes back") == sent, "in order");
    // More than a thousand pieces, each of which is 60 ms on its way.
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_delay_of_one_direction() {
    let server = Echo::start(b'a').await;
    let proxy = Proxy::before(&server.url);
    let (mut stream, _) = connect(&proxy).await;
    for towards in [Towards::Server, Towards::Client] {
        proxy.delay_towards(towards, Duration::from_millis(50));
        let began = Instant::now();
        echo(&mut stream, 1).await.expect("an answer");
        assert!(began.elapsed() >= Duration::from_millis(50), "{towards:?}: {:?}", began.elapsed());
        proxy.delay(Duration::ZERO);
    }
}

#[tokio::test]
async fn cuts_with_rst_and_with_fin() {
    let server = Echo::start(b'a').await;
    let proxy = Proxy::before(&server.url);
    let (mut stream, _) = connect(&proxy).await;
    proxy.reset();
    assert_eq!(end(&mut stream).await, Some(ErrorKind::ConnectionReset));
    let (mut stream, _) = connect(&proxy).await;
    proxy.close();
    assert_eq!(end(&mut stream).await, None);
    let (mut stream, _) = connect(&proxy).await;
    assert_eq!(echo(&mut stream, 1).await.expect("a new one is whole"), 1);
    wait::until_eq("the number of open connections", 1, async || proxy.open()).await;
}

#[tokio::test]
async fn half_closes() {
    let server = Echo::start(b'a').await;
    let proxy = Proxy::before(&server.url);
    // The client hears an end, and still can send.
    let (mut stream, _) = connect(&proxy).await;
    proxy.half_close(Towards::Client);
    assert_eq!(end(&mut stream).await, None);
    assert_eq!(proxy.open(), 1, "half of it is there");
    stream.write_all(&[1]).await.expect("the other half takes bytes");
    drop(stream);
    wait::until_eq("the number of open connections", 0, async || proxy.open()).await;
    // The server hears an end, and its last words arrive.
    let (mut stream, _) = connect(&proxy).await;
    proxy.half_close(Towards::Server);
    assert_eq!(end(&mut stream).await, None, "the server ends its half then");
}

#[tokio::test]
async fn a_black_hole_swallows_old_and_new() {
    let server = Echo::start(b'a').await;
    let proxy = Proxy::before(&server.url);
    let (mut used, _) = connect(&proxy).await;
    let (mut idle, _) = connect(&proxy).await;
    let (left, _) = connect(&proxy).await;
    proxy.black_hole();
    used.write_all(&[1]).await.expect("it takes bytes");
    drop(left);
    let mut new = TcpStream::connect(("127.0.0.1", proxy.port)).await.expect("the proxy accepts");
    assert!(is_silent(&mut used).await && is_silent(&mut new).await);
    assert_eq!(proxy.open(), 4, "not even an end arrives");
    proxy.pass();
    assert_eq!(end(&mut used).await, Some(ErrorKind::ConnectionReset));
    assert_eq!(end(&mut new).await, Some(ErrorKind::ConnectionReset));
    assert_eq!(echo(&mut idle, 2).await.expect("nothing of it was lost"), 2);
    let (mut later, _) = connect(&proxy).await;
    assert_eq!(echo(&mut later, 3).await.expect("new ones are whole"), 3);
    wait::until_eq("the number of open connections", 2, async || proxy.open()).await;
}

#[tokio::test]
async fn refuses_new_connections_alone() {
    let server = Echo::start(b'a').await;
    let proxy = Proxy::before(&server.url);
    let (mut stream, _) = connect(&proxy).await;
    for _ in 0..2 {
        proxy.refuse().await;
        let refused = TcpStream::connect(("127.0.0.1", proxy.port)).await;
        assert_eq!(refused.map_err(|error| error.kind()).err(), Some(ErrorKind::ConnectionRefused));
        assert_eq!(echo(&mut stream, 1).await.expect("the old one is whole"), 1);
        proxy.accept().await;
        connect(&proxy).await;
    }
}

#[tokio::test]
async fn leads_elsewhere() {
    let (first, second) = (Echo::start(b'a').await, Echo::start(b'b').await);
    let proxy = Proxy::before(&first.url);
    let (mut old, name) = connect(&proxy).await;
    assert_eq!(name, b'a');
    proxy.lead_to(&second.url, Existing::Stay);
    let (mut new, name) = connect(&proxy).await;
    assert_eq!(name, b'b');
    assert_eq!(echo(&mut old, 1).await.expect("it has its server"), 1);
    proxy.lead_to(&first.url, Existing::Cut);
    assert_eq!(end(&mut old).await, Some(ErrorKind::ConnectionReset));
    assert_eq!(end(&mut new).await, Some(ErrorKind::ConnectionReset));
    assert_eq!(connect(&proxy).await.1, b'a');
}

#[test]
fn a_url_leads_through_the_proxy() {
    let proxy = Proxy::before("mysql://root@127.0.0.1:3306/shop?ssl-mode=disabled");
    assert_eq!(proxy.url("mysql://root:a%40b@127.0.0.1:3306/shop"), format!("mysql://root:a%40b@127.0.0.1:{}/shop", proxy.port));
}
