//! One `ev` line: codes to events. An event becomes a *step*, its change of the live bytes.
//!
//! What a free ends is a number here; `endings` looks it up: own blocks when the batch has been read, blocks of other lanes when
//! the whole group has been (they may be allocated further down in it). What order the steps of several lanes come in is not decided here (see `merge`).

use super::by_thread::ThreadSites;
use super::endings::{self, Ending};
use super::kinds::{KindTable, UNKNOWN, age_class};
use super::left::PhaseSites;
use super::live::{KindId, LiveTable, SpreadHash};
use crate::trace::column::Values;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;

/// Changes of one event, by metric.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    /// Requested bytes (for unknown blocks: usable).
    pub requested: Vec<i64>,
    pub usable: Vec<i64>,
    /// Bytes of the selected sizes; empty where none are selected.
    pub selected: Vec<i64>,
    /// Blocks of the selected sizes; likewise.
    pub selected_count: Vec<i64>,
    /// Kinds allocated and ended, 0 for none; empty where there are no call sites.
    pub got: Vec<KindId>,
    pub ended: Vec<KindId>,
}

impl Steps {
    pub fn len(&self) -> usize {
        self.requested.len()
    }

    pub fn is_empty(&self) -> bool {
        self.requested.is_empty()
    }

    fn push(&mut self, change: Change, selecting: bool) {
        self.requested.push(change.requested);
        self.usable.push(change.usable);
        if selecting {
            self.selected.push(change.selected);
            self.selected_count.push(change.selected_count);
        }
    }

    /// Adds to step `at`.
    pub fn add(&mut self, at: usize, change: Change) {
        self.requested[at] = self.requested[at].wrapping_add(change.requested);
        self.usable[at] = self.usable[at].wrapping_add(change.usable);
        if let (Some(bytes), Some(count)) = (self.selected.get_mut(at), self.selected_count.get_mut(at)) {
            *bytes += change.selected;
            *count += change.selected_count;
        }
    }

    /// At step `at` a block of this kind ended.
    #[inline]
    pub fn end(&mut self, at: usize, kind: KindId, change: Change) {
        self.add(at, change);
        if let Some(ended) = self.ended.get_mut(at) {
            *ended = kind;
        }
    }

    pub fn clear(&mut self) {
        self.got.clear();
        self.ended.clear();
        self.requested.clear();
        self.usable.clear();
        self.selected.clear();
        self.selected_count.clear();
    }
}

/// See [`Steps`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    pub requested: i64,
    pub usable: i64,
    pub selected: i64,
    pub selected_count: i64,
}

impl Change {
    #[inline]
    fn add(&mut self, other: Change) {
        self.requested += other.requested;
        self.usable += other.usable;
        self.selected += other.selected;
        self.selected_count += other.selected_count;
    }
}

/// What the events of all lanes of an image amount to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub allocs: u64,
    /// Blocks freed, of known and of unknown identity.
    pub frees: u64,
    pub reallocs: u64,
    pub requested: u64,
    pub temporary: u64,
    pub unknown_frees: u64,
    pub unknown_bytes: u64,
    /// Unknown frees that turned out to be of a block that was written later.
    pub settles: u64,
    /// Usable bytes of their blocks: the trace shows them leave before they come.
    pub settled_bytes: u64,
    /// Frees of a block that is not live (lost allocation, damaged line).
    pub unmatched: u64,
    /// Allocations of a kind that is not in the dictionary.
    pub unknown_kinds: u64,
    /// Codes that mean nothing, columns that break off.
    pub bad_codes: u64,
    /// Events in the trace.
    pub events: u64,
    /// Allocations missing between one batch of a lane and its next.
    pub gap_allocs: u64,
    /// Batches that start before the end of the one before.
    pub overlaps: u64,
    /// Batches whose own count differs from what their columns hold.
    pub miscounted: u64,
}

/// Where another thread takes over the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handover {
    /// Steps of the thread before.
    pub step: usize,
    pub allocs: u64,
    pub bytes: u64,
}

/// What a lane is while its batches are read.
#[derive(Default)]
pub struct LaneState {
    pub table: LiveTable,
    /// How often the lane had allocated when its live blocks came, by number; where the trace says so.
    pub born: HashMap<u64, u64, BuildHasherDefault<SpreadHash>>,
    pub next_seq: u64,
    pub started: bool,
    /// Allocations so far.
    pub allocs: u64,
    /// Requested bytes of them.
    pub bytes: u64,
    /// First number of the threads that have not begun yet, and which they are; soonest last.
    pub handovers: Vec<(u64, u32)>,
    /// The thread that uses it.
    pub tid: u32,
}

/// The state that decoding a batch changes.
pub struct Decode<'a> {
    pub lane: &'a mut LaneState,
    pub kinds: &'a mut KindTable,
    pub totals: &'a mut Totals,
    pub steps: &'a mut Steps,
    /// Frees of this lane's blocks, all of them allocated by the end of the batch.
    pub own: &'a mut Vec<Ending>,
    /// Frees of other lanes' blocks: those may be allocated further down in the group.
    pub foreign: &'a mut Vec<Ending>,
    pub number: u16,
    pub handed: &'a mut Vec<Handover>,
    pub x: &'a [u64],
    pub z: &'a [u64],
    pub selecting: bool,
    /// Where the call site changes: from step, site. `None` where there are none.
    pub sites: Option<&'a [(u32, u32)]>,
    /// Where sites are told apart by thread.
    pub by_thread: Option<&'a mut ThreadSites>,
    /// Where what phases left behind is asked for, and which phases are on: from step, number of their set.
    pub left: Option<&'a mut PhaseSites>,
    pub phases: &'a [(u32, u32)],
    /// `prev` of the format.
    pub prev: u64,
    /// Number in the last entry of `x`, by owner modulo 8.
    pub last_of: [u64; 8],
    /// How often the lane had allocated at the last event that said so; `None` where the trace does not tell.
    pub count: Option<u64>,
}

impl Decode<'_> {
    /// Reads all codes.
    pub fn run(&mut self, codes: impl Values) {
        match self.sites {
            Some(sites) => self.read::<true>(codes, sites),
            None => self.read::<false>(codes, &[]),
        }
    }

    fn read<const SITED: bool>(&mut self, mut codes: impl Values, mut sites: &[(u32, u32)]) {
        let mut site = 0;
        while let Some(c) = codes.next() {
            self.totals.events += 1;
            if SITED {
                while let [(from, next), rest @ ..] = sites
                    && *from as usize <= self.steps.len()
                {
                    (site, sites) = (*next, rest);
                }
                self.steps.got.push(0);
                self.steps.ended.push(0);
            }
            let change = match c % 3 {
                0 if c > 0 => self.allocate::<SITED>(c / 3, site, &mut codes),
                0 => {
                    self.totals.bad_codes += 1;
                    Change::default()
                }
                _ => self.release(c, None),
            };
            self.steps.push(change, self.selecting);
        }
        self.totals.bad_codes += !codes.at_end() as u64;
    }

    #[inline]
    fn allocate<const SITED: bool>(&mut self, number: u64, site: u32, codes: &mut impl Values) -> Change {
        let mut id = self.kinds.id(number);
        if id == UNKNOWN {
            self.totals.unknown_kinds += 1;
        } else if self.kinds.get(id).wide {
            match self.z {
                [size, slack, rest @ ..] => {
                    id = self.kinds.intern(id, *size, *slack);
                    self.z = rest;
                }
                _ => self.totals.bad_codes += 1,
            }
        }
        let seq = self.lane.next_seq;
        while let Some(&(_, tid)) = self.lane.handovers.last().filter(|(first, _)| *first <= seq) {
            self.lane.handovers.pop();
            self.lane.tid = tid;
            self.handed.push(Handover { step: self.steps.len(), allocs: self.lane.allocs, bytes: self.lane.bytes });
        }
        if SITED {
            let site = self.by_thread.as_mut().map_or(site, |t| t.number(site, self.lane.tid));
            id = self.kinds.at_site(id, site);
            if let Some(left) = &mut self.left {
                let at = self.steps.len();
                while let [_, (from, _), ..] = self.phases
                    && *from as usize <= at
                {
                    self.phases = &self.phases[1..];
                }
                if let [(_, set), ..] = self.phases
                    && *set != 0
                {
                    id = self.kinds.at_place(id, left.place(site, *set));
                }
            }
            if let Some(got) = self.steps.got.last_mut() {
                *got = id;
            }
        }
        self.lane.next_seq = seq.wrapping_add(1);
        self.lane.table.insert(seq, id);
        if let Some(count) = self.counted() {
            self.lane.born.insert(seq, count);
        }
        self.lane.allocs += 1;
        self.totals.allocs += 1;
        let kind = self.kinds.get_mut(id);
        kind.allocs += 1;
        self.lane.bytes = self.lane.bytes.wrapping_add(kind.size);
        let mut change = Change {
            requested: kind.size as i64,
            usable: kind.usable as i64,
            selected: if kind.selected { kind.size as i64 } else { 0 },
            selected_count: kind.selected as i64,
        };
        if kind.replaces() {
            self.totals.reallocs += 1;
            match codes.next() {
                Some(c) if c % 3 != 0 => change.add(self.release(c, Some(seq))),
                _ => self.totals.bad_codes += 1,
            }
        }
        change
    }

    /// How often the lane had allocated at this event, where the trace tells.
    #[inline]
    fn counted(&mut self) -> Option<u64> {
        let before = self.count?;
        let [more, rest @ ..] = self.x else {
            self.totals.bad_codes += 1;
            return None;
        };
        self.x = rest;
        self.count = Some(before.wrapping_add(*more));
        self.count
    }

    /// `replacing`: number of the block that comes in its place, and is the event's own.
    #[inline]
    fn release(&mut self, c: u64, replacing: Option<u64>) -> Change {
        let q = c / 3;
        let seq = match (c % 3, q) {
            (1, 0) => return self.release_foreign(),
            (1, age) => self.lane.next_seq.wrapping_sub(age),
            (_, 0) => return self.settle(),
            (_, q) => self.prev.wrapping_add(memshim_format::v93::unzigzag(q) as u64),
        };
        self.prev = seq;
        // Of the allocations before this event.
        let age = match (self.count, replacing) {
            (None, new) => Some(new.unwrap_or(self.lane.next_seq).wrapping_sub(1).wrapping_sub(seq)),
            (Some(with_new), Some(_)) => self.lane.born.remove(&seq).map(|born| with_new.wrapping_sub(1).saturating_sub(born)),
            (Some(_), None) => self.counted().zip(self.lane.born.remove(&seq)).map(|(now, born)| now.saturating_sub(born)),
        };
        self.totals.temporary += (age == Some(0)) as u64;
        let age = age.map_or(endings::OLD, age_class);
        self.own.push(Ending { step: self.steps.len() as u32, owner: self.number, age, seq });
        Change::default()
    }

    fn release_foreign(&mut self) -> Change {
        match self.x {
            [0, _address, usable, rest @ ..] => {
                self.x = rest;
                let usable = (*usable).min(1 << 48);
                self.totals.frees += 1;
                self.totals.unknown_frees = self.totals.unknown_frees.wrapping_add(1);
                self.totals.unknown_bytes = self.totals.unknown_bytes.wrapping_add(usable);
                Change { requested: -(usable as i64), usable: -(usable as i64), ..Change::default() }
            }
            [owner, delta, rest @ ..] if *owner > 0 && *owner <= u32::MAX as u64 => {
                self.x = rest;
                let owner = u16::try_from(*owner - 1).unwrap_or(u16::MAX);
                let last = &mut self.last_of[owner as usize % 8];
                *last = last.wrapping_add(memshim_format::v93::unzigzag(*delta) as u64);
                self.foreign.push(Ending { step: self.steps.len() as u32, owner, age: endings::OLD, seq: *last });
                Change::default()
            }
            _ => {
                self.x = &[];
                self.totals.bad_codes += 1;
                Change::default()
            }
        }
    }

    /// The newest block was ended by a free that was read before it and went for unknown: its bytes are gone already, by usable size.
    #[cold]
    fn settle(&mut self) -> Change {
        self.totals.events -= 1;
        let newest = self.lane.next_seq.wrapping_sub(1);
        let kind = self.lane.table.take(newest);
        self.lane.born.remove(&newest);
        if kind == 0 {
            self.totals.unmatched += 1;
            return Change::default();
        }
        self.totals.settles += 1;
        self.totals.settled_bytes = self.totals.settled_bytes.saturating_add(self.kinds.get(kind).usable);
        // The unknown free may stand in a lane's batch that is read after this one.
        self.totals.unknown_frees = self.totals.unknown_frees.wrapping_sub(1);
        if let Some(ended) = self.steps.ended.last_mut() {
            *ended = kind;
        }
        let k = self.kinds.get_mut(kind);
        k.frees += 1;
        self.totals.unknown_bytes = self.totals.unknown_bytes.wrapping_sub(k.usable);
        Change {
            requested: k.usable as i64 - k.size as i64,
            usable: 0,
            selected: if k.selected { -(k.size as i64) } else { 0 },
            selected_count: -(k.selected as i64),
        }
    }
}
