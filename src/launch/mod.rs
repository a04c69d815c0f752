//! Running a target from outside: its environment, its signals, its end, and what the system says about it.
//!
//! The promise: a target started here sees the descriptors, signal dispositions, process group, terminal and environment it would
//! have had from its real parent, plus `LD_PRELOAD` and the `MEMSHIM_*` variables. Not for: reading traces (`trace`), text (`cli`, `output`).

pub mod artifacts;
pub mod below;
pub mod bystander;
pub mod capabilities;
pub mod cgroup;
pub mod claim;
pub mod descriptors;
pub mod elf;
pub mod inherited;
pub mod job;
pub mod listed;
pub mod locate;
pub mod notices;
pub mod onlooker;
pub mod outside;
pub mod pattern;
pub mod place;
pub mod preload;
pub mod proc;
pub mod relay;
pub mod rules;
pub mod side;
pub mod signals;
pub mod spawn;
pub mod stop;
pub mod target;
pub mod watch;
