//! What the sum over all lanes can have been at most and at least, whatever the order of events inside their windows was.
//!
//! A lane's live bytes are known at each stamp and between batches; within a window they lie between the window's minimum and
//! maximum. So the sum's maximum over time lies between
//! - `upper`: the maximum over time of Σ (maximum of the window a lane is in), and
//! - `lower`: the maximum over time of Σ (minimum of it), and, for a window that overlaps no other lane's, its maximum and the rest.
//!
//! Windows come group by group and overlap in time across groups: rings are read while they are filled, and one reading of full rings is written
//! as many groups, so what others did at the time of a group can stand many groups further on. What all rings together hold is no more than
//! [`LAG`] groups or [`WAITING`] windows: sweeping goes as far as the end of the group that so many have come after.
//!
//! A lane's windows overlap where a batch ended between two stamps: what is in the first can be as late as what is in the second, so that
//! one counts with the most and the least of both.

mod edges;

pub use edges::AtEdge;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Groups that the rings can hold: 1,024 blocks of 512 words, with a group for some 500 events at least.
const LAG: usize = 1024;
/// Windows that they can hold: an event and its stamp are two words at least.
const WAITING: u64 = 1 << 18;

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
    /// The open window's; with those of the one before where they overlap.
    min: i64,
    max: i64,
    end: i64,
    /// What it came to in any case, while it was open.
    sure: i64,
    open: Option<u64>,
    /// When it ends, and how many edges of phases were before it.
    t1: u64,
    edges: u64,
    /// The windows that ended last within one tick: when, minimum, maximum.
    last: (u64, i64, i64),
    /// Of the window added last: its begin, end, minimum and maximum.
    added: (u64, u64, i64, i64),
    /// When its window was last followed by another one, and the least and the most of all that were open at that instant.
    followed: (u64, i64, i64),
}

/// Windows of a lane that wait, in their order.
type Queue = VecDeque<Waiting>;

/// A window that waits: what of it is another's that it overlaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    /// Number in the order of their coming.
    number: u64,
    span: Span,
    /// Minimum and maximum of both.
    both: Option<(i64, i64)>,
}

/// See the module.
#[derive(Debug)]
pub struct Sweep {
    lanes: Vec<LaneNow>,
    /// Of each lane whose windows wait: begin of the next, number in the order of their coming, lane.
    opens: BinaryHeap<Reverse<(u64, u64, u32)>>,
    queues: Vec<Queue>,
    added: u64,
    /// End, lane, number of the opening.
    closes: BinaryHeap<Reverse<(u64, u32, u64)>>,
    openings: u64,
    open: usize,
    /// The lane whose window no other lane's has overlapped yet.
    alone: Option<u32>,
    /// An instant, and by how much the sum can have been less and more then than by the windows that are open: instants are whole ticks, and a window
    /// that another one of its lane follows may have been open still when another lane's began.
    instant: (u64, i64, i64),
    max: i64,
    min: i64,
    upper: i64,
    lower: i64,
    /// Of the last groups: the latest time in each and those before, and how many windows had come by then.
    ends: VecDeque<(u64, u64)>,
    /// Unit of the stamps, ns.
    tick: u64,
    /// Swept up to there.
    now: u64,
    /// From there on levels mean nothing.
    until: u64,
    edges: edges::Edges,
}

impl Sweep {
    /// Starts from a level that belongs to no lane; `tick`: unit of the stamps.
    pub fn new(base: i64, tick: u64) -> Self {
        Sweep {
            lanes: Vec::new(),
            opens: BinaryHeap::new(),
            queues: Vec::new(),
            added: 0,
            closes: BinaryHeap::new(),
            openings: 0,
            open: 0,
            alone: None,
            instant: (0, 0, 0),
            max: base,
            min: base,
            upper: base,
            lower: base,
            ends: VecDeque::new(),
            tick,
            now: 0,
            until: u64::MAX,
            edges: edges::Edges::new(base),
        }
    }

    /// What is live from `t` on is of no concern.
    pub fn end_at(&mut self, t: u64) {
        self.until = self.until.min(t);
    }

    /// A window of the group being read.
    pub fn add(&mut self, mut span: Span) {
        let lane = self.lane(span.lane);
        let (from, until, min, max) = lane.added;
        span.t0 = span.t0.max(from);
        span.t1 = span.t1.max(span.t0);
        let both = (span.t0 < until).then(|| (min.min(span.min), max.max(span.max)));
        let (least, most) = both.unwrap_or((span.min, span.max));
        lane.added = (span.t0, span.t1, least, most);
        self.added += 1;
        let number = self.added;
        let queue = &mut self.queues[span.lane as usize];
        if queue.is_empty() {
            self.opens.push(Reverse((span.t0, number, span.lane)));
        }
        queue.push_back(Waiting { number, span, both });
    }

    /// The group is complete; none of its windows ends after `t`.
    pub fn end_group(&mut self, t: u64) {
        let latest = self.ends.back().map_or(t, |(last, _)| t.max(*last));
        self.ends.push_back((latest, self.added));
        let added = self.added;
        while let Some((horizon, then)) = self.ends.front().copied()
            && (self.ends.len() > LAG || added - then > WAITING)
        {
            self.ends.pop_front();
            self.run(horizon);
        }
    }

    /// Sweeps what is left; then (lower, upper), and what was at edges.
    pub fn finish(mut self) -> ((i64, i64), Vec<AtEdge>) {
        self.run(u64::MAX);
        ((self.lower, self.upper), self.edges.found)
    }

    fn lane(&mut self, lane: u32) -> &mut LaneNow {
        let at = lane as usize;
        if self.lanes.len() <= at {
            self.lanes.resize(at + 1, LaneNow::default());
            self.queues.resize_with(at + 1, Queue::new);
        }
        &mut self.lanes[at]
    }

    fn run(&mut self, horizon: u64) {
        loop {
            let open = self.opens.peek().map(|Reverse((t0, ..))| *t0);
            let close = self.closes.peek().map(|Reverse(c)| *c);
            if let Some(Reverse((t, ..))) = self.edges.due.peek()
                && *t <= horizon
                && open.is_none_or(|t0| *t <= t0)
                && close.is_none_or(|c| *t <= c.0)
            {
                self.pass_edge();
                continue;
            }
            match (open, close) {
                // Windows that only touch may overlap: instants are whole ticks.
                (Some(t0), close) if close.is_none_or(|c| t0 <= c.0) => {
                    if t0 > horizon {
                        return;
                    }
                    if let Some(waiting) = self.next_window() {
                        self.begin(waiting);
                    }
                }
                (_, Some((t, lane, opening))) => {
                    if t > horizon {
                        return;
                    }
                    self.closes.pop();
                    self.close(lane, opening, t);
                }
                _ => return,
            }
        }
    }

    /// Takes the window that begins first.
    fn next_window(&mut self) -> Option<Waiting> {
        let Reverse((.., lane)) = self.opens.pop()?;
        let queue = self.queues.get_mut(lane as usize)?;
        let window = queue.pop_front();
        if let Some(next) = queue.front() {
            self.opens.push(Reverse((next.span.t0, next.number, lane)));
        }
        window
    }

    /// The lanes whose next window begins at `t` or before.
    fn begin_at(&self, t: u64) -> impl Iterator<Item = u32> {
        self.opens.iter().filter(move |Reverse((t0, ..))| *t0 <= t).map(|Reverse((.., lane))| *lane)
    }

    fn begin(&mut self, Waiting { span, both, .. }: Waiting) {
        self.now = self.now.max(span.t0);
        let mut sure = span.max;
        let mut edges = self.edges.passed;
        // At a stamp the lane's level is known: one window ends before the next begins.
        if let Some(before) = self.lane(span.lane).open {
            // Another lane's that begins at this very instant may have come before the one that ends.
            if self.alone.is_some() && self.begin_at(span.t0).any(|lane| lane != span.lane) {
                self.alone = None;
            }
            if both.is_some() {
                // The one before goes on in this one.
                let of = *self.lane(span.lane);
                (sure, edges) = if self.alone == Some(span.lane) { (sure.max(of.sure), edges.min(of.edges)) } else { (sure, edges) };
                self.alone = None;
            }
            self.end(span.lane, before, span.t0);
            self.follow(&span, both);
        }
        let (least, most) = both.unwrap_or((span.min, span.max));
        self.openings += 1;
        let opening = self.openings;
        self.alone = (self.open == 0).then_some(span.lane);
        self.open += 1;
        let lane = self.lane(span.lane);
        let level = lane.level;
        *lane = LaneNow { min: least, max: most, end: span.end, sure, open: Some(opening), t1: span.t1, edges, ..*lane };
        self.max = self.max.wrapping_add(most.wrapping_sub(level));
        self.min = self.min.wrapping_add(least.wrapping_sub(level));
        self.closes.push(Reverse((span.t1, span.lane, opening)));
        let (less, more) = if self.instant.0 == span.t0 { (self.instant.1, self.instant.2) } else { (0, 0) };
        let possible = self.max.wrapping_add(more);
        if self.now < self.until {
            self.upper = self.upper.max(possible);
        }
        self.edges.since[1] = self.edges.since[1].max(possible);
        self.edges.least = self.edges.least.min(self.min.wrapping_sub(less));
        // What is known at least is known once all windows that begin at this instant are open.
        if self.opens.peek().is_none_or(|Reverse((t0, ..))| *t0 > span.t0) {
            self.note();
        }
    }

    /// A lane's window ends where its next one begins: see [`Sweep::instant`].
    fn follow(&mut self, next: &Span, both: Option<(i64, i64)>) {
        let t = next.t0;
        if self.instant.0 != t {
            self.instant = (t, 0, 0);
        }
        let lane = self.lane(next.lane);
        let (min, max) = (lane.min, lane.max);
        let (least, most) = if lane.followed.0 == t { (lane.followed.1.min(min), lane.followed.2.max(max)) } else { (min, max) };
        let beyond = |min: i64, max: i64| (min.saturating_sub(least).max(0), most.saturating_sub(max).max(0));
        // What was said at this instant of the window that ended is said of this one.
        let before = if lane.followed.0 == t { beyond(min, max) } else { (0, 0) };
        let (min, max) = both.unwrap_or((next.min, next.max));
        let now = beyond(min, max);
        lane.followed = (t, least, most);
        self.instant.1 = self.instant.1.saturating_add(now.0.saturating_sub(before.0));
        self.instant.2 = self.instant.2.saturating_add(now.1.saturating_sub(before.1));
    }

    fn close(&mut self, lane: u32, opening: u64, t: u64) {
        self.now = self.now.max(t);
        self.end(lane, opening, t);
        self.note();
    }

    fn end(&mut self, lane: u32, opening: u64, t: u64) {
        let tick = self.tick;
        let at = self.lane(lane);
        if at.open != Some(opening) {
            return;
        }
        at.open = None;
        at.level = at.end;
        let LaneNow { min, max, end, sure, edges, last, .. } = *at;
        at.last = if last.0.saturating_add(tick) >= t { (t, last.1.min(min), last.2.max(max)) } else { (t, min, max) };
        self.edges.closed(t, lane, tick);
        if self.alone == Some(lane) {
            let sure = self.min.wrapping_sub(min).wrapping_add(sure);
            if self.now < self.until {
                self.lower = self.lower.max(sure);
            }
            if edges == self.edges.passed {
                self.edges.since[0] = self.edges.since[0].max(sure);
            }
        }
        self.open -= 1;
        self.max = self.max.wrapping_add(end.wrapping_sub(max));
        self.min = self.min.wrapping_add(end.wrapping_sub(min));
    }

    fn note(&mut self) {
        if self.now < self.until {
            self.upper = self.upper.max(self.max);
            self.lower = self.lower.max(self.min);
        }
        let [sure, possible] = self.edges.since;
        self.edges.since = [sure.max(self.min), possible.max(self.max)];
        self.edges.least = self.edges.least.min(self.min);
    }
}

#[cfg(test)]
mod tests;
