//! A small fixed table of entries by address, several for one address allowed, oldest first: what the drain sets aside while the other
//! half of it is still in a ring.

use memshim_format::live::Entry;

const SLOTS: usize = 8192;
/// Entries at most: probes stay short.
const MOST: usize = SLOTS / 2;

/// An entry and its address >> 3, which is 0 where there is none.
#[derive(Clone, Copy)]
struct Aside {
    addr3: u64,
    entry: Entry,
}
const EMPTY: Aside = Aside { addr3: 0, entry: Entry(0) };

/// The table.
pub struct Shelf {
    slots: [Aside; SLOTS],
    count: usize,
}

impl Shelf {
    /// An empty one.
    pub const fn new() -> Shelf {
        Shelf { slots: [EMPTY; SLOTS], count: 0 }
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
        while self.slots[i % SLOTS].addr3 != 0 {
            i += 1;
        }
        self.slots[i % SLOTS] = Aside { addr3, entry };
        self.count += 1;
    }

    /// Takes the oldest entry of an address, of those that are `wanted`.
    pub fn take(&mut self, addr3: u64, wanted: impl Fn(Entry) -> bool) -> Option<Entry> {
        let mut i = Self::home(addr3);
        loop {
            let a = self.slots[i % SLOTS];
            if a.addr3 == 0 {
                return None;
            }
            if a.addr3 == addr3 && wanted(a.entry) {
                self.slots[i % SLOTS] = EMPTY;
                self.count -= 1;
                self.close_gap(i);
                return Some(a.entry);
            }
            i += 1;
        }
    }

    /// Puts what stands behind a gap down anew, in its order.
    fn close_gap(&mut self, gap: usize) {
        let mut i = gap + 1;
        loop {
            let a = self.slots[i % SLOTS];
            if a.addr3 == 0 {
                return;
            }
            self.slots[i % SLOTS] = EMPTY;
            self.count -= 1;
            self.put(a.addr3, a.entry);
            i += 1;
        }
    }

    /// Address >> 3 and entry of any one, without taking it.
    pub fn any(&self) -> Option<(u64, Entry)> {
        if self.count == 0 { None } else { self.slots.iter().find(|a| a.addr3 != 0).map(|a| (a.addr3, a.entry)) }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        if self.count > 0 {
            self.slots = [EMPTY; SLOTS];
            self.count = 0;
        }
    }
}
