//! The question before closing: whether an order is really unpaid, asked of whoever knows what the payment provider knows.

mod answer;

pub use answer::{Answer, read};
