//! Who called: the stacks of recorded events, captured on the thread itself.
//!
//! A stack is a node in one of two trees that each lane has, of native frames and of Python frames. [`capture`] walks what has changed since
//! the lane's last event ([`crate::unwind`], [`crate::python`]), gives new frames their numbers ([`nodes`]) and, where the stack is another one,
//! pushes a STACK record in front of the event's. So an event from where the last one came from costs no word. Everything here is private
//! memory of the lane; what it tells goes through the ring as events do, and is as safe from a kill.
//!
//! A signal handler can allocate while its thread is in here: its event gets no stack. One that jumps out of here is noticed by the next
//! event further out on the same stack.

mod definitions;
mod lines;
mod nodes;

use crate::config::{CONFIG, NATIVE, PYTHON};
use crate::lane::{Hot, begins_in_vain, push_of_stacks};
use crate::phases::process::script;
use crate::phases::symbol;
use crate::python::Python;
use crate::sys::{self, sys};
use crate::unwind::cache::{self, Cache};
use crate::unwind::reach::{self, Reach};
use crate::unwind::{self, Native, modules};
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering::*, compiler_fence};
use lines::Lines;
use memshim_format::record::{NODE_BITS, op, stack, start};
use memshim_format::spool::LANES_MAX;
use nodes::Nodes;

/// What a lane knows of its thread's stack. All zero is a lane that knows nothing.
#[repr(C)]
pub struct Walker {
    /// Where in the frame of the capture under way its mark stands, 0 for none.
    busy: u64,
    /// The last STACK record in its low bits, and a count of changes above. 0: not known.
    last: AtomicU64,
    /// What of other frames may be read, to see whether one is still there.
    reach: Reach,
    /// A record about stacks did not fit its ring: frames are to be numbered anew.
    torn: bool,
    /// Generation of loaded modules that the numbers are of.
    generation: u64,
    /// Added to it: changes where the numbers are void for another reason.
    anew: u64,
    native_nodes: Nodes,
    python_nodes: Nodes,
    native: Native,
    python: Python,
    lines: Lines,
}

/// The lanes' walkers, kept over the threads that use the lane.
static WALKERS: [AtomicPtr<Walker>; LANES_MAX] = [const { AtomicPtr::new(core::ptr::null_mut()) }; LANES_MAX];

/// Private memory of all walkers, in bytes.
static PRIVATE: AtomicUsize = AtomicUsize::new(0);

/// Private memory taken, in bytes.
pub fn private() -> usize {
    PRIVATE.load(Relaxed) + cache::private() + nodes::private()
}

/// The walker of a lane whose thread begins; null where stacks are not asked for or there is no memory.
pub fn of_lane(index: u32) -> *mut Walker {
    // SAFETY: settings are read-only.
    if unsafe { CONFIG.stacks } == 0 {
        return core::ptr::null_mut();
    }
    let Some(place) = WALKERS.get(index as usize) else { return core::ptr::null_mut() };
    let mut w = place.load(Acquire);
    if w.is_null() {
        w = sys::map_anon(size_of::<Walker>()).cast();
        if !w.is_null() {
            // The cache states itself what it uses.
            PRIVATE.fetch_add(size_of::<Walker>() - size_of::<Cache>(), Relaxed);
            place.store(w, Release);
        }
    } else {
        // SAFETY: the lane's thread before is gone; one that went in the midst of a capture has left numbers that were not told.
        unsafe {
            (*w).torn |= (*w).busy != 0;
            (*w).busy = 0;
        }
    }
    w
}

/// Finds what is to be known of the loader and of the interpreter. One thread, at the start.
pub fn settle() {
    // SAFETY: settings are read-only.
    let wanted = unsafe { CONFIG.stacks };
    if wanted != 0 || symbol::any() {
        unwind::settle();
    }
    if wanted & PYTHON != 0 {
        crate::python::seek();
    }
}

/// A forked child numbers everything anew.
pub fn forget() {
    // SAFETY: settings are read-only.
    let wanted = unsafe { CONFIG.stacks };
    if wanted != 0 || symbol::any() {
        unwind::after_fork();
    }
    if wanted == 0 {
        return;
    }
    modules::untell();
    crate::python::forget();
    cache::forget();
    for place in &WALKERS {
        let w = place.load(Relaxed);
        if w.is_null() {
            continue;
        }
        // SAFETY: one thread; a mapping of that size, which reads as zero afterwards. The tables of a capture under way stay: a handler on top
        // of it has forked, and it may go on here.
        unsafe {
            if (*w).busy == 0 {
                (*w).native_nodes.unmap();
                (*w).python_nodes.unmap();
            }
            sys!(libc::SYS_madvise, w, size_of::<Walker>(), libc::MADV_DONTNEED);
        }
    }
}

/// Notes the stack of the event that is about to be pushed.
///
/// # Safety
/// `hot` is this thread's and set up.
#[inline(always)]
pub unsafe fn note(hot: *mut Hot) {
    // SAFETY: the caller's hot.
    unsafe {
        if !(*hot).walker.is_null() {
            capture::<true>(hot);
        }
    }
}

/// The same, where a Python stack is enough if there is one.
///
/// # Safety
/// As [`note`].
#[inline(always)]
pub unsafe fn note_python(hot: *mut Hot) {
    // SAFETY: the caller's hot.
    unsafe {
        if !(*hot).walker.is_null() {
            capture::<false>(hot);
        }
    }
}

/// # Safety
/// As [`note`]; it has a walker.
#[cold]
#[inline(never)]
unsafe fn capture<const NATIVE_TOO: bool>(hot: *mut Hot) {
    let mut word = 0u64;
    let here = &raw mut word;
    // SAFETY: the walker is this thread's alone; a handler that comes in between finds it busy.
    unsafe {
        let w = (*hot).walker;
        let left = (*w).busy != 0;
        if left && is_under_way(w, here as u64) {
            return tell(hot, w, stack(0, 0));
        }
        here.write_volatile(mark_of(here as u64));
        (*w).busy = here as u64;
        compiler_fence(SeqCst);
        if left || (*w).torn {
            // Where the disk has no room for what is told of frames, none is worth a walk, whose rules have no room then either.
            if begins_in_vain(hot, (*hot).cur) {
                ((*w).torn, (*w).busy) = (true, 0);
                return tell(hot, w, stack(0, 0));
            }
            start_anew(w);
        }
        let generation = modules::generation().wrapping_add((*w).anew);
        if (*w).generation != generation {
            (*w).generation = generation;
            (*w).native_nodes.clear();
        }
        let wanted = CONFIG.stacks;
        let early = if !NATIVE_TOO && wanted & PYTHON != 0 { python(hot, w) } else { 0 };
        let native = if wanted & NATIVE != 0 && early == 0 { native(hot, w) } else { 0 };
        let python = if NATIVE_TOO && wanted & PYTHON != 0 { python(hot, w) } else { early };
        let now = if (*w).torn { stack(0, 0) } else { stack(native, python) };
        here.write_volatile(0);
        compiler_fence(SeqCst);
        (*w).busy = 0;
        tell(hot, w, now);
    }
}

/// What a capture writes into its frame while it is under way.
fn mark_of(at: u64) -> u64 {
    at.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x6361_6c6c_6572_7321
}

/// Whether this event comes on top of a capture that goes on: its mark still stands in its frame. A frame that was left by a jump out of a
/// handler lies further in than this one on the same stack, or has been written over.
#[cold]
#[inline(never)]
unsafe fn is_under_way(w: *mut Walker, here: u64) -> bool {
    // SAFETY: the caller's walker.
    unsafe {
        let at = (*w).busy;
        (*w).reach.begin(here, reach::anchor());
        let same_stack = (*w).reach.has(at);
        !(same_stack && at <= here) && (*w).reach.load(at) == Some(mark_of(at))
    }
}

#[inline(always)]
unsafe fn native(hot: *mut Hot, w: *mut Walker) -> u32 {
    // SAFETY: the caller's walker.
    unsafe {
        let (nodes, torn) = (&mut (*w).native_nodes, &raw mut (*w).torn);
        (*w).native.update((*w).generation, &mut |parent, frame| {
            nodes.number(parent, frame, |n| {
                if !*torn && !push_of_stacks(hot, [start(op::NODE, 0, n as u64), parent as u64, frame]) {
                    *torn = true;
                }
                script::native_frame(frame);
            })
        })
    }
}

unsafe fn python(hot: *mut Hot, w: *mut Walker) -> u32 {
    // SAFETY: the caller's walker.
    unsafe {
        let (nodes, lines, torn) = (&mut (*w).python_nodes, &mut (*w).lines, &raw mut (*w).torn);
        (*w).python.update(
            &mut |parent, code, at, spot| {
                let frame = (code as u64 & 0x7fff_ffff) << 32 | at as u64;
                nodes.number(parent, frame, |n| {
                    // Frames of no code object say why instead.
                    let said = if code == 0 { frame } else { lines.said(frame, spot) };
                    if !*torn && !push_of_stacks(hot, [start(op::PYNODE, 0, n as u64), parent as u64, said]) {
                        *torn = true;
                    }
                    script::frame(parent, code, n);
                })
            },
            &mut |d| {
                script::code(d);
                if !*torn && !definitions::push(hot, d) {
                    *torn = true;
                }
                !*torn
            },
        )
    }
}

/// Bits of a STACK record that differ from one to another.
const NODES: u64 = (1 << (2 * NODE_BITS)) - 1;

/// Pushes a STACK record where the stack is another one than the last event's.
#[inline(always)]
unsafe fn tell(hot: *mut Hot, w: *mut Walker, now: u64) {
    // SAFETY: the caller's walker and hot.
    unsafe {
        for _ in 0..4 {
            let before = (*w).last.load(Relaxed);
            if before != 0 && before & NODES == now & NODES {
                return;
            }
            if !push_of_stacks(hot, [now]) {
                break;
            }
            let count = (before & !NODES).wrapping_add(NODES + 1);
            // Fails where a handler has told of another stack meanwhile: then ours may stand before that one in the ring.
            if (*w).last.compare_exchange(before, count | now & NODES, Relaxed, Relaxed).is_ok() {
                return;
            }
        }
        (*w).last.store(0, Relaxed);
    }
}

/// Numbers all frames anew: what was told last may not be what the drain has read.
unsafe fn start_anew(w: *mut Walker) {
    // SAFETY: the caller's walker.
    unsafe {
        (*w).anew = (*w).anew.wrapping_add(1 << 48);
        (*w).python.forget();
        (*w).native_nodes.clear();
        (*w).python_nodes.clear();
        (*w).torn = false;
    }
}
