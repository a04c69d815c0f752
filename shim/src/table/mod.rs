//! The live table: which block lies at an address. It belongs to the drain.
//!
//! Blocks stand by the page they begin in ([`memshim_format::live`]), because calls that follow each other mostly concern neighbours: one
//! page of the table then answers for many of them, where a table hashed by address touches a cold line, and a cold page, for each. A
//! directory in private memory says where a span's node lies.
//!
//! A span that has a node has all its entries there, whatever their sizes: a search begins at the page, and ends at the first span up from
//! there that has a node. So a page, or a MiB, costs a row and a header only once some blocks begin in it, and a block takes 10 to 20 bytes
//! however large it is. Pages that follow one of many blocks are expected to have many, and have nodes from the first: small blocks that
//! come one behind the other never see the upper levels.

mod levels;
mod nodes;
mod rows;

use crate::sys;
use memshim_format::live::{self, Entry, FEW, Found, LEVELS, Span, class_for};
use nodes::Nodes;
use rows::{Row, Rows};

/// The table.
pub struct Table {
    rows: Rows,
    nodes: Nodes,
    used: u64,
    /// Pages that were found empty last, and which of them is the oldest.
    emptied: [Span; EMPTIED],
    oldest: usize,
}

pub static mut TABLE: Table = Table::new();

/// Where an entry stands; good until anything is inserted or taken out.
#[derive(Clone, Copy)]
pub struct Slot {
    entry: *mut u64,
    row: *mut Row,
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
const PAGE: u32 = 0;
const TOP: u32 = LEVELS as u32 - 1;
/// Blocks of a page from which on the page behind it is expected to have many.
const MANY: u32 = 12;
/// Pages that have lost their last block and keep their nodes: it may be the next call that needs one.
const EMPTIED: usize = 4;

/// Class of a row's node.
fn class_of(r: Row) -> u32 {
    live::class_of(r.span().level(), r.places())
}

impl Table {
    /// Empty and without memory.
    pub const fn new() -> Table {
        Table { rows: Rows::new(), nodes: Nodes::new(), used: 0, emptied: [Span::from_bits(0); EMPTIED], oldest: 0 }
    }

    /// Whether lines of the table should be asked for before they are needed.
    #[inline(always)]
    pub fn is_far(&self) -> bool {
        self.nodes.bytes() > AT_HAND
    }

    /// Brings the row of an address's page nearer.
    #[inline(always)]
    pub fn prefetch_page(&self, addr3: u64) {
        self.rows.prefetch(Span::of(PAGE, addr3));
    }

    /// Brings the entry of an address nearer, its page's row being at hand.
    #[inline(always)]
    pub fn prefetch_entry(&self, addr3: u64) {
        let mut row = self.rows.find(Span::of(PAGE, addr3));
        if row.is_null() {
            row = self.row_above(PAGE, addr3);
        }
        if !row.is_null() {
            // SAFETY: rows that are found name nodes; a prefetch of any address is harmless.
            unsafe {
                let row = row.read();
                let p = live::first_probe(row.span().level(), row.places(), self.nodes.at(row.node), addr3);
                core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(p.cast());
            }
        }
    }

    /// Starts empty. Memory comes with the first insertion; that of before is not the table's any more.
    pub fn reset(&mut self) {
        self.rows.clear();
        self.nodes.clear();
        self.used = 0;
        self.emptied = [Span::from_bits(0); EMPTIED];
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

    /// Bytes of memory and entries in use.
    pub fn size(&self) -> (u64, u64) {
        ((self.nodes.bytes() + self.rows.bytes()) as u64, self.used)
    }

    /// Bytes of it that lie in memory; `None` where the kernel does not say.
    pub fn resident(&self) -> Option<u64> {
        let (nodes, rows) = (self.nodes.memory(), self.rows.memory());
        // SAFETY: the lock is held.
        unsafe { Some(sys::resident(nodes.0, nodes.1)? + sys::resident(rows.0, rows.1)?) }
    }

    /// Puts a block in.
    #[inline(always)]
    pub fn insert(&mut self, addr3: u64, e: Entry) -> Inserted {
        let row = self.rows.find(Span::of(PAGE, addr3));
        if row.is_null() {
            return self.insert_above(addr3, e);
        }
        // SAFETY: rows that are found name nodes.
        unsafe { self.insert_at(PAGE, row, addr3, e) }
    }

    /// Into the node of a row of that level.
    #[inline(always)]
    unsafe fn insert_at(&mut self, level: u32, row: *mut Row, addr3: u64, e: Entry) -> Inserted {
        // SAFETY: the row names a node.
        unsafe {
            let mut r = row.read();
            let mut found = live::find(level, r.places(), self.nodes.at(r.node), addr3);
            if let Found::Entry(p) = found {
                return Inserted::Taken(Slot { entry: p, row });
            }
            if r.used() >= live::most(level, r.places()) {
                if !self.enlarge(row) {
                    return Inserted::NoMemory;
                }
                r = row.read();
                found = live::find(level, r.places(), self.nodes.at(r.node), addr3);
            }
            let Found::Place(place) = found else { return Inserted::NoMemory };
            live::put(level, r.places(), self.nodes.at(r.node), place, addr3, e);
            row.write(r.plus());
            self.used += 1;
        }
        Inserted::Yes
    }

    /// Gives a span an empty node of its own.
    fn begin(&mut self, span: Span, class: u32) -> *mut Row {
        if !self.rows.has_room() {
            return core::ptr::null_mut();
        }
        match self.nodes.take(span, class) {
            Some(node) => self.rows.add(span, live::places(span.level(), class), node),
            None => core::ptr::null_mut(),
        }
    }

    /// Gives a span a larger node: by a third or a half, or twice as large where as many blocks are to be expected.
    #[inline(never)]
    unsafe fn enlarge(&mut self, row: *mut Row) -> bool {
        // SAFETY: the row names a node.
        unsafe {
            let r = row.read();
            let level = r.span().level();
            let most = live::LARGEST[level as usize % LEVELS];
            let class = class_of(r);
            let step = if level == PAGE && self.before(r.span()) >= 2 * r.used() { 2 } else { 1 };
            class < most && self.move_node(row, (class + step).min(most))
        }
    }

    /// Gives a span a node of another class, which takes its entries.
    unsafe fn move_node(&mut self, row: *mut Row, class: u32) -> bool {
        // SAFETY: the row names a node.
        unsafe {
            let r = row.read();
            let level = r.span().level();
            let places = live::places(level, class);
            let Some(to) = self.nodes.take(r.span(), class) else { return false };
            live::copy(level, r.places(), self.nodes.at(r.node), places, self.nodes.at(to));
            row.write(r.moved(places, to));
            self.nodes.give(r.node, class_of(r));
        }
        true
    }

    /// The live entry of an address.
    #[inline(always)]
    pub fn find(&self, addr3: u64) -> Option<Slot> {
        let row = self.rows.find(Span::of(PAGE, addr3));
        if row.is_null() {
            return self.find_above(addr3);
        }
        // SAFETY: rows that are found name nodes.
        unsafe { self.find_at(PAGE, row, addr3) }
    }

    #[inline(always)]
    unsafe fn find_at(&self, level: u32, row: *mut Row, addr3: u64) -> Option<Slot> {
        // SAFETY: the row names a node.
        unsafe {
            let r = row.read();
            match live::find(level, r.places(), self.nodes.at(r.node), addr3) {
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
            self.used -= 1;
            let r = slot.row.read();
            if r.span().level() != PAGE {
                return self.take_above(slot);
            }
            live::take_out(PAGE, r.places(), self.nodes.at(r.node), slot.entry);
            let r = r.minus();
            slot.row.write(r);
            if r.used() <= live::least(r.places()) {
                self.shrink(slot.row);
            }
        }
    }

    unsafe fn shrink_if_few(&mut self, row: *mut Row) {
        // SAFETY: the row names a node.
        unsafe {
            let r = row.read();
            if r.used() <= live::least(r.places()) {
                self.shrink(row);
            }
        }
    }

    /// A node of which hardly anything is left.
    #[inline(never)]
    unsafe fn shrink(&mut self, row: *mut Row) {
        // SAFETY: the row names a node.
        unsafe {
            let r = row.read();
            let level = r.span().level();
            if r.used() == 0 && level == PAGE {
                self.retire(r.span());
            } else if r.used() == 0 {
                self.nodes.give(r.node, class_of(r));
                self.rows.remove(row);
            } else if r.used() > FEW || level == TOP || level == PAGE && self.keeps_node(r.span()) || !self.scatter(row) {
                // Without memory for it the large one stays.
                let class = class_for(level, r.used() * 2);
                if class < class_of(r) {
                    self.move_node(self.rows.find(r.span()), class);
                }
            }
        }
    }
}
