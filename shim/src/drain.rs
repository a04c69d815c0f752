//! The drain: takes records out of the rings, resolves which block each free ends, and builds the pending batch of each lane.
//! One thread at a time, under [`LOCK`], with all signals blocked; usually the writer, else a thread whose ring is full.
//!
//! Order between threads. A free is pushed before the block can be anybody else's, an allocation after it is ours; so when a record is
//! visible, so is everything that had to happen before it, in whichever ring. A free whose block is not in the table therefore waits
//! (its lane is *parked*) until the other rings have been read to their ends; only then is it of an unknown block. So does an allocation
//! whose address is still taken: the free is in another ring. Where two threads
//! exchange one address quickly the order cannot be known and two blocks may swap identity, never number: a free written as
//! unknown leaves a *debt* at its address, and the next allocation read there settles it; an allocation where a block still lies waits
//! beside it for the free that is to come.

use crate::config::{CONFIG, FAST};
use crate::kinds::{KINDS, replaces};
use crate::lane::LANES;
use crate::shelf::Shelf;
use crate::spool;
use crate::table::{Inserted, Slot, TABLE};
use crate::{lines, sys};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use memshim_format::live::{Entry, KEY_BITS, SEQ_MASK};
use memshim_format::record::{self, op};
use memshim_format::spool::*;
use memshim_format::v93;

/// Thread that drains, 0 when none does.
pub static LOCK: AtomicU32 = AtomicU32::new(0);

/// Takes the lock if it is free.
pub fn try_lock(tid: u32) -> bool {
    LOCK.compare_exchange(0, tid, Acquire, Relaxed).is_ok()
}

/// Gives the lock back.
pub fn unlock() {
    LOCK.store(0, Release);
}

/// Where one lane's draining stopped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// Nothing to read now.
    Empty,
    /// More to read.
    More,
    /// A free waits for other lanes.
    Parked,
}

/// Frees of unknown blocks, by address, that an allocation of the same usable size (kept as sequence number) read later may settle.
static mut DEBTS: Shelf = Shelf::new();

/// Blocks given out at an address whose block before was not yet seen to end: its free is in another ring, or went past us. A free takes
/// the block in the table, the older one; then the younger takes its place.
static mut YOUNGER: Shelf = Shelf::new();

/// Addresses freed last (direct mapped). In a forked child a free of an unknown block is a debt only where
/// the same address was freed shortly before: else it is a block of the parent's, and nothing will settle it.
static mut RECENT: [u64; 4096] = [0; 4096];

/// When each lane was last seen empty; what comes later is younger.
static mut SEEN_EMPTY: [u64; LANES_MAX] = [0; LANES_MAX];
/// Since when a lane is stuck at a zero word; 0 not at all, [`ABANDONED`] when its block holds one that was passed.
static mut STUCK_SINCE: [u64; LANES_MAX] = [0; LANES_MAX];
/// A zero word that stays for so long was left by a handler that jumped out of a hook.
const ABANDONED_NS: u64 = 1_000_000_000;
const ABANDONED: u64 = 1;

/// Records of a chunk: byte offsets in their block. The search for them goes by cache lines, and writes one more.
static mut OFFSETS: [u16; CHUNK + 9] = [0; CHUNK + 9];
/// Chunks until the next one is looked at, and what the last one was found to be: see [`is_scattered`].
static mut SCATTERED: (u32, bool) = (0, false);
/// How far ahead of it the ring is fetched: another processor has written it.
const AHEAD: usize = 512;

/// Starts anew: the first image, or a forked child (`child`), where memory holds what was the parent's.
pub fn reset(child: bool) {
    LOCK.store(0, Relaxed);
    // SAFETY: one thread.
    unsafe {
        DEBTS.clear();
        YOUNGER.clear();
        if child {
            SEEN_EMPTY = [0; LANES_MAX];
            STUCK_SINCE = [0; LANES_MAX];
        }
        TABLE.reset();
        KINDS.reset();
    }
}

/// Blocks that one [`drain`] reads; threads that fill rings without end must not keep the drain from everything else.
const BLOCKS: u32 = 2048;

/// Lanes that could not go on since anything was read last: 1 empty, 2 parked.
static mut HALTED: [u8; LANES_MAX] = [0; LANES_MAX];

/// Reads the rings: to their ends, or a bounded piece of them (then true). `last`: recording has ended, so their ends are near, and no hole
/// is waited for. The lock is held.
///
/// Of all lanes the one goes on whose block was begun first, a block at a time: threads run at very different speeds, and the nearer the
/// records come to the order in which they were made, the less has to be set aside.
pub fn drain(last: bool) -> bool {
    let now = sys::now();
    let mut blocks = 0;
    // SAFETY: the lock is held.
    let halted = unsafe { &mut *(&raw mut HALTED) };
    let mut lanes = LANES.load(Acquire);
    resume(halted, lanes);
    let more = loop {
        if blocks > BLOCKS && !last {
            break true;
        }
        if let Some(i) = earliest(halted, lanes, 0) {
            let (stop, read) = drain_lane(i, now, false, last);
            if read {
                blocks += 1;
                lanes = LANES.load(Acquire);
                resume(halted, lanes);
            }
            halted[i as usize % LANES_MAX] = match stop {
                Stop::Empty => 1,
                Stop::Parked => 2,
                Stop::More => 0,
            };
        } else if let Some(i) = earliest(halted, lanes, 2) {
            // Every other ring has been read to its end, or waits too: what is waited for is not there, or not in that order.
            blocks += 1;
            drain_lane(i, now, true, last);
            resume(halted, lanes);
        } else {
            // SAFETY: the lock is held.
            unsafe { all_read() };
            break false;
        }
    };
    spool::wake_waiters(true);
    more
}

fn resume(halted: &mut [u8; LANES_MAX], lanes: u32) {
    for h in halted.iter_mut().take(lanes as usize) {
        *h = 0;
    }
}

/// Of the lanes halted in this way, the one whose block at the head was begun first.
fn earliest(halted: &[u8; LANES_MAX], lanes: u32, how: u8) -> Option<u32> {
    let mut best = None;
    let mut least = u64::MAX;
    for (i, h) in halted.iter().enumerate().take(lanes as usize) {
        if *h != how {
            continue;
        }
        if lanes == 1 {
            return Some(0);
        }
        // SAFETY: i is below LANES; the lock is held.
        let t = unsafe {
            let lane = spool::lane(i as u32);
            let c = &(*lane).commit[(*lane).which.load(Relaxed) as usize & 1];
            let block = if c.block == 0 { (*lane).first.load(Acquire) } else { c.block };
            if block == 0 { u64::MAX - 1 } else { (*spool::block(block - 1)).t_ns.load(Relaxed) }
        };
        if t < least {
            least = t;
            best = Some(i as u32);
        }
    }
    best
}

/// Reads up to a block of lane `i`. Returns where it stopped and whether anything was read.
fn drain_lane(i: u32, now: u64, mut force: bool, last: bool) -> (Stop, bool) {
    // SAFETY: i is below LANES; the lock is held, so the consumer side is ours.
    unsafe {
        let lane = spool::lane(i);
        let mut c = (*lane).commit[(*lane).which.load(Relaxed) as usize & 1];
        if c.block == 0 {
            c.block = (*lane).first.load(Acquire);
            c.pos = BLOCK_WORDS as u32;
            if c.block == 0 {
                return (Stop::Empty, false);
            }
        }
        let mut read_any = false;
        let first_block = c.block;
        loop {
            let block = spool::block(c.block - 1);
            let n = scan(block, c.pos as usize);
            if n == 0 || !is_next(block, &c, 0) {
                match pass_gap(i, lane, &mut c, block, now, last) {
                    Gap::Next if c.block == first_block || !read_any => continue,
                    Gap::Next => return (Stop::More, true),
                    Gap::Passed => continue,
                    Gap::Wait => {
                        set_seen_empty(i, now);
                        return (Stop::Empty, read_any);
                    }
                }
            }
            let stuck = &mut STUCK_SINCE[i as usize % LANES_MAX];
            if *stuck != ABANDONED {
                *stuck = 0;
            }
            stamp(i, lane, &mut c, block);
            begin_chunk(i, lane);
            let mut parked = false;
            let mut done = 0;
            let n = n.min(room(&c));
            while done < n && is_next(block, &c, done) {
                let at = c.pos as usize;
                if !take(i, lane, &mut c, (block as *const u8).add(at).cast(), force) {
                    parked = true;
                    break;
                }
                force = false;
                let w = ((block as *const u8).add(at) as *const u64).read();
                c.pos = (at + record::words(w) * 8) as u32;
                done += 1;
            }
            commit(lane, &c);
            read_any |= done > 0;
            if room(&c) == 0 {
                lines::flush_group();
                c = (*lane).commit[(*lane).which.load(Relaxed) as usize & 1];
            }
            if parked {
                return (Stop::Parked, read_any);
            }
        }
    }
}

/// Whether record `k` of the chunk stands where the one before ends, and is no padding.
#[inline(always)]
unsafe fn is_next(block: *mut Block, c: &Commit, k: usize) -> bool {
    // SAFETY: offsets are of words in the block; the lock is held.
    unsafe {
        let at = OFFSETS[k % CHUNK];
        let w = word(block as *const u8, at);
        at as u32 == c.pos && record::op_of(w) != op::PAD && at as usize + record::words(w) * 8 <= BLOCK
    }
}

/// Records that the columns of a lane have room for, whatever they are. The longest: a realloc of a raw kind with a foreign old block
/// takes up to six numbers of `k` or `x` and two of `z`; stamps leave room by themselves.
#[inline(always)]
fn room(c: &Commit) -> usize {
    let k = (K_CAP - c.k_len as usize) / (6 * v93::MAX_LEN);
    let x = (X_CAP - c.x_len as usize) / (6 * v93::MAX_LEN);
    let z = (Z_CAP - c.z_len as usize) / (2 * v93::MAX_LEN);
    k.min(x).min(z)
}

fn set_seen_empty(i: u32, now: u64) {
    // SAFETY: the lock is held.
    unsafe { SEEN_EMPTY[i as usize % LANES_MAX] = now };
}

/// Finds where up to [`CHUNK`] records begin, from byte `pos` of a block on, and brings their table lines nearer. The start of a record is
/// told by its bit alone, which breaks the chain from each one's length to the next; whether one follows where the one before ends is for
/// the caller to see.
#[inline(always)]
unsafe fn scan(block: *mut Block, pos: usize) -> usize {
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
                TABLE.prefetch_page(record::low_of(word(base, *offsets.add(k))));
            }
            for k in 0..n {
                let w = word(base, *offsets.add(k));
                if record::op_of(w) <= op::UNFREE {
                    TABLE.prefetch_entry(record::low_of(w));
                }
            }
        }
        n
    }
}

/// Whether the records of late concern blocks all over the place, so that asking for their lines beforehand pays. A chunk in eight is
/// looked at, for how many pages it touches: to ask costs a third of a record's time, and a program that works on neighbours has most
/// lines at hand.
#[inline(always)]
unsafe fn is_scattered(base: *const u8, n: usize) -> bool {
    // SAFETY: the lock is held; the first n offsets are of words in the block.
    unsafe {
        let (turn, scattered) = SCATTERED;
        if turn > 0 || n < CHUNK / 2 {
            SCATTERED.0 = turn.saturating_sub(1);
            return scattered;
        }
        let mut pages = 0u64;
        for at in OFFSETS.iter().take(n) {
            let page = record::low_of(word(base, *at)) >> KEY_BITS;
            pages |= 1 << (page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58);
        }
        SCATTERED = (7, pages.count_ones() as usize * 4 > n);
        SCATTERED.1
    }
}

/// The word at an offset of a block.
#[inline(always)]
unsafe fn word(base: *const u8, at: u16) -> u64 {
    // SAFETY: offsets are of words in the block.
    unsafe { base.add(at as usize).cast::<u64>().read() }
}

enum Gap {
    Next,
    Passed,
    Wait,
}

/// At something that is no record: the end of a block, a word not written yet, or one left behind.
unsafe fn pass_gap(i: u32, lane: *mut Lane, c: &mut Commit, block: *mut Block, now: u64, last: bool) -> Gap {
    // SAFETY: the block is the lane's; the lock is held.
    unsafe {
        let w =
            if c.pos as usize + 8 <= BLOCK { (*((block as *const u8).add(c.pos as usize) as *const AtomicU64)).load(Acquire) } else { 0 };
        let at_end = c.pos as usize + 8 > BLOCK || record::op_of(w) == op::PAD && w & record::START != 0;
        let next = (*block).next.load(Acquire);
        let stuck = &mut STUCK_SINCE[i as usize % LANES_MAX];
        if at_end {
            if next == 0 {
                return Gap::Wait;
            }
            let whole = *stuck != ABANDONED;
            let old = c.block;
            c.block = next;
            c.pos = BLOCK_WORDS as u32;
            *stuck = 0;
            commit(lane, c);
            // A block with an abandoned word is not used again: the thread might still write there.
            if whole {
                core::ptr::write_bytes((block as *mut u8).add(BLOCK_WORDS), 0, BLOCK - BLOCK_WORDS);
                (*block).next.store(0, Relaxed);
                spool::give_block(old - 1);
                spool::wake_waiters(false);
            }
            return Gap::Next;
        }
        if w & record::START != 0 {
            // A record that would not fit its block: damaged by the program. Skip the block.
            c.pos = BLOCK as u32;
            return Gap::Passed;
        }
        // A zero (or argument) word: being written, or abandoned. It can only be abandoned if something follows it.
        if next == 0 && !follows(block, c.pos as usize) {
            return Gap::Wait;
        }
        if *stuck <= ABANDONED {
            *stuck = now;
        }
        if !last && (now - (*stuck).min(now)) < ABANDONED_NS {
            return Gap::Wait;
        }
        (*lane).lost.fetch_add(1, Relaxed);
        while c.pos as usize + 8 <= BLOCK
            && (*((block as *const u8).add(c.pos as usize) as *const AtomicU64)).load(Acquire) & record::START == 0
        {
            c.pos += 8;
        }
        *stuck = ABANDONED;
        Gap::Passed
    }
}

unsafe fn follows(block: *mut Block, pos: usize) -> bool {
    let mut at = pos;
    while at + 8 <= BLOCK {
        // SAFETY: within the block.
        if unsafe { (*((block as *const u8).add(at) as *const AtomicU64)).load(Relaxed) } != 0 {
            return true;
        }
        at += 8;
    }
    false
}

/// Makes `c` the lane's state. With it the entries that its chunk killed are gone for good.
#[inline(always)]
unsafe fn commit(lane: *mut Lane, c: &Commit) {
    // SAFETY: the lock is held.
    unsafe {
        let other = ((*lane).which.load(Relaxed) & 1) ^ 1;
        (*lane).commit[other as usize] = *c;
        (*lane).which.store(other, Release);
    }
}

/// Begins a chunk of a lane: what it kills counts until it is committed.
#[inline(always)]
unsafe fn begin_chunk(i: u32, lane: *mut Lane) {
    // SAFETY: the lock is held; the header is there.
    unsafe {
        let h = spool::header();
        (*h).killed_len.store(0, Release);
        (*h).killer.store((i << 1 | (*lane).which.load(Relaxed) & 1) + 1, Release);
    }
}

/// Notes the earliest time at which the records that follow can have happened.
#[inline(always)]
unsafe fn stamp(i: u32, lane: *mut Lane, c: &mut Commit, block: *mut Block) {
    // SAFETY: the lock is held; the columns are the drain's.
    unsafe {
        let begun = if c.pos as usize == BLOCK_WORDS { (*block).t_ns.load(Relaxed) } else { 0 };
        let from = begun.max(SEEN_EMPTY[i as usize % LANES_MAX]);
        if c.events == 0 {
            c.t0 = from.max(c.stamp_ns);
            if c.t0 == 0 {
                c.t0 = (*block).t_ns.load(Relaxed);
            }
            c.stamp_ns = c.t0;
            c.stamp_events = 0;
            return;
        }
        if from < c.stamp_ns + TICK || c.t_len as usize + 2 * v93::MAX_LEN > T_CAP {
            return;
        }
        let ticks = (from - c.stamp_ns) / TICK;
        let t = (*lane).t.as_mut_ptr();
        c.t_len += v93::put(t.add(c.t_len as usize), (c.events - c.stamp_events) as u64) as u32;
        c.t_len += v93::put(t.add(c.t_len as usize), ticks) as u32;
        c.stamp_events = c.events;
        c.stamp_ns += ticks * TICK;
    }
}

/// Unit of column `t`, ns.
pub const TICK: u64 = 100;

/// Takes one record over into the pending batch. False: it has to wait for other lanes.
#[inline(always)]
unsafe fn take(i: u32, lane: *mut Lane, c: &mut Commit, words: *const u64, force: bool) -> bool {
    // SAFETY: the record is whole; the lock is held.
    unsafe {
        let w = *words;
        let o = record::op_of(w);
        if o == op::FREE {
            return take_free(i, lane, c, w, words, force);
        }
        if o < op::FREE {
            return take_alloc(i, lane, c, w, words, force);
        }
        take_other(i, lane, c, w, words, force)
    }
}

#[inline(always)]
unsafe fn put_k(lane: *mut Lane, c: &mut Commit, code: u64) {
    // SAFETY: lines_full left room.
    unsafe { c.k_len += v93::put((*lane).k.as_mut_ptr().add(c.k_len as usize), code) as u32 };
}

#[inline(always)]
unsafe fn put_x(lane: *mut Lane, c: &mut Commit, v: u64) {
    // SAFETY: lines_full left room.
    unsafe { c.x_len += v93::put((*lane).x.as_mut_ptr().add(c.x_len as usize), v) as u32 };
}

#[inline(always)]
unsafe fn take_alloc(i: u32, lane: *mut Lane, c: &mut Commit, w: u64, words: *const u64, force: bool) -> bool {
    // SAFETY: the record is whole.
    unsafe {
        let addr3 = record::low_of(w);
        let arg = record::arg_of(w);
        let mut flags = (arg & 7) as u8;
        let (size, usable) = if arg & record::WIDE != 0 {
            (*words.add(1), *words.add(2))
        } else {
            let v = *words.add(1);
            (v & 0xff_ffff_ffff, (v & 0xff_ffff_ffff) + (v >> 40))
        };
        let func = record::op_of(w) - op::ALLOC;
        let pend = c.pend;
        if pend.what == 0 {
            flags &= !(record::REPLACES as u8);
        }
        let (n, raw) = KINDS.number(func, size, usable.wrapping_sub(size), flags);
        if n == 0 {
            (*lane).lost.fetch_add(1, Relaxed);
            return true;
        }
        let entry = Entry::new(i, c.seq, usable);
        let owed = !DEBTS.is_empty() && DEBTS.take(addr3, |d| d.low_seq() == usable & SEQ_MASK).is_some();
        // Where it is owed it has ended already: it stands nowhere.
        if !owed && !put_block(i, lane, c, addr3, entry, force) {
            return false; // the free of the block before is in another ring
        }
        put_k(lane, c, n as u64 * 3);
        if raw {
            let z = (*lane).z.as_mut_ptr();
            c.z_len += v93::put(z.add(c.z_len as usize), size) as u32;
            c.z_len += v93::put(z.add(c.z_len as usize), usable.wrapping_sub(size)) as u32;
        }
        c.seq += 1;
        c.events += 1;
        c.allocs += 1;
        c.bytes += size;
        c.live += usable as i64;
        if replaces(flags) {
            end_pending(lane, c);
        }
        if c.live > c.peak {
            c.peak = c.live;
        }
        if owed {
            settle(lane, c);
        }
    }
    true
}

/// Puts a new block into the table, or beside it. False: another lies at its address, whose end may be in another ring.
#[inline(always)]
unsafe fn put_block(i: u32, lane: *mut Lane, c: &mut Commit, addr3: u64, entry: Entry, force: bool) -> bool {
    // SAFETY: the lock is held.
    unsafe {
        match TABLE.insert(addr3, entry) {
            Inserted::Yes => return true,
            Inserted::Taken(slot) if LANES.load(Relaxed) == 1 || YOUNGER.is_full() => {
                end_unseen(i, lane, c, addr3, slot);
                if matches!(TABLE.insert(addr3, entry), Inserted::Yes) {
                    return true;
                }
            }
            Inserted::Taken(_) if force => {
                YOUNGER.put(addr3, entry);
                return true;
            }
            Inserted::Taken(_) => return false,
            Inserted::NoMemory => {}
        }
        (*lane).lost.fetch_add(1, Relaxed);
    }
    true
}

/// A block's end went past us (a library bound to the C library directly, a lost record): it is seen when its address is given out
/// again. Its free is written here; the usable size is not known, so live bytes by usable size keep it.
#[cold]
#[inline(never)]
unsafe fn end_unseen(i: u32, lane: *mut Lane, c: &mut Commit, addr3: u64, slot: Slot) {
    // SAFETY: the lock is held.
    unsafe {
        let e = TABLE.get(slot);
        kill(addr3, slot, e);
        put_block_free(i, lane, c, e);
        not_a_call(c);
        c.frees += 1;
    }
}

/// An event of the batch that stands for no call of the program.
unsafe fn not_a_call(c: &mut Commit) {
    c.events += 1;
    // SAFETY: the header is there; batches add all their events when they are written.
    unsafe { (*spool::header()).recorded.fetch_sub(1, Relaxed) };
}

#[inline(always)]
unsafe fn put_block_free(i: u32, lane: *mut Lane, c: &mut Commit, e: Entry) {
    // SAFETY: the lock is held.
    unsafe {
        if e.lane() == i {
            put_own_free(lane, c, e.seq(c.seq));
        } else {
            put_foreign_free(lane, c, e.lane(), foreign_seq(e));
        }
    }
}

/// Sequence number of a block of another lane than the one being read.
unsafe fn foreign_seq(e: Entry) -> u64 {
    // SAFETY: lanes of entries exist; the lock is held.
    unsafe {
        let owner = spool::lane(e.lane());
        e.seq((*owner).commit[(*owner).which.load(Relaxed) as usize & 1].seq)
    }
}

/// The old block of a realloc ends: its code follows the new block's (or stands alone).
unsafe fn end_pending(lane: *mut Lane, c: &mut Commit) {
    let p = c.pend;
    c.pend = Pending::default();
    // SAFETY: the lock is held.
    unsafe {
        match p.what {
            1 => put_own_free(lane, c, p.seq),
            2 => put_foreign_free(lane, c, p.lane, p.seq),
            3 => put_unknown_free(lane, c, p.seq, p.usable),
            _ => return,
        }
    }
    c.frees += 1;
    c.live -= p.usable as i64;
}

#[inline(always)]
unsafe fn put_own_free(lane: *mut Lane, c: &mut Commit, seq: u64) {
    let age = c.seq - seq;
    let delta = seq as i64 - c.prev as i64;
    let code = if age > 40 && delta != 0 && (-20..=20).contains(&delta) { v93::zigzag(delta) * 3 + 2 } else { age * 3 + 1 };
    c.prev = seq;
    // SAFETY: the lock is held.
    unsafe { put_k(lane, c, code) };
}

unsafe fn put_foreign_free(lane: *mut Lane, c: &mut Commit, owner: u32, seq: u64) {
    // SAFETY: the lock is held.
    unsafe {
        put_k(lane, c, 1);
        put_x(lane, c, owner as u64 + 1);
        let last = &mut c.x_last[owner as usize & 7];
        let v = v93::zigzag(seq as i64 - *last as i64);
        *last = seq;
        put_x(lane, c, v);
    }
}

unsafe fn put_unknown_free(lane: *mut Lane, c: &mut Commit, addr3: u64, usable: u64) {
    // SAFETY: the lock is held.
    unsafe {
        put_k(lane, c, 1);
        put_x(lane, c, 0);
        put_x(lane, c, addr3);
        put_x(lane, c, usable);
        (*spool::header()).unknown_frees.fetch_add(1, Relaxed);
        let known = crate::init::inherited().is_none() || RECENT[addr3 as usize >> 1 & 4095] == addr3;
        if !DEBTS.is_full() && LANES.load(Relaxed) > 1 && known {
            DEBTS.put(addr3, Entry::new(0, usable, usable));
        }
    }
}

/// The block just allocated was ended by a free that was read before it and written as unknown.
#[cold]
#[inline(never)]
unsafe fn settle(lane: *mut Lane, c: &mut Commit) {
    // SAFETY: the lock is held.
    unsafe {
        put_k(lane, c, 2);
        not_a_call(c);
        (*spool::header()).unknown_frees.fetch_sub(1, Relaxed);
    }
}

/// Takes a block out of the table; until the chunk is committed, a reader of a dead process's spool finds it in the header.
#[inline(always)]
unsafe fn kill(addr3: u64, slot: Slot, e: Entry) {
    // SAFETY: the lock is held. A chunk kills at most one block a record, so that there is room.
    unsafe {
        let h = spool::header();
        let n = (*h).killed_len.load(Relaxed);
        (*h).killed[n as usize % CHUNK] = Killed { addr3, entry: e.0 };
        (*h).killed_len.store(n + 1, Release);
        TABLE.take(slot);
        if !YOUNGER.is_empty() {
            promote(addr3);
        }
    }
}

/// The oldest of the younger blocks of an address takes its place in the table.
#[cold]
#[inline(never)]
unsafe fn promote(addr3: u64) {
    // SAFETY: the lock is held.
    unsafe {
        if let Some(e) = YOUNGER.take(addr3, |_| true) {
            TABLE.insert(addr3, e);
        }
    }
}

/// All rings have been read to their ends. What could have settled a debt, or ended the older of two blocks of one address, was visible
/// when that was found, and has been read: the debts are of unknown blocks, and the older blocks' ends went past us.
unsafe fn all_read() {
    // SAFETY: the lock is held; lanes of entries exist.
    unsafe {
        DEBTS.clear();
        while let Some((addr3, e)) = YOUNGER.any() {
            let Some(slot) = TABLE.find(addr3) else {
                promote(addr3);
                continue;
            };
            let lane = spool::lane(e.lane());
            let mut c = (*lane).commit[(*lane).which.load(Relaxed) as usize & 1];
            if room(&c) == 0 {
                lines::flush_group();
                c = (*lane).commit[(*lane).which.load(Relaxed) as usize & 1];
            }
            begin_chunk(e.lane(), lane);
            end_unseen(e.lane(), lane, &mut c, addr3, slot);
            commit(lane, &c);
        }
    }
}

/// Usable size that a FREE or REALLOC_FREE record states.
#[inline(always)]
unsafe fn freed_usable(w: u64, words: *const u64) -> u64 {
    let units = record::arg_of(w);
    // SAFETY: units 0 has an argument word.
    if units == 0 { unsafe { *words.add(1) } } else { units * 16 - 8 }
}

/// The block that a free of this address and usable size ends. A block of another size there is another one: this one's allocation, or the
/// end of that one, is still in a ring.
#[inline(always)]
unsafe fn find_freed(addr3: u64, usable: u64) -> Option<Slot> {
    // SAFETY: the lock is held.
    unsafe {
        let slot = TABLE.find(addr3)?;
        if TABLE.get(slot).can_be(usable) || LANES.load(Relaxed) == 1 { Some(slot) } else { None }
    }
}

#[inline(always)]
unsafe fn take_free(i: u32, lane: *mut Lane, c: &mut Commit, w: u64, words: *const u64, force: bool) -> bool {
    let addr3 = record::low_of(w);
    // SAFETY: the lock is held.
    unsafe {
        let usable = freed_usable(w, words);
        let Some(slot) = find_freed(addr3, usable) else {
            if !YOUNGER.is_empty()
                && let Some(e) = YOUNGER.take(addr3, |e| e.can_be(usable))
            {
                // Beside a block of another size, which came after it.
                put_block_free(i, lane, c, e);
                c.events += 1;
                c.frees += 1;
                c.live -= usable as i64;
                return true;
            }
            return take_unknown_free(lane, c, addr3, usable, force);
        };
        let e = TABLE.get(slot);
        kill(addr3, slot, e);
        put_block_free(i, lane, c, e);
        if LANES.load(Relaxed) > 1 {
            RECENT[addr3 as usize >> 1 & 4095] = addr3;
        }
        c.events += 1;
        c.frees += 1;
        c.live -= freed_usable(w, words) as i64;
    }
    true
}

#[cold]
#[inline(never)]
unsafe fn take_unknown_free(lane: *mut Lane, c: &mut Commit, addr3: u64, usable: u64, force: bool) -> bool {
    if !force && LANES.load(Relaxed) > 1 {
        return false;
    }
    // SAFETY: settings are read-only.
    if unsafe { CONFIG.mode } == FAST {
        return true; // of a block that was not recorded
    }
    // SAFETY: the lock is held.
    unsafe { put_unknown_free(lane, c, addr3, usable) };
    c.events += 1;
    c.frees += 1;
    c.live -= usable as i64;
    true
}

#[inline(never)]
unsafe fn take_other(i: u32, lane: *mut Lane, c: &mut Commit, w: u64, words: *const u64, force: bool) -> bool {
    // SAFETY: the record is whole; the lock is held.
    unsafe {
        let low = record::low_of(w);
        match record::op_of(w) {
            op::REALLOC_FREE => {
                let usable = freed_usable(w, words);
                let pend = match find_freed(low, usable) {
                    Some(slot) => {
                        let e = TABLE.get(slot);
                        kill(low, slot, e);
                        let (what, seq) = if e.lane() == i { (1, e.seq(c.seq)) } else { (2, foreign_seq(e)) };
                        Pending { what, lane: e.lane(), seq, usable }
                    }
                    None if !force && LANES.load(Relaxed) > 1 => return false,
                    None if CONFIG.mode == FAST => Pending::default(),
                    None => Pending { what: 3, lane: 0, seq: low, usable },
                };
                // One was begun and left by a handler that jumped out: it ended its block, as far as one can tell.
                finish_pending(lane, c);
                c.pend = pend;
            }
            op::UNFREE => {
                let p = c.pend;
                c.pend = Pending::default();
                if p.what == 1 || p.what == 2 {
                    let e = Entry::new(if p.what == 1 { i } else { p.lane }, p.seq, p.usable);
                    TABLE.insert(low, e);
                }
            }
            op::REALLOC_DONE => finish_pending(lane, c),
            op::THREAD_START | op::THREAD_END => lines::thread(i, c.seq, w, words),
            op::CHILD => lines::child(w, words),
            _ => lines::map(i, w, words),
        }
    }
    true
}

unsafe fn finish_pending(lane: *mut Lane, c: &mut Commit) {
    if c.pend.what != 0 {
        c.events += 1;
        // SAFETY: the lock is held.
        unsafe { end_pending(lane, c) };
    }
}

/// The batch of lane `i` has been written: it starts anew.
pub fn restart_batch(i: u32) {
    // SAFETY: i is below LANES; the lock is held.
    unsafe {
        let lane = spool::lane(i);
        let mut c = (*lane).commit[(*lane).which.load(Relaxed) as usize & 1];
        c.seq0 = c.seq;
        (c.events, c.k_len, c.x_len, c.z_len, c.t_len, c.stamp_events) = (0, 0, 0, 0, 0, 0);
        (c.allocs, c.frees, c.bytes) = (0, 0, 0);
        c.prev = c.seq;
        c.peak = c.live;
        c.x_last = [0; 8];
        let other = ((*lane).which.load(Relaxed) & 1) ^ 1;
        (*lane).commit[other as usize] = c;
        (*lane).which.store(other, Release);
    }
}
