//! All tests that need more than one function: real servers, the real binary, whole outcomes.
//!
//! One binary, so that a PostgreSQL and a MariaDB are started once for all of them.

#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::wrong_self_convention,
    unreachable_pub,
    reason = "a test may panic"
)]

/// A shop at work, three daemons, several faults at a time, and the judgement of the whole history.
mod chaos;
/// The clients that the documentation shows, in their own languages.
mod clients;
/// What each command of the real binary prints, does, and returns.
mod commands;
/// The one exam that every database sits, through the public `store` trait.
mod conformance;
/// An order service at work, one fault at a time, and the judgement of each order's history.
mod histories;
/// What the daemon answers over HTTP.
mod http;
/// The queue between those who hear of orders and those who close them.
mod inbox;

/// The rooms of the library use each other in one direction.
mod layers;

/// The promises, kept by the daemon itself while everything around it fails.
mod promises;
/// Systems that are in use, with the examples of `config/examples`.
mod shops;
/// Starts real servers, the shop's tables and the daemon itself, and stops them.
mod support;

/// What holds for all inputs: reading ids, judging orders, reading the configuration.
mod properties;
