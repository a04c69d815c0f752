//! Rules that are known, by place in the code: one small table a thread, so that no lookup is shared or locked.

use super::rule::Rule;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// One place and its rule; place 0 is none.
#[derive(Clone, Copy)]
struct Entry {
    place: u64,
    rule: Rule,
}

/// Pairs of entries: 64 KiB. A stack has some tens of places, a program some hundreds that matter.
const PAIRS: usize = 2048;
/// Those that are used at first: of a thread that has few places, which threads by the thousand are, the rest stays without memory.
const FIRST_PAIRS: usize = 64;
const PAIR: usize = size_of::<[Entry; 2]>();
const _: () = assert!(PAIRS * PAIR == 1 << 16 && PAIR == 32);
/// Rules that were put in when all of them are used.
const MANY: usize = FIRST_PAIRS;

/// All zero is empty.
#[repr(C)]
pub struct Cache {
    pairs: [[Entry; 2]; PAIRS],
    /// Which of the pairs are used, as a mask of where they lie in bytes; 0 before the first rule.
    used: usize,
    /// Rules that were put in.
    put: usize,
}

/// Bytes of all threads' tables, as far as they are used.
static PRIVATE: AtomicUsize = AtomicUsize::new(0);

/// See [`PRIVATE`].
pub fn private() -> usize {
    PRIVATE.load(Relaxed)
}

/// A forked child's are empty.
pub fn forget() {
    PRIVATE.store(0, Relaxed);
}

impl Cache {
    /// Where the pair of a place lies, in bytes: the mask keeps to whole ones of those that there are.
    #[inline(always)]
    fn at(&self, place: u64) -> usize {
        (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize & self.used
    }

    #[inline(always)]
    pub fn get(&self, place: u64) -> Option<Rule> {
        // SAFETY: one of the pairs.
        let [first, second] = unsafe { &*self.pairs.as_ptr().byte_add(self.at(place)) };
        if first.place == place {
            Some(first.rule)
        } else if second.place == place {
            Some(second.rule)
        } else {
            None
        }
    }

    /// The newer of a pair comes first; the one that was first stays as second.
    pub fn put(&mut self, place: u64, rule: Rule) {
        self.put += 1;
        if self.used == 0 || self.pairs_used() < PAIRS && self.put > MANY {
            self.widen();
        }
        let at = self.at(place);
        // SAFETY: one of the pairs.
        let [first, second] = unsafe { &mut *self.pairs.as_mut_ptr().byte_add(at) };
        *second = *first;
        *first = Entry { place, rule };
    }

    /// How many pairs are used.
    fn pairs_used(&self) -> usize {
        if self.used == 0 { 0 } else { self.used / PAIR + 1 }
    }

    /// What is in it stays where it is: a place that is looked for elsewhere now is put there again.
    #[cold]
    #[inline(never)]
    fn widen(&mut self) {
        let before = self.pairs_used();
        let pairs = if before == 0 { FIRST_PAIRS } else { PAIRS };
        PRIVATE.fetch_add((pairs - before) * PAIR, Relaxed);
        self.used = (pairs - 1) * PAIR;
    }

    pub fn clear(&mut self) {
        let used = self.pairs_used();
        if let Some(pairs) = self.pairs.get_mut(..used) {
            pairs.fill([Entry { place: 0, rule: Rule::NONE }; 2]);
        }
    }
}
