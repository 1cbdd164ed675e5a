//! Connections over TLS, by a certificate of the listener's own.

use std::{net::SocketAddr, path::Path, sync::Arc};

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::ring},
    server::TlsStream,
};

/// Takes connections over TLS.
pub(super) struct TlsListener {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl TlsListener {
    /// One on a free port, whose certificate is for this host, good until this year, and written to this file.
    pub(super) async fn bind(certificate: &Path, host: &str, until: i32) -> Self {
        let mut parameters = CertificateParams::new([host.to_owned()]).expect("a name");
        parameters.not_after = date_time_ymd(until, 1, 1);
        let signing_key = KeyPair::generate().expect("a key");
        let cert = parameters.self_signed(&signing_key).expect("a certificate");
        std::fs::write(certificate, cert.pem()).expect("a file can be written");
        let key = signing_key.serialize_der().try_into().expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("protocols")
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .expect("a certificate with its key");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        Self { listener, acceptor: TlsAcceptor::from(Arc::new(config)) }
    }

    /// Its port.
    pub(super) fn port(&self) -> u16 {
        self.listener.local_addr().expect("an address").port()
    }
}

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = self.listener.accept().await.expect("connections can be accepted");
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}
