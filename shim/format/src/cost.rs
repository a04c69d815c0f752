//! What looking costs, by the clock: when a look was the last too dear for its share of the time, none follows for a while. On a busy machine the
//! processor may be taken away in the middle of one; that is not what it costs, and must not keep off those that come after.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The usual cost of looks of a kind, in ns.
pub struct Cost(AtomicU64);

/// A look is taken to have cost no more than this many times what is usual.
const AT_MOST: u64 = 8;

impl Default for Cost {
    fn default() -> Self {
        Self::new()
    }
}

impl Cost {
    /// Of a kind that nobody has looked at yet.
    pub const fn new() -> Self {
        Cost(AtomicU64::new(u64::MAX))
    }

    /// What one cost that took so many ns. Usual is the least so far, and a little more with each look that takes more: what has become dearer for
    /// good is known after some hundred.
    pub fn of(&self, took: u64) -> u64 {
        let usual = self.0.load(Relaxed);
        let usual = took.min(usual.saturating_add(usual / 64 + 1));
        self.0.store(usual, Relaxed);
        took.min(usual.saturating_mul(AT_MOST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_look_costs_little_more_than_others() {
        let cost = Cost::new();
        assert_eq!([30, 40, 12_000_000].map(|took| cost.of(took)), [30, 40, 8 * 32]);
        assert_eq!(cost.of(20), 20);
    }

    #[test]
    fn what_has_become_dearer_is_known_after_a_while() {
        let cost = Cost::new();
        cost.of(1000);
        let looks = (1..).find(|_| cost.of(100_000) == 100_000).expect("some day");
        assert!((100..200).contains(&looks), "{looks}");
    }
}
