//! Python's own allocators, wrapped (`MEMSHIM_PYTHON_ALLOC=1`): each block of the domains raw, mem and obj becomes an event of its thread's
//! lane for Python's blocks. They are a layer of their own: what pymalloc takes from the system, and what it passes on to malloc, is counted
//! where it always is.
//!
//! The wrappers hold no state of a block: they pass on what they are given, the context of the allocator they wrap included. So blocks may
//! come and go past them, allocators may be wrapped once more (tracemalloc does) and taken off again, and a wrapper that is read by half
//! from the interpreter's structure still works. They are set before the interpreter begins, where nobody uses them yet.
//!
//! Only the outermost call counts: pymalloc asks the raw domain for blocks that are too large for it.

mod pools;

use crate::config::CONFIG;
use crate::elf::{self, Object};
use crate::hooks::heap::ready;
use crate::lane::{self, Blocks, Hot, on_alloc, on_failed, on_free, on_realloc_begin, on_realloc_end};
use crate::sys;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use memshim_format::record::func;

/// `PyMemAllocatorEx`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Allocator {
    ctx: *mut c_void,
    malloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    calloc: unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void,
    realloc: unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void, *mut c_void),
}

/// `PyMem_GetAllocator` and `PyMem_SetAllocator`: domain, structure.
type Exchange = unsafe extern "C" fn(c_int, *mut Allocator);

const RAW: usize = 0;
const MEM: usize = 1;
const OBJ: usize = 2;

/// What is wrapped, by domain.
static mut INNER: [Option<Allocator>; 3] = [None; 3];
static mut GET: Option<Exchange> = None;
static WRAPPED: AtomicBool = AtomicBool::new(false);
/// Calls of threads that have no lane for them.
static MISSED: AtomicU64 = AtomicU64::new(0);

/// Blocks of the raw domain: malloc's.
enum Raw {}
/// Blocks of the others: pymalloc's, or malloc's where they are too large for it.
enum Pooled {}

impl Blocks for Raw {
    const TAG: u64 = 1;
    const NATIVE_TOO: bool = false;

    #[inline(always)]
    unsafe fn usable(p: *mut c_void) -> usize {
        // SAFETY: a live block of malloc's, where that is what the domain was found to be.
        if pools::are_known() { unsafe { lane::usable(p) } } else { 0 }
    }
}

impl Blocks for Pooled {
    const TAG: u64 = 1;
    const NATIVE_TOO: bool = false;

    #[inline(always)]
    unsafe fn usable(p: *mut c_void) -> usize {
        // SAFETY: a live block: of an arena that was given out through our wrapper, else of the raw domain.
        unsafe { pools::block_size(p as u64).unwrap_or_else(|| Raw::usable(p)) }
    }
}

/// Wraps the allocators of the interpreter that the program has from its start on. One thread; recording has begun.
pub fn wrap() {
    // SAFETY: settings are read-only.
    if !unsafe { CONFIG.python_alloc } {
        return;
    }
    let mut o = elf::program();
    // SAFETY: the loader's list.
    unsafe {
        while !o.is_null() && !wrap_those_of(o) {
            o = elf::next(o);
        }
    }
}

/// Whether the program had an interpreter at its start, and it has been wrapped.
pub fn are_wrapped() -> bool {
    WRAPPED.load(Acquire)
}

/// Calls that are in no count: their threads had no lane.
pub fn missed() -> u64 {
    MISSED.load(Relaxed)
}

/// What to say where [`were_replaced`].
pub const REPLACED: &str =
    "Python's allocators were set anew (PYTHONMALLOC, -X dev, PyMem_SetAllocator): its blocks are not seen from then on";

/// Whether somebody has set other allocators since, or sets them each time it starts (`PYTHONMALLOC`, `-X dev`). On a thread of the program's.
pub fn were_replaced() -> bool {
    // SAFETY: the interpreter's function, which fills a structure of ours.
    unsafe {
        let Some(get) = GET.filter(|_| are_wrapped()) else { return false };
        let mut now = Allocator {
            ctx: core::ptr::null_mut(),
            malloc: malloc::<RAW, Raw>,
            calloc: calloc::<RAW, Raw>,
            realloc: realloc::<RAW, Raw>,
            free: free::<RAW, Raw>,
        };
        let ours = now.malloc as usize;
        get(RAW as c_int, &raw mut now);
        now.malloc as usize != ours
    }
}

/// # Safety
/// `o` is a loaded object; one thread.
unsafe fn wrap_those_of(o: *const Object) -> bool {
    // SAFETY: the functions have these types in every CPython from 3.4 on; before the interpreter is initialised they exchange structures
    // and nothing else.
    unsafe {
        let find = |name: &[u8]| elf::find_in(o, name);
        let (Some(get), Some(set)) = (find(b"PyMem_GetAllocator"), find(b"PyMem_SetAllocator")) else { return false };
        let (Some(is_initialized), Some(version)) = (find(b"Py_IsInitialized"), find(b"Py_GetVersion")) else { return false };
        let version = core::mem::transmute::<*const c_void, unsafe extern "C" fn() -> *const c_char>(version)();
        // Older ones have other pools.
        if matches!(CStr::from_ptr(version).to_bytes(), [b'2', ..] | [b'3', b'.', b'0'..=b'6', b'.', ..]) {
            return false;
        }
        if core::mem::transmute::<*const c_void, unsafe extern "C" fn() -> c_int>(is_initialized)() != 0 {
            return true;
        }
        let (get, set) = (core::mem::transmute::<*const c_void, Exchange>(get), core::mem::transmute::<*const c_void, Exchange>(set));
        pools::settle(CStr::from_ptr(version).to_bytes(), find(b"PyObject_GetArenaAllocator"), find(b"PyObject_SetArenaAllocator"));
        GET = Some(get);
        let ours = [wrapper::<RAW, Raw>(), wrapper::<MEM, Pooled>(), wrapper::<OBJ, Pooled>()];
        for (domain, mut ours) in ours.into_iter().enumerate() {
            let mut theirs = ours;
            get(domain as c_int, &raw mut theirs);
            ours.ctx = theirs.ctx;
            if let Some(inner) = (*(&raw mut INNER)).get_mut(domain) {
                *inner = Some(theirs);
            }
            set(domain as c_int, &raw mut ours);
        }
        WRAPPED.store(true, Release);
        true
    }
}

fn wrapper<const D: usize, B: Blocks>() -> Allocator {
    Allocator { ctx: core::ptr::null_mut(), malloc: malloc::<D, B>, calloc: calloc::<D, B>, realloc: realloc::<D, B>, free: free::<D, B> }
}

/// The allocator of a domain; set before its wrapper is.
///
/// # Safety
/// D is a domain; its wrapper has been called.
#[inline(always)]
unsafe fn inner<const D: usize>() -> &'static Allocator {
    // SAFETY: the caller's promise.
    unsafe { (*(&raw const INNER)).get_unchecked(D).as_ref().unwrap_unchecked() }
}

/// Begins a call of one of the allocators: this thread's lane for Python's blocks, null where the call is part of another or is not counted.
#[inline(always)]
unsafe fn enter() -> *mut Hot {
    let hot = ready();
    // SAFETY: hot is null or this thread's, and so is its other lane.
    unsafe {
        if hot.is_null() {
            return nobody();
        }
        let mut own = (*hot).python;
        if own.is_null() {
            own = begin_lane(hot);
            if own.is_null() {
                return own;
            }
        }
        let here = sys::stack_pointer();
        // A call that was left by a jump stands further in than this one.
        if (*own).inside > here {
            return core::ptr::null_mut();
        }
        (*own).inside = here;
        own
    }
}

/// Ends it.
#[inline(always)]
unsafe fn leave(own: *mut Hot) {
    // SAFETY: the caller's lane.
    unsafe { (*own).inside = 0 };
}

#[cold]
#[inline(never)]
fn nobody() -> *mut Hot {
    if crate::init::is_recording() {
        MISSED.fetch_add(1, Relaxed);
    }
    core::ptr::null_mut()
}

#[cold]
#[inline(never)]
unsafe fn begin_lane(hot: *mut Hot) -> *mut Hot {
    sys::keep_errno(|| {
        let signals = sys::block_signals();
        let own = lane::acquire(true);
        if own.is_null() {
            MISSED.fetch_add(1, Relaxed);
        } else {
            // SAFETY: the caller's hot.
            unsafe { (*hot).python = own };
        }
        sys::restore_signals(signals);
        own
    })
}

/// Number of a domain's function, of the raw domain's.
const fn number<const D: usize>(raw: u8) -> u8 {
    if raw < func::FIRST_FREE { raw + 3 * D as u8 } else { raw + D as u8 }
}

#[inline(always)]
unsafe fn allocated<const D: usize, B: Blocks>(own: *mut Hot, raw: u8, p: *mut c_void, size: usize) {
    // SAFETY: this thread's lane; p is what the call gave.
    unsafe {
        leave(own);
        if p.is_null() { on_failed(own) } else { on_alloc::<B>(own, number::<D>(raw), p, size, 0) }
    }
}

unsafe extern "C" fn malloc<const D: usize, B: Blocks>(ctx: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: passed on as called.
    unsafe {
        let own = enter();
        let p = (inner::<D>().malloc)(ctx, size);
        if !own.is_null() {
            allocated::<D, B>(own, func::MALLOC, p, size);
        }
        p
    }
}

unsafe extern "C" fn calloc<const D: usize, B: Blocks>(ctx: *mut c_void, count: usize, size: usize) -> *mut c_void {
    // SAFETY: passed on as called.
    unsafe {
        let own = enter();
        let p = (inner::<D>().calloc)(ctx, count, size);
        if !own.is_null() {
            allocated::<D, B>(own, func::CALLOC, p, count.wrapping_mul(size));
        }
        p
    }
}

unsafe extern "C" fn realloc<const D: usize, B: Blocks>(ctx: *mut c_void, old: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: passed on as called.
    unsafe {
        let own = enter();
        if own.is_null() {
            return (inner::<D>().realloc)(ctx, old, size);
        }
        if old.is_null() {
            let p = (inner::<D>().realloc)(ctx, old, size);
            allocated::<D, B>(own, func::REALLOC, p, size);
            return p;
        }
        let was = on_realloc_begin::<B>(own, old);
        let p = (inner::<D>().realloc)(ctx, old, size);
        leave(own);
        on_realloc_end::<B>(own, number::<D>(func::REALLOC), old, was, p, size.max(1));
        p
    }
}

unsafe extern "C" fn free<const D: usize, B: Blocks>(ctx: *mut c_void, p: *mut c_void) {
    // SAFETY: passed on as called.
    unsafe {
        if p.is_null() {
            return;
        }
        let own = enter();
        if own.is_null() {
            return (inner::<D>().free)(ctx, p);
        }
        on_free::<B>(own, number::<D>(func::FREE), p);
        (inner::<D>().free)(ctx, p);
        leave(own);
    }
}
