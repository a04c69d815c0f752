//! What became of a mapped stretch of addresses: its private anonymous bytes after each call that touched it.
//!
//! A region is made by a mapping at an address of the kernel's choice. Calls inside it (MAP_FIXED over parts, unmaps, mprotect) change
//! it, also after it was unmapped whole; mremap takes it along. Each address belongs to one region at most: the one that came last.

use super::ranges::{Piece, RangeMap};
use std::collections::VecDeque;

/// Points kept of one region; after that the last one is overwritten.
pub const POINTS: usize = 64;
/// Regions kept, those with the highest peaks.
pub const KEPT: usize = 512;
/// Unmapped regions whose addresses are still remembered.
const REMEMBERED: usize = 512;

/// The life of one region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegionHistory {
    /// Where it was mapped first, and how long then (whole pages).
    pub addr: u64,
    pub len: u64,
    /// Committed private anonymous bytes after each call that touched it.
    pub anon_bytes: Vec<u64>,
    pub peak_bytes: u64,
    pub end_bytes: u64,
    /// More than [`POINTS`] calls touched it: the last point is the end, those between are missing.
    pub cut: bool,
}

#[derive(Debug, Default)]
struct Region {
    history: RegionHistory,
    /// Bytes mapped in it, of any kind.
    mapped: u64,
    /// Addresses that belong to it, mapped or not, and their bounds.
    owned: u64,
    low: u64,
    high: u64,
    touched: bool,
    in_use: bool,
    /// Waits in `unmapped`.
    queued: bool,
}

type RegionId = u32;

#[derive(Debug, Default)]
pub struct Regions {
    owners: RangeMap<RegionId>,
    all: Vec<Region>,
    free: Vec<RegionId>,
    touched: Vec<RegionId>,
    unmapped: VecDeque<RegionId>,
    finished: Vec<RegionHistory>,
    left_out: u64,
    scratch: Vec<Piece<RegionId>>,
}

impl Regions {
    /// A new mapping: inside a region if it was put there on purpose, else a region of its own.
    pub fn mapped(&mut self, start: u64, end: u64, fixed: bool) {
        let first = self.owners.overlapping(start, end).next();
        let inside = fixed && first.is_some_and(|p| p.start == start && p.end == end);
        if !inside {
            let id = self.new_region(start, end);
            self.own(start, end, id);
        }
    }

    /// What lay at `[old, old_end)`, and was taken out there, will lie at `[new, new_end)`.
    pub fn moved(&mut self, old: u64, old_end: u64, new: u64, new_end: u64) {
        let Some(id) = self.owners.overlapping(old, old_end).next().map(|p| p.value) else { return };
        self.disown(old, old_end);
        self.own(new, new_end, id);
    }

    /// The mapping that ends at `start` will go on to `end`.
    pub fn extended(&mut self, start: u64, end: u64) {
        let before = self.owners.overlapping(start.saturating_sub(1), start).next();
        if let Some(p) = before {
            self.own(start, end, p.value);
        }
    }

    pub fn gained(&mut self, start: u64, end: u64, anon: bool) {
        self.change(start, end, |r, len| {
            r.mapped += len;
            r.history.end_bytes += if anon { len } else { 0 };
        });
    }

    pub fn lost(&mut self, start: u64, end: u64, anon: bool) {
        self.change(start, end, |r, len| {
            r.mapped -= len;
            r.history.end_bytes -= if anon { len } else { 0 };
        });
    }

    /// At the end of each event: points, and regions that are over. `even_if_same`: a call that replaces or moves is a point even where the
    /// sum is what it was.
    pub fn settle(&mut self, even_if_same: bool) {
        while let Some(id) = self.touched.pop() {
            let r = &mut self.all[id as usize];
            r.touched = false;
            let now = r.history.end_bytes;
            let last = r.history.anon_bytes.last().copied().unwrap_or(0);
            if now != last || even_if_same && now > 0 {
                push_point(&mut r.history, now);
            }
            if r.in_use && r.mapped == 0 {
                self.unmapped_whole(id);
            }
        }
    }

    pub fn histories(&self) -> Vec<RegionHistory> {
        let live = self.all.iter().filter(|r| r.in_use).map(|r| &r.history);
        let mut all: Vec<&RegionHistory> = self.finished.iter().chain(live).filter(|h| h.peak_bytes > 0).collect();
        all.sort_by_key(|h| std::cmp::Reverse(h.peak_bytes));
        all.truncate(KEPT);
        all.sort_by_key(|h| h.addr);
        all.into_iter().cloned().collect()
    }

    pub fn left_out(&self) -> u64 {
        let live = self.all.iter().filter(|r| r.in_use).map(|r| &r.history);
        let with_bytes = self.finished.iter().chain(live).filter(|h| h.peak_bytes > 0).count();
        self.left_out + with_bytes.saturating_sub(KEPT) as u64
    }

    fn new_region(&mut self, start: u64, end: u64) -> RegionId {
        let history = RegionHistory { addr: start, len: end - start, ..RegionHistory::default() };
        let region = Region { history, low: start, high: end, in_use: true, ..Region::default() };
        if let Some(id) = self.free.pop() {
            let queued = self.all[id as usize].queued;
            self.all[id as usize] = Region { queued, ..region };
            return id;
        }
        self.all.push(region);
        (self.all.len() - 1) as RegionId
    }

    fn own(&mut self, start: u64, end: u64, id: RegionId) {
        self.disown(start, end);
        self.owners.insert(start, end, id);
        let r = &mut self.all[id as usize];
        r.owned += end - start;
        (r.low, r.high) = (r.low.min(start), r.high.max(end));
        self.touch(id);
    }

    /// Nothing may be mapped in `[start, end)`: the counts of the owner would go on without it.
    fn disown(&mut self, start: u64, end: u64) {
        let mut pieces = std::mem::take(&mut self.scratch);
        pieces.clear();
        self.owners.take(start, end, &mut pieces);
        for p in &pieces {
            self.all[p.value as usize].owned -= p.end - p.start;
            self.touch(p.value);
        }
        self.scratch = pieces;
    }

    fn change(&mut self, start: u64, end: u64, mut with: impl FnMut(&mut Region, u64)) {
        let mut pieces = std::mem::take(&mut self.scratch);
        pieces.clear();
        pieces.extend(self.owners.overlapping(start, end));
        for p in &pieces {
            with(&mut self.all[p.value as usize], p.end - p.start);
            self.touch(p.value);
        }
        self.scratch = pieces;
    }

    fn touch(&mut self, id: RegionId) {
        let r = &mut self.all[id as usize];
        if !r.touched {
            r.touched = true;
            self.touched.push(id);
        }
    }

    /// Its addresses are remembered for a while: a program may fill them again.
    fn unmapped_whole(&mut self, id: RegionId) {
        let r = &mut self.all[id as usize];
        if r.owned == 0 {
            self.finish(id);
            return;
        }
        if !r.queued {
            r.queued = true;
            self.unmapped.push_back(id);
        }
        if self.unmapped.len() > REMEMBERED {
            let oldest = self.unmapped.pop_front().expect("longer than REMEMBERED");
            let r = &mut self.all[oldest as usize];
            r.queued = false;
            if r.in_use && r.mapped == 0 {
                self.forget(oldest);
            }
        }
    }

    fn forget(&mut self, id: RegionId) {
        let (low, high) = (self.all[id as usize].low, self.all[id as usize].high);
        let owned: Vec<_> = self.owners.overlapping(low, high).filter(|p| p.value == id).collect();
        for p in owned {
            self.owners.take(p.start, p.end, &mut Vec::new());
        }
        self.all[id as usize].owned = 0;
        self.finish(id);
    }

    fn finish(&mut self, id: RegionId) {
        let r = &mut self.all[id as usize];
        r.in_use = false;
        let history = std::mem::take(&mut r.history);
        self.free.push(id);
        if history.peak_bytes == 0 {
            return;
        }
        self.finished.push(history);
        if self.finished.len() >= 2 * KEPT {
            self.finished.select_nth_unstable_by_key(KEPT, |h| std::cmp::Reverse(h.peak_bytes));
            self.left_out += (self.finished.len() - KEPT) as u64;
            self.finished.truncate(KEPT);
        }
    }
}

fn push_point(history: &mut RegionHistory, bytes: u64) {
    history.peak_bytes = history.peak_bytes.max(bytes);
    if history.anon_bytes.len() < POINTS {
        history.anon_bytes.push(bytes);
    } else {
        history.cut = true;
        history.anon_bytes[POINTS - 1] = bytes;
    }
}
