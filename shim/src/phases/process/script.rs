//! Where the program's Python script begins: at the first recorded allocation whose outermost Python frame is the body of a module that nobody
//! imports, or that `python -m` runs. The walk over the frames comes by anyway when it meets a frame for the first time; nothing else is asked.

use super::mark_process;
use crate::python::Definition;
use crate::sys;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use memshim_format::phase::SCRIPT;

static BEGUN: AtomicBool = AtomicBool::new(false);
/// The code object met last that is the body of a module.
static BODY: AtomicU32 = AtomicU32::new(0);
/// `_run_code` of `runpy`, and the latest frame of it by its number on its thread.
static RUNNER: AtomicU32 = AtomicU32::new(0);
static RUNS: AtomicU32 = AtomicU32::new(0);

/// A code object is met for the first time.
#[cold]
pub fn code(d: &Definition) {
    if d.name == b"<module>" && !d.file.starts_with(b"<frozen") {
        BODY.store(d.number, Relaxed);
    } else if d.name == b"_run_code" {
        RUNNER.store(d.number, Relaxed);
    }
}

/// A frame called from there is met for the first time.
#[cold]
pub fn frame(parent: u32, code: u32, node: u32) {
    if BEGUN.load(Relaxed) || code == 0 {
        return;
    }
    // The first thread's: other threads begin with functions.
    let code = code & 0x00ff_ffff;
    if code == RUNNER.load(Relaxed) && code != 0 {
        RUNS.store(node, Relaxed);
    } else if code == BODY.load(Relaxed)
        && (parent == 0 || parent == RUNS.load(Relaxed))
        && sys::gettid() == sys::getpid()
        && !BEGUN.swap(true, Relaxed)
    {
        mark_process(SCRIPT);
    }
}
