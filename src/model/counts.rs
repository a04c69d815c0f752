//! The exact counts of an image, from its `calls` lines; in fast mode also the bounds of its peak.

use std::collections::{BTreeMap, VecDeque};

use super::heap::LANE_MAX;
use crate::trace::glance::Seen;
use crate::trace::line::Calls;

/// Last row of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneCount {
    pub allocs: u64,
    pub bytes: u64,
    pub frees: u64,
    pub live: i64,
    pub blocks: i64,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Whether there was a `calls` line at all.
    pub seen: bool,
    /// (calls, bytes) by function number.
    pub by_fn: Vec<(u64, u64)>,
    pub lanes: BTreeMap<u32, LaneCount>,
    pub live: i64,
    pub blocks: i64,
    pub failed: u64,
    pub lost: u64,
    /// Records that were never finished or can't be read: each may be of a counted call, or of none.
    pub broken: u64,
    pub t: u64,
    /// Usable bytes live at the fork.
    inherited: i64,
    /// Σ of the lanes.
    level: i64,
    /// The peak was at least this …
    pub lower: i64,
    pub lower_at: u64,
    /// … and at most this.
    pub upper: i64,
    /// Of the last lines: when, and how much was live at most since the line before.
    recent: VecDeque<(u64, i64)>,
    /// How much was live at most since recording was lowered; `None`: it was not, or that is not known.
    pub upper_since: Option<i64>,
    /// Blocks that were live when it was `lower`; `None` where the trace does not say.
    pub lower_blocks: Option<i64>,
    /// Most blocks live where a lane's bytes were highest, or at a line.
    pub most_blocks: i64,
    /// Of the parent, live at the fork.
    inherited_blocks: i64,
    /// Σ of the lanes.
    blocks_level: i64,
}

/// Functions above are a damaged line's.
const FN_MAX: usize = 256;
/// So are balances beyond: no machine has so much memory, and the sum of all lanes' stays a number.
const BALANCE_MAX: i64 = 1 << 48;
/// Lines remembered.
const RECENT: usize = 64;
/// And counts of a function or a lane, likewise.
const COUNT_MAX: u64 = 1 << 55;
const LANE_COUNT_MAX: u64 = 1 << 48;

impl Counts {
    /// Starts with what a fork inherited.
    pub fn new(inherited: i64, blocks: i64) -> Self {
        let (inherited, inherited_blocks) = (held(inherited), held(blocks));
        Counts {
            inherited,
            inherited_blocks,
            lower: inherited,
            upper: inherited,
            lower_blocks: Some(inherited_blocks),
            ..Counts::default()
        }
    }

    /// Reads one line. Cumulative rows never go back: an older line (a trace beside a newer spool) changes nothing. Which is the older is
    /// told by the counts as well: a spool knows the time of its last stamp only, which may be before the trace's last line.
    ///
    /// Gives what was live at the line and at most since the line before, without what was inherited.
    pub fn read(&mut self, line: &Calls) -> Seen {
        self.seen = true;
        let known = |func: usize| self.by_fn.get(func).map_or(0, |row| row.0);
        let ahead = line.fns.iter().any(|&(func, calls, _)| func < FN_MAX && calls > known(func));
        for &(func, calls, bytes) in line.fns.iter().filter(|row| row.0 < FN_MAX) {
            if self.by_fn.len() <= func {
                self.by_fn.resize(func + 1, (0, 0));
            }
            let row = &mut self.by_fn[func];
            *row = (row.0.max(calls.min(COUNT_MAX)), row.1.max(bytes.min(COUNT_MAX)));
        }
        self.failed = self.failed.max(line.failed.min(COUNT_MAX));
        self.lost = self.lost.max(line.lost.min(COUNT_MAX));
        self.broken = self.broken.max(line.broken.min(COUNT_MAX));
        if line.t >= self.t || ahead {
            (self.live, self.blocks, self.t) = (held(line.live), held(line.blocks), line.t.max(self.t));
        }

        // In this interval every lane's maximum was its `hi`; when, is known only where just one lane changed.
        let mut upper = self.level;
        let mut exact = self.level;
        let mut exact_blocks = (line.hi_blocks.len() == line.lanes.len()).then_some(self.blocks_level);
        for (i, &(lane, allocs, bytes, frees, live, hi)) in line.lanes.iter().enumerate() {
            if lane > LANE_MAX {
                continue;
            }
            let row = self.lanes.entry(lane).or_default();
            let live = held(live);
            let blocks = held(allocs.min(LANE_COUNT_MAX) as i64 - frees.min(LANE_COUNT_MAX) as i64);
            let at_hi = line.hi_blocks.get(i).map_or(row.blocks, |b| if hi > row.live { held(*b) } else { row.blocks });
            exact_blocks = exact_blocks.map(|sum| sum + at_hi - row.blocks);
            self.blocks_level += blocks - row.blocks;
            let hi = held(hi).max(live).max(row.live);
            upper += hi - row.live;
            exact += hi - row.live;
            self.level += live - row.live;
            *row = LaneCount {
                allocs: allocs.min(LANE_COUNT_MAX),
                bytes: bytes.min(COUNT_MAX),
                frees: frees.min(LANE_COUNT_MAX),
                live,
                blocks,
            };
        }
        if line.lanes.len() > 1 {
            (exact, exact_blocks) = (self.level, Some(self.blocks_level));
        }
        let upper = upper + self.inherited;
        self.upper = self.upper.max(upper);
        self.upper_since = self.upper_since.map(|since| since.max(upper));
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back((line.t, upper));
        self.most_blocks = self.most_blocks.max(exact_blocks.unwrap_or(0).max(self.blocks_level) + self.inherited_blocks);
        for (level, blocks) in [(self.level, Some(self.blocks_level)), (exact, exact_blocks)] {
            if level + self.inherited > self.lower {
                (self.lower, self.lower_at) = (level + self.inherited, line.t);
                self.lower_blocks = blocks.map(|b| b + self.inherited_blocks);
            }
        }
        // Of many lanes not each line has the rows.
        self.saw(line.live, Some(line.blocks), line.t);
        let of_lanes = |of: fn(&LaneCount) -> u64| self.lanes.values().map(of).fold(0, u64::saturating_add);
        Seen {
            live: self.level,
            sure: exact.max(self.level),
            most: upper - self.inherited,
            allocs: of_lanes(|l| l.allocs),
            bytes: of_lanes(|l| l.bytes),
        }
    }

    /// Until `t` every call is an event, and not from there on. The next line tells of a stretch that began before.
    pub fn lowered(&mut self, t: u64) {
        let told = self.recent.len() < RECENT || self.recent.front().is_some_and(|(first, _)| *first <= t);
        let later = self.recent.iter().filter(|(of, _)| *of > t).map(|(_, upper)| *upper);
        self.upper_since = told.then(|| later.fold(self.lanes_live(), i64::max));
    }

    /// So much was live when a snapshot was taken, which can be between two lines.
    pub fn saw(&mut self, live: i64, blocks: Option<i64>, t: u64) {
        let live = held(live) + self.inherited;
        if live > self.lower {
            (self.lower, self.lower_at) = (live, t);
            self.lower_blocks = blocks.map(|b| held(b) + self.inherited_blocks);
            self.upper = self.upper.max(live);
            self.upper_since = self.upper_since.map(|since| since.max(live));
        }
    }

    /// Live usable bytes by the lanes' rows.
    pub fn lanes_live(&self) -> i64 {
        self.level + self.inherited
    }

    /// Usable bytes live at the fork.
    pub fn inherited(&self) -> i64 {
        self.inherited
    }

    /// Blocks of the parent that were live at the fork.
    pub fn inherited_blocks(&self) -> i64 {
        self.inherited_blocks
    }

    /// Calls that succeeded.
    pub fn calls(&self) -> u64 {
        self.by_fn.iter().fold(0, |sum, row| sum.saturating_add(row.0))
    }
}

fn held(balance: i64) -> i64 {
    balance.clamp(-BALANCE_MAX, BALANCE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_between_two_lines_raises_the_peak_that_is_sure() {
        let mut c = Counts::new(0, 0);
        c.saw(700, Some(7), 5);
        assert_eq!((c.lower, c.lower_at, c.upper, c.lower_blocks), (700, 5, 700, Some(7)));
        c.saw(600, Some(9), 6);
        assert_eq!((c.lower, c.lower_at), (700, 5));
    }

    #[test]
    fn one_lane_has_an_exact_peak_and_two_have_a_bound() {
        let mut c = Counts::new(0, 0);
        c.read(&Calls { t: 1, lanes: vec![(0, 1, 10, 0, 10, 50)], ..Calls::default() });
        assert_eq!((c.lower, c.upper, c.lower_blocks), (50, 50, None));
        c.read(&Calls { t: 2, lanes: vec![(0, 1, 10, 0, 10, 50), (1, 1, 5, 0, 30, 40)], ..Calls::default() });
        assert_eq!((c.lower, c.upper), (50, 90));
    }

    #[test]
    fn blocks_at_the_peak_are_those_of_its_instant_not_of_a_line() {
        let mut c = Counts::new(0, 0);
        c.read(&Calls { t: 1, lanes: vec![(0, 100, 10, 100, 0, 5000)], hi_blocks: vec![70], ..Calls::default() });
        assert_eq!((c.lower, c.lower_blocks), (5000, Some(70)));
        // Lower maxima change nothing; of two lanes only what the line says of both at once is one instant.
        c.read(&Calls { t: 2, lanes: vec![(0, 200, 10, 200, 0, 4000)], hi_blocks: vec![90], ..Calls::default() });
        assert_eq!((c.lower, c.lower_blocks), (5000, Some(70)));
        let rows = vec![(0, 300, 10, 250, 6000, 6000), (1, 10, 1, 8, 100, 900)];
        c.read(&Calls { t: 3, lanes: rows, hi_blocks: vec![50, 9], ..Calls::default() });
        assert_eq!((c.lower, c.upper, c.lower_blocks), (6100, 6900, Some(52)));
    }

    #[test]
    fn an_older_line_changes_nothing() {
        let mut c = Counts::new(0, 0);
        c.read(&Calls { t: 5, fns: vec![(0, 10, 100)], live: 7, failed: 2, ..Calls::default() });
        c.read(&Calls { t: 4, fns: vec![(0, 9, 90)], live: 6, failed: 1, ..Calls::default() });
        assert_eq!((c.by_fn[0], c.live, c.failed), ((10, 100), 7, 2));
    }

    #[test]
    fn what_counts_further_is_newer_whatever_its_time() {
        let mut c = Counts::new(0, 0);
        c.read(&Calls { t: 5, fns: vec![(0, 10, 100), (11, 3, 0)], live: 70, blocks: 7, ..Calls::default() });
        c.read(&Calls { t: 4, fns: vec![(0, 10, 100), (11, 9, 0)], live: 10, blocks: 1, ..Calls::default() });
        assert_eq!((c.live, c.blocks, c.t), (10, 1, 5));
    }
}
