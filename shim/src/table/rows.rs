//! Where the node of a span lies: an open-addressing table of the spans that have one, in private memory (a reader of the spool
//! finds the spans in the nodes themselves). Pages that follow each other stand together, four to a place that is hashed.

use crate::sys::{self, sys};
use memshim_format::live::{PLACES_BITS, Span};

/// A span's row: 12 bytes. An empty one is all zero: page 0 has no blocks.
#[repr(C, packed(4))]
#[derive(Clone, Copy)]
pub struct Row {
    /// The span in bits 0..38, places of its node in 38..49, entries of it in use above.
    lo: u64,
    /// Its node, in units.
    pub node: u32,
}

const PLACES_SHIFT: u32 = Span::BITS;
const PLACES_MASK: u64 = (1 << PLACES_BITS) - 1;
const USED_SHIFT: u32 = PLACES_SHIFT + PLACES_BITS;
const ONE: u64 = 1 << USED_SHIFT;

impl Row {
    const EMPTY: Row = Row { lo: 0, node: 0 };

    /// Whose it is.
    #[inline(always)]
    pub const fn span(self) -> Span {
        Span::from_bits(self.lo)
    }

    /// Places of its node.
    #[inline(always)]
    pub const fn places(self) -> u32 {
        (self.lo >> PLACES_SHIFT & PLACES_MASK) as u32
    }

    /// Entries in its node.
    #[inline(always)]
    pub const fn used(self) -> u32 {
        (self.lo >> USED_SHIFT) as u32
    }

    /// The same with an entry more.
    #[inline(always)]
    pub const fn plus(self) -> Row {
        Row { lo: self.lo + ONE, node: self.node }
    }

    /// The same with an entry less.
    #[inline(always)]
    pub const fn minus(self) -> Row {
        Row { lo: self.lo - ONE, node: self.node }
    }

    /// The same with another node.
    pub const fn moved(self, places: u32, node: u32) -> Row {
        Row { lo: self.lo & !(PLACES_MASK << PLACES_SHIFT) | (places as u64) << PLACES_SHIFT, node }
    }

    const fn is_empty(self) -> bool {
        self.lo == 0
    }
}

/// The table.
pub struct Rows {
    rows: *mut Row,
    /// Rows less one: a power of two.
    mask: u64,
    shift: u32,
    used: u64,
}

const FIRST: u64 = 256;
/// What a table without memory looks into.
static NONE: [Row; 4] = [Row::EMPTY; 4];

impl Rows {
    /// Without memory.
    pub const fn new() -> Rows {
        Rows { rows: (&raw const NONE).cast_mut().cast(), mask: NONE.len() as u64 - 1, shift: 63, used: 0 }
    }

    /// Bytes mapped.
    pub fn bytes(&self) -> usize {
        if self.is_none() { 0 } else { Self::len(self.mask + 1) }
    }

    /// Where they lie.
    pub fn memory(&self) -> (*const u8, usize) {
        (self.rows.cast(), self.bytes())
    }

    const fn is_none(&self) -> bool {
        self.mask < FIRST - 1
    }

    fn len(rows: u64) -> usize {
        (rows as usize * size_of::<Row>() + 4095) & !4095
    }

    /// Forgets all spans and lets go of the memory.
    pub fn clear(&mut self) {
        if !self.is_none() {
            // SAFETY: the mapping is this table's.
            unsafe { sys::unmap(self.rows.cast(), self.bytes()) };
        }
        *self = Rows::new();
    }

    #[inline(always)]
    fn home(&self, span: Span) -> u64 {
        ((span.bits() >> 2).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift & !3) | span.bits() & 3
    }

    #[inline(always)]
    fn row(&self, i: u64) -> *mut Row {
        self.rows.wrapping_add(i as usize)
    }

    /// Brings a span's row nearer.
    #[inline(always)]
    pub fn prefetch(&self, span: Span) {
        // SAFETY: a prefetch of any address is harmless.
        unsafe { core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(self.row(self.home(span)).cast()) };
    }

    /// The row of a span, null where it has none. Good until a row is added or removed, or [`Rows::has_room`] is asked.
    #[inline(always)]
    pub fn find(&self, span: Span) -> *mut Row {
        let mut i = self.home(span);
        // SAFETY: rows 0..=mask are mapped, and some are empty.
        unsafe {
            loop {
                let p = self.row(i);
                let found = p.read().span().bits();
                if found == 0 {
                    return core::ptr::null_mut();
                }
                if found == span.bits() {
                    return p;
                }
                i = (i + 1) & self.mask;
            }
        }
    }

    /// Whether a span more has a row; grows if need be.
    pub fn has_room(&mut self) -> bool {
        // Five eighths.
        !self.is_none() && self.used * 8 < (self.mask + 1) * 5 || self.grow()
    }

    /// Adds a span that is not there, where [`Rows::has_room`]. Its node has no entries.
    pub fn add(&mut self, span: Span, places: u32, node: u32) -> *mut Row {
        self.put(Row { lo: span.bits() | (places as u64) << PLACES_SHIFT, node })
    }

    fn put(&mut self, row: Row) -> *mut Row {
        let mut i = self.home(row.span());
        // SAFETY: as for find.
        unsafe {
            while !self.row(i).read().is_empty() {
                i = (i + 1) & self.mask;
            }
            self.row(i).write(row);
            self.used += 1;
            self.row(i)
        }
    }

    /// Takes a row out; those behind it that it kept from their places move up.
    pub fn remove(&mut self, row: *mut Row) {
        // SAFETY: the row is one of ours; i and gap stay in 0..=mask.
        unsafe {
            let mut gap = row.offset_from(self.rows) as u64;
            let mut i = gap;
            loop {
                i = (i + 1) & self.mask;
                let r = self.row(i).read();
                if r.is_empty() {
                    break;
                }
                let from_home = i.wrapping_sub(self.home(r.span())) & self.mask;
                if from_home >= (i.wrapping_sub(gap) & self.mask) {
                    self.row(gap).write(r);
                    gap = i;
                }
            }
            self.row(gap).write(Row::EMPTY);
        }
        self.used -= 1;
    }

    #[cold]
    fn grow(&mut self) -> bool {
        let rows = if self.is_none() { FIRST } else { (self.mask + 1) * 2 };
        let p = sys::map_anon(Self::len(rows));
        if p.is_null() {
            return false;
        }
        if Self::len(rows) >= 4 << 20 {
            // SAFETY: our own mapping. Where there are no huge pages nothing changes.
            unsafe { sys!(libc::SYS_madvise, p, Self::len(rows), libc::MADV_HUGEPAGE) };
        } else {
            // Rows come to lie all over it.
            // SAFETY: as above.
            unsafe { sys::populate(p, Self::len(rows)) };
        }
        let old = Rows { rows: self.rows, mask: self.mask, shift: self.shift, used: self.used };
        *self = Rows { rows: p.cast(), mask: rows - 1, shift: 64 - rows.trailing_zeros(), used: 0 };
        if !old.is_none() {
            for i in 0..=old.mask {
                // SAFETY: rows 0..=mask are mapped.
                let row = unsafe { old.row(i).read() };
                if !row.is_empty() {
                    self.put(row);
                }
            }
            // SAFETY: the mapping was the old table's.
            unsafe { sys::unmap(old.rows.cast(), old.bytes()) };
        }
        true
    }
}
