//! A small fixed table of entries by address, several for one address allowed, oldest first: what the drain sets aside while the other
//! half of it is still in a ring.

use memshim_format::live::Entry;

const SLOTS: usize = 8192;
/// Entries at most: probes stay short.
const MOST: usize = SLOTS / 2;

/// An entry and its address >> 3.
#[derive(Clone, Copy)]
struct Aside {
    addr3: u64,
    entry: Entry,
}
const EMPTY: Aside = Aside { addr3: 0, entry: Entry(0) };

/// The table.
pub struct Shelf {
    slots: [Aside; SLOTS],
    /// Slots in use, a bit each: of an address of which nothing is set aside most often this alone is looked at.
    used: [u64; SLOTS / 64],
    count: usize,
}

impl Shelf {
    /// An empty one.
    pub const fn new() -> Shelf {
        Shelf { slots: [EMPTY; SLOTS], used: [0; SLOTS / 64], count: 0 }
    }

    /// Whether nothing is set aside. The only thing that costs where threads don't exchange blocks.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether no more can be set aside.
    pub fn is_full(&self) -> bool {
        self.count >= MOST
    }

    fn home(addr3: u64) -> usize {
        (addr3.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 51) as usize % SLOTS
    }

    /// Sets an entry aside; it must not be full.
    pub fn put(&mut self, addr3: u64, entry: Entry) {
        let mut i = Self::home(addr3);
        while self.is_used(i) {
            i += 1;
        }
        self.slots[i % SLOTS] = Aside { addr3, entry };
        self.flip(i);
        self.count += 1;
    }

    /// Whether anything stands in a slot, counted on over the end.
    #[inline(always)]
    fn is_used(&self, i: usize) -> bool {
        self.used[i / 64 % (SLOTS / 64)] >> (i % 64) & 1 != 0
    }

    fn flip(&mut self, i: usize) {
        self.used[i / 64 % (SLOTS / 64)] ^= 1 << (i % 64);
    }

    /// Whether anything can be set aside of an address.
    #[inline(always)]
    pub fn may_have(&self, addr3: u64) -> bool {
        self.count > 0 && self.is_used(Self::home(addr3))
    }

    /// Takes the oldest entry of an address, of those that are `wanted`.
    pub fn take(&mut self, addr3: u64, wanted: impl Fn(Entry) -> bool) -> Option<Entry> {
        let mut i = Self::home(addr3);
        while self.is_used(i) {
            let a = self.slots[i % SLOTS];
            if a.addr3 == addr3 && wanted(a.entry) {
                self.flip(i);
                self.count -= 1;
                self.close_gap(i);
                return Some(a.entry);
            }
            i += 1;
        }
        None
    }

    /// Puts what stands behind a gap down anew, in its order.
    fn close_gap(&mut self, gap: usize) {
        let mut i = gap + 1;
        while self.is_used(i) {
            let a = self.slots[i % SLOTS];
            self.flip(i);
            self.count -= 1;
            self.put(a.addr3, a.entry);
            i += 1;
        }
    }

    /// Address >> 3 and entry of any one, without taking it.
    pub fn any(&self) -> Option<(u64, Entry)> {
        let (word, bits) = self.used.iter().enumerate().find(|(_, bits)| **bits != 0)?;
        let a = self.slots[(word * 64 + bits.trailing_zeros() as usize) % SLOTS];
        Some((a.addr3, a.entry))
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.used = [0; SLOTS / 64];
        self.count = 0;
    }
}
