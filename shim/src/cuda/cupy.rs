//! CuPy's pool of device memory, as CuPy says of it itself (`MEMSHIM_CUPY=1`): bytes in arrays, and bytes in blocks from the driver.
//!
//! The pool hands out what the driver never hears of. CuPy can tell by hooks of its own, which are of one thread, and are Python called at every
//! array. So it is asked instead, at the interval and when the driver was asked for more: by a *pending call*, which the interpreter makes on
//! its main thread, between two steps of Python code, when it gets there. What is asked (`used_bytes`, `total_bytes`) changes nothing. Calls of the
//! driver that come of it are no events. Not for: what happens between two looks.

use super::call::{UNDER_WAY, ticket};
use super::contexts::{self, Place};
use crate::config::{CONFIG, COUNT};
use crate::elf;
use crate::hooks::heap::ready;
use crate::lane::{Hot, push};
use crate::python::interpreter;
use crate::sys;
use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use memshim_format::gpu::{self, kind, state};
use memshim_format::record::{ARG_WORD, op, start};

type Py = *mut c_void;

/// What is asked of the interpreter.
#[derive(Clone, Copy)]
struct Api {
    is_initialized: unsafe extern "C" fn() -> c_int,
    is_finalizing: unsafe extern "C" fn() -> c_int,
    add_pending_call: unsafe extern "C" fn(unsafe extern "C" fn(*mut c_void) -> c_int, *mut c_void) -> c_int,
    sys_object: unsafe extern "C" fn(*const c_char) -> Py,
    item: unsafe extern "C" fn(Py, *const c_char) -> Py,
    attribute: unsafe extern "C" fn(Py, *const c_char) -> Py,
    call_method: unsafe extern "C" fn(Py, *const c_char, *const c_char, ...) -> Py,
    number: unsafe extern "C" fn(Py) -> u64,
    error: unsafe extern "C" fn() -> Py,
    clear_error: unsafe extern "C" fn(),
    release: unsafe extern "C" fn(Py),
}

/// Before 3.9 a pending call at the interpreter's end is an error that it prints.
const FROM_VERSION: u16 = 0x0309;

/// States of [`STATE`]: not looked for yet, being looked for, there is none that can be asked, there is.
const UNSOUGHT: u32 = 0;
const SEEKING: u32 = 1;
const NONE: u32 = 2;
const THERE: u32 = 3;
static STATE: AtomicU32 = AtomicU32::new(UNSOUGHT);
static mut API: Option<Api> = None;

/// It was to be asked for, and there is an interpreter that cannot be.
static REFUSED: AtomicU32 = AtomicU32::new(0);

/// What to say of that.
pub const NOT_ASKED: &str =
    "MEMSHIM_CUPY: CuPy's pool was not asked what it has in use: the interpreter is none that can be (CPython from 3.9 on)";

/// Whether it is to be said.
pub fn was_refused() -> bool {
    REFUSED.load(Relaxed) != 0
}

/// A call is on its way.
static ASKED: AtomicU32 = AtomicU32::new(0);
/// When it was asked last.
static LAST: AtomicU64 = AtomicU64::new(0);
/// Where the driver was asked for more it is looked at again after so long.
const SOON_NS: u64 = 1_000_000;

fn api() -> Option<Api> {
    match STATE.load(Acquire) {
        // SAFETY: written once, before that.
        THERE => unsafe { *(&raw const API) },
        UNSOUGHT => find(),
        _ => None,
    }
}

#[cold]
fn find() -> Option<Api> {
    let walked = interpreter::get()?;
    STATE.compare_exchange(UNSOUGHT, SEEKING, AcqRel, Acquire).ok()?;
    let o = &raw const walked.object;
    // SAFETY: a loaded object; the functions have these types in every version from 3.9 on.
    let gather = || unsafe {
        Some(Api {
            is_initialized: elf::of_type(o, b"Py_IsInitialized")?,
            is_finalizing: elf::of_type(o, b"Py_IsFinalizing").or_else(|| elf::of_type(o, b"_Py_IsFinalizing"))?,
            add_pending_call: elf::of_type(o, b"Py_AddPendingCall")?,
            sys_object: elf::of_type(o, b"PySys_GetObject")?,
            item: elf::of_type(o, b"PyDict_GetItemString")?,
            attribute: elf::of_type(o, b"PyObject_GetAttrString")?,
            call_method: elf::of_type(o, b"PyObject_CallMethod")?,
            number: elf::of_type(o, b"PyLong_AsUnsignedLongLong")?,
            error: elf::of_type(o, b"PyErr_Occurred")?,
            clear_error: elf::of_type(o, b"PyErr_Clear")?,
            release: elf::of_type(o, b"Py_DecRef")?,
        })
    };
    let found = if walked.version >= FROM_VERSION { gather() } else { None };
    // SAFETY: one thread comes here, once.
    unsafe { *(&raw mut API) = found };
    STATE.store(if found.is_some() { THERE } else { NONE }, Release);
    found
}

/// The program has called the driver at `t`; `more`: for memory. Asks for a look where one is due.
#[inline]
pub fn called(t: u64, more: bool) {
    // SAFETY: settings are read-only.
    let (wanted, interval) = unsafe { (CONFIG.cupy, CONFIG.interval_ns) };
    if wanted && t >= LAST.load(Relaxed) + if more { SOON_NS } else { interval } {
        ask(t);
    }
}

#[cold]
fn ask(t: u64) {
    let Some(api) = api() else {
        let unusable = STATE.load(Relaxed) == NONE || interpreter::state().is_some_and(|s| !s.known);
        REFUSED.store(unusable as u32, Relaxed);
        return;
    };
    // An interpreter that is gone takes no calls.
    // SAFETY: they look at words of the interpreter's library, which is loaded.
    if unsafe { (api.is_initialized)() == 0 || (api.is_finalizing)() != 0 } {
        return;
    }
    if ASKED.swap(1, AcqRel) == 0 {
        LAST.store(t, Relaxed);
        // SAFETY: the interpreter's function, which any thread may call; ours stays where it is.
        let r = sys::keep_errno(|| unsafe { (api.add_pending_call)(look, core::ptr::null_mut()) });
        if r != 0 {
            ASKED.store(0, Release);
        }
    }
}

/// On the interpreter's main thread.
unsafe extern "C" fn look(_: *mut c_void) -> c_int {
    ASKED.store(0, Release);
    let hot = ready();
    // SAFETY: null or this thread's.
    if hot.is_null() || unsafe { (*hot).gpu != 0 || (*hot).mode == COUNT } {
        return 0;
    }
    let Some(api) = api() else { return 0 };
    sys::keep_errno(|| {
        // SAFETY: this thread's hot; the interpreter's lock is held.
        unsafe {
            (*hot).gpu = UNDER_WAY;
            let place = contexts::current(hot);
            if let Some((used, total)) = api.pool() {
                row(hot, place, used, total);
            }
            if !(api.error)().is_null() {
                (api.clear_error)();
            }
            (*hot).gpu = 0;
        }
    });
    0
}

impl Api {
    /// Bytes in arrays and in blocks, of the current device: by the pool that arrays of this thread are allocated from.
    ///
    /// # Safety
    /// The interpreter's lock is held.
    unsafe fn pool(self) -> Option<(u64, u64)> {
        // SAFETY: the caller's promise; borrowed references are used at once.
        unsafe {
            let modules = some((self.sys_object)(c"modules".as_ptr()))?;
            let memory = some((self.item)(modules, c"cupy.cuda.memory".as_ptr()))?;
            let allocator = some((self.call_method)(memory, c"get_allocator".as_ptr(), core::ptr::null()))?;
            let pool = some((self.attribute)(allocator, c"__self__".as_ptr()));
            (self.release)(allocator);
            let pool = pool?;
            let used = self.bytes(pool, c"used_bytes".as_ptr());
            let total = if used.is_some() { self.bytes(pool, c"total_bytes".as_ptr()) } else { None };
            (self.release)(pool);
            Some((used?, total?))
        }
    }

    unsafe fn bytes(self, pool: Py, what: *const c_char) -> Option<u64> {
        // SAFETY: the caller's promise.
        unsafe {
            let number = some((self.call_method)(pool, what, core::ptr::null()))?;
            let n = (self.number)(number);
            (self.release)(number);
            (self.error)().is_null().then_some(n)
        }
    }
}

fn some(object: Py) -> Option<Py> {
    (!object.is_null()).then_some(object)
}

fn row(hot: *mut Hot, place: Place, used: u64, total: u64) {
    let head = gpu::head(0, place.device, place.context, state::CUPY);
    // SAFETY: this thread's hot.
    unsafe { push(hot, [start(op::GPU + kind::STATE, gpu::NO_CALL, ticket()), sys::now(), head, used & ARG_WORD, total & ARG_WORD, 0]) };
}

/// A forked child asks anew.
pub fn forget() {
    ASKED.store(0, Relaxed);
    LAST.store(0, Relaxed);
}
