//! The tensorferry command.

use std::process::ExitCode;

use tensorferry_cli::Env;

fn main() -> ExitCode {
    tensorferry_cli::run(std::env::args_os(), &Env::default()).into()
}
