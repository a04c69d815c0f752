//! Finding the records of a ring block.

use crate::spool;
use crate::table::TABLE;
use core::sync::atomic::{AtomicU64, Ordering::*};
use memshim_format::live::PAGE_BITS;
use memshim_format::record::{self, op};
use memshim_format::spool::*;

/// Records of a chunk: byte offsets in their block. The search for them goes by cache lines, and writes one more.
static mut OFFSETS: [u16; CHUNK + 9] = [0; CHUNK + 9];
/// Chunks until the next one is looked at, and what the last one was found to be: see [`is_scattered`].
static mut SCATTERED: (u32, bool) = (0, false);
/// How far ahead of it the ring is fetched: another processor has written it.
const AHEAD: usize = 512;

/// Finds where up to [`CHUNK`] records begin, from byte `pos` of a block on, and brings their table lines nearer. The start of a record is
/// told by its bit alone, which breaks the chain from each one's length to the next; whether one follows where the one before ends is for
/// the caller to see. `beside`: what stands beside the addresses in the table.
#[inline(always)]
pub(super) unsafe fn scan(block: *mut Block, pos: usize, beside: u64) -> usize {
    let base = block as *const u8;
    let mut at = pos;
    let mut n = 0;
    // SAFETY: at stays within the block; the lock is held.
    unsafe {
        let offsets = (&raw mut OFFSETS).cast::<u16>();
        while at < BLOCK {
            // To the end of the cache line.
            let end = (at | 63) + 1;
            core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(base.wrapping_add(at + AHEAD).cast());
            let mut any = 0;
            while at < end {
                let w = (*(base.add(at) as *const AtomicU64)).load(Acquire);
                offsets.add(n).write(at as u16);
                n += (w >> 63) as usize;
                any |= w;
                at += 8;
            }
            if any == 0 || n >= CHUNK {
                break;
            }
        }
        let n = n.min(CHUNK);
        if TABLE.is_far() && is_scattered(base, n) {
            for k in 0..n {
                TABLE.prefetch_page(record::low_of(word(base, *offsets.add(k))) | beside);
            }
            for k in 0..n {
                let w = word(base, *offsets.add(k));
                if record::op_of(w) <= op::UNFREE {
                    TABLE.prefetch_entry(record::low_of(w) | beside);
                }
            }
        }
        n
    }
}

/// Whether the records of late concern blocks all over the place, so that asking for their lines beforehand pays. A chunk in eight is
/// looked at, for how many pages its later half is the first to touch: to ask costs a third of a record's time, and a program that works on
/// neighbours, or on the same two hundred pages over and over, has most lines at hand.
#[inline(always)]
unsafe fn is_scattered(base: *const u8, n: usize) -> bool {
    // SAFETY: the lock is held; the first n offsets are of words in the block.
    unsafe {
        let (turn, scattered) = SCATTERED;
        if turn > 0 || n < CHUNK / 2 {
            SCATTERED.0 = turn.saturating_sub(1);
            return scattered;
        }
        let mut pages = [0u64; 16];
        let mut touched = 0;
        for (k, at) in OFFSETS.iter().take(n).enumerate() {
            let page = (record::low_of(word(base, *at)) >> PAGE_BITS).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let (of, bit) = (&mut pages[(page >> 60) as usize], 1 << (page >> 54 & 63));
            touched += (k >= n / 2 && *of & bit == 0) as usize;
            *of |= bit;
        }
        SCATTERED = (7, touched * 5 > n * 2);
        SCATTERED.1
    }
}

/// The word at an offset of a block.
#[inline(always)]
unsafe fn word(base: *const u8, at: u16) -> u64 {
    // SAFETY: offsets are of words in the block.
    unsafe { base.add(at as usize).cast::<u64>().read() }
}

/// Bytes of record `k` of the chunk; 0 where it does not stand where the one before ends, or is padding.
#[inline(always)]
pub(super) unsafe fn next_len(block: *mut Block, c: &Commit, k: usize) -> usize {
    // SAFETY: offsets are of words in the block; the lock is held.
    unsafe {
        let at = OFFSETS[k % CHUNK];
        let w = word(block as *const u8, at);
        let len = record::words(w) * 8;
        if at as u32 == c.pos && record::op_of(w) != op::PAD && at as usize + len <= BLOCK { len } else { 0 }
    }
}

/// Whether a lane's ring has nothing to read as far as its next words tell. Records behind a longer hole are found when their block is left.
pub(super) unsafe fn is_idle(i: u32) -> bool {
    // SAFETY: i is below LANES; the drain's lock is held; words up to the block's end are its.
    unsafe {
        let lane = spool::lane(i);
        let c = spool::committed(lane);
        if c.block == 0 {
            return (*lane).first.load(Acquire) == 0;
        }
        let block = spool::block(c.block - 1);
        let first = c.pos as usize;
        let next_words = (first..(first + record::MAX_WORDS * 8).min(BLOCK)).step_by(8);
        (*block).next.load(Acquire) == 0 && next_words.into_iter().all(|at| word(block as *const u8, at as u16) == 0)
    }
}

/// Whether anything stands in a block from byte `pos`, a multiple of 8, on. Each lane that is read to its end asks it.
pub(super) unsafe fn follows(block: *mut Block, pos: usize) -> bool {
    use core::arch::x86_64::{_mm_cmpeq_epi8, _mm_load_si128, _mm_movemask_epi8, _mm_or_si128, _mm_setzero_si128};
    let base = block as *const u8;
    let lines = pos.next_multiple_of(64).min(BLOCK);
    // SAFETY: within the block, which is aligned to its size. A word that is written meanwhile is seen or not, as it would be by itself.
    unsafe {
        if (pos..lines).step_by(8).any(|at| (*(base.add(at) as *const AtomicU64)).load(Relaxed) != 0) {
            return true;
        }
        (lines..BLOCK).step_by(64).any(|at| {
            let part = |i: usize| _mm_load_si128(base.add(at + 16 * i).cast());
            let all = _mm_or_si128(_mm_or_si128(part(0), part(1)), _mm_or_si128(part(2), part(3)));
            _mm_movemask_epi8(_mm_cmpeq_epi8(all, _mm_setzero_si128())) != 0xffff
        })
    }
}
