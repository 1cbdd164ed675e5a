//! What is told of a closure, and to whom.
//!
//! Events are recorded by the [`store`](crate::store), in the transaction that closes the order.

mod envelope;

pub use envelope::{Closure, cloud_event};
