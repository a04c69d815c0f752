//! The live table: which block lies at an address. It belongs to the drain.
//!
//! Buckets of one cache line, five entries of 12 bytes each; the home of a hash is `hash · buckets >> 64`. An entry that finds its home
//! full stands in the next bucket with room, and each bucket it passed counts it, so that a search knows when to stop; nothing is ever
//! moved by an insertion or a removal, and almost every one touches one cache line. Growing is by a quarter, in place. At a load of 64 to
//! 80 % that is 16 to 20 bytes a live block. It lies in the spool where there is room, else in private memory.

use crate::spool::{self, SPOOL};
use crate::sys::{self, sys};
use core::sync::atomic::Ordering::Relaxed;
use memshim_format::spool::{BUCKET_ENTRIES, Bucket, Entry, TABLE_OFF};

/// The table.
pub struct Table {
    base: *mut Bucket,
    buckets: u64,
    used: u64,
    /// Bytes mapped.
    mapped: usize,
    private: bool,
    /// How often it has grown: slots found before are void.
    grown: u32,
}

const EMPTY: Entry = Entry { lo: 0, hi: 0 };

pub static mut TABLE: Table = Table { base: core::ptr::null_mut(), buckets: 0, used: 0, mapped: 0, private: false, grown: 0 };

const FIRST_BUCKETS: u64 = 512;
/// Buckets after the last home, for entries that pass it; and how far behind its reading place growing may put an entry.
const SPARE: u64 = 32;

/// A place in the table.
#[derive(Clone, Copy)]
pub struct Slot {
    entry: *mut Entry,
    home: u64,
    bucket: u64,
    grown: u32,
}

#[inline(always)]
fn hash(addr3: u64) -> u64 {
    let x = addr3.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ x >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// Entry `i` of a bucket.
#[inline(always)]
unsafe fn entry(b: *mut Bucket, i: usize) -> *mut Entry {
    // SAFETY: i is below BUCKET_ENTRIES wherever the result is used.
    unsafe { (&raw mut (*b).entries).cast::<Entry>().wrapping_add(i) }
}

/// Which entries of a bucket are live ones of an address, and which are empty, as bits. Without branches: where in its line an entry
/// stands is chance.
#[inline(always)]
unsafe fn look(b: *mut Bucket, addr3: u64) -> (u32, u32) {
    let (mut same, mut empty) = (0, 0);
    // SAFETY: the bucket is mapped.
    unsafe {
        for i in 0..BUCKET_ENTRIES {
            let e = entry(b, i).read();
            same |= ((e.addr3() == addr3) as u32 & !e.dead() as u32) << i;
            empty |= ((e.addr3() == 0) as u32) << i;
        }
    }
    (same, empty)
}

impl Table {
    #[inline(always)]
    fn home(&self, addr3: u64) -> u64 {
        ((hash(addr3) as u128 * self.buckets as u128) >> 64) as u64
    }

    /// Brings the bucket of an address nearer.
    #[inline(always)]
    pub fn prefetch(&self, addr3: u64) {
        // SAFETY: a prefetch of any address is harmless.
        unsafe {
            core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(
                self.base.wrapping_add(self.home(addr3) as usize).cast(),
            )
        };
    }

    /// Starts empty. Memory comes with the first insertion.
    pub fn reset(&mut self) {
        (self.base, self.buckets, self.used, self.mapped, self.private) = (core::ptr::null_mut(), 0, 0, 0, false);
        self.grown += 1;
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

    /// Puts a block in; its address must not be there. False when there is no memory for it.
    #[inline(always)]
    pub fn insert(&mut self, e: Entry) -> bool {
        // 80 % of five entries a bucket: four a bucket.
        if self.used >= self.buckets * 4 && !self.grow() {
            return false;
        }
        // SAFETY: the home is below buckets.
        unsafe {
            let home = self.home(e.addr3());
            let b = self.base.add(home as usize);
            let (_, empty) = look(b, e.addr3());
            let free = entry(b, empty.trailing_zeros() as usize);
            if empty != 0 {
                free.write(e);
                self.used += 1;
                return true;
            }
            self.insert_far(e, home)
        }
    }

    /// The home is full.
    #[inline(never)]
    unsafe fn insert_far(&mut self, e: Entry, home: u64) -> bool {
        // SAFETY: buckets + SPARE buckets are mapped.
        unsafe {
            let end = self.buckets + SPARE;
            let mut at = home + 1;
            while at < end {
                for i in 0..BUCKET_ENTRIES {
                    let p = (&raw mut (*self.base.add(at as usize)).entries).cast::<Entry>().add(i);
                    if p.read().addr3() == 0 {
                        p.write(e);
                        for passed in home..at {
                            (*self.base.add(passed as usize)).passed += 1;
                        }
                        self.used += 1;
                        return true;
                    }
                }
                at += 1;
            }
        }
        false
    }

    /// The live entry of an address.
    #[inline(always)]
    pub fn find(&self, addr3: u64) -> Option<Slot> {
        if self.buckets == 0 {
            return None;
        }
        let home = self.home(addr3);
        let mut at = home;
        // SAFETY: buckets + SPARE buckets are mapped.
        unsafe {
            while at < self.buckets + SPARE {
                let b = self.base.add(at as usize);
                let (same, _) = look(b, addr3);
                if same != 0 {
                    return Some(Slot { entry: entry(b, same.trailing_zeros() as usize), home, bucket: at, grown: self.grown });
                }
                if (*b).passed == 0 {
                    return None;
                }
                at += 1;
            }
        }
        None
    }

    /// What stands in a slot that [`Table::find`] returned.
    #[inline(always)]
    pub fn get(&self, slot: Slot) -> Entry {
        // SAFETY: find returns slots of the table.
        unsafe { slot.entry.read() }
    }

    /// Marks the entry as freed; it stays until [`Table::erase`].
    #[inline(always)]
    pub fn kill(&mut self, slot: Slot) {
        // SAFETY: find returns slots of the table.
        unsafe { slot.entry.write(slot.entry.read().as_dead()) };
    }

    /// Takes the mark back.
    pub fn revive(&mut self, slot: Slot, e: Entry) {
        if let Some(slot) = self.still(slot, e) {
            // SAFETY: a slot of the table.
            unsafe { slot.entry.write(e) };
        }
    }

    /// The slot of a dead entry, looked for again if the table has grown since.
    #[inline(always)]
    fn still(&self, slot: Slot, e: Entry) -> Option<Slot> {
        if slot.grown == self.grown { Some(slot) } else { self.find_dead(e.as_dead()) }
    }

    #[cold]
    fn find_dead(&self, e: Entry) -> Option<Slot> {
        let home = self.home(e.addr3());
        let mut at = home;
        // SAFETY: buckets + SPARE buckets are mapped.
        unsafe {
            while at < self.buckets + SPARE {
                let b = self.base.add(at as usize);
                for i in 0..BUCKET_ENTRIES {
                    let p = (&raw mut (*b).entries).cast::<Entry>().add(i);
                    if p.read() == e {
                        return Some(Slot { entry: p, home, bucket: at, grown: self.grown });
                    }
                }
                if (*b).passed == 0 {
                    return None;
                }
                at += 1;
            }
        }
        None
    }

    /// Takes a dead entry out.
    #[inline(always)]
    pub fn erase(&mut self, slot: Slot, e: Entry) {
        let Some(slot) = self.still(slot, e) else { return };
        // SAFETY: a slot of the table; the buckets from its home on are there.
        unsafe {
            slot.entry.write(EMPTY);
            for passed in slot.home..slot.bucket {
                (*self.base.add(passed as usize)).passed -= 1;
            }
        }
        self.used -= 1;
    }

    /// A quarter more buckets, in place: the old table is moved to the end of the new memory and its entries are put in anew from the
    /// start. The home of an entry read from old bucket b is at most b + buckets/4 + 2, and it is read from b + buckets/4 + SPARE: so
    /// what is put in lies before what is still to be read, but for an entry that would pass SPARE full buckets.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) -> bool {
        let buckets = if self.buckets == 0 { FIRST_BUCKETS } else { self.buckets + self.buckets / 4 };
        let total = buckets + 2 * SPARE;
        let len = (total as usize * size_of::<Bucket>() + 4095) & !4095;
        if !self.remap(len) {
            return false;
        }
        let old = if self.buckets == 0 { 0 } else { self.buckets + SPARE };
        self.buckets = buckets;
        self.grown += 1;
        self.used = 0;
        // SAFETY: all buckets below total are mapped; the header is there.
        unsafe {
            (*spool::header()).table_buckets.store(total, Relaxed);
            let from = total - old;
            core::ptr::copy(self.base, self.base.add(from as usize), old as usize);
            core::ptr::write_bytes(self.base, 0, from.min(old) as usize);
            for r in from..from + old {
                let b = self.base.add(r as usize).read();
                core::ptr::write_bytes(self.base.add(r as usize), 0, 1);
                for e in b.entries {
                    // Dead ones too: they are erased at the next commit.
                    if e.addr3() != 0 && !self.put_again(e) {
                        return false;
                    }
                }
            }
            (*spool::header()).table_used.store(self.used, Relaxed);
        }
        true
    }

    unsafe fn put_again(&mut self, e: Entry) -> bool {
        // SAFETY: as for grow.
        unsafe {
            let home = self.home(e.addr3());
            let mut at = home;
            while at < self.buckets + SPARE {
                let b = self.base.add(at as usize);
                for i in 0..BUCKET_ENTRIES {
                    let p = (&raw mut (*b).entries).cast::<Entry>().add(i);
                    if p.read().addr3() == 0 {
                        p.write(e);
                        self.used += 1;
                        return true;
                    }
                }
                (*b).passed += 1;
                at += 1;
            }
            false
        }
    }

    fn remap(&mut self, len: usize) -> bool {
        // SAFETY: only the drain uses the mapping; the spool's fd is checked before each use.
        unsafe {
            if SPOOL.shared && !self.private {
                let grown = spool::is_open()
                    && sys!(libc::SYS_ftruncate, SPOOL.fd, TABLE_OFF + len) == 0
                    && spool::back(TABLE_OFF + self.mapped, len - self.mapped);
                let at = match (grown, self.mapped) {
                    (false, _) => -1,
                    (true, 0) => {
                        sys!(libc::SYS_mmap, 0, len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, SPOOL.fd, TABLE_OFF)
                    }
                    (true, old) => sys!(libc::SYS_mremap, self.base, old, len, libc::MREMAP_MAYMOVE),
                };
                if at > 0 {
                    sys!(libc::SYS_madvise, at, len, libc::MADV_RANDOM);
                    self.base = at as *mut Bucket;
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
            self.base = at as *mut Bucket;
            self.mapped = len;
            self.private = true;
            true
        }
    }
}
