//! That `main` has returned. glibc calls `exit` then from inside, past our hook; but the first thing that `exit` does, before all handlers, is to
//! destroy the thread's `thread_local` objects, the one registered first last. Ours is registered before the program's: a destructor that says it.
//! Its order has been that since glibc 2.18, which made it; where it is missing (musl, glibc 2.17) nothing is said.
//!
//! glibc asks `calloc` for its note of a destructor, which would be a block of the program's, and frees it behind the call. It gets ours here instead.
//! Before that stands what glibc has before a chunk that is a mapping of its own, so that `free` takes the general way with it, which asks.
//! Where another's `calloc` would answer (a library in front of us, the program's own) nothing is registered: it may be what is starting us.

use super::exit_begins;
use crate::elf;
use crate::lane::quick::MAPPED;
use crate::real::REAL;
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;

/// What glibc notes: four words, behind what stands in front of a block.
#[repr(C, align(16))]
struct Note {
    head: [usize; 2],
    words: [usize; 4],
}

static mut NOTE: Note = Note { head: [0, size_of::<Note>() | MAPPED], words: [0; 4] };

type Register = unsafe extern "C" fn(unsafe extern "C" fn(*mut c_void), *mut c_void, *const c_void) -> c_int;

/// Registers it for this thread, the program's first. Once, before a second thread exists; nothing is recorded meanwhile.
///
/// # Safety
/// One thread; the real functions are known.
pub unsafe fn register() {
    let program = elf::program();
    let of = |name: &[u8]| elf::find_from(program, name);
    let (Some(found), Some(libc), Some(calloc)) = (of(b"__cxa_thread_atexit_impl"), of(b"gnu_get_libc_version"), of(b"calloc")) else {
        return;
    };
    if found.object != libc.object || calloc.object != elf::ourselves() {
        return;
    }
    // SAFETY: glibc's function of this type. The place tells it whose the destructor is: ours, and this library stays.
    unsafe {
        let register: Register = core::mem::transmute(found.at);
        let calloc = REAL.calloc.replace(give);
        register(has_returned, null_mut(), note());
        REAL.calloc = calloc;
    }
}

unsafe extern "C" fn give(_: usize, _: usize) -> *mut c_void {
    note()
}

#[inline(always)]
fn note() -> *mut c_void {
    // SAFETY: an address.
    unsafe { (&raw mut NOTE.words).cast() }
}

unsafe extern "C" fn has_returned(_: *mut c_void) {
    exit_begins();
}

/// Whether what is freed is no block but the note.
#[inline(always)]
pub fn is_note(p: *mut c_void) -> bool {
    p == note()
}
