//! The clients of `examples/clients`, which the documentation shows: each as it lies there, in its own language, beside a
//! real Redis, a real database and the real daemon.

/// A client's process: told what to do line by line.
mod client;
/// Receivers of webhooks, and readers of the stream.
mod events;
/// Consumers of other brokers, which hand hints over.
mod hints;
/// A client's compiler or interpreter, and what the client depends on.
mod toolchain;

/// Creating, paying, extending and cancelling orders, with Redis there, stopped and killed.
mod orders;

/// Timers that are registered, moved and cancelled with their orders.
mod timers;
