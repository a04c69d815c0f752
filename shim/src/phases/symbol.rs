//! Phases that are native functions, by rules (`MEMSHIM_PHASE_SYM`): functions that an object exports, each time another object calls them, or
//! their own does through the linker. No code of the program is changed.
//!
//! [`rules`] say which functions; [`patch`] puts thunks in their place where objects point to them, and into what `dlsym` gives; a
//! [`thunk`] calls the function with its arguments as they were ([`arguments`]), between a begin and an end ([`edge`]).
//!
//! Without a rule nothing of this is done. Not for: functions that are not exported, and calls that stay inside an object.

mod arguments;
mod cxx;
mod edge;
mod objects;
mod patch;
mod rules;
mod thunk;

pub use edge::Track;
pub use rules::{any, take};

use crate::real::REAL;
use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicBool, Ordering::*};

/// There are rules, and pointers have been looked at.
static WANTED: AtomicBool = AtomicBool::new(false);

/// Private memory taken, in bytes, as far as it is used.
pub fn private() -> usize {
    edge::private() + patch::private()
}

/// What there is to do before recording begins. One thread.
pub fn settle() {
    if any() {
        thunk::settle();
    }
}

/// The process is being recorded: pointers of all objects that are there get their thunks. One thread.
pub fn first() {
    if any() {
        patch::first();
        WANTED.store(true, Relaxed);
    }
}

/// A forked child has one thread.
pub fn after_fork() {
    patch::after_fork();
}

/// The program is about to do something by which it could come to functions of objects that are new.
#[inline(always)]
pub fn look() {
    if WANTED.load(Relaxed) {
        patch::look_again();
    }
}

/// What `dlsym` is to give, where that is a phase.
///
/// # Safety
/// As `dlsym`.
#[inline(always)]
pub unsafe fn found(handle: *mut c_void, name: &CStr) -> Option<*const c_void> {
    // SAFETY: the caller's promise.
    if WANTED.load(Relaxed) { unsafe { found_now(handle, name) } } else { None }
}

#[cold]
#[inline(never)]
unsafe fn found_now(handle: *mut c_void, name: &CStr) -> Option<*const c_void> {
    const RTLD_NEXT: *mut c_void = -1isize as *mut c_void;
    patch::look_again();
    // What is next, or in the scope of a library alone, depends on who asks: that is the real function's matter.
    if handle == RTLD_NEXT || rules::of_function(name.to_bytes()) == 0 {
        return None;
    }
    // SAFETY: the real dlsym, as called.
    let at = unsafe { REAL.dlsym?(handle, name.as_ptr()) } as u64;
    let thunk = if at == 0 { 0 } else { patch::replaced(at, name.to_bytes()) };
    (thunk != at).then_some(thunk as *const c_void)
}

/// Says at the end what did not come about: each line in two parts, of which the first is a rule.
pub fn trouble(mut say: impl FnMut(&[u8], &'static str)) {
    if !WANTED.load(Relaxed) {
        return;
    }
    if patch::was_refused() {
        say(b"", "the system refuses to make pages of relocated pointers writable: calls by them are no phases (MEMSHIM_PHASE_SYM)");
    }
    if thunk::are_used_up() {
        say(b"", "more than 4,096 native functions fit the rules of MEMSHIM_PHASE_SYM: not all of them are phases");
    }
    if edge::were_too_deep() {
        say(b"", "calls of native functions where the stack was nearly used up, or more than 65,536 deep, are no phases");
    }
    if edge::were_too_large() {
        say(
            b"",
            "calls of native functions by functions that have more than 16 KiB on the stack (3,840 bytes on stacks of the program's own making) are no phases",
        );
    }
    for (rule, why) in rules::unmet() {
        say(rule, why);
    }
}
