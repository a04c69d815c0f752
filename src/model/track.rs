//! One metric followed over all lanes of an image: its level, its peak and what bounds the peak; and, where phases are asked for, its level at
//! their edges and the most between them.

use super::merge::{Run, Window};
use super::sweep::{AtEdge, Span, Sweep};
use std::ops::Range;

/// An edge on its way through the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    pub edge: u32,
    pub t: u64,
    /// Where it stands among a lane's steps; else it stands by its time.
    pub place: Option<Place>,
}

/// A place in a lane: before a step of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub lane: u32,
    /// Number of the batch; a lane's come in their order.
    pub batch: usize,
    pub step: usize,
}

/// What was found at one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub edge: u32,
    pub level: i64,
    /// The most since the edge before, both levels included.
    pub most: i64,
}

/// A batch as it is read: its windows and, in each, the changes of one metric.
pub struct Batch<'a> {
    pub lane: u32,
    pub windows: &'a [Window],
    pub changes: &'a [i64],
}

/// What of a batch is played: the changes of all its steps, and which they are.
pub struct Part<'a> {
    pub changes: &'a [i64],
    pub steps: Range<usize>,
}

impl Part<'_> {
    /// By how much it goes up at most, and in all.
    fn rise(&self) -> (i64, i64) {
        let (mut level, mut top) = (0i64, 0);
        for change in &self.changes[self.steps.clone()] {
            level = level.wrapping_add(*change);
            top = top.max(level);
        }
        (top, level)
    }
}

/// See the module.
#[derive(Debug)]
pub struct Track {
    /// Σ over the lanes, of what is played.
    level: i64,
    peak: i64,
    peak_at: u64,
    /// By lane, of what is read.
    levels: Vec<i64>,
    /// `None` for a metric whose bound nobody asks for.
    sweep: Option<Sweep>,
    /// From there on levels mean nothing.
    until: u64,
    /// The most since the last edge; `None` before the first.
    since: Option<i64>,
    /// What was found at edges.
    pub found: Vec<Found>,
}

/// A metric at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    pub live: i64,
    pub peak: i64,
    /// The true peak is at most this far from `peak`.
    pub bound: i64,
    /// Instant of the peak; 0 where it was there from the start.
    pub at: u64,
}

impl Track {
    /// Starts from `base`, which belongs to no lane; `tick` (ns, of the stamps) where a bound is asked for.
    pub fn new(base: i64, tick: Option<u64>) -> Self {
        Track {
            level: base,
            peak: base,
            peak_at: 0,
            levels: Vec::new(),
            sweep: tick.map(|tick| Sweep::new(base, tick)),
            until: u64::MAX,
            since: None,
            found: Vec::new(),
        }
    }

    /// What is live from `t` on is no peak: not every block is an event there.
    pub fn end_at(&mut self, t: u64) {
        self.until = self.until.min(t);
        self.sweep.iter_mut().for_each(|sweep| sweep.end_at(t));
    }

    /// Level of a lane, of what is read; for a metric whose bound is asked for.
    pub fn level_of(&self, lane: u32) -> i64 {
        debug_assert!(self.sweep.is_some());
        self.levels.get(lane as usize).copied().unwrap_or(0)
    }

    /// Reads a group, `end` is the latest time in it; of `edges` in it, the time and the lane that it has a place in.
    pub fn read(&mut self, batches: &[Batch], end: u64, edges: impl IntoIterator<Item = (u32, u64, Option<u32>)>) {
        if self.sweep.is_none() {
            return;
        }
        batches.iter().for_each(|b| self.read_lane(b));
        if let Some(sweep) = &mut self.sweep {
            edges.into_iter().for_each(|(edge, t, lane)| sweep.cut(edge, t, lane));
            sweep.end_group(end);
        }
    }

    /// Plays parts of what was read. `order` gives the order of their steps, `parts` as numbered in its runs: it is asked for only where the
    /// peak may lie in them, or for `cuts`, in the order of their times. Runs are cut where these are.
    pub fn play<'a>(&mut self, parts: &[Part], order: impl FnOnce() -> &'a [Run], mut cuts: Vec<Cut>) {
        let (mut most, mut sum) = (self.level, self.level);
        for (rise, change) in parts.iter().map(Part::rise) {
            most = most.saturating_add(rise);
            sum = sum.wrapping_add(change);
        }
        if !cuts.is_empty() {
            self.since.get_or_insert(self.level);
        }
        if most > self.peak || self.since.is_some_and(|since| most > since) || !cuts.is_empty() {
            cuts.reverse();
            let level = self.find_peak(parts, order(), &mut cuts);
            cuts.into_iter().rev().for_each(|cut| self.cut(cut.edge, level));
        }
        self.level = sum;
    }

    /// An edge after everything that was played.
    pub fn cut_here(&mut self, edge: u32) {
        if let Some(sweep) = &mut self.sweep {
            sweep.cut(edge, u64::MAX, None);
        }
        self.cut(edge, self.level);
    }

    fn cut(&mut self, edge: u32, level: i64) {
        let most = self.since.replace(level).unwrap_or(level).max(level);
        self.found.push(Found { edge, level, most });
    }

    /// A lane by itself, which may be ahead of what is played.
    fn read_lane(&mut self, b: &Batch) {
        let lane = b.lane as usize;
        if self.levels.len() <= lane {
            self.levels.resize(lane + 1, 0);
        }
        let mut level = self.levels[lane];
        for w in b.windows {
            let (mut min, mut max) = (level, level);
            for d in &b.changes[w.steps.clone()] {
                level = level.wrapping_add(*d);
                min = min.min(level);
                max = max.max(level);
            }
            if let Some(sweep) = &mut self.sweep {
                sweep.add(Span { t0: w.t0, t1: w.t1, lane: b.lane, min, max, end: level });
            }
        }
        self.levels[lane] = level;
    }

    /// Takes the cuts that lie before a run off the end of `cuts`; gives the level after all runs.
    fn find_peak(&mut self, parts: &[Part], runs: &[Run], cuts: &mut Vec<Cut>) -> i64 {
        let mut level = self.level;
        for run in runs {
            while let Some(cut) = cuts.pop_if(|cut| is_before(cut, run)) {
                self.cut(cut.edge, level);
            }
            let (mut top, mut at) = (i64::MIN, 0);
            for (i, d) in parts[run.batch].changes[run.steps.clone()].iter().enumerate() {
                level = level.wrapping_add(*d);
                if level > top {
                    (top, at) = (level, i);
                }
            }
            if top > self.peak && run.t0 < self.until {
                self.peak = top;
                let n = run.steps.len().max(1) as u64;
                self.peak_at = run.t0 + ((run.t1 - run.t0) as u128 * at as u128 / n as u128) as u64;
            }
            self.since = self.since.map(|since| since.max(top));
        }
        level
    }

    /// The metric as it is at the end of the trace.
    pub fn finish(self) -> Peak {
        self.finish_with_edges().0
    }

    /// The same, and what it can have been at edges and between them.
    pub fn finish_with_edges(self) -> (Peak, Vec<AtEdge>) {
        let (mut peak, mut bound, mut edges) = (self.peak, 0, Vec::new());
        if let Some(sweep) = self.sweep {
            let ((lower, upper), found) = sweep.finish();
            peak = peak.clamp(lower.min(upper), lower.max(upper));
            bound = upper.saturating_sub(peak).max(peak.saturating_sub(lower));
            edges = found;
        }
        (Peak { live: self.level, peak, bound, at: self.peak_at }, edges)
    }
}

/// Whether an edge comes before a run's first step: of its own lane by its place, of others by the time.
pub(super) fn is_before(cut: &Cut, run: &Run) -> bool {
    match cut.place {
        Some(Place { lane, batch, step }) if lane == run.lane => (batch, step) <= (run.batch, run.steps.start),
        _ => cut.t <= run.t0,
    }
}
