//! What each phase left behind and what it needed only meanwhile, by call site, in the one pass over the events.
//!
//! A block is of the phases that were on when it was allocated: its kind carries the number of a *place*, a call site together with the set
//! of these phases. Of each place and each of its phases three balances are kept, of instants that are known only afterwards: the phase's
//! last end, its highest peak, and the first end after that peak. As in [`super::sites`] nothing is copied when such an instant
//! comes: a phase counts its instants, and a place that changes later first notes what it held until then. So memory follows the places,
//! and a step costs a comparison for each phase that was on.
//!
//! Of a phase that repeats it is also known what each place held at some of its ends ([`ends`]): who holds more and more leaks.
//!
//! Not for: levels at edges and peaks in bytes ([`super::phases`]), which need no call sites.

mod ends;

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use super::kinds::{Kind, KindTable};
use super::live::SpreadHash;
use super::phases::HeapEdge;
use super::sites::{Balance, Steps};
use ends::Ends;
pub use ends::first_told;

/// Where a phase begins or ends among the events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Where that is.
    pub at: HeapEdge,
    /// Number of the phase's path.
    pub path: u32,
    pub begins: bool,
}

impl AsRef<HeapEdge> for Turn {
    fn as_ref(&self) -> &HeapEdge {
        &self.at
    }
}

/// Sets of phases told apart, and places; beyond, allocations are of no phase.
const SETS_MAX: usize = 1 << 14;
const PLACES_MAX: usize = 1 << 21;
/// Phases of all places together.
const THEN_MAX: usize = 1 << 22;
/// Notes of all places together of what they held at ends.
const ENDS_MAX: usize = 1 << 22;
/// Phases that are on, of which it is known when they end.
const ON_MAX: usize = 4096;
/// Phases of one set: further ones that are on at the same time are left out.
const ON_AT_ONCE: usize = 32;

/// The phases that are on, in the order in which they began; one that is on twice is in it twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct On(Vec<u32>);

impl On {
    /// A phase begins or ends.
    pub fn turn(&mut self, turn: &Turn) {
        if turn.begins {
            if self.0.len() < ON_MAX {
                self.0.push(turn.path);
            }
        } else if let Some(at) = self.0.iter().rposition(|p| *p == turn.path) {
            self.0.remove(at);
        }
    }
}

/// A phase's instants so far.
#[derive(Clone, Copy, Debug)]
struct Instants {
    /// Most live in the process while it was on.
    peak: i64,
    /// The time with that peak goes on.
    fresh: bool,
    /// How many there were: its ends, its peaks above all before, first ends after a peak.
    count: [u32; 3],
}

const END: usize = 0;
const PEAK: usize = 1;
const AFTER: usize = 2;

/// What a place held at a phase's three instants: the latest of each that it knows of, and how many those were; and at earlier ends.
#[derive(Debug, Default)]
struct Then {
    seen: [u32; 3],
    held: [Balance; 3],
    ends: Ends,
}

#[derive(Debug)]
struct Place {
    site: u32,
    set: u32,
    now: Balance,
    /// By phase of the set.
    then: Box<[Then]>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct PhaseSites {
    /// Paths in order; the first set is of none.
    sets: Vec<Box<[u32]>>,
    set_of: HashMap<Box<[u32]>, u32>,
    places: Vec<Place>,
    /// Phases of them all.
    thens: usize,
    place_of: HashMap<u64, u32, BuildHasherDefault<SpreadHash>>,
    /// By path.
    instants: Vec<Instants>,
    level: i64,
    /// Notes of ends.
    noted: usize,
    /// Allocations, and edges after which other phases are on, for which there was no room.
    pub crowded: u64,
}

/// What a call site held of one phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LeftAt {
    pub path: u32,
    pub site: u32,
    /// Allocated in it and live at its last end.
    pub left: Balance,
    /// Allocated in it, live at its peak, and not any more at the end after that.
    pub meanwhile: Balance,
    /// Of a phase that repeats, by how much more of it is live at later ends: from [`first_told`] to the middle one, from there to the last.
    pub grown: [Balance; 3],
}

impl PhaseSites {
    /// The number of the set of phases that are on; 0: of none.
    pub fn set(&mut self, on: &On) -> u32 {
        if on.0.is_empty() {
            return 0;
        }
        let mut paths = on.0.clone();
        paths.sort_unstable();
        paths.dedup();
        self.crowded += (paths.len() > ON_AT_ONCE) as u64;
        paths.truncate(ON_AT_ONCE);
        let key = paths.into_boxed_slice();
        if let Some(&known) = self.set_of.get(&key) {
            return known;
        }
        if self.sets.is_empty() {
            self.sets.push(Box::default());
        }
        if self.sets.len() >= SETS_MAX {
            self.crowded += 1;
            return 0;
        }
        let next = self.sets.len() as u32;
        self.sets.push(key.clone());
        self.set_of.insert(key, next);
        next
    }

    /// The number of a site and a set, from 1 on; 0: there is no room, or the set is of none.
    pub fn place(&mut self, site: u32, set: u32) -> u32 {
        if set == 0 {
            return 0;
        }
        let key = u64::from(set) << 32 | u64::from(site);
        if let Some(&known) = self.place_of.get(&key) {
            return known;
        }
        let phases = self.sets.get(set as usize).map_or(0, |s| s.len());
        if self.places.len() >= PLACES_MAX || self.thens + phases > THEN_MAX {
            self.crowded += 1;
            return 0;
        }
        self.thens += phases;
        // Instants that came before it are of no concern to it: it held nothing.
        let then = (0..phases).map(|i| Then { seen: self.count(self.sets[set as usize][i]), ..Then::default() }).collect();
        self.places.push(Place { site, set, now: Balance::default(), then });
        let number = self.places.len() as u32;
        self.place_of.insert(key, number);
        number
    }

    fn count(&self, path: u32) -> [u32; 3] {
        self.instants.get(path as usize).map_or([0; 3], |i| i.count)
    }

    /// A phase begins or ends here.
    pub fn turn(&mut self, turn: &Turn) {
        let level = self.level;
        let at = turn.path as usize;
        if self.instants.len() <= at {
            self.instants.resize(at + 1, Instants { peak: i64::MIN, fresh: false, count: [0; 3] });
        }
        let of = &mut self.instants[at];
        if turn.begins {
            of.reach(level);
            return;
        }
        of.count[END] += 1;
        if std::mem::take(&mut of.fresh) {
            of.count[AFTER] += 1;
        }
    }

    /// Plays steps. `exact`: every call is an event, the level is that of `requested`.
    pub fn play(&mut self, steps: &Steps, kinds: &KindTable, exact: bool) {
        let ids = steps.got.iter().zip(steps.ended);
        for (change, (&got, &ended)) in steps.requested.iter().zip(ids) {
            let (got, ended) = (kinds.get(got), kinds.get(ended));
            if got.place != 0 {
                self.change(got, 1);
            }
            if ended.place != 0 {
                self.change(ended, -1);
            }
            self.level = self.level.wrapping_add(if exact { *change } else { got.heft - ended.heft });
            if let Some(place) = self.places.get((got.place as usize).wrapping_sub(1)) {
                for path in &*self.sets[place.set as usize] {
                    if let Some(of) = self.instants.get_mut(*path as usize) {
                        of.reach(self.level);
                    }
                }
            }
        }
    }

    fn change(&mut self, kind: &Kind, sign: i64) {
        let Some(place) = self.places.get_mut(kind.place as usize - 1) else { return };
        for (path, then) in self.sets[place.set as usize].iter().zip(&mut place.then) {
            if let Some(of) = self.instants.get(*path as usize) {
                then.note(of.count, place.now, &mut self.noted);
            }
        }
        place.now.add(kind, sign);
    }

    /// What was left and needed, by phase and site; sites with nothing of either are not in it.
    pub fn finish(mut self) -> Vec<LeftAt> {
        let mut all = Vec::new();
        for place in &mut self.places {
            for (path, then) in self.sets[place.set as usize].iter().zip(&mut place.then) {
                let Some(of) = self.instants.get(*path as usize) else { continue };
                then.note(of.count, place.now, &mut self.noted);
                let [left, peak, after] = then.held;
                let meanwhile = peak.less(after);
                if left.bytes != 0 || meanwhile.bytes != 0 {
                    // Where one note may be missing none can be relied on.
                    let grown = if self.noted < ENDS_MAX { then.ends.grown(of.count[END], left) } else { Default::default() };
                    all.push(LeftAt { path: *path, site: place.site, left, meanwhile, grown });
                }
            }
        }
        all
    }
}

impl Instants {
    fn reach(&mut self, level: i64) {
        if level > self.peak {
            self.peak = level;
            self.fresh = true;
            self.count[PEAK] += 1;
        }
    }
}

impl Then {
    #[inline]
    fn note(&mut self, count: [u32; 3], now: Balance, noted: &mut usize) {
        if self.seen[END] != count[END] && *noted < ENDS_MAX {
            self.ends.hold(self.seen[END], count[END], now, noted);
        }
        for (i, count) in count.into_iter().enumerate() {
            if self.seen[i] != count {
                (self.seen[i], self.held[i]) = (count, now);
            }
        }
    }
}

#[cfg(test)]
mod tests;
