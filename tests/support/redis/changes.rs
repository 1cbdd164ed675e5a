//! What operators and failovers do to a running Redis.

use std::time::Duration;

use super::{Keep, Redis, client::Connection, make_certificates, wait};

impl Redis {
    /// Makes it a replica of another.
    pub fn follow(&self, primary: &Redis) {
        self.command(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    }

    /// Makes it a primary.
    pub fn promote(&self) {
        self.command(&["REPLICAOF", "NO", "ONE"]);
    }

    /// Waits until it has everything that its primary has.
    pub async fn until_replicated(&self) {
        // Sentinels cut all connections of a server that they make a replica.
        let info = || self.try_command(&["INFO", "replication"]);
        let linked = async || info().is_ok_and(|info| info.text().contains("master_link_status:up"));
        wait::until("the replica follows its primary", linked).await;
    }

    /// Starts it again without data, under a certificate of a new authority, whose file stands where the old one stood.
    pub fn renew_certificates(&mut self) {
        self.kill();
        make_certificates(self.folder.path());
        self.start_again(Keep::Nothing);
    }

    /// Gives it a certificate of a new authority while it runs, for those who connect from now on; the authority's file stands
    /// where the old one stood.
    pub fn change_certificates(&self) {
        make_certificates(self.folder.path());
        let file = |name: &str| self.folder.path().join(name).display().to_string();
        let (certificate, key, authority) = (file("server.pem"), file("server.key"), file("ca.pem"));
        self.command(&["CONFIG", "SET", "tls-cert-file", &certificate, "tls-key-file", &key, "tls-ca-cert-file", &authority]);
    }

    /// Sends a command, and does not wait for what becomes of it.
    pub fn start_command(&self, words: &[&str]) {
        let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        let mut connection = Connection::open(self.port).expect("Redis answers");
        std::thread::spawn(move || connection.run(&[words.iter().map(Vec::as_slice).collect()]).ok());
    }

    /// Whether it announces keys that are new (the flag `n`), which it does not always show.
    pub fn announces_new_keys(&self) -> bool {
        let mut listener = Connection::open(self.port).expect("Redis answers");
        listener.run(&[vec![b"SUBSCRIBE", b"__keyevent@0__:new"]]).expect("a subscription");
        listener.set_patience(Duration::from_secs(1));
        self.command(&["SET", "a-key-that-is-new", "1"]);
        self.command(&["DEL", "a-key-that-is-new"]);
        listener.reply().is_ok()
    }
}
