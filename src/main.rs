//! The `memshim` command. Everything is in the library, so that tests reach it.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    memshim::cli::main(std::env::args_os())
}
