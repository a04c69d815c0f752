//! Threads for which there is no lane: more than there are lanes, or no room for another in the spool. They share one lane, whose counts
//! they change by locked instructions; nothing of theirs is an event, and what should have been one counts as lost.
//!
//! Their thread-local pointer is to the shared lane's [`crate::lane::Hot`], whose mode stays 0: so every call of theirs takes the cold
//! path, and the fast path of all others knows nothing of this.

use crate::config::{CONFIG, FULL};
use crate::lane::{HOTS, MODE, usable};
use crate::{spool, tls};
use core::ffi::c_void;
use core::sync::atomic::{AtomicI64, AtomicU32, Ordering::*};
use memshim_format::spool::{Lane, cell};

/// Calls between two attempts to get a lane of one's own: others may have ended.
const ATTEMPT_EVERY: u32 = 4096;
static CALLS: AtomicU32 = AtomicU32::new(0);

/// The shared lane, where this thread is one of those that share it.
#[inline]
fn shared() -> Option<&'static Lane> {
    let index = spool::crowd()?;
    // SAFETY: HOTS has an entry for each lane; the lane exists.
    unsafe { (tls::hot() == HOTS.add(index as usize)).then(|| &*spool::lane(index)) }
}

/// This thread found no lane: it shares the crowd's. Signals are blocked.
pub fn join() {
    if let Some(index) = spool::crowd().or_else(spool::make_crowd) {
        // SAFETY: HOTS has an entry for each lane.
        tls::set_hot(unsafe { HOTS.add(index as usize) });
    }
}

/// Whether this thread shares the lane, and is not to look for another now.
pub fn stays() -> bool {
    shared().is_some() && !CALLS.fetch_add(1, Relaxed).is_multiple_of(ATTEMPT_EVERY)
}

/// Whether anything is counted now.
fn counts() -> bool {
    MODE.load(Relaxed) != 0
}

/// What should have been an event is lost.
fn lose(lane: &Lane, size: usize) {
    // SAFETY: settings are read-only.
    let due = unsafe { MODE.load(Relaxed) == FULL || size >= CONFIG.big };
    if due && MODE.load(Relaxed) != crate::config::COUNT {
        lane.lost.fetch_add(1, Relaxed);
    }
}

fn add(to: &AtomicI64, n: i64) -> i64 {
    to.fetch_add(n, AcqRel) + n
}

/// An allocation that succeeded (`p` a live block) or failed.
///
/// # Safety
/// `p` is null or a live block; `func` is a counted function.
#[cold]
#[inline(never)]
pub unsafe fn on_alloc(func: u8, p: *mut c_void, size: usize) {
    let Some(lane) = shared().filter(|_| counts()) else { return };
    if p.is_null() {
        lane.failed.fetch_add(1, Relaxed);
        return;
    }
    if let Some([calls, bytes]) = lane.counts.get(cell(func)) {
        calls.fetch_add(1, Relaxed);
        bytes.fetch_add(size as u64, Relaxed);
    }
    let blocks = add(&lane.blocks, 1);
    // SAFETY: a live block.
    let live = add(&lane.live, unsafe { usable(p) } as i64);
    if live > lane.hi.fetch_max(live, AcqRel) {
        lane.hi_blocks.store(blocks, Relaxed);
    }
    lose(lane, size);
}

/// A block is about to be freed by `func`.
///
/// # Safety
/// `p` is a live block; `func` is a counted function.
#[cold]
#[inline(never)]
pub unsafe fn on_free(func: u8, p: *mut c_void) {
    let Some(lane) = shared().filter(|_| counts()) else { return };
    if let Some([calls, _]) = lane.counts.get(cell(func)) {
        calls.fetch_add(1, Relaxed);
    }
    // SAFETY: a live block.
    let usable = unsafe { usable(p) };
    add(&lane.live, -(usable as i64));
    add(&lane.blocks, -1);
    lose(lane, usable);
}

/// A realloc of `old`, a live block, by `func`: makes the real call.
///
/// # Safety
/// As the C function.
#[cold]
#[inline(never)]
pub unsafe fn on_realloc(func: u8, old: *mut c_void, size: usize, call: impl FnOnce() -> *mut c_void) -> *mut c_void {
    let lane = shared().filter(|_| counts());
    // SAFETY: a live block until the call.
    let was = if lane.is_some() && !old.is_null() { unsafe { usable(old) } } else { 0 };
    let p = call();
    if let Some(lane) = lane
        && !old.is_null()
        && (!p.is_null() || size == 0)
    {
        add(&lane.live, -(was as i64));
        add(&lane.blocks, -1);
        if p.is_null() {
            return p;
        }
    }
    // SAFETY: what the call returned.
    unsafe { on_alloc(func, p, size) };
    p
}
