//! Rules for functions that are to be phases, as variables give them: `where:what`, both globs, separated by commas or newlines. Kept in memory
//! of our own, since programs write over their environment.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering::*};
use memshim_format::phase::{RULES_MOST, RULES_TEXT, colon, rules};

/// One rule. Its text is two globs with a colon between.
pub struct Rule {
    text: &'static [u8],
    colon: usize,
}

impl Rule {
    /// Where the functions are.
    pub fn first(&self) -> &'static [u8] {
        self.text.get(..self.colon).unwrap_or(b"")
    }

    /// Which they are.
    pub fn second(&self) -> &'static [u8] {
        self.text.get(self.colon + 1..).unwrap_or(b"")
    }
}

struct Kept {
    text: [u8; RULES_TEXT],
    used: usize,
    rules: [Option<Rule>; RULES_MOST],
}

/// Up to so many as a word has bits.
pub struct Rules {
    kept: UnsafeCell<Kept>,
    /// Rules that are for a function that ran, by bits.
    met: AtomicU64,
}

// SAFETY: what is in the cell is written at the start only, by one thread.
unsafe impl Sync for Rules {}

impl Rules {
    pub const fn new() -> Rules {
        let kept = Kept { text: [0; RULES_TEXT], used: 0, rules: [const { None }; RULES_MOST] };
        Rules { kept: UnsafeCell::new(kept), met: AtomicU64::new(0) }
    }

    /// In the order in which they were given.
    pub fn all(&'static self) -> impl Iterator<Item = &'static Rule> {
        // SAFETY: written at the start only.
        unsafe { (*self.kept.get()).rules.iter().flatten() }
    }

    /// Whether there is a rule.
    pub fn any(&'static self) -> bool {
        self.all().next().is_some()
    }

    /// Takes rules; false: one is none, or there is no room for another.
    ///
    /// # Safety
    /// One thread, at the start.
    pub unsafe fn take(&'static self, list: &[u8]) -> bool {
        let mut good = true;
        for rule in rules(list) {
            // SAFETY: the caller's promise.
            good &= colon(rule).is_some_and(|colon| unsafe { self.keep(rule, colon) });
        }
        good
    }

    unsafe fn keep(&'static self, rule: &[u8], colon: usize) -> bool {
        // SAFETY: one thread; text that rules point to is not written again.
        unsafe {
            let kept = self.kept.get();
            let (rules, from) = (&mut *(&raw mut (*kept).rules), (*kept).used);
            let Some(place) = rules.iter_mut().find(|r| r.is_none()).filter(|_| from + rule.len() <= RULES_TEXT) else { return false };
            let to = (&raw mut (*kept).text).cast::<u8>().add(from);
            core::ptr::copy_nonoverlapping(rule.as_ptr(), to, rule.len());
            (*kept).used += rule.len();
            *place = Some(Rule { text: core::slice::from_raw_parts(to, rule.len()), colon });
        }
        true
    }

    /// Functions of the rules with these bits run.
    #[inline]
    pub fn meet(&self, rules: u64) {
        if self.met.load(Relaxed) & rules != rules {
            self.met.fetch_or(rules, Relaxed);
        }
    }

    /// Rules that are for no function that ran: number and text.
    pub fn unmet(&'static self) -> impl Iterator<Item = (usize, &'static [u8])> {
        let met = self.met.load(Relaxed);
        self.all().enumerate().filter(move |(i, _)| met >> i & 1 == 0).map(|(i, r)| (i, r.text))
    }
}
