//! The live table: which block lies at an address. It belongs to the drain.
//!
//! Blocks stand by the page they begin in ([`memshim_format::live`]), because calls that follow each other mostly concern neighbours: one
//! page of the table then answers for many of them, where a table hashed by address touches a cold line, and a cold page, for each. A
//! directory in private memory says where a page's node lies. Together 10 to 20 bytes a live block where a page holds
//! several, and up to 50 where it holds one or two: blocks there are larger than half a kilobyte.

mod nodes;
mod pages;

use memshim_format::live::{self, Entry, Found};
use nodes::Nodes;
use pages::{Page, Pages};

/// The table.
pub struct Table {
    pages: Pages,
    nodes: Nodes,
    used: u64,
}

pub static mut TABLE: Table = Table { pages: Pages::new(), nodes: Nodes::new(), used: 0 };

/// Where an entry stands; good until anything is inserted or taken out.
#[derive(Clone, Copy)]
pub struct Slot {
    entry: *mut u64,
    row: *mut Page,
}

/// What [`Table::insert`] did.
pub enum Inserted {
    /// It is in.
    Yes,
    /// A live block lies at its address.
    Taken(Slot),
    /// There is no memory for it.
    NoMemory,
}

/// Tables below this size are at hand: to ask for their lines beforehand costs more than it brings.
const AT_HAND: usize = 512 << 10;

#[inline(always)]
const fn page_of(addr3: u64) -> u64 {
    addr3 >> live::KEY_BITS
}

impl Table {
    /// Whether lines of the table should be asked for before they are needed.
    #[inline(always)]
    pub fn is_far(&self) -> bool {
        self.nodes.bytes() > AT_HAND
    }

    /// Brings the row of an address's page nearer.
    #[inline(always)]
    pub fn prefetch_page(&self, addr3: u64) {
        self.pages.prefetch(page_of(addr3));
    }

    /// Brings the entry of an address nearer, its page's row being at hand.
    #[inline(always)]
    pub fn prefetch_entry(&self, addr3: u64) {
        let row = self.pages.find(page_of(addr3));
        if !row.is_null() {
            // SAFETY: rows that are found name nodes; a prefetch of any address is harmless.
            unsafe {
                let row = row.read();
                let p = live::first_probe(self.nodes.at(row.node), row.class(), addr3);
                core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(p.cast());
            }
        }
    }

    /// Starts empty. Memory comes with the first insertion; that of before is not the table's any more.
    pub fn reset(&mut self) {
        self.pages.clear();
        self.nodes.clear();
        self.used = 0;
    }

    /// Lets go of the memory (a forked child, of its parent's).
    ///
    /// # Safety
    /// The table is reset before it is used.
    pub unsafe fn release(&mut self) {
        // SAFETY: the caller's promise.
        unsafe { self.nodes.release() };
        self.reset();
    }

    /// Bytes mapped and entries in use.
    pub fn size(&self) -> (u64, u64) {
        ((self.nodes.bytes() + self.pages.bytes()) as u64, self.used)
    }

    /// Puts a block in.
    #[inline(always)]
    pub fn insert(&mut self, addr3: u64, e: Entry) -> Inserted {
        let mut row = self.pages.find(page_of(addr3));
        if row.is_null() {
            row = self.begin_page(page_of(addr3));
            if row.is_null() {
                return Inserted::NoMemory;
            }
        }
        // SAFETY: rows that are found name nodes.
        unsafe {
            let mut r = row.read();
            let mut found = live::find(self.nodes.at(r.node), r.class(), addr3);
            if let Found::Entry(p) = found {
                return Inserted::Taken(Slot { entry: p, row });
            }
            if r.used() >= live::most(r.class()) {
                if !self.move_node(row, r.class() + 1) {
                    return Inserted::NoMemory;
                }
                r = row.read();
                found = live::find(self.nodes.at(r.node), r.class(), addr3);
            }
            let Found::Place(place) = found else { return Inserted::NoMemory };
            live::put(place, addr3, e);
            row.write(r.plus());
            self.used += 1;
        }
        Inserted::Yes
    }

    #[inline(never)]
    fn begin_page(&mut self, page: u64) -> *mut Page {
        if !self.pages.has_room() {
            return core::ptr::null_mut();
        }
        match self.nodes.take(page, 0) {
            Some(node) => self.pages.add(page, 0, node),
            None => core::ptr::null_mut(),
        }
    }

    /// Gives a page a node of another size.
    #[inline(never)]
    unsafe fn move_node(&mut self, row: *mut Page, class: u32) -> bool {
        // SAFETY: the row names a node; class takes its entries.
        unsafe {
            let r = row.read();
            if class as usize >= live::CLASSES {
                return false;
            }
            let Some(to) = self.nodes.take(r.page(), class) else { return false };
            live::copy(self.nodes.at(r.node), r.class(), self.nodes.at(to), class);
            row.write(r.moved(class, to));
            self.nodes.give(r.node, r.class());
        }
        true
    }

    /// The live entry of an address.
    #[inline(always)]
    pub fn find(&self, addr3: u64) -> Option<Slot> {
        let row = self.pages.find(page_of(addr3));
        if row.is_null() {
            return None;
        }
        // SAFETY: rows that are found name nodes.
        unsafe {
            let r = row.read();
            match live::find(self.nodes.at(r.node), r.class(), addr3) {
                Found::Entry(entry) => Some(Slot { entry, row }),
                _ => None,
            }
        }
    }

    /// The block that stands in a slot.
    #[inline(always)]
    pub fn get(&self, slot: Slot) -> Entry {
        // SAFETY: slots are entries of nodes.
        Entry(unsafe { slot.entry.read() }).bare()
    }

    /// Takes an entry out.
    #[inline(always)]
    pub fn take(&mut self, slot: Slot) {
        // SAFETY: nothing has come between the search and this.
        unsafe {
            let r = slot.row.read();
            live::take_out(self.nodes.at(r.node), r.class(), slot.entry);
            self.used -= 1;
            let r = r.minus();
            slot.row.write(r);
            if r.used() * 8 <= live::capacity(r.class()) {
                self.shrink(slot.row);
            }
        }
    }

    /// A node of which hardly anything is left.
    #[inline(never)]
    unsafe fn shrink(&mut self, row: *mut Page) {
        // SAFETY: the row names a node.
        unsafe {
            let r = row.read();
            if r.used() == 0 {
                self.nodes.give(r.node, r.class());
                self.pages.remove(row);
            } else if r.class() > 0 {
                // Without memory for it the large one stays.
                self.move_node(row, live::class_for(r.used() * 2));
            }
        }
    }
}
