//! The live table's memory: which block of which lane lies at an address, by the pages of 4 KiB that blocks begin in.
//!
//! Blocks stand in *nodes*: a header word, then entries of one word each at the place that their address gives them, so that neighbours in the
//! program's memory are neighbours here and a run of calls touches few cache lines and fewer pages. A node that gets full is copied into a
//! larger one; one that gets empty is given back.
//!
//! A node covers a *span* of one of three *levels*: a page of 4 KiB, 1 MiB, or 256 MiB. A page has a node of its own once some blocks begin in
//! it; those of pages with fewer stand together in the node of their MiB, and where the MiB has few of them, in that of 256 MiB. An entry of
//! the upper levels has, behind all entries, one or two bytes more: which page of the span.
//!
//! The memory is a row of nodes; a reader walks from header to header. A block whose node was being copied, or that was being moved between
//! levels, can stand there twice.
//!
//! ```text
//! header   63 live | 62 node | 42..38 class | 37..36 level | 35..0 span (address >> 12, 20 or 28)
//! entry    63..24 sequence number + 1, modulo 2^40 | 23..20 of the usable size | 19..9 lane | 8..0 address >> 3 in the page
//! ```
//!
//! An entry of zero is empty, whatever its further bytes are.

mod node;
mod shape;
#[cfg(test)]
mod tests;

pub use node::{Found, copy, each_within, entries, find, first_probe, put, take_out};
pub use shape::{CLASSES, LARGEST, UNIT, bytes, class_for, class_of, least, most, places, units};

/// Bits of a sequence number that an entry keeps.
pub const SEQ_BITS: u32 = 40;
/// Mask of these bits.
pub const SEQ_MASK: u64 = (1 << SEQ_BITS) - 1;
/// Levels of spans.
pub const LEVELS: usize = 3;
/// Bits that the places of any node can be counted with.
pub const PLACES_BITS: u32 = 11;
/// Bits of `address >> 3` within a page.
pub const PAGE_BITS: u32 = 9;
/// Entries of a span in the node of the level above with which it gets a node of its own, so that its row and header are shared by some.
pub const ENOUGH: u32 = 6;
/// Entries with which a span's node is given up again, and they go to the level above.
pub const FEW: u32 = 2;
const PAGE_MASK: u64 = (1 << PAGE_BITS) - 1;
const LANE_SHIFT: u32 = 9;
const SIZE_SHIFT: u32 = 20;
const SEQ_SHIFT: u32 = 24;

/// Bits of `address >> 3` within a span of a level.
#[inline(always)]
pub const fn key_bits(level: u32) -> u32 {
    PAGE_BITS + 8 * level
}

/// The span of a level that an address lies in: its level and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(u64);

impl Span {
    /// Bits of one.
    pub const BITS: u32 = 38;
    const LEVEL_SHIFT: u32 = 36;
    const NUMBER_MASK: u64 = (1 << Self::LEVEL_SHIFT) - 1;

    /// The one of `address >> 3`, of at most 45 bits.
    #[inline(always)]
    pub const fn of(level: u32, addr3: u64) -> Span {
        Span((level as u64) << Self::LEVEL_SHIFT | addr3 >> key_bits(level))
    }

    /// From its bits, of which those above [`Span::BITS`] are ignored.
    #[inline(always)]
    pub const fn from_bits(bits: u64) -> Span {
        Span(bits & ((1 << Self::BITS) - 1))
    }

    /// As bits; 0 is the page at address 0.
    #[inline(always)]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// 0 a page, 1 a MiB, 2 256 MiB.
    #[inline(always)]
    pub const fn level(self) -> u32 {
        (self.0 >> Self::LEVEL_SHIFT) as u32
    }

    /// `address >> 3` of its begin.
    #[inline(always)]
    pub const fn addr3(self) -> u64 {
        (self.0 & Self::NUMBER_MASK) << key_bits(self.level())
    }
}

/// First word of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header(pub u64);

impl Header {
    const CLASS_SHIFT: u32 = Span::BITS;

    /// Of a span's node.
    #[inline(always)]
    pub const fn of(span: Span, class: u32) -> Header {
        Header(3 << 62 | (class as u64) << Self::CLASS_SHIFT | span.bits())
    }

    /// Of a node that is nobody's.
    #[inline(always)]
    pub const fn free(class: u32) -> Header {
        Header(1 << 62 | (class as u64) << Self::CLASS_SHIFT)
    }

    /// Its class, `None` where no node begins.
    pub const fn class(self) -> Option<u32> {
        let class = (self.0 >> Self::CLASS_SHIFT & 31) as u32;
        if self.0 >> 62 & 1 == 0 || class as usize >= CLASSES { None } else { Some(class) }
    }

    /// The span whose node it is, `None` for a free node.
    pub const fn span(self) -> Option<Span> {
        let span = Span::from_bits(self.0);
        if self.0 >> 63 == 0 || span.level() as usize >= LEVELS { None } else { Some(span) }
    }
}

/// A block: an entry without its place (key 0), or with it as it stands in a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry(pub u64);

impl Entry {
    /// The entry of block `(lane, seq)` of that usable size.
    #[inline(always)]
    pub const fn new(lane: u32, seq: u64, usable: u64) -> Entry {
        Entry((seq.wrapping_add(1) & SEQ_MASK) << SEQ_SHIFT | Self::size_bits(usable) << SIZE_SHIFT | ((lane & 0x7ff) as u64) << LANE_SHIFT)
    }

    /// Four bits of a usable size.
    #[inline(always)]
    const fn size_bits(usable: u64) -> u64 {
        usable.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60
    }

    /// The same at its place in a page.
    #[inline(always)]
    const fn at(self, key: u64) -> Entry {
        Entry(self.0 & !PAGE_MASK | key & PAGE_MASK)
    }

    /// The same without its place.
    #[inline(always)]
    pub const fn bare(self) -> Entry {
        Entry(self.0 & !PAGE_MASK)
    }

    /// Whether it can be a block of that usable size.
    #[inline(always)]
    pub const fn can_be(self, usable: u64) -> bool {
        self.0 >> SIZE_SHIFT & 15 == Self::size_bits(usable)
    }

    /// Owner lane.
    #[inline(always)]
    pub const fn lane(self) -> u32 {
        (self.0 >> LANE_SHIFT) as u32 & 0x7ff
    }

    /// Sequence number in the owner lane, of which `next` is the one it gives next: right for all but blocks that have seen their lane make
    /// 2^40 others.
    #[inline(always)]
    pub const fn seq(self, next: u64) -> u64 {
        next.wrapping_sub(self.age(next) + 1)
    }

    /// Allocations that its lane made after it.
    #[inline(always)]
    const fn age(self, next: u64) -> u64 {
        next.wrapping_sub(self.0 >> SEQ_SHIFT) & SEQ_MASK
    }

    /// Whether it was made before its lane's allocation `next`; else it is of a record that has not been taken over.
    pub const fn is_before(self, next: u64) -> bool {
        self.age(next) <= SEQ_MASK / 2
    }

    /// The low bits of the sequence number.
    #[inline(always)]
    pub const fn low_seq(self) -> u64 {
        (self.0 >> SEQ_SHIFT).wrapping_sub(1) & SEQ_MASK
    }

    /// Its place in its page, of an entry that stands in a node.
    #[inline(always)]
    const fn key(self) -> u64 {
        self.0 & PAGE_MASK
    }
}
