//! Rules that are known, by place in the code: one small table a thread, so that no lookup is shared or locked.

use super::rule::Rule;

/// One place and its rule; place 0 is none.
#[derive(Clone, Copy)]
struct Entry {
    place: u64,
    rule: Rule,
}

/// Pairs of entries: 64 KiB. A stack has some tens of places, a program some hundreds that matter.
const PAIRS: usize = 2048;

/// All zero is empty.
pub struct Cache {
    pairs: [[Entry; 2]; PAIRS],
}

impl Cache {
    #[inline(always)]
    fn pair(place: u64) -> usize {
        (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 53) as usize & (PAIRS - 1)
    }

    #[inline(always)]
    pub fn get(&self, place: u64) -> Option<Rule> {
        let [first, second] = self.pairs.get(Self::pair(place))?;
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
        if let Some(pair) = self.pairs.get_mut(Self::pair(place)) {
            let [first, second] = pair;
            *second = *first;
            *first = Entry { place, rule };
        }
    }

    pub fn clear(&mut self) {
        self.pairs.fill([Entry { place: 0, rule: Rule::NONE }; 2]);
    }
}
