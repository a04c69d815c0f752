//! What was allocated: the dictionary of a trace with its totals.

use std::collections::HashMap;

use memshim_format::record;

use super::live::KindId;

/// One kind and how often it was allocated and freed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
}

impl Kind {
    /// The code of the old block follows.
    pub fn replaces(&self) -> bool {
        self.flags & record::REPLACES as u32 != 0
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
}

/// The kind of an allocation whose number is not in the dictionary.
pub const UNKNOWN: KindId = 1;
const SIZE_MAX: u64 = 1 << 48;
/// Numbers above are a damaged line's.
const NUMBER_MAX: u32 = 1 << 24;

impl KindTable {
    /// Empty; blocks of the given sizes are marked.
    pub fn new(selected: &[u64]) -> Self {
        let mut selected = selected.to_vec();
        selected.sort_unstable();
        KindTable { all: vec![Kind::default(); 2], ids: vec![0], interned: HashMap::new(), selected }
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
        Kind { size, usable: size + slack.min(SIZE_MAX), func, flags, wide, selected, allocs: 0, frees: 0 }
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
