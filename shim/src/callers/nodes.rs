//! Numbers of tree nodes: (parent, frame) → number, in a hash table that grows, to a bound. Beyond that it starts anew, and frames are defined
//! again under new numbers; the reader takes equal nodes for one.

use crate::sys::{self, sys};
use core::sync::atomic::{AtomicUsize, Ordering::*, compiler_fence};
use memshim_format::record::NODE_BITS;

#[repr(C)]
#[derive(Clone, Copy)]
struct Entry {
    frame: u64,
    parent: u32,
    /// 0: the place is free.
    number: u32,
}

/// A lane's numbers of one kind of node. All zero is the empty one.
#[repr(C)]
pub struct Nodes {
    /// Where its entries are, and in the low bits the bits of their number, which are 0 while there are none. One word: who comes on top of
    /// a change, or after it was left, finds one or the other.
    table: u64,
    used: u32,
    /// The last number given.
    last: u32,
}

const FIRST_BITS: u32 = 9;
const MOST_BITS: u32 = 17;

static PRIVATE: AtomicUsize = AtomicUsize::new(0);

/// Bytes of all tables.
pub fn private() -> usize {
    PRIVATE.load(Relaxed)
}

impl Nodes {
    /// The number of a node, which is `told` where it is new. 0: there are no more numbers, or no memory.
    #[inline]
    pub fn number(&mut self, parent: u32, frame: u64, told: impl FnOnce(u32)) -> u32 {
        let table = Table(self.table);
        if table.bits() != 0 {
            // SAFETY: the place is within the table.
            let e = unsafe { *table.entries().add(table.place(parent, frame)) };
            if e.number != 0 {
                return e.number;
            }
        }
        self.add(parent, frame, told)
    }

    #[cold]
    #[inline(never)]
    fn add(&mut self, parent: u32, frame: u64, told: impl FnOnce(u32)) -> u32 {
        let bits = Table(self.table).bits();
        let full = bits == 0 || self.used * 2 >= 1 << bits;
        if self.last + 1 >= 1 << NODE_BITS || full && !self.grow() {
            return 0;
        }
        self.last += 1;
        self.used += 1;
        let number = self.last;
        // SAFETY: the place is within the table.
        unsafe {
            let table = Table(self.table);
            *table.entries().add(table.place(parent, frame)) = Entry { frame, parent, number };
        }
        told(number);
        number
    }

    fn grow(&mut self) -> bool {
        let old = Table(self.table);
        if old.bits() == MOST_BITS {
            self.clear();
            return true;
        }
        let bits = if old.bits() == 0 { FIRST_BITS } else { old.bits() + 2 };
        let at = sys::map_anon(bytes(bits));
        if at.is_null() {
            // With what there is, forgetting.
            self.clear();
            return old.bits() != 0;
        }
        // The nodes come to lie all over it.
        // SAFETY: a new mapping of so many bytes.
        unsafe { sys::populate(at, bytes(bits)) };
        PRIVATE.fetch_add(bytes(bits), Relaxed);
        let new = Table(at as u64 | bits as u64);
        for i in 0..old.len() {
            // SAFETY: both tables are ours, and large enough.
            unsafe {
                let e = *old.entries().add(i);
                if e.number != 0 {
                    *new.entries().add(new.place(e.parent, e.frame)) = e;
                }
            }
        }
        self.table = new.0;
        compiler_fence(SeqCst);
        old.release();
        true
    }

    /// Forgets all nodes; numbers go on.
    pub fn clear(&mut self) {
        self.used = 0;
        let table = Table(self.table);
        // SAFETY: the table has so many entries; all zero is a free one.
        unsafe { core::ptr::write_bytes(table.entries(), 0, table.len()) };
    }

    /// Gives the memory back.
    pub fn unmap(&mut self) {
        let table = Table(self.table);
        self.table = 0;
        table.release();
    }
}

/// A table's word.
#[derive(Clone, Copy)]
struct Table(u64);

impl Table {
    fn bits(self) -> u32 {
        self.0 as u32 & 0xfff
    }

    fn entries(self) -> *mut Entry {
        if self.bits() == 0 { core::ptr::dangling_mut() } else { (self.0 & !0xfff) as *mut Entry }
    }

    fn len(self) -> usize {
        if self.bits() == 0 { 0 } else { 1 << self.bits() }
    }

    /// Where a node stands, or would.
    #[inline]
    fn place(self, parent: u32, frame: u64) -> usize {
        let mask = self.len() - 1;
        let h = (frame ^ (parent as u64) << 40 ^ (parent as u64) >> 24).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut i = (h >> (64 - self.bits())) as usize;
        loop {
            // SAFETY: the mask keeps it within the table, which always has free places.
            let e = unsafe { &*self.entries().add(i) };
            if e.number == 0 || e.frame == frame && e.parent == parent {
                return i;
            }
            i = (i + 1) & mask;
        }
    }

    fn release(self) {
        if self.bits() != 0 {
            PRIVATE.fetch_sub(bytes(self.bits()), Relaxed);
            // SAFETY: a mapping of ours of that size.
            unsafe { sys!(libc::SYS_munmap, self.entries(), bytes(self.bits())) };
        }
    }
}

fn bytes(bits: u32) -> usize {
    size_of::<Entry>() << bits
}
