//! Which block an event concerns: records become events of the pending batch, blocks come into the live table and go.
//!
//! Where the other half of something is still in another ring, a record waits (its lane is parked), or is set aside: see [`super`].

mod other;

use super::columns::*;
use super::{begin_chunk, commit, order, stacks};
use crate::config::{CONFIG, FAST, FULL};
use crate::kinds::{KINDS, replaces};
use crate::lane::LANES;
use crate::shelf::Shelf;
use crate::table::{Inserted, Slot, TABLE};
use crate::{lane, lines, spool};
use core::sync::atomic::{AtomicU64, Ordering::*};
use memshim_format::live::{Entry, SEQ_MASK};
use memshim_format::record::{self, Loss, op};
use memshim_format::spool::*;
use other::take_other;

/// Frees of unknown blocks, by address, that an allocation of the same usable size (kept as sequence number) read later may settle.
static mut DEBTS: Shelf = Shelf::new();

/// Blocks given out at an address whose block before was not yet seen to end: its free is in another ring, or went past us. A free takes
/// the block in the table, the older one; then the younger takes its place.
static mut YOUNGER: Shelf = Shelf::new();

/// Sampled allocations so far.
static mut SAMPLES: u64 = 0;

/// Sampled allocations that were read so far. The lock is held.
pub fn samples() -> u64 {
    // SAFETY: the lock is held.
    unsafe { SAMPLES }
}

/// Addresses freed last (direct mapped). In a forked child a free of an unknown block is a debt only where
/// the same address was freed shortly before: else it is a block of the parent's, and nothing will settle it.
static mut RECENT: [u64; 4096] = [0; 4096];

/// Starts anew: the first image, or a forked child, which knows nothing of what its parent freed.
pub(super) fn reset(child: bool) {
    // SAFETY: one thread.
    unsafe {
        DEBTS.clear();
        YOUNGER.clear();
        SAMPLES = 0;
        if child {
            RECENT = [0; 4096];
        }
    }
}

/// Whether anything is set aside.
pub(super) fn any_aside() -> bool {
    // SAFETY: the lock is held.
    unsafe { !DEBTS.is_empty() || !YOUNGER.is_empty() }
}

/// Takes one record over into the pending batch. False: it has to wait for other lanes.
#[inline(always)]
pub(super) unsafe fn take(i: u32, lane: *mut Lane, c: &mut Commit, words: *const u64, force: bool) -> bool {
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

/// Where the block of a record stands in the table: `address >> 3`, Python's blocks apart.
///
/// # Safety
/// `lane` is one of ours.
#[inline(always)]
pub(super) unsafe fn place_of(lane: *mut Lane, w: u64) -> u64 {
    // SAFETY: the caller's promise.
    record::low_of(w) | (unsafe { (*lane).python.load(Relaxed) } as u64) << ADDR_BITS
}

#[inline(always)]
unsafe fn take_alloc(i: u32, lane: *mut Lane, c: &mut Commit, w: u64, words: *const u64, force: bool) -> bool {
    // SAFETY: the record is whole.
    unsafe {
        let addr3 = place_of(lane, w);
        let arg = record::arg_of(w);
        let mut flags = (arg & record::KIND_FLAGS) as u8;
        let v = *words.add(1);
        let (size, usable, v) = if arg & record::WIDE != 0 {
            (v, *words.add(2), None)
        } else {
            (v & 0xff_ffff_ffff, (v & 0xff_ffff_ffff) + (v >> 40), Some(v))
        };
        let func = record::op_of(w) - op::ALLOC;
        let pend = c.pend;
        let is_half = pend.what == 0 && replaces(flags) && (*lane).halves_lost.load(Relaxed) != 0 && CONFIG.mode == FULL;
        if pend.what == 0 {
            flags &= !(record::REPLACES as u8);
        }
        let (n, raw) = KINDS.number(func, size, usable.wrapping_sub(size), v, flags);
        if n == 0 {
            lose(lane, c, usable, flags);
            return true;
        }
        let entry = Entry::new(i, c.seq, usable);
        let owed = DEBTS.may_have(addr3) && DEBTS.take(addr3, |d| d.low_seq() == usable & SEQ_MASK).is_some();
        // Where it is owed it has ended already: it stands nowhere.
        if !owed {
            match put_block(i, lane, c, addr3, entry, force) {
                Put::Yes => {}
                // The free of the block before is in another ring.
                Put::Later => return false,
                Put::NoRoom => {
                    lose(lane, c, usable, flags);
                    return true;
                }
            }
        }
        if c.stacks.now != c.stacks.written {
            stacks::note(lane, c);
        }
        put_alloc(lane, c, n, raw.then_some((size, usable.wrapping_sub(size))));
        put_count(lane, c);
        if flags as u64 & record::SAMPLED != 0 {
            SAMPLES += 1;
        }
        c.seq += 1;
        c.events += 1;
        c.allocs += 1;
        c.bytes += size;
        c.live += usable as i64;
        if replaces(flags) {
            end_pending(lane, c, false);
        }
        if c.live > c.peak {
            c.peak = c.live;
        }
        if owed {
            settle(i, lane, c, usable);
        }
        if is_half {
            half_lost(lane);
        }
    }
    true
}

/// A realloc of which the first half had no room is lost as a call, though its new block is an event: what became of the old one is not told.
#[cold]
#[inline(never)]
unsafe fn half_lost(lane: *mut Lane) {
    // SAFETY: the lock is held.
    unsafe {
        (*lane).halves_lost.fetch_sub(1, Relaxed);
        lane::lose(lane, Loss::Call);
        lines::recorded(lane).fetch_sub(1, Relaxed);
    }
}

/// An allocation that there is no room for is no event, or its block would be live for ever: its free will be of an unknown one. The block
/// that it replaced ends all the same.
#[cold]
#[inline(never)]
unsafe fn lose(lane: *mut Lane, c: &mut Commit, usable: u64, flags: u8) {
    // SAFETY: the lock is held.
    unsafe {
        lane::lose(lane, Loss::Call);
        if CONFIG.mode != FAST {
            c.live += usable as i64; // its free takes it off
        }
        if replaces(flags) {
            not_a_call(lane, c);
            end_pending(lane, c, true);
        }
        c.peak = c.peak.max(c.live);
    }
}

enum Put {
    Yes,
    /// Another block lies at its address, whose end may be in another ring.
    Later,
    NoRoom,
}

/// Puts a new block into the table, or beside it.
#[inline(always)]
unsafe fn put_block(i: u32, lane: *mut Lane, c: &mut Commit, addr3: u64, entry: Entry, force: bool) -> Put {
    // SAFETY: the lock is held.
    unsafe {
        match TABLE.insert(addr3, entry) {
            Inserted::Yes => {
                order::wake(addr3);
                Put::Yes
            }
            Inserted::Taken(slot) if LANES.load(Relaxed) == 1 || YOUNGER.is_full() => {
                end_unseen(i, lane, c, addr3, slot);
                if matches!(TABLE.insert(addr3, entry), Inserted::Yes) { Put::Yes } else { Put::NoRoom }
            }
            Inserted::Taken(_) if force => {
                YOUNGER.put(addr3, entry);
                order::note_aside();
                order::wake(addr3);
                Put::Yes
            }
            Inserted::Taken(_) => Put::Later,
            Inserted::NoMemory => Put::NoRoom,
        }
    }
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
        not_a_call(lane, c);
        c.frees += 1;
    }
}

/// An event of the batch that stands for no call of the program.
unsafe fn not_a_call(lane: *mut Lane, c: &mut Commit) {
    c.events += 1;
    // SAFETY: the header is there; batches add all their events when they are written.
    unsafe { lines::recorded(lane).fetch_sub(1, Relaxed) };
}

#[inline(always)]
unsafe fn put_block_free(i: u32, lane: *mut Lane, c: &mut Commit, e: Entry) {
    // SAFETY: the lock is held.
    unsafe {
        if e.lane() == i {
            put_own_free(lane, c, e.seq(c.seq));
            put_count(lane, c);
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
        e.seq(spool::committed(owner).seq)
    }
}

/// The old block of a realloc ends: its code follows the new block's, which tells how often the lane had allocated, or stands alone.
unsafe fn end_pending(lane: *mut Lane, c: &mut Commit, alone: bool) {
    let p = c.pend;
    c.pend = Pending::default();
    // SAFETY: the lock is held.
    unsafe {
        match p.what {
            1 => {
                put_own_free(lane, c, p.seq);
                if alone {
                    put_count(lane, c);
                }
            }
            2 => put_foreign_free(lane, c, p.lane, p.seq),
            3 => put_unknown_free(lane, c, p.seq, p.usable),
            _ => return,
        }
    }
    c.frees += 1;
    c.live -= p.usable as i64;
}

/// Frees of unknown blocks of the lane's kind.
unsafe fn unknown_frees(lane: *mut Lane) -> &'static AtomicU64 {
    // SAFETY: the header is there while anything is recorded; the caller's lane.
    unsafe {
        let h = &*spool::header();
        if (*lane).python.load(Relaxed) != 0 { &h.python_unknown_frees } else { &h.unknown_frees }
    }
}

unsafe fn put_unknown_free(lane: *mut Lane, c: &mut Commit, addr3: u64, usable: u64) {
    // SAFETY: the lock is held.
    unsafe {
        put_k(lane, c, 1);
        put_x(lane, c, 0);
        put_x(lane, c, addr3 & ADDR_MASK);
        put_x(lane, c, usable);
        unknown_frees(lane).fetch_add(1, Relaxed);
        owe(addr3, usable);
    }
}

/// A block ended that nobody is known to have got: its allocation may be read later.
unsafe fn owe(addr3: u64, usable: u64) {
    // SAFETY: the lock is held.
    unsafe {
        let known = crate::init::inherited().is_none() || RECENT[addr3 as usize >> 1 & 4095] == addr3;
        if !DEBTS.is_full() && LANES.load(Relaxed) > 1 && known {
            DEBTS.put(addr3, Entry::new(0, usable, usable));
            order::note_aside();
        }
    }
}

/// The block just allocated was ended by a free that was read before it and written as unknown; in fast mode, where such frees are of blocks that
/// were not recorded, it was not written, and is now: as another thread's, for whose it was is not known any more.
#[cold]
#[inline(never)]
unsafe fn settle(i: u32, lane: *mut Lane, c: &mut Commit, usable: u64) {
    // SAFETY: the lock is held.
    unsafe {
        if CONFIG.mode == FAST {
            put_foreign_free(lane, c, i, c.seq - 1);
            not_a_call(lane, c);
            c.frees += 1;
            c.live -= usable as i64;
            return;
        }
        put_k(lane, c, 2);
        not_a_call(lane, c);
        unknown_frees(lane).fetch_sub(1, Relaxed);
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
        if YOUNGER.may_have(addr3) {
            promote(addr3);
        }
        order::wake(addr3);
    }
}

/// A block that had an event comes into the table again. Without room there its end will be of an unknown one.
unsafe fn put_back(addr3: u64, e: Entry) {
    // SAFETY: the lock is held; lanes of entries exist.
    unsafe {
        if matches!(TABLE.insert(addr3, e), Inserted::NoMemory) {
            (*spool::lane(e.lane())).broken.fetch_add(1, Relaxed);
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
            put_back(addr3, e);
        }
    }
}

/// All rings have been read to their ends. What could have settled a debt, or ended the older of two blocks of one address, was visible
/// when that was found, and has been read: the debts are of unknown blocks, and the older blocks' ends went past us.
pub(super) unsafe fn all_read() {
    // SAFETY: the lock is held; lanes of entries exist.
    unsafe {
        DEBTS.clear();
        while let Some((addr3, e)) = YOUNGER.any() {
            let Some(slot) = TABLE.find(addr3) else {
                promote(addr3);
                continue;
            };
            let lane = spool::lane(e.lane());
            let mut c = spool::committed(lane);
            if room(&c) == 0 {
                lines::flush_group();
                c = spool::committed(lane);
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
    // SAFETY: the lock is held.
    unsafe {
        let addr3 = place_of(lane, w);
        let usable = freed_usable(w, words);
        let slot = find_freed(addr3, usable);
        if YOUNGER.may_have(addr3) {
            // Of two blocks of one address it ends its own thread's, most likely; else the one in the table, if its size is right.
            let is_own = slot.is_some_and(|slot| TABLE.get(slot).lane() == i);
            let meant = |e: Entry| e.can_be(usable) && (slot.is_none() || !is_own && e.lane() == i);
            if let Some(e) = YOUNGER.take(addr3, meant) {
                put_block_free(i, lane, c, e);
                c.events += 1;
                c.frees += 1;
                c.live -= usable as i64;
                return true;
            }
        }
        let Some(slot) = slot else { return take_unknown_free(lane, c, addr3, usable, force) };
        let e = TABLE.get(slot);
        kill(addr3, slot, e);
        put_block_free(i, lane, c, e);
        if LANES.load(Relaxed) > 1 {
            RECENT[addr3 as usize >> 1 & 4095] = addr3;
        }
        c.events += 1;
        c.frees += 1;
        c.live -= usable as i64;
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
        // Of a block that was not recorded, or whose record waits for ours.
        // SAFETY: the lock is held.
        unsafe { owe(addr3, usable) };
        return true;
    }
    // SAFETY: the lock is held.
    unsafe { put_unknown_free(lane, c, addr3, usable) };
    c.events += 1;
    c.frees += 1;
    c.live -= usable as i64;
    true
}
