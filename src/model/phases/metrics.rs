//! What is followed beside the heap while phases are on: levels as they are told of, cut at the edges when all are known.

use super::{BYTES_MAX, PhaseBook};

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
}

/// How many there are.
pub(super) const METRICS: usize = Metric::Written as usize + 1;

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
}
