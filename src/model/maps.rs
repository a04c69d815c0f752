//! The mappings that a program's own calls made: what is committed, what is reserved, by class, now and at the most.
//!
//! Pure: events in, sums out, in ticket order. *Committed* is what may be touched (any access allowed), *reserved* is PROT_NONE; bytes
//! given back with madvise stay committed and are counted apart. Addresses never seen mapped are ignored: the loader's and the
//! allocator's own mappings are not events. Not for: what is resident (that is `rss`), and the heap.

mod calls;
mod kind;
mod ranges;
mod regions;
mod remap;
mod sites;

pub use calls::MapCall;
pub use kind::{Class, MapKind};
pub use regions::RegionHistory;
pub use remap::{Part, Remap};
pub use sites::MapSite;

use calls::{Calls, OriginId};
use ranges::{Piece, RangeMap};
use regions::Regions;
use sites::MapSites;
use std::collections::BTreeMap;

const PROT_ANY: u64 = 0x7;
const MAP_FIXED: u64 = 0x10;
const MAP_FIXED_NOREPLACE: u64 = 0x10_0000;
const MADV_DONTNEED: u64 = 4;
const MADV_FREE: u64 = 8;
const MADV_REMOVE: u64 = 9;

/// One call that took effect. `t` is its time, lengths are as the program asked, `prot`, `flags` and `advice` are Linux's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapEvent {
    Mmap { t: u64, addr: u64, len: u64, prot: u64, flags: u64, kind: u64 },
    Munmap { t: u64, addr: u64, len: u64 },
    Mremap { t: u64, remap: Remap, part: Part },
    Mprotect { t: u64, addr: u64, len: u64, prot: u64 },
    Madvise { t: u64, addr: u64, len: u64, advice: u64 },
    Brk { t: u64, old: u64, new: u64 },
    Shmat { t: u64, addr: u64, len: u64 },
    Shmdt { t: u64, addr: u64 },
}

impl MapEvent {
    fn time(&self) -> u64 {
        match *self {
            MapEvent::Mmap { t, .. } | MapEvent::Munmap { t, .. } | MapEvent::Mremap { t, .. } | MapEvent::Mprotect { t, .. } => t,
            MapEvent::Madvise { t, .. } | MapEvent::Brk { t, .. } | MapEvent::Shmat { t, .. } | MapEvent::Shmdt { t, .. } => t,
        }
    }
}

/// Bytes of one class now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassBytes {
    pub committed: u64,
    pub reserved: u64,
}

/// Everything that is mapped now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapTotals {
    pub anon: ClassBytes,
    pub file: ClassBytes,
    pub shared: ClassBytes,
    pub stack: ClassBytes,
    /// The break above where the program's first own call found it.
    pub brk: ClassBytes,
    /// Bytes by which the program moved the break up and down, in all.
    pub brk_up: u64,
    pub brk_down: u64,
    /// Committed bytes handed back with MADV_DONTNEED, MADV_FREE or MADV_REMOVE, in all; they stay mapped.
    pub given_back: u64,
}

impl MapTotals {
    /// All classes together.
    pub fn committed(&self) -> u64 {
        [self.anon, self.file, self.shared, self.stack, self.brk].iter().fold(0, |sum, c| sum.saturating_add(c.committed))
    }

    fn class(&mut self, class: Class) -> &mut ClassBytes {
        match class {
            Class::Anon => &mut self.anon,
            Class::File => &mut self.file,
            Class::Shared => &mut self.shared,
            Class::Stack => &mut self.stack,
        }
    }
}

/// The most that was committed at once, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    pub bytes: u64,
    /// Time of the event that reached it first; 0 when nothing was ever committed.
    pub t: u64,
}

impl Peak {
    fn note(&mut self, bytes: u64, t: u64) {
        if bytes > self.bytes {
            *self = Peak { bytes, t };
        }
    }
}

/// What a forked child finds mapped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapsHeld {
    /// From, to, of what kind, and whether committed. Stacks of threads are not among them: the threads are gone, and nobody tells of their stacks' ends.
    ranges: Vec<(u64, u64, MapKind, bool)>,
    /// Where the program's own first call found the break, and how far above it is.
    brk: Option<(u64, u64)>,
}

impl MapsHeld {
    /// How many ranges it takes to say it.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.brk.is_none()
    }
}

/// Peaks of committed bytes, each class by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapPeaks {
    pub anon: Peak,
    pub file: Peak,
    pub shared: Peak,
    pub stack: Peak,
    pub brk: Peak,
    /// All classes together.
    pub total: Peak,
}

/// What is true of every byte of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mapped {
    kind: MapKind,
    committed: bool,
    /// The call that made it.
    origin: OriginId,
}

/// The address space as the program's calls shaped it.
#[derive(Debug)]
pub struct MapTable {
    page: u64,
    ranges: RangeMap<Mapped>,
    totals: MapTotals,
    peaks: MapPeaks,
    calls: Calls,
    regions: Regions,
    sites: MapSites,
    /// Of the call that is being applied.
    site: u32,
    brk_base: Option<u64>,
    /// Taken out by the first half of an mremap, to be put in by the second: by call.
    under_way: BTreeMap<u64, Vec<Piece<Mapped>>>,
    /// Reused between events.
    pieces: Vec<Piece<Mapped>>,
}

impl MapTable {
    /// `page`: the system's page size; what is not a power of two counts as 4096.
    pub fn new(page: u64) -> Self {
        let page = if page.is_power_of_two() { page } else { 4096 };
        Self {
            page,
            ranges: RangeMap::default(),
            totals: MapTotals::default(),
            peaks: MapPeaks::default(),
            calls: Calls::default(),
            regions: Regions::default(),
            sites: MapSites::default(),
            site: 0,
            brk_base: None,
            under_way: BTreeMap::new(),
            pieces: Vec::new(),
        }
    }

    /// What is mapped now, for a child that is forked.
    pub fn held(&self) -> MapsHeld {
        let kept = self.ranges.overlapping(0, u64::MAX).filter(|p| p.value.kind.class() != Class::Stack);
        MapsHeld {
            ranges: kept.map(|p| (p.start, p.end, p.value.kind, p.value.committed)).collect(),
            brk: self.brk_base.map(|base| (base, self.totals.brk.committed)),
        }
    }

    /// Before any event: what the fork left to this process, which was made at `t`. It is of no call of its own, and of none of its call sites.
    pub fn inherit(&mut self, held: &MapsHeld, t: u64) {
        for &(start, end, kind, committed) in &held.ranges {
            let origin = self.calls.inherited();
            self.add(start, end, Mapped { kind, committed, origin });
        }
        if let Some((base, up)) = held.brk {
            self.brk_base = Some(base);
            self.totals.brk.committed = up;
        }
        self.note_peaks(t);
    }

    /// The next event, in ticket order, of no call site.
    pub fn apply(&mut self, event: &MapEvent) {
        self.apply_at(event, 0);
    }

    /// The next event, in ticket order, and where it was called from.
    pub fn apply_at(&mut self, event: &MapEvent, site: u32) {
        self.site = site;
        match *event {
            MapEvent::Mmap { addr, len, prot, flags, kind, .. } => {
                let fixed = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0;
                self.map(addr, len, prot & PROT_ANY != 0, fixed, MapKind::of_number(kind));
            }
            MapEvent::Shmat { addr, len, .. } => self.map(addr, len, true, false, MapKind::SysvShm),
            MapEvent::Munmap { addr, len, .. } => self.unmap(addr, self.end(addr, len)),
            MapEvent::Shmdt { addr, .. } => self.detach(addr),
            MapEvent::Mremap { remap, part, .. } => self.remap(remap, part),
            MapEvent::Mprotect { addr, len, prot, .. } => self.protect(addr, self.end(addr, len), prot & PROT_ANY != 0),
            MapEvent::Madvise { addr, len, advice, .. } => self.advise(addr, self.end(addr, len), advice),
            MapEvent::Brk { old, new, .. } => self.move_break(old, new),
        }
        self.calls.settle();
        self.regions.settle(match event {
            MapEvent::Mremap { part, .. } => part.completes(),
            MapEvent::Mmap { .. } | MapEvent::Shmat { .. } => true,
            _ => false,
        });
        self.note_peaks(event.time());
    }

    /// What is mapped now.
    pub fn totals(&self) -> MapTotals {
        self.totals
    }

    /// The most that was committed so far.
    pub fn peaks(&self) -> MapPeaks {
        self.peaks
    }

    /// Mapping calls by length and kind, shortest first.
    pub fn calls(&self) -> Vec<MapCall> {
        self.calls.table()
    }

    /// Histories of mapped regions by address, those with the highest peaks (at most 512 of them).
    pub fn regions(&self) -> Vec<RegionHistory> {
        self.regions.histories()
    }

    /// Regions whose history was not kept.
    pub fn regions_left_out(&self) -> u64 {
        self.regions.left_out()
    }

    /// What each call site has mapped.
    pub fn sites(&self) -> Vec<MapSite> {
        self.sites.rows()
    }

    fn end(&self, addr: u64, len: u64) -> u64 {
        addr.saturating_add(self.whole_pages(len))
    }

    fn whole_pages(&self, len: u64) -> u64 {
        len.checked_next_multiple_of(self.page).unwrap_or(u64::MAX)
    }

    fn map(&mut self, addr: u64, len: u64, committed: bool, fixed: bool, kind: MapKind) {
        let end = self.end(addr, len);
        if addr >= end {
            return;
        }
        let origin = self.calls.mapped(len, kind, !committed, self.site);
        self.sites.called(self.site, kind.class(), end - addr);
        self.unmap(addr, end);
        self.regions.mapped(addr, end, fixed);
        self.add(addr, end, Mapped { kind, committed, origin });
    }

    fn unmap(&mut self, start: u64, end: u64) {
        let mut pieces = std::mem::take(&mut self.pieces);
        self.take(start, end, &mut pieces);
        self.pieces = pieces;
    }

    /// Takes what is mapped in `[start, end)` out of the table, in order of address.
    fn take(&mut self, start: u64, end: u64, pieces: &mut Vec<Piece<Mapped>>) {
        pieces.clear();
        if start < end {
            self.ranges.take(start, end, pieces);
        }
        for p in pieces.iter() {
            let len = p.end - p.start;
            let class = self.totals.class(p.value.kind.class());
            *(if p.value.committed { &mut class.committed } else { &mut class.reserved }) -= len;
            if let Some(site) = self.calls.site_of(p.value.origin).filter(|_| p.value.committed) {
                self.sites.change(site, p.value.kind.class(), (len as i64).wrapping_neg());
            }
            self.calls.lost(p.value.origin, len);
            self.regions.lost(p.start, p.end, p.value.committed && p.value.kind.is_anon());
        }
    }

    /// `[start, end)` must be free.
    fn add(&mut self, start: u64, end: u64, value: Mapped) {
        let class = self.totals.class(value.kind.class());
        *(if value.committed { &mut class.committed } else { &mut class.reserved }) += end - start;
        if let Some(site) = self.calls.site_of(value.origin).filter(|_| value.committed) {
            self.sites.change(site, value.kind.class(), (end - start) as i64);
        }
        self.calls.gained(value.origin, end - start);
        self.regions.gained(start, end, value.committed && value.kind.is_anon());
        self.ranges.insert(start, end, value);
    }

    fn detach(&mut self, addr: u64) {
        // The length is that of the segment, which the call does not say: all of it that is still there, from the same attach.
        let Some(first) = self.ranges.overlapping(addr, addr.saturating_add(1)).next() else { return };
        let mut end = addr;
        for p in self.ranges.overlapping(addr, u64::MAX) {
            if p.value.origin != first.value.origin || p.value.kind != MapKind::SysvShm {
                break;
            }
            end = p.end;
        }
        self.unmap(addr, end);
    }

    fn protect(&mut self, start: u64, end: u64, committed: bool) {
        let same = self.ranges.overlapping(start, end).all(|p| p.value.committed == committed);
        if same {
            return;
        }
        let mut pieces = Vec::new();
        self.take(start, end, &mut pieces);
        for p in &pieces {
            self.add(p.start, p.end, Mapped { committed, ..p.value });
        }
    }

    fn advise(&mut self, start: u64, end: u64, advice: u64) {
        if matches!(advice, MADV_DONTNEED | MADV_FREE | MADV_REMOVE) {
            let committed = self.ranges.overlapping(start, end).filter(|p| p.value.committed);
            let bytes = committed.fold(0u64, |sum, p| sum.saturating_add(p.end - p.start));
            self.totals.given_back = self.totals.given_back.saturating_add(bytes);
        }
    }

    fn move_break(&mut self, old: u64, new: u64) {
        let base = *self.brk_base.get_or_insert(old);
        let t = &mut self.totals;
        t.brk_up = t.brk_up.saturating_add(new.saturating_sub(old));
        t.brk_down = t.brk_down.saturating_add(old.saturating_sub(new));
        t.brk.committed = new.saturating_sub(base);
    }

    fn note_peaks(&mut self, t: u64) {
        let (now, p) = (&self.totals, &mut self.peaks);
        p.anon.note(now.anon.committed, t);
        p.file.note(now.file.committed, t);
        p.shared.note(now.shared.committed, t);
        p.stack.note(now.stack.committed, t);
        p.brk.note(now.brk.committed, t);
        let before = p.total.bytes;
        p.total.note(now.committed(), t);
        if p.total.bytes > before {
            self.sites.at_peak();
        }
    }
}

#[cfg(test)]
mod tests;
