//! What the `memshim` command is made of: `cli → trace → model → analyze → output`, each a folder, data flows one way.
//!
//! - [`trace`]: files of a run and the lines in them, as they are; knows nothing of what they mean.
//! - [`model`]: the state that lines describe: live blocks, mappings, threads, counts; one image of one process at a time.
//! - [`analyze`]: questions to the model, and the report that holds the answers.
//! - [`output`]: the report as text or JSON.
//! - [`symbols`]: names of functions and lines of source for what a trace holds as addresses and instructions.
//! - [`cli`], [`launch`]: the command line, and running a target from outside.

#![deny(unsafe_code)] // the exceptions, `launch::{bystander, capabilities, inherited, spawn, stop}`, say why

pub mod analyze;
pub mod cli;
pub mod figures;
pub mod launch;
pub mod model;
pub mod output;
mod parallel;
pub mod symbols;
pub mod trace;
