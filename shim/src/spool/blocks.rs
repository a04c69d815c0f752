//! The blocks of the rings: given out, waited for where all are in use, given back.

use super::{GROWING, back, header, is_full, was_refused};
use crate::lane::LANES;
use crate::{sys, writer};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use memshim_format::spool::{BLOCK, BLOCKS_MAX, BLOCKS_OFF, BLOCKS_SPARE};

/// Blocks are given memory in steps of this many.
const STEP: u32 = 32;
/// Free blocks, a stack: head is tag << 32 | index + 1.
static FREE: AtomicU64 = AtomicU64::new(0);
static NEXT_FREE: [AtomicU32; BLOCKS_MAX] = [const { AtomicU32::new(0) }; BLOCKS_MAX];
/// Blocks that were ever handed out, and those with memory behind them.
static TAKEN: AtomicU32 = AtomicU32::new(0);
static BACKED: AtomicU32 = AtomicU32::new(0);

/// Begins without any: the first image, or a forked child. One thread.
pub(super) fn reset() {
    FREE.store(0, Relaxed);
    STARVED_AT.store(0, Relaxed);
    for c in [&TAKEN, &BACKED, &WAITERS, &GIVEN, &WOKEN_AT, &STALLED] {
        c.store(0, Relaxed);
    }
}

fn pop() -> Option<u32> {
    let mut head = FREE.load(Acquire);
    loop {
        let i = (head as u32).checked_sub(1)?;
        let next = NEXT_FREE.get(i as usize)?.load(Relaxed);
        let new = ((head >> 32).wrapping_add(1) << 32) | next as u64;
        match FREE.compare_exchange_weak(head, new, AcqRel, Acquire) {
            Ok(_) => return Some(i),
            Err(h) => head = h,
        }
    }
}

/// Gives a block back; its words must be zero.
pub fn give_block(i: u32) {
    let Some(slot) = NEXT_FREE.get(i as usize) else { return };
    if WAITERS.load(Relaxed) > 0 {
        GIVEN.fetch_add(1, Release);
    }
    if STALLED.load(Relaxed) != 0 {
        STALLED.store(0, Relaxed);
    }
    let mut head = FREE.load(Acquire);
    loop {
        slot.store(head as u32, Relaxed);
        let new = ((head >> 32).wrapping_add(1) << 32) | (i + 1) as u64;
        match FREE.compare_exchange_weak(head, new, AcqRel, Acquire) {
            Ok(_) => return,
            Err(h) => head = h,
        }
    }
}

/// Threads that wait for a block, and a count of the blocks given back while some do: as it is, and as it was when sleepers were woken.
static WAITERS: AtomicU32 = AtomicU32::new(0);
static GIVEN: AtomicU32 = AtomicU32::new(0);
static WOKEN_AT: AtomicU32 = AtomicU32::new(0);
/// Times that sleepers were woken.
static WAKES: AtomicU32 = AtomicU32::new(0);
/// When a thread waited for a block in vain that the disk had no room for.
static STARVED_AT: AtomicU64 = AtomicU64::new(0);
/// 1: a thread has waited in vain, and no block was given back since. Who drains may be stuck in a write for ever: nobody waits for it anew.
static STALLED: AtomicU32 = AtomicU32::new(0);
/// Blocks given back before sleepers are woken: a thread that has waited should find many.
const WAKE_AT: u32 = 256;

/// Who waits looks by himself too, in case nobody wakes him: all together once in so long, each four times before he gives up.
const WAIT_NS: u64 = 2_000_000;
/// A thread waits so long without a block given back to anybody, and so long in all.
const STALLED_NS: u64 = 1_000_000_000;
const WAIT_MOST_NS: u64 = 10_000_000_000;

/// Wakes threads that wait for blocks, where enough were given back. Called by the drain.
pub fn wake_waiters(now: bool) {
    let given = GIVEN.load(Relaxed);
    if WAITERS.load(Relaxed) > 0 && (now || given.wrapping_sub(WOKEN_AT.load(Relaxed)) >= WAKE_AT) {
        WOKEN_AT.store(given, Relaxed);
        // Whoever is about to sleep looks once more.
        WAKES.fetch_add(1, Release);
        sys::futex_wake(&WAKES);
    }
}

/// Whether there is no block, and asking for one is in vain: nobody has given one back, and the disk had no room for more a moment ago.
pub fn is_starved() -> bool {
    is_full() && FREE.load(Relaxed) as u32 == 0 && TAKEN.load(Relaxed) >= BACKED.load(Relaxed) && was_refused(STEP as usize * BLOCK)
}

/// A zeroed ring block. Signals are blocked. When all are in use: drains by itself or waits for the drain, at most a second
/// without progress and ten in all; then none. After a wait in vain nobody waits again before a block is given back. `first`: the lane has
/// none yet.
pub fn take_block(first: bool) -> Option<u32> {
    // Each lane keeps the block that it fills.
    let fresh = || fresh(if first { BLOCKS_MAX } else { BLOCKS_SPARE + LANES.load(Relaxed) as usize });
    if let Some(i) = pop().or_else(fresh) {
        return Some(i);
    }
    let begun = sys::now();
    // Nobody has one to give back: the disk had no room for the first. And where it has none, who has waited in vain does not wait for each event anew.
    if TAKEN.load(Acquire) == 0 || is_full() && begun.saturating_sub(STARVED_AT.load(Relaxed)) < STALLED_NS {
        return None;
    }
    if STALLED.load(Relaxed) != 0 && !writer::help() {
        return None;
    }
    let mut until = begun + STALLED_NS;
    loop {
        let seen = GIVEN.load(Acquire);
        if !writer::help() {
            let before = WAITERS.fetch_add(1, AcqRel) as u64;
            let wakes = WAKES.load(Acquire);
            if FREE.load(Acquire) as u32 == 0 {
                sys::futex_wait(&WAKES, wakes, (WAIT_NS * (before + 1)).min(STALLED_NS / 4));
            }
            WAITERS.fetch_sub(1, AcqRel);
        }
        if let Some(i) = pop().or_else(fresh) {
            return Some(i);
        }
        let now = sys::now();
        if GIVEN.load(Acquire) != seen {
            until = (now + STALLED_NS).min(begun + WAIT_MOST_NS);
        }
        if now > until {
            STARVED_AT.store(now, Relaxed);
            STALLED.swap(1, SeqCst);
            // Given back at the last moment, by who did not see that.
            if GIVEN.load(SeqCst) != seen || FREE.load(SeqCst) as u32 != 0 {
                STALLED.store(0, Relaxed);
            }
            return None;
        }
    }
}

/// A block never used before, while fewer than `most` are in use.
fn fresh(most: usize) -> Option<u32> {
    loop {
        let taken = TAKEN.load(Acquire);
        if taken as usize >= most {
            return None;
        }
        if taken < BACKED.load(Acquire) {
            if TAKEN.compare_exchange(taken, taken + 1, AcqRel, Relaxed).is_ok() {
                return Some(taken);
            }
            continue;
        }
        if GROWING.swap(1, Acquire) != 0 {
            sys::yield_now();
            if let Some(i) = pop() {
                return Some(i);
            }
            continue;
        }
        let backed = BACKED.load(Acquire);
        let grown = taken < backed || back(BLOCKS_OFF + backed as usize * BLOCK, STEP as usize * BLOCK);
        if grown && taken >= backed {
            BACKED.store(backed + STEP, Release);
            // SAFETY: the header is there.
            unsafe { (*header()).blocks.store(backed + STEP, Relaxed) };
        }
        GROWING.store(0, Release);
        if !grown {
            return None;
        }
    }
}
