//! The end of a phase, told when the locals of its function are gone.
//!
//! A function's return can be seen before its locals die only. They die when the interpreter clears the frame: first the slots of locals, in
//! order, then the dictionary that `locals()` has made of them, where there is one. Where there is none, an object of ours stands there for
//! that moment, and its end is the phase's. It is seen by nobody: the frame is the interpreter's alone, and about to go.

use super::cpython::{Cpython, Py};
use super::fields::{TYPE, TYPE_DEALLOC, TYPE_NAME, TYPE_SIZE};
use core::sync::atomic::{AtomicBool, Ordering::*};

/// Phases that end at once: each thread's destructors may end others meanwhile.
const MOST: usize = 64;

#[repr(C)]
struct Last {
    references: u64,
    kind: *const u8,
    taken: AtomicBool,
}

#[repr(C, align(16))]
struct Type([u8; TYPE]);

static mut KIND: Type = Type([0; TYPE]);
static mut POOL: [Last; MOST] = [const { Last { references: 0, kind: core::ptr::null(), taken: AtomicBool::new(false) } }; MOST];
static READY: AtomicBool = AtomicBool::new(false);

/// Makes the type, which has a name, a size and a destructor; nobody asks it for anything else.
pub fn settle(p: &Cpython) {
    // Free-threaded builds have other objects.
    if READY.load(Acquire) || p.fields.is_none() || p.walked.layout.object_type != 8 {
        return;
    }
    // SAFETY: the first to come here is alone with it: the interpreter is being set up.
    unsafe {
        let kind = (&raw mut KIND).cast::<u8>();
        kind.cast::<u64>().write(1);
        kind.add(8).cast::<Py>().write(p.type_type);
        kind.add(TYPE_NAME).cast::<*const u8>().write(c"memshim.end".as_ptr().cast());
        kind.add(TYPE_SIZE).cast::<u64>().write(size_of::<Last>() as u64);
        kind.add(TYPE_DEALLOC).cast::<unsafe extern "C" fn(*mut Last)>().write(goes);
        for last in &mut *(&raw mut POOL) {
            last.kind = kind;
        }
    }
    READY.store(true, Release);
}

unsafe extern "C" fn goes(last: *mut Last) {
    // SAFETY: one of the pool.
    unsafe { (*last).taken.store(false, Release) };
    super::ends(false);
}

/// Puts an object in the slot of a frame that is about to go; false: the slot is in use, or there is none left.
///
/// # Safety
/// The slot is cleared by the interpreter, next and on this thread.
pub unsafe fn wait(slot: *mut Py) -> bool {
    // SAFETY: the caller's slot; the pool's objects.
    unsafe {
        if !READY.load(Acquire) || !(*slot).is_null() {
            return false;
        }
        let pool = (&raw mut POOL).cast::<Last>();
        let Some(last) = (0..MOST).map(|i| pool.add(i)).find(|last| !(*(*last)).taken.swap(true, AcqRel)) else { return false };
        (*last).references = 1;
        slot.write(last.cast());
        true
    }
}
