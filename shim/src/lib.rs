//! `libmemshim.so`: lives in someone else's process and records what it does with memory.
//!
//! One event's way: a hook ([`hooks`]) counts it in its thread's lane and pushes its words into that lane's ring ([`lane`]); the
//! drain ([`drain`]) turns words into columns of a batch; the sink ([`sink`]) writes batches as lines. The writer thread ([`writer`])
//! is the usual drain; a thread whose ring is full drains by itself, so the shim works where no thread may be started.
//!
//! Rules here: no allocation, no lock on the fast path, no panic, no formatting on the hot path, errno kept, and no libc call that
//! could be one of the hooked functions; system calls are made directly ([`sys`]). Everything that the drain owns is guarded by its
//! lock, which is only taken with all signals blocked and never held across a call of the program's.
#![cfg_attr(not(test), no_std)]
#![allow(static_mut_refs)]
// A reference to a `static mut` is made from a raw pointer, `&mut *(&raw mut X)`: the one way that says what it does.
#![allow(clippy::deref_addrof)]

mod callers;
mod config;
mod crowd;
mod cuda;
mod drain;
mod elf;
mod follow;
mod hooks;
mod init;
mod kinds;
mod lane;
mod lines;
mod loaded;
mod phases;
mod proc;
mod python;
mod python_alloc;
mod real;
mod share;
mod shelf;
mod sink;
mod snapshot;
mod spool;
mod sys;
mod table;
mod text;
mod thread_stacks;
mod tls;
mod unwind;
mod writer;
mod zst;

/// A panic cannot happen: nothing in this crate has a path to one, which `scripts/check-fastpath` proves by the absence of the
/// symbols. The handler exists because the language asks for it.
#[cfg(not(test))]
#[panic_handler]
fn never(_: &core::panic::PanicInfo) -> ! {
    loop {
        core::hint::spin_loop();
    }
}
