//! What becomes of a block in its thread's lane: exact counts always, a record where the mode wants one. The same for blocks of the C
//! library and for those of Python's allocators: what differs is the [`Blocks`].

use super::quick::SETTLED;
use super::samples::{draw, is_recorded, was_recorded};
use super::{Hot, add, lose, push, push_of_stacks};
use crate::callers;
use crate::config::{CONFIG, FAST, FULL, tells_ages};
use crate::phases::process::script;
use crate::{sys, writer};
use core::arch::asm;
use core::mem::offset_of;
use core::sync::atomic::Ordering::*;
use memshim_format::record::func::FIRST_FREE;
use memshim_format::record::{self, Loss, op, start};
use memshim_format::spool::{Lane, cell};

/// Blocks from this size on have their own time: they make the peaks.
const LARGE: usize = 64 << 10;

/// Whose blocks: each has lanes of its own, so that a block of one may lie where a block of another does.
pub trait Blocks {
    /// Told apart from others' by this in the low bits of sampled addresses.
    const TAG: u64;
    /// Their stacks are native ones, too, where both kinds are asked for; otherwise only where there is no Python stack.
    const NATIVE_TOO: bool;

    /// Usable size of a live block.
    ///
    /// # Safety
    /// `p` is a live block of theirs.
    unsafe fn usable(p: *mut libc::c_void) -> usize;
}

/// Those of the C library's functions.
pub enum Malloc {}

impl Blocks for Malloc {
    const TAG: u64 = 0;
    const NATIVE_TOO: bool = true;

    #[inline(always)]
    unsafe fn usable(p: *mut libc::c_void) -> usize {
        // SAFETY: the caller's block.
        unsafe { usable(p) }
    }
}

/// Counts a call of `size` bytes, in two instructions.
///
/// # Safety
/// The lane is valid; `func` is below the number of counted functions.
#[inline(always)]
unsafe fn count(lane: *mut Lane, func: u8, size: u64) {
    // SAFETY: the caller's promise; as for `add`.
    unsafe {
        let cell = (*lane).counts.get_unchecked(cell(func)).as_ptr();
        asm!("add qword ptr [{c}], 1", "add qword ptr [{c} + 8], {v}", c = in(reg) cell, v = in(reg) size, options(nostack));
    }
}

/// Adds to the live bytes of a lane and returns what they were before, in one instruction.
///
/// # Safety
/// The lane is valid.
#[inline(always)]
unsafe fn grow(lane: *mut Lane, usable: u64) -> i64 {
    let mut r = usable;
    // SAFETY: the caller's promise; as for `add`.
    unsafe {
        asm!("xadd qword ptr [{l} + {o}], {r}", l = in(reg) lane, o = const offset_of!(Lane, live), r = inout(reg) r, options(nostack))
    };
    r as i64
}

/// Usable size of a live block.
///
/// # Safety
/// `p` is a live block of the program's allocator.
#[inline(always)]
pub unsafe fn usable(p: *mut libc::c_void) -> usize {
    // SAFETY: in glibc the word before a block is its chunk's size with three flag bits, bit 1 saying that the chunk is a mapping of
    // its own, whose header takes one word more. Settled at start to be glibc's.
    unsafe {
        if crate::real::GLIBC {
            let s = *p.cast::<usize>().sub(1);
            (s & !7) - 8 - ((s & 2) << 2)
        } else {
            usable_elsewhere(p)
        }
    }
}

#[inline(never)]
unsafe fn usable_elsewhere(p: *mut libc::c_void) -> usize {
    // SAFETY: the allocator's own answer about its own block.
    unsafe { crate::real::REAL.malloc_usable_size.map_or(0, |f| f(p)) }
}

/// Counts an allocation.
///
/// # Safety
/// The lane is this thread's; `func` is a counted function.
#[inline(always)]
pub(super) unsafe fn allocated(lane: *mut Lane, func: u8, size: usize, usable: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        count(lane, func, size as u64);
        add!(lane, blocks, 1);
        let live = grow(lane, usable as u64).wrapping_add(usable as i64);
        if live > (*lane).hi.load(Relaxed) {
            (*lane).hi_blocks.store((*lane).blocks.load(Relaxed), Relaxed);
            (*lane).hi.store(live, Release);
        }
    }
}

/// Records an allocation that succeeded.
///
/// # Safety
/// `hot` is this thread's and set up; `p` is a live block.
#[inline(always)]
pub unsafe fn on_alloc<B: Blocks>(hot: *mut Hot, func: u8, p: *mut libc::c_void, size: usize, flags: u64) {
    // SAFETY: the lane is this thread's; func < FNS_MAX.
    unsafe {
        let lane = (*hot).lane;
        let usable = B::usable(p);
        allocated(lane, func, size, usable);
        if (*hot).mode == FULL {
            if size >= LARGE {
                push_large::<B>(hot, func, p, size, usable, flags);
            } else {
                push_alloc::<B>(hot, func, p, size, usable, flags);
            }
        } else {
            let left = (*hot).left - size as i64;
            (*hot).left = left;
            if left < 0 || size >= CONFIG.big {
                chosen::<B>(hot, func, p, size, usable, flags);
            }
        }
    }
}

/// Of a large block the time is told, so that its place among other threads' events is known: these make the peaks. Memory of this size is
/// not touched unseen either.
#[cold]
#[inline(never)]
unsafe fn push_large<B: Blocks>(hot: *mut Hot, func: u8, p: *mut libc::c_void, size: usize, usable: usize, flags: u64) {
    // SAFETY: the caller's hot.
    unsafe {
        timed(hot, usable, || push_alloc::<B>(hot, func, p, size, usable, flags));
    }
    writer::come_back();
}

/// Leaves a record, of a large block between two stamps of one instant.
///
/// # Safety
/// `hot` is this thread's and set up.
#[inline(always)]
unsafe fn timed(hot: *mut Hot, usable: usize, record: impl FnOnce()) {
    let large = usable >= LARGE;
    // SAFETY: the caller's hot.
    unsafe {
        if large {
            push(hot, [record::stamp(sys::now())]);
        }
        record();
        if large {
            push(hot, [start(op::STAMPED, 0, 0)]);
        }
    }
}

#[inline(always)]
pub(super) unsafe fn push_alloc<B: Blocks>(hot: *mut Hot, func: u8, p: *mut libc::c_void, size: usize, usable: usize, flags: u64) {
    let slack = usable.wrapping_sub(size);
    let addr3 = p as u64 >> 3;
    // SAFETY: the caller's hot.
    unsafe {
        if B::NATIVE_TOO {
            callers::note(hot)
        } else {
            callers::note_python(hot)
        }
        if size < 1 << 40 && slack < 1 << 23 {
            push(hot, [start(op::ALLOC + func, flags, addr3), size as u64 | (slack as u64) << 40]);
        } else {
            push(hot, [start(op::ALLOC + func, flags | record::WIDE, addr3), size as u64, usable as u64]);
        }
    }
}

/// Fast mode: a call that is recorded by itself, because it is big or because the sampler's countdown ran out.
#[cold]
#[inline(never)]
unsafe fn chosen<B: Blocks>(hot: *mut Hot, func: u8, p: *mut libc::c_void, size: usize, usable: usize, flags: u64) {
    // SAFETY: the caller's hot.
    unsafe {
        if (*hot).mode != FAST {
            (*hot).left = i64::MAX;
            return;
        }
        writer::come_back();
        let push = move |flags: u64| script::with_block(hot, usable, || push_alloc::<B>(hot, func, p, size, usable, flags));
        if size >= CONFIG.big {
            (*hot).left += size as i64; // the sampler is about the others
            counted(hot, 0, Loss::Call, || timed(hot, usable, || push(flags)));
            return;
        }
        let thin = ((*hot).thin as u64) << record::THIN_SHIFT;
        (*hot).left = draw(hot);
        // A block of `big` usable bytes is told by its size when it ends.
        if usable >= CONFIG.big || (*SETTLED.samples).add(p as u64 | B::TAG) {
            counted(hot, 0, Loss::Call, || push(flags | record::SAMPLED | thin));
        }
    }
}

/// Fast mode: leaves a record, and before it how often the thread has allocated, but for `less` of it. Events are a sample of its calls: only this
/// tells how old a block became. An allocation is counted before, so what is freed before the next one finds the count as it was.
#[cold]
#[inline(never)]
unsafe fn counted(hot: *mut Hot, less: u64, what: Loss, record: impl FnOnce()) {
    // SAFETY: the caller's hot, whose lane is none in a child forked in a handler on top of us.
    unsafe {
        let lane = (*hot).lane;
        if tells_ages() && !lane.is_null() {
            let calls = (0..FIRST_FREE).map(|f| (*lane).counts.get_unchecked(cell(f))[0].load(Relaxed));
            let allocs = calls.fold(0u64, u64::wrapping_add);
            // Without it the record would say another age: where there is no room, both are lost.
            if !push_of_stacks(hot, [record::count(allocs.wrapping_sub(less))]) {
                if !(*hot).lane.is_null() {
                    lose((*hot).lane, what);
                }
                return;
            }
        }
    }
    record();
}

/// Fast mode: as [`push_free`], with the age. What it is about stays in registers on the way of those that are not recorded.
#[cold]
#[inline(never)]
unsafe fn push_free_counted(hot: *mut Hot, op: u8, p: *mut libc::c_void, usable: usize) {
    let what = if op == op::FREE { Loss::Call } else { Loss::Half };
    // SAFETY: the caller's.
    unsafe { counted(hot, 0, what, move || push_free(hot, op, p, usable)) };
}

/// Ends what a recorded realloc began; `got`: there is a new block, which was counted after the old one's end; `is_told`: by a record of its own, with
/// which the call is lost.
#[cold]
#[inline(never)]
unsafe fn realloc_done(hot: *mut Hot, got: bool, is_told: bool) {
    // SAFETY: the caller's hot.
    unsafe {
        let record = || push(hot, [start(op::REALLOC_DONE, 0, 0)]);
        let what = if is_told { Loss::Nothing } else { Loss::Call };
        if (*hot).mode == FAST { counted(hot, got as u64, what, record) } else { record() }
    }
}

/// A block of the lane's ends.
#[inline(always)]
pub(super) unsafe fn shrink(lane: *mut Lane, usable: usize) {
    // SAFETY: the caller's lane.
    unsafe {
        add!(lane, live, (usable as u64).wrapping_neg());
        add!(lane, blocks, -1);
    }
}

/// Records a free that is about to happen.
///
/// # Safety
/// `hot` is this thread's and set up; `p` is a live block.
#[inline(always)]
pub unsafe fn on_free<B: Blocks>(hot: *mut Hot, func: u8, p: *mut libc::c_void) {
    // SAFETY: as for on_alloc.
    unsafe {
        let lane = (*hot).lane;
        let usable = B::usable(p);
        let cell = (*lane).counts.get_unchecked(cell(func)).as_ptr();
        asm!("add qword ptr [{c}], 1", c = in(reg) cell, options(nostack));
        shrink(lane, usable);
        let mode = (*hot).mode;
        if mode == FULL {
            push_free(hot, op::FREE, p, usable);
        } else if mode == FAST && was_recorded(p as u64 | B::TAG, usable) {
            push_free_counted(hot, op::FREE, p, usable);
        }
    }
}

#[inline(always)]
unsafe fn push_free(hot: *mut Hot, op: u8, p: *mut libc::c_void, usable: usize) {
    let units = (usable + 8) >> 4;
    let addr3 = p as u64 >> 3;
    // SAFETY: the caller's hot.
    unsafe {
        if usable & 15 == 8 && units < 4096 {
            push(hot, [start(op, units as u64, addr3)]);
        } else {
            push_large_free(hot, op, addr3, usable);
        }
    }
}

/// As [`push_large`]; with the usable size in a word of its own.
#[cold]
#[inline(never)]
unsafe fn push_large_free(hot: *mut Hot, op: u8, addr3: u64, usable: usize) {
    // The old block of a realloc ends with the new one's event.
    let of_its_own = if op == op::FREE { usable } else { 0 };
    // SAFETY: the caller's hot.
    unsafe { timed(hot, of_its_own, || push(hot, [start(op, 0, addr3), usable as u64])) };
}

/// First half of a realloc of `old`, before the real one: its block may be another thread's by the time the real one returns.
/// Returns what the second half needs.
///
/// # Safety
/// As [`on_free`].
#[inline(always)]
pub unsafe fn on_realloc_begin<B: Blocks>(hot: *mut Hot, old: *mut libc::c_void) -> Replaced {
    // SAFETY: as on_free.
    unsafe {
        let usable = B::usable(old);
        let mode = (*hot).mode;
        if mode == FULL {
            push_free(hot, op::REALLOC_FREE, old, usable);
            return Replaced { usable, recorded: true };
        }
        let recorded = mode == FAST && was_recorded(old as u64 | B::TAG, usable);
        if recorded {
            push_free_counted(hot, op::REALLOC_FREE, old, usable);
        }
        Replaced { usable, recorded }
    }
}

/// The old block of a realloc under way.
#[derive(Clone, Copy)]
pub struct Replaced {
    usable: usize,
    recorded: bool,
}

/// Second half: the realloc gave a new block (`p`), ended the old one without (`p` null, size 0), or failed.
///
/// # Safety
/// As [`on_alloc`]; `was` is what the first half returned for `old`.
#[inline(always)]
pub unsafe fn on_realloc_end<B: Blocks>(hot: *mut Hot, func: u8, old: *mut libc::c_void, was: Replaced, p: *mut libc::c_void, size: usize) {
    // SAFETY: the caller's hot and blocks.
    unsafe {
        let lane = (*hot).lane;
        if p.is_null() && size != 0 {
            if was.recorded {
                if (*hot).mode == FAST && was.usable < CONFIG.big {
                    (*SETTLED.samples).add(old as u64 | B::TAG);
                }
                push(hot, [start(op::UNFREE, 0, old as u64 >> 3)]);
            }
            on_failed(hot);
            return;
        }
        shrink(lane, was.usable);
        if !p.is_null() {
            let in_place = if p == old { record::IN_PLACE } else { 0 };
            on_alloc::<B>(hot, func, p, size, record::REPLACES | in_place);
        }
        if was.recorded && ((*hot).mode == FAST || p.is_null()) {
            realloc_done(hot, !p.is_null(), !p.is_null() && is_recorded(p as u64 | B::TAG, B::usable(p)));
        }
    }
}

/// A call that failed.
///
/// # Safety
/// `hot` is this thread's and set up.
#[cold]
#[inline(never)]
pub unsafe fn on_failed(hot: *mut Hot) {
    // SAFETY: the caller's hot.
    unsafe { add!((*hot).lane, failed, 1) };
}
