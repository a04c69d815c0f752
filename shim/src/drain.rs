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

mod blocks;
mod columns;
mod order;
mod ring;
mod stacks;

use crate::kinds::KINDS;
use crate::lane::LANES;
use crate::spool;
use crate::table::TABLE;
use crate::{lines, sys};
use columns::room;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use memshim_format::record::{self, Here, op};
use memshim_format::spool::*;
use memshim_format::v93;
use order::Next;
use ring::{follows, is_idle, next_len, scan};

pub use blocks::samples;
pub use order::read_before;

/// Thread that drains, 0 when none does.
pub static LOCK: AtomicU32 = AtomicU32::new(0);

/// Threads that wait for the lock to write the end, or before an exec: nobody else takes it before them. Threads that fill rings without
/// pause would keep it busy for ever.
static WANTED: AtomicU32 = AtomicU32::new(0);

/// Takes the lock if it is free and nobody waits for it.
pub fn try_lock(tid: u32) -> bool {
    WANTED.load(Relaxed) == 0 && lock_if_free(tid)
}

fn lock_if_free(tid: u32) -> bool {
    LOCK.compare_exchange(0, tid, Acquire, Relaxed).is_ok()
}

/// Takes the lock, waiting at most a second for the one who has it. Signals are blocked.
pub fn lock_within_a_second() -> bool {
    let me = sys::gettid();
    let until = sys::now() + 1_000_000_000;
    WANTED.fetch_add(1, SeqCst);
    let mut turns = 0;
    let got = loop {
        if lock_if_free(me) {
            break true;
        }
        if sys::now() > until {
            break false;
        }
        turns += 1;
        match LOCK.load(Relaxed) {
            // To read a full ring takes milliseconds.
            holder if holder != 0 && turns > YIELDS => sys::futex_wait(&LOCK, holder, 1_000_000),
            _ => sys::yield_now(),
        }
    };
    WANTED.fetch_sub(1, Relaxed);
    got
}

/// How often who waits for the lock looks again before it sleeps.
const YIELDS: u32 = 16;

/// Gives the lock back.
pub fn unlock() {
    LOCK.store(0, SeqCst);
    if WANTED.load(SeqCst) > 0 {
        sys::futex_wake(&LOCK);
    }
}

/// Where one lane's draining stopped.
enum Stop {
    /// Nothing to read now.
    Empty,
    /// More to read.
    More,
    /// Its next record waits for what other lanes tell of this address >> 3.
    Parked(u64),
}

/// When each lane was last seen empty; what comes later is younger.
static mut SEEN_EMPTY: [u64; LANES_MAX] = [0; LANES_MAX];
/// When each lane was first seen empty after the events that were read last; 0: not yet. They are no younger.
static mut EMPTY_AFTER: [u64; LANES_MAX] = [0; LANES_MAX];
/// Since when a lane is stuck at a zero word; 0 not at all, [`ABANDONED`] when its block holds one that was passed.
static mut STUCK_SINCE: [u64; LANES_MAX] = [0; LANES_MAX];
/// A zero word that stays for so long was left by a handler that jumped out of a hook.
const ABANDONED_NS: u64 = 1_000_000_000;
const ABANDONED: u64 = 1;

/// Starts anew: the first image, or a forked child (`child`), where memory holds what was the parent's.
pub fn reset(child: bool) {
    LOCK.store(0, Relaxed);
    WANTED.store(0, Relaxed);
    // SAFETY: one thread.
    unsafe {
        blocks::reset(child);
        if child {
            order::reset();
            SEEN_EMPTY = [0; LANES_MAX];
            EMPTY_AFTER = [0; LANES_MAX];
            STUCK_SINCE = [0; LANES_MAX];
        }
        TABLE.reset();
        KINDS.reset();
    }
}

/// Blocks that one [`drain`] reads; threads that fill rings without end must not keep the drain from everything else.
const BLOCKS: u32 = 2048;

/// Reads the rings: to their ends, or a bounded piece of them (then true). `last`: recording has ended, so their ends are near, and no hole
/// is waited for. The lock is held.
pub fn drain(last: bool) -> bool {
    let now = sys::now();
    let mut blocks = 0;
    order::begin(now);
    if !last {
        // Of a thousand threads most are idle: those are told at a glance, and take no turn.
        for i in 0..LANES.load(Acquire) {
            // SAFETY: i is below LANES; the lock is held.
            if unsafe { is_idle(i) } {
                set_seen_empty(i, now);
                order::empty(i);
            }
        }
    }
    let more = loop {
        if blocks > BLOCKS && !last {
            break true;
        }
        let (i, force) = match order::next(blocks::any_aside()) {
            Next::Lane(i) => (i, false),
            Next::Forced(i) => (i, true),
            Next::Nobody => {
                // SAFETY: the lock is held.
                unsafe { blocks::all_read() };
                break false;
            }
        };
        match drain_lane(i, sys::now(), force, last) {
            // Not a block: of many lanes all are looked at, or there would be no getting on.
            Stop::Empty => order::empty(i),
            Stop::Parked(addr3) => {
                blocks += 1;
                order::park(i, addr3);
            }
            Stop::More => {
                blocks += 1;
                order::advanced(i);
            }
        }
    };
    spool::wake_waiters(true);
    more
}

/// Reads up to a block of lane `i`. Returns where it stopped.
fn drain_lane(i: u32, now: u64, mut force: bool, last: bool) -> Stop {
    // SAFETY: i is below LANES; the lock is held, so the consumer side is ours.
    unsafe {
        let lane = spool::lane(i);
        let mut c = spool::committed(lane);
        if c.block == 0 {
            c.block = (*lane).first.load(Acquire);
            c.pos = BLOCK_WORDS as u32;
            if c.block == 0 {
                return Stop::Empty;
            }
        }
        let mut read_any = false;
        let first_block = c.block;
        loop {
            let block = spool::block(c.block - 1);
            let n = scan(block, c.pos as usize, blocks::place_of(lane, 0));
            if n == 0 || next_len(block, &c, 0) == 0 {
                match pass_gap(i, lane, &mut c, block, now, last) {
                    Gap::Next if c.block == first_block || !read_any => continue,
                    Gap::Next => return Stop::More,
                    Gap::Passed => continue,
                    Gap::Wait => {
                        // Not at a hole: what stands behind it was written before.
                        if STUCK_SINCE[i as usize % LANES_MAX] <= ABANDONED {
                            if read_any {
                                // Some of it was written after the clock was asked.
                                EMPTY_AFTER[i as usize % LANES_MAX] = sys::now();
                            }
                            set_seen_empty(i, now);
                        }
                        return Stop::Empty;
                    }
                }
            }
            let stuck = &mut STUCK_SINCE[i as usize % LANES_MAX];
            if *stuck != ABANDONED {
                *stuck = 0;
            }
            stamp(i, lane, &mut c, block);
            begin_chunk(i, lane);
            let mut parked = None;
            let mut done = 0;
            // Records take a fraction of the room that they might: what is left is asked again rather than the chunk ended.
            let mut room_for = room(&c);
            while done < n {
                let len = next_len(block, &c, done);
                if len == 0 {
                    break;
                }
                if room_for == 0 {
                    room_for = room(&c);
                    if room_for == 0 {
                        break;
                    }
                }
                let at = c.pos as usize;
                if !blocks::take(i, lane, &mut c, (block as *const u8).add(at).cast(), force) {
                    parked = Some(blocks::place_of(lane, ((block as *const u8).add(at) as *const u64).read()));
                    break;
                }
                force = false;
                c.pos = (at + len) as u32;
                done += 1;
                room_for -= 1;
            }
            commit(lane, &c);
            if done > 0 {
                read_any = true;
                EMPTY_AFTER[i as usize % LANES_MAX] = 0;
            }
            if room(&c) == 0 {
                lines::flush_group();
                c = spool::committed(lane);
            }
            if let Some(addr3) = parked {
                return Stop::Parked(addr3);
            }
        }
    }
}

fn set_seen_empty(i: u32, now: u64) {
    // SAFETY: the lock is held.
    unsafe {
        SEEN_EMPTY[i as usize % LANES_MAX] = now;
        let after = &mut EMPTY_AFTER[i as usize % LANES_MAX];
        if *after == 0 {
            *after = now;
        }
    }
}

/// A time after all that was read of lane `i`, at `now`.
pub fn read_until(i: u32, now: u64) -> u64 {
    // SAFETY: the lock is held.
    let after = unsafe { EMPTY_AFTER[i as usize % LANES_MAX] };
    if after == 0 { now } else { after }
}

fn seen_empty(i: u32) -> u64 {
    // SAFETY: the lock is held.
    unsafe { SEEN_EMPTY[i as usize % LANES_MAX] }
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
        let word = |at: u32| (*((block as *const u8).add(at as usize) as *const AtomicU64)).load(Acquire);
        // In this order: who links the next block has written what stands in this one, but for what he interrupted.
        let next = (*block).next.load(Acquire);
        let here = record::here(if c.pos as usize + 8 <= BLOCK { word(c.pos) } else { 0 }, c.pos as usize);
        let stuck = &mut STUCK_SINCE[i as usize % LANES_MAX];
        if here == Here::End {
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
        match here {
            // It was written since the search for it.
            Here::Record => return Gap::Passed,
            Here::Damaged => {
                (*lane).broken.fetch_add(1, Relaxed);
                c.pos += 8;
                return Gap::Passed;
            }
            _ => {}
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
        let hole = c.pos;
        while c.pos as usize + 8 <= BLOCK && word(c.pos) & record::START == 0 {
            c.pos += 8;
        }
        if c.pos > hole {
            (*lane).broken.fetch_add(1, Relaxed);
            *stuck = ABANDONED;
        }
        Gap::Passed
    }
}

/// Makes `c` the lane's state. With it the entries that its chunk killed are gone for good.
#[inline(always)]
pub(crate) unsafe fn commit(lane: *mut Lane, c: &Commit) {
    // SAFETY: the lock is held.
    unsafe {
        let other = ((*lane).which.load(Relaxed) & 1) ^ 1;
        (*lane).commit[other as usize] = *c;
        (*lane).which.store(other, Release);
        // Or the next flip without a chunk (at the end of a block, after a batch was written) would make its list count again.
        (*spool::header()).killer.store(0, Release);
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
        if from >= c.stamp_ns + TICK {
            put_stamp(lane, c, from);
        }
    }
}

/// Puts a stamp before the next event, where there is room for one.
unsafe fn put_stamp(lane: *mut Lane, c: &mut Commit, t_ns: u64) {
    // SAFETY: the lock is held; the columns are the drain's.
    unsafe {
        if c.t_len as usize + 2 * v93::MAX_LEN > T_CAP {
            return;
        }
        let ticks = t_ns.saturating_sub(c.stamp_ns) / TICK;
        let t = (*lane).t.as_mut_ptr();
        c.t_len += v93::put(t.add(c.t_len as usize), (c.events - c.stamp_events) as u64) as u32;
        c.t_len += v93::put(t.add(c.t_len as usize), ticks) as u32;
        c.stamp_events = c.events;
        c.stamp_ns += ticks * TICK;
    }
}

/// A STAMP or STAMPED record.
pub(super) unsafe fn timed(lane: *mut Lane, c: &mut Commit, w: u64) {
    // SAFETY: the lock is held.
    unsafe {
        if record::op_of(w) == op::STAMPED {
            if c.events > c.stamp_events {
                put_stamp(lane, c, c.stamp_ns);
            }
            return;
        }
        at(lane, c, record::time_of_stamp(w, c.stamp_ns.saturating_sub(record::LATE)));
    }
}

/// What follows happens at this time or later, what came before at this time or earlier.
pub(super) unsafe fn at(lane: *mut Lane, c: &mut Commit, t_ns: u64) {
    if c.events == 0 {
        c.t0 = t_ns.max(c.stamp_ns);
        (c.stamp_ns, c.stamp_events) = (c.t0, 0);
    } else if t_ns >= c.stamp_ns + TICK {
        // SAFETY: the lock is held.
        unsafe { put_stamp(lane, c, t_ns) };
    }
}

/// Unit of column `t`, ns.
pub const TICK: u64 = 100;

/// The batch of lane `i` has been written: it starts anew.
pub fn restart_batch(i: u32) {
    // SAFETY: i is below LANES; the lock is held.
    unsafe {
        let lane = spool::lane(i);
        let mut c = spool::committed(lane);
        c.seq0 = c.seq;
        (c.events, c.k_len, c.x_len, c.z_len, c.t_len, c.stamp_events) = (0, 0, 0, 0, 0, 0);
        (c.allocs, c.frees, c.bytes) = (0, 0, 0);
        c.prev = c.seq;
        c.peak = c.live;
        c.x_last = [0; 8];
        c.counted = 0;
        let s = &mut c.stacks;
        (s.written, s.s_len, s.p_len, s.s_events, s.p_events) = (record::stack(0, 0), 0, 0, 0, 0);
        commit(lane, &c);
    }
}
