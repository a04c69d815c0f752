//! What the process does as such, as phases (source `process`): its `main` begins, its Python [`script`] does, and ends, it calls `exit` or its `main` has
//! [`returned`], its first calls of the CUDA driver.
//!
//! The first three are marks, which the reader makes phases of: what was before `main`, from there to the script, what came after `exit`. They
//! cost a look at the process each, and nothing in between. Not for: what only the reader can know (which children there were).

mod ending;
pub mod returned;
pub mod script;

use super::{Look, Source, begin_range, end_range, name, tell_looking};
use crate::hooks::heap::ready;
use crate::init;
use crate::spool::SPOOL;
use crate::sys;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use memshim_format::phase::{CUDA_START, EXIT, MAIN, what};

static EXITS: AtomicBool = AtomicBool::new(false);
/// First calls of the driver that were seen, by bits.
static DRIVER: AtomicU32 = AtomicU32::new(0);

/// The program's `main` is next.
pub extern "C" fn main_begins() {
    mark_process(MAIN, Look::Layers);
}

fn mark_process(what_happens: &str, look: Look) {
    let hot = ready();
    if !hot.is_null() {
        // SAFETY: hot is this thread's.
        unsafe { tell_looking(hot, what::MARK, Source::Process, name(b"", what_happens.as_bytes()), 0, look) };
    }
}

/// The program calls `exit`, or has returned from `main`; in the memory of its parent (`vfork`) nothing is said.
pub extern "C" fn exit_begins() {
    // Also where a forked child has done nothing yet: it begins here.
    ready();
    // SAFETY: settled at the start.
    let is_us = init::is_recording() && sys::getpid() == unsafe { SPOOL.pid };
    if is_us && !EXITS.swap(true, Relaxed) {
        // The layers are looked at when it ends, which is soon.
        mark_process(EXIT, Look::Counts);
    }
}

/// Whether its end has begun.
#[inline]
fn exits() -> bool {
    EXITS.load(Relaxed)
}

/// What the driver sets up at its first call of a kind.
#[derive(Clone, Copy)]
pub enum Driver {
    /// Itself.
    Init = 1,
    /// A context.
    Context = 2,
}

/// Runs a call of the driver that sets it up; the first of its kind is a phase.
pub fn starting<T>(driver: Driver, call: impl FnOnce() -> T) -> T {
    if DRIVER.fetch_or(driver as u32, Relaxed) & driver as u32 != 0 {
        return call();
    }
    let range = begin_range(Source::Process, name(b"", CUDA_START.as_bytes()), Some(OWN | driver as u64));
    let r = call();
    end_range(Source::Process, range);
    r
}

/// Ranges of nobody else: those of programs and of NVTX count from 1 on.
const OWN: u64 = 1 << 62;

/// A forked child ends by itself, and has no driver.
pub fn forget() {
    EXITS.store(false, Relaxed);
    DRIVER.store(0, Relaxed);
}
