//! Phases that are Python functions, by rules (`MEMSHIM_PHASE_PY`); nothing of the program is changed, and none of our code is Python.
//!
//! How we come to run inside the interpreter: it keeps each thread's state in thread-local storage, so `pthread_setspecific` is called with
//! one before a thread runs any Python. There the interpreter's function that evaluates frames is replaced ([`eval`]), which is one word.
//! That is all there is to it up to 3.11. From 3.12 on the next frame sets up `sys.monitoring` ([`monitor`]) and takes the function away.
//! An interpreter further on in a thread (a subinterpreter) is found at its first map.
//!
//! [`rules`] say what is a phase, [`codes`] knows those that are, [`last`] tells the end when the function's locals are gone.

mod codes;
mod cpython;
mod eval;
mod fields;
mod inlined;
mod last;
mod monitor;
mod opcodes;
mod rules;
mod stubs;

pub use rules::take;

use super::{Source, begin, end, end_early};
use crate::hooks::heap::ready;
use crate::sys;
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};

/// There are rules.
static WANTED: AtomicBool = AtomicBool::new(false);
/// An interpreter did not take us.
static FAILED: AtomicBool = AtomicBool::new(false);
/// Calls were so deep that they were not watched.
static FAR_DOWN: AtomicBool = AtomicBool::new(false);

/// What there is to do at the start. One thread.
pub fn settle() {
    if rules::any() {
        crate::unwind::reach::settle();
        crate::python::seek();
        WANTED.store(true, Relaxed);
    }
}

/// A thread has kept `value` in storage of its own: if that is its state in an interpreter, that one is ours to watch.
#[inline(always)]
pub fn on_thread_storage(value: *const c_void) {
    if WANTED.load(Relaxed) && !value.is_null() {
        sys::keep_errno(|| consider(value));
    }
}

#[cold]
#[inline(never)]
fn consider(value: *const c_void) {
    static TRIES: AtomicU32 = AtomicU32::new(0);
    if crate::python::state().is_none()
        && TRIES.fetch_add(1, Relaxed) < 10_000
        && let Some((bias, dynamic)) = crate::unwind::modules::of_file(b"libpython")
    {
        // Without the loader's lock: an allocator may be what calls.
        // SAFETY: a loaded library that is being called; programs that run Python do not unload it.
        unsafe { crate::python::seek_in(&crate::elf::Object::new(bias, dynamic as *const [u64; 2])) };
    }
    let Some(p) = cpython::get() else { return };
    // SAFETY: the interpreter's function; if the value is this thread's state, it lives.
    unsafe {
        if (p.walked.this_thread)() == value.cast() {
            if (p.is_initialized)() == 0 {
                monitor::forget();
            }
            watch(p, value.cast_mut().cast());
        }
    }
}

/// A map is recorded: whichever interpreter this thread runs in is watched.
#[inline(always)]
pub fn look() {
    if WANTED.load(Relaxed) {
        look_now();
    }
}

#[cold]
#[inline(never)]
fn look_now() {
    if let Some(p) = cpython::get() {
        // SAFETY: the interpreter's function; the current thread state lives.
        unsafe {
            let state = (p.current)();
            if !state.is_null() {
                watch(p, state);
            }
        }
    }
}

/// A function begins or goes on.
fn begins(phase: u32) {
    let hot = ready();
    if !hot.is_null() {
        // SAFETY: hot is this thread's.
        unsafe { (*hot).functions += 1 };
        begin(Source::Python, phase);
    }
}

/// It ends or gives way; `early`: with its locals still there. A forked child that comes out of what its parent was in has begun none of it.
fn ends(early: bool) {
    let hot = ready();
    // SAFETY: hot is null or this thread's.
    unsafe {
        if hot.is_null() || (*hot).functions == 0 {
            return;
        }
        (*hot).functions -= 1;
    }
    if early { end_early(Source::Python) } else { end(Source::Python) }
}

unsafe fn watch(p: &cpython::Cpython, state: cpython::Py) {
    // SAFETY: the caller's thread state, which lives, and its interpreter.
    unsafe {
        let interpreter = cpython::interpreter_of(state);
        if !interpreter.is_null() {
            if p.monitoring.is_none() {
                last::settle(p);
            }
            if !inlined::is_ready(p) {
                eval::put(p, interpreter);
            }
        }
    }
}

/// Says at the end what did not come about: each line in two parts, of which the second is the program's text.
pub fn trouble(mut say: impl FnMut(&[u8], &'static str)) {
    if !WANTED.load(Relaxed) || crate::python::state().is_none() {
        return;
    }
    if cpython::is_unusable() || FAILED.load(Relaxed) {
        say(
            b"",
            "functions of this Python cannot be phases: its version or build is not known, or it had no number left for a monitoring tool",
        );
        return;
    }
    if inlined::is_old_way() {
        say(
            b"",
            "Python 3.11 keeps the arguments of calls alive until they return, from where a generator or coroutine is a phase or a tracer or profiler is set, or in a build that is not known: peaks can be higher than without rules",
        );
    }
    if FAR_DOWN.load(Relaxed) {
        say(
            b"",
            "calls of Python functions deep in a recursion are no phases: up to 3.10 beyond a sixteenth of the stack, in 3.11 where it was nearly used up",
        );
    }
    if codes::is_full() {
        say(b"", "more Python functions fit the rules of MEMSHIM_PHASE_PY than can be phases: not all of them are");
    }
    for rule in rules::unmet() {
        say(rule, memshim_format::phase::UNMET);
    }
}
