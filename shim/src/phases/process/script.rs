//! Where the program's Python script begins: at the first recorded allocation whose outermost Python frame is the body of a module that nobody
//! imports, or that `python -m` runs; and where the interpreter, returning from it, begins to end, with the handlers of `atexit`: at the first recorded
//! allocation under its own call of `Py_FinalizeEx`, or `Py_Exit`. The walk over the frames comes by anyway when it meets a frame for the first time; nothing else is asked.

use super::{Look, ending, exit_begins, mark_process};
use crate::hooks::heap::ready;
use crate::lane::Hot;
use crate::python::{self, Definition};
use crate::sys;
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicUsize, Ordering::*};
use memshim_format::phase::SCRIPT;

static BEGUN: AtomicBool = AtomicBool::new(false);
/// The code object met last that is the body of a module.
static BODY: AtomicU32 = AtomicU32::new(0);
/// `_run_code` of `runpy`, and the latest frame of it by its number on its thread.
static RUNNER: AtomicU32 = AtomicU32::new(0);
static RUNS: AtomicU32 = AtomicU32::new(0);

/// Fast mode: whose block is being recorded, and its usable bytes. The exact counts have it already; the script begins, or ends, before it.
static WHOSE: AtomicUsize = AtomicUsize::new(0);
static USABLE: AtomicI64 = AtomicI64::new(0);

/// Records a block that is counted.
#[inline]
pub fn with_block(hot: *mut Hot, usable: usize, record: impl FnOnce()) {
    // SAFETY: the caller's hot: only the first thread begins the script and ends it, in its lane.
    if super::exits() || python::state().is_none() || unsafe { (*hot).index } != 0 {
        return record();
    }
    USABLE.store(usable as i64, Relaxed);
    WHOSE.store(hot as usize, Relaxed);
    record();
    WHOSE.store(0, Relaxed);
}

/// Says what happens, with what is live before the block.
fn before_block(say: impl FnOnce()) {
    let hot = ready();
    if hot.is_null() || WHOSE.load(Relaxed) != hot as usize {
        return say();
    }
    let usable = USABLE.load(Relaxed);
    // SAFETY: hot is this thread's, and has its lane.
    let (live, hi) = unsafe { (&(*(*hot).lane).live, &(*(*hot).lane).hi) };
    let with = live.fetch_sub(usable, Relaxed);
    if hi.load(Relaxed) <= with {
        // The highest is the block's: what it was before is not known any more, but that it was this at least.
        hi.store(with - usable, Relaxed);
    }
    say();
    live.fetch_add(usable, Relaxed);
    hi.fetch_max(with, Relaxed);
}

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
        if let Some(interpreter) = python::interpreter::get() {
            ending::settle(&interpreter.object);
        }
        before_block(|| mark_process(SCRIPT, Look::Layers));
    }
}

/// A native frame is met for the first time: its place as the unwinder has it.
#[cold]
pub fn native_frame(frame: u64) {
    let is_return = frame & 1 == 0;
    if BEGUN.load(Relaxed) && is_return && ending::is_at(frame >> 1) && sys::gettid() == sys::getpid() {
        before_block(|| exit_begins());
    }
}
