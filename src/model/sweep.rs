//! What the sum over all lanes can have been at most and at least, whatever the order of events inside their windows was.
//!
//! A lane's live bytes are known at each stamp and between batches; within a window they lie between the window's minimum and
//! maximum. So the sum's maximum over time lies between
//! - `upper`: the maximum over time of Σ (maximum of the window a lane is in), and
//! - `lower`: the maximum over time of Σ (minimum of it), and, for a window that overlaps no other lane's, its maximum and the rest.
//!
//! Windows come group by group and overlap in time across groups, but an event in group g was pushed after group g−2 was written
//! (each group holds all events read since the one before), so sweeping may go as far as the end of the group before last.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A window of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    pub t0: u64,
    pub t1: u64,
    pub lane: u32,
    pub min: i64,
    pub max: i64,
    /// Level after it.
    pub end: i64,
}

#[derive(Clone, Copy, Debug, Default)]
struct LaneNow {
    level: i64,
    /// The open window's.
    min: i64,
    max: i64,
    end: i64,
    open: Option<u64>,
    /// Its events end at this time at the earliest: windows of one lane don't overlap.
    until: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Sweep {
    lanes: Vec<LaneNow>,
    /// Begin, number in the order of their coming (windows of one lane that begin at one instant keep it), window.
    opens: BinaryHeap<Reverse<(u64, u64, Span)>>,
    added: u64,
    /// End, lane, number of the opening.
    closes: BinaryHeap<Reverse<(u64, u32, u64)>>,
    openings: u64,
    open: usize,
    /// The lane whose window no other lane's has overlapped yet.
    alone: Option<u32>,
    max: i64,
    min: i64,
    upper: i64,
    lower: i64,
    /// Ends of the last two groups.
    ends: [u64; 2],
}

impl Sweep {
    /// Starts from a level that belongs to no lane.
    pub fn new(base: i64) -> Self {
        Sweep {
            lanes: Vec::new(),
            opens: BinaryHeap::new(),
            added: 0,
            closes: BinaryHeap::new(),
            openings: 0,
            open: 0,
            alone: None,
            max: base,
            min: base,
            upper: base,
            lower: base,
            ends: [0; 2],
        }
    }

    /// A window of the group being read.
    pub fn add(&mut self, mut span: Span) {
        let lane = self.lane(span.lane);
        span.t0 = span.t0.max(lane.until);
        span.t1 = span.t1.max(span.t0);
        lane.until = span.t1;
        self.added += 1;
        self.opens.push(Reverse((span.t0, self.added, span)));
    }

    /// The group is complete; none of its windows ends after `t`.
    pub fn end_group(&mut self, t: u64) {
        let horizon = self.ends[1];
        self.ends = [self.ends[1], self.ends[1].max(t)];
        self.run(horizon);
    }

    /// Sweeps what is left; then (lower, upper).
    pub fn finish(mut self) -> (i64, i64) {
        self.run(u64::MAX);
        (self.lower, self.upper)
    }

    fn lane(&mut self, lane: u32) -> &mut LaneNow {
        let at = lane as usize;
        if self.lanes.len() <= at {
            self.lanes.resize(at + 1, LaneNow::default());
        }
        &mut self.lanes[at]
    }

    fn run(&mut self, horizon: u64) {
        loop {
            let open = self.opens.peek().map(|Reverse((.., s))| *s);
            let close = self.closes.peek().map(|Reverse(c)| *c);
            match (open, close) {
                // Windows that only touch may overlap: instants are whole ticks.
                (Some(span), close) if close.is_none_or(|c| span.t0 <= c.0) => {
                    if span.t0 > horizon {
                        return;
                    }
                    self.opens.pop();
                    self.begin(span);
                }
                (_, Some((t, lane, opening))) => {
                    if t > horizon {
                        return;
                    }
                    self.closes.pop();
                    self.close(lane, opening);
                }
                _ => return,
            }
        }
    }

    fn begin(&mut self, span: Span) {
        // At a stamp the lane's level is known: one window ends before the next begins.
        if let Some(before) = self.lane(span.lane).open {
            // Another lane's that begins at this very instant may have come before the one that ends.
            if self.alone.is_some() && self.opens.iter().any(|Reverse((.., next))| next.lane != span.lane && next.t0 <= span.t0) {
                self.alone = None;
            }
            self.end(span.lane, before);
        }
        self.openings += 1;
        let opening = self.openings;
        self.alone = (self.open == 0).then_some(span.lane);
        self.open += 1;
        let lane = self.lane(span.lane);
        let level = lane.level;
        *lane = LaneNow { min: span.min, max: span.max, end: span.end, open: Some(opening), ..*lane };
        self.max = self.max.wrapping_add(span.max.wrapping_sub(level));
        self.min = self.min.wrapping_add(span.min.wrapping_sub(level));
        self.closes.push(Reverse((span.t1, span.lane, opening)));
        self.upper = self.upper.max(self.max);
        // What is known at least is known once all windows that begin at this instant are open.
        if self.opens.peek().is_none_or(|Reverse((t0, ..))| *t0 > span.t0) {
            self.note();
        }
    }

    fn close(&mut self, lane: u32, opening: u64) {
        self.end(lane, opening);
        self.note();
    }

    fn end(&mut self, lane: u32, opening: u64) {
        let at = self.lane(lane);
        if at.open != Some(opening) {
            return;
        }
        at.open = None;
        at.level = at.end;
        let LaneNow { min, max, end, .. } = *at;
        if self.alone == Some(lane) {
            self.lower = self.lower.max(self.min.wrapping_sub(min).wrapping_add(max));
        }
        self.open -= 1;
        self.max = self.max.wrapping_add(end.wrapping_sub(max));
        self.min = self.min.wrapping_add(end.wrapping_sub(min));
    }

    fn note(&mut self) {
        self.upper = self.upper.max(self.max);
        self.lower = self.lower.max(self.min);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(lane: u32, t0: u64, t1: u64, min: i64, max: i64, end: i64) -> Span {
        Span { t0, t1, lane, min, max, end }
    }

    #[test]
    fn one_lane_is_exact() {
        let mut s = Sweep::new(10);
        s.add(span(0, 0, 5, 0, 100, 40));
        s.add(span(0, 5, 9, 20, 70, 20));
        s.end_group(9);
        assert_eq!(s.finish(), (110, 110));
    }

    #[test]
    fn lanes_that_overlap_leave_a_bound_and_lanes_that_do_not_leave_none() {
        let mut s = Sweep::new(0);
        s.add(span(0, 0, 10, 0, 100, 0));
        s.add(span(1, 5, 15, 0, 50, 10));
        s.end_group(15);
        let (lower, upper) = s.finish();
        assert_eq!(upper, 150);
        assert!(lower <= 100, "{lower}");

        let mut s = Sweep::new(0);
        s.add(span(0, 0, 10, 0, 100, 30));
        s.add(span(1, 11, 15, 0, 80, 10));
        s.end_group(15);
        assert_eq!(s.finish(), (110, 110));
    }

    #[test]
    fn windows_of_one_instant_keep_their_order() {
        let mut s = Sweep::new(0);
        s.add(span(0, 5, 5, 0, 1, 1));
        s.add(span(0, 5, 5, 0, 1, 0));
        s.add(span(1, 6, 9, 0, 1, 1));
        s.end_group(9);
        assert_eq!(s.finish(), (1, 1));
    }

    #[test]
    fn a_window_that_another_lane_touches_at_its_last_instant_was_not_alone() {
        let mut s = Sweep::new(0);
        s.add(span(0, 5, 5, 0, 3, 3));
        s.add(span(0, 5, 9, 3, 3, 3));
        s.add(span(1, 5, 5, -1, 0, -1));
        s.end_group(9);
        let (lower, upper) = s.finish();
        assert!(lower <= 2 && upper == 3, "{lower} {upper}");
    }

    #[test]
    fn windows_of_neighbouring_groups_overlap() {
        let mut s = Sweep::new(0);
        s.add(span(0, 0, 10, 0, 100, 0));
        s.end_group(10);
        s.add(span(1, 3, 12, 0, 60, 0));
        s.end_group(12);
        assert_eq!(s.finish().1, 160);
    }
}
