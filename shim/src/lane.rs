//! A thread's side of recording: its exact counts and its ring, both in the spool, so that a killed process loses nothing.
//!
//! Signal handlers allocate and map too, at any instant, on this very thread. So a push first *reserves* its words with a single
//! instruction (`xadd` without a lock prefix: atomic for this thread), then writes them last to first; a handler in between reserves
//! the words after. The drain stops at a zero word, so it never reads a record half written; a handler that jumps out of a hook
//! leaves a zero word that the drain passes over later. Counters are single add instructions for the same reason.
//!
//! [`Hot`] is private memory that the kernel wipes in a forked child (`MADV_WIPEONFORK`): there every field is zero, `mode` is none
//! of the recording modes, and the first event takes the cold path, which sets the child up anew; also after a raw `fork` syscall,
//! of which no handler tells.

mod ring;
mod samples;

pub use ring::{push, push_of_stacks};
pub use samples::{SAMPLES, Samples};
use samples::{draw, was_recorded};

use crate::callers::{self, Walker};
use crate::config::{CONFIG, FAST, FULL};
use crate::{spool, sys, tls, writer};
use core::arch::asm;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering::*};
use memshim_format::record::{self, op, start};
use memshim_format::spool::{LANES_MAX, Lane};

/// What the fast path of a thread needs: one cache line, and none beside it, since processors fetch lines in pairs.
#[repr(C, align(128))]
pub struct Hot {
    /// Address of the next free word of the block being filled; 0 before the first.
    pub cur: u64,
    /// The lane in the spool.
    pub lane: *mut Lane,
    /// [`FAST`], [`FULL`] or [`crate::config::COUNT`]; anything else: not set up.
    pub mode: u32,
    /// Number of the lane.
    pub index: u32,
    /// Bytes until the next sample (fast mode).
    pub left: i64,
    /// State of the sampler's generator.
    pub rng: u64,
    /// Index + 1 of the block being filled.
    pub block: u32,
    /// 1 while the thread is inside a hooked driver call.
    pub gpu: u32,
    /// What the lane knows of its thread's stack; null where events get none.
    pub walker: *mut Walker,
    /// Open phases of the thread that are left out.
    pub left_out: u32,
}

/// One for every lane; wiped on fork.
pub static mut HOTS: *mut Hot = core::ptr::null_mut();

/// States of lanes in private memory, so that looking for a free one touches few lines: 0 never used, 1 in use, 2 its thread is ending,
/// 3 the crowd's.
pub static STATES: [AtomicU8; LANES_MAX] = [const { AtomicU8::new(0) }; LANES_MAX];

/// Lanes whose threads live.
pub fn in_use() -> usize {
    STATES.iter().take(LANES.load(Acquire) as usize).filter(|s| s.load(Relaxed) == 1).count()
}

/// Adds to a field of a lane in one instruction: one thread writes it, and a signal cannot come in the middle. Must stand in `unsafe`;
/// the lane is valid.
macro_rules! add {
    ($lane:expr, $field:ident, $v:literal) => {
        asm!("add qword ptr [{l} + {o}], {v}", l = in(reg) $lane, o = const core::mem::offset_of!(memshim_format::spool::Lane, $field), v = const $v, options(nostack))
    };
    ($lane:expr, $field:ident, $v:expr) => {
        asm!("add qword ptr [{l} + {o}], {v}", l = in(reg) $lane, o = const core::mem::offset_of!(memshim_format::spool::Lane, $field), v = in(reg) $v, options(nostack))
    };
}
use add;

/// Counts a call of `size` bytes, in two instructions.
///
/// # Safety
/// The lane is valid; `func` is below the number of counted functions.
#[inline(always)]
unsafe fn count(lane: *mut Lane, func: u8, size: u64) {
    // SAFETY: the caller's promise; as for `add`.
    unsafe {
        let cell = (*lane).counts.get_unchecked(func as usize).as_ptr();
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

/// The thread's [`Hot`] when it records, else null. The only test on the fast path.
#[inline(always)]
pub fn current() -> *mut Hot {
    let hot = tls::hot();
    // SAFETY: a non-null pointer is into HOTS, which is never unmapped.
    if !hot.is_null() && unsafe { (*hot).mode } != 0 { hot } else { core::ptr::null_mut() }
}

/// Records an allocation that succeeded.
///
/// # Safety
/// `hot` is this thread's and set up; `p` is a live block.
#[inline(always)]
pub unsafe fn on_alloc(hot: *mut Hot, func: u8, p: *mut libc::c_void, size: usize, flags: u64) {
    // SAFETY: the lane is this thread's; func < FNS_MAX.
    unsafe {
        let lane = (*hot).lane;
        let usable = usable(p);
        count(lane, func, size as u64);
        add!(lane, blocks, 1);
        let live = grow(lane, usable as u64).wrapping_add(usable as i64);
        if live > (*lane).hi.load(Relaxed) {
            (*lane).hi_blocks.store((*lane).blocks.load(Relaxed), Relaxed);
            (*lane).hi.store(live, Release);
        }
        if (*hot).mode == FULL {
            if size >= 64 << 10 {
                push_large(hot, func, p, size, usable, flags);
            } else {
                push_alloc(hot, func, p, size, usable, flags);
            }
        } else {
            let left = (*hot).left - size as i64;
            (*hot).left = left;
            if left < 0 || size >= CONFIG.big {
                chosen(hot, func, p, size, usable, flags);
            }
        }
    }
}

/// Of a large block the time is told, so that its place among other threads' events is known: these make the peaks. Memory of this size is
/// not touched unseen either.
#[cold]
#[inline(never)]
unsafe fn push_large(hot: *mut Hot, func: u8, p: *mut libc::c_void, size: usize, usable: usize, flags: u64) {
    // SAFETY: the caller's hot.
    unsafe {
        push(hot, [record::stamp(sys::now())]);
        push_alloc(hot, func, p, size, usable, flags);
        push(hot, [start(op::STAMPED, 0, 0)]);
    }
    writer::come_back();
}

#[inline(always)]
unsafe fn push_alloc(hot: *mut Hot, func: u8, p: *mut libc::c_void, size: usize, usable: usize, flags: u64) {
    let slack = usable.wrapping_sub(size);
    let addr3 = p as u64 >> 3;
    // SAFETY: the caller's hot.
    unsafe {
        callers::note(hot);
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
unsafe fn chosen(hot: *mut Hot, func: u8, p: *mut libc::c_void, size: usize, usable: usize, flags: u64) {
    // SAFETY: the caller's hot.
    unsafe {
        if (*hot).mode != FAST {
            (*hot).left = i64::MAX;
            return;
        }
        writer::come_back();
        if size >= CONFIG.big {
            (*hot).left += size as i64; // the sampler is about the others
            push_alloc(hot, func, p, size, usable, flags);
            return;
        }
        (*hot).left = draw(hot);
        // A block of `big` usable bytes is told by its size when it ends.
        if usable >= CONFIG.big || (*SAMPLES).add(p as u64) {
            push_alloc(hot, func, p, size, usable, flags | record::SAMPLED);
        }
    }
}

/// A block of the lane's ends.
#[inline(always)]
unsafe fn shrink(lane: *mut Lane, usable: usize) {
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
pub unsafe fn on_free(hot: *mut Hot, func: u8, p: *mut libc::c_void) {
    // SAFETY: as for on_alloc.
    unsafe {
        let lane = (*hot).lane;
        let usable = usable(p);
        let cell = (*lane).counts.get_unchecked(func as usize).as_ptr();
        asm!("add qword ptr [{c}], 1", c = in(reg) cell, options(nostack));
        shrink(lane, usable);
        let mode = (*hot).mode;
        if mode == FULL || mode == FAST && was_recorded(p, usable) {
            push_free(hot, op::FREE, p, usable);
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
    let timed = op == op::FREE && usable >= 64 << 10;
    // SAFETY: the caller's hot.
    unsafe {
        if timed && (*hot).mode == FULL {
            push(hot, [record::stamp(sys::now())]);
        }
        push(hot, [start(op, 0, addr3), usable as u64]);
        if timed && (*hot).mode == FULL {
            push(hot, [start(op::STAMPED, 0, 0)]);
        }
    }
}

/// First half of a realloc of `old`, before the real one: its block may be another thread's by the time the real one returns.
/// Returns what the second half needs.
///
/// # Safety
/// As [`on_free`].
#[inline(always)]
pub unsafe fn on_realloc_begin(hot: *mut Hot, old: *mut libc::c_void) -> Replaced {
    // SAFETY: as on_free.
    unsafe {
        let usable = usable(old);
        let mode = (*hot).mode;
        let recorded = mode == FULL || mode == FAST && was_recorded(old, usable);
        if recorded {
            push_free(hot, op::REALLOC_FREE, old, usable);
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
pub unsafe fn on_realloc_end(hot: *mut Hot, func: u8, old: *mut libc::c_void, was: Replaced, p: *mut libc::c_void, size: usize) {
    // SAFETY: the caller's hot and blocks.
    unsafe {
        let lane = (*hot).lane;
        if p.is_null() && size != 0 {
            if was.recorded {
                if (*hot).mode == FAST && was.usable < CONFIG.big {
                    (*SAMPLES).add(old as u64);
                }
                push(hot, [start(op::UNFREE, 0, old as u64 >> 3)]);
            }
            on_failed(hot);
            return;
        }
        shrink(lane, was.usable);
        if !p.is_null() {
            let in_place = if p == old { record::IN_PLACE } else { 0 };
            on_alloc(hot, func, p, size, record::REPLACES | in_place);
        }
        if was.recorded && ((*hot).mode == FAST || p.is_null()) {
            push(hot, [start(op::REALLOC_DONE, 0, 0)]);
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

/// Lanes ever used.
pub static LANES: AtomicU32 = AtomicU32::new(0);

/// Gives this thread a lane. Signals are blocked, the shim is ready.
pub fn acquire() -> *mut Hot {
    // SAFETY: settled at the start.
    let pid = unsafe { spool::SPOOL.pid };
    let tid = sys::gettid();
    let used = LANES.load(Acquire) as usize;
    let mut found = None;
    for (i, s) in STATES.iter().take(used).enumerate() {
        if s.load(Relaxed) == 2 {
            // SAFETY: i < used lanes.
            let owner = unsafe { (*spool::lane(i as u32)).tid.load(Relaxed) };
            if !sys::thread_exists(pid, owner) && s.compare_exchange(2, 1, AcqRel, Relaxed).is_ok() {
                found = Some(i as u32);
                break;
            }
        }
    }
    if found.is_none() && used >= 64 {
        found = reclaim_silent(pid, used);
    }
    let index = match found {
        Some(i) => i,
        None => match spool::new_lane() {
            Some(i) => i,
            None => return core::ptr::null_mut(),
        },
    };
    // SAFETY: the lane is this thread's now; HOTS has LANES_MAX entries.
    unsafe {
        let hot = HOTS.add(index as usize);
        let lane = spool::lane(index);
        (*lane).tid.store(tid, Relaxed);
        (*lane).state.store(1, Relaxed);
        (*hot).lane = lane;
        (*hot).index = index;
        (*hot).gpu = 0;
        (*hot).left_out = 0;
        (*hot).walker = callers::of_lane(index);
        if (*hot).rng == 0 {
            (*hot).rng = sys::now() ^ (tid as u64) << 32 | 1;
            (*hot).left = draw(hot);
        }
        (*hot).mode = MODE.load(Relaxed);
        if (*hot).mode != crate::config::COUNT {
            push(hot, [start(op::THREAD_START, 0, tid as u64), sys::now()]);
        }
        hot
    }
}

/// A lane whose thread went without telling (raw exit, a key destructor that never ran).
fn reclaim_silent(pid: u32, used: usize) -> Option<u32> {
    for (i, s) in STATES.iter().take(used).enumerate() {
        if s.load(Relaxed) == 1 {
            // SAFETY: i < used lanes.
            let owner = unsafe { (*spool::lane(i as u32)).tid.load(Relaxed) };
            if owner != 0 && !sys::thread_exists(pid, owner) && s.compare_exchange(1, 2, AcqRel, Relaxed).is_ok() {
                s.store(1, Relaxed);
                return Some(i as u32);
            }
        }
    }
    None
}

/// Mode for threads that begin, and the one that [`switch_mode`] gave all.
pub static MODE: AtomicU32 = AtomicU32::new(0);

/// Changes the mode of every lane (the trace reached its cap, or cannot be written).
pub fn switch_mode(mode: u32) {
    MODE.store(mode, Relaxed);
    for i in 0..LANES.load(Acquire) as usize {
        // SAFETY: HOTS has LANES_MAX entries; mode is a word that the owner only reads.
        unsafe {
            let m = &raw mut (*HOTS.add(i)).mode;
            if *m != 0 {
                m.write_volatile(mode);
            }
        }
    }
}

/// The thread ends: its name is noted, its lane can be another's when it is gone.
///
/// # Safety
/// `hot` is this thread's and set up.
pub unsafe fn on_thread_end(hot: *mut Hot, name: [u8; 16]) {
    // SAFETY: the caller's hot.
    unsafe {
        if (*hot).mode != crate::config::COUNT {
            let mut w = [0u64; 3];
            for (i, c) in name.iter().enumerate() {
                w[i / 6] |= (*c as u64) << (8 * (i % 6));
            }
            let tid = (*(*hot).lane).tid.load(Relaxed);
            push(hot, [start(op::THREAD_END, 0, tid as u64), sys::now(), w[0], w[1], w[2]]);
        }
        (*(*hot).lane).state.store(2, Relaxed);
        if let Some(s) = STATES.get((*hot).index as usize) {
            s.store(2, Release);
        }
    }
}
