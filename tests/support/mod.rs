//! Runs the programs of `tests/programs` bare and under memshim, and holds the two against each other.
//!
//! A [`Program`] is built once, run bare, with the shim preloaded in full and in fast mode, and under `memshim run`. Every run must
//! print the same, end the same way and leave the same files; the TRUTH lines it printed about itself are then checked against its
//! trace by `scripts/check-truth`. Not for unit tests: everything here is about real processes.
//!
//! Environment: `MEMSHIM_TARGET_DIR` (where `release/libmemshim.so` and `release/memshim` are), `MEMSHIM_TEST_MODES` (comma-separated
//! subset of `bare,full,fast,run`), `MEMSHIM_TEST_KEEP` (leave the folders of passed tests), `MEMSHIM_PYTHON` (the interpreter),
//! `MEMSHIM_CATALYST_PYTHON` (one that has `pennylane-catalyst`).
#![allow(dead_code, unused_imports)] // each test binary uses its own part

mod artifacts;
pub mod jq;
mod machine;
mod program;
pub mod pyrules;
mod session;
mod truth;

pub use artifacts::{build, fresh_dir, memshim, out_dir, release, root, run_dir, shim};
pub use machine::{
    Need, catalyst, find_command, find_library, is_free_threaded, lacks, nvtx_headers, pyenv, pyenv_free_threaded, python, skip,
};
pub use program::{Mode, Program};
pub use session::{Ran, Session, signal};
pub use truth::{analyze, check_truth, conserved, counted};

pub fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Names that a linker puts among the exports of any library.
pub fn hidden_export(name: &str) -> bool {
    ["_init", "_fini", "_edata", "_end", "__bss_start"].contains(&name)
}

/// A test with the name of its promise: builds, runs and compares a program.
#[macro_export]
macro_rules! promises {
    ($($(#[$doc:meta])* $name:ident: $source:literal $([$($arg:literal),*])? $(.$method:ident($($value:expr),*))*;)*) => {
        $($(#[$doc])* #[test] fn $name() {
            support::Program::new(stringify!($name), $source)$($(.arg($arg))*)?$(.$method($($value),*))*.holds();
        })*
    };
}
