//! Where the node of a page lies: an open-addressing table of the pages in which blocks begin, in private memory (a reader of the spool
//! finds the pages in the nodes themselves). Pages that follow each other stand together, four to a place that is hashed.

use crate::sys::{self, sys};

/// A page's row: 12 bytes. An empty one is all zero: page 0 has no blocks.
#[repr(C, packed(4))]
#[derive(Clone, Copy)]
pub struct Page {
    /// Page (address >> 12) in bits 0..36, class of its node in 36..40, entries of it in use above.
    lo: u64,
    /// Its node, in units of 16 bytes.
    pub node: u32,
}

const PAGE_MASK: u64 = (1 << 36) - 1;
const ONE: u64 = 1 << 40;

impl Page {
    const EMPTY: Page = Page { lo: 0, node: 0 };

    /// Address >> 12.
    #[inline(always)]
    pub const fn page(self) -> u64 {
        self.lo & PAGE_MASK
    }

    /// Class of its node.
    #[inline(always)]
    pub const fn class(self) -> u32 {
        (self.lo >> 36 & 15) as u32
    }

    /// Entries in its node.
    #[inline(always)]
    pub const fn used(self) -> u32 {
        (self.lo >> 40) as u32
    }

    /// The same with an entry more.
    #[inline(always)]
    pub const fn plus(self) -> Page {
        Page { lo: self.lo + ONE, node: self.node }
    }

    /// The same with an entry less.
    #[inline(always)]
    pub const fn minus(self) -> Page {
        Page { lo: self.lo - ONE, node: self.node }
    }

    /// The same with another node.
    pub const fn moved(self, class: u32, node: u32) -> Page {
        Page { lo: self.lo & !(15 << 36) | (class as u64) << 36, node }
    }
}

/// The table.
pub struct Pages {
    rows: *mut Page,
    /// Rows less one: a power of two.
    mask: u64,
    shift: u32,
    used: u64,
}

const FIRST: u64 = 256;

impl Pages {
    /// Without memory.
    pub const fn new() -> Pages {
        Pages { rows: core::ptr::null_mut(), mask: 0, shift: 0, used: 0 }
    }

    /// Bytes mapped.
    pub fn bytes(&self) -> usize {
        if self.rows.is_null() { 0 } else { Self::len(self.mask + 1) }
    }

    fn len(rows: u64) -> usize {
        (rows as usize * size_of::<Page>() + 4095) & !4095
    }

    /// Forgets all pages and lets go of the memory.
    pub fn clear(&mut self) {
        if !self.rows.is_null() {
            // SAFETY: the mapping is this table's.
            unsafe { sys::unmap(self.rows.cast(), self.bytes()) };
        }
        *self = Pages::new();
    }

    #[inline(always)]
    fn home(&self, page: u64) -> u64 {
        ((page >> 2).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift & !3) | page & 3
    }

    #[inline(always)]
    fn row(&self, i: u64) -> *mut Page {
        self.rows.wrapping_add(i as usize)
    }

    /// Brings a page's row nearer.
    #[inline(always)]
    pub fn prefetch(&self, page: u64) {
        // SAFETY: a prefetch of any address is harmless.
        unsafe { core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(self.row(self.home(page)).cast()) };
    }

    /// The row of a page, null where it has none. Good until a page is added or removed.
    #[inline(always)]
    pub fn find(&self, page: u64) -> *mut Page {
        if self.rows.is_null() {
            return core::ptr::null_mut();
        }
        let mut i = self.home(page);
        // SAFETY: rows 0..=mask are mapped, and some are empty.
        unsafe {
            loop {
                let p = self.row(i);
                let found = p.read().page();
                if found == page {
                    return p;
                }
                if found == 0 {
                    return core::ptr::null_mut();
                }
                i = (i + 1) & self.mask;
            }
        }
    }

    /// Whether a page more has a row; grows if need be.
    pub fn has_room(&mut self) -> bool {
        // Five eighths.
        !self.rows.is_null() && self.used * 8 < (self.mask + 1) * 5 || self.grow()
    }

    /// Adds a page that is not there, where [`Pages::has_room`]. Its node has no entries.
    pub fn add(&mut self, page: u64, class: u32, node: u32) -> *mut Page {
        self.put(Page { lo: page & PAGE_MASK | (class as u64) << 36, node })
    }

    fn put(&mut self, row: Page) -> *mut Page {
        let mut i = self.home(row.page());
        // SAFETY: as for find.
        unsafe {
            while self.row(i).read().page() != 0 {
                i = (i + 1) & self.mask;
            }
            self.row(i).write(row);
            self.used += 1;
            self.row(i)
        }
    }

    /// Takes a row out; those behind it that it kept from their places move up.
    pub fn remove(&mut self, row: *mut Page) {
        // SAFETY: the row is one of ours; i and gap stay in 0..=mask.
        unsafe {
            let mut gap = row.offset_from(self.rows) as u64;
            let mut i = gap;
            loop {
                i = (i + 1) & self.mask;
                let r = self.row(i).read();
                if r.page() == 0 {
                    break;
                }
                let from_home = i.wrapping_sub(self.home(r.page())) & self.mask;
                if from_home >= (i.wrapping_sub(gap) & self.mask) {
                    self.row(gap).write(r);
                    gap = i;
                }
            }
            self.row(gap).write(Page::EMPTY);
        }
        self.used -= 1;
    }

    #[cold]
    fn grow(&mut self) -> bool {
        let rows = if self.rows.is_null() { FIRST } else { (self.mask + 1) * 2 };
        let p = sys::map_anon(Self::len(rows));
        if p.is_null() {
            return false;
        }
        if Self::len(rows) >= 4 << 20 {
            // SAFETY: our own mapping. Where there are no huge pages nothing changes.
            unsafe { sys!(libc::SYS_madvise, p, Self::len(rows), libc::MADV_HUGEPAGE) };
        }
        let old = Pages { rows: self.rows, mask: self.mask, shift: self.shift, used: self.used };
        *self = Pages { rows: p.cast(), mask: rows - 1, shift: 64 - rows.trailing_zeros(), used: 0 };
        if !old.rows.is_null() {
            for i in 0..=old.mask {
                // SAFETY: rows 0..=mask are mapped.
                let row = unsafe { old.row(i).read() };
                if row.page() != 0 {
                    self.put(row);
                }
            }
            // SAFETY: the mapping was the old table's.
            unsafe { sys::unmap(old.rows.cast(), old.bytes()) };
        }
        true
    }
}
