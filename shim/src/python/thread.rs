//! This thread's state in the interpreter, and its innermost frame.
//!
//! The state comes from thread storage by `PyGILState_GetThisThreadState`, which neither locks nor allocates and needs no GIL. It is alive
//! while its thread is in a hook: a thread takes its own state out of that storage before it is freed (3.7 and 3.8: right after, with no
//! allocation in between). The one who frees other threads' states is the interpreter's end; so from its beginning only the thread that
//! brings it about has frames.

use super::interpreter::Interpreter;
use super::layout::NONE;
use crate::sys;

/// Whether `p` can be the address of an object or a frame.
#[inline(always)]
pub fn plausible(p: u64) -> bool {
    p & 7 == 0 && p.wrapping_sub(0x1_0000) < (1 << 47) - 0x1_0000
}

/// The innermost frame of this thread, 0: no Python here.
#[inline(always)]
pub fn top(i: &Interpreter, ground: &mut Ground) -> u64 {
    // SAFETY: see above: the thread state is alive, and what it points at is this thread's.
    unsafe {
        let mut state = (i.this_thread)();
        if let Some((holder, ..)) = i.holder
            && !state.is_null()
            && holder() != state
        {
            state = in_subinterpreter(i, state);
        }
        if !plausible(state as u64) || read(state, i.layout.thread_id) != sys::thread_block() {
            return 0;
        }
        let ender = read(i.runtime, i.layout.finalizing);
        if ender != 0 && ender != state as u64 {
            return 0;
        }
        innermost(i, state, ground)
    }
}

/// Where frames may lie that are read without asking.
///
/// Of importance to 3.11 and 3.12 only. They enter the interpreter's loop by making a new `_PyCFrame` the thread's, dozens of instructions
/// before it says which frame is current: a signal handler in between finds there whatever the C stack held. So a frame that is not on the
/// thread's own stack of frames (it is a generator's, or a shim on the C stack) is looked at by the kernel first, unless that was done for
/// its page before.
#[repr(C)]
pub struct Ground {
    /// The newest chunk of the stack of frames; all memory where there is no such trouble.
    low: u64,
    span: u64,
    /// Pages outside that could be read.
    seen: [u64; 256],
    /// Pages with code objects that could be read.
    codes: [u64; 256],
}

impl Ground {
    /// Whether a frame can be read at `f`, as far as can be told.
    ///
    /// # Safety
    /// Called on the thread whose chain has `f`, in a walk that [`top`] began.
    #[inline(always)]
    pub unsafe fn bears(&mut self, f: u64) -> bool {
        // SAFETY: the caller's promise.
        f.wrapping_sub(self.low) < self.span || unsafe { self.bears_outside(f) }
    }

    #[inline(never)]
    unsafe fn bears_outside(&mut self, f: u64) -> bool {
        // SAFETY: one of 256; chunks of this thread, of which each knows the one before and its own size.
        unsafe {
            if !plausible(f) {
                return false;
            }
            let slot = &mut *self.seen.as_mut_ptr().add((f >> 12) as usize % 256);
            if *slot == f >> 12 && f & 0xfff <= 0x1000 - FRAME {
                return true;
            }
            let mut chunk = self.low;
            while plausible(chunk) {
                if f.wrapping_sub(chunk) < (chunk as *const u64).add(1).read() {
                    return true;
                }
                chunk = (chunk as *const u64).read();
            }
            let mut words = [0; FRAME as usize / 8];
            let n = peek(f, &mut words);
            let readable = n == FRAME as i64 || was_refused(n);
            if readable {
                *slot = f >> 12;
            }
            readable
        }
    }

    /// Whether a code object is at `at`. Where a frame can be none, the kernel is asked of every page until it had one; else a frame's code
    /// is an object.
    ///
    /// # Safety
    /// As for [`Ground::bears`]; and no page is unmapped that had code objects: the heap does not shrink in such a moment.
    #[inline]
    pub unsafe fn has_code(&mut self, i: &Interpreter, at: u64) -> bool {
        let field = at.wrapping_add(i.layout.object_type as u64);
        // SAFETY: one of 256; the caller's promise.
        unsafe {
            let slot = &mut *self.codes.as_mut_ptr().add((field >> 12) as usize % 256);
            plausible(at)
                && if self.span == u64::MAX || *slot == field >> 12 {
                    (field as *const u64).read() == i.code_type
                } else {
                    is_code(i, field, slot)
                }
        }
    }
}

/// The same, asking the kernel; `field`: where the object has its type.
#[inline(never)]
fn is_code(i: &Interpreter, field: u64, seen: &mut u64) -> bool {
    let mut kind = [0];
    match peek(field, &mut kind) {
        8 => {
            let is_code = kind[0] == i.code_type;
            if is_code {
                *seen = field >> 12;
            }
            is_code
        }
        error => was_refused(error),
    }
}

/// As much of a frame as is read.
const FRAME: u64 = 72;

/// Where the kernel may not be asked there is no telling.
fn was_refused(error: i64) -> bool {
    error < 0 && error != -libc::EFAULT as i64
}

#[inline(always)]
unsafe fn innermost(i: &Interpreter, state: *const u8, ground: &mut Ground) -> u64 {
    let l = &i.layout;
    // SAFETY: the thread's own state.
    unsafe {
        let top = read(state, l.top);
        if l.cframe_current == NONE {
            ground.span = u64::MAX;
            return top;
        }
        if !plausible(top) {
            return 0;
        }
        let f = read(top as *const u8, l.cframe_current);
        ground.low = read(state, l.stack_chunk);
        ground.span = read(state, l.stack_top).wrapping_sub(ground.low);
        if f == 0 || f.wrapping_sub(ground.low) < ground.span || ground.bears_outside(f) && ground.has_code(i, read(f as *const u8, l.code))
        {
            f
        } else {
            before(i, top, ground)
        }
    }
}

/// The current frame by the `_PyCFrame` before the one at `top`, if that can be made out.
#[cold]
unsafe fn before(i: &Interpreter, top: u64, ground: &mut Ground) -> u64 {
    let (mut cframe, mut f) = ([0], [0]);
    let known = peek(top + i.layout.cframe_previous as u64, &mut cframe) == 8
        && plausible(cframe[0])
        && peek(cframe[0] + i.layout.cframe_current as u64, &mut f) == 8;
    // SAFETY: this thread's walk.
    if known && unsafe { ground.bears(f[0]) } { f[0] } else { 0 }
}

/// Copies words from memory that may be none, by the kernel: how many bytes, or a negative error.
pub fn peek<const N: usize>(from: u64, to: &mut [u64; N]) -> i64 {
    // SAFETY: a variable of that size.
    unsafe { sys::copy_own(from, to.as_mut_ptr().cast(), size_of::<[u64; N]>()) }
}

/// Up to 3.11 thread storage has the state of the interpreter that this thread was first in. The one it runs in now holds the lock of all
/// interpreters: if who holds that has this thread's handle, it is this thread's. It may be another thread's that ends meanwhile, so the
/// kernel reads.
#[cold]
#[inline(never)]
unsafe fn in_subinterpreter(i: &Interpreter, first: *const u8) -> *const u8 {
    let Some((holder, head, main)) = i.holder else { return first };
    // SAFETY: the interpreter's functions; the kernel reads into a variable.
    unsafe {
        if head() == main() {
            return first;
        }
        let state = holder();
        let mut handle = [0u64];
        let n = peek(state as u64 + i.layout.thread_id as u64, &mut handle);
        if n == 8 && handle[0] == sys::thread_block() { state } else { first }
    }
}

/// The word at `offset`.
///
/// # Safety
/// It is memory that may be read.
#[inline(always)]
pub unsafe fn read(p: *const u8, offset: u16) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { p.add(offset as usize).cast::<u64>().read() }
}
