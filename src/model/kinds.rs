//! What was allocated: the dictionary of a trace with its totals.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use memshim_format::record;

use super::live::{KindId, SpreadHash};

/// One kind and how often it was allocated and freed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kind {
    pub size: u64,
    pub usable: u64,
    pub func: u32,
    pub flags: u32,
    /// Size and slack stand with each event.
    pub wide: bool,
    /// One of the sizes asked for.
    pub selected: bool,
    pub allocs: u64,
    pub frees: u64,
    /// Call site of the allocations (see `stacks`); 0: none known.
    pub site: u32,
    /// That site while these phases are on (see [`super::left`]); 0: none was.
    pub place: u32,
    /// Blocks freed by age, in allocations that the lane had made since: see [`AGES`].
    pub ages: [u32; AGES.len()],
    /// Calls that one event stands for.
    pub weight: f64,
    /// Bytes that one event stands for.
    pub heft: i64,
}

/// Ages of freed blocks that are told apart: of at most so many allocations. 0: before the lane allocated again, *temporary*.
pub const AGES: [u64; 4] = [0, 15, 255, 4095];

/// Index of an age; that of [`AGES`]`.len()` is of older ones.
#[inline]
pub fn age_class(age: u64) -> u8 {
    AGES.iter().fold(0, |class, most| class + (age > *most) as u8)
}

impl Kind {
    /// Of the bytes that one event stands for: n of them stand for n·s/p bytes with variance n·s²(1−p)/p².
    pub fn variance(&self) -> f64 {
        let size = self.size as f64;
        size * size * self.weight * (self.weight - 1.0)
    }

    /// How many temporary allocations those freed stand for, with the variance: one sample stands for 1/p calls, with (1−p)/p².
    pub fn temporary(&self) -> (f64, f64) {
        let freed = self.ages[0] as f64;
        (freed * self.weight, freed * self.weight * (self.weight - 1.0))
    }

    /// The code of the old block follows.
    pub fn replaces(&self) -> bool {
        self.flags & record::REPLACES as u32 != 0
    }

    /// How often the mean between samples was doubled for it.
    fn thin(&self) -> u32 {
        self.flags >> record::THIN_SHIFT & record::THIN_MAX
    }

    /// Chosen by the byte sampler.
    pub fn sampled(&self) -> bool {
        self.flags & record::SAMPLED as u32 != 0
    }
}

/// Kinds by the number of the dictionary and by an id that also covers those whose size stands with the event.
pub struct KindTable {
    /// Index: [`KindId`]. 0 is the kind of nothing, [`UNKNOWN`] that of numbers not in the dictionary.
    all: Vec<Kind>,
    /// Id by dictionary number; 0 where the number is not defined.
    ids: Vec<KindId>,
    /// Ids of kinds whose size stood with the event.
    interned: HashMap<(u32, u32, u64, u64), KindId>,
    /// Sorted.
    selected: Vec<u64>,
    /// Mean bytes between samples.
    sample: u64,
    /// Ids of kinds at sites, by kind and site; and the latest of them, by a hash of both.
    at_sites: HashMap<u64, KindId, BuildHasherDefault<SpreadHash>>,
    recent: Vec<(KindId, u32, KindId)>,
    /// Allocations whose kinds at their sites were too many.
    pub crowded: u64,
}

/// The kind of an allocation whose number is not in the dictionary.
pub const UNKNOWN: KindId = 1;
const SIZE_MAX: u64 = 1 << 48;
/// Numbers above are a damaged line's.
const NUMBER_MAX: u32 = 1 << 24;
/// Kinds at sites beyond count as of no site.
const AT_SITES_MAX: usize = 1 << 24;
const RECENT: usize = 1 << 14;

impl KindTable {
    /// Empty; blocks of the given sizes are marked.
    pub fn new(selected: &[u64], sample: u64) -> Self {
        let mut selected = selected.to_vec();
        selected.sort_unstable();
        KindTable {
            all: vec![Kind::default(); 2],
            ids: vec![0],
            interned: HashMap::new(),
            selected,
            sample,
            at_sites: HashMap::default(),
            recent: Vec::new(),
            crowded: 0,
        }
    }

    /// Defines number `number`; false where it can't be one.
    pub fn define(&mut self, number: u32, func: u32, size: i64, slack: u32, flags: u32) -> bool {
        if number == 0 || number > NUMBER_MAX {
            return false;
        }
        if self.ids.len() <= number as usize {
            self.ids.resize(number as usize + 1, 0);
        }
        let kind = self.kind(func, size.max(0) as u64, slack as u64, flags, size < 0);
        let known = self.ids[number as usize];
        if known != 0 {
            let old = &self.all[known as usize];
            if (old.size, old.usable, old.func, old.flags, old.wide) == (kind.size, kind.usable, func, flags, kind.wide) {
                return true; // said twice, as after a recovery
            }
        }
        self.ids[number as usize] = self.all.len() as KindId;
        self.all.push(kind);
        true
    }

    fn kind(&self, func: u32, size: u64, slack: u64, flags: u32, wide: bool) -> Kind {
        let selected = !wide && self.selected.binary_search(&size).is_ok();
        // Larger ones are a damaged line's: no address space holds them.
        let size = size.min(SIZE_MAX);
        // An allocator that does not say how large its blocks are has nothing for all of them: less than was asked for.
        let slack = if slack > SIZE_MAX { 0 } else { slack };
        let mut kind = Kind { size, usable: size + slack, func, flags, wide, selected, weight: 1.0, ..Kind::default() };
        if kind.sampled() {
            let mean = self.sample.max(1) as f64 * (1u64 << kind.thin()) as f64;
            kind.weight = -1.0 / f64::exp_m1(-(size.max(1) as f64) / mean);
        }
        kind.heft = if kind.weight == 1.0 { size as i64 } else { (size as f64 * kind.weight).round() as i64 };
        kind
    }

    /// The kind of an allocation of kind `id` at a site.
    #[inline]
    pub fn at_site(&mut self, id: KindId, site: u32) -> KindId {
        if site == 0 || id == UNKNOWN {
            return id;
        }
        let hash = (id.wrapping_mul(0x9e37_79b1) ^ site.wrapping_mul(0x85eb_ca6b)) as usize;
        match self.recent.get(hash >> 7 & (RECENT - 1)) {
            Some(&(of, at, known)) if of == id && at == site => known,
            _ => self.find_at_site(id, site, hash >> 7 & (RECENT - 1)),
        }
    }

    /// The kind of an allocation of a kind that is at a site, at a place there.
    #[inline]
    pub fn at_place(&mut self, id: KindId, place: u32) -> KindId {
        if self.get(id).site == 0 { id } else { self.at_site(id, place) }
    }

    /// A kind of no site gets one, another a place.
    #[cold]
    fn find_at_site(&mut self, id: KindId, site: u32, slot: usize) -> KindId {
        let key = (id as u64) << 32 | site as u64;
        let known = match self.at_sites.get(&key) {
            Some(&known) => known,
            None if self.at_sites.len() >= AT_SITES_MAX => {
                self.crowded += 1;
                return id;
            }
            None => {
                let new = self.all.len() as KindId;
                let of = &self.all[id as usize];
                let (site, place) = if of.site == 0 { (site, 0) } else { (of.site, site) };
                self.all.push(Kind { site, place, allocs: 0, frees: 0, ages: [0; AGES.len()], ..of.clone() });
                self.at_sites.insert(key, new);
                new
            }
        };
        self.recent.resize(RECENT, (0, 0, 0));
        self.recent[slot] = (id, site, known);
        known
    }

    /// Id of a dictionary number; [`UNKNOWN`] where it is not defined.
    #[inline]
    pub fn id(&self, number: u64) -> KindId {
        match self.ids.get(number as usize) {
            Some(&id) if id != 0 => id,
            _ => UNKNOWN,
        }
    }

    /// The kind of an allocation of wide kind `id` with this size and slack.
    pub fn intern(&mut self, id: KindId, size: u64, slack: u64) -> KindId {
        let Kind { func, flags, .. } = self.all[id as usize];
        if let Some(&known) = self.interned.get(&(func, flags, size, slack)) {
            return known;
        }
        let new = self.all.len() as KindId;
        self.all.push(self.kind(func, size, slack, flags, false));
        self.interned.insert((func, flags, size, slack), new);
        new
    }

    #[inline]
    pub fn get(&self, id: KindId) -> &Kind {
        &self.all[id as usize]
    }

    #[inline]
    pub fn get_mut(&mut self, id: KindId) -> &mut Kind {
        &mut self.all[id as usize]
    }

    /// All kinds that were allocated at least once, in no order. The unknown kind is not among them.
    pub fn used(&self) -> impl Iterator<Item = &Kind> {
        self.all[2..].iter().filter(|k| k.allocs > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_that_the_allocator_does_not_say_is_what_was_asked_for() {
        let mut kinds = KindTable::new(&[], 1);
        let id = kinds.intern(0, 1000, 0u64.wrapping_sub(1000));
        assert_eq!((kinds.all[id as usize].size, kinds.all[id as usize].usable), (1000, 1000));
        let id = kinds.intern(0, 1000, 24);
        assert_eq!(kinds.all[id as usize].usable, 1024);
    }
}
