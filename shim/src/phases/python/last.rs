//! The end of a phase, told when the locals of its function are gone.
//!
//! A function's return can be seen before its locals die only. They die when the interpreter clears the frame: first the slots of locals, in
//! order, then the dictionary that `locals()` has made of them, where there is one. Where there is none, an object of ours stands there for
//! that moment, and its end is the phase's. It is seen by nobody: the frame is the interpreter's alone, and about to go.

use super::cpython::{self, Cpython, Py};
use super::fields::{INLINED, TYPE, TYPE_DEALLOC, TYPE_NAME, TYPE_SIZE};
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
static mut TRACES_KIND: Type = Type([0; TYPE]);
/// Goes when a frame does during whose end nothing was to be traced (3.11).
static mut TRACES: [u64; 2] = [0; 2];
static mut POOL: [Last; MOST] = [const { Last { references: 0, kind: core::ptr::null(), taken: AtomicBool::new(false) } }; MOST];
static READY: AtomicBool = AtomicBool::new(false);

/// Makes the type, which has a name, a size and a destructor; nobody asks it for anything else.
pub fn settle(p: &Cpython) {
    if READY.load(Acquire) || p.fields.is_none() {
        return;
    }
    // SAFETY: the first to come here is alone with it: the interpreter is being set up.
    unsafe {
        let kind = make(p, &raw mut KIND, size_of::<Last>(), goes as *const u8);
        TRACES = [0, make(p, &raw mut TRACES_KIND, 16, traces as *const u8) as u64];
        for last in &mut *(&raw mut POOL) {
            last.kind = kind;
        }
    }
    READY.store(true, Release);
}

/// Makes a type of objects of `size` bytes whose end is told to `goes`.
unsafe fn make(p: &Cpython, kind: *mut Type, size: usize, goes: *const u8) -> *const u8 {
    let kind = kind.cast::<u8>();
    // SAFETY: the caller's room for a type.
    unsafe {
        kind.cast::<u64>().write(1);
        kind.add(8).cast::<Py>().write(p.type_type);
        kind.add(TYPE_NAME).cast::<*const u8>().write(c"memshim.end".as_ptr().cast());
        kind.add(TYPE_SIZE).cast::<u64>().write(size as u64);
        kind.add(TYPE_DEALLOC).cast::<*const u8>().write(goes);
    }
    kind
}

/// An object for the slot of a frame that is about to go: with it tracing goes on. There is one at a time, under the interpreter's lock.
pub fn tracing_goes_on() -> Py {
    // SAFETY: see above.
    unsafe {
        TRACES[0] = 1;
        (&raw mut TRACES).cast()
    }
}

unsafe extern "C" fn traces(_: Py) {
    if let Some(p) = cpython::get() {
        // SAFETY: the thread that clears the frame, in the loop or one of its callers.
        unsafe {
            let cframe = (p.current)().add(p.walked.layout.top as usize).cast::<Py>().read();
            cframe.add(INLINED.traces as usize).write(u8::MAX);
        }
    }
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
