//! The hooked functions, by class. Everything exported is here, and exactly what [`table`] lists.
//!
//! **A free is recorded before the real free, an allocation after the real one, a realloc as both.** Between the real free and its
//! record another thread could get the block and record it, and the order would be lost; so could it with an allocation recorded too
//! early. No lock is held across a real call, and no hook looks anything up: what it needs was settled at the start.

pub mod assembly;
pub mod cxx;
pub mod heap;
pub mod maps;
pub mod process;
pub mod quick;
pub mod table;
pub mod waits;
