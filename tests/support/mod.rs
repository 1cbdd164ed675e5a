//! Real servers on free ports in temporary folders, and what tests do with them.
//!
//! Whatever is started here dies with the test that started it, and at the latest with the test process,
//! however that ends. Nothing here shares code with the daemon.

#![allow(dead_code, unused_imports, reason = "a toolbox: not every tool is in use at any time")]

/// A headless Chromium, for the page.
pub mod browser;
/// The daemon and its one-shot commands, as processes.
pub mod daemon;
/// A fresh database of any of the three kinds, spoken to in plain SQL.
pub mod database;
/// A file system that can be full.
pub mod disk;
/// Whoever is asked before an order closes, and lies.
pub mod liar;
/// A MariaDB server.
pub mod mariadb;
/// The socket on which systemd hears its services.
pub mod notify_socket;
/// One-shot commands: with environment variables, on a terminal, without a configuration file.
pub mod one_shot;
/// A PgBouncer.
pub mod pgbouncer;
/// Ports that nobody uses.
pub mod ports;
/// A PostgreSQL server.
pub mod postgres;
/// Child processes that can't outlive the tests.
pub mod process;
/// What networks do to connections.
pub mod proxy;
/// A RabbitMQ.
pub mod rabbitmq;
/// Whoever is told of closures.
pub mod receiver;
/// A Redis server and a client for it.
pub mod redis;
/// Configuration files for the daemon.
pub mod settings;
/// A shop: orders, order items, inventory, payments, and the account of what became of them.
pub mod shop;
/// A proxy that sends statements to two MariaDB servers.
pub mod splitter;
/// SQLite database files.
pub mod sqlite;
/// Whoever is asked before an order closes.
pub mod till;
/// Connections over TLS.
mod tls;
/// Waiting for conditions.
pub mod wait;

pub use daemon::{Daemon, order_closer};
pub use database::{Database, Kind};
pub use disk::Disk;
pub use notify_socket::NotifySocket;
pub use one_shot::OneShot;
pub use proxy::Proxy;
pub use rabbitmq::RabbitMq;
pub use redis::Redis;
pub use settings::Settings;
pub use shop::Shop;
