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

mod blocks;
pub mod quick;
mod ring;
mod samples;

pub use blocks::{Blocks, Malloc, on_alloc, on_failed, on_free, on_realloc_begin, on_realloc_end, usable};
pub use ring::{begins_in_vain, push, push_of_stacks};
use samples::draw;
pub use samples::{Samples, THIN};

use crate::callers::{self, Walker};
use crate::config::{CONFIG, FULL};
use crate::phases::symbol::Track;
use crate::{spool, sys, tls};
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering::*, fence};
use memshim_format::record::{Loss, op, start};
use memshim_format::spool::{LANES_MAX, Lane};

/// What the quick calls of a thread need (see [`quick`]), in the first cache line; in the second what others do. None beside them, since
/// processors fetch lines in pairs.
#[repr(C, align(128))]
pub struct Hot {
    /// Address of the next free word of the block being filled; 0 before the first.
    pub cur: u64,
    /// The lane in the spool.
    pub lane: *mut Lane,
    /// [`crate::config::FAST`], [`crate::config::FULL`] or [`crate::config::COUNT`]; anything else: not set up.
    pub mode: u32,
    /// The same where calls of malloc and its like are quick ones, else 0.
    pub quick: u32,
    /// Bytes until the next sample (fast mode).
    pub left: i64,
    /// [`crate::config::Config::big`].
    pub big: usize,
    /// The recorded blocks of fast mode.
    pub samples: *const Samples,
    /// The real functions, where calls are quick.
    pub malloc: Option<unsafe extern "C" fn(usize) -> *mut libc::c_void>,
    /// See `malloc`.
    pub free: Option<unsafe extern "C" fn(*mut libc::c_void)>,
    /// What the lane knows of its thread's stack; null where events get none.
    pub walker: *mut Walker,
    /// State of the sampler's generator.
    pub rng: u64,
    /// Number of the lane.
    pub index: u32,
    /// Index + 1 of the block being filled.
    pub block: u32,
    /// `UNDER_WAY` in a hooked driver call or one of ours, else 0.
    pub gpu: u32,
    /// Open phases of the thread that are left out.
    pub left_out: u32,
    /// Of a lane for Python's blocks: where on the stack the call of an allocator stands that the thread is in, 0 for none.
    pub inside: u64,
    /// The thread's lane for Python's blocks, null where it has none (yet).
    pub python: *mut Hot,
    /// Open phases of the thread that are Python functions.
    pub functions: u32,
    /// [`samples::THIN`] when `left` was drawn.
    pub thin: u32,
    /// Native functions that are phases: which the thread is in. Null before the first.
    pub track: *mut Track,
}
const _: () = assert!(core::mem::offset_of!(Hot, walker) == 64 && size_of::<Hot>() == 128);

/// One for every lane; wiped on fork.
pub static mut HOTS: *mut Hot = core::ptr::null_mut();

/// States of lanes in private memory, so that looking for a free one touches few lines: 0 never used, 1 in use, 2 its thread is ending,
/// 3 the crowd's.
pub static STATES: [AtomicU8; LANES_MAX] = [const { AtomicU8::new(0) }; LANES_MAX];

/// Lanes whose threads live.
pub fn in_use() -> usize {
    STATES
        .iter()
        .take(LANES.load(Acquire) as usize)
        .enumerate()
        .filter(|(i, s)| s.load(Relaxed) == 1 && !spool::is_python(*i as u32))
        .count()
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

/// A record of a lane's has no room, or its block none: what of the program's is lost with it.
///
/// # Safety
/// The lane is there.
#[cold]
#[inline(never)]
pub unsafe fn lose(lane: *mut Lane, what: Loss) {
    // SAFETY: the caller's lane.
    unsafe {
        match what {
            // In full mode the call is lost with its second half, or where that is an event by who reads it.
            Loss::Half if CONFIG.mode == FULL => _ = (*lane).halves_lost.fetch_add(1, Relaxed),
            Loss::Call | Loss::Half => {
                (*lane).lost.fetch_add(1, Relaxed);
                if spool::is_full() {
                    (*lane).lost_by_disk.fetch_add(1, Relaxed);
                }
            }
            Loss::End => _ = (*lane).broken.fetch_add(1, Relaxed),
            Loss::Row => _ = (*lane).rows_lost.fetch_add(1, Relaxed),
            Loss::Nothing => {}
        }
    }
}

/// The thread's [`Hot`] when it records, else null. The only test on the fast path.
#[inline(always)]
pub fn current() -> *mut Hot {
    let hot = tls::hot();
    // SAFETY: a non-null pointer is into HOTS, which is never unmapped.
    if !hot.is_null() && unsafe { (*hot).mode } != 0 { hot } else { core::ptr::null_mut() }
}

/// Lanes ever used.
pub static LANES: AtomicU32 = AtomicU32::new(0);

/// Gives this thread a lane, for Python's blocks or for all else. Signals are blocked, the shim is ready.
pub fn acquire(python: bool) -> *mut Hot {
    // SAFETY: settled at the start.
    let pid = unsafe { spool::SPOOL.pid };
    let tid = sys::gettid();
    let used = LANES.load(Acquire) as usize;
    let mut found = None;
    for (i, s) in STATES.iter().take(used).enumerate() {
        if s.load(Relaxed) == 2 {
            // SAFETY: i < used lanes.
            let owner = unsafe { (*spool::lane(i as u32)).tid.load(Relaxed) };
            if spool::is_python(i as u32) == python && !sys::thread_exists(pid, owner) && s.compare_exchange(2, 1, AcqRel, Relaxed).is_ok()
            {
                found = Some(i as u32);
                break;
            }
        }
    }
    if found.is_none() && used >= 64 {
        found = reclaim_silent(pid, used, python);
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
        (*lane).python.store(python as u32, Relaxed);
        (*lane).state.store(1, Relaxed);
        (*hot).lane = lane;
        (*hot).index = index;
        (*hot).gpu = 0;
        (*hot).left_out = 0;
        (*hot).inside = 0;
        (*hot).python = core::ptr::null_mut();
        (*hot).functions = 0;
        (*hot).track = core::ptr::null_mut();
        (*hot).walker = callers::of_lane(index);
        if (*hot).rng == 0 {
            (*hot).rng = samples::seed(sys::now() ^ (tid as u64) << 32);
            (*hot).left = draw(hot);
        }
        // Again where it is changed for all lanes meanwhile (see [`switch_mode`]).
        loop {
            let mode = MODE.load(SeqCst);
            (&raw mut (*hot).mode).write_volatile(mode);
            quick::set_up(hot, python);
            fence(SeqCst);
            if MODE.load(SeqCst) == mode {
                break;
            }
        }
        if (*hot).mode != crate::config::COUNT {
            push(hot, [start(op::THREAD_START, 0, tid as u64), sys::now()]);
        }
        hot
    }
}

/// A lane whose thread went without telling (raw exit, a key destructor that never ran).
fn reclaim_silent(pid: u32, used: usize, python: bool) -> Option<u32> {
    for (i, s) in STATES.iter().take(used).enumerate() {
        if s.load(Relaxed) == 1 {
            // SAFETY: i < used lanes.
            let owner = unsafe { (*spool::lane(i as u32)).tid.load(Relaxed) };
            let gone = owner != 0 && spool::is_python(i as u32) == python && !sys::thread_exists(pid, owner);
            if gone && s.compare_exchange(1, 2, AcqRel, Relaxed).is_ok() {
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
    MODE.store(mode, SeqCst);
    fence(SeqCst);
    for i in 0..LANES.load(Acquire) as usize {
        // SAFETY: HOTS has LANES_MAX entries; mode is a word that the owner only reads.
        unsafe {
            let hot = HOTS.add(i);
            let (m, quick) = (&raw mut (*hot).mode, &raw mut (*hot).quick);
            if *m != 0 {
                m.write_volatile(mode);
                if *quick != 0 {
                    quick.write_volatile(quick::of_mode(mode, !(*hot).walker.is_null()));
                }
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
        let python = (*hot).python;
        if !python.is_null() {
            // Its end is its thread's: told once.
            (*hot).python = core::ptr::null_mut();
            give_back(python);
        }
        if (*hot).mode != crate::config::COUNT {
            let mut w = [0u64; 3];
            for (i, c) in name.iter().enumerate() {
                w[i / 6] |= (*c as u64) << (8 * (i % 6));
            }
            let tid = (*(*hot).lane).tid.load(Relaxed);
            push(hot, [start(op::THREAD_END, 0, tid as u64), sys::now(), w[0], w[1], w[2]]);
        }
        give_back(hot);
    }
}

unsafe fn give_back(hot: *mut Hot) {
    // SAFETY: the caller's hot.
    unsafe {
        (*(*hot).lane).state.store(2, Relaxed);
        if let Some(s) = STATES.get((*hot).index as usize) {
            s.store(2, Release);
        }
    }
}
