//! What is followed beside the heap while phases are on: levels as they are told of, cut at the edges when all are known.

use super::{BYTES_MAX, PhaseBook};
use crate::trace::glance::Seen;
use crate::trace::marks::Resident;

/// What is followed beside the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Usable bytes live at least, and at most, by the exact counts (fast mode).
    HeapLower,
    HeapUpper,
    /// Committed maps of all classes.
    Maps,
    Rss,
    /// The kernel's high-water mark of it.
    Hwm,
    /// Live on all devices.
    Gpu,
    Pinned,
    /// Bytes copied so far.
    H2d,
    D2h,
    /// Bytes that the program read and wrote so far.
    Read,
    Written,
    /// Usable bytes of Python's own blocks, by the exact counts.
    Python,
}

/// How many there are.
pub(super) const METRICS: usize = Metric::Python as usize + 1;

impl PhaseBook {
    /// The same of calls, which come in the order of their effects: one that began before another and took effect after it is noted at that
    /// other's time.
    pub fn note_in_order(&mut self, metric: Metric, t: u64, level: u64) {
        let latest = &mut self.in_order[metric as usize];
        *latest = t.max(*latest);
        let t = *latest;
        self.note(metric, t, level);
    }

    /// A metric has this level from `t` on.
    pub fn note(&mut self, metric: Metric, t: u64, level: u64) {
        let level = i64::try_from(level).unwrap_or(i64::MAX).min(BYTES_MAX << 8);
        self.note_most(metric, t, level, level);
    }

    /// The same, with the most there was since the note before.
    pub fn note_most(&mut self, metric: Metric, t: u64, level: i64, most: i64) {
        let levels = &mut self.levels[metric as usize];
        levels.note_most(t, level, most);
        if !self.late_edges {
            levels.join_old(self.edges.last().map(|e| e.t));
        }
    }

    /// A look from outside, between two lines of counts: the level then, the process's own and inherited bytes.
    pub(super) fn looked(&mut self, t: u64, seen: &Seen) -> i64 {
        let seen = bounded(seen);
        self.stretch(t, seen);
        self.look = Some(seen);
        seen.live.saturating_add(self.inherited)
    }

    /// A look at resident memory at an edge, as the process itself looks at its own.
    pub fn resident(&mut self, t: u64, now: &Resident) {
        self.note(Metric::Rss, t, now.rss);
        self.note(Metric::Hwm, t, now.hwm);
    }

    /// A line of counts, as a look: it ends the stretch of those before it; when. `None`: it has no stretch of its own. A look at an edge can stand behind a
    /// line that was written later than the edge was: what that line says was highest is of a time that goes on behind the edge, and this one, unless it
    /// has `rows` of lanes, which are newer, says nothing of what was before.
    pub fn counted(&mut self, t: u64, seen: &Seen, rows: bool) -> Option<u64> {
        if t < self.counted_at && !rows {
            return None;
        }
        self.counted_at = t.max(self.counted_at);
        self.stretch(self.counted_at, bounded(seen));
        self.look = None;
        Some(self.counted_at)
    }

    /// What was live between the last look and this one. Each knows the most since the line of counts before both: if it is more than the last
    /// one knew of, it came after that; in any case it was no more than was live then and everything allocated since.
    fn stretch(&mut self, t: u64, now: Seen) {
        let (sure, most) = match self.look {
            None => (now.sure, now.most),
            Some(last) => {
                // Where a line has not the rows of all threads it is not known.
                let got = now.bytes.checked_sub(last.bytes).unwrap_or(BYTES_MAX as u64);
                let slack = now.allocs.saturating_sub(last.allocs).saturating_mul(SLACK).saturating_add(got / PAGES);
                let risen = last.live.saturating_add(got.saturating_add(slack).min(BYTES_MAX as u64) as i64);
                let sure = if now.sure > last.most { now.sure } else { last.live.max(now.live) };
                (sure, now.most.min(risen))
            }
        };
        let level = |of: i64| of.saturating_add(self.inherited);
        let (live, sure, most) = (level(now.live), level(sure.max(now.live)), level(most.max(sure).max(now.live)));
        self.note_most(Metric::HeapLower, t, live, sure);
        self.note_most(Metric::HeapUpper, t, live, most);
    }
}

/// Usable bytes of a block beyond those asked for, at most; and of what the C library maps singly (from 128 KiB on) the rest of a page.
const SLACK: u64 = 48;
const PAGES: u64 = 32;

/// What a side file claims, within what can be.
fn bounded(seen: &Seen) -> Seen {
    let held = |bytes: i64| bytes.clamp(-BYTES_MAX, BYTES_MAX);
    Seen { live: held(seen.live), sure: held(seen.sure), most: held(seen.most), ..*seen }
}
