//! Putting records into a lane's ring: reserve, write last to first, begin a block where one is full.

use super::{Hot, lose};
use crate::spool;
use crate::{sys, writer};
use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering::*};
use memshim_format::record::{Loss, loss, op, start};
use memshim_format::spool::{BLOCK, BLOCK_WORDS, Block};

/// Reserves the words of a ring: adds and returns the value before, in one instruction.
///
/// # Safety
/// `p` is valid.
#[inline(always)]
unsafe fn xadd(p: *mut u64, v: u64) -> u64 {
    let mut r = v;
    // SAFETY: as for `add`.
    unsafe { asm!("xadd qword ptr [{p}], {r}", p = in(reg) p, r = inout(reg) r, options(nostack)) };
    r
}

/// Whether `len` bytes at `at` lie in the words of one block: told by the address alone, so that a handler which begins a new block at
/// any instant cannot confuse it.
#[inline(always)]
const fn fits(at: u64, len: u64) -> bool {
    (at & (BLOCK as u64 - 1)).wrapping_sub(BLOCK_WORDS as u64) <= BLOCK as u64 - BLOCK_WORDS as u64 - len
}

/// Puts a record into the ring.
///
/// # Safety
/// `hot` is this thread's and set up.
#[inline(always)]
pub unsafe fn push<const N: usize>(hot: *mut Hot, words: [u64; N]) {
    // SAFETY: the caller's hot. What does not fit counts as lost.
    unsafe { push_of_stacks(hot, words) };
}

/// Puts a record about stacks into the ring; false: there is no room.
///
/// # Safety
/// As [`push`].
#[inline(always)]
pub unsafe fn push_of_stacks<const N: usize>(hot: *mut Hot, words: [u64; N]) -> bool {
    // SAFETY: the reserved words are ours alone.
    unsafe {
        let at = xadd(&raw mut (*hot).cur, N as u64 * 8);
        if fits(at, N as u64 * 8) {
            put(at, words.as_ptr(), N);
            return true;
        }
        // By value, so that short records are never in memory but where they belong.
        match words.as_slice() {
            [a] => push_one_in_new_block(hot, *a, at),
            [a, b] => push_two_in_new_block(hot, *a, *b, at),
            _ => push_in_new_block(hot, words.as_ptr(), N, at),
        }
    }
}

#[cold]
#[inline(never)]
unsafe fn push_one_in_new_block(hot: *mut Hot, a: u64, at: u64) -> bool {
    // SAFETY: the caller's hot and reservation.
    unsafe { push_in_new_block(hot, &a, 1, at) }
}

#[cold]
#[inline(never)]
unsafe fn push_two_in_new_block(hot: *mut Hot, a: u64, b: u64, at: u64) -> bool {
    // SAFETY: the caller's hot and reservation.
    unsafe { push_in_new_block(hot, [a, b].as_ptr(), 2, at) }
}

/// Writes the words, the first one last.
#[inline(always)]
unsafe fn put(at: u64, words: *const u64, n: usize) {
    let p = at as *mut u64;
    // SAFETY: n reserved words.
    unsafe {
        let mut i = n;
        while i > 1 {
            i -= 1;
            p.add(i).write(*words.add(i));
        }
        (*(p as *const AtomicU64)).store(*words, Release);
    }
}

/// Marks the rest of a block, from `at` on, as not used.
unsafe fn pad(at: u64) {
    if fits(at, 8) {
        // SAFETY: a reserved word.
        unsafe { (*(at as *const AtomicU64)).store(start(op::PAD, 0, 0), Release) };
    }
}

/// False: there is no room, and the record is none of an event, which would count as lost.
#[cold]
#[inline(never)]
unsafe fn push_in_new_block(hot: *mut Hot, words: *const u64, n: usize, at: u64) -> bool {
    // SAFETY: the caller's hot.
    unsafe {
        if begins_in_vain(hot, at) {
            go_back(hot);
            return lost(hot, *words);
        }
    }
    let signals = sys::block_signals();
    let len = n as u64 * 8;
    // SAFETY: signals are blocked, so nothing on this thread comes in between.
    unsafe {
        // The words from `at` to the end of its block are this reservation's, whatever a handler has done since.
        pad(at);
        if !fits((*hot).cur, len) {
            pad((*hot).cur);
            if !begin_block(hot) {
                // Back to an address at which nothing fits, whatever was reserved beyond.
                (*hot).cur &= !(BLOCK as u64 - 1);
                sys::restore_signals(signals);
                return lost(hot, *words);
            }
        }
        let at = (*hot).cur;
        (*hot).cur = at + len;
        put(at, words, n);
    }
    sys::restore_signals(signals);
    true
}

/// A record that begins with this word has no room; false where it is none of an event.
unsafe fn lost(hot: *mut Hot, word: u64) -> bool {
    // SAFETY: the caller's hot.
    unsafe {
        // A child forked in a handler on top of us: the lane was the parent's.
        if loss(word) == Loss::Nothing || (*hot).lane.is_null() {
            return false;
        }
        lose((*hot).lane, loss(word));
        true
    }
}

/// Back to an address at which nothing fits, with signals as they are: unless a handler has begun a block meanwhile.
unsafe fn go_back(hot: *mut Hot) {
    // SAFETY: the caller's hot; one instruction, between which and the read before nothing else is done.
    unsafe {
        let cur = (&raw const (*hot).cur).read_volatile();
        if cur & (BLOCK as u64 - 1) < BLOCK_WORDS as u64 {
            let back = cur & !(BLOCK as u64 - 1);
            asm!("cmpxchg qword ptr [{c}], {b}", c = in(reg) &raw mut (*hot).cur, b = in(reg) back, inout("rax") cur => _, options(nostack));
        }
    }
}

/// Whether what is reserved at `at` lies in no block, and a block is not to be had now.
///
/// # Safety
/// `hot` is this thread's.
#[inline(always)]
pub unsafe fn begins_in_vain(hot: *mut Hot, at: u64) -> bool {
    // SAFETY: the caller's hot.
    at & (BLOCK as u64 - 1) < BLOCK_WORDS as u64 && unsafe { !(*hot).lane.is_null() } && spool::is_starved()
}

/// Gives the lane its next block. Signals are blocked. Waits within bounds when memory for rings is used up.
unsafe fn begin_block(hot: *mut Hot) -> bool {
    // SAFETY: the caller's hot.
    let first = unsafe {
        if (*hot).lane.is_null() {
            return false;
        }
        (*hot).block == 0
    };
    let Some(index) = spool::take_block(first) else { return false };
    // SAFETY: the block is ours until it is linked; the lane is this thread's.
    unsafe {
        let block: *mut Block = spool::block(index);
        (*block).next.store(0, Relaxed);
        (*block).lane.store((*hot).index, Relaxed);
        (*block).t_ns.store(sys::now(), Relaxed);
        if (*hot).block == 0 {
            (*(*hot).lane).first.store(index + 1, Release);
        } else {
            (*spool::block((*hot).block - 1)).next.store(index + 1, Release);
        }
        (*hot).block = index + 1;
        (*hot).cur = block as u64 + BLOCK_WORDS as u64;
    }
    writer::block_filled();
    true
}
