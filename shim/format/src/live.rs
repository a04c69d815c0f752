//! The live table's memory: which block of which lane lies at an address, by pages of 4 KiB.
//!
//! Every page of the program in which a block begins has one *node*: a header word, then entries of one word each at the place that their
//! offset in the page gives them, so that neighbours in the program's memory are neighbours here and a run of calls touches few cache
//! lines and fewer pages. A node that gets full is copied into one of twice its size; one that gets empty is given back.
//!
//! The memory is a row of nodes of 16 << class bytes; a reader walks from header to header. One that was being copied can stand there
//! twice: the same block then is found twice.
//!
//! ```text
//! header   63 live | 62 node | 39..36 class | 35..0 page (address >> 12)
//! entry    63..24 sequence number + 1, modulo 2^40 | 23..20 of the usable size | 19..9 lane | 8..0 address >> 3 in the page
//! ```
//!
//! An entry of zero is empty.

/// Sizes of nodes: 16 << class bytes.
pub const CLASSES: usize = 10;
/// Bits of a sequence number that an entry keeps.
pub const SEQ_BITS: u32 = 40;
/// Mask of these bits.
pub const SEQ_MASK: u64 = (1 << SEQ_BITS) - 1;
/// Bits of `address >> 3` within a page.
pub const KEY_BITS: u32 = 9;
const KEY_MASK: u64 = (1 << KEY_BITS) - 1;
const LANE_SHIFT: u32 = 9;
const SIZE_SHIFT: u32 = 20;
const SEQ_SHIFT: u32 = 24;

/// Words of a node, its header included.
#[inline(always)]
pub const fn words(class: u32) -> u32 {
    2 << class
}

/// Entries that a node has places for.
#[inline(always)]
pub const fn capacity(class: u32) -> u32 {
    words(class) - 1
}

/// Entries that a node takes before it is copied into a larger one: all of a cache line, 13/16 of more than one.
#[inline(always)]
pub const fn most(class: u32) -> u32 {
    if class <= 2 { capacity(class) } else { 13 << (class - 3) }
}

/// The smallest class that takes `n` entries.
pub const fn class_for(n: u32) -> u32 {
    let mut class = 0;
    while class < CLASSES as u32 - 1 && most(class) < n {
        class += 1;
    }
    class
}

/// First word of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header(pub u64);

impl Header {
    /// Of a page's node.
    #[inline(always)]
    pub const fn of(page: u64, class: u32) -> Header {
        Header(3 << 62 | (class as u64) << 36 | page & ((1 << 36) - 1))
    }

    /// Of a node that is nobody's.
    #[inline(always)]
    pub const fn free(class: u32) -> Header {
        Header(1 << 62 | (class as u64) << 36)
    }

    /// Its class, `None` where no node begins.
    pub const fn class(self) -> Option<u32> {
        let class = (self.0 >> 36 & 15) as u32;
        if self.0 >> 62 & 1 == 0 || class as usize >= CLASSES { None } else { Some(class) }
    }

    /// The page whose node it is, `None` for a free node.
    pub const fn page(self) -> Option<u64> {
        if self.0 >> 63 == 0 { None } else { Some(self.0 & ((1 << 36) - 1)) }
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
        Entry(self.0 & !KEY_MASK | key & KEY_MASK)
    }

    /// The same without its place.
    #[inline(always)]
    pub const fn bare(self) -> Entry {
        Entry(self.0 & !KEY_MASK)
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

    /// `address >> 3` in its page, of an entry that stands in a node.
    #[inline(always)]
    pub const fn key(self) -> u64 {
        self.0 & KEY_MASK
    }
}

/// Where the search for a key begins.
#[inline(always)]
const fn home(key: u64, class: u32) -> u32 {
    (key as u32 * capacity(class)) >> KEY_BITS
}

/// The word where the search for a key begins: what to bring nearer before it is needed.
///
/// # Safety
/// A node of that class begins at `node`.
#[inline(always)]
pub unsafe fn first_probe(node: *mut u64, class: u32, key: u64) -> *mut u64 {
    // SAFETY: the home is below the capacity.
    unsafe { node.add(1 + home(key & KEY_MASK, class) as usize) }
}

/// What a search ends at.
pub enum Found {
    /// The entry.
    Entry(*mut u64),
    /// It is not there; here is its place.
    Place(*mut u64),
    /// It is not there, and the node is full.
    Full,
}

/// Looks for the entry of a key, `address >> 3` or its low bits.
///
/// # Safety
/// A node of that class begins at `node`.
#[inline(always)]
pub unsafe fn find(node: *mut u64, class: u32, key: u64) -> Found {
    let key = key & KEY_MASK;
    let n = capacity(class);
    let mut at = home(key, class);
    // SAFETY: at stays below the node's capacity.
    unsafe {
        for _ in 0..n {
            let p = node.add(1 + at as usize);
            let e = p.read();
            if e == 0 {
                return Found::Place(p);
            }
            if e & KEY_MASK == key {
                return Found::Entry(p);
            }
            at = if at + 1 == n { 0 } else { at + 1 };
        }
    }
    Found::Full
}

/// Puts an entry down at the place that a search for its key ended at.
///
/// # Safety
/// `place` is of such a search, and nothing has come between.
#[inline(always)]
pub unsafe fn put(place: *mut u64, key: u64, e: Entry) {
    // SAFETY: the caller's promise.
    unsafe { place.write(e.at(key).0) };
}

/// Copies all entries of a node into an empty one, which has room.
///
/// # Safety
/// Nodes of these classes begin there.
pub unsafe fn copy(from: *mut u64, from_class: u32, to: *mut u64, to_class: u32) {
    // SAFETY: the caller's promise.
    unsafe {
        for i in 0..capacity(from_class) as usize {
            let e = from.add(1 + i).read();
            if e != 0
                && let Found::Place(p) = find(to, to_class, e)
            {
                p.write(e);
            }
        }
    }
}

/// Takes an entry out; those behind it that its place kept from theirs move up.
///
/// # Safety
/// `entry` is one of the node's.
#[inline(always)]
pub unsafe fn take_out(node: *mut u64, class: u32, entry: *mut u64) {
    let n = capacity(class);
    // SAFETY: places are below the node's capacity.
    unsafe {
        let mut gap = entry.offset_from(node) as u32 - 1;
        let mut at = gap;
        for _ in 1..n {
            at = if at + 1 == n { 0 } else { at + 1 };
            let e = node.add(1 + at as usize).read();
            if e == 0 {
                break;
            }
            // How far it stands behind its home, and behind the gap.
            let home = home(Entry(e).key(), class);
            let from_home = if at >= home { at - home } else { at + n - home };
            let from_gap = if at >= gap { at - gap } else { at + n - gap };
            if from_home >= from_gap {
                node.add(1 + gap as usize).write(e);
                gap = at;
            }
        }
        node.add(1 + gap as usize).write(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn an_entry_keeps_lane_and_sequence_number() {
        for (lane, seq) in [(0, 0), (2047, SEQ_MASK - 1), (17, 0x12_3456_789a)] {
            let e = Entry::new(lane, seq, 104);
            assert_eq!((e.lane(), e.seq(seq + 1), e.seq(seq + 1000)), (lane, seq, seq));
            assert!(e.can_be(104) && e.is_before(seq + 1) && !e.is_before(seq));
        }
    }

    #[test]
    fn sequence_numbers_beyond_what_an_entry_keeps_are_right() {
        for seq in [SEQ_MASK - 1, SEQ_MASK, SEQ_MASK + 1, 5 << SEQ_BITS, (5 << SEQ_BITS) - 1] {
            let e = Entry::new(3, seq, 24);
            for later in [1, 2, 1000, SEQ_MASK / 2] {
                assert_eq!(e.seq(seq + later), seq);
                assert!(e.is_before(seq + later));
            }
            assert!(!e.is_before(seq) && !e.is_before(seq - 64));
        }
    }

    #[test]
    fn classes_hold_what_they_say() {
        for n in 1..=600 {
            let class = class_for(n);
            assert!(most(class) >= n && most(class) <= capacity(class));
            assert!(class == 0 || most(class - 1) < n);
        }
        assert!(most(CLASSES as u32 - 1) >= 512, "a page of blocks of eight bytes");
    }

    #[test]
    fn usable_sizes_of_a_page_differ_mostly() {
        let alike = (1..=256u64).filter(|n| Entry::new(0, 0, 24).can_be(24 + 16 * n)).count();
        assert!(alike < 256 / 8, "{alike}");
    }

    proptest::proptest! {
        #[test]
        fn a_node_agrees_with_a_map(class in 1..9u32, ops in proptest::collection::vec((0..512u64, proptest::bool::ANY), 1..900)) {
            let mut words = vec![0u64; words(class) as usize];
            let node = words.as_mut_ptr();
            let mut model = BTreeMap::new();
            for (seq, (key, insert)) in ops.into_iter().enumerate() {
                // SAFETY: the vector is a node of that class.
                unsafe {
                    match find(node, class, key) {
                        Found::Entry(p) => {
                            let e = Entry(p.read());
                            assert_eq!(model.get(&key), Some(&e.low_seq()));
                            if !insert {
                                take_out(node, class, p);
                                model.remove(&key);
                            }
                        }
                        Found::Place(p) if insert && (model.len() as u32) < most(class) => {
                            assert!(!model.contains_key(&key));
                            put(p, key, Entry::new(1, seq as u64, 8));
                            model.insert(key, seq as u64);
                        }
                        _ => assert!(!model.contains_key(&key)),
                    }
                }
            }
            let mut larger = vec![0u64; super::words(class + 1) as usize];
            // SAFETY: both are nodes.
            unsafe { copy(node, class, larger.as_mut_ptr(), class + 1) };
            let of = |w: &[u64]| w.iter().filter(|e| **e != 0).map(|e| (Entry(*e).key(), Entry(*e).low_seq())).collect::<BTreeMap<_, _>>();
            assert_eq!(&of(&words), &model);
            assert_eq!(&of(&larger), &model);
            for key in 0..512 {
                // SAFETY: as above.
                let found = unsafe { find(larger.as_mut_ptr(), class + 1, key) };
                assert_eq!(matches!(found, Found::Entry(_)), model.contains_key(&key));
            }
        }
    }
}
