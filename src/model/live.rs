//! The live blocks of one lane by sequence number: what kind each is, 0 once it is freed.
//!
//! Blocks are numbered one after another and most die young, so recent numbers stand in arrays of [`SEGMENT`]; an array nearly all
//! of whose blocks are dead is given up and its survivors go to a map. Memory follows the live set, not the number of allocations.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

const SHIFT: u32 = 12;
/// Blocks of one array.
pub const SEGMENT: usize = 1 << SHIFT;
/// At most so many survivors of a full array go to the map.
const FEW: u32 = 256;
/// A jump in the numbers of more arrays than this (a damaged line) is not filled with empty arrays.
const JUMP_MAX: u64 = 1 << 16;

/// Identifies what was allocated: function, size, slack. 0 is no kind.
pub type KindId = u32;

#[derive(Default)]
struct Segment {
    /// Blocks that are not dead.
    live: u32,
    kinds: Option<Box<[KindId; SEGMENT]>>,
}

/// See the module.
#[derive(Default)]
pub struct LiveTable {
    /// Number of the first array in `recent`.
    first: u64,
    recent: VecDeque<Segment>,
    /// Survivors of arrays given up.
    old: HashMap<u64, KindId, BuildHasherDefault<SpreadHash>>,
    /// An array that is all zero, for the next segment.
    spare: Option<Box<[KindId; SEGMENT]>>,
}

impl LiveTable {
    /// Enters block `seq`; numbers normally go up by one.
    #[inline]
    pub fn insert(&mut self, seq: u64, kind: KindId) {
        let at = (seq >> SHIFT).wrapping_sub(self.first);
        if let Some(Segment { live, kinds: Some(kinds) }) = self.recent.get_mut(at as usize) {
            let slot = &mut kinds[seq as usize % SEGMENT];
            *live += (*slot == 0) as u32;
            *slot = kind;
        } else {
            self.insert_outside(seq, kind);
        }
    }

    #[cold]
    fn insert_outside(&mut self, seq: u64, kind: KindId) {
        let number = seq >> SHIFT;
        let next = self.first + self.recent.len() as u64;
        if number < next {
            self.old.insert(seq, kind); // a number seen before: a damaged or doubled line
            return;
        }
        if let Some(last) = self.recent.len().checked_sub(1) {
            self.give_up_if_few(last);
        }
        if number - next > JUMP_MAX || self.recent.is_empty() {
            for at in 0..self.recent.len() {
                self.give_up(at);
            }
            self.recent.clear();
            self.first = number;
        }
        while self.first + (self.recent.len() as u64) < number {
            self.recent.push_back(Segment::default());
        }
        let mut kinds = self.spare.take().unwrap_or_else(|| Box::new([0; SEGMENT]));
        kinds[seq as usize % SEGMENT] = kind;
        self.recent.push_back(Segment { live: 1, kinds: Some(kinds) });
    }

    /// What kind block `seq` is, 0 where it is not live; brings what [`LiveTable::take`] will need into the cache.
    #[inline]
    pub fn look(&self, seq: u64) -> KindId {
        let at = (seq >> SHIFT).wrapping_sub(self.first) as usize;
        match self.recent.get(at) {
            Some(Segment { kinds: Some(kinds), .. }) => kinds[seq as usize % SEGMENT],
            _ => self.old.get(&seq).copied().unwrap_or(0),
        }
    }

    /// Ends block `seq` and says what kind it was; 0 where it is not live.
    #[inline]
    pub fn take(&mut self, seq: u64) -> KindId {
        let at = (seq >> SHIFT).wrapping_sub(self.first) as usize;
        if let Some(Segment { live, kinds: Some(kinds) }) = self.recent.get_mut(at) {
            let kind = std::mem::take(&mut kinds[seq as usize % SEGMENT]);
            if kind != 0 {
                *live -= 1;
                if *live <= FEW && (*live == FEW || *live == 0) && at + 1 < self.recent.len() {
                    self.give_up(at);
                }
                return kind;
            }
        }
        if self.old.is_empty() {
            return 0;
        }
        self.old.remove(&seq).unwrap_or(0)
    }

    fn give_up_if_few(&mut self, at: usize) {
        if self.recent[at].live <= FEW {
            self.give_up(at);
        }
    }

    fn give_up(&mut self, at: usize) {
        let number = self.first + at as u64;
        let segment = std::mem::take(&mut self.recent[at]);
        let Some(mut kinds) = segment.kinds else { return };
        if segment.live > 0 {
            for (i, &kind) in kinds.iter().enumerate().filter(|(_, k)| **k != 0) {
                self.old.insert(number << SHIFT | i as u64, kind);
            }
            kinds.fill(0);
        }
        self.spare = Some(kinds);
        while self.recent.front().is_some_and(|s| s.kinds.is_none()) && self.recent.len() > 1 {
            self.recent.pop_front();
            self.first += 1;
        }
    }

    /// Live blocks.
    pub fn len(&self) -> u64 {
        self.recent.iter().map(|s| s.live as u64).sum::<u64>() + self.old.len() as u64
    }

    /// Whether none is live.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `each` with the kind of every live block.
    pub fn for_each(&self, mut each: impl FnMut(KindId)) {
        self.old.values().for_each(|&k| each(k));
        for kinds in self.recent.iter().filter_map(|s| s.kinds.as_deref()) {
            kinds.iter().filter(|k| **k != 0).for_each(|&k| each(k));
        }
    }
}

/// Spreads sequence numbers over the map; nobody chooses them to collide but to slow down their own analysis.
#[derive(Default)]
pub struct SpreadHash(u64);

impl Hasher for SpreadHash {
    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.write_u64(b as u64);
        }
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(n as u64);
    }

    fn write_u64(&mut self, n: u64) {
        let mixed = (self.0 ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 29;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn dead_segments_leave_no_memory_behind() {
        let mut t = LiveTable::default();
        for seq in 0..10_000_000u64 {
            t.insert(seq, 1);
            if seq >= 100 && !(seq - 100).is_multiple_of(50_000) {
                assert_eq!(t.take(seq - 100), 1);
            }
        }
        assert!(t.recent.len() < 4, "{}", t.recent.len());
        assert_eq!(t.len(), 200 + 100);
    }

    #[test]
    fn a_wild_sequence_number_costs_no_memory() {
        let mut t = LiveTable::default();
        t.insert(5, 1);
        t.insert(u64::MAX - 3, 2);
        t.insert(7, 3);
        assert!(t.recent.len() < 3);
        assert_eq!((t.take(5), t.take(u64::MAX - 3), t.take(7), t.take(7)), (1, 2, 3, 0));
    }

    proptest! {
        #[test]
        fn it_is_a_map(ops in proptest::collection::vec((any::<bool>(), 0u64..9000), 0..400), runs in 0u64..30_000) {
            let mut t = LiveTable::default();
            let mut naive = HashMap::new();
            for seq in 0..runs {
                t.insert(seq, 1 + seq as u32);
                naive.insert(seq, 1 + seq as u32);
                if seq % 7 != 0 { let s = seq / 2 * 2; prop_assert_eq!(t.take(s), naive.remove(&s).unwrap_or(0)); }
            }
            let mut next = runs;
            for (alloc, back) in ops {
                if alloc { t.insert(next, 9); naive.insert(next, 9); next += 1; }
                else { let s = next.saturating_sub(back); prop_assert_eq!(t.take(s), naive.remove(&s).unwrap_or(0)); }
            }
            prop_assert_eq!(t.len(), naive.len() as u64);
            let mut kinds = 0u64;
            t.for_each(|k| kinds += k as u64);
            prop_assert_eq!(kinds, naive.values().map(|&k| k as u64).sum::<u64>());
        }
    }
}
