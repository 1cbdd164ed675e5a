//! What holds for all inputs, through the public interface.

mod configuration;
mod ids;
mod judging;
mod secrets;
