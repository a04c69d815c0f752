//! The live table: which block lies at an address. It belongs to the drain.
//!
//! Open addressing with linear probing, entries in order of their hash, 12 bytes an entry, load at most 6/7. The slot of a hash is
//! `hash · slots >> 64`, so growing keeps the order: the table grows in place by a quarter and holds between 14 and 18 bytes a live
//! block. It lies in the spool where there is room, else in private memory.
//!
//! Two blocks of one address can be there at once: an allocation read before the free (of another thread) that preceded it. They
//! stand next to each other in the order of their coming, and a free takes the older.

use crate::spool::{self, SPOOL};
use crate::sys::{self, sys};
use core::sync::atomic::Ordering::Relaxed;
use memshim_format::spool::{Entry, TABLE_OFF};

/// The table.
pub struct Table {
    base: *mut Entry,
    slots: u64,
    used: u64,
    /// Bytes mapped.
    mapped: usize,
    private: bool,
}

pub static mut TABLE: Table = Table { base: core::ptr::null_mut(), slots: 0, used: 0, mapped: 0, private: false };

const FIRST_SLOTS: u64 = 2048;
/// Spare slots after the last home, so that a probe needs no wrap.
const SPARE: u64 = 512;
/// How far behind its reading place a grown table may put an entry.
const AHEAD: u64 = 8;
const ENTRY: usize = size_of::<Entry>();

#[inline(always)]
fn hash(addr3: u64) -> u64 {
    let x = addr3.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ x >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

impl Table {
    #[inline(always)]
    fn home_of(&self, hash: u64) -> u64 {
        ((hash as u128 * self.slots as u128) >> 64) as u64
    }

    #[inline(always)]
    fn home(&self, addr3: u64) -> u64 {
        self.home_of(hash(addr3))
    }

    /// # Safety
    /// `i` is below slots + SPARE.
    #[inline(always)]
    unsafe fn at(&self, i: u64) -> *mut Entry {
        // SAFETY: the caller's promise.
        unsafe { self.base.add(i as usize) }
    }

    /// Brings the entry's line nearer.
    #[inline(always)]
    pub fn prefetch(&self, addr3: u64) {
        // SAFETY: a prefetch of any address is harmless.
        unsafe { core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(self.base.add(self.home(addr3) as usize).cast()) };
    }

    /// Starts empty. Memory comes with the first insertion.
    pub fn reset(&mut self) {
        *self = Table { base: core::ptr::null_mut(), slots: 0, used: 0, mapped: 0, private: false };
    }

    /// Lets go of the mapping (a forked child, of its parent's).
    ///
    /// # Safety
    /// `len` is what [`Table::size`] said.
    pub unsafe fn release(&mut self, len: usize) {
        if len > 0 {
            // SAFETY: the table is not used before it is reset.
            unsafe { sys::unmap(self.base.cast(), len) };
        }
        self.reset();
    }

    /// Bytes mapped and entries in use.
    pub fn size(&self) -> (u64, u64) {
        (self.mapped as u64, self.used)
    }

    /// Puts a block in; false when there is no memory for it.
    #[inline(always)]
    pub fn insert(&mut self, e: Entry) -> bool {
        if self.used * 7 >= self.slots * 6 && !self.grow() {
            return false;
        }
        // SAFETY: at least a seventh of the slots is empty, and SPARE follow the last home.
        unsafe { self.place(e) }
    }

    /// # Safety
    /// There is an empty slot behind the home.
    #[inline(always)]
    unsafe fn place(&mut self, e: Entry) -> bool {
        let mut e = e;
        let mut h = hash(e.addr3());
        let mut i = self.home_of(h);
        let end = self.slots + SPARE;
        // SAFETY: i < end is checked.
        unsafe {
            loop {
                if i >= end {
                    return false;
                }
                let slot = self.at(i);
                let there = slot.read();
                if there.addr3() == 0 {
                    slot.write(e);
                    self.used += 1;
                    return true;
                }
                // Equal addresses stay in the order of their coming.
                let their = hash(there.addr3());
                if their > h {
                    slot.write(e);
                    e = there;
                    h = their;
                }
                i += 1;
            }
        }
    }

    /// The oldest live entry of an address: its slot.
    #[inline(always)]
    pub fn find(&self, addr3: u64) -> Option<u64> {
        if self.slots == 0 {
            return None;
        }
        let mut i = self.home(addr3);
        let end = self.slots + SPARE;
        // SAFETY: i < end is checked.
        unsafe {
            while i < end {
                let there = self.at(i).read();
                if there.addr3() == addr3 && !there.dead() {
                    return Some(i);
                }
                if there.addr3() == 0 {
                    return None;
                }
                i += 1;
            }
        }
        None
    }

    /// What stands in a slot that [`Table::find`] returned.
    #[inline(always)]
    pub fn get(&self, slot: u64) -> Entry {
        // SAFETY: find returns slots of the table.
        unsafe { self.at(slot).read() }
    }

    /// Marks the entry as freed; it stays until [`Table::erase`].
    #[inline(always)]
    pub fn kill(&mut self, slot: u64) {
        // SAFETY: find returns slots of the table.
        unsafe {
            let p = self.at(slot);
            p.write(p.read().as_dead());
        }
    }

    /// Takes the mark back.
    pub fn revive(&mut self, e: Entry) {
        if let Some(i) = self.position(e.as_dead()) {
            // SAFETY: position returns slots of the table.
            unsafe { self.at(i).write(e) };
        }
    }

    fn position(&self, e: Entry) -> Option<u64> {
        let mut i = self.home(e.addr3());
        // SAFETY: i < slots + SPARE is checked.
        unsafe {
            while i < self.slots + SPARE {
                let there = self.at(i).read();
                if there == e {
                    return Some(i);
                }
                if there.addr3() == 0 {
                    return None;
                }
                i += 1;
            }
        }
        None
    }

    /// Takes a dead entry out: those behind it move up. The moving never leaves an entry nowhere, at worst twice.
    #[inline(always)]
    pub fn erase(&mut self, e: Entry) {
        let Some(mut i) = self.position(e.as_dead()) else { return };
        let end = self.slots + SPARE;
        // SAFETY: i < end is checked.
        unsafe {
            while i + 1 < end {
                let next = self.at(i + 1).read();
                if next.addr3() == 0 || self.home(next.addr3()) == i + 1 {
                    break;
                }
                self.at(i).write(next);
                i += 1;
            }
            self.at(i).write(Entry { lo: 0, hi: 0 });
        }
        self.used -= 1;
    }

    /// A quarter more slots, in place: the old table is moved to the end of the new memory, then its entries are put down one after
    /// another from the start. They come in order of their hash, so each goes to its home or right behind the one before, and that is
    /// never beyond the place it is read from: an entry read at old slot s is put at most at s + slots/4 + 2.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) -> bool {
        let slots = if self.slots == 0 { FIRST_SLOTS } else { self.slots + self.slots / 4 };
        let len = ((slots + SPARE + AHEAD) as usize * ENTRY + 4095) & !4095;
        if !self.remap(len) {
            return false;
        }
        let old_len = if self.slots == 0 { 0 } else { self.slots + SPARE };
        self.slots = slots;
        // SAFETY: all indices are below slots + SPARE + AHEAD, which is mapped; the header is there.
        unsafe {
            (*spool::header()).table_slots.store(slots + SPARE + AHEAD, Relaxed);
            let from = slots + SPARE + AHEAD - old_len;
            core::ptr::copy(self.at(0), self.at(from), old_len as usize);
            core::ptr::write_bytes(self.at(0), 0, from.min(old_len) as usize);
            let mut next = 0;
            for r in from..from + old_len {
                let e = self.at(r).read();
                if e.addr3() != 0 {
                    self.at(r).write(Entry { lo: 0, hi: 0 });
                    next = self.home(e.addr3()).max(next);
                    self.at(next).write(e);
                    next += 1;
                }
            }
        }
        true
    }

    fn remap(&mut self, len: usize) -> bool {
        // SAFETY: only the drain uses the mapping; the spool's fd is checked before each use.
        unsafe {
            if SPOOL.shared && !self.private {
                let grown = sys!(libc::SYS_ftruncate, SPOOL.fd, TABLE_OFF + len) == 0 && spool::back(TABLE_OFF + self.mapped, len - self.mapped);
                let at = match (grown, self.mapped) {
                    (false, _) => -1,
                    (true, 0) => {
                        sys!(libc::SYS_mmap, 0, len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, SPOOL.fd, TABLE_OFF)
                    }
                    (true, old) => sys!(libc::SYS_mremap, self.base, old, len, libc::MREMAP_MAYMOVE),
                };
                if at > 0 {
                    self.base = at as *mut Entry;
                    self.mapped = len;
                    return true;
                }
                // No room on the disk: go on in private memory.
                sys::swallow(libc::SIGXFSZ);
                let p = sys::map_anon(len);
                if p.is_null() {
                    return false;
                }
                if self.mapped > 0 {
                    core::ptr::copy_nonoverlapping(self.base.cast::<u8>(), p, self.mapped);
                    sys::unmap(self.base.cast(), self.mapped);
                }
                (*spool::header()).table_private.store(1, Relaxed);
                self.base = p.cast();
                self.mapped = len;
                self.private = true;
                return true;
            }
            let at = if self.mapped == 0 {
                sys::map_anon(len) as i64
            } else {
                sys!(libc::SYS_mremap, self.base, self.mapped, len, libc::MREMAP_MAYMOVE)
            };
            if at <= 0 {
                return false;
            }
            self.base = at as *mut Entry;
            self.mapped = len;
            self.private = true;
            true
        }
    }
}
