//! What the sum can have been at edges of phases and between them.
//!
//! An edge that a lane told of has its place in that lane: its windows end or begin there. Of the other lanes the windows that touch the edge's
//! instant count on both sides of it; stamps are whole ticks, rounded down, so one that ended a tick before may touch it too.

use super::Sweep;
use std::cmp::Reverse;

/// What is known of the sum at an edge: each at least and at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtEdge {
    pub edge: u32,
    pub level: [i64; 2],
    /// Its maximum since the edge before, in the order of times.
    pub most: [i64; 2],
    /// Its minimum since then, at least.
    pub least: i64,
}

/// An edge that the sweep has not come to: its time, number in the order of coming, itself, and the lane that it has a place in.
pub(super) type Due = Reverse<(u64, u64, u32, Option<u32>)>;

/// What edges need of the sweep.
#[derive(Debug, Default)]
pub(super) struct Edges {
    pub due: std::collections::BinaryHeap<Due>,
    added: u64,
    /// Edges passed so far.
    pub passed: u64,
    /// The sum's maximum since the last of them, at least and at most.
    pub since: [i64; 2],
    /// Its minimum since then, at least.
    pub least: i64,
    pub found: Vec<AtEdge>,
    /// Lanes whose windows ended of late, and when.
    closed: Vec<(u64, u32)>,
}

impl Edges {
    pub fn new(base: i64) -> Self {
        Edges { since: [base; 2], least: base, ..Edges::default() }
    }

    /// A lane's window has ended.
    pub fn closed(&mut self, t: u64, lane: u32, tick: u64) {
        // Edges are known before the groups that they are in, which wait here: one that comes later is later than this window's end.
        if self.added == 0 {
            return;
        }
        if self.closed.len() > 64 {
            self.closed.retain(|(then, _)| then.saturating_add(tick) >= t);
        }
        self.closed.push((t, lane));
    }
}

impl Sweep {
    /// An edge in the group being read; `lane`: it has its place between two windows of that one.
    pub fn cut(&mut self, edge: u32, t: u64, lane: Option<u32>) {
        self.edges.added += 1;
        self.edges.due.push(Reverse((t, self.edges.added, edge, lane)));
    }

    /// Takes the next edge. All windows that end or begin before it have done so.
    pub(super) fn pass_edge(&mut self) {
        let Some(Reverse((t, _, edge, own))) = self.edges.due.pop() else { return };
        if t < self.now {
            // It came too late to be told.
            return;
        }
        if let Some(own) = own {
            let lane = *self.lane(own);
            if let Some(opening) = lane.open.filter(|_| lane.t1 <= t) {
                self.close(own, opening, t);
            }
        }
        // Others that began at this very instant, or ended in this tick.
        let mut touching: Vec<(u32, i64, i64)> = Vec::new();
        for lane in self.begin_at(t) {
            let now = self.queues[lane as usize].iter().take_while(|w| w.span.t0 <= t);
            touching.extend(now.map(|w| (lane, w.span.min, w.span.max)));
        }
        let tick = self.tick;
        let late = |then: u64| then.saturating_add(tick) >= t;
        self.edges.closed.retain(|(then, _)| late(*then));
        for i in 0..self.edges.closed.len() {
            let lane = self.edges.closed[i].1;
            let (_, min, max) = self.lane(lane).last;
            touching.push((lane, min, max));
        }
        touching.retain(|(lane, ..)| Some(*lane) != own);
        touching.sort_unstable();
        let [mut low, mut high] = [self.min, self.max];
        for same in touching.chunk_by(|a, b| a.0 == b.0) {
            let now = *self.lane(same[0].0);
            let [least, most] = if now.open.is_some() { [now.min, now.max] } else { [now.level; 2] };
            let (min, max) = same.iter().fold((least, most), |(min, max), s| (min.min(s.1), max.max(s.2)));
            low = low.wrapping_add(min.wrapping_sub(least));
            high = high.wrapping_add(max.wrapping_sub(most));
        }
        let [sure, possible] = self.edges.since;
        let least = self.edges.least.min(low);
        self.edges.found.push(AtEdge { edge, level: [low, high], most: [sure.max(low), possible.max(high)], least });
        (self.edges.since, self.edges.least) = ([low, high], low);
        self.edges.passed += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::Span;
    use super::*;

    fn span(lane: u32, t0: u64, t1: u64, min: i64, max: i64, end: i64) -> Span {
        Span { t0, t1, lane, min, max, end }
    }

    fn found(mut sweep: Sweep) -> Vec<AtEdge> {
        sweep.end_group(u64::MAX);
        sweep.finish().1
    }

    #[test]
    fn an_edge_of_a_lane_alone_is_exact() {
        let mut s = Sweep::new(10, 100);
        s.add(span(0, 0, 500, 0, 100, 40));
        s.cut(1, 500, Some(0));
        s.add(span(0, 500, 900, 20, 70, 20));
        s.cut(2, 950, Some(0));
        let at = [(1, 50, 110, 10), (2, 30, 80, 30)];
        assert_eq!(found(s), at.map(|(edge, level, most, least)| AtEdge { edge, level: [level; 2], most: [most; 2], least }));
    }

    #[test]
    fn what_another_lane_does_around_an_edge_may_be_on_either_side() {
        let mut s = Sweep::new(0, 100);
        s.add(span(0, 0, 500, 0, 7, 7));
        s.add(span(1, 300, 700, 0, 1000, 5));
        s.cut(1, 500, Some(0));
        s.add(span(0, 500, 900, 7, 7, 7));
        s.cut(2, 900, Some(0));
        let [first, second] = found(s)[..] else { panic!() };
        assert_eq!((first.level, first.most[1]), ([7, 1007], 1007));
        assert!(first.most[0] <= 12 && second.most[0] <= 12, "{first:?} {second:?}");
        assert_eq!((second.level, second.most[1]), ([12, 12], 1007));
    }

    #[test]
    fn a_window_whole_between_two_edges_is_known() {
        let mut s = Sweep::new(0, 100);
        s.cut(1, 1000, Some(0));
        s.add(span(1, 2000, 3000, 0, 600, 10));
        s.cut(2, 9000, Some(0));
        s.cut(3, 9000, None);
        let at = found(s);
        assert_eq!((at[1].level, at[1].most), ([10, 10], [600, 600]));
        assert_eq!((at[2].level, at[2].most), ([10, 10], [10, 10]));
    }

    #[test]
    fn the_least_between_two_edges_is_known_too() {
        let mut s = Sweep::new(0, 1);
        s.add(span(0, 0, 100, 0, 500, 500));
        s.cut(1, 200, None);
        s.add(span(0, 300, 400, 20, 500, 500));
        s.cut(2, 500, None);
        s.add(span(0, 600, 700, 500, 900, 900));
        s.cut(3, 800, None);
        assert_eq!(found(s).iter().map(|at| (at.level, at.least)).collect::<Vec<_>>(), [([500; 2], 0), ([500; 2], 20), ([900; 2], 500)]);
    }

    #[test]
    fn stamps_are_rounded_down_to_ticks() {
        let mut s = Sweep::new(0, 100);
        s.add(span(1, 0, 500, 0, 50, 0));
        s.cut(1, 560, Some(0));
        s.cut(2, 601, Some(0));
        let at = found(s);
        assert_eq!((at[0].level, at[1].level), ([0, 50], [0, 0]));
        assert_eq!(at[1].most[1], 50, "it may have been after the first edge");
    }
}
