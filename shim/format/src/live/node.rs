//! Entries in a node: looked for, put in, taken out. `level` and `places` are the node's; addresses are `address >> 3`, of which the bits
//! within the span count.

use super::{Entry, PAGE_BITS, PAGE_MASK, Span, key_bits, places};
use core::sync::atomic::{Ordering, compiler_fence};

/// Calls a function that is made for each level.
macro_rules! at_level {
    ($level:expr, $of:ident($($arg:expr),*)) => {
        match $level {
            0 => $of::<0>($($arg),*),
            1 => $of::<1>($($arg),*),
            _ => $of::<2>($($arg),*),
        }
    };
}

/// Steps in which pages go through the places of a span, and back: more than 1, so that a span in which blocks begin from its start on does not
/// fill a part of its node's places. Within a page neighbours are neighbours: blocks that lie evenly in the memory, as blocks that don't overlap
/// do, lie evenly here, and few are kept from their places.
const PAGE_STEP: [u64; 2] = [159, 95];
const _: () = assert!((PAGE_STEP[0] * PAGE_STEP[1]) & 255 == 1);

/// A key by its steps, or a key from that (`back` 1): pages, and MiB, keep together.
#[inline(always)]
const fn spread(level: u32, key: u64, back: usize) -> u64 {
    let mut spread = key & PAGE_MASK;
    let mut at = PAGE_BITS;
    while at < key_bits(level) {
        spread |= (((key >> at & 255) * PAGE_STEP[back]) & 255) << at;
        at += 8;
    }
    spread
}

/// The key of an address, as it stands in a node.
#[inline(always)]
const fn key_of(level: u32, addr3: u64) -> u64 {
    spread(level, addr3, 0)
}

/// Where the search for a key begins: at its share of the node.
#[inline(always)]
const fn home(level: u32, key: u64, places: u32) -> u32 {
    ((key * places as u64) >> key_bits(level)) as u32
}

/// The bytes that say of which page of the span the entry at a place is.
#[inline(always)]
unsafe fn page_bytes(level: u32, node: *mut u64, places: u32, at: u32) -> *mut u8 {
    // SAFETY: the caller's: at is below places, so this is within the node.
    unsafe { node.add(1 + places as usize).cast::<u8>().add((at * level) as usize) }
}

/// Which page of its span the entry at a place is of, as it stands there.
#[inline(always)]
unsafe fn page_at(level: u32, node: *mut u64, places: u32, at: u32) -> u64 {
    // SAFETY: as for page_bytes.
    unsafe {
        match level {
            0 => 0,
            1 => page_bytes(level, node, places, at).read_volatile() as u64,
            _ => page_bytes(level, node, places, at).cast::<u16>().read_unaligned() as u64,
        }
    }
}

/// Writes an entry at a place that holds none, its page first: whoever reads a dead process's spool finds both or nothing.
#[inline(always)]
unsafe fn write(level: u32, node: *mut u64, places: u32, at: u32, page: u64, e: u64) {
    // SAFETY: as for page_bytes.
    unsafe {
        let word = node.add(1 + at as usize);
        match level {
            0 => return word.write(e),
            1 => page_bytes(level, node, places, at).write(page as u8),
            _ => page_bytes(level, node, places, at).cast::<u16>().write_unaligned(page as u16),
        }
        compiler_fence(Ordering::Release);
        word.write_volatile(e);
    }
}

/// The word where the search for a key begins: what to bring nearer before it is needed.
///
/// # Safety
/// A node begins there.
#[inline(always)]
pub unsafe fn first_probe(level: u32, places: u32, node: *mut u64, addr3: u64) -> *mut u64 {
    // SAFETY: the caller's promise.
    unsafe { at_level!(level, first_probe_at(places, node, addr3)) }
}

#[inline(always)]
unsafe fn first_probe_at<const L: u32>(places: u32, node: *mut u64, addr3: u64) -> *mut u64 {
    // SAFETY: the home is below the places.
    unsafe { node.add(1 + home(L, key_of(L, addr3), places) as usize) }
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

/// Looks for the entry of an address.
///
/// # Safety
/// A node begins there.
#[inline(always)]
pub unsafe fn find(level: u32, places: u32, node: *mut u64, addr3: u64) -> Found {
    // SAFETY: the caller's promise.
    unsafe { at_level!(level, find_at(places, node, addr3)) }
}

#[inline(always)]
unsafe fn find_at<const L: u32>(places: u32, node: *mut u64, addr3: u64) -> Found {
    let key = key_of(L, addr3);
    let n = places;
    let first = home(L, key, n);
    let mut at = first;
    // SAFETY: at stays below the node's places.
    unsafe {
        loop {
            let p = node.add(1 + at as usize);
            let e = p.read();
            if e == 0 {
                return Found::Place(p);
            }
            if e & PAGE_MASK == key & PAGE_MASK && page_at(L, node, n, at) == key >> PAGE_BITS {
                return Found::Entry(p);
            }
            at = if at + 1 == n { 0 } else { at + 1 };
            if at == first {
                return Found::Full;
            }
        }
    }
}

/// Puts an entry down at the place that a search for its address ended at.
///
/// # Safety
/// `place` is of such a search, and nothing has come between.
#[inline(always)]
pub unsafe fn put(level: u32, places: u32, node: *mut u64, place: *mut u64, addr3: u64, e: Entry) {
    // SAFETY: the caller's promise.
    unsafe { at_level!(level, put_at(places, node, place, addr3, e)) }
}

#[inline(always)]
unsafe fn put_at<const L: u32>(places: u32, node: *mut u64, place: *mut u64, addr3: u64, e: Entry) {
    // SAFETY: the caller's promise.
    unsafe {
        let key = key_of(L, addr3);
        if L == 0 {
            return place.write(e.at(key).0);
        }
        let at = place.offset_from(node) as u32 - 1;
        write(L, node, places, at, key >> PAGE_BITS, e.at(key).0);
    }
}

/// Copies all entries of a node into an empty one with more or fewer places, which has room.
///
/// # Safety
/// Nodes of that level begin there.
#[inline(always)]
pub unsafe fn copy(level: u32, places: u32, from: *mut u64, to_places: u32, to: *mut u64) {
    // SAFETY: the caller's promise.
    unsafe { at_level!(level, copy_at(places, from, to_places, to)) }
}

#[inline(always)]
unsafe fn copy_at<const L: u32>(places: u32, from: *mut u64, to_places: u32, to: *mut u64) {
    let (n, to_n) = (places, to_places);
    // SAFETY: the caller's promise; places are below the nodes'.
    unsafe {
        for at in 0..n {
            let e = Entry(from.add(1 + at as usize).read());
            if e.0 == 0 {
                continue;
            }
            let page = page_at(L, from, n, at);
            let mut at = home(L, page << PAGE_BITS | e.key(), to_n);
            while to.add(1 + at as usize).read() != 0 {
                at = if at + 1 == to_n { 0 } else { at + 1 };
            }
            write(L, to, to_n, at, page, e.0);
        }
    }
}

/// Calls `each` for the entries of a span of a level below, with their addresses >> 3 within the node's.
///
/// # Safety
/// A node begins there.
#[inline(always)]
pub unsafe fn each_within(level: u32, places: u32, node: *mut u64, below: Span, each: impl FnMut(u64, Entry)) {
    // SAFETY: the caller's promise.
    unsafe { at_level!(level, each_within_at(places, node, below, each)) }
}

#[inline(always)]
unsafe fn each_within_at<const L: u32>(places: u32, node: *mut u64, below: Span, mut each: impl FnMut(u64, Entry)) {
    let within = key_bits(below.level());
    let of_span = key_of(L, below.addr3()) >> within;
    let n = places;
    let mut at = home(L, of_span << within, n);
    let all_homes = home(L, ((of_span + 1) << within) - 1, n) - at;
    // SAFETY: at stays below the node's places.
    unsafe {
        // What a place kept from its home stands behind it, without a gap.
        for passed in 0..n {
            let e = Entry(node.add(1 + at as usize).read());
            if e.0 != 0 {
                let key = page_at(L, node, n, at) << PAGE_BITS | e.key();
                if key >> within == of_span {
                    each(spread(L, key, 1), e);
                }
            } else if passed >= all_homes {
                break;
            }
            at = if at + 1 == n { 0 } else { at + 1 };
        }
    }
}

/// Takes an entry out; those behind it that its place kept from theirs move up.
///
/// # Safety
/// `entry` is one of the node's.
#[inline(always)]
pub unsafe fn take_out(level: u32, places: u32, node: *mut u64, entry: *mut u64) {
    // SAFETY: the caller's promise.
    unsafe { at_level!(level, take_out_at(places, node, entry)) }
}

#[inline(always)]
unsafe fn take_out_at<const L: u32>(places: u32, node: *mut u64, entry: *mut u64) {
    let n = places;
    // SAFETY: places are below the node's.
    unsafe {
        let first = entry.offset_from(node) as u32 - 1;
        let mut gap = first;
        let mut at = gap;
        loop {
            at = if at + 1 == n { 0 } else { at + 1 };
            let e = node.add(1 + at as usize).read();
            if e == 0 || at == first {
                break;
            }
            // How far it stands behind its home, and behind the gap.
            let page = page_at(L, node, n, at);
            let home = home(L, page << PAGE_BITS | Entry(e).key(), n);
            let from_home = if at >= home { at - home } else { at + n - home };
            let from_gap = if at >= gap { at - gap } else { at + n - gap };
            if from_home >= from_gap {
                if L > 0 {
                    // What stands in the gap is gone, or stands where it was moved to.
                    node.add(1 + gap as usize).write_volatile(0);
                    compiler_fence(Ordering::Release);
                }
                write(L, node, n, gap, page, e);
                gap = at;
            }
        }
        node.add(1 + gap as usize).write(0);
    }
}

/// Addresses >> 3 and entries of a span's node, given as bytes of which nothing is trusted.
pub fn entries(span: Span, class: u32, node: &[u8]) -> impl Iterator<Item = (u64, Entry)> {
    let (places, further) = (places(span.level(), class) as usize, span.level() as usize);
    let (words, pages) = node.get(8..).unwrap_or(&[]).split_at_checked(places * 8).unwrap_or((&[], &[]));
    words.chunks_exact(8).enumerate().filter_map(move |(at, word)| {
        let e = Entry(u64::from_le_bytes(word.try_into().ok()?));
        let page = pages.get(at * further..(at + 1) * further)?.iter().rev().fold(0, |page, &byte| page << 8 | byte as u64);
        (e.0 != 0).then_some((span.addr3() | spread(span.level(), page << PAGE_BITS | e.key(), 1), e))
    })
}
