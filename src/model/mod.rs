//! The state that a trace's lines describe, one image of one process at a time. Knows lines (`trace`), not questions (`analyze`).

pub mod batch;
pub mod by_thread;
pub mod counts;
pub mod endings;
pub mod gpu;
pub mod heap;
pub mod image;
pub mod kinds;
pub mod levels;
pub mod live;
pub mod load;
pub mod mapfeed;
pub mod maps;
pub mod merge;
pub mod modules;
pub mod outside;
pub mod phases;
pub mod python;
pub mod sites;
pub mod stacks;
pub mod sweep;
pub mod threads;
pub mod tickets;
pub mod timeline;
pub mod track;
pub mod units;
