//! What a memshim trace is made of: the words of a ring, the spool they lie in, the columns of a line, and the names of the
//! counted functions; and what both must take alike: settings, their values and their file, file systems without shared memory, keys of snapshots; and what a look costs, which is here for its tests. Shared by the shim (which writes, inside someone else's process) and the command (which reads).
//! No allocation, no I/O, no panic. Not for: parsing lines or deciding what to record.
#![cfg_attr(not(test), no_std)]
#![warn(missing_docs)]

pub mod cost;
pub mod gpu;
pub mod live;
pub mod phase;
pub mod proc;
pub mod pylines;
pub mod record;
pub mod remote;
pub mod settings;
pub mod spool;
pub mod v93;
pub mod value;
