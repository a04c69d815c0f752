//! The way that nearly all calls go: a lane is there, the allocator is glibc's, the block is no mapping of its own, nothing is to be told of
//! it but counts or a short record. Whatever else there may be takes the general way ([`super::blocks`]), of which this is the common part.
//!
//! Programs seldom call malloc in a loop of nothing else: what recording costs them is cache lines, of code more than of data. So all that
//! is read stands in the thread's [`Hot`] and at the head of its lane, a line each, and `malloc` and `free` of fast mode, the one that is
//! left on, are assembly of two lines each (`scripts/check-fastpath` sees to it). What is rare is elsewhere.

use super::samples::Samples;
use super::{Hot, blocks, push};
use crate::config::{CONFIG, FAST, FULL};
use crate::real::{GLIBC, REAL};
use core::arch::asm;
use core::ffi::c_void;
use memshim_format::record::{op, start};
use memshim_format::spool::cell;

/// What lanes are set up with, and rarer calls read.
pub struct Settled {
    /// The real one.
    pub calloc: Option<unsafe extern "C" fn(usize, usize) -> *mut c_void>,
    /// The recorded blocks of fast mode.
    pub samples: *const Samples,
}

/// Written by [`settle`] only.
pub static mut SETTLED: Settled = Settled { calloc: None, samples: core::ptr::null() };

/// Settles it. One thread, when the real functions are known.
pub fn settle(samples: *const Samples) {
    // SAFETY: one thread.
    unsafe { SETTLED = Settled { calloc: REAL.calloc, samples } };
}

/// Gives what the frees of fast mode look at its memory.
pub fn populate() {
    // SAFETY: settled once, to memory that stays.
    if let Some(samples) = unsafe { SETTLED.samples.as_ref() } {
        samples.populate();
    }
}

/// Sets up a thread's lane, for Python's blocks or for others, whose mode and walker are known.
///
/// # Safety
/// `hot` is this thread's.
pub unsafe fn set_up(hot: *mut Hot, python: bool) {
    // SAFETY: the caller's hot; settled before there is a lane.
    unsafe {
        ((*hot).big, (*hot).samples) = (CONFIG.big, SETTLED.samples);
        ((*hot).malloc, (*hot).free) = (REAL.malloc, REAL.free);
        (*hot).quick = if python { 0 } else { of_mode((*hot).mode, !(*hot).walker.is_null()) };
    }
}

/// [`Hot::quick`] where every call is an event with its stack. Higher than [`FULL`], as [`is_full`] has it.
pub const STACKS: u32 = 3;
const _: () = assert!(FAST < FULL && FULL < STACKS);

/// [`Hot::quick`] of a lane for malloc's blocks in this mode, where events get stacks or none.
pub fn of_mode(mode: u32, stacks: bool) -> u32 {
    // SAFETY: settled before there is a lane.
    let known = unsafe { GLIBC && REAL.malloc.is_some() && REAL.free.is_some() && REAL.calloc.is_some() };
    match mode {
        FULL if known && stacks => STACKS,
        FAST | FULL if known => mode,
        _ => 0,
    }
}

/// In the word before a block of glibc's: the chunk is a mapping of its own.
pub const MAPPED: usize = 2;
/// Usable sizes from here on do not fit the field of a free's record, in units of 16 bytes; blocks of 64 KiB, which have their own time, are
/// among them.
const LONG: usize = 4096 * 16 - 8;

/// Whether a thread's calls are quick ones of this kind.
#[inline(always)]
pub fn is(hot: *mut Hot, mode: u32) -> bool {
    // SAFETY: a pointer that is not null is into HOTS, which is never unmapped.
    !hot.is_null() && unsafe { (*hot).quick } == mode
}

/// Whether they are, and every one an event.
#[inline(always)]
pub fn is_full(hot: *mut Hot) -> bool {
    // SAFETY: as above.
    !hot.is_null() && unsafe { (*hot).quick } >= FULL
}

/// The word before a block: its chunk's size, and flags in the lowest three bits.
///
/// # Safety
/// `p` is a live block of glibc's.
#[inline(always)]
unsafe fn head(p: *mut c_void) -> usize {
    // SAFETY: the caller's promise.
    unsafe { *p.cast::<usize>().sub(1) }
}

/// Usable size of a chunk that is no mapping of its own.
#[inline(always)]
fn usable(head: usize) -> usize {
    (head & !7).wrapping_sub(8)
}

/// What the real function gave to a quick call: recorded, and given back.
///
/// # Safety
/// [`is`]`(hot, MODE)`; `p` is null or a live block.
#[inline(always)]
pub unsafe fn allocated<const MODE: u32>(hot: *mut Hot, func: u8, p: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the caller's hot and block.
    unsafe {
        if p.is_null() {
            return rare(hot, func as u32, p, size);
        }
        let head = head(p);
        let usable = usable(head);
        if MODE == FAST {
            let left = (*hot).left.wrapping_sub(size as i64);
            if left < 0 || head & MAPPED != 0 || size >= (*hot).big {
                return rare(hot, func as u32, p, size);
            }
            (*hot).left = left;
            blocks::allocated((*hot).lane, func, size, usable);
            return p;
        }
        if head & MAPPED != 0 || usable >= LONG {
            return rare(hot, func as u32, p, size);
        }
        blocks::allocated((*hot).lane, func, size, usable);
        if MODE == STACKS {
            blocks::push_alloc::<blocks::Malloc>(hot, func, p, size, usable, 0);
            return p;
        }
        let slack = usable.wrapping_sub(size);
        push(hot, [start(op::ALLOC + func, 0, p as u64 >> 3), size as u64 | (slack as u64) << 40]);
        p
    }
}

/// The same, whatever there is to it.
///
/// # Safety
/// `hot` is this thread's and set up; `p` is null or a live block.
#[inline(never)]
pub unsafe extern "C" fn rare(hot: *mut Hot, func: u32, p: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the caller's hot and block.
    unsafe { if p.is_null() { blocks::on_failed(hot) } else { blocks::on_alloc::<blocks::Malloc>(hot, func as u8, p, size, 0) } };
    p
}

/// Records that a quick call is about to free a block; false: it is one for the general way, and nothing has been done.
///
/// # Safety
/// [`is`]`(hot, FAST)`, or with another mode [`is_full`]`(hot)`; `p` is a live block.
#[inline(always)]
pub unsafe fn freed<const MODE: u32>(hot: *mut Hot, func: u8, p: *mut c_void) -> bool {
    // SAFETY: the caller's hot and block.
    unsafe {
        let head = head(p);
        let usable = usable(head);
        let other = match MODE {
            FAST => usable >= (*hot).big || (*(*hot).samples).may_hold(p as u64),
            _ => usable >= LONG,
        };
        if head & MAPPED != 0 || other {
            return false;
        }
        let lane = (*hot).lane;
        let calls = (*lane).counts.get_unchecked(cell(func)).as_ptr();
        asm!("add qword ptr [{c}], 1", c = in(reg) calls, options(nostack));
        blocks::shrink(lane, usable);
        if MODE != FAST {
            push(hot, [start(op::FREE, (usable as u64 + 8) >> 4, p as u64 >> 3)]);
        }
        true
    }
}
