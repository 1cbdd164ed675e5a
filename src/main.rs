//! The `order-closer` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    order_closer::cli::main(std::env::args_os())
}
