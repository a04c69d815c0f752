//! Sizes of nodes, and how many entries each takes.

use super::LEVELS;

/// Nodes are multiples of this many bytes.
pub const UNIT: usize = 32;
/// Sizes of nodes: 1, 2, 3, 4, 6, 8, 12, 16 … 512 units.
pub const CLASSES: usize = 18;

/// Units of a node.
#[inline(always)]
pub const fn units(class: u32) -> u32 {
    match class {
        0 => 1,
        n if n % 2 == 1 => 2 << (n / 2),
        n => 3 << (n / 2 - 1),
    }
}

/// Bytes of a node.
#[inline(always)]
pub const fn bytes(class: u32) -> usize {
    units(class) as usize * UNIT
}

/// Places that a node of a level has for entries.
#[inline(always)]
pub const fn places(level: u32, class: u32) -> u32 {
    let bytes = bytes(class) as u32 - 8;
    match level {
        0 => bytes / 8,
        1 => bytes / 9,
        _ => bytes / 10,
    }
}

/// Entries that a node of so many places takes before it is copied into a larger one, so that probes stay short. A page's: eleven sixteenths,
/// with which a node that has just become larger still has but 20 bytes an entry, its row included. Those of the upper levels have
/// more bytes an entry, and are filled more: three quarters, and 27/32.
#[inline(always)]
pub const fn most(level: u32, places: u32) -> u32 {
    let share = match level {
        0 => (22 * places + 38) >> 5,
        1 => (24 * places + 48) >> 5,
        _ => (27 * places + 35) >> 5,
    };
    if share < places { share } else { places }
}

/// Entries down to which such a node is kept.
#[inline(always)]
pub const fn least(places: u32) -> u32 {
    (places + 9) >> 3
}

/// The class of a level that has so many places.
#[inline(always)]
pub const fn class_of(level: u32, places: u32) -> u32 {
    let units = (8 + places * (8 + level)).div_ceil(UNIT as u32);
    let log = units.ilog2();
    if log == 0 { 0 } else { 2 * log - 1 + (units >> (log - 1) & 1) }
}

/// The smallest class of a level that takes `n` entries, or its largest.
pub const fn class_for(level: u32, n: u32) -> u32 {
    let mut class = if level == 0 { 1 } else { 0 };
    while most(level, places(level, class)) < n && class < LARGEST[level as usize % LEVELS] {
        class += 1;
    }
    class
}

/// The largest class of each level: for every place of a page, and for what stands in the upper levels because it is in no smaller span.
pub const LARGEST: [u32; LEVELS] = [15, CLASSES as u32 - 1, CLASSES as u32 - 1];

const _: () = assert!(places(0, class_for(0, u32::MAX)) == 1023 && places(LEVELS as u32 - 1, CLASSES as u32 - 1) < 1 << super::PLACES_BITS);
