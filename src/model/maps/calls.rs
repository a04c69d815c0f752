//! Mapping calls by length and kind, and how many of them were unmapped: a mapping is unmapped when its last byte goes.

use super::MapKind;
use std::collections::BTreeMap;

/// All calls of one length and kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapCall {
    /// As the program asked.
    pub len: u64,
    pub kind: MapKind,
    pub maps: u64,
    pub unmaps: u64,
    /// How many of `maps` were made with no access.
    pub prot_none: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    maps: u64,
    unmaps: u64,
    prot_none: u64,
}

/// A mapping by the call that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OriginId(u32);

#[derive(Debug)]
struct Origin {
    /// `None`: made by mremap, not a call of the table.
    call: Option<(u64, MapKind)>,
    /// Where it was called from; `None`: in the parent, before the fork.
    site: Option<u32>,
    /// Mapped, and on their way to where they will be: by a damaged line's lengths more than there are addresses.
    bytes: u128,
}

#[derive(Debug, Default)]
pub struct Calls {
    counts: BTreeMap<(u64, MapKind), Count>,
    origins: Vec<Origin>,
    /// Places in `origins` to be used again.
    free: Vec<OriginId>,
    /// Lost bytes in this event; gone for good if they have none at its end (a move takes them out and puts them back).
    shrunk: Vec<OriginId>,
}

impl Calls {
    pub fn mapped(&mut self, len: u64, kind: MapKind, prot_none: bool, site: u32) -> OriginId {
        let count = self.counts.entry((len, kind)).or_default();
        count.maps += 1;
        count.prot_none += u64::from(prot_none);
        self.origin(Some((len, kind)), Some(site))
    }

    pub fn unlisted(&mut self, site: u32) -> OriginId {
        self.origin(None, Some(site))
    }

    /// What was there before the first call.
    pub fn inherited(&mut self) -> OriginId {
        self.origin(None, None)
    }

    fn origin(&mut self, call: Option<(u64, MapKind)>, site: Option<u32>) -> OriginId {
        let origin = Origin { call, site, bytes: 0 };
        if let Some(id) = self.free.pop() {
            self.origins[id.0 as usize] = origin;
            return id;
        }
        self.origins.push(origin);
        OriginId((self.origins.len() - 1) as u32)
    }

    pub fn site_of(&self, id: OriginId) -> Option<u32> {
        self.origins[id.0 as usize].site
    }

    pub fn gained(&mut self, id: OriginId, bytes: u64) {
        self.origins[id.0 as usize].bytes += u128::from(bytes);
    }

    pub fn lost(&mut self, id: OriginId, bytes: u64) {
        self.origins[id.0 as usize].bytes -= u128::from(bytes);
        self.shrunk.push(id);
    }

    /// At the end of each event.
    pub fn settle(&mut self) {
        self.shrunk.sort_unstable();
        self.shrunk.dedup();
        while let Some(id) = self.shrunk.pop() {
            let origin = &self.origins[id.0 as usize];
            if origin.bytes > 0 {
                continue;
            }
            if let Some(key) = origin.call {
                self.counts.entry(key).or_default().unmaps += 1;
            }
            self.free.push(id);
        }
    }

    pub fn table(&self) -> Vec<MapCall> {
        let row =
            |(&(len, kind), c): (&(u64, MapKind), &Count)| MapCall { len, kind, maps: c.maps, unmaps: c.unmaps, prot_none: c.prot_none };
        self.counts.iter().map(row).collect()
    }
}
