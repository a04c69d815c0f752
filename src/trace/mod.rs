//! Traces as files: which files belong to a run, the lines in them, and what a dead process's spool adds.
//!
//! Nothing in a file is trusted: what can't be read is counted ([`read::Damage`]) and everything else is used.

mod callers;
pub mod column;
pub mod encode;
pub mod family;
pub mod frames;
pub mod glance;
pub mod gpurow;
pub mod line;
pub mod maprow;
pub mod marks;
pub mod phase;
pub mod read;
pub mod recover;
pub mod ring;
pub mod spool;
pub mod stacks;
